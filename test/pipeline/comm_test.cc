#include "pipeline/comm.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "pipeline/session.h"
#include "support/catch.h"
#include "support/error_of.h"
#include "transport/loopback/loopback.h"

namespace pd {
namespace {

// What `work` writes to standard error.
std::string StandardErrorOf(const std::function<void()>& work) {
  char path[] = "/tmp/pd_comm_test_XXXXXX";
  const int file = ::mkstemp(path);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(file, STDERR_FILENO);
  work();
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  ::close(file);
  std::string text = ReadFile(path);
  ::unlink(path);
  return text;
}

int Count(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_CASE(
    "a wait for a silent peer is reported, then fails, naming role, action, minibatch, rank") {
  LoopbackHub hub(2);
  Comm comm(hub.transport(0), {.report_s = 0.05, .fail_s = 0.4});
  comm.SetRole("stage 1 replica 0");
  char byte = 0;
  Ticket ticket;
  comm.Receive(1, kTagBorder, &byte, 1, ticket);
  std::string error;
  const int64_t start = NowNs();
  const std::string reports = StandardErrorOf([&] {
    error = ErrorOf([&] { comm.Wait(ticket, {"receive inputs", 6, 1}); }, ErrorCode::kComm);
  });
  CHECK(NsToS(NowNs() - start) >= 0.4);
  CHECK(NsToS(NowNs() - start) < 5);
  for (const std::string& text : {error, reports}) {
    CHECK_THAT(text, ContainsSubstring("stage 1 replica 0"));
    CHECK_THAT(text, ContainsSubstring("receive inputs"));
    CHECK_THAT(text, ContainsSubstring("minibatch 7"));  // people count from 1
    CHECK_THAT(text, ContainsSubstring("rank 1"));
  }
  CHECK(Count(reports, "stalled") >= 1);
  CHECK(Count(reports, "stalled") <= 4);  // at 0.05, 0.1, 0.2 s, and not again and again
  CHECK(Count(reports, "\n") == Count(reports, "stalled"));
}

TEST_CASE("a wait that may fail before the first report fails in time") {
  LoopbackHub hub(2);
  Comm comm(hub.transport(0), {.report_s = 1e9, .fail_s = 0.2});
  char byte = 0;
  Ticket ticket;
  comm.Receive(1, 0, &byte, 1, ticket);
  const int64_t start = NowNs();
  CHECK_THAT(ErrorOf([&] { comm.Wait(ticket, {.action = "x"}); }, ErrorCode::kComm),
             ContainsSubstring("giving up"));
  CHECK(NsToS(NowNs() - start) < 5);
}

TEST_CASE("an error of the transport reaches the waiting thread, and every later wait") {
  LoopbackHub hub(2);
  Comm comm(hub.transport(0));
  Comm peer(hub.transport(1));
  std::vector<char> room(10), message(11);
  Ticket received, never, sent;
  comm.Receive(1, 5, room.data(), room.size(), received);
  comm.Receive(1, 6, room.data(), room.size(), never);
  peer.Send(0, 5, message.data(), message.size(), sent);
  CHECK_THAT(ErrorOf([&] { comm.Wait(received, {.action = "receive"}); }, ErrorCode::kComm),
             ContainsSubstring("expected at most 10 bytes, found 11"));
  CHECK_THAT(ErrorOf([&] { comm.Wait(never, {.action = "receive"}); }, ErrorCode::kComm),
             ContainsSubstring("found 11"));
}

TEST_CASE("a worker that ends the job ends the waits of the others") {
  LoopbackHub hub(3);
  Comm comm(hub.transport(0));
  char byte = 0;
  Ticket ticket;
  comm.Receive(1, 5, &byte, 1, ticket);
  CHECK_THROWS_AS(hub.transport(2).Abort(4), Error);
  CHECK_THAT(ErrorOf([&] { comm.Wait(ticket, {.action = "receive"}); }, ErrorCode::kComm),
             ContainsSubstring("rank 2 ended the job with status 4"));
}

TEST_CASE("a wait asks its watch, and ends with what that throws") {
  LoopbackHub hub(2);
  Comm comm(hub.transport(0));
  char byte = 0;
  Ticket ticket;
  comm.SetWatch([] { Throw(ErrorCode::kDevice, "the device is gone"); });
  comm.Receive(1, 5, &byte, 1, ticket);
  CHECK(ErrorOf([&] { comm.Wait(ticket, {.action = "receive"}); }, ErrorCode::kDevice) ==
        "the device is gone");
}

TEST_CASE("a stopped communication thread touches no memory") {
  LoopbackHub hub(2, 256);
  Comm peer(hub.transport(1));
  char to = 'a', from = 'b';
  std::vector<char> room(1000, 'c'), message(1000, 'd');  // longer than an eager message
  Ticket received, sent, never_received, never_sent;
  {
    Comm comm(hub.transport(0));
    comm.Receive(1, 5, &to, 1, received);
    comm.Send(1, 6, message.data(), message.size(), never_sent);
    // An answer: what was started before is under way.
    Ticket asked, answered;
    char byte = 0;
    peer.Send(0, 7, &byte, 1, asked);
    comm.Receive(1, 7, &byte, 1, answered);
    comm.Wait(answered, {.action = "receive"});
    comm.Stop();
    comm.Stop();
  }
  peer.Send(0, 5, &from, 1, sent);
  peer.Wait(sent, {.action = "send"});  // eager
  peer.Receive(0, 6, room.data(), room.size(), never_received);
  peer.Send(1, 8, &from, 1, sent);
  peer.Wait(sent, {.action = "send"});
  CHECK_FALSE(received.done());
  CHECK(to == 'a');
  CHECK_FALSE(never_received.done());
  CHECK(room == std::vector<char>(1000, 'c'));
}

TEST_CASE("texts of any length and any bytes reach every rank") {
  const std::vector<std::string> texts = {"", std::string(5'000'000, 'x') + "end",
                                          std::string("\0zero\0", 6), "short"};
  for (const size_t eager_bytes : {size_t{0}, size_t{256}, size_t{4096}}) {
    for (const int ranks : {1, 2, 4}) {
      OnThreads(
          ranks,
          [&](Transport& transport) {
            Comm comm(transport, {.report_s = 20, .fail_s = 60});
            const auto me = static_cast<size_t>(comm.rank());
            const std::vector<std::string> all = comm.GatherAll(texts[me]);
            PD_CHECK(all.size() == static_cast<size_t>(ranks), "{} texts", all.size());
            for (size_t r = 0; r < all.size(); ++r) PD_CHECK(all[r] == texts[r], "text {}", r);
            for (int root = 0; root < ranks; ++root) {
              const std::string& wanted = texts[static_cast<size_t>(root)];
              const std::string got = comm.Broadcast(comm.rank() == root ? wanted : "?", root);
              PD_CHECK(got == wanted, "broadcast from {}", root);
            }
            comm.Barrier();
          },
          eager_bytes);
    }
  }
}

TEST_CASE("bytes are counted on both sides, and messages of one tag stay in order") {
  OnThreads(2, [](Transport& transport) {
    constexpr size_t kMessages = 200;
    Comm comm(transport);
    const int peer = 1 - comm.rank();
    std::vector<std::vector<uint32_t>> out(kMessages), in(kMessages);
    std::vector<Ticket> sent(kMessages), received(kMessages);
    int64_t bytes = 0;
    for (size_t i = 0; i < kMessages; ++i) {
      out[i].assign(i * 37 % 1500, static_cast<uint32_t>(i));
      in[i].resize(1500);
      bytes += static_cast<int64_t>(out[i].size() * sizeof(uint32_t));
      comm.Send(peer, 9, out[i].data(), out[i].size() * sizeof(uint32_t), sent[i]);
    }
    for (size_t i = 0; i < kMessages; ++i)
      comm.Receive(peer, 9, in[i].data(), in[i].size() * sizeof(uint32_t), received[i]);
    for (size_t i = 0; i < kMessages; ++i) {
      comm.Wait(received[i], {.action = "receive"});
      comm.Wait(sent[i], {.action = "send"});
      PD_CHECK(received[i].bytes() == out[i].size() * sizeof(uint32_t), "length of {}", i);
      PD_CHECK(std::equal(out[i].begin(), out[i].end(), in[i].begin()), "message {}", i);
    }
    PD_CHECK(comm.bytes_sent() == bytes, "{} sent", comm.bytes_sent());
    PD_CHECK(comm.bytes_received() == bytes, "{} received", comm.bytes_received());
  });
}

}  // namespace
}  // namespace pd
