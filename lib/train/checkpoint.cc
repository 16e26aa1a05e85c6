#include "train/checkpoint.h"

#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace pd {
namespace {

std::string StageFile(size_t stage) { return fmt::format("stage-{:03}.safetensors", stage); }

// While it lives, waiting long is no stall: a disk may be slow.
class LongWaits {
 public:
  explicit LongWaits(Comm& comm) : comm_(comm), limits_(comm.limits()) {
    comm_.SetLimits({.report_s = 60, .fail_s = 1e9});
  }
  ~LongWaits() { comm_.SetLimits(limits_); }
  LongWaits(const LongWaits&) = delete;
  LongWaits& operator=(const LongWaits&) = delete;

 private:
  Comm& comm_;
  StallLimits limits_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(std::string directory, const Plan& plan, Comm& comm,
                                   const Worker* worker, bool momentum)
    : directory_(std::move(directory)),
      comm_(comm),
      worker_(worker != nullptr && worker->replica() == 0 ? worker : nullptr),
      momentum_(momentum) {
  for (const StagePlan& stage : plan.stages) leaders_.push_back(stage.workers.at(0));
  if (worker_ != nullptr) PlanFile();
  if (worker_ != nullptr || comm_.rank() == 0) {
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (!error && ::access(directory_.c_str(), W_OK) != 0) error = {errno, std::generic_category()};
    PD_REQUIRE(!error, "--checkpoint: {}: cannot create: {}", directory_, error.message());
    // A manifest must never stand beside files of another run.
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      PD_REQUIRE(!std::filesystem::exists(entry.path() / "manifest.json"),
                 "--checkpoint: {}: expected a directory without checkpoints, found {}", directory_,
                 entry.path().filename().string());
    }
  }
  if (comm_.rank() == 0) {
    reports_.resize(leaders_.size());
    tickets_ = std::make_unique<Ticket[]>(leaders_.size());
  }
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

std::string CheckpointWriter::Directory() const {
  return fmt::format("{}/epoch-{:06}", directory_, info_.epoch);
}

// Lays out the stage's file: https://github.com/huggingface/safetensors, 8 bytes of header length,
// the header as JSON, then the tensors.
void CheckpointWriter::PlanFile() {
  nlohmann::ordered_json header;
  size_t offset = 0;
  const auto add = [&](Worker::Kind kind, const std::vector<WeightLayout::Entry>& entries,
                       const std::string& suffix) {
    for (size_t i = 0; i < entries.size(); ++i) {
      const WeightLayout::Entry& entry = entries[i];
      PD_CHECK(entry.layout.dtype == DType::kF32, "checkpoints hold f32");
      const size_t bytes = static_cast<size_t>(Elements(entry.spec->shape)) * sizeof(float);
      header[entry.name + suffix] = {{"dtype", "F32"},
                                     {"shape", entry.spec->shape},
                                     {"data_offsets", {offset, offset + bytes}}};
      pieces_.push_back({kind, i, offset, bytes});
      offset += bytes;
    }
  };
  const WeightLayout& weights = worker_->setup().weights();
  add(Worker::Kind::kParameters, weights.params(), "");
  add(Worker::Kind::kState, weights.state(), "");
  if (momentum_) add(Worker::Kind::kMomentum, weights.params(), ".momentum");
  std::string text = header.empty() ? "{}" : header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  file_.resize(sizeof length + text.size() + offset);
  std::memcpy(file_.data(), &length, sizeof length);
  std::memcpy(file_.data() + sizeof length, text.data(), text.size());
  for (Piece& piece : pieces_) piece.offset += sizeof length + text.size();
}

void CheckpointWriter::Begin(const CheckpointInfo& info) {
  if (begun_) {
    const LongWaits patience(comm_);
    Finish();
    comm_.Barrier();
  }
  begun_ = true;
  info_ = info;
  open_ = true;
  if (comm_.rank() == 0) {
    for (size_t s = 0; s < leaders_.size(); ++s) {
      comm_.Receive(leaders_[s], kTagCheckpoint, &reports_[s], sizeof(Report), tickets_[s]);
    }
  }
  if (worker_ == nullptr) return;
  for (const Piece& piece : pieces_)
    worker_->Export(piece.kind, piece.entry, file_.data() + piece.offset);
  written_ = false;
  reported_ = false;
  thread_ = std::thread([this] { WriteStageFile(); });
}

void CheckpointWriter::WriteStageFile() {
  report_ = {};
  report_.stage = worker_->stage();
  report_.bytes = file_.size();
  try {
    std::filesystem::create_directories(Directory());
    const std::string_view text(reinterpret_cast<const char*>(file_.data()), file_.size());
    WriteFile(Directory() + "/" + StageFile(static_cast<size_t>(worker_->stage())), text);
    report_.crc32 = ::crc32_z(0, reinterpret_cast<const Bytef*>(file_.data()), file_.size());
    report_.ok = 1;
  } catch (const std::exception& e) {
    std::strncpy(report_.text, e.what(), sizeof report_.text - 1);
  }
  written_ = true;
}

void CheckpointWriter::Poll() {
  if (!open_) return;
  if (!reported_ && written_) {
    if (thread_.joinable()) thread_.join();
    comm_.Send(0, kTagCheckpoint, &report_, sizeof report_, report_ticket_);
    reported_ = true;
    if (comm_.rank() != 0) open_ = false;
  }
  if (comm_.rank() != 0) return;
  for (size_t s = 0; s < leaders_.size(); ++s) {
    if (!tickets_[s].done()) return;
  }
  WriteManifest();
  open_ = false;
}

void CheckpointWriter::Finish() {
  const LongWaits patience(comm_);
  if (thread_.joinable()) thread_.join();
  Poll();
  // Also of a report sent earlier: its memory is about to be used again, or to go away.
  comm_.Wait(report_ticket_, {.action = "report a checkpoint", .peer = 0});
  if (comm_.rank() == 0) {
    for (size_t s = 0; s < leaders_.size() && open_; ++s) {
      comm_.Wait(tickets_[s],
                 {.action = "receive the report of a checkpoint", .peer = leaders_[s]});
    }
    Poll();
  }
  open_ = false;
}

void CheckpointWriter::WriteManifest() {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const Report& report : reports_) {
    if (report.ok == 0) {
      Warn("no checkpoint of epoch {}: stage {}: {}", info_.epoch, report.stage, report.text);
      ++lost_;
      return;
    }
    files.push_back({{"name", StageFile(static_cast<size_t>(report.stage))},
                     {"bytes", report.bytes},
                     {"crc32", fmt::format("{:08x}", report.crc32)}});
  }
  nlohmann::ordered_json manifest = {{"format", "pipedream.checkpoint/1"},
                                     {"epoch", info_.epoch},
                                     {"minibatch", info_.minibatch},
                                     {"minibatches", info_.minibatches},
                                     {"train_time_s", info_.train_time_s},
                                     {"plan_digest", info_.plan_digest},
                                     {"config", nlohmann::ordered_json::parse(info_.config)},
                                     {"data", nlohmann::ordered_json::parse(info_.data)},
                                     {"files", files}};
  try {
    std::filesystem::create_directories(Directory());
    WriteFile(Directory() + "/manifest.json", WriteJson(manifest));
  } catch (const std::exception& e) {
    Warn("no checkpoint of epoch {}: {}", info_.epoch, e.what());
    ++lost_;
  }
}

}  // namespace pd
