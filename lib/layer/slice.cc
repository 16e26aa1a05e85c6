#include "layer/slice.h"

#include <fmt/format.h>

namespace pd {
namespace {

class Slice : public Layer {
 public:
  explicit Slice(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"axis", "begin", "end"});
    reader.RequireInputs(1);
    Shape shape = reader.Input(0);
    const size_t axis = reader.Axis("axis");
    desc_.axis = static_cast<int64_t>(axis) + 1;
    desc_.begin = reader.Int("begin", 0, 0);
    desc_.end = reader.Int("end", 1);
    if (desc_.end > shape[axis]) {
      reader.FailKey("end",
                     fmt::format("at most {}, dimension {} of the input f32 {}", shape[axis], axis,
                                 ToString(shape)),
                     std::to_string(desc_.end));
    }
    if (desc_.begin >= desc_.end) {
      reader.FailKey("begin", fmt::format("less than end, {}", desc_.end),
                     std::to_string(desc_.begin));
    }
    shape[axis] = desc_.end - desc_.begin;
    output_ = reader.Output(std::move(shape));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanSlice(desc_, request);
  }

 private:
  SliceDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakeSlice(const LayerReader& reader) {
  return std::make_unique<Slice>(reader);
}

}  // namespace pd
