#pragma once

#include <cstddef>
#include <string>

#include "backend/backend.h"

namespace pd {

/// Memory of the host for backends that compute on it: zeroed, 64-byte aligned, every page touched.
/// From 4 MB on it is mapped apart, on 2 MB boundaries, and asks for huge pages. 0 bytes give an
/// empty Buffer. Throws kDevice when there is not enough memory.
Buffer AllocateHost(size_t bytes);

/// The processor's model name, for people; "unknown processor" where the system does not tell.
std::string ProcessorName();

}  // namespace pd
