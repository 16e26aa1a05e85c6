#include "backend/cpu/dense_inputs.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_op.h"

namespace pd::cpu {
namespace {

class DenseInputs : public CpuOp {
 public:
  DenseInputs(const Context& context, const OpRequest& request, std::unique_ptr<Op> op)
      : CpuOp(context), op_(std::move(op)), x_(request.x.size()), dx_(request.x.size()) {
    info_ = op_->info();
    size_t copies = 0;
    const auto take = [&copies](const Layout& layout) {
      const size_t offset = copies;
      const size_t bytes = DenseLayout(layout.dims, layout.dtype).bytes;
      copies += (bytes + 63) / 64 * 64;
      return offset;
    };
    for (size_t i = 0; i < request.x.size(); ++i) {
      const Layout& x = request.x[i];
      Copy copy;
      if (!x.dense()) {
        copy.x = take(x);
        if (request.wants_dx[i]) copy.dx = take(x);
      }
      copies_.push_back(copy);
    }
    scratch_ = copies;
    info_.workspace_bytes += scratch_;
    for (size_t i = 0; i < request.x.size(); ++i) {
      const Layout& x = request.x[i];
      if (x.dense()) continue;
      copies_[i].gather = Keep(MakeReorder(context_, DescOf(x), PlainDesc(x.dims)), scratch_);
      copies_[i].scatter = Keep(MakeReorder(context_, PlainDesc(x.dims), DescOf(x)), scratch_);
    }
  }

  void Prepare() override {
    CpuOp::Prepare();
    op_->Prepare();
  }

  void Forward(const OpArgs& args) override { op_->Forward(Dense(args, true)); }

  void BackwardData(const OpArgs& args) override {
    op_->BackwardData(Dense(args, info_.backward_reads_x));
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (copies_[i].scatter == nullptr || args.dx[i] == nullptr) continue;
      copies_[i].scatter->Run({dx_[i], args.dx[i]}, Work(args) + scratch_);
    }
  }

  void BackwardWeights(const OpArgs& args) override {
    op_->BackwardWeights(Dense(args, info_.backward_reads_x));
  }

 private:
  struct Copy {
    size_t x = 0, dx = 0;  ///< Offsets in the workspace.
    Kernel* gather = nullptr;
    Kernel* scatter = nullptr;  ///< Null where the input is dense.
  };

  static std::byte* Work(const OpArgs& args) { return static_cast<std::byte*>(args.workspace); }

  /// The call's memory as the operation sees it; `gather`: copies the inputs now.
  OpArgs Dense(const OpArgs& args, bool gather) {
    for (size_t i = 0; i < copies_.size(); ++i) {
      const Copy& copy = copies_[i];
      const bool dense = copy.gather == nullptr;
      const bool wants_dx = i < args.dx.size() && args.dx[i] != nullptr;
      x_[i] = dense ? args.x[i] : Work(args) + copy.x;
      dx_[i] = !wants_dx ? nullptr : dense ? args.dx[i] : Work(args) + copy.dx;
      if (!dense && gather) copy.gather->Run({args.x[i], x_[i]}, Work(args) + scratch_);
    }
    OpArgs inner = args;
    inner.x = x_;
    inner.dx = dx_;
    inner.workspace = Work(args) + scratch_;
    return inner;
  }

  std::unique_ptr<Op> op_;
  std::vector<Copy> copies_;  ///< One an input.
  std::vector<const void*> x_;
  std::vector<void*> dx_;
  size_t scratch_ = 0;  ///< Where the workspace of the operation and of the reorders begins.
};

}  // namespace

std::unique_ptr<Op> OnDenseInputs(
    const Context& context, const OpRequest& request,
    const std::function<std::unique_ptr<Op>(const OpRequest& dense)>& make) {
  OpRequest dense = request;
  bool all = true;
  for (Layout& x : dense.x) {
    all = all && x.dense();
    x = DenseLayout(x.dims, x.dtype);
  }
  std::unique_ptr<Op> op = make(dense);
  if (all) return op;
  return std::make_unique<DenseInputs>(context, request, std::move(op));
}

}  // namespace pd::cpu
