#include "pipeline/serial.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "backend/elementwise.h"
#include "backend/registry.h"
#include "model/model.h"
#include "stage/model_plan.h"

namespace pd {
namespace {

// Memory of one tensor.
struct Block {
  explicit Block(Backend& backend, size_t size)
      : buffer(backend.Allocate(std::max<size_t>(size, 64))) {}
  void* data() const { return buffer.data(); }
  Buffer buffer;
};
using BlockPtr = std::shared_ptr<Block>;

BlockPtr Copy(Backend& backend, const BlockPtr& from) {
  auto to = std::make_shared<Block>(backend, from->buffer.bytes());
  backend.Copy(to->data(), from->data(), from->buffer.bytes());
  return to;
}

std::vector<std::byte> ToHost(Backend& backend, const Block& from, size_t bytes, DType dtype) {
  std::vector<std::byte> host(bytes);
  backend.ToHost(DenseLayout({static_cast<int64_t>(bytes / SizeOf(dtype))}, dtype), from.data(),
                 host.data());
  return host;
}

template <typename T>
void FromHost(Backend& backend, const std::vector<T>& host, DType dtype, Block& to) {
  const size_t count = host.size() * sizeof(T) / SizeOf(dtype);
  backend.FromHost(DenseLayout({static_cast<int64_t>(count)}, dtype), host.data(), to.data());
}

std::vector<float> Floats(Backend& backend, const Block& from, size_t count) {
  std::vector<float> values(count);
  backend.ToHost(DenseLayout({static_cast<int64_t>(count)}, DType::kF32), from.data(),
                 values.data());
  return values;
}

// The parameters of one layer: a block each.
using LayerBlocks = std::vector<BlockPtr>;
// The parameters of all layers.
using ModelBlocks = std::vector<LayerBlocks>;

class Serial {
 public:
  Serial(const TrainingCase& c, const Dataset& data)
      : case_(c),
        data_(data),
        model_(Model::Parse(JsonView::Parse(c.model, "model"))),
        backend_(BackendOf(c)),
        shape_(ShapeOf(c)),
        stage_of_(model_.num_layers(), 0) {
    for (size_t s = 0; s < c.stages.size(); ++s) {
      for (const std::string& name : c.stages[s])
        stage_of_[model_.FindLayer(name)] = static_cast<int>(s);
    }
    Initialise();
  }

  TrainingResult Run() {
    for (size_t i = 0; i < case_.segments.size(); ++i) {
      Segment(case_.segments[i]);
      if (i < case_.evaluations.size()) Evaluate(case_.evaluations[i]);
    }
    Dump();
    return result_;
  }

 private:
  const ModelPlan& Plan(int64_t batch) {
    auto& plan = plans_[batch];
    if (plan == nullptr) {
      const ModelPlan* full = batch == case_.batch_size ? nullptr : &Plan(case_.batch_size);
      plan = std::make_unique<ModelPlan>(model_, *backend_, batch, case_.seed, full);
      for (int l = 0; l < model_.num_layers(); ++l) plan->op(l).Prepare();
    }
    return *plan;
  }

  const Layout& ParamLayout(int l, size_t p) {
    return Plan(case_.batch_size).op(l).info().params[p];
  }

  BlockPtr Zeros(size_t bytes) { return std::make_shared<Block>(*backend_, bytes); }

  void Initialise() {
    momentum_.resize(model_.num_layers());
    newest_.resize(model_.num_layers());
    state_.resize(model_.num_layers());
    for (int l = 0; l < model_.num_layers(); ++l) {
      const Layer& layer = *model_.layers()[l].layer;
      const int replicas = shape_.stages[stage_of_[l]].replicas;
      state_[l].resize(replicas);
      for (const ParamSpec& spec : layer.params()) {
        std::vector<float> values(Elements(spec.shape));
        FillInitial(spec, layer.name(), case_.seed, values.data());
        if (spec.trainable) {
          const Layout& layout = ParamLayout(l, newest_[l].size());
          newest_[l].push_back(Zeros(layout.bytes));
          momentum_[l].push_back(Zeros(layout.bytes));
          backend_->FromHost(layout, values.data(), newest_[l].back()->data());
        } else {
          for (LayerBlocks& replica : state_[l]) {
            replica.push_back(Zeros(values.size() * sizeof(float)));
            FromHost(*backend_, values, DType::kF32, *replica.back());
          }
        }
      }
    }
  }

  void Segment(int64_t samples) {
    const int64_t count = (samples + case_.batch_size - 1) / case_.batch_size;
    const auto samples_in = [&](int64_t b) {
      return std::min(case_.batch_size, samples - b * case_.batch_size);
    };
    // versions[l][v]: the layer's parameters after v updates of its stage in this segment.
    std::vector<std::vector<LayerBlocks>> versions(model_.num_layers());
    for (int l = 0; l < model_.num_layers(); ++l) versions[l].push_back(newest_[l]);
    std::vector<std::vector<ModelBlocks>> rounds(
        shape_.stages.size());  // gradients of the open round
    for (int64_t b = 0; b < count; ++b) {
      ModelBlocks weights(model_.num_layers());
      for (int l = 0; l < model_.num_layers(); ++l) {
        const auto& stage = shape_.stages[stage_of_[l]];
        // design: minibatch b sees version max(0, floor(b / r) - D + 1)
        weights[l] = versions[l].at(std::max<int64_t>(0, b / stage.replicas - stage.in_flight + 1));
      }
      const ModelBlocks gradients = Step(b, samples_in(b), weights);
      for (size_t s = 0; s < shape_.stages.size(); ++s) {
        rounds[s].push_back(gradients);
        const int64_t first = b / shape_.stages[s].replicas * shape_.stages[s].replicas;
        if (b + 1 < count && b + 1 < first + shape_.stages[s].replicas) continue;
        Update(static_cast<int>(s), first, rounds[s], samples_in, versions);
        rounds[s].clear();
      }
    }
    number_ += count;
    for (int l = 0; l < model_.num_layers(); ++l) newest_[l] = versions[l].back();
    AverageState();
  }

  void Update(int s, int64_t first, const std::vector<ModelBlocks>& round,
              const std::function<int64_t(int64_t)>& samples_in,
              std::vector<std::vector<LayerBlocks>>& versions) {
    int64_t total = 0;
    for (size_t i = 0; i < round.size(); ++i) total += samples_in(first + static_cast<int64_t>(i));
    for (int l = 0; l < model_.num_layers(); ++l) {
      if (stage_of_[l] != s) continue;
      LayerBlocks next;
      for (size_t p = 0; p < newest_[l].size(); ++p) {
        const size_t count = ParamLayout(l, p).stored();
        std::vector<float> shares;
        std::vector<BlockPtr> parts;
        for (size_t i = 0; i < round.size(); ++i) {
          shares.push_back(static_cast<float>(samples_in(first + static_cast<int64_t>(i))) /
                           static_cast<float>(total));
          parts.push_back(round[i][l][p]);
        }
        const BlockPtr sum = WeightedSum(parts, shares, Together(s), count);
        next.push_back(Copy(*backend_, versions[l].back()[p]));
        backend_->Sgd({.w = versions[l].back()[p]->data(),
                       .g = sum->data(),
                       .m = momentum_[l][p]->data(),
                       .w_out = next.back()->data(),
                       .count = count,
                       .lr = RateOf(case_, first),
                       .momentum = case_.momentum,
                       .weight_decay = case_.weight_decay});
      }
      versions[l].push_back(next);
    }
  }

  // Replicas of stage `s` on a machine: as many as there are on every one that has any, else all.
  // Ranks are given stage by stage.
  size_t Together(int s) const {
    int rank = 0;
    for (int before = 0; before < s; ++before) rank += shape_.stages[before].replicas;
    const int replicas = shape_.stages[s].replicas;
    std::map<int, size_t> on_machine;
    for (int r = 0; r < replicas; ++r) ++on_machine[(rank + r) / case_.machine_ranks];
    const size_t together = on_machine.begin()->second;
    const bool even = std::all_of(on_machine.begin(), on_machine.end(),
                                  [&](const auto& m) { return m.second == together; });
    return even ? together : static_cast<size_t>(replicas);
  }

  // On the host, each product rounded: the sum over machines of the sums in them, in replica order.
  BlockPtr WeightedSum(const std::vector<BlockPtr>& parts, const std::vector<float>& shares,
                       size_t together, size_t count) {
    const DType dtype = backend_->dtype();
    const size_t bytes = count * SizeOf(dtype);
    std::vector<std::byte> sum(bytes), inside(bytes);
    for (size_t first = 0; first < parts.size(); first += together) {
      for (size_t i = first; i < std::min(first + together, parts.size()); ++i) {
        const std::vector<std::byte> part = ToHost(*backend_, *parts[i], bytes, dtype);
        AddScaledHost(dtype, inside.data(), part.data(), shares[i], i == first, count);
      }
      AddScaledHost(dtype, sum.data(), inside.data(), 1, first == 0, count);
    }
    BlockPtr made = Zeros(bytes);
    FromHost(*backend_, sum, dtype, *made);
    return made;
  }

  // Replicas' running statistics are averaged at each drain.
  void AverageState() {
    for (int l = 0; l < model_.num_layers(); ++l) {
      const size_t replicas = state_[l].size();
      if (replicas == 1) continue;
      for (size_t p = 0; p < state_[l][0].size(); ++p) {
        const size_t count =
            Elements(model_.layers()[l].layer->params()[newest_[l].size() + p].shape);
        std::vector<BlockPtr> parts;
        for (size_t r = 0; r < replicas; ++r) parts.push_back(state_[l][r][p]);
        const BlockPtr sum =
            WeightedSum(parts, std::vector<float>(replicas, 1.0F / static_cast<float>(replicas)),
                        Together(stage_of_[l]), count);
        for (size_t r = 0; r < replicas; ++r) state_[l][r][p] = Copy(*backend_, sum);
      }
    }
  }

  // On the newest weights; replicas share their running statistics after a drain.
  void Evaluate(int64_t samples) {
    for (int64_t b = 0; b * case_.batch_size < samples; ++b) {
      Step(b, std::min(case_.batch_size, samples - b * case_.batch_size), newest_, false);
    }
  }

  // Forward and, in training, backward of minibatch `b`; returns the gradients of all parameters.
  ModelBlocks Step(int64_t b, int64_t samples, const ModelBlocks& weights, bool training = true) {
    const ModelPlan& plan = Plan(samples);
    std::vector<BlockPtr> values(model_.num_tensors()), gradients(model_.num_tensors());
    for (int i = 0; i < model_.num_inputs(); ++i) {
      values[i] = Zeros(plan.layout(i).bytes);
      const TensorSpec& spec = data_.fields()[i];
      std::vector<std::byte> rows(spec.Bytes(samples));
      for (int64_t n = 0; n < samples; ++n) {
        data_.Read(b * case_.batch_size + n, i, 0, rows.data() + n * spec.Bytes(1));
      }
      FromHost(*backend_, rows, spec.dtype, *values[i]);
    }
    struct Call {
      std::vector<const void*> x, params;
      std::vector<void*> dx, dparams, state;
      BlockPtr saved, workspace;
      OpArgs args;
    };
    std::vector<Call> calls(model_.num_layers());
    ModelBlocks weight_gradients(model_.num_layers());
    for (int l = 0; l < model_.num_layers(); ++l) {
      const Model::Node& node = model_.layers()[l];
      const OpInfo& info = plan.op(l).info();
      Call& call = calls[l];
      values[model_.OutputOf(l)] = Zeros(info.y.bytes);
      for (const TensorId t : node.inputs) call.x.push_back(values[t]->data());
      for (size_t p = 0; p < weights[l].size(); ++p) {
        call.params.push_back(weights[l][p]->data());
        weight_gradients[l].push_back(Zeros(info.params[p].bytes));
        call.dparams.push_back(weight_gradients[l].back()->data());
      }
      const auto replica = static_cast<size_t>(b) % state_[l].size();
      for (const BlockPtr& block : state_[l][replica]) call.state.push_back(block->data());
      call.saved = Zeros(info.saved_bytes);
      call.workspace = Zeros(info.workspace_bytes);
      call.dx.resize(node.inputs.size());
      call.args = {.x = call.x,
                   .y = values[model_.OutputOf(l)]->data(),
                   .dy = nullptr,
                   .dx = call.dx,
                   .params = call.params,
                   .dparams = call.dparams,
                   .state = call.state,
                   .saved = call.saved->data(),
                   .workspace = call.workspace->data(),
                   .minibatch = static_cast<uint64_t>(number_ + b),
                   .training = training};
      plan.op(l).Forward(call.args);
      if (l != model_.main_loss()) continue;
      const std::vector<float> y = Floats(*backend_, *values[model_.OutputOf(l)],
                                          static_cast<size_t>(samples * kLossColumns));
      std::vector<double> sums(kLossColumns);
      for (size_t i = 0; i < y.size(); ++i) sums[i % kLossColumns] += static_cast<double>(y[i]);
      std::vector<float>& told = result_[training ? "loss" : "evaluation"];
      told.push_back(static_cast<float>(sums[kLossSum] / sums[kLossCounted]));
      if (training) continue;
      told.push_back(static_cast<float>(sums[kLossRight]));
    }
    if (!training) return {};
    for (int l = model_.num_layers() - 1; l >= 0; --l) {
      const Model::Node& node = model_.layers()[l];
      Call& call = calls[l];
      if (!node.layer->is_loss() && gradients[model_.OutputOf(l)] == nullptr) continue;
      if (!node.layer->is_loss()) call.args.dy = gradients[model_.OutputOf(l)]->data();
      std::vector<BlockPtr> dx(node.inputs.size());
      bool any = false;
      for (size_t j = 0; j < dx.size(); ++j) {
        if (!model_.needs_gradient(node.inputs[j])) continue;
        dx[j] = Zeros(plan.layout(node.inputs[j]).bytes);
        call.dx[j] = dx[j]->data();
        any = true;
      }
      if (any) plan.op(l).BackwardData(call.args);
      if (!call.params.empty()) plan.op(l).BackwardWeights(call.args);
      // design: one gradient a consumer, the last consumer's first
      for (size_t j = dx.size(); j-- > 0;) {
        if (dx[j] == nullptr) continue;
        for (size_t i = j; i-- > 0;) {
          if (node.inputs[i] != node.inputs[j]) continue;
          backend_->Accumulate(dx[j]->data(), dx[i]->data(), plan.layout(node.inputs[j]).stored());
          dx[i] = nullptr;
        }
        BlockPtr& sum = gradients[node.inputs[j]];
        if (sum == nullptr) {
          sum = dx[j];
        } else {
          backend_->Accumulate(sum->data(), dx[j]->data(), plan.layout(node.inputs[j]).stored());
        }
      }
    }
    return weight_gradients;
  }

  void Dump() {
    for (int l = 0; l < model_.num_layers(); ++l) {
      const Layer& layer = *model_.layers()[l].layer;
      size_t trainable = 0, running = 0;
      for (const ParamSpec& spec : layer.params()) {
        const std::string name = layer.name() + "." + spec.name;
        std::vector<float> dense(Elements(spec.shape));
        if (spec.trainable) {
          backend_->ToHost(ParamLayout(l, trainable), newest_[l][trainable]->data(), dense.data());
          result_[name] = dense;
          backend_->ToHost(ParamLayout(l, trainable), momentum_[l][trainable]->data(),
                           dense.data());
          result_[name + ".momentum"] = dense;
          ++trainable;
        } else {
          result_[name] = Floats(*backend_, *state_[l][0][running++], dense.size());
        }
      }
    }
  }

  const TrainingCase& case_;
  const Dataset& data_;
  Model model_;
  std::unique_ptr<Backend> backend_;
  PipelineShape shape_;
  std::vector<int> stage_of_;
  std::map<int64_t, std::unique_ptr<ModelPlan>> plans_;
  ModelBlocks newest_, momentum_;
  std::vector<std::vector<LayerBlocks>> state_;  // [layer][replica]
  int64_t number_ = 0;
  TrainingResult result_;
};

}  // namespace

std::vector<std::string> TrainingBackends() {
  std::vector<std::string> kinds;
  for (const std::string_view kind : BackendKinds()) {
    if (kind != "ref64") kinds.emplace_back(kind);
  }
  return kinds;
}

std::unique_ptr<Backend> BackendOf(const TrainingCase& c, int rank) {
  return c.make_backend ? c.make_backend(rank) : MakeBackend(c.backend, 1);
}

PipelineShape ShapeOf(const TrainingCase& c) {
  PipelineShape shape;
  for (const int r : c.replicas) shape.stages.push_back({.replicas = r, .in_flight = 1});
  for (size_t s = 0; s < c.replicas.size(); ++s) {
    shape.stages[s].in_flight =
        c.in_flight.empty() ? DefaultInFlight(shape, static_cast<int>(s)) : c.in_flight[s];
  }
  return shape;
}

TrainingResult TrainSerially(const TrainingCase& c, const Dataset& data) {
  return Serial(c, data).Run();
}

}  // namespace pd
