#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

/// T float or double; shapes at AttentionDesc. Saves the probabilities, [N, heads, T, T] in double.
template <typename T>
std::unique_ptr<Op> MakeAttention(const AttentionDesc& desc, const OpRequest& request);

}  // namespace pd::ref
