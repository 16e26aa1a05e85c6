#include "layer/conv2d.h"

#include <fmt/format.h>

#include <cmath>

#include "layer/window.h"

namespace pd {
namespace {

class Conv2d : public Layer {
 public:
  explicit Conv2d(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys(
        {"out_channels", "kernel", "stride", "padding", "dilation", "groups", "bias", "init"});
    reader.RequireInputs(1);
    const Shape& in = reader.Image(0);
    desc_.out_channels = reader.Int("out_channels", 1);
    desc_.kernel = reader.Pair("kernel", 1);
    desc_.stride = reader.Pair("stride", 1, {{1, 1}});
    desc_.padding = reader.Pair("padding", 0, {{0, 0}});
    desc_.dilation = reader.Pair("dilation", 1, {{1, 1}});
    desc_.groups = reader.Int("groups", 1, 1);
    desc_.bias = reader.Bool("bias", true);
    if (in[0] % desc_.groups != 0 || desc_.out_channels % desc_.groups != 0) {
      reader.FailKey(
          "groups",
          fmt::format("a divisor of {} input and {} output channels", in[0], desc_.out_channels),
          std::to_string(desc_.groups));
    }
    const Window window{desc_.kernel, desc_.stride, desc_.padding, desc_.dilation, false};
    const int64_t rows = WindowCount(window, 0, in[1]);
    const int64_t columns = WindowCount(window, 1, in[2]);
    if (rows < 1 || columns < 1) reader.FailInput(0, "an image as large as the kernel");
    output_ = reader.Output({desc_.out_channels, rows, columns});

    const int64_t channels = in[0] / desc_.groups;
    const Shape weight = {desc_.out_channels, channels, desc_.kernel[0], desc_.kernel[1]};
    // In double: the product of what a model file gives may not fit an integer before Params has
    // checked it.
    fan_in_ = static_cast<double>(channels) * static_cast<double>(desc_.kernel[0]) *
              static_cast<double>(desc_.kernel[1]);
    const Init init{Init::Kind::kUniform, 1 / std::sqrt(fan_in_)};
    std::vector<ParamSpec> params = {{"weight", weight, init}};
    if (desc_.bias) params.push_back({"bias", {desc_.out_channels}, init});
    params_ = reader.Params(std::move(params));
  }

  double ForwardFlops() const override {
    return 2 * fan_in_ * static_cast<double>(Elements(output_.shape));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanConv2d(desc_, request);
  }

 private:
  Conv2dDesc desc_;
  double fan_in_ = 0;
};

}  // namespace

std::unique_ptr<Layer> MakeConv2d(const LayerReader& reader) {
  return std::make_unique<Conv2d>(reader);
}

}  // namespace pd
