#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "profile/profiler.h"

namespace pd {

/// How far a profile is: a line on a terminal that each call overwrites.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet) : on_(!quiet && ::isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(const ProfileProgress& progress, int layers) {
    if (!on_) return;
    std::string line =
        fmt::format("\r\033[K{} layers  minibatch {}/{}", layers, progress.step, progress.steps);
    if (progress.pieces > 1) {
      line += fmt::format("  piece {}/{}", progress.piece + 1, progress.pieces);
    }
    std::fputs(line.c_str(), stderr);
    shown_ = true;
  }

 private:
  bool on_, shown_ = false;
};

}  // namespace pd
