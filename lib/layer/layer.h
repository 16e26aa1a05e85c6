#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"
#include "tensor/tensor.h"

namespace pd {

/// Initial values of a parameter: uniform in [-value, value], normal with deviation `value`, or
/// `value`.
struct Init {
  enum class Kind { kUniform, kNormal, kConstant };
  Kind kind = Kind::kConstant;
  double value = 0;
};

struct ParamSpec {
  std::string name;  ///< "weight", "bias", "running_mean", … PyTorch's names.
  Shape shape;       ///< PyTorch's shape, dense.
  Init init;
  bool trainable =
      true;  ///< False: running statistics, which no version keeps and no gradient reaches.
};

/// A layer as the model file describes it, checked against the shapes of its inputs. It owns no
/// weights and computes nothing: Plan asks a backend for the operation. To add one: a class here
/// with its .h/.cc pair, a Plan method in Backend, a line in registry.cc.
class Layer {
 public:
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const std::string& name() const { return name_; }
  const std::string& type() const { return type_; }
  /// The output, the minibatch dimension left out.
  const TensorSpec& output() const { return output_; }
  /// Trainable ones first, in the order of OpArgs::params, then the state, in the order of
  /// OpArgs::state.
  const std::vector<ParamSpec>& params() const { return params_; }
  /// A loss starts the backward pass: it has no dy. Its weight is in its gradient.
  virtual bool is_loss() const { return false; }
  /// Weight of the loss in the total; 1 for others.
  virtual double loss_weight() const { return 1; }
  /// For a layer that reads i32 and gives f32: its values are 0 to limit() - 1 (the classes of a
  /// loss, the rows of an embedding); 0 for others.
  virtual int64_t limit() const { return 0; }
  /// Multiply-adds of the forward pass of one sample, times two; 0 when small beside the memory
  /// traffic.
  virtual double ForwardFlops() const { return 0; }

  /// Plans the operation. `seed` is the run's seed: with the layer's name it keys what is random.
  virtual std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request,
                                   uint64_t seed) const = 0;

 protected:
  /// Reads the keys all layers share; a subclass's constructor checks its own and sets output_,
  /// params_.
  Layer(std::string name, std::string type) : name_(std::move(name)), type_(std::move(type)) {}

  std::string name_;
  std::string type_;
  TensorSpec output_;
  std::vector<ParamSpec> params_;
};

/// Reads one element of a model's "layers" whose inputs have the shapes `inputs`.
/// Refuses unknown types (with the list), unknown keys, wrong values, inputs that do not fit; one
/// line with file, pointer, expected, found.
std::unique_ptr<Layer> MakeLayer(const JsonView& json, const std::vector<TensorSpec>& inputs);

/// Fills `out`, dense, with the initial values of a parameter: depends on seed, layer and parameter
/// name only.
void FillInitial(const ParamSpec& spec, std::string_view layer, uint64_t seed, float* out);

/// Key for random numbers of a layer: hash of seed and name.
uint64_t LayerKey(uint64_t seed, std::string_view layer, std::string_view what);

}  // namespace pd
