/// Counting and failing calls, misuses, handles, and the verdict when the process ends.

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "state.h"
#include "stream.h"

namespace cuda_emulator {
namespace {

constexpr int kExitStatus = 66;
pid_t first_process = 0;
std::atomic<bool> used{false};  // a process that calls nothing takes no address space either

[[noreturn]] void BadEnvironment(const char* name, const char* text, const char* expected) {
  std::fprintf(stderr, "cuda emulator: %s: expected %s, found \"%s\"\n", name, expected, text);
  std::_Exit(2);
}

uint64_t NumberFromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  const std::string_view view(text);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size()) {
    BadEnvironment(name, text, "a number");
  }
  return value;
}

Schedule ScheduleFromEnvironment() {
  Schedule schedule;
  schedule.seed = NumberFromEnvironment("CUDA_EMULATOR_SEED", 0);
  schedule.delay_us = static_cast<unsigned>(NumberFromEnvironment("CUDA_EMULATOR_DELAY_US", 0));
  if (const char* mode = std::getenv("CUDA_EMULATOR_MODE")) {
    if (std::string_view(mode) == "scheduled") {
      schedule.mode = Mode::kScheduled;
    } else if (std::string_view(mode) != "free") {
      BadEnvironment("CUDA_EMULATOR_MODE", mode, "free or scheduled");
    }
  }
  constexpr std::string_view kPolicies[] = {"eager", "lazy", "random", "priority"};
  schedule.policy = static_cast<Policy>(schedule.seed % 4);
  if (const char* policy = std::getenv("CUDA_EMULATOR_POLICY")) {
    const auto* found = std::find(std::begin(kPolicies), std::end(kPolicies), policy);
    if (found == std::end(kPolicies)) {
      BadEnvironment("CUDA_EMULATOR_POLICY", policy, "eager, lazy, random or priority");
    }
    schedule.policy = static_cast<Policy>(found - std::begin(kPolicies));
  }
  if (const char* list = std::getenv("CUDA_EMULATOR_PRIORITY")) {
    const char* const end = list + std::string_view(list).size();
    for (const char* at = list; at != end;) {
      int number = 0;
      const auto [rest, error] = std::from_chars(at, end, number);
      if (error != std::errc() || (rest != end && *rest != ',')) {
        BadEnvironment("CUDA_EMULATOR_PRIORITY", list, "numbers with commas between");
      }
      schedule.priority.push_back(number);
      at = rest == end ? end : rest + 1;
    }
  }
  return schedule;
}

// Host threads that call the API, so that the pump can see whether all of them sleep.
class HostThread {
 public:
  HostThread() : id_(static_cast<int>(syscall(SYS_gettid))) {
    const Lock lock;
    TheCore().host_threads.insert(id_);
  }
  ~HostThread() {
    const Lock lock;
    TheCore().host_threads.erase(id_);
  }

 private:
  int id_;
};

std::vector<std::string> LeaksLocked(const Core& core) {
  std::vector<std::string> leaks;
  for (const auto& [begin, allocation] : core.memory.live()) {
    leaks.push_back(fmt::format("{} bytes of {} memory at {:#x}", allocation->bytes,
                                allocation->pinned ? "pinned" : "device", begin));
  }
  for (const auto& [pointer, handle] : core.handles) {
    leaks.push_back(fmt::format("{} {} (number {})", handle.kind, pointer, handle.serial));
  }
  return leaks;
}

void AtExit() {
  if (!used || getpid() != first_process) return;  // a forked child has no stream threads
  Drain();
  std::vector<std::string> leaks;
  size_t misuses = 0;
  {
    const Lock lock;
    leaks = LeaksLocked(TheCore());
    misuses = TheCore().misuses.size();
  }
  for (const std::string& leak : leaks) {
    std::fprintf(stderr, "cuda emulator: leak: %s\n", leak.c_str());
  }
  if (leaks.empty() && misuses == 0) return;
  std::fprintf(stderr, "cuda emulator: %zu misuses, %zu leaks\n", misuses, leaks.size());
  std::fflush(nullptr);
  _exit(kExitStatus);
}

// Registered before main's static objects exist, so that it runs after their destruction.
__attribute__((constructor(101))) void Start() {
  first_process = getpid();
  std::atexit(AtExit);
}

}  // namespace

Core::Core() { ReadEnvironment(*this); }

Core& TheCore() {
  static Core* const core = [] {
    const Hidden hidden;
    used = true;
    return new Core;  // never destroyed: stream threads may outlive every static object
  }();
  return *core;
}

void ReadEnvironment(Core& core) {
  core.schedule = ScheduleFromEnvironment();
  core.random.seed(core.schedule.seed);
  core.devices = static_cast<int>(NumberFromEnvironment("CUDA_EMULATOR_DEVICES", 1));
  core.memory_limit = NumberFromEnvironment("CUDA_EMULATOR_MEMORY", size_t{8} << 30);
  core.fail_at = NumberFromEnvironment("CUDA_EMULATOR_FAIL_AT", 0);
}

namespace {

bool& InsideHere() {
  static thread_local bool inside = false;
  return inside;
}

}  // namespace

Inside::Inside(bool inside) : before_(std::exchange(InsideHere(), inside)) {}
Inside::~Inside() { InsideHere() = before_; }
bool IsInside() { return InsideHere(); }

bool& InOperation() {
  static thread_local bool in_operation = false;
  return in_operation;
}

bool Call::Begin(const char* api) {
  if (InOperation()) {
    Refuse(api, "called from a host function or another operation of a stream");
    return false;
  }
  static thread_local const HostThread host_thread;
  const Lock lock;
  Core& core = TheCore();
  ++core.activity;
  ++core.calls;
  if (core.fail_at == 0 || core.calls != core.fail_at) return true;
  core.failed = true;
  return false;
}

void RefuseLocked(Core& core, const char* api, const std::string& why) {
  std::string text = fmt::format("{}: {}", api, why);
  if (core.printed.insert(text).second) {
    std::fprintf(stderr, "cuda emulator: %s\n", text.c_str());
  }
  core.misuses.push_back(std::move(text));
}

void Refuse(const char* api, const std::string& why) {
  const Lock lock;
  RefuseLocked(TheCore(), api, why);
}

void RegisterHandle(std::shared_ptr<void> object, const char* kind) {
  const Lock lock;
  Core& core = TheCore();
  const void* handle = object.get();
  core.handles[handle] = {std::move(object), kind, core.handles_made++};
}

bool IsLive(const void* handle, const char* kind) {
  const Lock lock;
  const auto found = TheCore().handles.find(handle);
  return found != TheCore().handles.end() && found->second.kind == kind;
}

bool ForgetHandle(const void* handle, const char* kind) {
  const Lock lock;
  Core& core = TheCore();
  const auto found = core.handles.find(handle);
  if (found == core.handles.end() || found->second.kind != kind) return false;
  core.forgotten.push_back(std::move(found->second.object));
  core.handles.erase(found);
  return true;
}

std::vector<std::string> TakeMisuses() {
  const Lock lock;
  Core& core = TheCore();
  core.printed.clear();
  return std::exchange(core.misuses, {});
}

std::vector<std::string> Leaks() {
  const Lock lock;
  return LeaksLocked(TheCore());
}

size_t LiveHandles(const std::string& kind) {
  const Lock lock;
  const auto& handles = TheCore().handles;
  return static_cast<size_t>(std::count_if(
      handles.begin(), handles.end(), [&](const auto& item) { return item.second.kind == kind; }));
}

uint64_t CallCount() {
  const Lock lock;
  return TheCore().calls;
}

uint64_t HandleCount() {
  const Lock lock;
  return TheCore().handles_made;
}

uint64_t DrainCount() {
  const Lock lock;
  return TheCore().drains;
}

uint64_t SynchronizeCount() {
  const Lock lock;
  return TheCore().synchronizations;
}

void FailCall(uint64_t n) {
  const Lock lock;
  Core& core = TheCore();
  core.fail_at = n == 0 ? 0 : core.calls + n;
  core.failed = false;
}

void FailDevice() {
  const Lock lock;
  TheCore().sticky = cudaErrorLaunchFailure;
}

bool CallFailed() {
  const Lock lock;
  return TheCore().failed;
}

void Reset() {
  Drain();
  const Lock lock;
  Core& core = TheCore();
  ReadEnvironment(core);
  core.fail_at = 0;
  core.failed = false;
  core.streams_made = 0;
  core.calls = 0;
  core.synchronizations = core.drains = 0;
  core.misuses.clear();
  core.printed.clear();
  core.sticky = cudaSuccess;
}

}  // namespace cuda_emulator
