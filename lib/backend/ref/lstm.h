#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

/// LstmDesc, T float or double. Dense.
template <typename T>
std::unique_ptr<Op> MakeLstm(const LstmDesc& desc, const OpRequest& request);

}  // namespace pd::ref
