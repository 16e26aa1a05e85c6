#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

/// T float or double; shapes at LayerNormDesc. Saves mean and 1/√(variance + eps) of each row, in
/// double.
template <typename T>
std::unique_ptr<Op> MakeLayerNorm(const LayerNormDesc& desc, const OpRequest& request);

}  // namespace pd::ref
