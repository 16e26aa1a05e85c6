#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "layer/layer.h"

namespace pd {

/// Index of a tensor of the graph: the graph's inputs first, then the output of each layer.
using TensorId = int;

/// A network as a model/1 document describes it: layers in topological order with their shapes.
class Model {
 public:
  struct Node {
    std::unique_ptr<Layer> layer;
    std::vector<TensorId> inputs;
    std::vector<bool> wants_dx;  ///< For each input: does its producer need the gradient?
  };
  struct Input {
    std::string name;
    TensorSpec spec;
    /// i32: values 0 to limit - 1 are right, the least limit of the layers that read them, also
    /// through layers that only reshape. f32: 0.
    int64_t limit = 0;
    bool target = false;  ///< i32 that only losses read: kIgnoredTarget is right, too.
  };

  /// Reads and checks a model/1 document. Throws kInvalidInput naming file and pointer.
  static Model Parse(const JsonView& json);

  const std::string& name() const { return name_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Node>& layers() const { return layers_; }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  /// The document itself, to embed in profiles and plans.
  const JsonView& json() const { return json_; }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_tensors() const { return num_inputs() + num_layers(); }
  TensorId OutputOf(int layer) const { return num_inputs() + layer; }
  /// The layer that produces `tensor`, or -1 for a graph input.
  int ProducerOf(TensorId tensor) const {
    return tensor < num_inputs() ? -1 : tensor - num_inputs();
  }
  const TensorSpec& spec(TensorId tensor) const;
  const std::string& tensor_name(TensorId tensor) const;
  /// Layers that read `tensor`, in topological order; a layer that reads it twice stands twice.
  const std::vector<int>& consumers(TensorId tensor) const { return consumers_[tensor]; }
  /// Whether a gradient flows back to `tensor`: some parameter lies at or before its producer.
  bool needs_gradient(TensorId tensor) const { return needs_gradient_[tensor]; }
  /// The layer named `name`, or -1.
  int FindLayer(std::string_view name) const;
  /// The last loss of the document: the one whose loss and accuracy are reported. Losses before it
  /// are auxiliary: they only add their weighted gradient.
  int main_loss() const { return main_loss_; }

 private:
  explicit Model(JsonView json) : json_(std::move(json)) {}

  using NameTable = std::unordered_map<std::string, TensorId>;
  void ReadInputs(NameTable& names);
  void ReadLayer(const JsonView& json, NameTable& names);
  void Link();
  void LimitInputs();
  void CheckUse() const;

  JsonView json_;
  std::string name_;
  std::vector<Input> inputs_;
  std::vector<Node> layers_;
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> needs_gradient_;
  int main_loss_ = -1;
};

}  // namespace pd
