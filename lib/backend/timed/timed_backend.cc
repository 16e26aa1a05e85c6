#include "backend/timed/timed_backend.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace pd {
namespace {

constexpr double kNsPerMs = 1e6;
// A worker that comes later than this was waiting for something else: its time starts anew.
constexpr int64_t kMostLateNs = 500'000;

/// Sleeps of one worker, one after another.
class Timer {
 public:
  void Sleep(double ms) {
    const int64_t now = NowNs();
    const int64_t start = now - end_ns_ < kMostLateNs ? end_ns_ : now;
    end_ns_ = start + static_cast<int64_t>(ms * kNsPerMs);
    if (end_ns_ <= now) return;
    const timespec until = {.tv_sec = end_ns_ / 1'000'000'000, .tv_nsec = end_ns_ % 1'000'000'000};
    while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }

 private:
  int64_t end_ns_ = 0;
};

/// Time of an update: that of the layers that this worker runs, by their parameters.
struct UpdateRate {
  double ms = 0;
  size_t elements = 0;
};

class TimedOp final : public Op {
 public:
  TimedOp(const TimedDesc& desc, const OpRequest& request, Timer& timer, UpdateRate& update)
      : desc_(desc), timer_(timer), update_(update) {
    Shape dims = desc.output;
    dims.insert(dims.begin(), request.batch());
    info_.y = DenseLayout(std::move(dims), DType::kF32);
    if (!desc.parameters.empty()) info_.params = {DenseLayout(desc.parameters, DType::kF32)};
    gives_dx_ =
        std::find(request.wants_dx.begin(), request.wants_dx.end(), true) != request.wants_dx.end();
  }

  void Prepare() override {
    if (info_.params.empty() || prepared_) return;
    prepared_ = true;
    update_.ms += desc_.update_ms;
    update_.elements += info_.params[0].stored();
  }
  void Forward(const OpArgs& /*args*/) override { timer_.Sleep(desc_.forward_ms); }
  void BackwardData(const OpArgs& /*args*/) override { timer_.Sleep(desc_.backward_ms); }
  void BackwardWeights(const OpArgs& /*args*/) override {
    if (!gives_dx_) timer_.Sleep(desc_.backward_ms);
  }

 private:
  TimedDesc desc_;
  Timer& timer_;
  UpdateRate& update_;
  bool gives_dx_ = false, prepared_ = false;
};

class TimedBackend final : public Backend {
 public:
  std::string_view kind() const override { return "timed"; }
  std::string name() const override { return "times of a profile"; }
  std::string libraries() const override { return "none"; }
  int threads() const override { return 1; }

  Buffer Allocate(size_t bytes) override {
    if (bytes == 0) return {};
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) Throw(ErrorCode::kDevice, "cannot reserve {} bytes of memory", bytes);
    return {data, bytes, [](void* mapped, size_t size) { ::munmap(mapped, size); }};
  }

  // All tensors are zeros, and stay so.
  void Copy(void* /*to*/, const void* /*from*/, size_t /*bytes*/) override {}
  void ToDense(const Layout& /*layout*/, const void* /*inner*/, void* /*dense*/) override {}
  void FromDense(const Layout& /*layout*/, const void* /*dense*/, void* /*inner*/) override {}
  void ToHost(const Layout& layout, const void* /*inner*/, void* host) override {
    std::memset(host, 0, layout.bytes);
  }
  void Accumulate(void* /*acc*/, const void* /*x*/, size_t /*count*/) override {}
  void Sgd(const SgdArgs& args) override {
    if (update_.elements == 0) return;
    timer_.Sleep(update_.ms * static_cast<double>(args.count) /
                 static_cast<double>(update_.elements));
  }

  std::unique_ptr<Op> PlanTimed(const TimedDesc& desc, const OpRequest& request) override {
    return std::make_unique<TimedOp>(desc, request, timer_, update_);
  }

 private:
  std::unique_ptr<Op> RefuseLayer(std::string_view /*type*/) const override {
    Throw(ErrorCode::kInvalidInput,
          "device timed runs layers of type timed only: pd-train makes them from a plan's costs");
  }

  Timer timer_;
  UpdateRate update_;
};

}  // namespace

std::unique_ptr<Backend> MakeTimedBackend() { return std::make_unique<TimedBackend>(); }

}  // namespace pd
