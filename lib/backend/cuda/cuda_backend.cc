#include "backend/cuda/cuda_backend.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

// Three streams a worker, none of them the null stream and none ordered with it: they overlap
// unless a mark (an event) orders them. Nothing here waits for the device but Allocate, ToHost,
// FromHost and WaitOnHost.

namespace pd {
namespace {

/// Through this much pinned memory ToHost and FromHost move any memory of the host.
constexpr size_t kBounceBytes = size_t{4} << 20;

class CudaMark : public Mark {
 public:
  // Timed, for ElapsedMs; who waits on the host sleeps, since other workers may need its core.
  CudaMark()
      : event_(cuda::Make<cuda::UniqueEvent>(
            [](cudaEvent_t* event) {
              return cudaEventCreateWithFlags(event, cudaEventBlockingSync);
            },
            "cudaEventCreateWithFlags")) {}

  cudaEvent_t event() const { return event_.get(); }

 private:
  cuda::UniqueEvent event_;
};

cudaEvent_t EventOf(const Mark& mark) { return static_cast<const CudaMark&>(mark).event(); }

cudaMemcpyKind KindOf(Queue queue) {
  switch (queue) {
    case Queue::kUpload:
      return cudaMemcpyHostToDevice;
    case Queue::kDownload:
      return cudaMemcpyDeviceToHost;
    case Queue::kCompute:
      return cudaMemcpyDefault;
  }
  return cudaMemcpyDefault;
}

class CudaBackend : public Backend {
 public:
  CudaBackend(int device, const BackendOptions& options)
      : context_(device, options), bounce_(cuda::AllocatePinned(kBounceBytes)) {
    cudaDeviceProp properties;
    PD_CUDA(cudaGetDeviceProperties(&properties, device));
    name_ = properties.name;
    std::array<char, 32> address = {};
    PD_CUDA(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device));
    device_id_ = address.data();
  }

  std::string_view kind() const override { return "cuda"; }
  std::string name() const override { return name_; }
  std::string libraries() const override { return cuda::Libraries(); }
  int threads() const override { return 1; }
  std::string label() const override { return fmt::format("cuda:{} {}", context_.device(), name_); }
  bool on_device() const override { return true; }
  std::string device_id() const override { return device_id_; }

  size_t device_bytes() const override { return context_.allocated_bytes(); }

  Buffer Allocate(size_t bytes) override {
    Buffer buffer = context_.Allocate(bytes);
    if (bytes > 0) {
      PD_CUDA(cudaMemsetAsync(buffer.data(), 0, bytes, context_.compute()));
      PD_CUDA(cudaStreamSynchronize(context_.compute()));
    }
    return buffer;
  }
  Buffer AllocateStaging(size_t bytes) override { return cuda::AllocatePinned(bytes); }

  void Copy(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    PD_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, context_.compute()));
  }
  void ToDense(const Layout& layout, const void* inner, void* dense) override {
    CheckDense(layout);
    Copy(dense, inner, layout.bytes);
  }
  void FromDense(const Layout& layout, const void* dense, void* inner) override {
    CheckDense(layout);
    Copy(inner, dense, layout.bytes);
  }

  void ToHost(const Layout& layout, const void* inner, void* host) override {
    CheckDense(layout);
    for (size_t done = 0; done < layout.bytes; done += kBounceBytes) {
      const size_t bytes = std::min(kBounceBytes, layout.bytes - done);
      PD_CUDA(cudaMemcpyAsync(bounce_.data(), static_cast<const std::byte*>(inner) + done, bytes,
                              cudaMemcpyDeviceToHost, context_.compute()));
      PD_CUDA(cudaStreamSynchronize(context_.compute()));
      std::memcpy(static_cast<std::byte*>(host) + done, bounce_.data(), bytes);
    }
  }
  void FromHost(const Layout& layout, const void* host, void* inner) override {
    CheckDense(layout);
    for (size_t done = 0; done < layout.bytes; done += kBounceBytes) {
      const size_t bytes = std::min(kBounceBytes, layout.bytes - done);
      std::memcpy(bounce_.data(), static_cast<const std::byte*>(host) + done, bytes);
      PD_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(inner) + done, bounce_.data(), bytes,
                              cudaMemcpyHostToDevice, context_.compute()));
      PD_CUDA(cudaStreamSynchronize(context_.compute()));
    }
  }

  void Transfer(Queue queue, void* to, const void* from, size_t bytes) override {
    if (bytes == 0 || to == from) return;
    PD_CUDA(cudaMemcpyAsync(to, from, bytes, KindOf(queue), context_.stream(queue)));
  }
  std::unique_ptr<Mark> MakeMark() override { return std::make_unique<CudaMark>(); }
  void Record(Queue queue, Mark& mark, const char* /*purpose*/) override {
    PD_CUDA(cudaEventRecord(EventOf(mark), context_.stream(queue)));
  }
  void Wait(Queue queue, const Mark& mark, const char* /*purpose*/) override {
    PD_CUDA(cudaStreamWaitEvent(context_.stream(queue), EventOf(mark), 0));
  }
  void WaitOnHost(const Mark& mark, const char* /*purpose*/) override {
    PD_CUDA(cudaEventSynchronize(EventOf(mark)));
  }
  void Notify(Queue queue, Notice notice, void* context) override {
    PD_CUDA(cudaLaunchHostFunc(context_.stream(queue), notice, context));
  }
  void CheckDevice() override {
    const cudaError_t status = cudaStreamQuery(context_.compute());
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // no error, but it would be found as one
    } else {
      cuda::Check(status, "cudaStreamQuery");
    }
  }
  double ElapsedMs(const Mark& from, const Mark& to) const override {
    float ms = 0;
    PD_CUDA(cudaEventElapsedTime(&ms, EventOf(from), EventOf(to)));
    return static_cast<double>(ms);
  }

  void Accumulate(void* acc, const void* x, size_t count) override {
    PD_CUDA(cuda::LaunchAccumulate(static_cast<float*>(acc), static_cast<const float*>(x), count,
                                   context_.compute()));
  }
  void Sgd(const SgdArgs& args) override {
    const cuda::SgdStep step{static_cast<float>(args.lr), static_cast<float>(args.momentum),
                             static_cast<float>(args.weight_decay)};
    PD_CUDA(cuda::LaunchSgd(static_cast<const float*>(args.w), static_cast<const float*>(args.g),
                            static_cast<float*>(args.m), static_cast<float*>(args.w_out),
                            args.count, step, context_.compute()));
  }

  std::unique_ptr<Op> PlanConv2d(const Conv2dDesc& desc, const OpRequest& request) override {
    return cuda::MakeConv2d(context_, desc, request);
  }
  std::unique_ptr<Op> PlanLinear(const LinearDesc& desc, const OpRequest& request) override {
    return cuda::MakeLinear(context_, desc, request);
  }
  std::unique_ptr<Op> PlanPool2d(const Pool2dDesc& desc, const OpRequest& request) override {
    return cuda::MakePool2d(context_, desc, request);
  }
  std::unique_ptr<Op> PlanActivation(Activation kind, const OpRequest& request) override {
    return cuda::MakeActivation(context_, kind, request);
  }
  std::unique_ptr<Op> PlanReshape(const Shape& shape, const OpRequest& request) override {
    return cuda::MakeReshape(context_, shape, request);
  }
  std::unique_ptr<Op> PlanDropout(const DropoutDesc& desc, const OpRequest& request) override {
    return cuda::MakeDropout(context_, desc, request);
  }
  std::unique_ptr<Op> PlanBatchNorm(const BatchNormDesc& desc, const OpRequest& request) override {
    return cuda::MakeBatchNorm(context_, desc, request);
  }
  std::unique_ptr<Op> PlanLrn(const LrnDesc& desc, const OpRequest& request) override {
    return cuda::MakeLrn(context_, desc, request);
  }
  std::unique_ptr<Op> PlanAdd(const OpRequest& request) override {
    return cuda::MakeAdd(context_, request);
  }
  std::unique_ptr<Op> PlanConcat(int64_t axis, const OpRequest& request) override {
    return cuda::MakeConcat(context_, axis, request);
  }
  std::unique_ptr<Op> PlanLstm(const LstmDesc& desc, const OpRequest& request) override {
    return cuda::MakeLstm(context_, desc, request);
  }
  std::unique_ptr<Op> PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc,
                                              const OpRequest& request) override {
    return cuda::MakeSoftmaxCrossEntropy(context_, desc, request);
  }
  std::unique_ptr<Op> PlanGelu(const GeluDesc& desc, const OpRequest& request) override {
    return cuda::MakeGelu(context_, desc, request);
  }
  std::unique_ptr<Op> PlanEmbedding(const EmbeddingDesc& desc, const OpRequest& request) override {
    return cuda::MakeEmbedding(context_, desc, request);
  }
  std::unique_ptr<Op> PlanPositionEmbedding(const OpRequest& request) override {
    return cuda::MakePositionEmbedding(context_, request);
  }
  std::unique_ptr<Op> PlanLayerNorm(const LayerNormDesc& desc, const OpRequest& request) override {
    return cuda::MakeLayerNorm(context_, desc, request);
  }
  std::unique_ptr<Op> PlanAttention(const AttentionDesc& desc, const OpRequest& request) override {
    return cuda::MakeAttention(context_, desc, request);
  }
  std::unique_ptr<Op> PlanSlice(const SliceDesc& desc, const OpRequest& request) override {
    return cuda::MakeSlice(context_, desc, request);
  }
  std::unique_ptr<Op> PlanPad(const PadDesc& desc, const OpRequest& request) override {
    return cuda::MakePad(context_, desc, request);
  }
  std::unique_ptr<Op> PlanTranspose(const TransposeDesc& desc, const OpRequest& request) override {
    return cuda::MakeTranspose(context_, desc, request);
  }

 private:
  static void CheckDense(const Layout& layout) {
    PD_CHECK(layout.dense(), "a layout of another backend, dims {}", ToString(layout.dims));
  }

  cuda::Context context_;
  Buffer bounce_;
  std::string name_, device_id_;
};

/// N of "cuda:N", or the GPU of this rank.
int DeviceOf(std::string_view kind, int local_rank, int count) {
  if (kind == "cuda") return local_rank % count;
  const std::string_view digits = kind.substr(std::strlen("cuda:"));
  int device = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device);
  const bool number = error == std::errc() && end == digits.data() + digits.size();
  PD_REQUIRE(number && device >= 0 && device < count, "device \"{}\": expected {}", kind,
             count == 1
                 ? "cuda:0, the only GPU of this machine"
                 : fmt::format("cuda:N with N from 0 to {}, the GPUs of this machine", count - 1));
  return device;
}

bool HasDriver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

}  // namespace

CudaDevices FindCudaDevices() {
  CudaDevices found;
  const cudaError_t status = cudaGetDeviceCount(&found.count);
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    found.count = 0;
    const bool no_driver = status == cudaErrorInsufficientDriver && !HasDriver();
    // Without a driver the runtime says that it is too old, which sends users to a newer one.
    found.reason =
        no_driver ? "the driver's libcuda.so.1 is not there" : cudaGetErrorString(status);
    found.broken = !no_driver && status != cudaErrorNoDevice;
  } else if (found.count == 0) {
    found.reason = cudaGetErrorString(cudaErrorNoDevice);
  }
  return found;
}

std::unique_ptr<Backend> MakeCudaBackend(std::string_view kind, const BackendOptions& options) {
  const CudaDevices devices = FindCudaDevices();
  PD_CHECK(devices.count > 0, "device \"{}\": {}", kind, devices.reason);
  PD_CHECK(options.local_rank >= 0, "local rank {}", options.local_rank);
  return std::make_unique<CudaBackend>(DeviceOf(kind, options.local_rank, devices.count), options);
}

std::string CudaLibraries() { return cuda::Libraries(); }

}  // namespace pd
