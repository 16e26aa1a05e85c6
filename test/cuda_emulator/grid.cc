/// Running a kernel: loops over blocks and threads, and for kernels with barriers a fiber
/// for each thread of a block.
///
/// The fibers of a stream's thread are kept for the next block and launch. The main stack resumes
/// all that can go on, forwards or backwards as drawn; one that arrives at a barrier or a warp
/// exchange gives control back. When all that are left wait at the same barrier, they pass it.
/// For ThreadSanitizer each fiber is a thread and changing fibers orders nothing. A barrier is a
/// release by all, then an acquire by all; two tags in turn, since a fiber that has passed a
/// barrier releases for the next one before others have acquired this one.

#include "grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core.h"
#include "cuda_emulator/device.h"
#include "cuda_emulator/enqueue.h"
#include "fiber_stack.h"
#include "runtime_error.h"
#include "state.h"
#include "stream.h"

__thread uint3 threadIdx = {};
__thread uint3 blockIdx = {};
__thread dim3 blockDim = {};
__thread dim3 gridDim = {};

namespace cuda_emulator {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr int kWarp = 32;

enum class State { kRunnable, kAtBarrier, kInWarp, kFinished };

// Threads of one warp that exchange values under one mask.
struct WarpGroup {
  unsigned arrived = 0;  // lanes
  unsigned generation = 0;
  std::array<std::array<uint64_t, kWarp>, 2> bits = {};  // of the odd and even generations
  std::array<char, 2> tags = {};
};

struct Fiber {
  explicit Fiber(void (*entry)()) : stack(kStackBytes, entry) {}

  FiberStack stack;
  void* tsan = nullptr;
  void* fake_stack = nullptr;
  State state = State::kFinished;
  uint3 index = {};
  int number = 0;
  WarpGroup* group = nullptr;
};

class Block {
 public:
  ~Block() { DropFibers(); }

  bool Run(const char* name, dim3 block, const std::function<void()>& thread, bool backwards);
  int Barrier(int vote);
  const uint64_t* Exchange(unsigned mask, uint64_t bits, bool ordered);
  int current() const { return current_->number; }

 private:
  void Prepare(size_t count);
  void DropFibers();
  static void Enter();
  void Resume(Fiber& fiber);
  void Yield();
  bool ReleaseBarrier();
  bool ReleaseWarps();
  unsigned LiveLanes(int warp) const;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  size_t count_ = 0;
  Fiber* current_ = nullptr;
  void* main_ = nullptr;
  void* main_tsan_ = nullptr;
  void* main_fake_stack_ = nullptr;
  const void* main_stack_ = nullptr;
  size_t main_stack_bytes_ = 0;
  const char* name_ = "";
  const std::function<void()>* thread_ = nullptr;
  std::map<std::pair<int, unsigned>, WarpGroup> groups_;  // by warp and mask
  int votes_ = 0;
  int last_votes_ = 0;
  unsigned barriers_ = 0;
  std::array<char, 2> tags_ = {};
  char start_ = 0;
  char end_ = 0;
};

thread_local Block* active = nullptr;

void Block::Prepare(size_t count) {
  const Hidden hidden;
  for (size_t i = fibers_.size(); i < count; ++i) {
    auto fiber = std::make_unique<Fiber>(&Block::Enter);
    fiber->tsan = CreateTsanFiber();
    fiber->number = static_cast<int>(i);
    fibers_.push_back(std::move(fiber));
  }
}

void Block::DropFibers() {
  const Hidden hidden;
  for (const auto& fiber : fibers_) DestroyTsanFiber(fiber->tsan);
  fibers_.clear();
}

void Block::Enter() {
  Block* block = active;
  FinishStackSwitch(nullptr, &block->main_stack_, &block->main_stack_bytes_);
  for (;;) {
    Fiber& fiber = *block->current_;
    Acquire(&block->start_);
    (*block->thread_)();
    Release(&block->end_);
    fiber.state = State::kFinished;
    block->Yield();
    block = active;
  }
}

void Block::Resume(Fiber& fiber) {
  current_ = &fiber;
  threadIdx = fiber.index;
  StartStackSwitch(&main_fake_stack_, fiber.stack.bottom(), fiber.stack.bytes());
  SwitchTsanFiber(fiber.tsan);
  fiber.stack.Enter(&main_);
  FinishStackSwitch(main_fake_stack_, nullptr, nullptr);
}

void Block::Yield() {
  Fiber& fiber = *current_;
  StartStackSwitch(&fiber.fake_stack, main_stack_, main_stack_bytes_);
  SwitchTsanFiber(main_tsan_);
  fiber.stack.Leave(main_);
  FinishStackSwitch(fiber.fake_stack, &main_stack_, &main_stack_bytes_);
}

int Block::Barrier(int vote) {
  char* const tag = &tags_[barriers_ % 2];
  votes_ += vote;
  current_->state = State::kAtBarrier;
  Release(tag);
  Yield();
  Acquire(tag);
  return last_votes_;
}

const uint64_t* Block::Exchange(unsigned mask, uint64_t bits, bool ordered) {
  Fiber& fiber = *current_;
  const auto lane = static_cast<unsigned>(fiber.number % kWarp);
  if (!(mask >> lane & 1)) {
    Refuse(name_,
           fmt::format("a warp function's mask {:#x} leaves out its own lane {}", mask, lane));
    mask |= 1u << lane;
  }
  {
    const Hidden hidden;
    fiber.group = &groups_[{fiber.number / kWarp, mask}];
  }
  WarpGroup& group = *fiber.group;
  auto& values = group.bits[group.generation % 2];
  if (group.arrived == 0) values.fill(~uint64_t{0});
  char* const tag = &group.tags[group.generation % 2];
  values[lane] = bits;
  group.arrived |= 1u << lane;
  fiber.state = State::kInWarp;
  if (ordered) Release(tag);
  Yield();
  if (ordered) Acquire(tag);
  return values.data();
}

unsigned Block::LiveLanes(int warp) const {
  unsigned lanes = 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    const size_t number = static_cast<size_t>(warp) * kWarp + static_cast<size_t>(lane);
    if (number < count_ && fibers_[number]->state != State::kFinished) lanes |= 1u << lane;
  }
  return lanes;
}

bool Block::ReleaseWarps() {
  bool any = false;
  for (auto& [key, group] : groups_) {
    const auto [warp, mask] = key;
    if (group.arrived == 0 || group.arrived != (mask & LiveLanes(warp))) continue;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (group.arrived >> lane & 1) {
        fibers_[static_cast<size_t>(warp) * kWarp + lane]->state = State::kRunnable;
      }
    }
    group.arrived = 0;
    ++group.generation;
    any = true;
  }
  return any;
}

bool Block::ReleaseBarrier() {
  for (size_t i = 0; i < count_; ++i) {
    const State state = fibers_[i]->state;
    if (state != State::kAtBarrier && state != State::kFinished) return false;
  }
  for (size_t i = 0; i < count_; ++i) {
    if (fibers_[i]->state == State::kAtBarrier) fibers_[i]->state = State::kRunnable;
  }
  last_votes_ = std::exchange(votes_, 0);
  ++barriers_;
  return true;
}

bool Block::Run(const char* name, dim3 block, const std::function<void()>& thread, bool backwards) {
  name_ = name;
  thread_ = &thread;
  count_ = size_t{block.x} * block.y * block.z;
  Prepare(count_);
  {
    const Hidden hidden;
    groups_.clear();
  }
  active = this;
  main_tsan_ = CurrentTsanFiber();
  for (size_t i = 0; i < count_; ++i) {
    const auto number = static_cast<unsigned>(i);
    fibers_[i]->state = State::kRunnable;
    fibers_[i]->index = {number % block.x, number / block.x % block.y, number / block.x / block.y};
  }
  Release(&start_);
  for (size_t left = count_; left > 0;) {
    bool any = false;
    for (size_t i = 0; i < count_; ++i) {
      Fiber& fiber = *fibers_[backwards ? count_ - 1 - i : i];
      if (fiber.state != State::kRunnable) continue;
      any = true;
      Resume(fiber);
      if (fiber.state == State::kFinished) --left;
    }
    const Hidden hidden;
    if (any || ReleaseWarps() || ReleaseBarrier() || left == 0) continue;
    Refuse(name,
           "threads of a block wait for others that do not come: they are at different "
           "barriers or warp functions");
    DropFibers();
    active = nullptr;
    return false;
  }
  Acquire(&end_);
  active = nullptr;
  return true;
}

Block& ThreadBlock() {
  static thread_local Block block;
  return block;
}

void RefuseOutside(const char* what) {
  Refuse(what, "used in a kernel that was launched without barriers");
}

bool RunThreads(dim3 block, const std::function<void()>& thread, bool backwards) {
  const size_t count = size_t{block.x} * block.y * block.z;
  for (size_t i = 0; i < count; ++i) {
    const auto number = static_cast<unsigned>(backwards ? count - 1 - i : i);
    threadIdx = {number % block.x, number / block.x % block.y, number / block.x / block.y};
    thread();
  }
  return true;
}

// The documented limits of a launch; empty: kept.
std::string LimitBroken(dim3 grid, dim3 block) {
  const auto threads = uint64_t{block.x} * block.y * block.z;
  const auto blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || blocks == 0) return "a grid or block without threads";
  if (threads > 1024) return fmt::format("{} threads a block, at most 1024", threads);
  if (block.z > 64) return fmt::format("a block of depth {}, at most 64", block.z);
  if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) {
    return fmt::format("a grid of {} x {} x {}, at most 2147483647 x 65535 x 65535", grid.x, grid.y,
                       grid.z);
  }
  return "";
}

}  // namespace

int Barrier(int vote) {
  if (active) return active->Barrier(vote);
  RefuseOutside("__syncthreads");
  return vote;
}

const uint64_t* WarpExchange(unsigned mask, uint64_t bits) {
  static thread_local std::array<uint64_t, kWarp> alone;
  if (active) return active->Exchange(mask, bits, false);
  RefuseOutside("a warp function");
  alone.fill(bits);
  return alone.data();
}

void WarpBarrier(unsigned mask) {
  if (active) {
    active->Exchange(mask, 0, true);
  } else {
    RefuseOutside("__syncwarp");
  }
}

int Lane() { return active ? active->current() % kWarp : 0; }

bool RunGrid(const char* name, dim3 grid, dim3 block, const std::function<void()>& thread,
             bool barriers, std::mt19937_64& random) {
  gridDim = grid;
  blockDim = block;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t order = random();
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t number = order & 1 ? blocks - 1 - i : i;
    blockIdx = {static_cast<unsigned>(number % grid.x),
                static_cast<unsigned>(number / grid.x % grid.y),
                static_cast<unsigned>(number / grid.x / grid.y)};
    const bool backwards = (order >> 1 & 1) != 0;
    const bool right = barriers ? ThreadBlock().Run(name, block, thread, backwards)
                                : RunThreads(block, thread, backwards);
    if (!right) return false;
  }
  return true;
}

void EnqueueKernel(const char* name, dim3 grid, dim3 block, cudaStream_t stream,
                   const std::vector<KernelPointer>& pointers, std::function<void()> thread,
                   bool barriers) {
  const Call call(name);
  if (!call) {
    Result(cudaErrorLaunchOutOfResources);
    return;
  }
  if (const std::string broken = LimitBroken(grid, block); !broken.empty()) {
    RefuseWith(name, broken, cudaErrorInvalidConfiguration);
    return;
  }
  Work work;
  work.on_current_device = true;
  for (const KernelPointer& pointer : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer.address) % pointer.alignment != 0) {
      RefuseWith(
          name, fmt::format("argument {} is not aligned to {}", pointer.address, pointer.alignment),
          cudaErrorMisalignedAddress);
      return;
    }
    work.device.push_back({pointer.address, 1, Access::kPin, "an argument"});
  }
  work.run = [=, body = std::move(thread)] {
    if (RunGrid(name, grid, block, body, barriers, stream->random)) return;
    const Lock lock;
    TheCore().sticky = cudaErrorLaunchFailure;
  };
  Result(EnqueueWork(name, stream, std::move(work)));
}

}  // namespace cuda_emulator
