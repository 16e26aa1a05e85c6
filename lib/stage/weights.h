#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "stage/cut.h"
#include "stage/model_plan.h"

namespace pd {

/// Where each parameter of a stage lies. All trainable parameters of a stage form one flat block,
/// in layer order and in the backend's layouts; a weight version, the gradient and the momentum are
/// such blocks, so that an update or an all-reduce is one pass over memory. Running statistics form
/// a second, dense block.
class WeightLayout {
 public:
  struct Entry {
    int layer = 0;
    int index = 0;     ///< Among the layer's trainable parameters, or among its state.
    std::string name;  ///< "fc1.weight"
    const ParamSpec* spec = nullptr;
    Layout layout;
    size_t offset = 0;
  };
  /// The contiguous bytes of one layer's parameters.
  struct Range {
    size_t begin = 0, end = 0;
  };

  WeightLayout(const Model& model, const ModelPlan& plan, const std::vector<int>& layers);

  const std::vector<Entry>& params() const { return params_; }
  const std::vector<Entry>& state() const { return state_; }
  size_t params_bytes() const { return params_bytes_; }
  size_t state_bytes() const { return state_bytes_; }
  /// Of the `i`-th layer of the stage; empty for a layer without parameters.
  Range range(size_t i) const { return ranges_[i]; }

  /// Of every parameter's and state's name, place and order of elements: blocks of workers with
  /// equal digests may be added up memory by memory.
  uint64_t Digest() const;

  /// Writes the initial values, which depend on seed and names only, into two blocks.
  void Initialise(const Model& model, Backend& backend, uint64_t seed, std::byte* params,
                  std::byte* state) const;

 private:
  std::vector<Entry> params_, state_;
  std::vector<Range> ranges_;
  size_t params_bytes_ = 0, state_bytes_ = 0;
};

}  // namespace pd
