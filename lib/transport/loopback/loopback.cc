// One mutex guards everything: queues of unmatched sends and receives at each destination, and
// finished requests at each worker. A request is a node that moves between these queues, so nothing
// is allocated once enough nodes exist. Copies are made under the mutex: simple, and good enough
// for threads that share one memory bus; between processes there is MPI.
#include "transport/loopback/loopback.h"

#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "base/error.h"

namespace pd {
namespace {

struct Request {
  Request* next = nullptr;
  int source = 0, destination = 0, tag = 0;
  const void* from = nullptr;  ///< Of a send: the caller's data, or `eager`.
  void* to = nullptr;          ///< Of a receive.
  size_t bytes = 0;            ///< Of the message; of an unmatched receive: what it has room for.
  Transport::Token token = nullptr;
  bool is_receive = false;
  bool owned_by_hub = false;  ///< An eager copy, whose sender was told already.
  size_t too_long = 0;        ///< Of a failed receive: bytes of the message that did not fit.
  std::unique_ptr<std::byte[]> eager;
};

/// First in, first out, linked through the requests themselves.
class Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void Push(Request* request) {
    request->next = nullptr;
    *tail_ = request;
    tail_ = &request->next;
  }

  Request* Pop() { return head_ == nullptr ? nullptr : Remove(&head_); }

  /// Takes out the requests for which `wanted` is true, and puts them into `others`.
  template <typename Wanted>
  void MoveTo(Queue& others, Wanted wanted) {
    for (Request** link = &head_; *link != nullptr;) {
      if (wanted(**link)) {
        others.Push(Remove(link));
      } else {
        link = &(*link)->next;
      }
    }
  }

  /// Takes out the oldest request of `source` and `tag`, or returns null.
  Request* Take(int source, int tag) {
    for (Request** link = &head_; *link != nullptr; link = &(*link)->next) {
      if ((*link)->source == source && (*link)->tag == tag) return Remove(link);
    }
    return nullptr;
  }

 private:
  Request* Remove(Request** link) {
    Request* request = *link;
    *link = request->next;
    if (*link == nullptr) tail_ = link;
    return request;
  }

  Request* head_ = nullptr;
  Request** tail_ = &head_;
};

}  // namespace

class LoopbackHub::Worker : public Transport {
 public:
  Worker(State& state, int rank) : state_(state), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override;
  const char* host() const override { return "loopback"; }
  bool takes_device_memory() const override;
  void StartSend(int peer, int tag, const void* data, size_t bytes, Token token) override;
  void StartReceive(int peer, int tag, void* data, size_t max_bytes, Token token) override;
  size_t Poll(std::span<Completion> done) override;
  void Withdraw() override;
  [[noreturn]] void Abort(int status) override;

 private:
  State& state_;
  const int rank_;
};

struct LoopbackHub::State {
  struct Mailbox {
    Queue sends, receives;  ///< Unmatched, to this worker.
    Queue finished;         ///< This worker's, not yet reported.
  };

  State(int size, size_t eager, Copy with)
      : eager_bytes(eager), copy(with), mailboxes(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) workers.emplace_back(*this, rank);
  }

  Request* NewRequest() {
    Request* request = free.Pop();
    if (request == nullptr) {
      request = &requests.emplace_back();
      request->eager = std::make_unique<std::byte[]>(eager_bytes);
    }
    return request;
  }

  void Check(int peer, int tag) const {
    if (abort_rank >= 0) {
      Throw(ErrorCode::kComm, "rank {} ended the job with status {}", abort_rank, abort_status);
    }
    PD_CHECK(peer >= 0 && peer < static_cast<int>(mailboxes.size()), "peer {} of {}", peer,
             mailboxes.size());
    PD_CHECK(tag >= 0, "tag {}", tag);
  }

  void Move(void* to, const void* from, size_t bytes) const {
    if (bytes == 0) return;
    if (copy != nullptr) {
      copy(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

  /// Gives the message of `send` to `receive`, and both to who started them.
  void Deliver(Request* send, Request* receive) {
    if (send->bytes > receive->bytes) {
      receive->too_long = send->bytes;
    } else {
      Move(receive->to, send->from, send->bytes);
      receive->bytes = send->bytes;
    }
    mailboxes[receive->destination].finished.Push(receive);
    if (send->owned_by_hub) {
      free.Push(send);
    } else {
      mailboxes[send->source].finished.Push(send);
    }
  }

  std::mutex mutex;
  const size_t eager_bytes;
  const Copy copy;
  std::vector<Mailbox> mailboxes;
  std::deque<Request> requests;  ///< All nodes; they never move.
  Queue free;
  int abort_rank = -1, abort_status = 0;
  std::deque<Worker> workers;
};

int LoopbackHub::Worker::size() const { return static_cast<int>(state_.mailboxes.size()); }

bool LoopbackHub::Worker::takes_device_memory() const { return state_.copy != nullptr; }

void LoopbackHub::Worker::StartSend(int peer, int tag, const void* data, size_t bytes,
                                    Token token) {
  const std::lock_guard lock(state_.mutex);
  state_.Check(peer, tag);
  auto& mailbox = state_.mailboxes[peer];
  const auto fill = [&](const void* from, bool owned_by_hub) {
    Request* request = state_.NewRequest();
    request->source = rank_;
    request->destination = peer;
    request->tag = tag;
    request->from = from;
    request->bytes = bytes;
    request->token = token;
    request->is_receive = false;
    request->owned_by_hub = owned_by_hub;
    return request;
  };
  if (Request* receive = mailbox.receives.Take(rank_, tag)) {
    state_.Deliver(fill(data, false), receive);
    return;
  }
  if (bytes >= state_.eager_bytes) {
    mailbox.sends.Push(fill(data, false));
    return;
  }
  Request* copy = fill(nullptr, true);
  state_.Move(copy->eager.get(), data, bytes);
  copy->from = copy->eager.get();
  mailbox.sends.Push(copy);
  state_.mailboxes[rank_].finished.Push(fill(data, false));
}

void LoopbackHub::Worker::StartReceive(int peer, int tag, void* data, size_t max_bytes,
                                       Token token) {
  const std::lock_guard lock(state_.mutex);
  state_.Check(peer, tag);
  Request* request = state_.NewRequest();
  request->source = peer;
  request->destination = rank_;
  request->tag = tag;
  request->to = data;
  request->bytes = max_bytes;
  request->token = token;
  request->is_receive = true;
  request->too_long = 0;
  auto& mailbox = state_.mailboxes[rank_];
  if (Request* send = mailbox.sends.Take(peer, tag)) {
    state_.Deliver(send, request);
  } else {
    mailbox.receives.Push(request);
  }
}

size_t LoopbackHub::Worker::Poll(std::span<Completion> done) {
  const std::lock_guard lock(state_.mutex);
  state_.Check(rank_, 0);
  size_t count = 0;
  while (count < done.size()) {
    Request* request = state_.mailboxes[rank_].finished.Pop();
    if (request == nullptr) break;
    state_.free.Push(request);
    if (request->is_receive && request->too_long > 0) {
      Throw(ErrorCode::kComm,
            "rank {}: message from rank {} with tag {}: expected at most {} bytes, found {}", rank_,
            request->source, request->tag, request->bytes, request->too_long);
    }
    done[count++] = {request->token, request->bytes};
  }
  return count;
}

void LoopbackHub::Worker::Withdraw() {
  const std::lock_guard lock(state_.mutex);
  for (State::Mailbox& mailbox : state_.mailboxes) {
    mailbox.sends.MoveTo(state_.free, [&](const Request& request) {
      return request.source == rank_ && !request.owned_by_hub;
    });
  }
  state_.mailboxes[rank_].receives.MoveTo(state_.free, [](const Request&) { return true; });
}

void LoopbackHub::Worker::Abort(int status) {
  const std::lock_guard lock(state_.mutex);
  state_.Check(rank_, 0);
  state_.abort_rank = rank_;
  state_.abort_status = status;
  Throw(ErrorCode::kComm, "rank {} ended the job with status {}", rank_, status);
}

LoopbackHub::LoopbackHub(int size, size_t eager_bytes, Copy copy) {
  PD_CHECK(size >= 1, "{} workers", size);
  state_ = std::make_unique<State>(size, eager_bytes, copy);
}

LoopbackHub::~LoopbackHub() = default;

Transport& LoopbackHub::transport(int rank) {
  PD_CHECK(rank >= 0 && rank < static_cast<int>(state_->workers.size()), "rank {} of {}", rank,
           state_->workers.size());
  return state_->workers[static_cast<size_t>(rank)];
}

}  // namespace pd
