#pragma once

#include <cstdint>
#include <string>

namespace pd {

/// Cores that this process may run on, and cores of the host.
int UsableCores();
int HostCores();

/// Names the machine: the same in all containers and network namespaces of one.
std::string MachineId();

/// Bytes of main memory that programs can take without swapping, as the system and a container's
/// limit tell; INT64_MAX where neither does.
int64_t AvailableMemoryBytes();

/// This process's resident memory now, and its high-water mark, which ResetPeakMemory sets to what
/// is resident now, where the kernel lets it.
int64_t ResidentMemoryBytes();
int64_t PeakMemoryBytes();
void ResetPeakMemory();

/// Nanoseconds for which the calling thread has had a core.
int64_t ThreadCpuNs();

}  // namespace pd
