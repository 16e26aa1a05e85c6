#pragma once

#include <memory>

#include "backend/cpu/layout.h"
#include "backend/op.h"

namespace pd::cpu {

// The operations, as Backend's Plan methods state them. Activations may come in any layout that
// ChannelView describes.

std::unique_ptr<Op> MakeConv2d(const Context&, const Conv2dDesc&, const OpRequest&);
std::unique_ptr<Op> MakeLinear(const Context&, const LinearDesc&, const OpRequest&);
std::unique_ptr<Op> MakePool2d(const Context&, const Pool2dDesc&, const OpRequest&);
std::unique_ptr<Op> MakeActivation(const Context&, Activation, const OpRequest&);
std::unique_ptr<Op> MakeReshape(const Context&, const Shape&, const OpRequest&);
std::unique_ptr<Op> MakeDropout(const Context&, const DropoutDesc&, const OpRequest&);
std::unique_ptr<Op> MakeBatchNorm(const Context&, const BatchNormDesc&, const OpRequest&);
std::unique_ptr<Op> MakeLrn(const Context&, const LrnDesc&, const OpRequest&);
std::unique_ptr<Op> MakeAdd(const Context&, const OpRequest&);
std::unique_ptr<Op> MakeConcat(const Context&, int64_t axis, const OpRequest&);
std::unique_ptr<Op> MakeGelu(const Context&, const GeluDesc&, const OpRequest&);
std::unique_ptr<Op> MakeEmbedding(const Context&, const EmbeddingDesc&, const OpRequest&);
std::unique_ptr<Op> MakeLayerNorm(const Context&, const LayerNormDesc&, const OpRequest&);
std::unique_ptr<Op> MakeAttention(const Context&, const AttentionDesc&, const OpRequest&);
std::unique_ptr<Op> MakeLstm(const Context&, const LstmDesc&, const OpRequest&);
std::unique_ptr<Op> MakeSlice(const Context&, const SliceDesc&, const OpRequest&);
std::unique_ptr<Op> MakePad(const Context&, const PadDesc&, const OpRequest&);
std::unique_ptr<Op> MakeTranspose(const Context&, const TransposeDesc&, const OpRequest&);
std::unique_ptr<Op> MakePositionEmbedding(const Context&, const OpRequest&);
std::unique_ptr<Op> MakeSoftmaxCrossEntropy(const Context&, const SoftmaxCrossEntropyDesc&,
                                            const OpRequest&);

}  // namespace pd::cpu
