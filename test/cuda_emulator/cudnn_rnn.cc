// cuDNN's LSTM. With W and R the matrices of a layer's input and of h, primes the step before:
//   i, f, o = σ(W x + R h' + bW + bR), g = tanh(W x + R h' + bW + bR), c = f c' + i g, h = o
//   tanh(c).

#include <cmath>
#include <cstring>

#include "cudnn_rnn.h"

namespace cuda_emulator::library {
namespace {

enum class Stage : int32_t { kForward = 0x4C53544D, kBackwardData = 0x4C535444 };

// One call's sizes, and where what lies. State tensors are [layers, batch, hidden].
struct Lstm {
  const char* api;
  RnnWeights weights;
  RnnReserve reserve;
  cudnnRNNDataLayout_t layout;
  bool tf32;

  int64_t Hidden() const { return weights.hidden; }
  int64_t Sequence(int64_t n, int64_t t, int64_t width) const {
    return (layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED ? n * reserve.steps + t
                                                                 : t * reserve.batch + n) *
           width;
  }
  int64_t Cell(int64_t n, int64_t t) const { return t * reserve.batch + n; }
  int64_t State(int64_t layer, int64_t n) const { return (layer * reserve.batch + n) * Hidden(); }
  bool Last(int64_t layer) const { return layer == reserve.layers - 1; }

  template <class F>
  void ForEachCell(F&& f) const {
    for (int64_t t = 0; t < reserve.steps; ++t) {
      for (int64_t n = 0; n < reserve.batch; ++n) f(n, t);
    }
  }
  double Factor(float value) const { return tf32 ? RoundToTf32(value) : value; }
};

struct ForwardData {
  const float *lengths, *x, *hx, *cx, *weights;
  float *y, *hy, *cy, *reserve;
};
struct BackwardData {
  const float *lengths, *y, *dy, *cx, *dhy, *dcy, *weights;
  float *dx, *dhx, *dcx, *reserve;
};
struct WeightsData {
  const float *lengths, *x, *hx, *y;
  float *dweights, *reserve;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Whether the lengths on the device are those of the descriptor.
bool SameLengths(const Lstm& lstm, const float* lengths) {
  for (int64_t n = 0; n < lstm.reserve.batch; ++n) {
    int32_t length = 0;
    std::memcpy(&length, lengths + n, sizeof length);
    if (length == lstm.reserve.steps) continue;
    Refuse(lstm.api, "devSeqLengths differ from the descriptor's seqLengthArray");
    return false;
  }
  return true;
}

// The tag: who wrote the reserve space last, and for which sizes.
void Tag(const Lstm& lstm, Stage stage, float* reserve) {
  const int32_t tag[] = {static_cast<int32_t>(stage),
                         static_cast<int32_t>(lstm.reserve.steps),
                         static_cast<int32_t>(lstm.reserve.batch),
                         static_cast<int32_t>(lstm.reserve.hidden),
                         static_cast<int32_t>(lstm.reserve.layers),
                         static_cast<int32_t>(lstm.weights.input),
                         0,
                         0};
  static_assert(sizeof tag == RnnReserve::kTag * sizeof(float));
  std::memcpy(reserve, tag, sizeof tag);
}

bool HasTag(const Lstm& lstm, Stage stage, const float* reserve) {
  float expected[RnnReserve::kTag];
  Tag(lstm, stage, expected);
  if (std::memcmp(reserve, expected, sizeof expected) == 0) return true;
  Refuse(lstm.api, stage == Stage::kForward
                       ? "reserveSpace is not what cudnnRNNForward in training mode left"
                       : "reserveSpace is not what cudnnRNNBackwardData_v8 left");
  return false;
}

// z[gate] of one cell; `before` null: zeros.
void GateInputs(const Lstm& lstm, int64_t layer, const float* weights, const float* input,
                const float* before, std::vector<double>& z) {
  for (int gate = 0; gate < 4; ++gate) {
    for (int64_t j = 0; j < lstm.Hidden(); ++j) {
      double sum = static_cast<double>(weights[lstm.weights.Bias(layer, gate) + j]) +
                   weights[lstm.weights.Bias(layer, gate + 4) + j];
      for (const int id : {gate, gate + 4}) {
        const float* from = id < 4 ? input : before;
        if (from == nullptr) continue;
        const int64_t columns = lstm.weights.Columns(layer, id);
        const float* row = weights + lstm.weights.Matrix(layer, id) + j * columns;
        for (int64_t k = 0; k < columns; ++k) sum += lstm.Factor(row[k]) * lstm.Factor(from[k]);
      }
      z[static_cast<size_t>(gate * lstm.Hidden() + j)] = sum;
    }
  }
}

const float* LayerInput(const Lstm& lstm, const float* x, const float* reserve, int64_t layer,
                        int64_t n, int64_t t) {
  if (layer == 0) return x + lstm.Sequence(n, t, lstm.weights.input);
  return reserve + lstm.reserve.H(layer - 1) + lstm.Cell(n, t) * lstm.Hidden();
}

const float* StateBefore(const Lstm& lstm, const float* reserve_states, const float* initial,
                         int64_t layer, int64_t n, int64_t t) {
  if (t > 0) return reserve_states + lstm.Cell(n, t - 1) * lstm.Hidden();
  return initial == nullptr ? nullptr : initial + lstm.State(layer, n);
}

void RunForward(const Lstm& lstm, const ForwardData& data) {
  const int64_t hidden = lstm.Hidden();
  std::vector<float> own(data.reserve == nullptr ? static_cast<size_t>(lstm.reserve.Count()) : 0);
  float* reserve = data.reserve == nullptr ? own.data() : data.reserve;
  if (!SameLengths(lstm, data.lengths))
    return FillWithNan(reserve, RnnReserve::kTag * sizeof(float));
  std::vector<double> z(static_cast<size_t>(4 * hidden));
  for (int64_t layer = 0; layer < lstm.reserve.layers; ++layer) {
    float* hs = reserve + lstm.reserve.H(layer);
    float* cs = reserve + lstm.reserve.C(layer);
    lstm.ForEachCell([&](int64_t n, int64_t t) {
      GateInputs(lstm, layer, data.weights, LayerInput(lstm, data.x, reserve, layer, n, t),
                 StateBefore(lstm, hs, data.hx, layer, n, t), z);
      const float* before = StateBefore(lstm, cs, data.cx, layer, n, t);
      float* gates = reserve + lstm.reserve.Gates(layer) + lstm.Cell(n, t) * 4 * hidden;
      for (int64_t j = 0; j < hidden; ++j) {
        for (int gate = 0; gate < 4; ++gate) {
          const double value = z[static_cast<size_t>(gate * hidden + j)];
          gates[gate * hidden + j] =
              static_cast<float>(gate == 2 ? std::tanh(value) : Sigmoid(value));
        }
        const double kept =
            before == nullptr ? 0 : static_cast<double>(gates[hidden + j]) * before[j];
        const double c = kept + static_cast<double>(gates[j]) * gates[2 * hidden + j];
        cs[lstm.Cell(n, t) * hidden + j] = static_cast<float>(c);
        hs[lstm.Cell(n, t) * hidden + j] = static_cast<float>(gates[3 * hidden + j] * std::tanh(c));
      }
      const float* h = hs + lstm.Cell(n, t) * hidden;
      if (lstm.Last(layer)) std::copy_n(h, hidden, data.y + lstm.Sequence(n, t, hidden));
      if (t < lstm.reserve.steps - 1) return;
      if (data.hy != nullptr) std::copy_n(h, hidden, data.hy + lstm.State(layer, n));
      const float* c = cs + lstm.Cell(n, t) * hidden;
      if (data.cy != nullptr) std::copy_n(c, hidden, data.cy + lstm.State(layer, n));
    });
  }
  Tag(lstm, Stage::kForward, reserve);
}

// y as given must be what Forward gave.
bool SameOutput(const Lstm& lstm, const float* y, const float* reserve) {
  bool same = true;
  const float* hs = reserve + lstm.reserve.H(lstm.reserve.layers - 1);
  lstm.ForEachCell([&](int64_t n, int64_t t) {
    same = same &&
           std::memcmp(y + lstm.Sequence(n, t, lstm.Hidden()), hs + lstm.Cell(n, t) * lstm.Hidden(),
                       static_cast<size_t>(lstm.Hidden()) * sizeof(float)) == 0;
  });
  if (!same) Refuse(lstm.api, "y is not what cudnnRNNForward gave");
  return same;
}

// result[k] = Σ over gates and units of dz · matrix[·, k], of the input's or of h's matrices.
void Combine(const Lstm& lstm, int64_t layer, bool of_h, const float* weights, const float* dz,
             double* result) {
  const int64_t columns = lstm.weights.Columns(layer, of_h ? 4 : 0);
  std::fill_n(result, columns, 0.0);
  for (int gate = 0; gate < 4; ++gate) {
    const float* matrix = weights + lstm.weights.Matrix(layer, gate + (of_h ? 4 : 0));
    for (int64_t j = 0; j < lstm.Hidden(); ++j) {
      const double factor = lstm.Factor(dz[gate * lstm.Hidden() + j]);
      for (int64_t k = 0; k < columns; ++k) {
        result[k] += factor * lstm.Factor(matrix[j * columns + k]);
      }
    }
  }
}

// The gradients of a cell's gate inputs, kept in the reserve space. dh and dc come as those after
// the step and leave as those before it.
void BackwardCell(const Lstm& lstm, const BackwardData& data, int64_t layer, int64_t n, int64_t t,
                  const double* dout, double* dh, double* dc) {
  const int64_t hidden = lstm.Hidden(), cell = lstm.Cell(n, t);
  const float* gates = data.reserve + lstm.reserve.Gates(layer) + cell * 4 * hidden;
  const float* cs = data.reserve + lstm.reserve.C(layer);
  const float* before = StateBefore(lstm, cs, data.cx, layer, n, t);
  float* dz = data.reserve + lstm.reserve.Gradients(layer) + cell * 4 * hidden;
  for (int64_t j = 0; j < hidden; ++j) {
    const double i = gates[j], f = gates[hidden + j], g = gates[2 * hidden + j];
    const double o = gates[3 * hidden + j], tanh_c = std::tanh(cs[cell * hidden + j]);
    const double of_h = dh[j] + dout[j];
    const double of_c = dc[j] + of_h * o * (1 - tanh_c * tanh_c);
    const double previous = before == nullptr ? 0 : before[j];
    dz[j] = static_cast<float>(of_c * g * i * (1 - i));
    dz[hidden + j] = static_cast<float>(of_c * previous * f * (1 - f));
    dz[2 * hidden + j] = static_cast<float>(of_c * i * (1 - g * g));
    dz[3 * hidden + j] = static_cast<float>(of_h * tanh_c * o * (1 - o));
    dc[j] = of_c * f;
  }
  Combine(lstm, layer, true, data.weights, dz, dh);
}

void TakeState(const Lstm& lstm, const float* state, int64_t layer, std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = state == nullptr ? 0 : state[lstm.State(layer, 0) + static_cast<int64_t>(i)];
  }
}

void GiveState(const Lstm& lstm, const std::vector<double>& values, int64_t layer, float* state) {
  if (state == nullptr) return;
  for (size_t i = 0; i < values.size(); ++i) {
    state[lstm.State(layer, 0) + static_cast<int64_t>(i)] = static_cast<float>(values[i]);
  }
}

void RunBackwardData(const Lstm& lstm, const BackwardData& data) {
  const int64_t hidden = lstm.Hidden(), input = lstm.weights.input;
  if (!SameLengths(lstm, data.lengths) || !HasTag(lstm, Stage::kForward, data.reserve) ||
      !SameOutput(lstm, data.y, data.reserve)) {
    return FillWithNan(data.reserve, RnnReserve::kTag * sizeof(float));
  }
  std::vector<double> dout(static_cast<size_t>(lstm.reserve.Cells()));
  const auto out = [&](int64_t n, int64_t t) { return dout.data() + lstm.Cell(n, t) * hidden; };
  lstm.ForEachCell([&](int64_t n, int64_t t) {
    std::copy_n(data.dy + lstm.Sequence(n, t, hidden), hidden, out(n, t));
  });
  const auto state = static_cast<size_t>(lstm.reserve.batch * hidden);
  std::vector<double> dh(state), dc(state), dx(static_cast<size_t>(input));
  for (int64_t layer = lstm.reserve.layers - 1; layer >= 0; --layer) {
    TakeState(lstm, data.dhy, layer, dh);
    TakeState(lstm, data.dcy, layer, dc);
    for (int64_t t = lstm.reserve.steps - 1; t >= 0; --t) {
      for (int64_t n = 0; n < lstm.reserve.batch; ++n) {
        BackwardCell(lstm, data, layer, n, t, out(n, t), &dh[static_cast<size_t>(n * hidden)],
                     &dc[static_cast<size_t>(n * hidden)]);
      }
    }
    GiveState(lstm, dh, layer, data.dhx);
    GiveState(lstm, dc, layer, data.dcx);
    lstm.ForEachCell([&](int64_t n, int64_t t) {
      const float* dz = data.reserve + lstm.reserve.Gradients(layer) + lstm.Cell(n, t) * 4 * hidden;
      double* to = layer > 0 ? out(n, t) : dx.data();
      Combine(lstm, layer, false, data.weights, dz, to);
      if (layer > 0) return;
      float* result = data.dx + lstm.Sequence(n, t, input);
      for (int64_t k = 0; k < input; ++k) result[k] = static_cast<float>(to[k]);
    });
  }
  Tag(lstm, Stage::kBackwardData, data.reserve);
}

// Adds to dweights.
void RunBackwardWeights(const Lstm& lstm, const WeightsData& data) {
  const int64_t hidden = lstm.Hidden();
  if (!SameLengths(lstm, data.lengths) || !HasTag(lstm, Stage::kBackwardData, data.reserve) ||
      !SameOutput(lstm, data.y, data.reserve)) {
    return FillWithNan(data.dweights, static_cast<size_t>(lstm.weights.Count()) * sizeof(float));
  }
  for (int64_t layer = 0; layer < lstm.reserve.layers; ++layer) {
    const float* hs = data.reserve + lstm.reserve.H(layer);
    for (int id = 0; id < RnnWeights::kLinear; ++id) {
      const int64_t columns = lstm.weights.Columns(layer, id);
      for (int64_t j = 0; j < hidden; ++j) {
        std::vector<double> row(static_cast<size_t>(columns));
        double bias = 0;
        lstm.ForEachCell([&](int64_t n, int64_t t) {
          const float dz = data.reserve[lstm.reserve.Gradients(layer) +
                                        lstm.Cell(n, t) * 4 * hidden + id % 4 * hidden + j];
          bias += dz;
          const float* from = id < 4 ? LayerInput(lstm, data.x, data.reserve, layer, n, t)
                                     : StateBefore(lstm, hs, data.hx, layer, n, t);
          if (from == nullptr) return;
          for (size_t k = 0; k < row.size(); ++k) row[k] += lstm.Factor(dz) * lstm.Factor(from[k]);
        });
        float* matrix = data.dweights + lstm.weights.Matrix(layer, id) + j * columns;
        for (size_t k = 0; k < row.size(); ++k) matrix[k] += static_cast<float>(row[k]);
        data.dweights[lstm.weights.Bias(layer, id) + j] += static_cast<float>(bias);
      }
    }
  }
}

// ---- Arguments

struct Descriptors {
  cudnnRNNDescriptor_t rnn;
  cudnnRNNDataDescriptor_t x, y;
  cudnnTensorDescriptor_t h, c;  // c may be null where a function has none
};

void CheckState(const cudnnTensorStruct* descriptor, const char* name, const RnnReserve& sizes) {
  const cudnnTensorStruct& tensor = Described(descriptor, name);
  const TensorView expected = Dense({sizes.layers, sizes.batch, sizes.hidden});
  Require(tensor.type == CUDNN_DATA_FLOAT && tensor.view.SameDims(expected) &&
              tensor.view.SameStrides(expected),
          Fault::kBadParam, name, "is not fully packed [numLayers, batchSize, hiddenSize] f32");
}

Lstm Check(const char* api, const Descriptors& given) {
  const cudnnRNNStruct& rnn = Described(given.rnn, "rnnDesc");
  const cudnnRNNDataStruct& x = Described(given.x, "xDesc");
  const cudnnRNNDataStruct& y = Described(given.y, "yDesc");
  Require(rnn.padded_io, Fault::kBadParam, "layout",
          "that is unpacked needs CUDNN_RNN_PADDED_IO_ENABLED");
  Require(x.width == rnn.input, Fault::kBadParam, "xDesc", "has another size than inputSize");
  Require(y.width == rnn.hidden, Fault::kBadParam, "yDesc", "has another size than hiddenSize");
  Require(
      x.layout == y.layout && x.steps == y.steps && x.batch == y.batch && x.lengths == y.lengths,
      Fault::kBadParam, "xDesc", "has another layout, lengths or batch than yDesc");
  const Lstm lstm{api,
                  RnnWeights(rnn),
                  {x.steps, x.batch, rnn.hidden, rnn.layers},
                  x.layout,
                  rnn.may_use_tf32 && Tf32Enabled()};
  CheckState(given.h, "hDesc", lstm.reserve);
  if (given.c != nullptr) CheckState(given.c, "cDesc", lstm.reserve);
  return lstm;
}

// Bytes of the three spaces that a call is given; those reserved count in training alone.
struct Spaces {
  size_t weights, work, reserve;
};

// Refuses spaces smaller than cuDNN asks for; returns the bytes of work space that it asks for.
size_t CheckSpaces(const Descriptors& of, const Spaces& given, bool training = true) {
  const auto check = [](size_t bytes, size_t needed, const char* name) {
    Require(bytes >= needed, Fault::kBadParam, name, "is smaller than cuDNN asked for");
  };
  const size_t work = RnnWorkBytes(*of.rnn, *of.x, training);
  check(given.weights, static_cast<size_t>(RnnWeights(*of.rnn).Count()) * sizeof(float),
        "weightSpaceSize");
  check(given.work, work, "workSpaceSize");
  if (training) check(given.reserve, RnnReserveBytes(*of.rnn, *of.x), "reserveSpaceSize");
  return work;
}

// A null pointer gives null: not given, or not wanted.
const float* OptionalIn(Operation& operation, const void* data, const TensorView& view,
                        const char* name) {
  return data == nullptr ? nullptr : operation.In(data, view, name);
}
float* OptionalOut(Operation& operation, void* data, const TensorView& view, const char* name) {
  return data == nullptr ? nullptr : operation.Out(data, view, name);
}

struct Views {
  explicit Views(const Lstm& lstm)
      : lengths(Dense({lstm.reserve.batch})),
        x(Dense({lstm.reserve.steps, lstm.reserve.batch, lstm.weights.input})),
        y(Dense({lstm.reserve.steps, lstm.reserve.batch, lstm.reserve.hidden})),
        state(Dense({lstm.reserve.layers, lstm.reserve.batch, lstm.reserve.hidden})),
        weights(Dense({lstm.weights.Count()})),
        reserve(Dense({lstm.reserve.Count()})) {}
  TensorView lengths, x, y, state, weights, reserve;
};

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                              cudnnForwardMode_t fwdMode, const int32_t devSeqLengths[],
                              cudnnRNNDataDescriptor_t xDesc, const void* x,
                              cudnnRNNDataDescriptor_t yDesc, void* y,
                              cudnnTensorDescriptor_t hDesc, const void* hx, void* hy,
                              cudnnTensorDescriptor_t cDesc, const void* cx, void* cy,
                              size_t weightSpaceSize, const void* weightSpace, size_t workSpaceSize,
                              void* workSpace, size_t reserveSpaceSize, void* reserveSpace) {
  static constexpr const char* kApi = "cudnnRNNForward";
  return CudnnCall(kApi, [&] {
    const HandleUse use = Use(handle);
    Require(fwdMode == CUDNN_FWD_MODE_INFERENCE || fwdMode == CUDNN_FWD_MODE_TRAINING,
            Fault::kBadParam, "fwdMode", "is no cudnnForwardMode_t");
    Require(cDesc != nullptr, Fault::kBadParam, "cDesc", "is null");
    const Descriptors of{rnnDesc, xDesc, yDesc, hDesc, cDesc};
    const Lstm lstm = Check(kApi, of);
    const bool training = fwdMode == CUDNN_FWD_MODE_TRAINING;
    const size_t work =
        CheckSpaces(of, {weightSpaceSize, workSpaceSize, reserveSpaceSize}, training);
    const Views views(lstm);
    Operation operation(use.Stream(), kApi);
    ForwardData data{};
    data.lengths = operation.In(devSeqLengths, views.lengths, "devSeqLengths");
    data.x = operation.In(x, views.x, "x");
    data.y = operation.Out(y, views.y, "y");
    data.hx = OptionalIn(operation, hx, views.state, "hx");
    data.hy = OptionalOut(operation, hy, views.state, "hy");
    data.cx = OptionalIn(operation, cx, views.state, "cx");
    data.cy = OptionalOut(operation, cy, views.state, "cy");
    data.weights = operation.In(weightSpace, views.weights, "weightSpace");
    operation.UseWorkspace(workSpace, work, "workSpace");
    if (training) data.reserve = operation.Out(reserveSpace, views.reserve, "reserveSpace");
    operation.Launch([=] { RunForward(lstm, data); });
  });
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                      const int32_t devSeqLengths[], cudnnRNNDataDescriptor_t yDesc,
                                      const void* y, const void* dy, cudnnRNNDataDescriptor_t xDesc,
                                      void* dx, cudnnTensorDescriptor_t hDesc, const void* hx,
                                      const void* dhy, void* dhx, cudnnTensorDescriptor_t cDesc,
                                      const void* cx, const void* dcy, void* dcx,
                                      size_t weightSpaceSize, const void* weightSpace,
                                      size_t workSpaceSize, void* workSpace,
                                      size_t reserveSpaceSize, void* reserveSpace) {
  static constexpr const char* kApi = "cudnnRNNBackwardData_v8";
  return CudnnCall(kApi, [&] {
    const HandleUse use = Use(handle);
    Require(cDesc != nullptr, Fault::kBadParam, "cDesc", "is null");
    const Descriptors of{rnnDesc, xDesc, yDesc, hDesc, cDesc};
    const Lstm lstm = Check(kApi, of);
    const size_t work = CheckSpaces(of, {weightSpaceSize, workSpaceSize, reserveSpaceSize});
    const Views views(lstm);
    Operation operation(use.Stream(), kApi);
    BackwardData data{};
    data.lengths = operation.In(devSeqLengths, views.lengths, "devSeqLengths");
    data.y = operation.In(y, views.y, "y");
    data.dy = operation.In(dy, views.y, "dy");
    data.dx = operation.Out(dx, views.x, "dx");
    OptionalIn(operation, hx, views.state, "hx");
    data.cx = OptionalIn(operation, cx, views.state, "cx");
    data.dhy = OptionalIn(operation, dhy, views.state, "dhy");
    data.dhx = OptionalOut(operation, dhx, views.state, "dhx");
    data.dcy = OptionalIn(operation, dcy, views.state, "dcy");
    data.dcx = OptionalOut(operation, dcx, views.state, "dcx");
    data.weights = operation.In(weightSpace, views.weights, "weightSpace");
    operation.UseWorkspace(workSpace, work, "workSpace");
    data.reserve = operation.Out(reserveSpace, views.reserve, "reserveSpace");
    operation.Launch([=] { RunBackwardData(lstm, data); });
  });
}

// Only CUDNN_WGRAD_MODE_ADD is supported; it must come after cudnnRNNBackwardData_v8.
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                         cudnnWgradMode_t addGrad, const int32_t devSeqLengths[],
                                         cudnnRNNDataDescriptor_t xDesc, const void* x,
                                         cudnnTensorDescriptor_t hDesc, const void* hx,
                                         cudnnRNNDataDescriptor_t yDesc, const void* y,
                                         size_t weightSpaceSize, void* dweightSpace,
                                         size_t workSpaceSize, void* workSpace,
                                         size_t reserveSpaceSize, void* reserveSpace) {
  static constexpr const char* kApi = "cudnnRNNBackwardWeights_v8";
  return CudnnCall(kApi, [&] {
    const HandleUse use = Use(handle);
    Require(addGrad == CUDNN_WGRAD_MODE_ADD, Fault::kNotSupported, "addGrad",
            "other than CUDNN_WGRAD_MODE_ADD");
    const Descriptors of{rnnDesc, xDesc, yDesc, hDesc, nullptr};
    const Lstm lstm = Check(kApi, of);
    const size_t work = CheckSpaces(of, {weightSpaceSize, workSpaceSize, reserveSpaceSize});
    const Views views(lstm);
    Operation operation(use.Stream(), kApi);
    WeightsData data{};
    data.lengths = operation.In(devSeqLengths, views.lengths, "devSeqLengths");
    data.x = operation.In(x, views.x, "x");
    data.hx = OptionalIn(operation, hx, views.state, "hx");
    data.y = operation.In(y, views.y, "y");
    data.dweights = operation.Out(dweightSpace, views.weights, "dweightSpace");
    operation.UseWorkspace(workSpace, work, "workSpace");
    data.reserve = operation.Out(reserveSpace, views.reserve, "reserveSpace");
    operation.Launch([=] { RunBackwardWeights(lstm, data); });
  });
}

}  // extern "C"
