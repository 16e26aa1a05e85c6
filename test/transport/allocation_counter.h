#pragma once

#include <cstdint>

namespace pd {

/// How often this thread has called operator new.
int64_t AllocationsOfThisThread();

}  // namespace pd
