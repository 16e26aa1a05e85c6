#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/elementwise.h"

namespace pd::cpu {
namespace {

class Reshape : public CpuOp {
 public:
  Reshape(const Context& context, const Shape& shape, const OpRequest& request) : CpuOp(context) {
    const Layout& x = request.x.at(0);
    info_.y = DenseLayout(WithBatch(x.dims[0], shape), x.dtype);
    PD_CHECK(Elements(x.dims) == Elements(info_.y.dims), "reshape: {} to {}", ToString(x.dims),
             ToString(shape));
    if (x.dense()) return;
    forward_ = Keep(MakeReorder(context_, DescOf(x), PlainDesc(x.dims)));
    backward_ = Keep(MakeReorder(context_, PlainDesc(x.dims), DescOf(x)));
  }

  void Forward(const OpArgs& args) override { Copy(forward_, args.x[0], args.y, args.workspace); }
  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] != nullptr) Copy(backward_, args.dy, args.dx[0], args.workspace);
  }

 private:
  void Copy(Kernel* reorder, const void* from, void* to, void* workspace) const {
    if (reorder != nullptr) {
      reorder->Run({from, to}, workspace);
    } else {
      std::memcpy(to, from, info_.y.bytes);
    }
  }

  Kernel* forward_ = nullptr;
  Kernel* backward_ = nullptr;
};

/// Sums in the layout of the first input that has one of its own; inputs in others are reordered.
class AddInputs : public CpuOp {
 public:
  AddInputs(const Context& context, const OpRequest& request) : CpuOp(context) {
    info_.y = request.x.at(0);
    for (const Layout& x : request.x) {
      PD_CHECK(x.dims == info_.y.dims, "add: shapes {} and {}", ToString(info_.y.dims),
               ToString(x.dims));
      if (info_.y.dense()) info_.y = x;
    }
    // One reordered input at a time lies at the start of the workspace.
    const size_t scratch = (info_.y.bytes + 63) / 64 * 64;
    const MemoryDesc y = DescOf(info_.y);
    for (const Layout& x : request.x) {
      const MemoryDesc stored = DescOf(x);
      const bool same = stored == y;
      to_y_.push_back(same ? nullptr : Keep(MakeReorder(context_, stored, y), scratch));
      from_y_.push_back(same ? nullptr : Keep(MakeReorder(context_, y, stored), scratch));
    }
    scratch_ = scratch;
  }

  void Forward(const OpArgs& args) override {
    const auto count = static_cast<int64_t>(info_.y.stored());
    float* y = Floats(args.y);
    std::byte* const work = static_cast<std::byte*>(args.workspace);
    for (size_t i = 0; i < to_y_.size(); ++i) {
      const void* x = args.x[i];
      if (to_y_[i] != nullptr) {
        void* const reordered = i == 0 ? args.y : args.workspace;
        to_y_[i]->Run({x, reordered}, work + scratch_);
        x = reordered;
      }
      ForRanges(context_.threads, count, kElementsAThread, [&](int64_t begin, int64_t end) {
        const auto length = static_cast<size_t>(end - begin);
        if (i > 0) {
          AccumulateHost(y + begin, Floats(x) + begin, length);
        } else if (x != args.y) {
          std::copy_n(Floats(x) + begin, length, y + begin);
        }
      });
    }
  }

  void BackwardData(const OpArgs& args) override {
    std::byte* const work = static_cast<std::byte*>(args.workspace);
    for (size_t i = 0; i < from_y_.size(); ++i) {
      if (args.dx[i] == nullptr) continue;
      if (from_y_[i] != nullptr) {
        from_y_[i]->Run({args.dy, args.dx[i]}, work + scratch_);
      } else {
        std::copy_n(Floats(args.dy), info_.y.stored(), Floats(args.dx[i]));
      }
    }
  }

 private:
  std::vector<Kernel*> to_y_, from_y_;  ///< One an input; null where it is stored as y is.
  size_t scratch_ = 0;
};

/// Along the channels, y is blocked when an input is and all parts begin at a block; else it is
/// dense. An input in y's layout is one run of memory a row, which is what lies before the axis;
/// others are reordered into their part of y and back.
class Concat : public CpuOp {
 public:
  Concat(const Context& context, int64_t axis, const OpRequest& request) : CpuOp(context) {
    Shape dims = request.x.at(0).dims;
    const auto at = static_cast<size_t>(axis);
    dims.at(at) = 0;
    int64_t block = 1;
    for (const Layout& x : request.x) {
      if (block == 1 && !x.dense()) block = ViewOf(x).block;
    }
    bool aligned = axis == 1 && (block == 8 || block == 16);
    for (const Layout& x : request.x) {
      aligned = aligned && dims[at] % block == 0;
      dims[at] += x.dims[at];
    }
    MemoryDesc y = PlainDesc(dims);
    if (aligned) {
      using Tag = dnnl::memory::format_tag;
      y = MemoryDesc(dims, dnnl::memory::data_type::f32, block == 16 ? Tag::nChw16c : Tag::nChw8c);
    }
    info_.y = MakeLayout(dims, y);
    rows_ = Elements(dims) / ElementsFrom(dims, at);
    row_ = static_cast<int64_t>(info_.y.stored()) / rows_;
    const int64_t y_block = info_.y.dense() ? 1 : ViewOf(info_.y).block;
    dnnl::memory::dims offset(dims.size(), 0);
    int64_t start = 0;
    for (const Layout& x : request.x) {
      Part part;
      part.start = start;
      part.size = static_cast<int64_t>(x.stored()) / rows_;
      if ((x.dense() ? 1 : ViewOf(x).block) != y_block) {
        const MemoryDesc inside = y.submemory_desc(x.dims, offset);
        part.gather = Keep(MakeReorder(context_, DescOf(x), inside));
        part.scatter = Keep(MakeReorder(context_, inside, DescOf(x)));
      }
      parts_.push_back(part);
      offset[at] += x.dims[at];
      start += x.dims[at] * ElementsFrom(x.dims, at + 1);
    }
  }

  void Forward(const OpArgs& args) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      if (part.gather != nullptr) {
        part.gather->Run({args.x[i], args.y}, args.workspace);
        continue;
      }
      for (int64_t n = 0; n < rows_; ++n) {
        std::copy_n(Floats(args.x[i]) + n * part.size, part.size,
                    Floats(args.y) + n * row_ + part.start);
      }
    }
  }

  void BackwardData(const OpArgs& args) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      if (args.dx[i] == nullptr) continue;
      if (part.scatter != nullptr) {
        part.scatter->Run({args.dy, args.dx[i]}, args.workspace);
        continue;
      }
      for (int64_t n = 0; n < rows_; ++n) {
        std::copy_n(Floats(args.dy) + n * row_ + part.start, part.size,
                    Floats(args.dx[i]) + n * part.size);
      }
    }
  }

 private:
  struct Part {
    int64_t start = 0, size = 0;  ///< In each row of y; stored elements.
    Kernel* gather = nullptr;     ///< Null where the input is stored as y is.
    Kernel* scatter = nullptr;
  };

  std::vector<Part> parts_;
  int64_t rows_ = 0, row_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakeReshape(const Context& context, const Shape& shape,
                                const OpRequest& request) {
  return std::make_unique<Reshape>(context, shape, request);
}
std::unique_ptr<Op> MakeAdd(const Context& context, const OpRequest& request) {
  return std::make_unique<AddInputs>(context, request);
}
std::unique_ptr<Op> MakeConcat(const Context& context, int64_t axis, const OpRequest& request) {
  return std::make_unique<Concat>(context, axis, request);
}

}  // namespace pd::cpu
