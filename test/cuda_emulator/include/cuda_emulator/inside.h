#pragma once

namespace cuda_emulator {

/// While it lives, what the calling thread does is the emulator's own work (control.h: IsInside).
class Inside {
 public:
  Inside() : Inside(true) {}
  /// false: the code under test runs, called by the emulator.
  explicit Inside(bool inside);
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  bool before_;
};

}  // namespace cuda_emulator
