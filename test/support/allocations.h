#pragma once

#include <cstdint>

namespace pd {

/// How often operator new has been called: by this thread, and by all. A test program that links
/// support/allocations.cc counts every call.
int64_t AllocationsOfThisThread();
int64_t AllocationsOfAllThreads();

}  // namespace pd
