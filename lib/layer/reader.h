#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "layer/layer.h"
#include "tensor/tensor.h"

namespace pd {

/// No extent, count, kernel, stride or padding of a model may be larger.
inline constexpr int64_t kMaxExtent = int64_t{1} << 24;
/// No tensor (of one sample) or parameter may have more elements: 256 GiB in f32.
inline constexpr int64_t kMaxElements = int64_t{1} << 36;
inline constexpr size_t kMaxRank = 8;

/// Whether `shape` (positive extents up to kMaxExtent) has at most kMaxElements elements.
bool IsSane(const Shape& shape);

/// Reads one element of a model's "layers" for the layer's constructor: keys with defaults and
/// limits, inputs with the shapes that the layer asks for. Every complaint names file, pointer,
/// expected, found.
class LayerReader {
 public:
  LayerReader(const JsonView& json, const std::vector<TensorSpec>& inputs);

  const std::string& name() const { return name_; }
  const std::string& type() const { return type_; }
  size_t num_inputs() const { return inputs_.size(); }

  /// Refuses keys other than name, type, inputs and `own`.
  void CheckKeys(std::initializer_list<std::string_view> own) const;

  /// The key's value, or `fallback` where it is absent; without a fallback the key is required.
  int64_t Int(std::string_view key, int64_t min, std::optional<int64_t> fallback = {}) const;
  double Number(std::string_view key, double min, double max, double fallback) const;
  bool Bool(std::string_view key, bool fallback) const;
  /// A number for both dimensions, or [h, w].
  std::array<int64_t, 2> Pair(std::string_view key, int64_t min,
                              std::optional<std::array<int64_t, 2>> fallback = {}) const;

  /// One of `choices`; absent: the first.
  std::string Choice(std::string_view key, std::initializer_list<std::string_view> choices) const;

  /// An array of extents, at most kMaxRank; absent: none, or refused where it is required.
  Shape Extents(std::string_view key, bool required = false) const;
  /// An array of integers from `min`, one a dimension of input 0.
  Shape OneADimension(std::string_view key, int64_t min) const;
  /// A dimension of the sample of input 0, from 0.
  size_t Axis(std::string_view key) const;

  /// Refuses another number of inputs than `count`.
  void RequireInputs(size_t count) const;
  /// The shape of input `i`; refuses a type other than f32.
  const Shape& Input(size_t i) const;
  /// The shape of input `i`; refuses what is not f32 [C, H, W].
  const Shape& Image(size_t i) const;
  const TensorSpec& Spec(size_t i) const { return inputs_.at(i); }
  /// Refuses input `i` for its shape: "expected EXPECTED as input of TYPE NAME, found its shape".
  [[noreturn]] void FailInput(size_t i, const std::string& expected) const;
  /// Refuses the value of `key`, or the layer where the key is absent.
  [[noreturn]] void FailKey(std::string_view key, const std::string& expected,
                            const std::string& found) const;

  /// f32 of `shape`; refuses more than kMaxElements elements.
  TensorSpec Output(Shape shape) const;
  /// `params` with the initial values that the key "init" gives; refuses names that are not there
  /// and parameters of more than kMaxElements elements.
  std::vector<ParamSpec> Params(std::vector<ParamSpec> params) const;

 private:
  JsonView json_;
  const std::vector<TensorSpec>& inputs_;
  std::string name_;
  std::string type_;
};

}  // namespace pd
