#pragma once

#include <cstdint>

namespace pd {

/// The queues of work of a device. Each runs in order; two of them overlap unless one waits for a
/// mark of the other. Operations run on kCompute; kUpload and kDownload move data between staging
/// memory of the host and the device.
enum class Queue : uint8_t { kCompute, kUpload, kDownload };

/// A point in the work of a queue, set by Backend::Record and used again and again: whoever waits
/// means the latest record before the wait, and a mark never recorded counts as reached. Host
/// backends, whose work is done when a call returns, keep the time only.
class Mark {
 public:
  virtual ~Mark() = default;
  Mark() = default;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  int64_t host_ns = 0;  ///< Of host backends: when it was recorded.
};

/// Called on a thread of the device's library when a queue gets there: short, calls no backend.
using Notice = void (*)(void* context);

}  // namespace pd
