#include "network/stream.h"

#include "base/clock.h"
#include "base/error.h"

namespace pd {
namespace {

constexpr int kTag = kTagBorder;  // no border messages are under way here

}  // namespace

Stream::Stream(Comm& comm, const Options& options) : comm_(comm), options_(options) {
  PD_CHECK(options.messages >= kLeastMessages, "{} messages", options.messages);
  memory_.resize(options.bytes * lanes_.size(), std::byte{1});
  received_ns_.reserve(static_cast<size_t>(options.messages));
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].Set(*this, i % 2 == 1, memory_.data() + i * options.bytes);
  }
}

void Stream::Run() {
  open_ = options_.messages * ((options_.sends ? 1 : 0) + (options_.receives ? 1 : 0));
  if (open_ == 0) return;
  done_.Reset();
  comm_.Run(starter_);
  comm_.Wait(done_, {.action = "receive or send a measured message", .peer = options_.peer});
}

Stream::Middle Stream::middle() const {
  if (!options_.receives) return {};
  const size_t first = kUnderWay - 1, last = received_ns_.size() - 1 - kUnderWay;
  return {received_ns_[first], received_ns_[last],
          static_cast<int64_t>((last - first) * options_.bytes)};
}

void Stream::Starter::Done(size_t) {
  for (Lane& lane : stream_.lanes_) lane.StartNext();
}

void Stream::Lane::Set(Stream& stream, bool sends, std::byte* data) {
  stream_ = &stream;
  sends_ = sends;
  data_ = data;
}

void Stream::Lane::StartNext() {
  const Options& options = stream_->options_;
  int& started = stream_->started_[sends_ ? 1 : 0];
  if (!(sends_ ? options.sends : options.receives) || started == options.messages) return;
  ++started;
  if (sends_) {
    stream_->comm_.StartSend(options.peer, kTag, data_, options.bytes, *this);
  } else {
    stream_->comm_.StartReceive(options.peer, kTag, data_, options.bytes, *this);
  }
}

void Stream::Lane::Done(size_t) {
  if (!sends_) stream_->received_ns_.push_back(NowNs());
  if (--stream_->open_ == 0) {
    stream_->done_.Done(0);  // the stream may be gone after this
    return;
  }
  StartNext();
}

}  // namespace pd
