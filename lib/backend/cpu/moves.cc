#include <algorithm>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/dense_inputs.h"
#include "backend/cpu/ops.h"

// Slice, pad and transpose: one reorder between two descriptions of the same elements, forward and
// back.

namespace pd::cpu {
namespace {

class Slice : public CpuOp {
 public:
  Slice(const Context& context, const SliceDesc& desc, const OpRequest& request) : CpuOp(context) {
    const Shape& x = request.x.at(0).dims;
    Shape y = x;
    y.at(static_cast<size_t>(desc.axis)) = desc.end - desc.begin;
    Shape offset(x.size(), 0);
    offset[static_cast<size_t>(desc.axis)] = desc.begin;
    const MemoryDesc inside = PlainDesc(x).submemory_desc(y, offset);
    forward_ = Keep(MakeReorder(context_, inside, PlainDesc(y)));
    backward_ = Keep(MakeReorder(context_, PlainDesc(y), inside));
    info_.y = DenseLayout(std::move(y), DType::kF32);
    count_ = Elements(x);
  }

  void Forward(const OpArgs& args) override { forward_->Run({args.x[0], args.y}, args.workspace); }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    std::fill_n(Floats(args.dx[0]), count_, 0.0F);
    backward_->Run({args.dy, args.dx[0]}, args.workspace);
  }

 private:
  int64_t count_ = 0;  ///< Elements of x.
  Kernel* forward_ = nullptr;
  Kernel* backward_ = nullptr;
};

class Pad : public CpuOp {
 public:
  Pad(const Context& context, const PadDesc& desc, const OpRequest& request) : CpuOp(context) {
    const Layout& x = request.x.at(0);
    PD_CHECK(desc.before.size() == x.dims.size() && desc.after.size() == x.dims.size(),
             "pad: {} before and {} after {}", ToString(desc.before), ToString(desc.after),
             ToString(x.dims));
    Shape y = x.dims;
    for (size_t d = 0; d < y.size(); ++d) y[d] += desc.before[d] + desc.after[d];
    const MemoryDesc inside = PlainDesc(y).submemory_desc(x.dims, desc.before);
    forward_ = Keep(MakeReorder(context_, DescOf(x), inside));
    backward_ = Keep(MakeReorder(context_, inside, DescOf(x)));
    info_.y = DenseLayout(std::move(y), DType::kF32);
  }

  void Forward(const OpArgs& args) override {
    std::fill_n(Floats(args.y), info_.y.stored(), 0.0F);
    forward_->Run({args.x[0], args.y}, args.workspace);
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] != nullptr) backward_->Run({args.dy, args.dx[0]}, args.workspace);
  }

 private:
  Kernel* forward_ = nullptr;
  Kernel* backward_ = nullptr;
};

class Transpose : public CpuOp {
 public:
  Transpose(const Context& context, const TransposeDesc& desc, const OpRequest& request)
      : CpuOp(context) {
    const Layout& x = request.x.at(0);
    PD_CHECK(desc.axes.size() == x.dims.size(), "transpose: axes {} of {}", ToString(desc.axes),
             ToString(x.dims));
    Shape y;
    std::vector<int> place(desc.axes.size());  // of each dimension of x in y
    for (size_t d = 0; d < desc.axes.size(); ++d) {
      y.push_back(x.dims.at(static_cast<size_t>(desc.axes[d])));
      place[static_cast<size_t>(desc.axes[d])] = static_cast<int>(d);
    }
    const MemoryDesc seen = DescOf(x).permute_axes(place);
    forward_ = Keep(MakeReorder(context_, seen, PlainDesc(y)));
    backward_ = Keep(MakeReorder(context_, PlainDesc(y), seen));
    info_.y = DenseLayout(std::move(y), DType::kF32);
  }

  void Forward(const OpArgs& args) override { forward_->Run({args.x[0], args.y}, args.workspace); }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] != nullptr) backward_->Run({args.dy, args.dx[0]}, args.workspace);
  }

 private:
  Kernel* forward_ = nullptr;
  Kernel* backward_ = nullptr;
};

}  // namespace

std::unique_ptr<Op> MakeSlice(const Context& context, const SliceDesc& desc,
                              const OpRequest& request) {
  return OnDenseInputs(context, request, [&](const OpRequest& dense) {
    return std::make_unique<Slice>(context, desc, dense);
  });
}
std::unique_ptr<Op> MakePad(const Context& context, const PadDesc& desc, const OpRequest& request) {
  return std::make_unique<Pad>(context, desc, request);
}
std::unique_ptr<Op> MakeTranspose(const Context& context, const TransposeDesc& desc,
                                  const OpRequest& request) {
  return std::make_unique<Transpose>(context, desc, request);
}

}  // namespace pd::cpu
