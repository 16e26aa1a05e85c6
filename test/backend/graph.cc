#include "backend/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "backend/registry.h"
#include "base/error.h"
#include "base/file.h"
#include "support/catch.h"

namespace pd::test {

struct Graph::Node {
  std::unique_ptr<Layer> layer;
  std::unique_ptr<Op> op;
  std::vector<size_t> inputs;
  std::vector<bool> wants_dx;
  std::vector<Buffer> params;  ///< Trainable ones, then the state.
  std::vector<Layout> layouts;
  size_t trainable = 0;
};

struct Graph::Slot {
  struct Call {
    Buffer y, saved;
    std::vector<Buffer> dx, dparams;
    std::vector<const void*> x, params, poisoned;
    std::vector<void*> dx_data, dparam_data, state;
    OpArgs args;
  };
  std::vector<Buffer> x;
  std::vector<Call> calls;
  std::vector<void*> gradient;  ///< Of each value, after Backward; null where none came.
  Buffer dy;
};

namespace {

Tensor InitialParam(const ParamSpec& spec, const std::string& name) {
  const uint64_t seed = HashBytes(name);
  if (spec.name == "running_var") return Random(spec.shape, seed, 0.5, 1.5);
  if (spec.shape.size() == 1) {
    return Random(spec.shape, seed, spec.name == "weight" ? 0.5 : -1,
                  spec.name == "weight" ? 1.5 : 1);
  }
  const int64_t inputs = Elements(spec.shape) / spec.shape[0];
  const auto fan_in = static_cast<double>(inputs);
  return Random(spec.shape, seed, -std::sqrt(3 / fan_in), std::sqrt(3 / fan_in));
}

}  // namespace

Graph::Graph(Backend& backend, const std::string& layers, const std::vector<Tensor>& inputs,
             const Graph* params_of, bool input_gradients)
    : backend_(backend) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    values_[fmt::format("x{}", i)] = i;
    inputs_.push_back(DenseLayout(x.shape, x.dtype == DType::kI32 ? DType::kI32 : backend.dtype()));
    input_specs_.push_back({.shape = Shape(x.shape.begin() + 1, x.shape.end()), .dtype = x.dtype});
  }
  for (const JsonView& json : JsonView::Parse(layers, "test").Items()) {
    PlanNode(json, params_of, input_gradients);
  }

  size_t workspace = 0;
  size_t largest = 0;
  for (size_t i = 0; i < inputs_.size() + nodes_.size(); ++i) {
    largest = std::max(largest, LayoutOf(i).bytes);
  }
  for (const auto& node : nodes_) {
    const OpInfo& info = node->op->info();
    workspace = std::max(workspace, info.workspace_bytes);
    largest = std::max(largest, info.saved_bytes);
    for (const Layout& param : info.params) largest = std::max(largest, param.bytes);
    node->op->Prepare();
  }
  workspace_ = backend.Allocate(workspace);
  const std::vector<std::byte> ones(std::max(largest, workspace), std::byte{0xFF});
  poison_ = backend.Allocate(ones.size());
  WriteBytes(backend, ones, poison_.data());
}

/// All bits set: NaN in float and double, -1 in int32.
void Graph::Poison(const Buffer& buffer) const {
  if (buffer.bytes() > 0) backend_.Copy(buffer.data(), poison_.data(), buffer.bytes());
}

Graph::~Graph() = default;

void Graph::PlanNode(const JsonView& json, const Graph* params_of, bool input_gradients) {
  auto node = std::make_unique<Node>();
  if (const auto names = json.Find("inputs")) {
    for (const JsonView& name : names->Items()) node->inputs.push_back(values_.at(name.String()));
  } else {
    node->inputs.push_back(nodes_.empty() ? 0 : inputs_.size() + nodes_.size() - 1);
  }
  std::vector<TensorSpec> specs;
  OpRequest request;
  for (const size_t value : node->inputs) {
    specs.push_back(value < inputs_.size() ? input_specs_[value]
                                           : nodes_[value - inputs_.size()]->layer->output());
    request.x.push_back(LayoutOf(value));
    request.wants_dx.push_back(specs.back().dtype != DType::kI32 &&
                               (input_gradients || value >= inputs_.size()));
  }
  node->wants_dx = request.wants_dx;
  node->layer = MakeLayer(json, specs);
  const std::vector<ParamSpec>& params = node->layer->params();
  if (params_of != nullptr) request.params = params_of->nodes_[nodes_.size()]->op->info().params;
  node->op = node->layer->Plan(backend_, request, 7);
  node->layouts = node->op->info().params;
  node->trainable = node->layouts.size();
  REQUIRE(node->trainable ==
          static_cast<size_t>(std::count_if(params.begin(), params.end(),
                                            [](const ParamSpec& p) { return p.trainable; })));
  values_[node->layer->name()] = inputs_.size() + nodes_.size();
  nodes_.push_back(std::move(node));
  FillParams(nodes_.back().get());
}

void Graph::FillParams(Node* node) {
  const std::vector<ParamSpec>& params = node->layer->params();
  for (size_t i = 0; i < params.size(); ++i) {
    if (i >= node->trainable) {
      node->layouts.push_back(DenseLayout(params[i].shape, backend_.dtype()));
    }
    REQUIRE(node->layouts[i].dims == params[i].shape);
    node->params.push_back(backend_.Allocate(node->layouts[i].bytes));
    const std::string full = node->layer->name() + "." + params[i].name;
    SetParam(full, InitialParam(params[i], full));
  }
}

const Layout& Graph::LayoutOf(size_t value) const {
  return value < inputs_.size() ? inputs_[value] : nodes_[value - inputs_.size()]->op->info().y;
}

Graph::Slot* Graph::MakeSlot() {
  auto slot = std::make_unique<Slot>();
  for (const Layout& layout : inputs_) slot->x.push_back(backend_.Allocate(layout.bytes));
  slot->calls.resize(nodes_.size());
  slot->gradient.resize(inputs_.size() + nodes_.size());
  slot->dy = backend_.Allocate(LayoutOf(slot->gradient.size() - 1).bytes);
  WireSlot(slot.get());
  slots_.push_back(std::move(slot));
  return slots_.back().get();
}

void Graph::WireSlot(Slot* slot) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = *nodes_[i];
    Slot::Call& call = slot->calls[i];
    call.y = backend_.Allocate(node.op->info().y.bytes);
    call.saved = backend_.Allocate(node.op->info().saved_bytes);
    for (size_t j = 0; j < node.inputs.size(); ++j) {
      const size_t value = node.inputs[j];
      call.x.push_back(value < inputs_.size() ? slot->x[value].data()
                                              : slot->calls[value - inputs_.size()].y.data());
      call.poisoned.push_back(poison_.data());
      call.dx.push_back(backend_.Allocate(node.wants_dx[j] ? LayoutOf(value).bytes : 0));
      call.dx_data.push_back(call.dx.back().data());
    }
    for (size_t j = 0; j < node.params.size(); ++j) {
      if (j >= node.trainable) {
        call.state.push_back(node.params[j].data());
        continue;
      }
      call.params.push_back(node.params[j].data());
      call.dparams.push_back(backend_.Allocate(node.layouts[j].bytes));
      call.dparam_data.push_back(call.dparams.back().data());
    }
    call.args = {.x = call.x,
                 .y = call.y.data(),
                 .dy = nullptr,
                 .dx = call.dx_data,
                 .params = call.params,
                 .dparams = call.dparam_data,
                 .state = call.state,
                 .saved = call.saved.data(),
                 .workspace = workspace_.data(),
                 .minibatch = 0,
                 .training = true};
  }
}

void Graph::Load(Slot* slot, const std::vector<Tensor>& x) {
  for (size_t i = 0; i < x.size(); ++i) ToDevice(inputs_[i], x[i], slot->x[i].data());
}

void Graph::RunForward(Slot* slot, uint64_t minibatch, bool training) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Slot::Call& call = slot->calls[i];
    Poison(call.y);
    Poison(call.saved);
    Poison(workspace_);
    call.args.minibatch = minibatch;
    call.args.training = training;
    nodes_[i]->op->Forward(call.args);
  }
}

void Graph::LoadGradient(Slot* slot, const Tensor& dy) {
  if (!last_layer().is_loss()) ToDevice(LayoutOf(slot->gradient.size() - 1), dy, slot->dy.data());
}

void Graph::RunBackward(Slot* slot) {
  std::fill(slot->gradient.begin(), slot->gradient.end(), nullptr);
  if (!last_layer().is_loss()) slot->gradient.back() = slot->dy.data();
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = *nodes_[i];
    Slot::Call& call = slot->calls[i];
    for (const Buffer& dx : call.dx) Poison(dx);
    for (const Buffer& dparam : call.dparams) Poison(dparam);
    OpArgs args = call.args;
    args.dy = slot->gradient[inputs_.size() + i];
    if (!node.op->info().backward_reads_x) args.x = call.poisoned;
    if (!node.op->info().backward_reads_y) args.y = poison_.data();
    Poison(workspace_);
    const auto& wants = node.wants_dx;
    if (std::find(wants.begin(), wants.end(), true) != wants.end()) node.op->BackwardData(args);
    Poison(workspace_);
    if (node.trainable > 0) node.op->BackwardWeights(args);
    for (size_t j = 0; j < node.inputs.size(); ++j) {
      void*& gradient = slot->gradient[node.inputs[j]];
      if (!node.wants_dx[j]) continue;
      if (gradient == nullptr) {
        gradient = call.dx_data[j];
      } else {
        backend_.Accumulate(gradient, call.dx_data[j], LayoutOf(node.inputs[j]).stored());
      }
    }
  }
}

void Graph::Forward(Slot* slot, const std::vector<Tensor>& x, uint64_t minibatch, bool training) {
  Load(slot, x);
  RunForward(slot, minibatch, training);
}

void Graph::Backward(Slot* slot, const Tensor& dy) {
  LoadGradient(slot, dy);
  RunBackward(slot);
}

const Layer& Graph::last_layer() const { return *nodes_.back()->layer; }

Tensor Graph::Output(const Slot* slot) const {
  return FromDevice(nodes_.back()->op->info().y, slot->calls.back().y.data());
}

std::vector<double> Graph::LossColumnOf(const Slot* slot, LossColumn column) const {
  std::vector<double> values;
  if (!last_layer().is_loss()) return values;
  const Tensor y = Output(slot);
  for (size_t i = column; i < y.values.size(); i += kLossColumns) values.push_back(y.values[i]);
  return values;
}

Tensor Graph::InputGradient(const Slot* slot, size_t input) const {
  if (slot->gradient[input] == nullptr) return {};
  return FromDevice(inputs_[input], slot->gradient[input]);
}

void Graph::CheckPadding(const Slot* slot) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    const Slot::Call& call = slot->calls[i];
    CheckStored(node.op->info().y, call.y, node.layer->name());
    for (size_t j = 0; j < call.dparams.size(); ++j) {
      CheckStored(node.layouts[j], call.dparams[j],
                  fmt::format("{}, gradient of parameter {}", node.layer->name(), j));
    }
    for (size_t j = 0; j < call.dx.size(); ++j) {
      if (!node.wants_dx[j]) continue;
      CheckStored(LayoutOf(node.inputs[j]), call.dx[j],
                  fmt::format("{}, gradient of input {}", node.layer->name(), j));
    }
  }
}

/// To dense and back into zeroed memory leaves the same bytes exactly when the padding is zero.
void Graph::CheckStored(const Layout& layout, const Buffer& buffer, const std::string& what) const {
  if (layout.dense()) return;
  std::vector<std::byte> dense(static_cast<size_t>(Elements(layout.dims)) * SizeOf(layout.dtype));
  const Buffer again = backend_.Allocate(layout.bytes);
  backend_.ToHost(layout, buffer.data(), dense.data());
  backend_.FromHost(layout, dense.data(), again.data());
  INFO("padding of " << what);
  CHECK(ReadBytes(backend_, buffer.data(), layout.bytes) ==
        ReadBytes(backend_, again.data(), layout.bytes));
}

Tensor Graph::ParamGradient(const Slot* slot, const std::string& name) const {
  size_t index = 0;
  const Node* node = FindParam(name, &index);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].get() != node) continue;
    return FromDevice(node->layouts[index], slot->calls[i].dparams.at(index).data());
  }
  return {};
}

Graph::Node* Graph::FindParam(const std::string& name, size_t* index) const {
  for (const auto& node : nodes_) {
    const std::vector<ParamSpec>& params = node->layer->params();
    for (*index = 0; *index < params.size(); ++*index) {
      if (node->layer->name() + "." + params[*index].name == name) return node.get();
    }
  }
  Throw(ErrorCode::kInternal, "no parameter {}", name);
}

void Graph::SetParam(const std::string& name, const Tensor& value) {
  size_t index = 0;
  const Node* node = FindParam(name, &index);
  ToDevice(node->layouts[index], value, node->params[index].data());
}

Tensor Graph::Param(const std::string& name) const {
  size_t index = 0;
  const Node* node = FindParam(name, &index);
  return FromDevice(node->layouts[index], node->params[index].data());
}

std::vector<std::string> Graph::ParamNames() const {
  std::vector<std::string> names;
  for (const auto& node : nodes_) {
    for (const ParamSpec& spec : node->layer->params()) {
      names.push_back(node->layer->name() + "." + spec.name);
    }
  }
  return names;
}

std::vector<std::string> Graph::TrainableNames() const {
  std::vector<std::string> names;
  for (const auto& node : nodes_) {
    for (const ParamSpec& spec : node->layer->params()) {
      if (spec.trainable) names.push_back(node->layer->name() + "." + spec.name);
    }
  }
  return names;
}

Tensor Graph::FromDevice(const Layout& layout, const void* data) const {
  const auto count = static_cast<size_t>(Elements(layout.dims));
  std::vector<std::byte> dense(count * SizeOf(layout.dtype));
  backend_.ToHost(layout, data, dense.data());
  Tensor tensor{.shape = layout.dims, .dtype = DType::kF32, .values = {}};
  for (size_t i = 0; i < count; ++i) {
    tensor.values.push_back(layout.dtype == DType::kF64
                                ? reinterpret_cast<const double*>(dense.data())[i]
                                : reinterpret_cast<const float*>(dense.data())[i]);
  }
  return tensor;
}

void Graph::ToDevice(const Layout& layout, const Tensor& tensor, void* data) const {
  REQUIRE(tensor.shape == layout.dims);
  REQUIRE(tensor.values.size() == static_cast<size_t>(Elements(layout.dims)));
  std::vector<std::byte> dense(tensor.values.size() * SizeOf(layout.dtype));
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    const double value = tensor.values[i];
    if (layout.dtype == DType::kF64) {
      reinterpret_cast<double*>(dense.data())[i] = value;
    } else if (layout.dtype == DType::kF32) {
      reinterpret_cast<float*>(dense.data())[i] = static_cast<float>(value);
    } else {
      reinterpret_cast<int32_t*>(dense.data())[i] = static_cast<int32_t>(value);
    }
  }
  backend_.FromHost(layout, dense.data(), data);
}

std::vector<std::byte> ReadBytes(Backend& backend, const void* data, size_t bytes) {
  std::vector<std::byte> host(bytes);
  if (bytes == 0) return host;
  backend.ToHost({.dims = {}, .dtype = DType::kI32, .bytes = bytes}, data, host.data());
  return host;
}

void WriteBytes(Backend& backend, const std::vector<std::byte>& host, void* data) {
  backend.FromHost({.dims = {}, .dtype = DType::kI32, .bytes = host.size()}, host.data(), data);
}

std::vector<std::string> Kinds() {
  std::vector<std::string> kinds;
  for (const std::string_view kind : BackendKinds()) kinds.emplace_back(kind);
  return kinds;
}

Tensor Random(const Shape& shape, uint64_t seed, double low, double high) {
  std::mt19937_64 engine(seed);
  Tensor tensor{.shape = shape, .dtype = DType::kF32, .values = {}};
  for (int64_t i = 0; i < Elements(shape); ++i) {
    const double unit = static_cast<double>(engine() >> 11) * 0x1p-53;
    tensor.values.push_back(static_cast<float>(low + (high - low) * unit));
  }
  return tensor;
}

Tensor RandomIndices(const Shape& shape, int64_t limit, uint64_t seed) {
  std::mt19937_64 engine(seed);
  Tensor tensor{.shape = shape, .dtype = DType::kI32, .values = {}};
  for (int64_t i = 0; i < Elements(shape); ++i) {
    tensor.values.push_back(static_cast<double>(engine() % static_cast<uint64_t>(limit)));
  }
  return tensor;
}

Tensor RandomLabels(int64_t samples, int64_t classes, uint64_t seed) {
  return RandomIndices({samples}, classes, seed);
}

namespace {

void CheckElements(const Tensor& actual, const Tensor& expected, const std::string& what,
                   double absolute, double relative, bool exact) {
  INFO(what);
  REQUIRE(actual.shape == expected.shape);
  REQUIRE(actual.values.size() == expected.values.size());
  for (size_t i = 0; i < actual.values.size(); ++i) {
    const double a = actual.values[i];
    const double e = expected.values[i];
    const bool good = exact ? std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(e)
                            : std::abs(a - e) <= absolute + relative * std::abs(e);
    if (good) continue;
    FAIL(fmt::format("element {} of {}: {:.10g}, expected {:.10g}", i, ToString(actual.shape), a,
                     e));
  }
  SUCCEED();
}

}  // namespace

void CheckClose(const Tensor& actual, const Tensor& expected, double absolute, double relative,
                const std::string& what) {
  CheckElements(actual, expected, what, absolute, relative, false);
}

void CheckEqual(const Tensor& actual, const Tensor& expected, const std::string& what) {
  CheckElements(actual, expected, what, 0, 0, true);
}

}  // namespace pd::test
