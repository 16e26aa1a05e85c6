#include "memory.h"

#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core.h"
#include "tsan.h"

namespace cuda_emulator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;  // cudaMalloc gives at least this
constexpr size_t kWindow = size_t{128} << 30;
constexpr unsigned char kSlack = 0xA5;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The sanitizers' wrappers of mmap would mark the whole window; the system call does not.
void* Map(uintptr_t address, size_t bytes, int protection, int extra) {
  const long result = syscall(SYS_mmap, address, bytes, protection,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra, -1, 0);
  return result == -1 ? MAP_FAILED : reinterpret_cast<void*>(result);
}

void* Pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

bool Untouched(uintptr_t from, uintptr_t to) {
  const auto* first = static_cast<const unsigned char*>(Pointer(from));
  const auto* last = static_cast<const unsigned char*>(Pointer(to));
  return std::all_of(first, last, [](unsigned char byte) { return byte == kSlack; });
}

}  // namespace

Memory::Memory() {
  void* base = Map(0, 3 * kWindow, PROT_NONE, 0);
  if (base == MAP_FAILED) {
    std::perror("cuda emulator: no address space");
    std::abort();
  }
  window_ = reinterpret_cast<uintptr_t>(base);
  pinned_ = window_ + 2 * kWindow;
  next_device_ = window_ + kPage;
  next_pinned_ = pinned_ + kPage;
}

uintptr_t Memory::DataAddress(const Allocation& allocation) const {
  return allocation.pinned ? allocation.begin : allocation.begin + kWindow;
}

std::shared_ptr<Allocation> Memory::Allocate(size_t bytes, int device, bool pinned) {
  if (bytes > kWindow) return nullptr;
  const size_t pages = RoundUp(bytes, kPage);
  uintptr_t& next = pinned ? next_pinned_ : next_device_;
  const uintptr_t end = (pinned ? pinned_ : window_) + kWindow;
  if (next + pages + kPage > end) return nullptr;

  auto allocation = std::make_shared<Allocation>();
  allocation->begin = next + pages - RoundUp(bytes, kAlignment);
  allocation->bytes = bytes;
  allocation->device = device;
  allocation->pinned = pinned;
  const uintptr_t first = next + (pinned ? 0 : kWindow);
  if (Map(first, pages, PROT_READ | PROT_WRITE, MAP_FIXED) == MAP_FAILED) return nullptr;
  next += pages + kPage;

  const uintptr_t data = DataAddress(*allocation);
  std::memset(Pointer(first), kSlack, data - first);
  FillWithNan(Pointer(data), bytes);
  std::memset(Pointer(data + bytes), kSlack, first + pages - data - bytes);
  Poison(Pointer(first), data - first);
  Poison(Pointer(data + bytes), first + pages - data - bytes);
  live_[allocation->begin] = allocation;
  ++made_;
  return allocation;
}

bool Memory::Free(const Allocation& allocation) {
  const uintptr_t data = DataAddress(allocation);
  const uintptr_t first = data / kPage * kPage;
  const uintptr_t last = RoundUp(data + allocation.bytes, kPage);
  Unpoison(Pointer(first), last - first);
  const bool clean = Untouched(first, data) && Untouched(data + allocation.bytes, last);
  // By way of the C library, so that ThreadSanitizer gives back what it keeps of this memory.
  munmap(Pointer(first), last - first);
  Map(first, last - first, PROT_NONE, MAP_FIXED_NOREPLACE);
  live_.erase(allocation.begin);
  return clean;
}

std::shared_ptr<Allocation> Memory::Find(const void* address) const {
  const auto value = reinterpret_cast<uintptr_t>(address);
  auto after = live_.upper_bound(value);
  if (after == live_.begin()) return nullptr;
  const std::shared_ptr<Allocation>& allocation = std::prev(after)->second;
  return value - allocation->begin < allocation->bytes ? allocation : nullptr;
}

bool Memory::InWindow(const void* address) const {
  return reinterpret_cast<uintptr_t>(address) - window_ < kWindow;
}

void* Memory::Translate(const void* address) const {
  return InWindow(address) ? Pointer(reinterpret_cast<uintptr_t>(address) + kWindow) : nullptr;
}

size_t Memory::used_bytes(int device) const {
  size_t used = 0;
  for (const auto& [begin, allocation] : live_) {
    if (!allocation->pinned && allocation->device == device) used += allocation->bytes;
  }
  return used;
}

}  // namespace cuda_emulator
