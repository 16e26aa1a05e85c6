/// Device memory as the libraries' authors see it: range checks, translation.

#include <fmt/format.h>

#include <cstring>

#include "state.h"

namespace cuda_emulator {

std::shared_ptr<Allocation> CheckRangeLocked(Core& core, const char* api, const Operand& operand,
                                             size_t alignment, int device) {
  const auto refuse = [&](const std::string& why) {
    RefuseLocked(
        core, api,
        fmt::format("{} ({}, {} bytes) {}", operand.name, operand.data, operand.bytes, why));
    return nullptr;
  };
  if (!operand.data) return refuse("is null");
  const std::shared_ptr<Allocation> allocation = core.memory.Find(operand.data);
  if (!allocation || allocation->pinned) {
    if (core.memory.InWindow(operand.data)) return refuse("lies in no live device allocation");
    return refuse("is no device memory");
  }
  const auto begin = reinterpret_cast<uintptr_t>(operand.data);
  const size_t left = allocation->begin + allocation->bytes - begin;
  if (operand.bytes > left) {
    return refuse(fmt::format("runs past the end of its allocation of {} bytes, {} from here",
                              allocation->bytes, left));
  }
  if (begin % alignment != 0) return refuse(fmt::format("is not aligned to {}", alignment));
  if (allocation->device != device) {
    return refuse(fmt::format("is memory of device {}, used on {}", allocation->device, device));
  }
  return allocation;
}

bool CheckRange(const char* api, const Operand& operand, size_t alignment) {
  if (operand.bytes == 0) return true;
  const Lock lock;
  return CheckRangeLocked(TheCore(), api, operand, alignment, CurrentDevice()) != nullptr;
}

bool Overlap(const Operand& a, const Operand& b) {
  if (a.bytes == 0 || b.bytes == 0) return false;
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<uintptr_t>(b.data);
  return a_begin < b_begin + b.bytes && b_begin < a_begin + a.bytes;
}

void* TranslateAddress(const void* device_address) {
  return TheCore().memory.Translate(device_address);
}

bool IsDeviceAddress(const void* address) { return TheCore().memory.InWindow(address); }

bool IsPinned(const void* data, size_t bytes) {
  const Lock lock;
  const std::shared_ptr<Allocation> allocation = TheCore().memory.Find(data);
  if (!allocation || !allocation->pinned) return false;
  return reinterpret_cast<uintptr_t>(data) + bytes <= allocation->begin + allocation->bytes;
}

void FillWithNan(void* translated, size_t bytes) { std::memset(translated, 0xFF, bytes); }

size_t LiveDeviceAllocations() {
  const Lock lock;
  size_t count = 0;
  for (const auto& [begin, allocation] : TheCore().memory.live()) count += !allocation->pinned;
  return count;
}

size_t LivePinnedAllocations() {
  const Lock lock;
  size_t count = 0;
  for (const auto& [begin, allocation] : TheCore().memory.live()) count += allocation->pinned;
  return count;
}

uint64_t AllocationCount() {
  const Lock lock;
  return TheCore().memory.made();
}

void SetMemoryLimit(size_t bytes) {
  const Lock lock;
  TheCore().memory_limit = bytes;
}

}  // namespace cuda_emulator
