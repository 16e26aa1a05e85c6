#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "layer/layer.h"
#include "tensor/tensor.h"

namespace pd::test {

/// A dense tensor of the host. kF32 stands for the backend's own type, float or double.
struct Tensor {
  Shape shape;
  DType dtype = DType::kF32;
  std::vector<double> values;
};

/// Uniform values, exact in float so that every backend gets the same.
Tensor Random(const Shape& shape, uint64_t seed, double low = -2, double high = 2);
Tensor RandomLabels(int64_t samples, int64_t classes, uint64_t seed);
/// i32 from 0 to limit - 1.
Tensor RandomIndices(const Shape& shape, int64_t limit, uint64_t seed);

/// Layers planned on one backend, each on the layout in which its producer stores its input, and
/// run as a stage runs them. It holds the operations to their contract: outputs, gradients, saved
/// state and scratch are full of NaN before each call, and a backward that said that it does not
/// read x or y gets NaN in their place.
class Graph {
 public:
  /// The memory of one minibatch in flight.
  struct Slot;

  /// `layers`: a JSON array as in a model; the graph's inputs are named x0, x1, … and their tensors
  /// here give shape (minibatch first) and type only. The last layer's output is the graph's.
  /// `params_of`: another graph of the same layers whose parameter layouts are to be kept.
  /// `input_gradients`: whether the gradients of the graph's inputs are asked for (never a
  /// label's).
  Graph(Backend& backend, const std::string& layers, const std::vector<Tensor>& inputs,
        const Graph* params_of = nullptr, bool input_gradients = true);
  ~Graph();

  /// Names are LAYER.PARAM, running statistics included. All start with random values.
  void SetParam(const std::string& name, const Tensor& value);
  Tensor Param(const std::string& name) const;
  std::vector<std::string> ParamNames() const;

  Slot* MakeSlot();
  void Forward(Slot* slot, const std::vector<Tensor>& x, uint64_t minibatch = 0,
               bool training = true);
  /// `dy` is not read when the last layer is a loss.
  void Backward(Slot* slot, const Tensor& dy);

  /// The parts of Forward and Backward: what allocates, and what must not.
  void Load(Slot* slot, const std::vector<Tensor>& x);
  void RunForward(Slot* slot, uint64_t minibatch, bool training);
  void LoadGradient(Slot* slot, const Tensor& dy);
  void RunBackward(Slot* slot);

  Tensor Output(const Slot* slot) const;
  /// One value a sample; empty where the last layer is no loss.
  std::vector<double> LossColumnOf(const Slot* slot, LossColumn column) const;
  /// After Backward: an inner layout's padding must hold zeros in outputs and gradients, as updates
  /// and sums run over it.
  void CheckPadding(const Slot* slot) const;
  /// After Backward. Empty where none was asked for.
  Tensor InputGradient(const Slot* slot, size_t input) const;
  Tensor ParamGradient(const Slot* slot, const std::string& name) const;
  std::vector<std::string> TrainableNames() const;

  const Layer& last_layer() const;

 private:
  struct Node;

  void Poison(const Buffer& buffer) const;
  void PlanNode(const JsonView& json, const Graph* params_of, bool input_gradients);
  void FillParams(Node* node);
  void WireSlot(Slot* slot);
  const Layout& LayoutOf(size_t value) const;
  Node* FindParam(const std::string& name, size_t* index) const;
  void CheckStored(const Layout& layout, const Buffer& buffer, const std::string& what) const;
  Tensor FromDevice(const Layout& layout, const void* data) const;
  void ToDevice(const Layout& layout, const Tensor& tensor, void* data) const;

  Backend& backend_;
  std::vector<Layout> inputs_;
  std::vector<TensorSpec> input_specs_;
  std::vector<std::unique_ptr<Node>> nodes_;  ///< Value i: input i, then the outputs of the nodes.
  std::map<std::string, size_t> values_;
  std::vector<std::unique_ptr<Slot>> slots_;
  Buffer workspace_;
  Buffer poison_;  ///< As large as anything that is poisoned.
};

/// Between a backend's memory and the host.
std::vector<std::byte> ReadBytes(Backend& backend, const void* data, size_t bytes);
void WriteBytes(Backend& backend, const std::vector<std::byte>& host, void* data);

/// Every kind of backend that this build has and this machine can run.
std::vector<std::string> Kinds();

/// Fails the running test where the tensors differ in shape, or in an element by more than
/// absolute + relative·|expected|, or one is NaN; `what` says where.
void CheckClose(const Tensor& actual, const Tensor& expected, double absolute, double relative,
                const std::string& what);
/// Fails unless all is equal, bit for bit.
void CheckEqual(const Tensor& actual, const Tensor& expected, const std::string& what);

}  // namespace pd::test
