#pragma once

#include <memory>

#include "backend/backend.h"

namespace pd {

/// The oracle: plain loops on one thread, all layouts dense. T is float ("ref") or double
/// ("ref64").
template <typename T>
std::unique_ptr<Backend> MakeRefBackend();

}  // namespace pd
