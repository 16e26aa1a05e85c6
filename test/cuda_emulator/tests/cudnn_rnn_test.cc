#include <cmath>
#include <memory>

#include "cudnn_session.h"

namespace cuda_emulator_test {
namespace {

using RnnDescriptor =
    Descriptor<cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor>;
using RnnDataDescriptor = Descriptor<cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor,
                                     cudnnDestroyRNNDataDescriptor>;
using DropoutDescriptor = Descriptor<cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor,
                                     cudnnDestroyDropoutDescriptor>;

constexpr int kSteps = 3, kBatch = 2, kInput = 3, kHidden = 2, kLayers = 2;
constexpr size_t kXs = kSteps * kBatch * kInput, kYs = kSteps * kBatch * kHidden;
constexpr size_t kStates = kLayers * kBatch * kHidden;

cudnnStatus_t SetRnn(const Cudnn& cudnn, cudnnRNNDescriptor_t rnn, cudnnDropoutDescriptor_t dropout,
                     cudnnRNNAlgo_t algo = CUDNN_RNN_ALGO_STANDARD, int projection = kHidden,
                     unsigned flags = CUDNN_RNN_PADDED_IO_ENABLED) {
  Succeeds(cudnnSetDropoutDescriptor(dropout, cudnn, 0, nullptr, 0, 0));
  return cudnnSetRNNDescriptor_v8(rnn, algo, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
                                  CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
                                  CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, kInput, kHidden, projection,
                                  kLayers, dropout, flags);
}

cudnnStatus_t SetData(cudnnRNNDataDescriptor_t data, int width, int length = kSteps,
                      cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) {
  const std::vector<int> lengths(kBatch, length);
  return cudnnSetRNNDataDescriptor(data, CUDNN_DATA_FLOAT, layout, kSteps, kBatch, width,
                                   lengths.data(), nullptr);
}

/// Two layers with everything that the calls need.
struct Lstm {
  explicit Lstm(const Cudnn& c)
      : cudnn(c),
        x(c.stream, Numbers(kXs, 1)),
        y(c.stream, std::vector<float>(kYs, NAN)),
        hx(c.stream, Numbers(kStates, 2)),
        cx(c.stream, Numbers(kStates, 3)),
        hy(c.stream, std::vector<float>(kStates, NAN)),
        cy(c.stream, std::vector<float>(kStates, NAN)),
        dy(c.stream, Numbers(kYs, 4)),
        dhy(c.stream, Numbers(kStates, 5)),
        dcy(c.stream, Numbers(kStates, 6)),
        dx(c.stream, std::vector<float>(kXs, NAN)),
        dhx(c.stream, std::vector<float>(kStates, NAN)),
        dcx(c.stream, std::vector<float>(kStates, NAN)),
        lengths(c.stream, LengthsOf(kSteps)) {
    Succeeds(SetRnn(c, rnn, dropout));
    Succeeds(SetData(x_desc, kInput));
    Succeeds(SetData(y_desc, kHidden));
    const int dims[] = {kLayers, kBatch, kHidden}, strides[] = {kBatch * kHidden, kHidden, 1};
    Succeeds(cudnnSetTensorNdDescriptor(state_desc, CUDNN_DATA_FLOAT, 3, dims, strides));
    Succeeds(cudnnGetRNNWeightSpaceSize(c, rnn, &space_bytes));
    Succeeds(cudnnGetRNNTempSpaceSizes(c, rnn, CUDNN_FWD_MODE_TRAINING, x_desc, &work_bytes,
                                       &reserve_bytes));
    const size_t count = space_bytes / sizeof(float);
    space = std::make_unique<Buffer>(c.stream, Numbers(count, 7));
    dspace = std::make_unique<Buffer>(c.stream, std::vector<float>(count, 0));
    work = std::make_unique<Buffer>(c.stream, std::vector<float>(work_bytes / sizeof(float), 0));
    reserve =
        std::make_unique<Buffer>(c.stream, std::vector<float>(reserve_bytes / sizeof(float), 0));
  }

  static std::vector<float> LengthsOf(int length) {
    const std::vector<int> ints(kBatch, length);
    std::vector<float> bits(kBatch);
    std::copy_n(reinterpret_cast<const char*>(ints.data()), kBatch * sizeof(int),
                reinterpret_cast<char*>(bits.data()));
    return bits;
  }
  const int32_t* Lengths() const { return reinterpret_cast<const int32_t*>(lengths.get()); }

  cudnnStatus_t Forward(cudnnForwardMode_t mode = CUDNN_FWD_MODE_TRAINING) const {
    return cudnnRNNForward(cudnn, rnn, mode, Lengths(), x_desc, x.get(), y_desc, y.get(),
                           state_desc, hx.get(), hy.get(), state_desc, cx.get(), cy.get(),
                           space_bytes, space->get(), work_bytes, work->get(),
                           mode == CUDNN_FWD_MODE_TRAINING ? reserve_bytes : 0,
                           mode == CUDNN_FWD_MODE_TRAINING ? reserve->get() : nullptr);
  }
  cudnnStatus_t BackwardData(float* given_y = nullptr, size_t reserved = 0) const {
    return cudnnRNNBackwardData_v8(
        cudnn, rnn, Lengths(), y_desc, given_y == nullptr ? y.get() : given_y, dy.get(), x_desc,
        dx.get(), state_desc, hx.get(), dhy.get(), dhx.get(), state_desc, cx.get(), dcy.get(),
        dcx.get(), space_bytes, space->get(), work_bytes, work->get(),
        reserved == 0 ? reserve_bytes : reserved, reserve->get());
  }
  cudnnStatus_t BackwardWeights(cudnnWgradMode_t mode = CUDNN_WGRAD_MODE_ADD) const {
    return cudnnRNNBackwardWeights_v8(cudnn, rnn, mode, Lengths(), x_desc, x.get(), state_desc,
                                      hx.get(), y_desc, y.get(), space_bytes, dspace->get(),
                                      work_bytes, work->get(), reserve_bytes, reserve->get());
  }

  /// What the gradients are of.
  double Objective() const {
    Succeeds(Forward());
    return Dot(y.Values(), dy.Values()) + Dot(hy.Values(), dhy.Values()) +
           Dot(cy.Values(), dcy.Values());
  }
  /// Central differences by each value of a buffer.
  std::vector<double> Differences(const Buffer& buffer) const {
    constexpr float kStep = 1.0F / 64;
    const std::vector<float> at = buffer.Values();
    std::vector<double> gradient;
    for (size_t i = 0; i < at.size(); ++i) {
      std::vector<float> moved = at;
      moved[i] = at[i] + kStep;
      buffer.Set(moved);
      const double above = Objective();
      moved[i] = at[i] - kStep;
      buffer.Set(moved);
      gradient.push_back((above - Objective()) / (2 * kStep));
    }
    buffer.Set(at);
    return gradient;
  }
  /// A matrix, or a bias, of the weight space.
  std::vector<float> Weights(int layer, int id, bool bias) const {
    const TensorDescriptor matrix_desc, bias_desc;
    void* addresses[2] = {};
    Succeeds(cudnnGetRNNWeightParams(cudnn, rnn, layer, space_bytes, space->get(), id, matrix_desc,
                                     &addresses[0], bias_desc, &addresses[1]));
    cudnnDataType_t type{};
    int rank = 0, dims[3] = {}, strides[3] = {};
    Succeeds(
        cudnnGetTensorNdDescriptor(bias ? bias_desc : matrix_desc, 3, &type, &rank, dims, strides));
    REQUIRE(rank == 3);
    CHECK(dims[0] == 1);
    CHECK(dims[1] == kHidden);
    CHECK(dims[2] == (bias ? 1 : id < 4 && layer == 0 ? kInput : kHidden));
    const auto offset = static_cast<const float*>(addresses[bias ? 1 : 0]) - space->get();
    const std::vector<float> all = space->Values();
    return {all.begin() + offset, all.begin() + offset + dims[1] * dims[2]};
  }

  const Cudnn& cudnn;
  RnnDescriptor rnn;
  DropoutDescriptor dropout;
  RnnDataDescriptor x_desc, y_desc;
  TensorDescriptor state_desc;
  Buffer x, y, hx, cx, hy, cy, dy, dhy, dcy, dx, dhx, dcx, lengths;
  size_t space_bytes = 0, work_bytes = 0, reserve_bytes = 0;
  std::unique_ptr<Buffer> space, dspace, work, reserve;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST_CASE("an LSTM's first step follows the documented equations, gates in the order i, f, g, o") {
  const Session session;
  const Cudnn cudnn;
  const Lstm lstm(cudnn);
  Succeeds(lstm.Forward());
  // The layers' h and c of sample 1 after one step, from the matrices that WeightParams names.
  const std::vector<float> x = lstm.x.Values(), hx = lstm.hx.Values(), cx = lstm.cx.Values();
  std::vector<double> input(x.begin() + kSteps * kInput, x.begin() + kSteps * kInput + kInput);
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<double> h(kHidden);
    for (size_t j = 0; j < kHidden; ++j) {
      double z[4] = {};
      for (int id = 0; id < 8; ++id) {
        const std::vector<float> matrix = lstm.Weights(layer, id, false);
        z[id % 4] += lstm.Weights(layer, id, true)[j];
        const size_t columns = matrix.size() / kHidden;
        for (size_t k = 0; k < columns; ++k) {
          const double from =
              id < 4 ? input[k] : hx[static_cast<size_t>(layer * kBatch + 1) * kHidden + k];
          z[id % 4] += matrix[j * columns + k] * from;
        }
      }
      const double c = Sigmoid(z[1]) * cx[static_cast<size_t>(layer * kBatch + 1) * kHidden + j] +
                       Sigmoid(z[0]) * std::tanh(z[2]);
      h[j] = Sigmoid(z[3]) * std::tanh(c);
    }
    input = h;
  }
  for (size_t j = 0; j < kHidden; ++j) {
    CHECK_THAT(lstm.y.Values()[kSteps * kHidden + j], WithinAbs(input[j], 1e-6));
  }
  // Inference gives the same without a reserve space.
  const std::vector<float> trained = lstm.y.Values();
  Succeeds(lstm.Forward(CUDNN_FWD_MODE_INFERENCE));
  CHECK(lstm.y.Values() == trained);
}

TEST_CASE("the gradients of an LSTM are its derivatives, and those of the weights add up") {
  const Session session;
  const Cudnn cudnn;
  const Lstm lstm(cudnn);
  const std::vector<double> of_x = lstm.Differences(lstm.x), of_hx = lstm.Differences(lstm.hx);
  const std::vector<double> of_cx = lstm.Differences(lstm.cx);
  const std::vector<double> of_space = lstm.Differences(*lstm.space);
  Succeeds(lstm.Forward());
  Succeeds(lstm.BackwardData());
  Near(lstm.dx.Values(), of_x, 1e-3);
  Near(lstm.dhx.Values(), of_hx, 1e-3);
  Near(lstm.dcx.Values(), of_cx, 1e-3);
  Succeeds(lstm.BackwardWeights());
  const std::vector<float> once = lstm.dspace->Values();
  Near(once, of_space, 1e-3);
  Succeeds(lstm.BackwardWeights());
  for (size_t i = 0; i < once.size(); ++i) CHECK(lstm.dspace->Values()[i] == 2 * once[i]);
}

TEST_CASE(
    "backward functions of an LSTM that come too early, or with what Forward did not give, "
    "are refused") {
  const Session session;
  const Cudnn cudnn;
  const Lstm lstm(cudnn);
  Succeeds(lstm.BackwardData());
  cudnn.stream.Wait();
  Refused("reserveSpace is not what cudnnRNNForward");
  CHECK(std::isnan(lstm.dx.Values()[0]));
  Succeeds(lstm.Forward());
  Succeeds(lstm.BackwardWeights());
  cudnn.stream.Wait();
  Refused("reserveSpace is not what cudnnRNNBackwardData_v8");
  CHECK(std::isnan(lstm.dspace->Values()[0]));
  Succeeds(lstm.Forward());
  Succeeds(lstm.BackwardData(lstm.dy.get()));
  cudnn.stream.Wait();
  Refused("y is not what cudnnRNNForward gave");
  lstm.lengths.Set(Lstm::LengthsOf(kSteps - 1));
  Succeeds(lstm.Forward());
  cudnn.stream.Wait();
  Refused("devSeqLengths differ");
}

TEST_CASE(
    "RNN calls that the documentation does not allow, or that are not emulated, are refused") {
  const Session session;
  const Cudnn cudnn;
  const Lstm lstm(cudnn);
  const RnnDescriptor rnn;
  const DropoutDescriptor dropout;
  const RnnDataDescriptor data;
  Refuses(SetRnn(cudnn, rnn, dropout, CUDNN_RNN_ALGO_PERSIST_STATIC), CUDNN_STATUS_NOT_SUPPORTED,
          "algo");
  Refuses(SetRnn(cudnn, rnn, dropout, CUDNN_RNN_ALGO_STANDARD, kHidden + 1), CUDNN_STATUS_BAD_PARAM,
          "projSize");
  Refuses(SetRnn(cudnn, rnn, dropout, CUDNN_RNN_ALGO_STANDARD, 1), CUDNN_STATUS_NOT_SUPPORTED,
          "projSize");
  Refuses(SetRnn(cudnn, rnn, dropout, CUDNN_RNN_ALGO_STANDARD, kHidden, 2), CUDNN_STATUS_BAD_PARAM,
          "auxFlags");
  Refuses(cudnnSetDropoutDescriptor(dropout, cudnn, 1.5F, nullptr, 0, 0), CUDNN_STATUS_BAD_PARAM,
          "dropout");
  Refuses(SetData(data, kInput, kSteps + 1), CUDNN_STATUS_BAD_PARAM, "seqLengthArray");
  Refuses(SetData(data, kInput, kSteps - 1), CUDNN_STATUS_NOT_SUPPORTED, "seqLengthArray");
  Refuses(SetData(data, kInput, kSteps, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED),
          CUDNN_STATUS_NOT_SUPPORTED, "layout");
  const std::vector<int> long_lengths(kBatch, 65536);
  Refuses(
      cudnnSetRNNDataDescriptor(data, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED,
                                65536, kBatch, kInput, long_lengths.data(), nullptr),
      CUDNN_STATUS_NOT_SUPPORTED, "more than 65535");
  size_t bytes = 0;
  Refuses(cudnnGetRNNWeightSpaceSize(cudnn, rnn, &bytes), CUDNN_STATUS_BAD_PARAM, "never set");
  Succeeds(lstm.Forward());
  Refuses(lstm.BackwardWeights(CUDNN_WGRAD_MODE_SET), CUDNN_STATUS_NOT_SUPPORTED, "addGrad");
  Refuses(lstm.BackwardData(nullptr, lstm.reserve_bytes - 4), CUDNN_STATUS_BAD_PARAM,
          "reserveSpaceSize");
  Refuses(lstm.BackwardData(lstm.dx.get()), CUDNN_STATUS_BAD_PARAM, "dx overlaps y");
  // Another batch size in one of the two descriptors, padded sequences without the flag.
  Succeeds(SetData(lstm.y_desc, kHidden, kSteps, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED));
  Refuses(lstm.Forward(), CUDNN_STATUS_BAD_PARAM, "another layout");
  Succeeds(SetData(lstm.y_desc, kHidden));
  Succeeds(SetRnn(cudnn, lstm.rnn, lstm.dropout, CUDNN_RNN_ALGO_STANDARD, kHidden, 0));
  Refuses(lstm.Forward(), CUDNN_STATUS_BAD_PARAM, "CUDNN_RNN_PADDED_IO_ENABLED");
  const int dims[] = {kLayers, kHidden, kBatch}, strides[] = {1, 2, 3};
  Succeeds(SetRnn(cudnn, lstm.rnn, lstm.dropout));
  Succeeds(cudnnSetTensorNdDescriptor(lstm.state_desc, CUDNN_DATA_FLOAT, 3, dims, strides));
  Refuses(lstm.Forward(), CUDNN_STATUS_BAD_PARAM, "hDesc");
}

}  // namespace
}  // namespace cuda_emulator_test
