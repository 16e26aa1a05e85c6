// Every replica starts the same jobs in the same order and cuts them into the same chunks, so chunk
// number c means the same everywhere. Chunk c runs in slot c mod kUnderWay, with two tags of its
// own: that keeps messages of one tag in order although chunks may finish in any.
#include "pipeline/all_reduce.h"

#include <algorithm>
#include <cstring>

#include "backend/elementwise.h"
#include "base/error.h"

namespace pd {
namespace {

// Parts begin at multiples of this, so that every pointer is aligned for vector instructions.
constexpr size_t kGrain = 64;

size_t RoundUp(size_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

}  // namespace

AllReducer::AllReducer(Comm& comm, Backend& backend, std::vector<int> ranks, int me,
                       size_t max_bytes)
    : comm_(comm),
      dtype_(backend.dtype()),
      ranks_(std::move(ranks)),
      me_(me),
      part_bytes_(PartBytes(ranks_.size(), max_bytes)),
      starters_(kMaxJobs),
      jobs_(kMaxJobs) {
  if (replicas() > 1) staging_ = backend.AllocateStaging(StagingBytes(ranks_.size(), max_bytes));
}

size_t AllReducer::PartBytes(size_t replicas, size_t max_bytes) {
  return std::min(kMaxPartBytes, RoundUp(max_bytes / replicas + 1));
}

size_t AllReducer::StagingBytes(size_t replicas, size_t max_bytes) {
  return replicas > 1 ? kUnderWay * replicas * PartBytes(replicas, max_bytes) : 0;
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
  phase_ = Phase::kParts;
  Exchange();
}

AllReducer::Chunk::Range AllReducer::Chunk::Part(int replica) const {
  const size_t grains = RoundUp(bytes_) / kGrain;
  const auto m = static_cast<size_t>(reducer_->replicas());
  const auto i = static_cast<size_t>(replica);
  const size_t begin = std::min(bytes_, grains * i / m * kGrain);
  const size_t end = std::min(bytes_, grains * (i + 1) / m * kGrain);
  return {begin, end - begin};
}

std::byte* AllReducer::Chunk::Staging(int replica) const {
  const size_t index =
      static_cast<size_t>(slot_) * reducer_->ranks_.size() + static_cast<size_t>(replica);
  return reducer_->staging_.data() + index * reducer_->part_bytes_;
}

void AllReducer::Chunk::Exchange() {
  AllReducer& r = *reducer_;
  const std::vector<float>& weights = r.jobs_[job_ % kMaxJobs].job->weights;
  const bool parts = phase_ == Phase::kParts;
  const int tag = kTagReduce + 2 * slot_ + (parts ? 0 : 1);
  const Range mine = Part(r.me_);
  pending_ = 1;  // this call itself, so that nothing ends before everything is started
  for (int p = 0; p < r.replicas(); ++p) {
    if (p == r.me_) continue;
    const int rank = r.ranks_[static_cast<size_t>(p)];
    const Range theirs = Part(p);
    const bool send =
        parts ? weights[static_cast<size_t>(r.me_)] != 0 && theirs.bytes > 0 : mine.bytes > 0;
    const bool receive =
        parts ? weights[static_cast<size_t>(p)] != 0 && mine.bytes > 0 : theirs.bytes > 0;
    if (receive) {
      ++pending_;
      std::byte* to = parts ? Staging(p) : data_ + theirs.begin;
      r.comm_.StartReceive(rank, tag, to, parts ? mine.bytes : theirs.bytes, *this);
    }
    if (send) {
      ++pending_;
      const Range what = parts ? theirs : mine;
      r.comm_.StartSend(rank, tag, data_ + what.begin, what.bytes, *this);
    }
  }
  Done(0);
}

void AllReducer::Chunk::Done(size_t /*bytes*/) {
  if (--pending_ > 0) return;
  if (phase_ == Phase::kParts) {
    Sum();
    phase_ = Phase::kResults;
    Exchange();
    return;
  }
  phase_ = Phase::kFree;
  reducer_->Finished(job_, bytes_);
  reducer_->Advance();
}

void AllReducer::Chunk::Sum() {
  AllReducer& r = *reducer_;
  const std::vector<float>& weights = r.jobs_[job_ % kMaxJobs].job->weights;
  const Range mine = Part(r.me_);
  if (mine.bytes == 0) return;
  const size_t count = mine.bytes / SizeOf(r.dtype_);
  // The sum grows in the first contributor's memory, since ours may be needed later in the order.
  std::byte* own = data_ + mine.begin;
  std::byte* sum = nullptr;
  for (int p = 0; p < r.replicas(); ++p) {
    const float weight = weights[static_cast<size_t>(p)];
    if (weight == 0) continue;
    std::byte* term = p == r.me_ ? own : Staging(p);
    const bool first = sum == nullptr;
    if (first) sum = term;
    AddScaledHost(r.dtype_, sum, term, weight, first, count);
  }
  PD_CHECK(sum != nullptr, "an all-reduce to which no replica contributes");
  if (sum != own) std::memcpy(own, sum, mine.bytes);
}

}  // namespace pd
