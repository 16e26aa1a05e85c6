#pragma once

/// What launch.h's device functions need of the emulator.

#include <cstdint>

namespace cuda_emulator {

/// All threads of the block that have not returned arrive; their accesses before it come before
/// those after it. `vote` of all of them: how many are not zero.
int Barrier(int vote);

/// The threads of the warp named by `mask` arrive, each with 64 bits; gives those of all 32 lanes
/// (all ones for a lane that is not there), valid until the caller's next call.
/// Gives no memory ordering, as CUDA documents for shuffles and votes.
const uint64_t* WarpExchange(unsigned mask, uint64_t bits);

/// __syncwarp: the same with memory ordering.
void WarpBarrier(unsigned mask);

/// The lane of the calling thread in its warp.
int Lane();

}  // namespace cuda_emulator
