#include "train/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace pd {

LossSums::LossSums(const Model& model) {
  const Model::Node& loss = model.layers()[static_cast<size_t>(model.main_loss())];
  has_top5_ = loss.layer->limit() > 5;
  has_perplexity_ = !model.spec(loss.inputs.back()).shape.empty();
}

void LossSums::Add(const MinibatchMetrics& metrics) {
  samples_ += metrics.samples;
  loss_ += metrics.loss_sum;
  counted_ += metrics.counted;
  right_ += metrics.right;
  top5_ += metrics.top5;
}

void LossSums::Clear() {
  samples_ = 0;
  loss_ = counted_ = right_ = top5_ = 0;
}

LossMeans LossSums::Means() const {
  const double count = std::max(1.0, counted_);
  LossMeans means{
      .loss = loss_ / count, .accuracy = right_ / count, .top5_accuracy = {}, .perplexity = {}};
  if (has_top5_) means.top5_accuracy = top5_ / count;
  if (has_perplexity_ && counted_ > 0) means.perplexity = std::exp(means.loss);
  return means;
}

MetricsCollector::MetricsCollector(const PipelineSpec& spec, Comm& comm, int loss_stage)
    : comm_(comm),
      ranks_(spec.ranks[static_cast<size_t>(loss_stage)]),
      sources_(std::make_unique<Source[]>(ranks_.size())) {}

MetricsCollector::Source& MetricsCollector::SourceOf(int64_t minibatch) {
  return sources_[static_cast<size_t>(minibatch) % ranks_.size()];
}

void MetricsCollector::Post(int64_t minibatch) {
  if (minibatch >= end_) return;
  Source& source = SourceOf(minibatch);
  comm_.Receive(ranks_[static_cast<size_t>(minibatch) % ranks_.size()], kTagMetrics, &source.buffer,
                sizeof source.buffer, source.ticket);
}

void MetricsCollector::Begin(int64_t segment, int64_t minibatches) {
  segment_ = segment;
  next_ = 0;
  end_ = minibatches;
  for (size_t i = 0; i < ranks_.size(); ++i) Post(static_cast<int64_t>(i));
}

const MinibatchMetrics* MetricsCollector::Poll() {
  if (next_ == end_ || !SourceOf(next_).ticket.done()) return nullptr;
  current_ = SourceOf(next_).buffer;
  PD_CHECK(current_.sequence == SequenceOf(segment_, next_), "metrics of another minibatch");
  Post(next_ + static_cast<int64_t>(ranks_.size()));
  ++next_;
  return &current_;
}

const MinibatchMetrics* MetricsCollector::Wait() {
  if (next_ == end_) return nullptr;
  comm_.Wait(SourceOf(next_).ticket,
             {"receive the loss", -1, ranks_[static_cast<size_t>(next_) % ranks_.size()]});
  return Poll();
}

MetricsWriter::MetricsWriter(const std::string& path)
    : path_(path.empty() || path == "-" ? "standard output" : path),
      fd_(path.empty() || path == "-"
              ? STDOUT_FILENO
              : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (fd_ < 0) Throw(ErrorCode::kIo, "{}: cannot create: {}", path_, std::strerror(errno));
}

MetricsWriter::~MetricsWriter() {
  if (fd_ != STDOUT_FILENO) ::close(fd_);
}

void MetricsWriter::Write(std::string_view line) {
  fmt::memory_buffer buffer;  // short lines stay on the stack
  buffer.append(line.data(), line.data() + line.size());
  buffer.push_back('\n');
  const off_t begin = ::lseek(fd_, 0, SEEK_CUR);  // -1 where the output is no file
  try {
    WriteAll(fd_, {buffer.data(), buffer.size()}, path_);
  } catch (const Error&) {
    // A full disk leaves whole lines.
    if (begin >= 0 && ::ftruncate(fd_, begin) == 0) ::lseek(fd_, begin, SEEK_SET);
    throw;
  }
}

std::string JsonNumber(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

void MetricsWriter::Train(int64_t epoch, int64_t minibatch, double loss, double samples_per_s,
                          double time_s) {
  Write(fmt::format(
      R"({{"event":"train","epoch":{},"minibatch":{},"loss":{},"samples_per_s":{:.1f},"time_s":{:.4f}}})",
      epoch, minibatch, JsonNumber(loss), samples_per_s, time_s));
}

void MetricsWriter::Eval(int64_t epoch, int64_t minibatch, const LossMeans& means, double time_s,
                         double train_time_s) {
  std::string more;
  if (means.top5_accuracy) {
    more += fmt::format(R"("top5_accuracy":{},)", JsonNumber(*means.top5_accuracy));
  }
  if (means.perplexity) more += fmt::format(R"("perplexity":{},)", JsonNumber(*means.perplexity));
  Write(fmt::format(
      R"({{"event":"eval","epoch":{},"minibatch":{},"loss":{},"accuracy":{},{}"time_s":{:.4f},"train_time_s":{:.4f}}})",
      epoch, minibatch, JsonNumber(means.loss), JsonNumber(means.accuracy), more, time_s,
      train_time_s));
}

}  // namespace pd
