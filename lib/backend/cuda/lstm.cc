#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "backend/lstm_shape.h"
#include "base/error.h"

// cuDNN's LSTM, all layers in one call, with two biases and gates in the order i, f, g, o:
// PyTorch's. The parameters are copied to cuDNN's own arrangement (its weight space) before each
// call and the gradients from it after, since every parameter lies on its own: a few copies beside
// `steps` products. x, y and their gradients are batch-first as cuDNN takes them; where the final
// state follows y, cuDNN gets a y of its own. Its reserve space is what we keep from Forward for
// Backward.
//
// cuDNN wants BackwardData before BackwardWeights, even where nobody wants the gradient of x, and
// it adds to the gradients of the weights.

namespace pd::cuda {
namespace {

using UniqueDropoutDesc = Handle<cudnnDropoutDescriptor_t, cudnnDestroyDropoutDescriptor>;
using UniqueRnnDesc = Handle<cudnnRNNDescriptor_t, cudnnDestroyRNNDescriptor>;
using UniqueRnnDataDesc = Handle<cudnnRNNDataDescriptor_t, cudnnDestroyRNNDataDescriptor>;

/// [batch, steps, width].
UniqueRnnDataDesc MakeSequenceDesc(int batch, int steps, int width) {
  auto desc = Make<UniqueRnnDataDesc>(cudnnCreateRNNDataDescriptor, "cudnnCreateRNNDataDescriptor");
  const std::vector<int> lengths(static_cast<size_t>(batch), steps);
  PD_CUDNN(cudnnSetRNNDataDescriptor(desc.get(), CUDNN_DATA_FLOAT,
                                     CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED, steps, batch,
                                     width, lengths.data(), nullptr));
  return desc;
}

class Lstm : public CudaOp {
 public:
  Lstm(const Context& context, const LstmDesc& desc, const OpRequest& request)
      : CudaOp(context), shape_(ShapeOf(desc, request)) {
    for (size_t i = 0; i < request.x.size(); ++i) DenseInput(request, i, "lstm");
    info_.y = DenseLayout({shape_.samples, shape_.output_rows(), shape_.hidden}, DType::kF32);
    info_.params = shape_.Params(DType::kF32);
    info_.backward_reads_x = true;
    info_.backward_reads_y = true;
    CheckParams(request, info_, "lstm");
    wants_x_ = request.wants_dx.at(0);
    wants_state_ = shape_.initial && request.wants_dx.at(1);
    Describe(request);
    PlanMemory(request);
  }

  /// Uploads the lengths of the sequences, and asks cuDNN where each matrix lies.
  void Prepare() override {
    if (lengths_.bytes() > 0) return;
    const size_t bytes = static_cast<size_t>(shape_.samples) * sizeof(int32_t);
    const Buffer staging = AllocatePinned(bytes);
    std::fill_n(reinterpret_cast<int32_t*>(staging.data()), shape_.samples,
                static_cast<int32_t>(shape_.steps));
    Buffer lengths = context_.Allocate(bytes);
    PD_CUDA(
        cudaMemcpyAsync(lengths.data(), staging.data(), bytes, cudaMemcpyHostToDevice, stream()));
    PD_CUDA(cudaStreamSynchronize(stream()));
    FindPieces();
    lengths_ = std::move(lengths);
  }

  void Forward(const OpArgs& args) override {
    CopyParams(args);
    GatherInitial(args);
    const bool final = shape_.final;
    PD_CUDNN(cudnnRNNForward(context_.dnn(), rnn_.get(),
                             args.training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
                             lengths(), x_.get(), args.x[0], y_.get(),
                             final ? At(args, y_at_) : args.y, state_.get(), Hx(args),
                             final ? At(args, dhx_at_) : nullptr, state_.get(), Cx(args),
                             final ? At(args, dcx_at_) : nullptr, space_bytes_, At(args, space_at_),
                             work_bytes_, At(args, work_at_), args.training ? info_.saved_bytes : 0,
                             args.training ? args.saved : nullptr));
    if (!final) return;
    PD_CUDA(LaunchCopyRows(Floats(args.y), OutputRow(), At(args, y_at_), StepsRow(), StepsRow(),
                           shape_.samples, stream()));
    float* state = Floats(args.y) + StepsRow();
    Scatter(At(args, dhx_at_), state, OutputRow());
    Scatter(At(args, dcx_at_), state + shape_.layers * shape_.hidden, OutputRow());
  }

  void BackwardData(const OpArgs& args) override {
    CopyParams(args);
    GatherInitial(args);
    const void* y = OutputOf(args);
    const void* dy = args.dy;
    if (shape_.final) {
      dy = At(args, dy_at_);
      PD_CUDA(LaunchCopyRows(At(args, dy_at_), StepsRow(), Floats(args.dy), OutputRow(), StepsRow(),
                             shape_.samples, stream()));
      const float* state = Floats(args.dy) + StepsRow();
      Gather(state, OutputRow(), At(args, dhy_at_));
      Gather(state + shape_.layers * shape_.hidden, OutputRow(), At(args, dcy_at_));
    }
    PD_CUDNN(cudnnRNNBackwardData_v8(
        context_.dnn(), rnn_.get(), lengths(), y_.get(), y, dy, x_.get(),
        wants_x_ ? args.dx[0] : At(args, dx_at_), state_.get(), Hx(args),
        shape_.final ? At(args, dhy_at_) : nullptr, wants_state_ ? At(args, dhx_at_) : nullptr,
        state_.get(), Cx(args), shape_.final ? At(args, dcy_at_) : nullptr,
        wants_state_ ? At(args, dcx_at_) : nullptr, space_bytes_, At(args, space_at_), work_bytes_,
        At(args, work_at_), info_.saved_bytes, args.saved));
    if (!wants_state_) return;
    float* state = Floats(args.dx[1]);
    Scatter(At(args, dhx_at_), state, StateRow());
    Scatter(At(args, dcx_at_), state + shape_.layers * shape_.hidden, StateRow());
  }

  void BackwardWeights(const OpArgs& args) override {
    if (!wants_x_ && !wants_state_) BackwardData(args);
    GatherInitial(args);
    const void* y = OutputOf(args);
    float* space = At(args, space_at_);
    PD_CUDA(cudaMemsetAsync(space, 0, space_bytes_, stream()));
    PD_CUDNN(cudnnRNNBackwardWeights_v8(context_.dnn(), rnn_.get(), CUDNN_WGRAD_MODE_ADD, lengths(),
                                        x_.get(), args.x[0], state_.get(), Hx(args), y_.get(), y,
                                        space_bytes_, space, work_bytes_, At(args, work_at_),
                                        info_.saved_bytes, args.saved));
    for (const Piece& piece : pieces_) {
      CopyAsync(Floats(args.dparams[piece.param]) + piece.param_at, space + piece.space_at,
                piece.count * sizeof(float));
    }
  }

 private:
  /// Elements that lie together in a parameter and in cuDNN's weight space.
  struct Piece {
    size_t param = 0, param_at = 0, space_at = 0, count = 0;
  };

  void Describe(const OpRequest& request) {
    const int batch = ToInt(shape_.samples, "lstm", "the number of samples");
    const int steps = ToInt(shape_.steps, "lstm", "the number of steps");
    const int features = ToInt(shape_.features, "lstm", "the number of features");
    const int hidden = ToInt(shape_.hidden, "lstm", "the hidden size");
    const int layers = ToInt(shape_.layers, "lstm", "the number of layers");
    ToInt(std::max(Elements(request.x[0].dims), Elements(info_.y.dims)), "lstm",
          "the number of elements");
    // No dropout between the layers: a rate of 0 needs no random state.
    dropout_ =
        Make<UniqueDropoutDesc>(cudnnCreateDropoutDescriptor, "cudnnCreateDropoutDescriptor");
    PD_CUDNN(cudnnSetDropoutDescriptor(dropout_.get(), context_.dnn(), 0, nullptr, 0, 0));
    rnn_ = Make<UniqueRnnDesc>(cudnnCreateRNNDescriptor, "cudnnCreateRNNDescriptor");
    PD_CUDNN(cudnnSetRNNDescriptor_v8(
        rnn_.get(), CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
        CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
        context_.tf32() ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH, features, hidden, hidden, layers,
        dropout_.get(), CUDNN_RNN_PADDED_IO_ENABLED));
    x_ = MakeSequenceDesc(batch, steps, features);
    y_ = MakeSequenceDesc(batch, steps, hidden);
    state_ = Make<UniqueTensorDesc>(cudnnCreateTensorDescriptor, "cudnnCreateTensorDescriptor");
    const int dims[] = {layers, batch, hidden};
    const int strides[] = {ToInt(shape_.samples * shape_.hidden, "lstm", "the size of a state"),
                           hidden, 1};
    PD_CUDNN(cudnnSetTensorNdDescriptor(state_.get(), CUDNN_DATA_FLOAT, 3, dims, strides));
  }

  void PlanMemory(const OpRequest& request) {
    PD_CUDNN(cudnnGetRNNWeightSpaceSize(context_.dnn(), rnn_.get(), &space_bytes_));
    size_t inference_bytes = 0;
    PD_CUDNN(cudnnGetRNNTempSpaceSizes(context_.dnn(), rnn_.get(), CUDNN_FWD_MODE_INFERENCE,
                                       x_.get(), &inference_bytes, nullptr));
    PD_CUDNN(cudnnGetRNNTempSpaceSizes(context_.dnn(), rnn_.get(), CUDNN_FWD_MODE_TRAINING,
                                       x_.get(), &work_bytes_, &info_.saved_bytes));
    work_bytes_ = std::max(work_bytes_, inference_bytes);

    const auto take = [&](size_t bytes) {
      constexpr size_t kAlignment = 256;
      const size_t offset = info_.workspace_bytes;
      info_.workspace_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      return offset;
    };
    const size_t state =
        static_cast<size_t>(shape_.layers * shape_.samples * shape_.hidden) * sizeof(float);
    const size_t y = static_cast<size_t>(shape_.samples * StepsRow()) * sizeof(float);
    space_at_ = take(space_bytes_);
    work_at_ = take(work_bytes_);
    for (size_t* at : {&hx_at_, &cx_at_, &dhx_at_, &dcx_at_, &dhy_at_, &dcy_at_}) *at = take(state);
    for (size_t* at : {&y_at_, &dy_at_}) *at = take(shape_.final ? y : 0);
    dx_at_ = take(wants_x_ ? 0 : request.x[0].bytes);
  }

  void FindPieces() {
    const Buffer space = AllocateDevice(space_bytes_);
    const auto desc =
        Make<UniqueTensorDesc>(cudnnCreateTensorDescriptor, "cudnnCreateTensorDescriptor");
    const auto bias_desc =
        Make<UniqueTensorDesc>(cudnnCreateTensorDescriptor, "cudnnCreateTensorDescriptor");
    pieces_.clear();
    for (int64_t l = 0; l < shape_.layers; ++l) {
      for (int32_t id = 0; id < 8; ++id) {  // those of x, then those of h, four gates each
        void* matrix = nullptr;
        void* bias = nullptr;
        PD_CUDNN(cudnnGetRNNWeightParams(context_.dnn(), rnn_.get(), static_cast<int32_t>(l),
                                         space_bytes_, space.data(), id, desc.get(), &matrix,
                                         bias_desc.get(), &bias));
        const bool of_h = id >= 4;
        const int64_t columns = of_h ? shape_.hidden : shape_.inputs(l);
        CheckMatrix(desc.get(), columns);
        CheckMatrix(bias_desc.get(), 1);
        const auto offset = [&](void* address) {
          return static_cast<size_t>(static_cast<std::byte*>(address) - space.data()) /
                 sizeof(float);
        };
        AddPiece(IndexOf(l, of_h ? kWeightHh : kWeightIh), id % 4, columns, offset(matrix));
        AddPiece(IndexOf(l, of_h ? kBiasHh : kBiasIh), id % 4, 1, offset(bias));
      }
    }
    JoinPieces();
  }

  /// cuDNN's matrix must be dense [hidden, columns], row by row, as ours.
  void CheckMatrix(cudnnTensorDescriptor_t desc, int64_t columns) const {
    cudnnDataType_t type{};
    int rank = 0, dims[3] = {}, strides[3] = {};
    PD_CUDNN(cudnnGetTensorNdDescriptor(desc, 3, &type, &rank, dims, strides));
    const bool ours = type == CUDNN_DATA_FLOAT && rank == 3 && dims[0] == 1 &&
                      dims[1] == shape_.hidden && dims[2] == columns &&
                      (columns == 1 || strides[2] == 1) && strides[1] == columns;
    if (ours) return;
    Throw(ErrorCode::kDevice,
          "lstm: cuDNN stores a matrix as {} dimensions [{}, {}, {}] with strides [{}, {}, {}], "
          "expected dense [1, {}, {}]",
          rank, dims[0], dims[1], dims[2], strides[0], strides[1], strides[2], shape_.hidden,
          columns);
  }

  void AddPiece(size_t param, int64_t gate, int64_t columns, size_t space_at) {
    const auto count = static_cast<size_t>(shape_.hidden * columns);
    pieces_.push_back({param, static_cast<size_t>(gate) * count, space_at, count});
  }

  /// Pieces that lie one after the other on both sides become one: fewer copies.
  void JoinPieces() {
    std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
      return a.param != b.param ? a.param < b.param : a.param_at < b.param_at;
    });
    std::vector<Piece> joined;
    for (const Piece& piece : pieces_) {
      Piece* last = joined.empty() ? nullptr : &joined.back();
      if (last != nullptr && last->param == piece.param &&
          last->param_at + last->count == piece.param_at &&
          last->space_at + last->count == piece.space_at) {
        last->count += piece.count;
      } else {
        joined.push_back(piece);
      }
    }
    pieces_ = std::move(joined);
  }

  const int32_t* lengths() const { return reinterpret_cast<const int32_t*>(lengths_.data()); }
  static float* At(const OpArgs& args, size_t offset) {
    return reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) + offset);
  }
  const float* Hx(const OpArgs& args) const { return shape_.initial ? At(args, hx_at_) : nullptr; }
  const float* Cx(const OpArgs& args) const { return shape_.initial ? At(args, cx_at_) : nullptr; }

  // Elements of a sample: of y's steps, of the whole output, of a state.
  int64_t StepsRow() const { return shape_.steps * shape_.hidden; }
  int64_t OutputRow() const { return shape_.output_rows() * shape_.hidden; }
  int64_t StateRow() const { return shape_.state_rows() * shape_.hidden; }

  void CopyParams(const OpArgs& args) const {
    for (const Piece& piece : pieces_) {
      CopyAsync(At(args, space_at_) + piece.space_at,
                Floats(args.params[piece.param]) + piece.param_at, piece.count * sizeof(float));
    }
  }

  /// h or c between a tensor of samples, `row` elements each, and cuDNN's [layers, samples,
  /// hidden].
  void Gather(const float* samples, int64_t row, float* state) const {
    for (int64_t l = 0; l < shape_.layers; ++l) {
      PD_CUDA(LaunchCopyRows(state + l * shape_.samples * shape_.hidden, shape_.hidden,
                             samples + l * shape_.hidden, row, shape_.hidden, shape_.samples,
                             stream()));
    }
  }
  void Scatter(const float* state, float* samples, int64_t row) const {
    for (int64_t l = 0; l < shape_.layers; ++l) {
      PD_CUDA(LaunchCopyRows(samples + l * shape_.hidden, row,
                             state + l * shape_.samples * shape_.hidden, shape_.hidden,
                             shape_.hidden, shape_.samples, stream()));
    }
  }
  void GatherInitial(const OpArgs& args) const {
    if (!shape_.initial) return;
    const float* state = Floats(args.x[1]);
    Gather(state, StateRow(), At(args, hx_at_));
    Gather(state + shape_.layers * shape_.hidden, StateRow(), At(args, cx_at_));
  }

  /// y as cuDNN gave it.
  const void* OutputOf(const OpArgs& args) const {
    if (!shape_.final) return args.y;
    PD_CUDA(LaunchCopyRows(At(args, y_at_), StepsRow(), Floats(args.y), OutputRow(), StepsRow(),
                           shape_.samples, stream()));
    return At(args, y_at_);
  }

  LstmShape shape_;
  bool wants_x_ = false, wants_state_ = false;
  UniqueDropoutDesc dropout_;
  UniqueRnnDesc rnn_;
  UniqueRnnDataDesc x_, y_;
  UniqueTensorDesc state_;  // [layers, samples, hidden]
  std::vector<Piece> pieces_;
  Buffer lengths_;
  size_t space_bytes_ = 0, work_bytes_ = 0;
  // Where what lies in the workspace: cuDNN's weight space and scratch, states in cuDNN's order
  // (the final ones in dhx and dcx), and the sequences that it cannot have where they are.
  size_t space_at_ = 0, work_at_ = 0, hx_at_ = 0, cx_at_ = 0, dhx_at_ = 0, dcx_at_ = 0;
  size_t dhy_at_ = 0, dcy_at_ = 0, y_at_ = 0, dy_at_ = 0, dx_at_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakeLstm(const Context& context, const LstmDesc& desc,
                             const OpRequest& request) {
  return std::make_unique<Lstm>(context, desc, request);
}

}  // namespace pd::cuda
