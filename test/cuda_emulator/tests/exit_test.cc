#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "session.h"

namespace cuda_emulator_test {
namespace {

struct Ending {
  int status = 0;  // as waitpid gives it
  std::string output;

  bool exited(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
  /// By a signal, or by AddressSanitizer, which turns faults into a report.
  bool crashed() const {
    return !exited(0) && (output.find("AddressSanitizer") != std::string::npos ||
                          output.find("ThreadSanitizer: SEGV") != std::string::npos ||
                          output.find("Segmentation fault") != std::string::npos);
  }
};

Ending RunChild(const std::string& name, const std::string& environment = "") {
  // Without the second that ThreadSanitizer otherwise waits for reports at the end.
  const std::string command = "TSAN_OPTIONS=atexit_sleep_ms=0 " + environment + " " +
                              CUDA_EMULATOR_CHILD + " " + name + " 2>&1";
  FILE* pipe = popen(("bash -c '" + command + "; exit $?' 2>&1").c_str(), "r");
  REQUIRE(pipe);
  Ending ending;
  std::array<char, 4096> buffer;
  while (const size_t length = fread(buffer.data(), 1, buffer.size(), pipe)) {
    ending.output.append(buffer.data(), length);
  }
  ending.status = pclose(pipe);
  return ending;
}

TEST_CASE("a host that reads device memory faults, and one that reads freed pinned memory") {
  for (const std::string name : {"host-read", "host-read-after-free"}) {
    const Ending ending = RunChild(name);
    CAPTURE(name, ending.output);
    CHECK(ending.crashed());
  }
}

TEST_CASE("a kernel that writes past its allocation is caught") {
  const Ending near = RunChild("overrun-by-one");
  CAPTURE(near.output);
  if (kAddressSanitizer) {
    CHECK(near.crashed());
  } else {
    CHECK(near.exited(66));
    CHECK_THAT(near.output, ContainsSubstring("written outside its bounds"));
  }
  const Ending far = RunChild("overrun-by-a-page");
  CAPTURE(far.output);
  CHECK(far.crashed());
}

TEST_CASE("leaks and misuses end a process with 66 and are named") {
  const Ending leak = RunChild("leak");
  CHECK(leak.exited(66));
  CHECK_THAT(leak.output, ContainsSubstring("leak: 40 bytes of device memory"));
  CHECK_THAT(leak.output, ContainsSubstring("leak: cudaStream_t"));
  const Ending misuse = RunChild("misuse");
  CHECK(misuse.exited(66));
  CHECK_THAT(misuse.output, ContainsSubstring("cuda emulator: cudaMemset: "));
  CHECK(RunChild("misuse-taken").exited(0));
}

TEST_CASE("work that is queued when the process ends still runs") {
  for (const std::string mode : {"free", "scheduled"}) {
    const Ending ending =
        RunChild("queued-at-exit", "CUDA_EMULATOR_POLICY=lazy CUDA_EMULATOR_MODE=" + mode);
    CAPTURE(ending.output);
    CHECK(ending.exited(0));
    CHECK_THAT(ending.output, ContainsSubstring("ran"));
  }
}

TEST_CASE("the environment chooses schedule and failure, and a wrong value is refused") {
  CHECK(RunChild("chain", "CUDA_EMULATOR_MODE=scheduled CUDA_EMULATOR_SEED=6").exited(0));
  CHECK(RunChild("chain", "CUDA_EMULATOR_DELAY_US=100 CUDA_EMULATOR_SEED=6").exited(0));
  const Ending failed = RunChild("misuse", "CUDA_EMULATOR_FAIL_AT=1");
  CHECK(failed.exited(0));  // the only call failed before it looked at its arguments
  const Ending wrong = RunChild("chain", "CUDA_EMULATOR_MODE=quick");
  CHECK(wrong.exited(2));
  CHECK_THAT(wrong.output, ContainsSubstring("CUDA_EMULATOR_MODE: expected free or scheduled"));
}

TEST_CASE("ThreadSanitizer sees each missing wait and barrier, and nothing else") {
  if (!kThreadSanitizer) return;  // shown in the tsan build only
  for (int seed = 0; seed < 3; ++seed) {
    for (const std::string mode : {"free", "scheduled"}) {
      const std::string environment =
          "CUDA_EMULATOR_SEED=" + std::to_string(seed) + " CUDA_EMULATOR_MODE=" + mode;
      for (const std::string name : {"chain", "barriers", "host-function"}) {
        const Ending ending = RunChild(name, environment);
        CAPTURE(name, environment, ending.output);
        CHECK(ending.exited(0));
      }
      for (const std::string name :
           {"chain-without-upload-wait", "chain-without-download-wait", "no-barriers"}) {
        const Ending ending = RunChild(name, environment);
        CAPTURE(name, environment, ending.output);
        CHECK(ending.exited(66));
        CHECK_THAT(ending.output, ContainsSubstring("data race"));
      }
    }
  }
}

}  // namespace
}  // namespace cuda_emulator_test
