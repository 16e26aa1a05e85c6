#pragma once

#include <cstdint>
#include <vector>

#include "backend/op.h"
#include "base/error.h"

namespace pd {

/// The extents of an LSTM, which every backend reads from the description and the request alike.
struct LstmShape {
  int64_t samples = 0, steps = 0, features = 0, hidden = 0, layers = 0;
  bool initial = false;  ///< Input 1 is the state to start from.
  bool final = false;    ///< The output ends in the state after the last step.

  int64_t inputs(int64_t layer) const { return layer == 0 ? features : hidden; }
  int64_t gates() const { return 4 * hidden; }
  /// Rows of a state: h of each layer, then c of each.
  int64_t state_rows() const { return 2 * layers; }
  int64_t output_rows() const { return steps + (final ? state_rows() : 0); }

  std::vector<Layout> Params(DType dtype) const {
    std::vector<Layout> params;
    for (int64_t l = 0; l < layers; ++l) {
      params.push_back(DenseLayout({gates(), inputs(l)}, dtype));
      params.push_back(DenseLayout({gates(), hidden}, dtype));
      params.insert(params.end(), 2, DenseLayout({gates()}, dtype));
    }
    return params;
  }
};

/// Where a layer's parameters are among the operation's.
enum LstmParam : size_t { kWeightIh, kWeightHh, kBiasIh, kBiasHh, kLstmParams };
inline size_t IndexOf(int64_t layer, LstmParam param) {
  return static_cast<size_t>(layer) * kLstmParams + param;
}

/// Refuses inputs that are not x [N, T, F] and, optionally, a state [N, 2·layers, hidden].
inline LstmShape ShapeOf(const LstmDesc& desc, const OpRequest& request) {
  PD_CHECK(request.x.size() == 1 || request.x.size() == 2, "lstm: {} inputs", request.x.size());
  const Shape& x = request.x[0].dims;
  PD_CHECK(x.size() == 3 && Elements(x) > 0 && desc.hidden > 0 && desc.layers > 0,
           "lstm: input {}, {} layers of {}", ToString(x), desc.layers, desc.hidden);
  LstmShape shape{.samples = x[0], .steps = x[1], .features = x[2]};
  shape.hidden = desc.hidden;
  shape.layers = desc.layers;
  shape.initial = request.x.size() == 2;
  shape.final = desc.return_state;
  if (shape.initial) {
    const Shape state = {shape.samples, shape.state_rows(), shape.hidden};
    PD_CHECK(request.x[1].dims == state, "lstm: state {}, wanted {}", ToString(request.x[1].dims),
             ToString(state));
  }
  return shape;
}

}  // namespace pd
