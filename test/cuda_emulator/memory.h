#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace cuda_emulator {

struct Allocation {
  uintptr_t begin = 0;  ///< as the caller knows it
  size_t bytes = 0;
  int device = 0;
  bool pinned = false;
  int uses = 0;  ///< queued operations that name it
};

/// Device and pinned memory.
///
/// Device addresses lie in a window that nobody may touch; the data of an address lies at a
/// constant offset. Addresses only grow, so a stale one never becomes valid again. Each allocation
/// ends at an unmapped page; what is left of its pages before and (up to the alignment of 256)
/// behind it holds a pattern that is checked when it is freed, and is poisoned under
/// AddressSanitizer. Not thread-safe: the core's lock is held.
class Memory {
 public:
  Memory();

  /// nullptr: no address space left.
  std::shared_ptr<Allocation> Allocate(size_t bytes, int device, bool pinned);
  /// False: something wrote outside its bounds.
  bool Free(const Allocation& allocation);

  /// The live allocation in which an address lies, or nullptr.
  std::shared_ptr<Allocation> Find(const void* address) const;

  bool InWindow(const void* address) const;
  void* Translate(const void* address) const;

  size_t used_bytes(int device) const;
  const std::map<uintptr_t, std::shared_ptr<Allocation>>& live() const { return live_; }
  uint64_t made() const { return made_; }

 private:
  uintptr_t DataAddress(const Allocation& allocation) const;

  uintptr_t window_ = 0;
  uintptr_t pinned_ = 0;
  uintptr_t next_device_ = 0;
  uintptr_t next_pinned_ = 0;
  uint64_t made_ = 0;
  std::map<uintptr_t, std::shared_ptr<Allocation>> live_;
};

}  // namespace cuda_emulator
