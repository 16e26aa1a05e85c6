#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace pd {

/// What every transport must do. Each rank calls every case, in the same order; a case throws when
/// what it claims does not hold, or when nothing arrives for a minute.
struct TransportCase {
  std::string claim;
  std::function<void(Transport&)> run;
};

struct SuiteOptions {
  size_t largest_bytes = size_t{64} << 20;
  /// Lengths around multiples of it are tried.
  size_t piece_bytes = 1000;
};

std::vector<TransportCase> TransportSuite(const SuiteOptions& options);

/// Polls until `count` requests are finished; returns them in the order in which they were.
std::vector<Transport::Completion> WaitFor(Transport& transport, size_t count);

/// Returns when every rank has called it: with the requests of the caller's that finished
/// meanwhile.
std::vector<Transport::Completion> Barrier(Transport& transport);

/// Bytes that depend on `seed` and place.
void FillBytes(std::vector<std::byte>& data, uint64_t seed);
bool HasBytes(const std::byte* data, size_t bytes, uint64_t seed);

}  // namespace pd
