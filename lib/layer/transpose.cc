#include "layer/transpose.h"

#include <fmt/format.h>

#include <vector>

namespace pd {
namespace {

class Transpose : public Layer {
 public:
  explicit Transpose(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"axes"});
    reader.RequireInputs(1);
    const Shape& in = reader.Input(0);
    const Shape axes = reader.OneADimension("axes", 0);
    desc_.axes = {0};
    Shape shape;
    std::vector<bool> taken(in.size(), false);
    for (const int64_t axis : axes) {
      const auto at = static_cast<size_t>(axis);
      if (at >= in.size() || taken[at]) {
        reader.FailKey("axes", fmt::format("each of 0 to {} once", in.size() - 1), ToString(axes));
      }
      taken[at] = true;
      shape.push_back(in[at]);
      desc_.axes.push_back(axis + 1);
    }
    output_ = reader.Output(std::move(shape));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanTranspose(desc_, request);
  }

 private:
  TransposeDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakeTranspose(const LayerReader& reader) {
  return std::make_unique<Transpose>(reader);
}

}  // namespace pd
