#include "library.h"

#include <cstdlib>
#include <cstring>

#include "control.h"
#include "tsan.h"

namespace cuda_emulator::library {

void RequireHost(const void* pointer, const char* name) {
  Require(pointer != nullptr, Fault::kBadParam, name, "is null");
  Require(!IsDeviceAddress(pointer), Fault::kBadParam, name, "is device memory, host is needed");
}

namespace {

LibraryHandle& Live(LibraryHandle* handle, bool live) {
  Require(live, Fault::kNotInitialized, "handle", "is no live handle");
  return *handle;
}

}  // namespace

HandleUse::HandleUse(LibraryHandle* handle, bool live) : handle_(Live(handle, live)) {
  Require(handle_.device == CurrentDevice(), Fault::kBadParam, "handle",
          "belongs to another device than the current one");
  Require(!handle_.busy.exchange(true), Fault::kBadParam, "handle", "is in use by another thread");
  DeclareWrite(&handle_.stream, sizeof handle_.stream);
}

HandleUse::~HandleUse() { handle_.busy = false; }

cudaStream_t HandleUse::Stream() const {
  Require(handle_.stream != nullptr, Fault::kBadParam, "handle",
          "has no stream: it would use the null stream");
  return handle_.stream;
}

void SetHandleStream(LibraryHandle& handle, cudaStream_t stream, const char* api) {
  if (!CheckStream(api, stream)) throw Refused{Fault::kExecution, {}};
  Require(DeviceOf(stream) == handle.device, Fault::kBadParam, "stream",
          "belongs to another device than the handle");
  handle.stream = stream;
}

void* Operation::Declare(const void* device, const TensorView& view, Access access,
                         const char* name) {
  const TensorView::Runs runs = view.ContiguousRuns();
  const char* const base = static_cast<const char*>(device);
  const auto bytes = [](int64_t elements) { return static_cast<size_t>(elements) * sizeof(float); };
  Argument argument{device, {}, {device, bytes(view.Extent()), access, name}};
  for (const int64_t offset : runs.offsets) {
    argument.runs.push_back({base + bytes(offset), bytes(runs.run_length), access, name});
  }
  arguments_.push_back(std::move(argument));
  return TranslateAddress(device);
}

const float* Operation::In(const void* device, const TensorView& view, const char* name) {
  Require(device != nullptr, Fault::kBadParam, name, "is null");
  return static_cast<const float*>(Declare(device, view, Access::kRead, name));
}

float* Operation::Out(void* device, const TensorView& view, const char* name) {
  Require(device != nullptr, Fault::kBadParam, name, "is null");
  return static_cast<float*>(Declare(device, view, Access::kWrite, name));
}

void* Operation::OutBytes(void* device, size_t bytes, const char* name) {
  Require(device != nullptr, Fault::kBadParam, name, "is null");
  const Operand whole{device, bytes, Access::kWrite, name};
  arguments_.push_back({device, {whole}, whole});
  return TranslateAddress(device);
}

void Operation::UseWorkspace(void* device, size_t bytes, const char* name) {
  if (bytes == 0) return;
  const Operand whole{device, bytes, Access::kWorkspace, name};
  arguments_.push_back({device, {whole}, whole});
}

void Operation::CheckOverlaps() const {
  const auto allowed = [&](const Argument& a, const Argument& b) {
    for (const auto& [first, second] : allowed_) {
      if (a.device == first && b.device == second) return true;
      if (a.device == second && b.device == first) return true;
    }
    return false;
  };
  const auto overlap = [](const Argument& a, const Argument& b) {
    if (!Overlap(a.whole, b.whole)) return false;
    for (const Operand& run : a.runs) {
      for (const Operand& other : b.runs) {
        if (Overlap(run, other)) return true;
      }
    }
    return false;
  };
  for (size_t i = 0; i < arguments_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Argument &a = arguments_[j], &b = arguments_[i];
      if (a.whole.access == Access::kRead && b.whole.access == Access::kRead) continue;
      if (overlap(a, b) && !allowed(a, b)) {
        throw Refused{Fault::kBadParam, std::string(b.whole.name) + " overlaps " + a.whole.name};
      }
    }
  }
}

void Operation::Launch(std::function<void()> body) {
  CheckOverlaps();
  std::vector<Operand> operands;
  for (const Argument& argument : arguments_) {
    operands.insert(operands.end(), argument.runs.begin(), argument.runs.end());
  }
  if (!Enqueue(api_, stream_, operands, std::move(body), sizeof(float))) {
    throw Refused{Fault::kExecution, {}};
  }
}

std::vector<float> Gather(const float* data, const TensorView& view, bool tf32) {
  std::vector<float> values(static_cast<size_t>(view.Count()));
  size_t i = 0;
  ForEachIndex<1>(view.rank, view.dims, {view.strides}, [&](const int64_t* at) {
    values[i++] = tf32 ? RoundToTf32(data[at[0]]) : data[at[0]];
  });
  return values;
}

uint64_t NextRandom() {
  static std::atomic<uint64_t> counter{0};
  // splitmix64
  uint64_t z = (CurrentSchedule().seed << 32) + (counter.fetch_add(1) + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return ((z ^ (z >> 31)) >> 1) | 1;
}

float RoundToTf32(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7F800000U) != 0x7F800000U) bits = (bits + 0x1000U) & ~0x1FFFU;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

bool Tf32Enabled() {
  const char* const value = std::getenv("CUDA_EMULATOR_TF32");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

}  // namespace cuda_emulator::library
