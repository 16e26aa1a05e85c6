#pragma once

#include <cstring>
#include <string>

#include "cuda_emulator/control.h"
#include "cuda_emulator/core.h"

// What tests of the runtime on the emulated GPU share.

namespace pd {

/// A copy between any memory of hosts and devices, as CUDA-aware MPI makes it.
inline void CopyAnywhere(void* to, const void* from, size_t bytes) {
  if (void* device = cuda_emulator::TranslateAddress(to); device != nullptr) to = device;
  if (void* device = cuda_emulator::TranslateAddress(from); device != nullptr) from = device;
  std::memcpy(to, from, bytes);
}

/// Runs what is queued, and gives and forgets what was refused; "" for nothing.
inline std::string Misuses() {
  cuda_emulator::Drain();
  std::string all;
  for (const std::string& misuse : cuda_emulator::TakeMisuses()) all += misuse + "; ";
  return all;
}

}  // namespace pd
