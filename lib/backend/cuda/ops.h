#pragma once

#include <memory>

#include "backend/cuda/context.h"
#include "backend/op.h"

namespace pd::cuda {

// The operations, as Backend's Plan methods state them. All tensors are dense. They keep the
// context, and are gone before it. A call queues work on the compute stream.

std::unique_ptr<Op> MakeConv2d(const Context&, const Conv2dDesc&, const OpRequest&);
std::unique_ptr<Op> MakeLinear(const Context&, const LinearDesc&, const OpRequest&);
std::unique_ptr<Op> MakePool2d(const Context&, const Pool2dDesc&, const OpRequest&);
std::unique_ptr<Op> MakeActivation(const Context&, Activation, const OpRequest&);
std::unique_ptr<Op> MakeFlatten(const Context&, const OpRequest&);
std::unique_ptr<Op> MakeDropout(const Context&, const DropoutDesc&, const OpRequest&);
std::unique_ptr<Op> MakeBatchNorm(const Context&, const BatchNormDesc&, const OpRequest&);
std::unique_ptr<Op> MakeLrn(const Context&, const LrnDesc&, const OpRequest&);
std::unique_ptr<Op> MakeAdd(const Context&, const OpRequest&);
std::unique_ptr<Op> MakeConcat(const Context&, const OpRequest&);
std::unique_ptr<Op> MakeSoftmaxCrossEntropy(const Context&, const SoftmaxCrossEntropyDesc&,
                                            const OpRequest&);

}  // namespace pd::cuda
