#include "backend/backend.h"

#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace pd {

void Backend::Transfer(Queue /*queue*/, void* to, const void* from, size_t bytes) {
  if (to != from) std::memcpy(to, from, bytes);
}

void Backend::Record(Queue /*queue*/, Mark& mark, const char* /*purpose*/) {
  mark.host_ns = NowNs();
}

double Backend::ElapsedMs(const Mark& from, const Mark& to) const {
  return NsToMs(to.host_ns - from.host_ns);
}

std::unique_ptr<Op> Backend::RefuseLayer(std::string_view type) const {
  Throw(ErrorCode::kInvalidInput, "device {} has no layers of type {}", kind(), type);
}

std::unique_ptr<Op> Backend::PlanConv2d(const Conv2dDesc&, const OpRequest&) {
  return RefuseLayer("conv2d");
}
std::unique_ptr<Op> Backend::PlanLinear(const LinearDesc&, const OpRequest&) {
  return RefuseLayer("linear");
}
std::unique_ptr<Op> Backend::PlanPool2d(const Pool2dDesc&, const OpRequest&) {
  return RefuseLayer("pool2d");
}
std::unique_ptr<Op> Backend::PlanActivation(Activation, const OpRequest&) {
  return RefuseLayer("activation");
}
std::unique_ptr<Op> Backend::PlanReshape(const Shape&, const OpRequest&) {
  return RefuseLayer("reshape");
}
std::unique_ptr<Op> Backend::PlanDropout(const DropoutDesc&, const OpRequest&) {
  return RefuseLayer("dropout");
}
std::unique_ptr<Op> Backend::PlanBatchNorm(const BatchNormDesc&, const OpRequest&) {
  return RefuseLayer("batch_norm");
}
std::unique_ptr<Op> Backend::PlanLrn(const LrnDesc&, const OpRequest&) {
  return RefuseLayer("lrn");
}
std::unique_ptr<Op> Backend::PlanAdd(const OpRequest&) { return RefuseLayer("add"); }
std::unique_ptr<Op> Backend::PlanConcat(int64_t, const OpRequest&) { return RefuseLayer("concat"); }
std::unique_ptr<Op> Backend::PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc&,
                                                     const OpRequest&) {
  return RefuseLayer("softmax_cross_entropy");
}
std::unique_ptr<Op> Backend::PlanGelu(const GeluDesc&, const OpRequest&) {
  return RefuseLayer("gelu");
}
std::unique_ptr<Op> Backend::PlanEmbedding(const EmbeddingDesc&, const OpRequest&) {
  return RefuseLayer("embedding");
}
std::unique_ptr<Op> Backend::PlanLayerNorm(const LayerNormDesc&, const OpRequest&) {
  return RefuseLayer("layer_norm");
}
std::unique_ptr<Op> Backend::PlanAttention(const AttentionDesc&, const OpRequest&) {
  return RefuseLayer("attention");
}
std::unique_ptr<Op> Backend::PlanLstm(const LstmDesc&, const OpRequest&) {
  return RefuseLayer("lstm");
}
std::unique_ptr<Op> Backend::PlanSlice(const SliceDesc&, const OpRequest&) {
  return RefuseLayer("slice");
}
std::unique_ptr<Op> Backend::PlanPad(const PadDesc&, const OpRequest&) {
  return RefuseLayer("pad");
}
std::unique_ptr<Op> Backend::PlanTranspose(const TransposeDesc&, const OpRequest&) {
  return RefuseLayer("transpose");
}
std::unique_ptr<Op> Backend::PlanPositionEmbedding(const OpRequest&) {
  return RefuseLayer("position_embedding");
}
std::unique_ptr<Op> Backend::PlanTimed(const TimedDesc&, const OpRequest&) {
  return RefuseLayer("timed");
}

}  // namespace pd
