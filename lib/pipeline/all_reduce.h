#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "pipeline/comm.h"

namespace pd {

/// One all-reduce of a range: a bucket of gradients, or running statistics. Kept by the caller;
/// reused.
struct ReduceJob {
  /// This replica's part, in the host's memory; the sum at the end, the same bits on all replicas.
  std::byte* data = nullptr;
  size_t bytes = 0;            ///< A multiple of the element size.
  std::vector<float> weights;  ///< One a replica; 0: that replica has nothing to add.
  Ticket done;
};

/// Share of a minibatch of `samples` in the gradient of a round of `round_samples`: the round's
/// gradient is Σ n_b g_b / Σ n_b.
inline float RoundWeight(int64_t samples, int64_t round_samples) {
  return static_cast<float>(samples) / static_cast<float>(round_samples);
}

/// Sums a range over the replicas of a stage on the communication thread. The order is defined by
/// the plan alone:
///   sum = Σ_M (Σ_{r in M} weight_r · data_r),
/// over machines M of ReplicasTogether and in each over its replicas r, both in replica order, each
/// product and each sum rounded. What has nothing to add (weight 0, or a machine of such) is left
/// out. Each replica owns a part: it gets the others' contributions, adds them, and sends the
/// result to all. Bytes each way 2(m−1)/m·|w|, those of a ring (arXiv 1806.03377 §3.1 counts
/// 4(m−1)/m for a parameter server, send and receive together), but with one defined order of the
/// sum. Machines sum inside first, so that only 2(p−1)/p·|w| leave each of the p. Ranges are cut
/// into chunks, of which a fixed number is under way, so both directions of the link stay busy.
class AllReducer {
 public:
  /// `ranks` are the replicas' ranks in order, `me` this one's place in them, `machine_ranks` as
  /// ReplicasTogether's. Staging memory is taken here.
  AllReducer(Comm& comm, Backend& backend, std::vector<int> ranks, int me, size_t max_bytes,
             int machine_ranks = 1);
  AllReducer(const AllReducer&) = delete;
  AllReducer& operator=(const AllReducer&) = delete;

  /// Starts `job` behind those started before, once `opening` is there; all replicas start the same
  /// jobs in the same order.
  void Start(ReduceJob& job, Opening opening = {});
  /// The staging memory of one replica.
  static size_t StagingBytes(size_t replicas, size_t max_bytes);

 private:
  // Who exchanges what: the replicas first, first + stride, … each stand for a block of `stride`
  // replicas, which were summed before, and are in charge of the parts whose numbers differ from
  // theirs by multiples of stride · count. They gather contributions to these parts and add them
  // up, or give away the results.
  struct Phase {
    bool gather;
    int first, stride, count;
    int step() const { return stride * count; }
  };
  // A chunk under way, phase by phase. Runs on the communication thread.
  class Chunk final : public CommOperation {
   public:
    void Start(AllReducer& reducer, int slot, size_t job, std::byte* data, size_t bytes);
    void Done(size_t bytes) override;
    bool busy() const { return phase_ != nullptr; }

   private:
    struct Range {
      size_t begin = 0, bytes = 0;
    };
    // Numbers of parts go round: m + i is i.
    Range Part(int number) const;
    std::byte* Staging(int number) const;
    float Weight(int replica) const;
    void Exchange();
    void Sum();

    AllReducer* reducer_ = nullptr;
    int slot_ = 0;
    size_t job_ = 0;
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
    const Phase* phase_ = nullptr;  // null: free
    int pending_ = 0;
  };
  class Starter final : public CommOperation {
   public:
    void Done(size_t /*bytes*/) override { reducer->Enqueue(*job); }
    AllReducer* reducer = nullptr;
    ReduceJob* job = nullptr;
  };
  // A job in the ring: where its next chunk starts, and what is not summed yet.
  struct Pending {
    ReduceJob* job = nullptr;
    size_t next = 0, left = 0;
  };
  static constexpr int kUnderWay = kReduceChunks;
  // Open MPI's TCP transport sends up to 64 kB without asking the receiver first. Longer messages
  // wait for an answer, which queues behind the data that goes the other way: with parts of 1 MB
  // the two directions of a link took turns (60 to 84 MB/s each way on 1 Gbit/s, against 119.8
  // with these: bench/all_reduce_bench).
  static constexpr size_t kMaxPartBytes = 60 << 10;
  static constexpr size_t kMaxJobs = 1 << 12;

  static size_t PartBytes(size_t replicas, size_t max_bytes);
  int replicas() const { return static_cast<int>(ranks_.size()); }
  void MakePhases(int together);
  void Enqueue(ReduceJob& job);
  void Advance();
  void Finished(size_t job, size_t bytes);

  Comm& comm_;
  DType dtype_;
  std::vector<int> ranks_;
  int me_;
  size_t part_bytes_;
  std::vector<Phase> phases_;
  Buffer staging_;
  // Of the computing thread.
  std::vector<Starter> starters_;
  size_t next_starter_ = 0;
  // Of the communication thread.
  std::vector<Pending> jobs_;
  size_t chunked_jobs_ = 0,
         queued_jobs_ = 0;  // counts since the start; the ring's index is modulo its size
  std::array<Chunk, kUnderWay> chunks_;
  size_t next_chunk_ = 0;
};

}  // namespace pd
