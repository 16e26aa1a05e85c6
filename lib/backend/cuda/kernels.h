#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// Launchers of our own kernels: each queues its work on `stream` and returns what cudaGetLastError
/// says of the launch. C++17, since .cu files include it.
///
/// All pointers are to device memory, f32 and dense unless said otherwise, and may be any multiple
/// of 4 bytes (of 64 at the start of a tensor). Outputs are overwritten and overlap nothing, unless
/// said otherwise. A count of 0 launches nothing and is no error. No kernel uses atomics: results
/// do not depend on the order in which threads run, nor on the device. Multiplications and
/// additions are rounded one by one (nvcc -fmad=false) where a formula is given bit for bit.
namespace pd::cuda {

// ---- Element-wise

/// acc[i] += x[i], bit for bit.
cudaError_t LaunchAccumulate(float* acc, const float* x, size_t count, cudaStream_t stream);

/// sum[i] = a[i] + b[i], bit for bit.
cudaError_t LaunchSum(float* sum, const float* a, const float* b, size_t count,
                      cudaStream_t stream);

/// Bit for bit Backend::Sgd (SgdArgs, and SgdHostF32 in backend/elementwise.h): with
/// weight_decay == 0, w is left out of g'; with momentum == 0, m is not touched and may be null.
/// w_out may be w.
struct SgdStep {
  float lr = 0, momentum = 0, weight_decay = 0;
};
cudaError_t LaunchSgd(const float* w, const float* g, float* m, float* w_out, size_t count,
                      SgdStep step, cudaStream_t stream);

enum class ActivationKind { kRelu, kTanh, kSigmoid };

/// relu: x <= 0 ? 0 : x (a NaN stays one); tanh; sigmoid 1/(1 + e^-x), finite for any finite x.
/// Accurate tanhf and expf, not the fast intrinsics.
cudaError_t LaunchActivation(ActivationKind kind, const float* x, float* y, size_t count,
                             cudaStream_t stream);
/// From y alone: relu y <= 0 ? 0 : dy; tanh dy·(1 - y²); sigmoid dy·y·(1 - y).
cudaError_t LaunchActivationBackward(ActivationKind kind, const float* y, const float* dy,
                                     float* dx, size_t count, cudaStream_t stream);

/// y = x·s(x), s the share of x that passes: Φ(x) or, with `tanh`, ½(1 + tanh(√(2/π)·(x +
/// 0.044715·x³))).
cudaError_t LaunchGelu(bool tanh, const float* x, float* y, size_t count, cudaStream_t stream);
/// dx = dy·(s(x) + x·s'(x)).
cudaError_t LaunchGeluBackward(bool tanh, const float* x, const float* dy, float* dx, size_t count,
                               cudaStream_t stream);

/// y[i] = DropoutKeeps(key, minibatch, i, p) ? x[i]/(1 - p) : 0, with base/random.h's Philox bit
/// for bit; 0 <= p < 1. Backward is the same map of dy.
cudaError_t LaunchDropout(const float* x, float* y, size_t count, uint64_t key, uint64_t minibatch,
                          float p, cudaStream_t stream);

/// Copies `rows` rows of `width` elements: to[r·to_stride + i] = from[r·from_stride + i].
cudaError_t LaunchCopyRows(float* to, int64_t to_stride, const float* from, int64_t from_stride,
                           int64_t width, int64_t rows, cudaStream_t stream);

/// The same elements in two tensors: element [i0, i1, …] lies at Σ i·from of the one and at Σ i·to
/// of the other.
struct StridedShape {
  static constexpr int kMaxRank = 9;  ///< The 8 dimensions of a model's tensors and the minibatch.
  int rank = 0;
  int64_t dims[kMaxRank] = {}, from[kMaxRank] = {}, to[kMaxRank] = {};
};
/// Neighbours in `to` go together, and in `from` where they are neighbours there; where other
/// elements are, by way of tiles in shared memory (from 16 elements each way).
cudaError_t LaunchStridedCopy(float* to, const float* from, const StridedShape& shape,
                              cudaStream_t stream);

// ---- Biases. A tensor seen as [outer, channels, inner]: an image [N,K,P·Q], rows [rows,O,1].

struct ChannelShape {
  int64_t outer = 0, channels = 0, inner = 0;
};

/// y[n,c,i] += bias[c].
cudaError_t LaunchAddBias(float* y, const float* bias, ChannelShape shape, cudaStream_t stream);
/// dbias[c] = Σ_n Σ_i dy[n,c,i], in one order fixed by the shape. Coalesced for inner = 1 too.
cudaError_t LaunchBiasGradient(const float* dy, float* dbias, ChannelShape shape,
                               cudaStream_t stream);

// ---- Pooling, x [planes, in[0], in[1]] → y [planes, out[0], out[1]]. Window p along a dimension
// reads [p·stride - padding, p·stride - padding + kernel) where it meets the image; a window may
// hang over the padded image (ceil), but each meets the image. in[0]·in[1] fits an int32.

struct PoolShape {
  int64_t planes = 0;
  int64_t in[2] = {0, 0}, out[2] = {0, 0};
  int64_t kernel[2] = {0, 0}, stride[2] = {0, 0}, padding[2] = {0, 0};
  bool count_include_pad = true;  ///< Average only.
};

/// index[y's element]: where in its plane (row·in[1] + column) the maximum was found: the first of
/// equal ones in row-major order; a NaN wins (the last of several: as ref/pool2d.cc).
cudaError_t LaunchMaxPool(const float* x, float* y, int32_t* index, PoolShape shape,
                          cudaStream_t stream);
/// dx[i] = Σ dy over the outputs whose index is i, in row-major order of the outputs: a thread an
/// element of dx, which looks at the windows that hold it. 0 where there is none.
cudaError_t LaunchMaxPoolBackward(const float* dy, const int32_t* index, float* dx, PoolShape shape,
                                  cudaStream_t stream);

/// Divisor: elements of the window clipped to the padded image [-padding, in + padding) with
/// count_include_pad, else to the image. Windows as large as the image (global) should be fast.
cudaError_t LaunchAveragePool(const float* x, float* y, PoolShape shape, cudaStream_t stream);
/// dx[i] = Σ dy/divisor over the windows that hold i; a thread an element of dx.
cudaError_t LaunchAveragePoolBackward(const float* dy, float* dx, PoolShape shape,
                                      cudaStream_t stream);

// ---- Loss

struct LossShape {
  int64_t samples = 0, targets = 1, classes = 0;  ///< `targets` of one sample.
  int32_t ignored = -100;                         ///< The target that is not counted.
};

/// For each target: probability = softmax(logits) (the largest taken off first), loss = log Σ
/// e^(logit - largest) + largest - logits[target]. y [samples, 4]: the sums over a sample's targets
/// that LossColumn says. A target that is neither a class nor ignored reads nothing out of bounds:
/// its loss and its row of probability are NaN, and it counts as wrong.
/// Shapes: logits, probability [samples, targets, classes]; targets int32 [samples, targets]; rows,
/// scratch, [samples, targets, 4], not needed where a sample has one target.
cudaError_t LaunchSoftmaxCrossEntropy(const float* logits, const int32_t* targets,
                                      float* probability, float* rows, float* y, LossShape shape,
                                      cudaStream_t stream);
/// dlogits = scale·(probability - onehot(target)), 0 for an ignored target.
cudaError_t LaunchSoftmaxCrossEntropyBackward(const float* probability, const int32_t* targets,
                                              float* dlogits, LossShape shape, float scale,
                                              cudaStream_t stream);

// ---- Embedding, weight [rows, dim]

struct EmbeddingShape {
  int64_t count = 0, rows = 0, dim = 0;  ///< `count` indices.
};

/// y[i,:] = weight[index[i],:]; NaN, and nothing read, where weight has no such row.
cudaError_t LaunchEmbedding(const float* weight, const int32_t* index, float* y,
                            EmbeddingShape shape, cudaStream_t stream);
/// dweight[v,:] = Σ dy[i,:] over the i with index[i] = v, in their order; 0 where there is none. An
/// index without a row adds nothing. `links`, scratch: int32 [2, count], count at most 2³¹ - 1.
/// Cost: a thread an element finds the next of equal index, count² comparisons where all differ;
/// then each chain is walked once, count·dim additions.
cudaError_t LaunchEmbeddingGradient(const int32_t* index, const float* dy, float* dweight,
                                    int32_t* links, EmbeddingShape shape, cudaStream_t stream);

// ---- Layer norm, x [rows, width]: z = (x - mean)·inverse, inverse = 1/√(variance + eps)

struct RowShape {
  int64_t rows = 0, width = 0;
};

/// y = z·weight + bias. statistics: double [rows, 2], each row's mean and inverse.
cudaError_t LaunchLayerNorm(const float* x, const float* weight, const float* bias, float* y,
                            double* statistics, RowShape shape, double eps, cudaStream_t stream);
/// With g = dy·weight and means over the row: dx = inverse·(g - mean(g) - z·mean(g·z)).
cudaError_t LaunchLayerNormBackward(const float* x, const float* weight, const double* statistics,
                                    const float* dy, float* dx, RowShape shape,
                                    cudaStream_t stream);
/// dweight[c] = Σ dy[r,c]·z[r,c] over the rows, in one order fixed by the shape. (The bias's is
/// LaunchBiasGradient.)
cudaError_t LaunchLayerNormGradient(const float* x, const double* statistics, const float* dy,
                                    float* dweight, RowShape shape, cudaStream_t stream);

// ---- Attention, scores [matrices, steps, steps]

struct ScoreShape {
  int64_t matrices = 0, steps = 0;
  bool causal = false;  ///< Row i has its first i + 1 columns; the others count as -∞.
};

/// Softmax of each row, in place (the largest taken off first).
cudaError_t LaunchScoreSoftmax(float* scores, ScoreShape shape, cudaStream_t stream);
/// In place: d = scale·p·(d - Σ p·d), p the probabilities, of each row.
cudaError_t LaunchScoreSoftmaxBackward(const float* probability, float* d, ScoreShape shape,
                                       float scale, cudaStream_t stream);

// ---- Batch norm of one value a channel (cuDNN divides by m - 1)

/// y[c] = (x[c] - x[c])·weight[c] + bias[c] (so that a NaN stays one), running_mean[c] =
/// (1 - momentum)·running_mean[c] + momentum·x[c], running_var[c] = (1 - momentum)·running_var[c].
cudaError_t LaunchBatchNormOfOne(const float* x, const float* weight, const float* bias, float* y,
                                 float* running_mean, float* running_var, double momentum,
                                 int64_t channels, cudaStream_t stream);

}  // namespace pd::cuda
