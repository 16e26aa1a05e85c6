#pragma once

// What a tensor descriptor says, as a value: copied when a library function is called, so that the
// caller may change or destroy the descriptor before the work runs, as with the real libraries.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuda_emulator::library {

inline constexpr int kMaxRank = 8;

struct TensorView {
  int rank = 0;
  int64_t dims[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};  // in elements, positive

  int64_t Count() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= dims[i];
    return count;
  }

  /// Elements from the first to one past the last, gaps included.
  int64_t Extent() const {
    int64_t last = 0;
    for (int i = 0; i < rank; ++i) last += (dims[i] - 1) * strides[i];
    return last + 1;
  }

  bool SameDims(const TensorView& other) const {
    if (rank != other.rank) return false;
    for (int i = 0; i < rank; ++i) {
      if (dims[i] != other.dims[i]) return false;
    }
    return true;
  }

  bool SameStrides(const TensorView& other) const {
    if (rank != other.rank) return false;
    for (int i = 0; i < rank; ++i) {
      if (strides[i] != other.strides[i]) return false;
    }
    return true;
  }

  /// Whether the dimensions from `first` on lie without gaps, the last one innermost.
  bool PackedFrom(int first) const {
    int64_t expected = 1;
    for (int i = rank - 1; i >= first; --i) {
      if (strides[i] != expected) return false;
      expected *= dims[i];
    }
    return true;
  }

  /// Whether the channels (dimension 1) are innermost, without gaps.
  bool ChannelsLast() const;

  /// Whether two indices may share an element.
  bool Overlaps() const;

  /// The elements as contiguous runs: offset of each run's first element, all of `run_length`.
  struct Runs {
    int64_t run_length = 0;
    std::vector<int64_t> offsets;
  };
  Runs ContiguousRuns() const;
};

/// A dense tensor, the last dimension innermost.
TensorView Dense(const std::vector<int64_t>& dims);

/// Calls f(offsets) for every index of `dims`, the last dimension fastest; offsets[t] is the
/// element offset of that index under strides[t].
template <int N, class F>
void ForEachIndex(int rank, const int64_t* dims, const int64_t* const (&strides)[N], F&& f) {
  int64_t index[kMaxRank] = {};
  int64_t offsets[N] = {};
  for (;;) {
    f(static_cast<const int64_t*>(offsets));
    int axis = rank - 1;
    for (; axis >= 0; --axis) {
      for (int t = 0; t < N; ++t) offsets[t] += strides[t][axis];
      if (++index[axis] < dims[axis]) break;
      for (int t = 0; t < N; ++t) offsets[t] -= dims[axis] * strides[t][axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

/// value blended into a result: alpha * value + beta * previous; beta = 0 does not read `previous`.
struct Blend {
  float alpha = 1;
  float beta = 0;

  void operator()(double value, float* result) const {
    const double scaled = alpha * value;
    *result = static_cast<float>(beta == 0 ? scaled : scaled + static_cast<double>(beta) * *result);
  }
};

}  // namespace cuda_emulator::library
