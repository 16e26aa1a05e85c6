#include <fmt/format.h>

#include "layer/activation.h"
#include "layer/add.h"
#include "layer/attention.h"
#include "layer/batch_norm.h"
#include "layer/concat.h"
#include "layer/conv2d.h"
#include "layer/dropout.h"
#include "layer/embedding.h"
#include "layer/flatten.h"
#include "layer/gelu.h"
#include "layer/layer_norm.h"
#include "layer/linear.h"
#include "layer/lrn.h"
#include "layer/lstm.h"
#include "layer/pad.h"
#include "layer/pool2d.h"
#include "layer/position_embedding.h"
#include "layer/reader.h"
#include "layer/reshape.h"
#include "layer/slice.h"
#include "layer/softmax_cross_entropy.h"
#include "layer/timed.h"
#include "layer/transpose.h"

namespace pd {
namespace {

struct Entry {
  std::string_view type;
  std::unique_ptr<Layer> (*make)(const LayerReader&);
};

constexpr Entry kLayers[] = {
    {"add", MakeAdd},
    {"attention", MakeAttention},
    {"avg_pool2d", MakePool2d},
    {"batch_norm", MakeBatchNorm},
    {"concat", MakeConcat},
    {"conv2d", MakeConv2d},
    {"dropout", MakeDropout},
    {"embedding", MakeEmbedding},
    {"flatten", MakeFlatten},
    {"gelu", MakeGelu},
    {"global_avg_pool2d", MakeGlobalAvgPool2d},
    {"layer_norm", MakeLayerNorm},
    {"linear", MakeLinear},
    {"lrn", MakeLrn},
    {"lstm", MakeLstm},
    {"max_pool2d", MakePool2d},
    {"pad", MakePad},
    {"position_embedding", MakePositionEmbedding},
    {"relu", MakeActivation},
    {"reshape", MakeReshape},
    {"sigmoid", MakeActivation},
    {"slice", MakeSlice},
    {"softmax_cross_entropy", MakeSoftmaxCrossEntropy},
    {"tanh", MakeActivation},
    {"timed", MakeTimed},
    {"transpose", MakeTranspose},
};

}  // namespace

std::unique_ptr<Layer> MakeLayer(const JsonView& json, const std::vector<TensorSpec>& inputs) {
  const LayerReader reader(json, inputs);
  std::vector<std::string_view> types;
  for (const Entry& entry : kLayers) {
    if (entry.type == reader.type()) return entry.make(reader);
    types.push_back(entry.type);
  }
  const std::string near = Nearest(reader.type(), types);
  json.At("type").Fail(
      fmt::format("one of {}", fmt::join(types, ", ")),
      fmt::format("\"{}\"{}", reader.type(),
                  near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
}

}  // namespace pd
