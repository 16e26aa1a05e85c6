// Every replica starts the same jobs in the same order and cuts them into the same chunks, so chunk
// number c means the same everywhere. Chunk c runs in slot c mod kUnderWay, with tags of its own:
// that keeps messages of one tag in order although chunks may finish in any.
//
// A chunk has one part a replica. On p machines with k replicas each, part j = q·k + i belongs to
// replica j, at place i of machine q, and there are four phases:
//   inside a machine   the replica at place i gets the contributions to the p parts i, k + i, …
//   across machines    of these it sends each owner, at its own place, the machine's sum
//   across machines    the owners send the results back
//   inside a machine   each replica passes the results that it holds on
// On one machine, or where replicas stand unevenly, only the first and the last are left, with one
// part each.
#include "pipeline/all_reduce.h"

#include <algorithm>
#include <cstring>

#include "backend/elementwise.h"
#include "base/error.h"
#include "plan/plan.h"

namespace pd {
namespace {

// Parts begin at multiples of this, so that every pointer is aligned for vector instructions.
constexpr size_t kGrain = 64;

size_t RoundUp(size_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

}  // namespace

AllReducer::AllReducer(Comm& comm, Backend& backend, std::vector<int> ranks, int me,
                       size_t max_bytes, int machine_ranks)
    : comm_(comm),
      dtype_(backend.dtype()),
      ranks_(std::move(ranks)),
      me_(me),
      part_bytes_(PartBytes(ranks_.size(), max_bytes)),
      starters_(kMaxJobs),
      jobs_(kMaxJobs) {
  MakePhases(static_cast<int>(ReplicasTogether(ranks_, machine_ranks)));
  if (replicas() > 1) staging_ = backend.AllocateStaging(StagingBytes(ranks_.size(), max_bytes));
}

size_t AllReducer::PartBytes(size_t replicas, size_t max_bytes) {
  return std::min(kMaxPartBytes, RoundUp(max_bytes / replicas + 1));
}

size_t AllReducer::StagingBytes(size_t replicas, size_t max_bytes) {
  return replicas > 1 ? kUnderWay * replicas * PartBytes(replicas, max_bytes) : 0;
}

void AllReducer::MakePhases(int together) {
  const int machines = replicas() / together;
  const Phase inside{true, me_ / together * together, 1, together};
  const Phase across{true, me_ % together, together, machines};
  phases_ = {inside, across, across, inside};
  if (machines == 1) phases_ = {inside, inside};
  for (size_t i = phases_.size() / 2; i < phases_.size(); ++i) phases_[i].gather = false;
}

void AllReducer::Start(ReduceJob& job, Opening opening) {
  PD_CHECK(job.done.done(), "an all-reduce started twice");
  job.done.Reset();
  Starter& starter = starters_[next_starter_++ % kMaxJobs];
  starter.reducer = this;
  starter.job = &job;
  comm_.Run(starter, opening);
}

void AllReducer::Enqueue(ReduceJob& job) {
  PD_CHECK(std::any_of(job.weights.begin(), job.weights.end(), [](float w) { return w != 0; }),
           "an all-reduce to which no replica contributes");
  jobs_[queued_jobs_++ % kMaxJobs] = {.job = &job, .next = 0, .left = job.bytes};
  Advance();
}

void AllReducer::Advance() {
  while (chunked_jobs_ < queued_jobs_) {
    Pending& pending = jobs_[chunked_jobs_ % kMaxJobs];
    if (pending.next == pending.job->bytes) {
      if (pending.job->bytes == 0) pending.job->done.Done(0);
      ++chunked_jobs_;
      continue;
    }
    const int slot = static_cast<int>(next_chunk_ % kUnderWay);
    if (chunks_[static_cast<size_t>(slot)].busy()) return;
    ++next_chunk_;
    const size_t bytes = std::min(part_bytes_ * ranks_.size(), pending.job->bytes - pending.next);
    std::byte* data = pending.job->data + pending.next;
    pending.next += bytes;
    // May finish at once, and call Finished and Advance: nothing is read after it.
    chunks_[static_cast<size_t>(slot)].Start(*this, slot, chunked_jobs_, data, bytes);
  }
}

void AllReducer::Finished(size_t job, size_t bytes) {
  Pending& pending = jobs_[job % kMaxJobs];
  pending.left -= bytes;
  if (pending.left == 0) pending.job->done.Done(0);
}

void AllReducer::Chunk::Start(AllReducer& reducer, int slot, size_t job, std::byte* data,
                              size_t bytes) {
  reducer_ = &reducer;
  slot_ = slot;
  job_ = job;
  data_ = data;
  bytes_ = bytes;
  phase_ = reducer.phases_.data();
  Exchange();
}

AllReducer::Chunk::Range AllReducer::Chunk::Part(int number) const {
  const size_t grains = RoundUp(bytes_) / kGrain;
  const auto m = static_cast<size_t>(reducer_->replicas());
  const size_t i = static_cast<size_t>(number) % m;
  const size_t begin = std::min(bytes_, grains * i / m * kGrain);
  const size_t end = std::min(bytes_, grains * (i + 1) / m * kGrain);
  return {begin, end - begin};
}

std::byte* AllReducer::Chunk::Staging(int number) const {
  const size_t m = reducer_->ranks_.size();
  const size_t index = static_cast<size_t>(slot_) * m + static_cast<size_t>(number) % m;
  return reducer_->staging_.data() + index * reducer_->part_bytes_;
}

// With which the phase adds what `replica` brings: its own data, or the sum of its block.
float AllReducer::Chunk::Weight(int replica) const {
  const std::vector<float>& weights = reducer_->jobs_[job_ % kMaxJobs].job->weights;
  const int stride = phase_->stride;
  if (stride == 1) return weights[static_cast<size_t>(replica)];
  const auto block = weights.begin() + replica / stride * stride;
  return std::any_of(block, block + stride, [](float w) { return w != 0; }) ? 1.0F : 0.0F;
}

void AllReducer::Chunk::Exchange() {
  AllReducer& r = *reducer_;
  const Phase phase = *phase_;
  const int tag = kTagReduce + kReducePhases * slot_ + static_cast<int>(phase_ - r.phases_.data());
  const bool sends = !phase.gather || Weight(r.me_) != 0;
  pending_ = 1;  // this call itself, so that nothing ends before everything is started
  for (int i = 0; i < phase.count; ++i) {
    const int peer = phase.first + i * phase.stride;
    if (peer == r.me_) continue;
    const int rank = r.ranks_[static_cast<size_t>(peer)];
    const bool receives = !phase.gather || Weight(peer) != 0;
    for (int part = 0; part < r.replicas(); part += phase.step()) {
      const Range mine = Part(r.me_ + part), theirs = Part(peer + part);
      // Contributions to `mine` wait in the memory of `theirs`, which nobody else sends them to.
      std::byte* to = phase.gather ? Staging(peer + part) : data_ + theirs.begin;
      const size_t bytes = phase.gather ? mine.bytes : theirs.bytes;
      if (receives && bytes > 0) {
        ++pending_;
        r.comm_.StartReceive(rank, tag, to, bytes, *this);
      }
      const Range what = phase.gather ? theirs : mine;
      if (sends && what.bytes > 0) {
        ++pending_;
        r.comm_.StartSend(rank, tag, data_ + what.begin, what.bytes, *this);
      }
    }
  }
  Done(0);
}

void AllReducer::Chunk::Done(size_t /*bytes*/) {
  if (--pending_ > 0) return;
  if (phase_->gather) Sum();
  if (++phase_ < reducer_->phases_.data() + reducer_->phases_.size()) {
    Exchange();
    return;
  }
  phase_ = nullptr;
  reducer_->Finished(job_, bytes_);
  reducer_->Advance();
}

void AllReducer::Chunk::Sum() {
  AllReducer& r = *reducer_;
  const Phase phase = *phase_;
  for (int part = 0; part < r.replicas(); part += phase.step()) {
    const Range mine = Part(r.me_ + part);
    const size_t count = mine.bytes / SizeOf(r.dtype_);
    // The sum grows in the first contributor's memory, since ours may be needed later in the order.
    std::byte* own = data_ + mine.begin;
    std::byte* sum = nullptr;
    for (int i = 0; i < phase.count; ++i) {
      const int replica = phase.first + i * phase.stride;
      const float weight = Weight(replica);
      if (weight == 0) continue;
      std::byte* term = replica == r.me_ ? own : Staging(replica + part);
      const bool first = sum == nullptr;
      if (first) sum = term;
      AddScaledHost(r.dtype_, sum, term, weight, first, count);
    }
    if (sum != nullptr && sum != own) std::memcpy(own, sum, mine.bytes);
  }
}

}  // namespace pd
