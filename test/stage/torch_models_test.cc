// Shipped networks as one stage against PyTorch: the loss and the gradients of one pass.
// test/torch_values/models.py says how the values were made, and from which weights and inputs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/registry.h"
#include "base/file.h"
#include "stage/program.h"
#include "support/catch.h"

namespace pd {
namespace {

using Json = nlohmann::json;

const Json& Networks() {
  static const Json values =
      Json::parse(std::ifstream(PD_SOURCE_DIR "/test/torch_values/models.json"));
  return values.at("networks");
}

// ---- The numbers that both sides make.

uint64_t Hash(const std::string& name, int64_t i) {
  uint64_t z = HashBytes(name) + static_cast<uint64_t>(i) + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

double Uniform(const std::string& name, int64_t i) {
  return static_cast<double>(Hash(name, i) >> 40) * 0x1p-23 - 1;
}

std::vector<float> Parameter(const std::string& name, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(Elements(shape)));
  const bool weight = name.size() >= 6 && name.compare(name.size() - 6, 6, "weight") == 0;
  const double scale = std::sqrt(6.0 / static_cast<double>(ElementsFrom(shape, 1)));
  for (int64_t i = 0; i < Elements(shape); ++i) {
    const double u = Uniform(name, i);
    const double value = shape.size() >= 2 ? u * scale : weight ? 1 + u / 4 : u / 10;
    values[static_cast<size_t>(i)] = static_cast<float>(value);
  }
  return values;
}

std::vector<float> Reals(const std::string& name, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>(Uniform(name, i) * std::sqrt(3.0));
  }
  return values;
}

std::vector<int32_t> Integers(const std::string& name, int64_t count, int64_t limit) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t h = Hash(name, i);
    const bool ignored = name == "target" && (h >> 32) % 8 == 0;
    values[static_cast<size_t>(i)] =
        ignored ? kIgnoredTarget : static_cast<int32_t>(h % static_cast<uint64_t>(limit));
  }
  return values;
}

// ---- The network.

Model LoadWithoutDropout(const std::string& name) {
  const std::string path = PD_SOURCE_DIR "/models/" + name + ".json";
  Json json = Json::parse(std::ifstream(path));
  for (Json& layer : json.at("layers")) {
    if (layer.at("type") == "dropout") layer["p"] = 0;
  }
  return Model::Parse(JsonView::Parse(json.dump(), path));
}

class Network {
 public:
  Network(const std::string& name, const std::string& backend, int64_t batch)
      : model_(LoadWithoutDropout(name)),
        cut_(MakeWholeCut(model_)),
        backend_(MakeBackend(backend, 1)),
        plan_(model_, *backend_, batch, 1),
        layout_(model_, plan_, cut_.layers[0]),
        program_(model_, plan_, layout_, *backend_, cut_, 0),
        weights_(backend_->Allocate(layout_.params_bytes())),
        gradients_(backend_->Allocate(layout_.params_bytes())),
        state_(backend_->Allocate(layout_.state_bytes())),
        arena_(backend_->Allocate(program_.arena_bytes())),
        scratch_(backend_->Allocate(program_.scratch_bytes())) {
    layout_.Initialise(model_, *backend_, 1, weights_.data(), state_.data());
    for (const WeightLayout::Entry& entry : layout_.params()) {
      Store(entry.layout, Parameter(entry.name, entry.layout.dims), weights_.data() + entry.offset);
    }
    for (const TensorId t : program_.inputs()) {
      inputs_.push_back(backend_->Allocate(plan_.layout(t).bytes));
      pointers_.push_back(inputs_.back().data());
      FillInput(model_.inputs()[static_cast<size_t>(t)], plan_.layout(t), inputs_.back().data());
    }
  }

  void Run() {
    const StageMemory memory = {.arena = arena_.data(),
                                .scratch = scratch_.data(),
                                .inputs = pointers_,
                                .gradients_received = {},
                                .gradients_sent = {},
                                .weights = weights_.data(),
                                .weight_gradients = gradients_.data(),
                                .state = state_.data()};
    StageObserver nobody;
    program_.Forward(memory, nobody);
    program_.Backward(memory, nobody);
  }

  /// The weighted losses, each over samples and targets.
  double Loss() const {
    double sum = 0;
    for (const StageProgram::Loss& loss : program_.losses()) {
      const Model::Node& node = model_.layers()[static_cast<size_t>(loss.layer)];
      const Layout& y = plan_.layout(model_.OutputOf(loss.layer));
      const std::vector<double> values = Load(y, arena_.data() + loss.values);
      const size_t stride = values.size() / static_cast<size_t>(plan_.batch());
      double of_layer = 0;  // a sample's summed loss stands first in its row
      for (size_t i = 0; i < values.size(); i += stride) of_layer += values[i];
      const int64_t targets = Elements(model_.spec(node.inputs[1]).shape) * plan_.batch();
      sum += node.layer->loss_weight() * of_layer / static_cast<double>(targets);
    }
    return sum;
  }

  const std::vector<WeightLayout::Entry>& params() const { return layout_.params(); }
  std::vector<double> Gradient(const WeightLayout::Entry& entry) const {
    return Load(entry.layout, gradients_.data() + entry.offset);
  }
  bool in_double() const { return backend_->dtype() == DType::kF64; }
  bool has_relu() const {
    return std::any_of(model_.layers().begin(), model_.layers().end(),
                       [](const Model::Node& node) { return node.layer->type() == "relu"; });
  }

 private:
  void Store(const Layout& layout, const std::vector<float>& values, std::byte* to) const {
    if (!in_double()) return backend_->FromHost(layout, values.data(), to);
    const std::vector<double> exact(values.begin(), values.end());
    backend_->FromHost(layout, exact.data(), to);
  }

  std::vector<double> Load(const Layout& layout, const std::byte* from) const {
    std::vector<double> values(static_cast<size_t>(Elements(layout.dims)));
    if (layout.dtype == DType::kF64) {
      backend_->ToHost(layout, from, values.data());
    } else {
      std::vector<float> dense(values.size());
      backend_->ToHost(layout, from, dense.data());
      std::copy(dense.begin(), dense.end(), values.begin());
    }
    return values;
  }

  void FillInput(const Model::Input& input, const Layout& layout, std::byte* to) const {
    const int64_t count = Elements(layout.dims);
    if (layout.dtype != DType::kI32) return Store(layout, Reals(input.name, count), to);
    const std::vector<int32_t> values = Integers(input.name, count, input.limit);
    backend_->FromHost(layout, values.data(), to);
  }

  Model model_;
  Cut cut_;
  std::unique_ptr<Backend> backend_;
  ModelPlan plan_;
  WeightLayout layout_;
  StageProgram program_;
  Buffer weights_, gradients_, state_, arena_, scratch_;
  std::vector<Buffer> inputs_;
  std::vector<const std::byte*> pointers_;
};

// ---- The comparison.

// Allowed in double, where only the file's 9 digits and the order of sums matter.
constexpr double kDouble = 1e-7, kDoubleLoss = 1e-8;
// In f32: a few times what PyTorch's own pass in f32 is away, and, where a ReLU whose input nearly
// is 0 may fall the other way, the jump that one makes in the gradients before it.
constexpr double kSingleLoss = 1e-5, kTimesTorch = 3, kSmooth = 1e-4, kJump = 0.03;

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

/// How far `got` is from `wanted`, [norm, [index, value]…]: models.py's measure.
double Error(const std::vector<double>& got, const Json& wanted) {
  const double norm = wanted[0].get<double>();
  const double typical = norm / std::sqrt(static_cast<double>(got.size()));
  double worst = std::abs(Norm(got) - norm) / norm;
  for (size_t i = 1; i < wanted.size(); ++i) {
    const double value = wanted[i][1].get<double>();
    const double error = std::abs(got.at(wanted[i][0].get<size_t>()) - value);
    worst = std::max(worst, error / (std::abs(value) + typical));
  }
  return worst;
}

void CheckAgainstTorch(const std::string& name, const std::string& backend) {
  const Json& wanted = Networks().at(name);
  Network network(name, backend, wanted.at("batch").get<int64_t>());
  network.Run();
  INFO(name << " on " << backend);
  const double loss = wanted.at("loss").get<double>();
  const double loss_bound = network.in_double() ? kDoubleLoss : kSingleLoss;
  CHECK(std::abs(network.Loss() - loss) <= loss_bound * loss);
  const double bound = network.in_double() ? kDouble
                                           : kTimesTorch * wanted.at("f32_error").get<double>() +
                                                 (network.has_relu() ? kJump : kSmooth);
  REQUIRE(network.params().size() == wanted.at("gradients").size());
  for (const WeightLayout::Entry& entry : network.params()) {
    INFO("gradient of " << entry.name);
    const Json& gradient = wanted.at("gradients").at(entry.name);
    CHECK(Error(network.Gradient(entry), gradient) <= bound);
  }
}

void CheckWhereBuilt(const std::string& name, const std::string& backend) {
  const std::vector<std::string_view> kinds = BackendKinds();
  if (std::find(kinds.begin(), kinds.end(), backend) != kinds.end()) {
    CheckAgainstTorch(name, backend);
  } else {
    WARN("SKIPPED: " << name << " on " << backend << ", which is not here");
  }
}

auto FullSize() {
  return Catch::Generators::values<std::string>(
      {"alexnet", "inception_v3", "inception_v3_noaux", "resnet50", "s2vt", "vgg16"});
}

TEST_CASE("small networks have PyTorch's loss and gradients") {
  const std::string name = GENERATE("resnet_cifar", "lstm_lm", "gpt_mini");
  CheckAgainstTorch(name, "ref64");
  CheckWhereBuilt(name, "cpu");
}

// Seconds each, and up to 2 GB: the test stage_full_size.
TEST_CASE("full-size networks have PyTorch's loss and gradients", "[.full_size]") {
  CheckWhereBuilt(GENERATE(FullSize()), "cpu");
}

TEST_CASE("all networks have PyTorch's loss and gradients on a GPU", "[.gpu]") {
  for (const auto& [name, network] : Networks().items()) CheckWhereBuilt(name, "cuda");
}

// A minute each: by hand.
TEST_CASE("full-size networks have PyTorch's loss and gradients in double", "[.double]") {
  CheckAgainstTorch(GENERATE(FullSize()), "ref64");
}

}  // namespace
}  // namespace pd
