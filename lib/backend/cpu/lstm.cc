#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/dense_inputs.h"
#include "backend/cpu/ops.h"
#include "backend/lstm_shape.h"

// One oneDNN LSTM a layer. Its gates are in PyTorch's order. With all that is said below, a step
// takes 1.01 to 1.03 times the bare primitives (64 samples, 35 and 100 steps, 256 to 1024 hidden
// units).
//
// Layouts: between and inside the layers time is outermost, as oneDNN's backward pass is up to 20 %
// faster there than on batch-first tensors; x, y and their gradients are reordered, at 1 to 2 %.
// Parameters stay plain: PyTorch's weights are what the backward pass reads ("ldgoi"); the forward
// pass wants the transpose and the gradients come as one, which costs 1 % at 64 samples, 35 steps,
// 1024 hidden units, and less below.
//
// oneDNN adds to the gradients of the weights, so they start as zeros; and it has one bias, the sum
// of our two, which both get its gradient. It always gets an initial state, of zeros where the
// model has none: without one, oneDNN 2.6 computes a wrong gradient of weight_hh. One primitive
// computes all gradients.

namespace pd::cpu {
namespace {

using Tag = dnnl::memory::format_tag;
constexpr auto kF32 = dnnl::memory::data_type::f32;
constexpr auto kDirection = dnnl::rnn_direction::unidirectional_left2right;

/// The memory of one run, in the order of the kernel's operands.
class Pointers {
 public:
  void Add(const void* data) { data_.at(count_++) = data; }
  std::span<const void* const> all() const { return {data_.data(), count_}; }

 private:
  std::array<const void*, 24> data_{};
  size_t count_ = 0;
};

class Lstm : public CpuOp {
 public:
  Lstm(const Context& context, const LstmDesc& desc, const OpRequest& request)
      : CpuOp(context), shape_(ShapeOf(desc, request)) {
    info_.y = DenseLayout({shape_.samples, shape_.output_rows(), shape_.hidden}, DType::kF32);
    info_.params = shape_.Params(DType::kF32);
    info_.backward_reads_x = true;
    info_.backward_reads_y = true;
    for (size_t i = 0; i < request.params.size(); ++i) {
      PD_CHECK(request.params[i].dense(), "lstm: parameter {} is not dense", i);
    }
    wants_x_ = request.wants_dx.at(0);
    wants_state_ = shape_.initial && request.wants_dx.at(1);

    for (int64_t l = 0; l < shape_.layers; ++l) PlanLayer(l);
    PlanScratch();
    for (int64_t l = 0; l < shape_.layers; ++l) KeepKernels(l);
  }

  void Forward(const OpArgs& args) override {
    for (int64_t l = 0; l < shape_.layers; ++l) {
      const Cell& cell = cells_[static_cast<size_t>(l)];
      Pointers data;
      AddForward(args, l, &data);
      cell.forward->Run(data.all(), Work(args, kernels_at_));
    }
  }

  void BackwardData(const OpArgs& args) override { Backward(args); }
  void BackwardWeights(const OpArgs& args) override {
    if (!wants_x_ && !wants_state_) Backward(args);
  }

 private:
  struct Cell {
    dnnl::lstm_forward::primitive_desc forward_desc;
    dnnl::lstm_backward::primitive_desc backward_desc;
    Kernel* forward = nullptr;
    Kernel* backward = nullptr;
    std::array<Kernel*, 2> gradients{};  ///< From oneDNN's order to ours: weight_ih, weight_hh.
    std::array<MemoryDesc, 3> dnnl_gradients;  ///< weight_ih, weight_hh, bias.
    size_t saved = 0;  ///< Where in OpArgs::saved oneDNN keeps what it needs,
    size_t h = 0;      ///< and h of all steps lies, but for the last layer.
  };

  static size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
  static size_t Take(size_t bytes, size_t* end) {
    const size_t offset = *end;
    *end += Aligned(bytes);
    return offset;
  }

  // ---- Shapes as oneDNN has them: [steps, samples, …], and a leading 1 for layers and directions.

  /// As oneDNN computes with it; `rows` not 0: as it lies in a batch-first tensor of so many rows.
  MemoryDesc Sequence(int64_t width, int64_t rows = 0) const {
    const Shape dims = {shape_.steps, shape_.samples, width};
    if (rows == 0) return PlainDesc(dims);
    return {dims, kF32, dnnl::memory::dims{width, rows * width, 1}};
  }
  MemoryDesc State(int64_t rows = 1) const {
    const int64_t row = rows * shape_.hidden;
    const dnnl::memory::dims dims = {1, 1, shape_.samples, shape_.hidden};
    return {dims, kF32, dnnl::memory::dims{shape_.samples * row, shape_.samples * row, row, 1}};
  }
  MemoryDesc Weight(int64_t inputs, Tag tag) const {
    return {{1, 1, inputs, 4, shape_.hidden}, kF32, tag};
  }
  MemoryDesc Bias() const { return PlainDesc({1, 1, 4, shape_.hidden}); }

  bool last(int64_t l) const { return l == shape_.layers - 1; }
  MemoryDesc StoredInput(int64_t l) const {
    return l == 0 ? Sequence(shape_.features, shape_.steps) : Sequence(shape_.hidden);
  }
  MemoryDesc StoredOutput(int64_t l) const {
    return Sequence(shape_.hidden, last(l) ? shape_.output_rows() : 0);
  }

  // ---- Planning

  void PlanLayer(int64_t l) {
    const MemoryDesc x = Sequence(shape_.inputs(l)), y = Sequence(shape_.hidden);
    const MemoryDesc initial = State();
    const MemoryDesc final = shape_.final ? State() : MemoryDesc();
    const MemoryDesc ih = Weight(shape_.inputs(l), Tag::any);
    const MemoryDesc hh = Weight(shape_.hidden, Tag::any);
    Cell cell;
    const dnnl::lstm_forward::desc forward(dnnl::prop_kind::forward_training, kDirection, x,
                                           initial, initial, ih, hh, Bias(), y, final, final);
    cell.forward_desc = {forward, UserScratchpad(), context_.engine};
    const MemoryDesc ih_read = Weight(shape_.inputs(l), Tag::ldgoi);
    const MemoryDesc hh_read = Weight(shape_.hidden, Tag::ldgoi);
    const dnnl::lstm_backward::desc backward(dnnl::prop_kind::backward, kDirection, x, initial,
                                             initial, ih_read, hh_read, Bias(), y, final, final, x,
                                             initial, initial, ih, hh, Bias(), y, final, final);
    cell.backward_desc = {backward, UserScratchpad(), context_.engine, cell.forward_desc};
    cell.dnnl_gradients = {cell.backward_desc.diff_weights_layer_desc(),
                           cell.backward_desc.diff_weights_iter_desc(), Bias()};
    cell.saved = Take(cell.forward_desc.workspace_desc().get_size(), &info_.saved_bytes);
    if (!last(l)) cell.h = Take(Sequence(shape_.hidden).get_size(), &info_.saved_bytes);
    cells_.push_back(cell);
  }

  void PlanScratch() {
    bias_at_ = Take(Bias().get_size(), &kernels_at_);
    for (size_t i = 0; i < gradients_at_.size(); ++i) {
      size_t bytes = 0;
      for (const Cell& cell : cells_) bytes = std::max(bytes, cell.dnnl_gradients[i].get_size());
      gradients_at_[i] = Take(bytes, &kernels_at_);
    }
    const int64_t width = wants_x_ ? shape_.hidden : std::max(shape_.features, shape_.hidden);
    for (size_t& dh_at : dh_at_) dh_at = Take(Sequence(width).get_size(), &kernels_at_);
    zeros_at_ = Take(State().get_size(), &kernels_at_);
    state_at_ = Take(2 * State().get_size(), &kernels_at_);
  }

  void KeepKernels(int64_t l) {
    Cell& cell = cells_[static_cast<size_t>(l)];
    std::vector<Operand> operands = {{DNNL_ARG_SRC_LAYER, StoredInput(l)},
                                     {DNNL_ARG_WEIGHTS_LAYER, Weight(shape_.inputs(l), Tag::ldgoi)},
                                     {DNNL_ARG_WEIGHTS_ITER, Weight(shape_.hidden, Tag::ldgoi)},
                                     {DNNL_ARG_BIAS},
                                     {DNNL_ARG_DST_LAYER, StoredOutput(l), true},
                                     {DNNL_ARG_WORKSPACE, {}, true}};
    const auto add = [&](std::array<int, 2> args, std::optional<int64_t> rows, bool output) {
      for (const int arg : args) {
        operands.push_back({arg, rows ? std::optional(State(*rows)) : std::nullopt, output});
      }
    };
    const int64_t x_rows = shape_.state_rows(), y_rows = shape_.output_rows();
    const auto given = shape_.initial ? std::optional(x_rows) : std::nullopt;
    add({DNNL_ARG_SRC_ITER, DNNL_ARG_SRC_ITER_C}, given, false);
    if (shape_.final) add({DNNL_ARG_DST_ITER, DNNL_ARG_DST_ITER_C}, y_rows, true);
    cell.forward =
        Keep(std::make_unique<Kernel>(context_, cell.forward_desc, operands), kernels_at_);

    for (Operand& operand : operands) operand.output = false;
    const bool wanted = l > 0 || wants_x_;
    operands.push_back({DNNL_ARG_DIFF_DST_LAYER, StoredOutput(l)});
    operands.push_back(
        {DNNL_ARG_DIFF_SRC_LAYER, wanted ? std::optional(StoredInput(l)) : std::nullopt, true});
    operands.push_back({DNNL_ARG_DIFF_WEIGHTS_LAYER, {}, true});
    operands.push_back({DNNL_ARG_DIFF_WEIGHTS_ITER, {}, true});
    operands.push_back({DNNL_ARG_DIFF_BIAS, {}, true});
    add({DNNL_ARG_DIFF_SRC_ITER, DNNL_ARG_DIFF_SRC_ITER_C},
        wants_state_ ? std::optional(x_rows) : std::nullopt, true);
    if (shape_.final) add({DNNL_ARG_DIFF_DST_ITER, DNNL_ARG_DIFF_DST_ITER_C}, y_rows, false);
    cell.backward =
        Keep(std::make_unique<Kernel>(context_, cell.backward_desc, operands), kernels_at_);
    for (size_t i = 0; i < cell.gradients.size(); ++i) {
      const int64_t inputs = i == 0 ? shape_.inputs(l) : shape_.hidden;
      cell.gradients[i] = Keep(
          MakeReorder(context_, cell.dnnl_gradients[i], Weight(inputs, Tag::ldgoi)), kernels_at_);
    }
  }

  // ---- Running

  static std::byte* Work(const OpArgs& args, size_t offset) {
    return static_cast<std::byte*>(args.workspace) + offset;
  }
  static std::byte* Saved(const OpArgs& args, size_t offset) {
    return static_cast<std::byte*>(args.saved) + offset;
  }

  /// The operands that forward and backward share.
  void AddForward(const OpArgs& args, int64_t l, Pointers* data) const {
    const Cell& cell = cells_[static_cast<size_t>(l)];
    float* bias = Floats(Work(args, bias_at_));
    const float* ih = Floats(args.params[IndexOf(l, kBiasIh)]);
    const float* hh = Floats(args.params[IndexOf(l, kBiasHh)]);
    for (int64_t i = 0; i < shape_.gates(); ++i) bias[i] = ih[i] + hh[i];
    data->Add(l == 0 ? args.x[0] : Saved(args, cells_[static_cast<size_t>(l - 1)].h));
    data->Add(args.params[IndexOf(l, kWeightIh)]);
    data->Add(args.params[IndexOf(l, kWeightHh)]);
    data->Add(bias);
    data->Add(last(l) ? args.y : Saved(args, cell.h));
    data->Add(Saved(args, cell.saved));
    if (shape_.initial) {
      AddStates(args.x[1], l, shape_.state_rows(), 0, data);
    } else {
      std::memset(Work(args, zeros_at_), 0, State().get_size());
      data->Add(Work(args, zeros_at_));
      data->Add(Work(args, zeros_at_));
    }
    if (shape_.final) AddStates(args.y, l, shape_.output_rows(), shape_.steps, data);
  }

  /// h and c of a layer in a tensor of `rows` rows a sample, in which the states begin at `first`.
  void AddStates(const void* tensor, int64_t l, int64_t rows, int64_t first, Pointers* data) const {
    PD_CHECK(first + shape_.state_rows() <= rows, "lstm: {} rows hold no states", rows);
    const float* states = Floats(tensor) + first * shape_.hidden;
    data->Add(states + l * shape_.hidden);
    data->Add(states + (shape_.layers + l) * shape_.hidden);
  }

  void Backward(const OpArgs& args) {
    for (int64_t l = shape_.layers - 1; l >= 0; --l) {
      BackwardLayer(args, l);
      const Cell& cell = cells_[static_cast<size_t>(l)];
      for (size_t i = 0; i < cell.gradients.size(); ++i) {
        cell.gradients[i]->Run(
            {Work(args, gradients_at_[i]), args.dparams[IndexOf(l, static_cast<LstmParam>(i))]},
            Work(args, kernels_at_));
      }
      for (const LstmParam bias : {kBiasIh, kBiasHh}) {
        std::memcpy(args.dparams[IndexOf(l, bias)], Work(args, gradients_at_[2]),
                    Bias().get_size());
      }
    }
  }

  void BackwardLayer(const OpArgs& args, int64_t l) const {
    const Cell& cell = cells_[static_cast<size_t>(l)];
    const auto dh_at = [&](int64_t layer) {
      return Work(args, dh_at_[static_cast<size_t>(layer) % 2]);
    };
    Pointers data;
    AddForward(args, l, &data);
    data.Add(last(l) ? args.dy : dh_at(l));
    data.Add(l == 0 && wants_x_ ? args.dx[0] : dh_at(l + 1));
    for (size_t i = 0; i < gradients_at_.size(); ++i) {
      std::memset(Work(args, gradients_at_[i]), 0, cell.dnnl_gradients[i].get_size());
      data.Add(Work(args, gradients_at_[i]));
    }
    if (wants_state_) {
      AddStates(args.dx[1], l, shape_.state_rows(), 0, &data);
    } else {
      data.Add(Work(args, state_at_));
      data.Add(Work(args, state_at_ + State().get_size()));
    }
    if (shape_.final) AddStates(args.dy, l, shape_.output_rows(), shape_.steps, &data);
    cell.backward->Run(data.all(), Work(args, kernels_at_));
  }

  LstmShape shape_;
  bool wants_x_ = false, wants_state_ = false;
  std::vector<Cell> cells_;
  // Where what lies in the workspace: the sum of the biases, the gradients in oneDNN's order, those
  // of two layers' outputs, an initial state of zeros, the gradient of one that nobody wants, and
  // what the kernels want.
  size_t bias_at_ = 0, zeros_at_ = 0, state_at_ = 0, kernels_at_ = 0;
  std::array<size_t, 3> gradients_at_{};
  std::array<size_t, 2> dh_at_{};
};

}  // namespace

std::unique_ptr<Op> MakeLstm(const Context& context, const LstmDesc& desc,
                             const OpRequest& request) {
  return OnDenseInputs(context, request, [&](const OpRequest& dense) {
    return std::make_unique<Lstm>(context, desc, dense);
  });
}

}  // namespace pd::cpu
