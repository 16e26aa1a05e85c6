#include "stage/weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "stage/packer.h"

namespace pd {

WeightLayout::WeightLayout(const Model& model, const ModelPlan& plan,
                           const std::vector<int>& layers) {
  for (const int l : layers) {
    const Layer& layer = *model.layers()[l].layer;
    const OpInfo& info = plan.op(l).info();
    const size_t begin = params_bytes_;
    int num_params = 0;
    int num_state = 0;
    for (const ParamSpec& spec : layer.params()) {
      Entry entry;
      entry.layer = l;
      entry.name = layer.name() + "." + spec.name;
      entry.spec = &spec;
      if (spec.trainable) {
        entry.index = num_params++;
        entry.layout = info.params.at(entry.index);
        entry.offset = params_bytes_;
        params_bytes_ += Align(entry.layout.bytes);
        params_.push_back(std::move(entry));
      } else {
        entry.index = num_state++;
        // State has the type of the parameters; a layer with state has at least one of them.
        entry.layout = DenseLayout(spec.shape, info.params.at(0).dtype);
        entry.offset = state_bytes_;
        state_bytes_ += Align(entry.layout.bytes);
        state_.push_back(std::move(entry));
      }
    }
    ranges_.push_back({begin, params_bytes_});
  }
}

uint64_t WeightLayout::Digest() const {
  uint64_t digest = HashBytes(fmt::format("{} {}", params_bytes_, state_bytes_));
  for (const std::vector<Entry>* entries : {&params_, &state_}) {
    for (const Entry& e : *entries) {
      digest = HashBytes(fmt::format("\n{} {} {} {} {} {:x}", e.name, e.offset, e.layout.bytes,
                                     ToString(e.layout.dims), static_cast<int>(e.layout.dtype),
                                     e.layout.inner_digest),
                         digest);
    }
  }
  return digest;
}

void WeightLayout::Initialise(const Model& model, Backend& backend, uint64_t seed,
                              std::byte* params, std::byte* state) const {
  const auto fill = [&](const Entry& entry, std::byte* block) {
    std::vector<float> values(static_cast<size_t>(Elements(entry.spec->shape)));
    FillInitial(*entry.spec, model.layers()[entry.layer].layer->name(), seed, values.data());
    if (entry.layout.dtype == DType::kF64) {
      const std::vector<double> wide(values.begin(), values.end());
      backend.FromHost(entry.layout, wide.data(), block + entry.offset);
    } else {
      backend.FromHost(entry.layout, values.data(), block + entry.offset);
    }
  };
  for (const Entry& entry : params_) fill(entry, params);
  for (const Entry& entry : state_) fill(entry, state);
}

}  // namespace pd
