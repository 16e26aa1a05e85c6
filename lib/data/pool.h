#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace pd {

/// Lends each reading thread a T of its own: as many are made as read at once, and kept.
template <typename T>
class Pool {
 public:
  /// Gives its T back when it goes out of scope.
  class Loan {
   public:
    explicit Loan(Pool& pool) : pool_(pool), object_(pool.Take()) {}
    ~Loan() { pool_.Give(std::move(object_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    T* operator->() const { return object_.get(); }
    T& operator*() const { return *object_; }

   private:
    Pool& pool_;
    std::unique_ptr<T> object_;
  };

 private:
  std::unique_ptr<T> Take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(++made_);  // so that Give never allocates
      return std::make_unique<T>();
    }
    std::unique_ptr<T> object = std::move(free_.back());
    free_.pop_back();
    return object;
  }
  void Give(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(object));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
  size_t made_ = 0;
};

}  // namespace pd
