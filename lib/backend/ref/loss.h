#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

/// Softmax and cross-entropy, T float or double; shapes at SoftmaxCrossEntropyDesc. Backward reads
/// logits and targets again. Forward throws kInvalidInput, before it writes anything, when a target
/// is neither a class nor kIgnoredTarget.
template <typename T>
std::unique_ptr<Op> MakeSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc,
                                            const OpRequest& request);

}  // namespace pd::ref
