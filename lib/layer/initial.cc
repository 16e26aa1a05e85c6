#include <array>
#include <cmath>
#include <numbers>

#include "base/file.h"
#include "base/random.h"
#include "layer/layer.h"

namespace pd {
namespace {

// Four normal numbers from four uniform ones. Source: Box and Muller, 1958.
std::array<double, 4> ToNormal(const PhiloxBlock& bits) {
  std::array<double, 4> out{};
  for (size_t i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log(1 - double{ToUniform(bits[i])}));  // of (0, 1]
    const double angle = 2 * std::numbers::pi * double{ToUniform(bits[i + 1])};
    out[i] = radius * std::cos(angle);
    out[i + 1] = radius * std::sin(angle);
  }
  return out;
}

// Four numbers of deviation or range 1: elements 4·counter to 4·counter + 3.
std::array<double, 4> Draw(Init::Kind kind, uint64_t key, uint64_t counter) {
  const auto bits = Philox(key, 0, counter);
  if (kind == Init::Kind::kNormal) return ToNormal(bits);
  std::array<double, 4> out{};
  for (size_t i = 0; i < 4; ++i) out[i] = 2 * double{ToUniform(bits[i])} - 1;
  return out;
}

}  // namespace

uint64_t LayerKey(uint64_t seed, std::string_view layer, std::string_view what) {
  std::array<char, 8> bytes{};
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(seed >> (8 * i));
  const uint64_t with_seed = HashBytes({bytes.data(), bytes.size()});
  // The zero, which no name holds, keeps ("ab", "c") apart from ("a", "bc").
  const uint64_t with_layer = HashBytes({"\0", 1}, HashBytes(layer, with_seed));
  return HashBytes(what, with_layer);
}

void FillInitial(const ParamSpec& spec, std::string_view layer, uint64_t seed, float* out) {
  const auto count = static_cast<uint64_t>(Elements(spec.shape));
  const uint64_t key = LayerKey(seed, layer, spec.name);
  std::array<double, 4> drawn = {1, 1, 1, 1};
  for (uint64_t i = 0; i < count; ++i) {
    if (spec.init.kind != Init::Kind::kConstant && i % 4 == 0)
      drawn = Draw(spec.init.kind, key, i / 4);
    out[i] = static_cast<float>(spec.init.value * drawn[i % 4]);
  }
}

}  // namespace pd
