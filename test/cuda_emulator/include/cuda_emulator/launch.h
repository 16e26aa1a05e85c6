#pragma once

/// CUDA's device language for a .cu that is compiled as C++. Include it before any kernel, in .cu
/// files only: it puts CUDA's names into the global namespace. C++17.
///
/// Not here: dynamic shared memory, constant memory, cooperative groups, textures, PTX, half.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_emulator/device.h"
#include "cuda_emulator/enqueue.h"

// One block runs at a time on a stream's thread, and thread_local keeps streams apart.
#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline

// __thread, not thread_local: no initialisation to check for at each use.
extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread dim3 blockDim;
extern __thread dim3 gridDim;
constexpr int warpSize = 32;

namespace cuda_emulator {

template <typename To, typename From>
To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <typename T>
uint64_t ToBits(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <typename T>
T FromBits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// The value of `source`, or the caller's own where that lies outside its group of `width` lanes.
template <typename T>
T Shuffle(unsigned mask, T value, int source, bool inside) {
  const uint64_t* lanes = WarpExchange(mask, ToBits(value));
  return inside ? FromBits<T>(lanes[source]) : value;
}

/// Applies `change` to *address atomically and gives the old value. Orders nothing else.
template <typename T, typename Change>
T AtomicUpdate(T* address, Change change) {
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  for (;;) {
    T next = change(old);
    if (__atomic_compare_exchange(address, &old, &next, false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED)) {
      return old;
    }
  }
}

}  // namespace cuda_emulator

// ---- Barriers, votes, shuffles --------------------------------------------------------------

inline void __syncthreads() { cuda_emulator::Barrier(0); }
inline int __syncthreads_count(int vote) { return cuda_emulator::Barrier(vote != 0); }
inline int __syncthreads_or(int vote) { return cuda_emulator::Barrier(vote != 0) != 0; }
inline int __syncthreads_and(int vote) { return cuda_emulator::Barrier(vote == 0) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) { cuda_emulator::WarpBarrier(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}

inline unsigned __ballot_sync(unsigned mask, int vote) {
  const uint64_t* lanes = cuda_emulator::WarpExchange(mask, vote != 0);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) ballot |= unsigned{lanes[lane] == 1} << lane;
  return ballot;
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) {
  return (__ballot_sync(mask, vote == 0) & mask) == 0;
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const int first = cuda_emulator::Lane() / width * width;
  return cuda_emulator::Shuffle(mask, value, first + (source & (width - 1)), true);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int source = cuda_emulator::Lane() - static_cast<int>(delta);
  return cuda_emulator::Shuffle(mask, value, source,
                                source >= cuda_emulator::Lane() / width * width);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int source = cuda_emulator::Lane() + static_cast<int>(delta);
  return cuda_emulator::Shuffle(mask, value, source,
                                source < cuda_emulator::Lane() / width * width + width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  const int source = cuda_emulator::Lane() ^ lane_mask;
  return cuda_emulator::Shuffle(mask, value, source,
                                source < cuda_emulator::Lane() / width * width + width);
}

// ---- Atomics --------------------------------------------------------------------------------

template <typename T>
T atomicAdd(T* address, T value) {
  return cuda_emulator::AtomicUpdate(address, [=](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMax(T* address, T value) {
  return cuda_emulator::AtomicUpdate(address, [=](T old) { return old < value ? value : old; });
}
template <typename T>
T atomicMin(T* address, T value) {
  return cuda_emulator::AtomicUpdate(address, [=](T old) { return value < old ? value : old; });
}
template <typename T>
T atomicExch(T* address, T value) {
  return cuda_emulator::AtomicUpdate(address, [=](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, T compare, T value) {
  return cuda_emulator::AtomicUpdate(address, [=](T old) { return old == compare ? value : old; });
}

// ---- Arithmetic -----------------------------------------------------------------------------

inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long min(long a, long b) { return b < a ? b : a; }
inline long max(long a, long b) { return a < b ? b : a; }
inline unsigned long min(unsigned long a, unsigned long b) { return b < a ? b : a; }
inline unsigned long max(unsigned long a, unsigned long b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a < b ? b : a; }
// As in CUDA those of floating-point numbers are fmin and fmax: the number, if one is NaN.
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

template <typename T>
T __ldg(const T* address) {
  return *address;
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return std::fmin(std::fmax(x, 0.0f), 1.0f); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / std::sqrt(double{x})); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }

inline float __int_as_float(int x) { return cuda_emulator::BitCast<float>(x); }
inline float __uint_as_float(unsigned x) { return cuda_emulator::BitCast<float>(x); }
inline int __float_as_int(float x) { return cuda_emulator::BitCast<int>(x); }
inline unsigned __float_as_uint(float x) { return cuda_emulator::BitCast<unsigned>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((uint64_t{x} * y) >> 32);
}
inline int __mulhi(int x, int y) { return static_cast<int>((int64_t{x} * y) >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(x) * y) >> 64);
}
