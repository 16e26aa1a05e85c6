// Cases are written from the view of one rank; what the others do follows from the same code and
// the same seeds, so no rank needs to ask another.
#include "suite.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "support/allocations.h"

namespace pd {
namespace {

using Completion = Transport::Completion;
constexpr int kBarrierTag = 32000;

Transport::Token TokenOf(size_t number) { return reinterpret_cast<void*>(number + 1); }
size_t NumberOf(const Completion& completion) {
  return reinterpret_cast<size_t>(completion.token) - 1;
}

uint64_t Word(uint64_t seed, size_t place) {
  uint64_t word = (seed + 1) * 0x9E3779B97F4A7C15ULL + place * 0xBF58476D1CE4E5B9ULL;
  return word ^ (word >> 29);
}

uint64_t SeedOf(int from, int to, size_t number) {
  return (static_cast<uint64_t>(from) << 40) ^ (static_cast<uint64_t>(to) << 32) ^ number;
}

// Waits without allocating, for the case that counts allocations.
void WaitInto(Transport& transport, std::span<Completion> done) {
  const int64_t give_up = NowNs() + int64_t{60} * 1000 * 1000 * 1000;
  for (size_t count = 0; count < done.size();) {
    const size_t more = transport.Poll(done.subspan(count));
    count += more;
    if (more > 0) continue;
    PD_CHECK(NowNs() < give_up, "rank {}: {} of {} requests after a minute", transport.rank(),
             count, done.size());
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

std::vector<size_t> LengthsToTry(const SuiteOptions& options) {
  std::vector<size_t> lengths{0, 1, 255, 256, 257, 1024};
  for (const size_t pieces : {1, 2, 5}) {
    for (const int more : {-1, 0, 1}) lengths.push_back(pieces * options.piece_bytes + more);
  }
  for (const size_t bytes : {size_t{4096}, size_t{65536}, size_t{1} << 20, size_t{64} << 20}) {
    if (bytes <= options.largest_bytes) lengths.push_back(bytes);
  }
  return lengths;
}

void KnowsWhereItIs(Transport& t) {
  PD_CHECK(t.rank() >= 0 && t.rank() < t.size(), "rank {} of {}", t.rank(), t.size());
  PD_CHECK(std::strlen(t.host()) > 0, "no host name");
}

void BothNeighboursSendFirst(Transport& t, const SuiteOptions& options) {
  const int n = t.size();
  const int right = (t.rank() + 1) % n, left = (t.rank() + n - 1) % n;
  for (const size_t bytes : LengthsToTry(options)) {
    std::vector<std::byte> to_right(bytes), to_left(bytes), from_left(bytes), from_right(bytes);
    FillBytes(to_right, SeedOf(t.rank(), right, bytes));
    FillBytes(to_left, SeedOf(t.rank(), left, bytes + 1));
    t.StartSend(right, 1, to_right.data(), bytes, TokenOf(0));
    t.StartSend(left, 2, to_left.data(), bytes, TokenOf(1));
    // Everybody polls his sends before anybody receives.
    Completion early[2];
    size_t done = 0;
    for (int i = 0; i < 5; ++i) done += t.Poll(std::span(early).subspan(done));
    t.StartReceive(left, 1, from_left.data(), bytes, TokenOf(2));
    t.StartReceive(right, 2, from_right.data(), bytes, TokenOf(3));
    for (const Completion& each : WaitFor(t, 4 - done)) {
      PD_CHECK(each.bytes == bytes, "{} of {} bytes", each.bytes, bytes);
    }
    PD_CHECK(HasBytes(from_left.data(), bytes, SeedOf(left, t.rank(), bytes)), "{} bytes", bytes);
    PD_CHECK(HasBytes(from_right.data(), bytes, SeedOf(right, t.rank(), bytes + 1)), "{} bytes",
             bytes);
  }
}

// To every rank, itself included, messages of changing length on two tags. Buffers are larger than
// the messages.
void KeepsOrder(Transport& t, bool receive_first) {
  constexpr size_t kMessages = 60, kRoom = 6000;
  const int n = t.size();
  const auto length = [](size_t i) { return i * 977 % 5500; };
  std::vector<std::vector<std::byte>> out, in;
  const auto receives = [&] {
    for (int peer = 0; peer < n; ++peer) {
      for (size_t i = 0; i < kMessages; ++i) {
        in.emplace_back(kRoom);
        t.StartReceive(peer, i % 3 == 0 ? 5 : 0, in.back().data(), kRoom, TokenOf(in.size() - 1));
      }
    }
  };
  in.reserve(n * kMessages);
  std::vector<Completion> done;
  if (receive_first) {
    receives();
    done = Barrier(t);  // Who leaves it first may have sent to who is still in it.
  }
  for (size_t i = 0; i < kMessages; ++i) {
    for (int peer = 0; peer < n; ++peer) {
      out.emplace_back(length(i));
      FillBytes(out.back(), SeedOf(t.rank(), peer, i));
      t.StartSend(peer, i % 3 == 0 ? 5 : 0, out.back().data(), out.back().size(),
                  TokenOf(n * kMessages));
    }
  }
  if (!receive_first) receives();
  for (const Completion& each : WaitFor(t, 2 * n * kMessages - done.size())) done.push_back(each);
  for (const Completion& each : done) {
    const size_t number = NumberOf(each);
    if (number == n * kMessages) continue;
    const size_t i = number % kMessages;
    const int peer = static_cast<int>(number / kMessages);
    PD_CHECK(each.bytes == length(i), "message {}: {} bytes", i, each.bytes);
    PD_CHECK(HasBytes(in[number].data(), each.bytes, SeedOf(peer, t.rank(), i)), "message {}", i);
  }
}

void KeepsTagsApart(Transport& t) {
  constexpr int kTags = 300, kLargest = 32767;  // MPI promises no larger tag.
  const int right = (t.rank() + 1) % t.size(), left = (t.rank() + t.size() - 1) % t.size();
  const auto tag = [](int i) { return kLargest - 101 * i; };
  std::vector<int> out(kTags), in(kTags, -1);
  for (int i = 0; i < kTags; ++i) {
    out[i] = t.rank() * 1000 + i;
    t.StartSend(right, tag(i), &out[i], sizeof(int), nullptr);
  }
  for (int i = kTags - 1; i >= 0; --i) {
    t.StartReceive(left, tag(i), &in[i], sizeof(int), nullptr);
  }
  WaitFor(t, 2 * kTags);
  for (int i = 0; i < kTags; ++i) {
    PD_CHECK(in[i] == left * 1000 + i, "tag {}: {}", tag(i), in[i]);
  }
}

void ReportsNoMoreThanAsked(Transport& t) {
  constexpr size_t kMessages = 20;
  std::vector<char> out(kMessages, 'x'), in(kMessages, ' ');
  for (size_t i = 0; i < kMessages; ++i) {
    t.StartReceive(t.rank(), 7, &in[i], 1, TokenOf(i));
    t.StartSend(t.rank(), 7, &out[i], 1, TokenOf(kMessages + i));
  }
  std::vector<bool> seen(2 * kMessages, false);
  for (size_t i = 0; i < 2 * kMessages; ++i) {
    Completion one[1];
    WaitInto(t, one);
    PD_CHECK(!seen[NumberOf(one[0])], "request {} reported twice", NumberOf(one[0]));
    seen[NumberOf(one[0])] = true;
  }
  Completion none[1];
  PD_CHECK(t.Poll(none) == 0, "a request that nobody started");
  PD_CHECK(t.Poll(std::span<Completion>()) == 0, "room for none");
}

struct Message {
  int tag;
  size_t bytes;
};

// What `from` sends to `to`, in order.
std::vector<Message> StressMessages(int from, int to) {
  std::mt19937 random(static_cast<unsigned>(17 + from * 31 + to * 101));
  std::vector<Message> messages(150);
  for (Message& message : messages) {
    message.tag = static_cast<int>(random() % 4);
    message.bytes = random() % 3 == 0 ? random() % 60000 : random() % 2500;
  }
  return messages;
}

// Every pair at once, in random interleaving, with requests of all ages open.
void SurvivesStress(Transport& t) {
  struct Flow {
    int peer;
    bool is_receive;
    std::vector<Message> messages;
    size_t next = 0;
  };
  std::vector<Flow> flows;
  size_t left = 0;
  for (int peer = 0; peer < t.size(); ++peer) {
    flows.push_back({peer, false, StressMessages(t.rank(), peer)});
    flows.push_back({peer, true, StressMessages(peer, t.rank())});
    left += flows[flows.size() - 2].messages.size() + flows.back().messages.size();
  }
  struct Open {
    const Flow* flow;
    size_t number;
    std::vector<std::byte> data;
  };
  std::mt19937 random(static_cast<unsigned>(t.rank()));
  size_t to_start = left;
  const int64_t give_up = NowNs() + int64_t{60} * 1000 * 1000 * 1000;
  while (left > 0) {
    PD_CHECK(NowNs() < give_up, "rank {}: {} requests left", t.rank(), left);
    Flow& flow = flows[random() % flows.size()];
    if (to_start > 0 && flow.next < flow.messages.size()) {
      const Message& message = flow.messages[flow.next];
      auto open = std::make_unique<Open>(Open{&flow, flow.next++, {}});
      open->data.resize(flow.is_receive ? message.bytes + random() % 2000 : message.bytes);
      if (!flow.is_receive) FillBytes(open->data, SeedOf(t.rank(), flow.peer, open->number));
      std::byte* data = open->data.data();
      const size_t room = open->data.size();
      Open* token = open.release();
      if (flow.is_receive) {
        t.StartReceive(flow.peer, message.tag, data, room, token);
      } else {
        t.StartSend(flow.peer, message.tag, data, room, token);
      }
      --to_start;
    }
    Completion done[8];
    const size_t count = t.Poll(done);
    for (const Completion& each : std::span(done, count)) {
      const std::unique_ptr<Open> open(static_cast<Open*>(each.token));
      const Flow& its = *open->flow;
      PD_CHECK(each.bytes == its.messages[open->number].bytes, "{} bytes, message of {}",
               each.bytes, its.messages[open->number].bytes);
      const int from = its.is_receive ? its.peer : t.rank();
      const int to = its.is_receive ? t.rank() : its.peer;
      PD_CHECK(HasBytes(open->data.data(), each.bytes, SeedOf(from, to, open->number)),
               "message {} from {} to {}", open->number, from, to);
      --left;
    }
    if (to_start == 0 && count == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void AllocatesNothing(Transport& t) {
  constexpr size_t kMessages = 8;
  const int right = (t.rank() + 1) % t.size(), left = (t.rank() + t.size() - 1) % t.size();
  const size_t lengths[kMessages] = {0, 1, 100, 1000, 3000, 5000, 20000, 100000};
  std::vector<std::vector<std::byte>> out(kMessages), in(kMessages);
  for (size_t i = 0; i < kMessages; ++i) {
    out[i].resize(lengths[i]);
    in[i].resize(lengths[i] + 1);
  }
  const auto send_all = [&] {
    for (size_t i = 0; i < kMessages; ++i) {
      t.StartSend(right, 3, out[i].data(), out[i].size(), TokenOf(i));
    }
  };
  const auto receive_all = [&] {
    for (size_t i = 0; i < kMessages; ++i) {
      t.StartReceive(left, 3, in[i].data(), in[i].size(), TokenOf(i));
    }
  };
  // "As many requests active as ever will be": a neighbour may be a round ahead for each rank, and
  // his barrier comes after all that he sent. Then as many receives before their sends.
  const int rounds = 2 * t.size();
  for (int i = 0; i < rounds; ++i) send_all();
  size_t done_early = Barrier(t).size();
  for (int i = 0; i < rounds; ++i) receive_all();
  WaitFor(t, 2 * rounds * kMessages - done_early);
  for (int i = 0; i < rounds; ++i) receive_all();
  done_early = Barrier(t).size();
  for (int i = 0; i < rounds; ++i) send_all();
  WaitFor(t, 2 * rounds * kMessages - done_early);
  Barrier(t);
  const int64_t before = AllocationsOfThisThread();
  Completion done[2 * kMessages];
  for (int i = 0; i < 200; ++i) {
    if (i % 2 == 0) receive_all();
    send_all();
    if (i % 2 != 0) receive_all();
    WaitInto(t, done);
  }
  const int64_t after = AllocationsOfThisThread();
  PD_CHECK(after == before, "{} allocations in 200 rounds", after - before);
}

}  // namespace

void FillBytes(std::vector<std::byte>& data, uint64_t seed) {
  for (size_t at = 0; at < data.size(); at += sizeof(uint64_t)) {
    const uint64_t word = Word(seed, at);
    std::memcpy(data.data() + at, &word, std::min(sizeof(word), data.size() - at));
  }
}

bool HasBytes(const std::byte* data, size_t bytes, uint64_t seed) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = Word(seed, at);
    if (std::memcmp(data + at, &word, std::min(sizeof(word), bytes - at)) != 0) return false;
  }
  return true;
}

std::vector<Completion> WaitFor(Transport& transport, size_t count) {
  std::vector<Completion> done(count);
  WaitInto(transport, done);
  return done;
}

std::vector<Completion> Barrier(Transport& transport) {
  std::vector<Completion> others;
  for (int step = 1; step < transport.size(); step *= 2) {
    const int to = (transport.rank() + step) % transport.size();
    const int from = (transport.rank() + transport.size() - step) % transport.size();
    transport.StartSend(to, kBarrierTag, nullptr, 0, &others);
    transport.StartReceive(from, kBarrierTag, nullptr, 0, &others);
    for (int own = 0; own < 2;) {
      Completion one[1];
      WaitInto(transport, one);
      if (one[0].token == &others) {
        ++own;
      } else {
        others.push_back(one[0]);
      }
    }
  }
  return others;
}

std::vector<TransportCase> TransportSuite(const SuiteOptions& options) {
  return {
      {"knows rank, size and host", KnowsWhereItIs},
      {"both neighbours may send first, whatever the length",
       [options](Transport& t) { BothNeighboursSendFirst(t, options); }},
      {"keeps the order of a pair and tag, sends first",
       [](Transport& t) { KeepsOrder(t, false); }},
      {"keeps the order of a pair and tag, receives first",
       [](Transport& t) { KeepsOrder(t, true); }},
      {"keeps tags apart", KeepsTagsApart},
      {"reports each request once, and no more than asked", ReportsNoMoreThanAsked},
      {"delivers what was sent under random load", SurvivesStress},
      {"allocates nothing in the steady state", AllocatesNothing},
  };
}

}  // namespace pd
