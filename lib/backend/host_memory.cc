#include "backend/host_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace pd {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMappedFrom = 2 * kHugePage;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void FreeSmall(void* data, size_t /*bytes*/) { std::free(data); }
void FreeMapped(void* data, size_t bytes) { munmap(data, RoundUp(bytes, kHugePage)); }

/// Maps one huge page more than asked, then gives back what lies before and after the aligned part.
void* MapAligned(size_t bytes) {
  const size_t wanted = RoundUp(bytes, kHugePage);
  void* whole =
      mmap(nullptr, wanted + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  std::byte* const start = static_cast<std::byte*>(whole);
  const size_t head =
      RoundUp(reinterpret_cast<uintptr_t>(start), kHugePage) - reinterpret_cast<uintptr_t>(start);
  if (head > 0) munmap(start, head);
  if (head < kHugePage) munmap(start + head + wanted, kHugePage - head);
  // Only advice: a kernel without huge pages gives small ones.
  madvise(start + head, wanted, MADV_HUGEPAGE);
  return start + head;
}

}  // namespace

Buffer AllocateHost(size_t bytes) {
  if (bytes == 0) return {};
  const bool possible = bytes <= PTRDIFF_MAX - 2 * kHugePage;
  const bool mapped = bytes >= kMappedFrom;
  void* data = nullptr;
  if (possible) {
    data = mapped ? MapAligned(bytes) : std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment));
  }
  if (data == nullptr) Throw(ErrorCode::kDevice, "cannot allocate {} bytes of memory", bytes);
  Buffer buffer(data, bytes, mapped ? FreeMapped : FreeSmall);
  std::memset(data, 0, bytes);
  return buffer;
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t value = line.find_first_not_of(" \t:", std::strlen("model name"));
    if (value != std::string::npos) return line.substr(value);
  }
  return "unknown processor";
}

}  // namespace pd
