#pragma once

// What the emulated RNN functions share: descriptors, the arrangement of weights and reserve space.
//
// Emulated: CUDNN_LSTM, one direction, double bias, linear input, no projection, no dropout, f32,
// CUDNN_RNN_ALGO_STANDARD, and sequences that are all as long as the descriptor's longest.

#include <vector>

#include "cudnn_common.h"

struct cudnnDropoutStruct {
  static constexpr const char* kKind = "cudnnDropoutDescriptor_t";
  bool set = false;
  float dropout = 0;
};

struct cudnnRNNStruct {
  static constexpr const char* kKind = "cudnnRNNDescriptor_t";
  bool set = false;
  int64_t input = 0, hidden = 0, layers = 0;
  bool padded_io = false;
  bool may_use_tf32 = false;
};

struct cudnnRNNDataStruct {
  static constexpr const char* kKind = "cudnnRNNDataDescriptor_t";
  bool set = false;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int64_t steps = 0, batch = 0, width = 0;
  std::vector<int> lengths;
};

namespace cuda_emulator::library {

/// Where the eight matrices and biases of each layer lie in the weight space: input and recurrent
/// gates in the order i, f, g, o, with gaps between the groups, since cuDNN promises none.
struct RnnWeights {
  static constexpr int kLinear = 8;
  static constexpr int64_t kGap = 4;

  explicit RnnWeights(const cudnnRNNStruct& rnn)
      : input(rnn.input), hidden(rnn.hidden), layers(rnn.layers) {}

  int64_t Columns(int64_t layer, int id) const { return id < 4 && layer == 0 ? input : hidden; }
  int64_t Matrix(int64_t layer, int id) const {
    return Layer(layer) +
           (id < 4 ? id * hidden * Columns(layer, 0)
                   : 4 * hidden * Columns(layer, 0) + kGap + (id - 4) * hidden * hidden);
  }
  int64_t Bias(int64_t layer, int id) const {
    return Matrix(layer, 7) + hidden * hidden + kGap + id * hidden + (id < 4 ? 0 : kGap);
  }
  int64_t Count() const { return Layer(layers); }

  int64_t input, hidden, layers;

 private:
  int64_t Layer(int64_t layer) const {
    const int64_t first = 4 * hidden * (input + hidden + 2) + 4 * kGap;
    const int64_t other = 4 * hidden * (2 * hidden + 2) + 4 * kGap;
    return layer == 0 ? 0 : first + (layer - 1) * other;
  }
};

/// What Forward keeps for the two backward functions, in this order: a tag that says who wrote it
/// last, and for each layer gates [T, N, 4H], c and h [T, N, H], and, from BackwardData on, the
/// gradients [T, N, 4H] of what the gates' functions were applied to.
struct RnnReserve {
  static constexpr int64_t kTag = 8;

  int64_t steps, batch, hidden, layers;

  int64_t Cells() const { return steps * batch * hidden; }
  int64_t Gates(int64_t layer) const { return kTag + layer * 10 * Cells(); }
  int64_t C(int64_t layer) const { return Gates(layer) + 4 * Cells(); }
  int64_t H(int64_t layer) const { return Gates(layer) + 5 * Cells(); }
  int64_t Gradients(int64_t layer) const { return Gates(layer) + 6 * Cells(); }
  int64_t Count() const { return Gates(layers); }
};

/// Bytes of the workspace and of the reserve space.
size_t RnnWorkBytes(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x, bool training);
size_t RnnReserveBytes(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x);

}  // namespace cuda_emulator::library
