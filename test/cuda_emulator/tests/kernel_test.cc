#include "kernels.h"
#include "session.h"

namespace cuda_emulator_test {
namespace {

TEST_CASE("a kernel with barriers sums each block") {
  const Session session;
  const Stream stream;
  const Device x(3 * 256), sums(3);
  const Pinned in(3 * 256), out(3);
  for (size_t i = 0; i < 3 * 256; ++i) in[i] = static_cast<float>(i);
  Upload(x, in, stream);
  BlockSum(x.get(), sums.get(), 3, 256, true, stream);
  Succeeds(cudaGetLastError());
  Download(out, sums, stream);
  stream.Wait();
  for (size_t block = 0; block < 3; ++block) {
    CHECK(out[block] == static_cast<float>(256 * (256 * block) + 255 * 256 / 2));
  }
}

TEST_CASE("shuffles sum each warp") {
  const Session session;
  const Stream stream;
  const Device x(3 * 32), sums(3);
  const Pinned in(3 * 32), out(3);
  for (size_t i = 0; i < 3 * 32; ++i) in[i] = static_cast<float>(i);
  Upload(x, in, stream);
  WarpSum(x.get(), sums.get(), 3, stream);
  Succeeds(cudaGetLastError());
  Download(out, sums, stream);
  stream.Wait();
  for (size_t warp = 0; warp < 3; ++warp) {
    CHECK(out[warp] == static_cast<float>(32 * (32 * warp) + 31 * 32 / 2));
  }
}

TEST_CASE("atomicAdd counts every thread of a grid") {
  const Session session;
  const Stream stream;
  const Device total(1);
  const Pinned out(1);
  Succeeds(cudaMemsetAsync(total.get(), 0, 4, stream));
  Count(reinterpret_cast<int*>(total.get()), 7, 96, stream);
  Succeeds(cudaGetLastError());
  Download(out, total, stream);
  stream.Wait();
  CHECK(*reinterpret_cast<int*>(out.get()) == 7 * 96);
}

TEST_CASE("a launch outside the limits is refused by cudaGetLastError") {
  const Session session;
  const Stream stream;
  const Device x(1), y(1);
  const auto error = [&](dim3 grid, dim3 block) {
    AxpyGrid(x.get(), y.get(), grid, block, stream);
    return cudaGetLastError();
  };
  CHECK(error(dim3(1), dim3(1024)) == cudaSuccess);
  CHECK(error(dim3(1), dim3(1025)) == cudaErrorInvalidConfiguration);
  Refused("1025 threads");
  CHECK(error(dim3(1, 65536), dim3(1)) == cudaErrorInvalidConfiguration);
  Refused("a grid of");
  CHECK(error(dim3(0), dim3(1)) == cudaErrorInvalidConfiguration);
  Refused("without threads");
  CHECK(error(dim3(1), dim3(1, 1, 65)) == cudaErrorInvalidConfiguration);
  Refused("depth");
  stream.Wait();
}

TEST_CASE("a kernel argument must be live, aligned device memory") {
  const Session session;
  const Stream stream;
  const Device x(4);
  const Pinned pinned(4);
  Fill(1, pinned.get(), 4, stream);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  Refused("no device memory");
  Fill(1, reinterpret_cast<float*>(reinterpret_cast<char*>(x.get()) + 2), 1, stream);
  CHECK(cudaGetLastError() == cudaErrorMisalignedAddress);
  Refused("not aligned");
  void* freed = nullptr;
  Succeeds(cudaMalloc(&freed, 16));
  Succeeds(cudaFree(freed));
  Fill(1, static_cast<float*>(freed), 4, stream);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  Refused("no live device allocation");
}

TEST_CASE("threads at different barriers end the kernel with an error") {
  const Session session(
      {.mode = cuda_emulator::Mode::kScheduled, .policy = cuda_emulator::Policy::kLazy});
  const Stream stream;
  Divergent(stream);
  Succeeds(cudaGetLastError());
  CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  Refused("different barriers");
}

TEST_CASE("a barrier in a kernel launched without is refused") {
  const Session session;
  const Stream stream;
  const Device y(1);
  BarrierInPlainLaunch(y.get(), stream);
  stream.Wait();
  Refused("launched without barriers");
}

}  // namespace
}  // namespace cuda_emulator_test
