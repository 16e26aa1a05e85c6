#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/comm.h"
#include "pipeline/worker.h"
#include "plan/plan.h"

namespace pd {

/// What a checkpoint's manifest says besides its files.
struct CheckpointInfo {
  int64_t epoch = 0;        ///< From 1.
  int64_t minibatch = 0;    ///< Trained of that epoch: fewer than it has when a target ended it.
  int64_t minibatches = 0;  ///< Trained over the whole run.
  double train_time_s = 0;
  std::string plan_digest, config;  ///< `config`: config/1 text.
  std::string data = "{}";          ///< DataSource::metadata.
};

/// Writes DIR/epoch-000003/: a safetensors file a stage by the rank of its first replica, then
/// manifest.json by rank 0, last, so that a directory without a manifest is no checkpoint. Tensors
/// are dense f32 under LAYER.PARAM and LAYER.PARAM.momentum. The weights are copied at the drain;
/// files are written by a thread while training goes on. A file that cannot be written is said, and
/// that checkpoint gets no manifest.
class CheckpointWriter {
 public:
  /// `worker` is null on an idle rank. Every rank of the run has one. Throws kIo where `directory`
  /// is none that this rank could write to.
  CheckpointWriter(std::string directory, const Plan& plan, Comm& comm, const Worker* worker,
                   bool momentum);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// After a drain, on every rank: takes the copy and starts writing. Waits for the one before.
  void Begin(const CheckpointInfo& info);
  /// Between actions: sends or collects the reports that have come meanwhile; nothing waits.
  void Poll();
  /// Waits until the checkpoint under way is complete.
  void Finish();
  /// Rank 0: checkpoints that could not be written.
  int64_t lost() const { return lost_; }

 private:
  struct Report {
    int64_t stage = -1, ok = 0;
    uint64_t bytes = 0, crc32 = 0;
    char text[160] = {};
  };
  struct Piece {
    Worker::Kind kind;
    size_t entry;
    size_t offset, bytes;
  };

  void PlanFile();
  void WriteStageFile();
  void WriteManifest();
  std::string Directory() const;

  std::string directory_;
  Comm& comm_;
  const Worker* worker_;  // only where this rank writes a stage
  bool momentum_;
  std::vector<int> leaders_;  // rank of each stage's first replica
  CheckpointInfo info_;
  bool open_ = false, begun_ = false;
  int64_t lost_ = 0;

  std::vector<Piece> pieces_;
  std::vector<std::byte> file_;  // header and data, ready to write
  std::thread thread_;
  std::atomic<bool> written_{false};
  bool reported_ = true;
  Report report_;
  Ticket report_ticket_;
  std::vector<Report> reports_;  // rank 0
  std::unique_ptr<Ticket[]> tickets_;
};

}  // namespace pd
