#pragma once

#include <cstdint>

namespace pd {

/// Bytes of main memory that programs can take without swapping, as the system estimates them;
/// INT64_MAX where it does not tell.
int64_t AvailableMemoryBytes();

/// Cores that this process may run on.
int CoresOfThisProcess();

/// Nanoseconds for which the calling thread has had a core.
int64_t ThreadCpuNs();

}  // namespace pd
