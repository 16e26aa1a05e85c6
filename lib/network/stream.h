#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pipeline/comm.h"

namespace pd {

/// Messages of one size between this rank and one peer, a few under way at a time, as border
/// messages are; both directions at once, or one. Runs on the communication thread.
class Stream {
 public:
  static constexpr int kUnderWay = 4;
  /// Fewer would leave nothing to measure once the first and last are left out.
  static constexpr int kLeastMessages = 3 * kUnderWay;

  struct Options {
    int peer = 0;
    bool sends = true, receives = true;
    size_t bytes = 0;               ///< Of a message.
    int messages = kLeastMessages;  ///< Each way.
  };

  /// Memory is taken, and touched, here.
  Stream(Comm& comm, const Options& options);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Moves all messages; once. Throws as Comm::Wait does.
  void Run();

  /// When the middle of the received messages came, and their bytes. The first kUnderWay are left
  /// out (a token bucket's burst, buffers that fill), and so are the last (a pipe that drains): at
  /// both ends of the middle as many messages are half done, so the bytes are those that came in
  /// that time. 0 bytes where nothing is received.
  struct Middle {
    int64_t begin_ns = 0, end_ns = 0, bytes = 0;
  };
  Middle middle() const;

 private:
  // Message after message in one direction, each in the same memory.
  class Lane final : public CommOperation {
   public:
    void Set(Stream& stream, bool sends, std::byte* data);
    void StartNext();
    void Done(size_t bytes) override;

   private:
    Stream* stream_ = nullptr;
    bool sends_ = false;
    std::byte* data_ = nullptr;
  };
  class Starter final : public CommOperation {
   public:
    explicit Starter(Stream& stream) : stream_(stream) {}
    void Done(size_t bytes) override;

   private:
    Stream& stream_;
  };

  Comm& comm_;
  const Options options_;
  std::vector<std::byte> memory_;
  std::array<Lane, 2 * kUnderWay> lanes_;
  Starter starter_{*this};
  int started_[2] = {0, 0};  // receives, sends
  int open_ = 0;             // messages not done
  std::vector<int64_t> received_ns_;
  Ticket done_;
};

}  // namespace pd
