#include "base/host.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace pd {
namespace {

int64_t MachineBytes() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  while (info >> key) {
    if (key == "MemAvailable:" && info >> kib) return kib * 1024;
    std::getline(info, key);
  }
  return INT64_MAX;
}

// A container's limit; its file holds "max" where there is none.
int64_t ContainerBytes() {
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  int64_t bytes = 0;
  return limit >> bytes ? bytes : INT64_MAX;
}

// A value of /proc/self/status, which is in kB; 0 where there is none.
int64_t StatusBytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size())) * 1024;
  }
  return 0;
}

}  // namespace

int64_t AvailableMemoryBytes() { return std::min(MachineBytes(), ContainerBytes()); }

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int HostCores() { return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)); }

std::string MachineId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

int64_t ResidentMemoryBytes() { return StatusBytes("VmRSS:"); }
int64_t PeakMemoryBytes() { return StatusBytes("VmHWM:"); }

void ResetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

int64_t ThreadCpuNs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace pd
