#pragma once

#include <cstddef>
#include <cstdint>

// Kernels compute the same numbers on a device. C++17, since .cu files include this.
#if defined(__CUDACC__)
#define PD_HOST_DEVICE __host__ __device__
#else
#define PD_HOST_DEVICE
#endif

namespace pd {

struct PhiloxBlock {
  uint32_t words[4];

  PD_HOST_DEVICE uint32_t operator[](size_t i) const { return words[i]; }
};

/// Philox4x32-10: counter-based random numbers, so that any element of any stream can be computed
/// alone, in any order, on any device.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
PD_HOST_DEVICE inline PhiloxBlock Philox(uint64_t key, uint64_t counter_high,
                                         uint64_t counter_low) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock c = {{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                    static_cast<uint32_t>(counter_high),
                    static_cast<uint32_t>(counter_high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53U} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57U} * c[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

/// A uniform number in [0, 1) with 24 bits, exact in float.
PD_HOST_DEVICE inline float ToUniform(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}

/// A dropout decision: true keeps the element. The same on every backend: element `index` is the
/// dense row-major index inside the minibatch; keep when uniform >= p.
/// `key` names seed and layer, `minibatch` is the minibatch's number over the whole run.
PD_HOST_DEVICE inline bool DropoutKeeps(uint64_t key, uint64_t minibatch, uint64_t index, float p) {
  const auto bits = Philox(key, minibatch, index >> 2);
  return ToUniform(bits[index & 3]) >= p;
}

}  // namespace pd
