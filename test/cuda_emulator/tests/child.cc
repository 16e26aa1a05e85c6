/// One case by name, in a process of its own: those that a sanitizer, a signal or the exit status
/// must end, and those that must end well.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "cuda_emulator/control.h"
#include "kernels.h"

namespace cuda_emulator_test {
namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "child: %s\n", cudaGetErrorString(error));
  std::exit(3);
}

cudaStream_t NewStream() {
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

cudaEvent_t NewEvent() {
  cudaEvent_t event = nullptr;
  Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

float* DeviceFloats(size_t count) {
  void* data = nullptr;
  Check(cudaMalloc(&data, count * sizeof(float)));
  return static_cast<float*>(data);
}

float* PinnedFloats(size_t count) {
  void* data = nullptr;
  Check(cudaMallocHost(&data, count * sizeof(float)));
  return static_cast<float*>(data);
}

constexpr int kCount = 512;

// An upload, a kernel that needs it, a download, and the host's use of what it brought.
void Chain(bool wait_for_upload, bool wait_for_download) {
  cudaStream_t upload = NewStream(), compute = NewStream();
  cudaEvent_t uploaded = NewEvent(), done = NewEvent();
  float *x = DeviceFloats(kCount), *y = DeviceFloats(kCount);
  float *in = PinnedFloats(kCount), *out = PinnedFloats(kCount);
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < kCount; ++i) in[i] = static_cast<float>(step);
    Check(cudaMemcpyAsync(x, in, kCount * sizeof(float), cudaMemcpyHostToDevice, upload));
    Check(cudaEventRecord(uploaded, upload));
    if (wait_for_upload) Check(cudaStreamWaitEvent(compute, uploaded, 0));
    Fill(0, y, kCount, compute);
    Axpy(2, x, y, kCount, compute);
    Check(cudaGetLastError());
    Check(cudaMemcpyAsync(out, y, kCount * sizeof(float), cudaMemcpyDeviceToHost, compute));
    Check(cudaEventRecord(done, compute));
    if (wait_for_download) Check(cudaEventSynchronize(done));
    float sum = 0;
    for (int i = 0; i < kCount; ++i) sum += out[i];
    if (sum < 0) std::puts("never");
    // Uploads have ended once the compute stream has; without its wait, they must be waited for.
    if (!wait_for_upload || !wait_for_download) Check(cudaStreamSynchronize(upload));
  }
  Check(cudaStreamSynchronize(upload));
  Check(cudaStreamSynchronize(compute));
  for (float* data : {x, y}) Check(cudaFree(data));
  for (float* data : {in, out}) Check(cudaFreeHost(data));
  for (cudaEvent_t event : {uploaded, done}) Check(cudaEventDestroy(event));
  for (cudaStream_t stream : {upload, compute}) Check(cudaStreamDestroy(stream));
}

void Barriers(bool barriers) {
  cudaStream_t stream = NewStream();
  float *x = DeviceFloats(128), *sums = DeviceFloats(2);
  Fill(1, x, 128, stream);
  BlockSum(x, sums, 2, 64, barriers, stream);
  Check(cudaStreamSynchronize(stream));
  Check(cudaFree(x));
  Check(cudaFree(sums));
  Check(cudaStreamDestroy(stream));
}

// The host function reads what the stream downloaded before it, and passes it on.
void HostFunction() {
  cudaStream_t stream = NewStream();
  float *x = DeviceFloats(kCount), *out = PinnedFloats(kCount);
  Fill(3, x, kCount, stream);
  Check(cudaMemcpyAsync(out, x, kCount * sizeof(float), cudaMemcpyDeviceToHost, stream));
  Check(cudaLaunchHostFunc(
      stream, [](void* data) { static_cast<float*>(data)[0] += 1; }, out));
  Check(cudaStreamSynchronize(stream));
  if (out[0] != 4) std::exit(4);
  Check(cudaFree(x));
  Check(cudaFreeHost(out));
  Check(cudaStreamDestroy(stream));
}

// A kernel writes `floats` of an allocation of 10.
void Overrun(int floats) {
  cudaStream_t stream = NewStream();
  float* x = DeviceFloats(10);
  Fill(1, x, floats, stream);
  Check(cudaStreamSynchronize(stream));
  Check(cudaFree(x));
  Check(cudaStreamDestroy(stream));
}

const std::map<std::string, std::function<void()>>& Cases() {
  static const std::map<std::string, std::function<void()>> cases = {
      {"chain", [] { Chain(true, true); }},
      {"chain-without-upload-wait", [] { Chain(false, true); }},
      {"chain-without-download-wait", [] { Chain(true, false); }},
      {"barriers", [] { Barriers(true); }},
      {"no-barriers", [] { Barriers(false); }},
      {"host-function", HostFunction},
      {"host-read", [] { std::printf("%f\n", static_cast<double>(*DeviceFloats(1))); }},
      {"host-read-after-free",
       [] {
         float* data = PinnedFloats(1);
         cudaFreeHost(data);
         std::printf("%f\n", static_cast<double>(*data));
       }},
      {"overrun-by-one", [] { Overrun(11); }},
      {"overrun-by-a-page", [] { Overrun(2000); }},
      {"leak",
       [] {
         DeviceFloats(10);
         NewStream();
       }},
      {"misuse", [] { cudaMemset(nullptr, 0, 1); }},
      {"misuse-taken",
       [] {
         cudaMemset(nullptr, 0, 1);
         cuda_emulator::TakeMisuses();
       }},
      {"queued-at-exit",
       [] {
         cudaStream_t stream = NewStream();
         Check(cudaLaunchHostFunc(
             stream, [](void*) { std::fputs("ran\n", stderr); }, nullptr));
         Check(cudaStreamDestroy(stream));
       }},
  };
  return cases;
}

}  // namespace
}  // namespace cuda_emulator_test

int main(int argc, char** argv) {
  const auto& cases = cuda_emulator_test::Cases();
  const auto found = argc == 2 ? cases.find(argv[1]) : cases.end();
  if (found == cases.end()) return 5;
  found->second();
  return 0;
}
