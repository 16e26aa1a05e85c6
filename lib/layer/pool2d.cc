#include "layer/pool2d.h"

#include "layer/window.h"

namespace pd {
namespace {

class Pool2d : public Layer {
 public:
  Pool2d(const LayerReader& reader, Pool2dDesc desc)
      : Layer(reader.name(), reader.type()), desc_(desc) {
    output_ = reader.Output({reader.Image(0)[0], desc_.out[0], desc_.out[1]});
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanPool2d(desc_, request);
  }

 private:
  Pool2dDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakePool2d(const LayerReader& reader) {
  Pool2dDesc desc;
  if (reader.type() == "avg_pool2d") {
    reader.CheckKeys({"kernel", "stride", "padding", "ceil", "count_include_pad"});
    desc.kind = Pool2dDesc::Kind::kAverage;
    desc.count_include_pad = reader.Bool("count_include_pad", true);
  } else {
    reader.CheckKeys({"kernel", "stride", "padding", "ceil"});
  }
  reader.RequireInputs(1);
  const Shape& in = reader.Image(0);
  desc.kernel = reader.Pair("kernel", 1);
  desc.stride = reader.Pair("stride", 1, desc.kernel);
  desc.padding = reader.Pair("padding", 0, {{0, 0}});
  const Window window{desc.kernel, desc.stride, desc.padding, {1, 1}, reader.Bool("ceil", false)};
  for (int d = 0; d < 2; ++d) {
    if (desc.padding[d] > desc.kernel[d] / 2) {  // a window could lie in the padding alone
      reader.FailKey("padding", "at most half the kernel, " + std::to_string(desc.kernel[d] / 2),
                     std::to_string(desc.padding[d]));
    }
    desc.out[d] = WindowCount(window, d, in[1 + d]);
    if (desc.out[d] < 1) reader.FailInput(0, "an image as large as the kernel");
  }
  return std::make_unique<Pool2d>(reader, desc);
}

std::unique_ptr<Layer> MakeGlobalAvgPool2d(const LayerReader& reader) {
  reader.CheckKeys({});
  reader.RequireInputs(1);
  const Shape& in = reader.Image(0);
  const std::array<int64_t, 2> whole = {in[1], in[2]};
  return std::make_unique<Pool2d>(reader, Pool2dDesc{.kind = Pool2dDesc::Kind::kAverage,
                                                     .kernel = whole,
                                                     .stride = whole,
                                                     .padding = {0, 0},
                                                     .out = {1, 1}});
}

}  // namespace pd
