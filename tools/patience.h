#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/log.h"

namespace pd {

/// Says on standard error what a program is doing, every few seconds from when it has taken a
/// while.
class Patience {
 public:
  explicit Patience(bool quiet) {
    if (!quiet) thread_ = std::thread([this] { Run(); });
  }
  ~Patience() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  void Doing(const std::string& what) {
    const std::lock_guard lock(mutex_);
    what_ = what;
  }

 private:
  void Run() {
    using std::chrono::seconds;
    std::unique_lock lock(mutex_);
    const auto start = std::chrono::steady_clock::now();
    for (auto next = start + seconds(2); !wake_.wait_until(lock, next, [this] { return done_; });
         next += seconds(3)) {
      const auto passed = std::chrono::duration_cast<seconds>(next - start).count();
      Log("{} s: {}", passed, what_);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::string what_ = "reading";
  std::thread thread_;
};

}  // namespace pd
