#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/cpu/layout.h"
#include "backend/op.h"
#include "base/error.h"

namespace pd::cpu {

/// What the operations of this backend have in common: kernels, built by Prepare.
class CpuOp : public Op {
 public:
  void Prepare() override {
    for (const auto& kernel : kernels_) kernel->Build();
  }

  /// oneDNN's names of the implementations chosen, for tests and the curious.
  std::vector<std::string> Implementations() const {
    std::vector<std::string> names;
    for (const auto& kernel : kernels_) names.push_back(kernel->implementation());
    return names;
  }

 protected:
  explicit CpuOp(Context context) : context_(std::move(context)) {}

  /// Keeps the kernel and sees that info_.workspace_bytes is enough for it, at `offset`.
  Kernel* Keep(std::unique_ptr<Kernel> kernel, size_t offset = 0) {
    info_.workspace_bytes = std::max(info_.workspace_bytes, offset + kernel->workspace_bytes());
    kernels_.push_back(std::move(kernel));
    return kernels_.back().get();
  }
  Kernel* Add(const dnnl::primitive_desc_base& primitive, const std::vector<Operand>& operands) {
    return Keep(std::make_unique<Kernel>(context_, primitive, operands));
  }

  Context context_;

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

/// The first implementation among those for `candidates` that is not one of plain loops, or the
/// first at all where oneDNN has no other. `make` gives a primitive description, or an empty one.
/// Throws kDevice when there is none.
template <typename Candidate, typename Make>
auto FirstFast(const std::vector<Candidate>& candidates, const char* what, Make make) {
  decltype(make(candidates.front())) slow;
  for (const Candidate& candidate : candidates) {
    auto found = make(candidate);
    if (found.get(true) == nullptr) continue;
    if (!IsReference(found)) return found;
    if (slow.get(true) == nullptr) slow = found;
  }
  if (slow.get(true) == nullptr) {
    Throw(ErrorCode::kDevice, "{}: oneDNN has no kernel for this shape", what);
  }
  return slow;
}

inline const float* Floats(const void* data) { return static_cast<const float*>(data); }
inline float* Floats(void* data) { return static_cast<float*>(data); }

}  // namespace pd::cpu
