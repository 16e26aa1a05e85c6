#pragma once

// A 2D convolution as a value, its algorithms, and its three computations.

#include <cudnn.h>

#include <cstddef>
#include <cstdint>

#include "cudnn_common.h"

namespace cuda_emulator::library {

enum class Pass { kForward, kBackwardData, kBackwardFilter };

struct Convolution {
  TensorView x, w, y;  // [N, C, H, W], [K, C / groups, R, S], [N, K, P, Q]
  Window rows, columns;
  int64_t groups = 1;
  bool flip = false;  // CUDNN_CONVOLUTION: the filter is turned around
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;

  /// Reads and checks the four descriptors.
  Convolution(const cudnnTensorStruct* x_descriptor, const cudnnFilterStruct* w_descriptor,
              const cudnnConvolutionStruct* convolution, const cudnnTensorStruct* y_descriptor);
};

/// What an algorithm needs and promises for one convolution.
struct Algorithm {
  int id = 0;  // of the pass's cudnn…Algo_t
  bool supported = false;
  bool deterministic = true;
  size_t workspace_bytes = 0;
};

/// Number of the pass's algorithms, known to the header; ids are 0 … count - 1.
int AlgorithmCount(Pass pass);

/// Throws Refused for an id that is none.
Algorithm DescribeAlgorithm(Pass pass, int id, const Convolution& convolution);

/// What a computation may vary.
struct Arithmetic {
  bool tf32 = false;      // round the inputs
  bool in_float = false;  // accumulate in f32: not all algorithms give the same bits
  uint64_t seed = 0;      // not 0: start the sums elsewhere, as atomic additions may
};

void ConvolveForward(const Convolution& convolution, Arithmetic arithmetic, Blend blend,
                     const float* x, const float* w, float* y);
void ConvolveBackwardData(const Convolution& convolution, Arithmetic arithmetic, Blend blend,
                          const float* w, const float* dy, float* dx);
void ConvolveBackwardFilter(const Convolution& convolution, Arithmetic arithmetic, Blend blend,
                            const float* x, const float* dy, float* dw);

}  // namespace cuda_emulator::library
