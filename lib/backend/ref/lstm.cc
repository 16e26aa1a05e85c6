#include "backend/ref/lstm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/lstm_shape.h"
#include "backend/ref/ref_op.h"

// One layer after the other, all steps of it. With z = W_ih·x + b_ih + W_hh·h' + b_hh, primes the
// step before: i, f, o = σ(z_i), σ(z_f), σ(z_o), g = tanh(z_g), c = f·c' + i·g, h = o·tanh(c).
// Source: Hochreiter and Schmidhuber 1997, Gers et al. 2000, as PyTorch's nn.LSTM.

namespace pd::ref {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// The row of each sample and step.
template <typename V>
struct Rows {
  V* data = nullptr;
  int64_t sample_stride = 0, step_stride = 0;

  V* At(int64_t n, int64_t t) const { return data + n * sample_stride + t * step_stride; }
};

template <typename T>
class Lstm : public Op {
 public:
  Lstm(const LstmDesc& desc, const OpRequest& request) : shape_(ShapeOf(desc, request)) {
    for (size_t i = 0; i < request.x.size(); ++i) DenseInput(request, i, kDTypeOf<T>, "lstm");
    info_.y = DenseLayout({shape_.samples, shape_.output_rows(), shape_.hidden}, kDTypeOf<T>);
    info_.params = shape_.Params(kDTypeOf<T>);
    cells_ = shape_.steps * shape_.samples * shape_.hidden;
    info_.saved_bytes = static_cast<size_t>(shape_.layers * 6 * cells_) * sizeof(T);
    const int64_t row = std::max(shape_.features, shape_.hidden);
    info_.workspace_bytes =
        static_cast<size_t>(5 * cells_ + 2 * shape_.samples * shape_.hidden + row) * sizeof(double);
    info_.backward_reads_x = true;
    with_dx_ = std::count(request.wants_dx.begin(), request.wants_dx.end(), true) > 0;
    CheckParams(request, info_, "lstm");
  }

  void Forward(const OpArgs& args) override {
    for (int64_t l = 0; l < shape_.layers; ++l) {
      for (int64_t t = 0; t < shape_.steps; ++t) {
        for (int64_t n = 0; n < shape_.samples; ++n) ForwardCell(args, l, t, n);
      }
    }
    const Kept last = KeptOf(args, shape_.layers - 1);
    for (int64_t n = 0; n < shape_.samples; ++n) {
      T* y = Out<T>(args.y) + n * shape_.output_rows() * shape_.hidden;
      for (int64_t t = 0; t < shape_.steps; ++t) {
        y = std::copy_n(last.h.At(n, t), shape_.hidden, y);
      }
      if (!shape_.final) continue;
      for (int64_t l = 0; l < shape_.layers; ++l) {
        y = std::copy_n(KeptOf(args, l).h.At(n, shape_.steps - 1), shape_.hidden, y);
      }
      for (int64_t l = 0; l < shape_.layers; ++l) {
        y = std::copy_n(KeptOf(args, l).c.At(n, shape_.steps - 1), shape_.hidden, y);
      }
    }
  }

  void BackwardData(const OpArgs& args) override { Backward(args); }
  void BackwardWeights(const OpArgs& args) override {
    if (!with_dx_) Backward(args);
  }

 private:
  /// What Forward keeps of a layer: the gates after their functions, and the states of each step.
  struct Kept {
    Rows<T> gates, c, h;
  };
  Kept KeptOf(const OpArgs& args, int64_t l) const {
    T* data = Out<T>(args.saved) + l * 6 * cells_;
    return {{data, 4 * shape_.hidden, 4 * shape_.hidden * shape_.samples},
            States(data + 4 * cells_),
            States(data + 5 * cells_)};
  }
  template <typename V>
  Rows<V> States(V* data) const {
    return {data, shape_.hidden, shape_.hidden * shape_.samples};
  }

  Rows<const T> InputOf(const OpArgs& args, int64_t l) const {
    if (l == 0) {
      return {In<T>(args.x[0]), shape_.steps * shape_.features, shape_.features};
    }
    const Rows<T> h = KeptOf(args, l - 1).h;
    return {h.data, h.sample_stride, h.step_stride};
  }
  /// Row `row` of sample n's initial state; null where it is zeros.
  const T* Initial(const OpArgs& args, int64_t row, int64_t n) const {
    if (!shape_.initial) return nullptr;
    return In<T>(args.x[1]) + (n * shape_.state_rows() + row) * shape_.hidden;
  }
  /// A layer's h or c before step t.
  const T* Before(const OpArgs& args, const Rows<T>& states, int64_t row, int64_t t,
                  int64_t n) const {
    return t > 0 ? states.At(n, t - 1) : Initial(args, row, n);
  }

  static double Dot(const T* a, const T* b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    return sum;
  }

  void ForwardCell(const OpArgs& args, int64_t l, int64_t t, int64_t n) const {
    const int64_t hidden = shape_.hidden;
    const Kept kept = KeptOf(args, l);
    const T* x = InputOf(args, l).At(n, t);
    const T* h = Before(args, kept.h, l, t, n);
    const T* c = Before(args, kept.c, shape_.layers + l, t, n);
    T* gates = kept.gates.At(n, t);
    for (int64_t row = 0; row < 4 * hidden; ++row) {
      double sum = static_cast<double>(Param(args, l, kBiasIh)[row]) +
                   static_cast<double>(Param(args, l, kBiasHh)[row]);
      sum += Dot(Param(args, l, kWeightIh) + row * shape_.inputs(l), x, shape_.inputs(l));
      if (h != nullptr) sum += Dot(Param(args, l, kWeightHh) + row * hidden, h, hidden);
      gates[row] = static_cast<T>(row / hidden == 2 ? std::tanh(sum) : Sigmoid(sum));
    }
    for (int64_t j = 0; j < hidden; ++j) {
      const double i = gates[j], f = gates[hidden + j];
      const double g = gates[2 * hidden + j], o = gates[3 * hidden + j];
      const double fresh = (c == nullptr ? 0 : f * static_cast<double>(c[j])) + i * g;
      kept.c.At(n, t)[j] = static_cast<T>(fresh);
      kept.h.At(n, t)[j] = static_cast<T>(o * std::tanh(fresh));
    }
  }

  static const T* Param(const OpArgs& args, int64_t l, LstmParam param) {
    return In<T>(args.params[IndexOf(l, param)]);
  }

  /// Scratch of the backward pass: dz of all steps of a layer, the gradient of its output (then of
  /// its input), those of the state between two steps, and a row.
  struct Scratch {
    Rows<double> dz, dout;
    double *dh, *dc, *row;
  };
  Scratch ScratchOf(const OpArgs& args) const {
    double* data = Out<double>(args.workspace);
    double* states = data + 5 * cells_;
    const int64_t state = shape_.samples * shape_.hidden;
    return {{data, 4 * shape_.hidden, 4 * shape_.hidden * shape_.samples},
            States(data + 4 * cells_),
            states,
            states + state,
            states + 2 * state};
  }

  void Backward(const OpArgs& args) const {
    const Scratch scratch = ScratchOf(args);
    const T* dy = In<T>(args.dy);
    const int64_t dy_sample = shape_.output_rows() * shape_.hidden;
    for (int64_t n = 0; n < shape_.samples; ++n) {
      for (int64_t t = 0; t < shape_.steps; ++t) {
        std::copy_n(dy + n * dy_sample + t * shape_.hidden, shape_.hidden, scratch.dout.At(n, t));
      }
    }
    for (int64_t l = shape_.layers - 1; l >= 0; --l) {
      TakeFinal(args, l, scratch.dh);
      TakeFinal(args, shape_.layers + l, scratch.dc);
      for (int64_t t = shape_.steps - 1; t >= 0; --t) {
        for (int64_t n = 0; n < shape_.samples; ++n) BackwardCell(args, l, t, n, scratch);
      }
      GiveInitial(args, l, scratch.dh);
      GiveInitial(args, shape_.layers + l, scratch.dc);
      WeightGradients(args, l, scratch);
      InputGradients(args, l, scratch);
    }
  }

  /// The gradient of row `row` of the final states; of the initial ones.
  void TakeFinal(const OpArgs& args, int64_t row, double* state) const {
    for (int64_t n = 0; n < shape_.samples; ++n, state += shape_.hidden) {
      if (shape_.final) {
        const int64_t at = n * shape_.output_rows() + shape_.steps + row;
        std::copy_n(In<T>(args.dy) + at * shape_.hidden, shape_.hidden, state);
      } else {
        std::fill_n(state, shape_.hidden, 0.0);
      }
    }
  }
  void GiveInitial(const OpArgs& args, int64_t row, const double* state) const {
    if (!with_dx_ || !shape_.initial || args.dx[1] == nullptr) return;
    for (int64_t n = 0; n < shape_.samples; ++n) {
      T* to = Out<T>(args.dx[1]) + (n * shape_.state_rows() + row) * shape_.hidden;
      for (int64_t j = 0; j < shape_.hidden; ++j) {
        to[j] = static_cast<T>(state[n * shape_.hidden + j]);
      }
    }
  }

  /// dh and dc come as the gradients of the state after the step, and leave as those before it.
  void BackwardCell(const OpArgs& args, int64_t l, int64_t t, int64_t n,
                    const Scratch& scratch) const {
    const int64_t hidden = shape_.hidden;
    const Kept kept = KeptOf(args, l);
    const T* gates = kept.gates.At(n, t);
    const T* before = Before(args, kept.c, shape_.layers + l, t, n);
    double* dh = scratch.dh + n * hidden;
    double* dc = scratch.dc + n * hidden;
    double* dz = scratch.dz.At(n, t);
    for (int64_t j = 0; j < hidden; ++j) {
      const double i = gates[j], f = gates[hidden + j];
      const double g = gates[2 * hidden + j], o = gates[3 * hidden + j];
      const double tanh_c = std::tanh(static_cast<double>(kept.c.At(n, t)[j]));
      const double dh_j = dh[j] + scratch.dout.At(n, t)[j];
      const double dc_j = dc[j] + dh_j * o * (1 - tanh_c * tanh_c);
      dz[j] = dc_j * g * i * (1 - i);
      dz[hidden + j] = before == nullptr ? 0 : dc_j * static_cast<double>(before[j]) * f * (1 - f);
      dz[2 * hidden + j] = dc_j * i * (1 - g * g);
      dz[3 * hidden + j] = dh_j * tanh_c * o * (1 - o);
      dc[j] = dc_j * f;
    }
    Combine(Param(args, l, kWeightHh), hidden, dz, dh);
  }

  /// result [columns] = Σ over the gates r of dz[r] · weight[r, :].
  void Combine(const T* weight, int64_t columns, const double* dz, double* result) const {
    std::fill_n(result, columns, 0.0);
    for (int64_t row = 0; row < shape_.gates(); ++row) {
      for (int64_t k = 0; k < columns; ++k) {
        result[k] += dz[row] * static_cast<double>(weight[row * columns + k]);
      }
    }
  }

  void WeightGradients(const OpArgs& args, int64_t l, const Scratch& scratch) const {
    const Kept kept = KeptOf(args, l);
    const Rows<const T> input = InputOf(args, l);
    const auto x = [&](int64_t t, int64_t n) { return input.At(n, t); };
    const auto h = [&](int64_t t, int64_t n) { return Before(args, kept.h, l, t, n); };
    for (int64_t row = 0; row < shape_.gates(); ++row) {
      Outer(args, {l, kWeightIh}, row, shape_.inputs(l), scratch, x);
      Outer(args, {l, kWeightHh}, row, shape_.hidden, scratch, h);
      double sum = 0;
      for (int64_t t = 0; t < shape_.steps; ++t) {
        for (int64_t n = 0; n < shape_.samples; ++n) sum += scratch.dz.At(n, t)[row];
      }
      for (const LstmParam bias : {kBiasIh, kBiasHh}) {
        Out<T>(args.dparams[IndexOf(l, bias)])[row] = static_cast<T>(sum);
      }
    }
  }

  /// A row of a weight's gradient: Σ over steps and samples of dz[row] · values(t, n).
  template <typename F>
  void Outer(const OpArgs& args, std::pair<int64_t, LstmParam> param, int64_t row, int64_t columns,
             const Scratch& scratch, F values) const {
    std::fill_n(scratch.row, columns, 0.0);
    for (int64_t t = 0; t < shape_.steps; ++t) {
      for (int64_t n = 0; n < shape_.samples; ++n) {
        const T* value = values(t, n);
        if (value == nullptr) continue;
        const double dz = scratch.dz.At(n, t)[row];
        for (int64_t k = 0; k < columns; ++k) scratch.row[k] += dz * static_cast<double>(value[k]);
      }
    }
    T* to = Out<T>(args.dparams[IndexOf(param.first, param.second)]) + row * columns;
    for (int64_t k = 0; k < columns; ++k) to[k] = static_cast<T>(scratch.row[k]);
  }

  void InputGradients(const OpArgs& args, int64_t l, const Scratch& scratch) const {
    if (l == 0 && (!with_dx_ || args.dx[0] == nullptr)) return;
    for (int64_t t = 0; t < shape_.steps; ++t) {
      for (int64_t n = 0; n < shape_.samples; ++n) {
        double* to = l == 0 ? scratch.row : scratch.dout.At(n, t);
        Combine(Param(args, l, kWeightIh), shape_.inputs(l), scratch.dz.At(n, t), to);
        if (l > 0) continue;
        T* dx = Out<T>(args.dx[0]) + (n * shape_.steps + t) * shape_.features;
        for (int64_t k = 0; k < shape_.features; ++k) dx[k] = static_cast<T>(to[k]);
      }
    }
  }

  LstmShape shape_;
  int64_t cells_ = 0;  ///< Of one layer, over all samples and steps.
  bool with_dx_ = false;
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeLstm(const LstmDesc& desc, const OpRequest& request) {
  return std::make_unique<Lstm<T>>(desc, request);
}

template std::unique_ptr<Op> MakeLstm<float>(const LstmDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeLstm<double>(const LstmDesc&, const OpRequest&);

}  // namespace pd::ref
