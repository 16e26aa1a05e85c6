// Receives are not posted ahead: Poll takes each message that arrives with a matched probe, looks
// for the receive that waits for it, checks the length, and only then lets MPI write. Posted
// receives would leave the check to MPI, and Open MPI 4.1.4 writes a whole rendezvous message past
// the end of a buffer that is too small before it reports MPI_ERR_TRUNCATE. MPI makes progress only
// inside Poll anyway, so this costs no time that could be measured between two ranks, over TCP and
// shared memory, from 1 KB to 32 MB.
//
// A message longer than a piece is announced by a small message in its place in the order, which
// tells its length and the tag of its pieces. These travel on a communicator of their own, into
// receives that are posted for them, a few at a time. Between hosts a piece is short enough for
// Open MPI's TCP transport to send it without asking: the answers to what it asks wait behind the
// data that goes the other way, and the two directions take turns.
//
// MPI stores what arrives before its receive. So the announcement is a synchronous send, which ends
// when the receiver has a receive for the message, and until then kAhead pieces at most go ahead:
// they bridge the time that the answer takes.
#include "transport/mpi/mpi_transport.h"

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <climits>
#include <cstdint>
#include <deque>
#include <exception>
#include <vector>

#include "base/log.h"
#include "transport/mpi/check.h"

namespace pd {
namespace {

constexpr int kUnderWay = 8;  // pieces to a peer, and receives posted for a message's pieces
constexpr int kAhead = 4;     // pieces to a peer that may wait there for their receives

/// What the receiver must know of a message in pieces.
struct Announcement {
  uint64_t bytes = 0;
  int64_t pieces_tag = 0;
};

/// One send or receive that a caller started.
struct Operation {
  bool is_receive = false;
  int peer = 0, tag = 0;
  std::byte* data = nullptr;
  size_t max_bytes = 0;  ///< Of a receive.
  size_t bytes = 0;      ///< Of the message.
  size_t started = 0;    ///< How much of it MPI was given.
  int open = 0;          ///< MPI requests in flight.
  Announcement announcement = {};
  bool answered = false;  ///< Of a send in pieces: the receiver is ready.
  int ahead = 0;          ///< Of a send: pieces that did not wait for that.
  Transport::Token token = nullptr;
};

/// What an MPI request moves.
struct Part {
  Operation* operation = nullptr;
  bool is_announcement = false;
};

/// What arrived before its receive was started.
struct Arrival {
  MPI_Message message = MPI_MESSAGE_NULL;
  int bytes = 0;
  bool is_announcement = false;
};

/// What comes from one peer with one tag; one of the two queues is empty. Both keep their memory.
struct Channel {
  int peer = 0, tag = 0;
  std::vector<Operation*> receives;
  std::vector<Arrival> arrivals;
};

/// What goes to one peer in pieces.
struct Lane {
  size_t piece_bytes = 0;
  std::vector<Operation*> sends;  ///< Those that MPI was not given all of, oldest first.
  int under_way = 0;              ///< Pieces in flight.
  int ahead = 0;                  ///< Pieces of messages that are not answered.
  int messages = 0;               ///< So far, modulo the number of tags.
};

}  // namespace

struct MpiTransport::State {
  Operation* NewOperation(int peer, int tag, Token token);
  Channel& ChannelOf(int peer, int tag);
  void SetPieces(const MpiPieces& pieces);
  void AddRequest(MPI_Request request, Part part);
  void RemoveRequests(int count);
  void TakeArrivals();
  void Receive(Channel& channel, Arrival arrival);
  void CheckLength(const Operation& receive) const;
  void SendWhole(Operation* send);
  void Announce(Operation* send);
  void Pump(Lane& lane);
  void StartPiece(Operation* operation);
  bool Test();
  void End(Part part);

  MPI_Comm comm = MPI_COMM_NULL;         ///< Messages and announcements.
  MPI_Comm pieces_comm = MPI_COMM_NULL;  ///< Not probed.
  int rank = 0, size = 0, local_rank = 0, local_size = 0;
  int max_tag = 0;  ///< Of callers; an announcement's tag is its message's + max_tag + 1.
  char host[MPI_MAX_PROCESSOR_NAME + 1] = "";

  std::deque<Operation> operations;  ///< All of them; they never move.
  std::vector<Operation*> free;
  std::vector<Channel> channels;
  std::vector<Lane> lanes;  ///< One a peer.
  // MPI requests in flight and, beside each, what it moves; then what MPI_Testsome writes.
  std::vector<MPI_Request> requests;
  std::vector<Part> parts;
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
  std::vector<Completion> finished;  ///< Not yet reported: from `reported` on.
  size_t reported = 0;
};

Operation* MpiTransport::State::NewOperation(int peer, int tag, Token token) {
  PD_CHECK(peer >= 0 && peer < size, "peer {} of {}", peer, size);
  PD_CHECK(tag >= 0 && tag <= max_tag, "tag {}, the largest is {}", tag, max_tag);
  if (free.empty()) {
    free.push_back(&operations.emplace_back());
    // Room for all, so that finishing them never allocates.
    free.reserve(operations.size());
    finished.reserve(operations.size());
  }
  Operation* operation = free.back();
  free.pop_back();
  *operation = {.peer = peer, .tag = tag, .token = token};
  return operation;
}

Channel& MpiTransport::State::ChannelOf(int peer, int tag) {
  for (Channel& channel : channels) {
    if (channel.peer == peer && channel.tag == tag) return channel;
  }
  constexpr size_t kUsual = 32;
  Channel& channel = channels.emplace_back();
  channel.peer = peer;
  channel.tag = tag;
  channel.receives.reserve(kUsual);
  channel.arrivals.reserve(kUsual);
  return channel;
}

void MpiTransport::State::AddRequest(MPI_Request request, Part part) {
  ++part.operation->open;
  requests.push_back(request);
  parts.push_back(part);
  if (requests.size() > indices.size()) {
    indices.resize(requests.capacity());
    statuses.resize(requests.capacity());
  }
}

void MpiTransport::State::TakeArrivals() {
  while (true) {
    int found = 0;
    MPI_Status status;
    Arrival arrival;
    PD_MPI(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &arrival.message, &status));
    if (found == 0) return;
    PD_MPI(MPI_Get_count(&status, MPI_BYTE, &arrival.bytes));
    arrival.is_announcement = status.MPI_TAG > max_tag;
    const int tag = arrival.is_announcement ? status.MPI_TAG - max_tag - 1 : status.MPI_TAG;
    Channel& channel = ChannelOf(status.MPI_SOURCE, tag);
    if (channel.receives.empty()) {
      channel.arrivals.push_back(arrival);
    } else {
      Receive(channel, arrival);
    }
  }
}

// Gives `arrival` to the oldest receive of `channel`.
void MpiTransport::State::Receive(Channel& channel, Arrival arrival) {
  Operation* receive = channel.receives.front();
  channel.receives.erase(channel.receives.begin());
  void* to = &receive->announcement;
  if (!arrival.is_announcement) {
    to = receive->data;
    receive->bytes = receive->started = static_cast<size_t>(arrival.bytes);
    CheckLength(*receive);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  PD_MPI(MPI_Imrecv(to, arrival.bytes, MPI_BYTE, &arrival.message, &request));
  AddRequest(request, {receive, arrival.is_announcement});
}

void MpiTransport::State::CheckLength(const Operation& receive) const {
  if (receive.bytes <= receive.max_bytes) return;
  Throw(ErrorCode::kComm,
        "rank {}: message from rank {} with tag {}: expected at most {} bytes, found {}", rank,
        receive.peer, receive.tag, receive.max_bytes, receive.bytes);
}

void MpiTransport::State::SendWhole(Operation* send) {
  send->started = send->bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  PD_MPI(MPI_Isend(send->data, static_cast<int>(send->bytes), MPI_BYTE, send->peer, send->tag, comm,
                   &request));
  AddRequest(request, {send});
}

void MpiTransport::State::Announce(Operation* send) {
  Lane& lane = lanes[send->peer];
  // Its own tag keeps the pieces of a message apart from those of all others that can be in flight.
  send->announcement = {.bytes = send->bytes, .pieces_tag = lane.messages};
  lane.messages = lane.messages == max_tag ? 0 : lane.messages + 1;
  MPI_Request request = MPI_REQUEST_NULL;
  PD_MPI(MPI_Issend(&send->announcement, sizeof(Announcement), MPI_BYTE, send->peer,
                    send->tag + max_tag + 1, comm, &request));
  AddRequest(request, {send, true});
  lane.sends.push_back(send);
  Pump(lane);
}

// Starts the next pieces, as many as may be under way: those of the oldest message that may go on.
void MpiTransport::State::Pump(Lane& lane) {
  size_t kept = 0;
  for (Operation* send : lane.sends) {
    while (lane.under_way < kUnderWay && send->started < send->bytes &&
           (send->answered || lane.ahead < kAhead)) {
      if (!send->answered) {
        ++lane.ahead;
        ++send->ahead;
      }
      ++lane.under_way;
      StartPiece(send);
    }
    if (send->started < send->bytes) lane.sends[kept++] = send;
  }
  lane.sends.resize(kept);
}

void MpiTransport::State::StartPiece(Operation* operation) {
  const auto length = static_cast<int>(
      std::min(lanes[operation->peer].piece_bytes, operation->bytes - operation->started));
  std::byte* data = operation->data + operation->started;
  operation->started += static_cast<size_t>(length);
  const auto tag = static_cast<int>(operation->announcement.pieces_tag);
  MPI_Request request = MPI_REQUEST_NULL;
  if (operation->is_receive) {
    PD_MPI(MPI_Irecv(data, length, MPI_BYTE, operation->peer, tag, pieces_comm, &request));
  } else {
    PD_MPI(MPI_Isend(data, length, MPI_BYTE, operation->peer, tag, pieces_comm, &request));
  }
  AddRequest(request, {operation});
}

// Returns whether anything ended.
bool MpiTransport::State::Test() {
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count,
                                indices.data(), statuses.data());
  if (code != MPI_ERR_IN_STATUS) PD_MPI(code);
  if (count == MPI_UNDEFINED || count == 0) return false;
  for (int i = 0; i < count; ++i) {
    const Part part = parts[indices[i]];
    if (code == MPI_ERR_IN_STATUS) {
      CheckMpi(statuses[i].MPI_ERROR, part.operation->is_receive ? "MPI_Imrecv" : "MPI_Isend");
    }
    End(part);
  }
  RemoveRequests(count);
  return true;
}

// One request of an operation has ended: starts what comes next.
void MpiTransport::State::End(Part part) {
  Operation* operation = part.operation;
  Lane& lane = lanes[operation->peer];
  --operation->open;
  if (operation->is_receive) {
    if (part.is_announcement) {
      operation->bytes = operation->announcement.bytes;
      CheckLength(*operation);
    }
    while (operation->open < kUnderWay && operation->started < operation->bytes) {
      StartPiece(operation);
    }
  } else if (part.is_announcement) {
    operation->answered = true;
    lane.ahead -= operation->ahead;
    Pump(lane);
  } else if (operation->bytes > lane.piece_bytes) {
    --lane.under_way;
    Pump(lane);
  }
  if (operation->open > 0 || operation->started < operation->bytes) return;
  finished.push_back({operation->token, operation->bytes});
  free.push_back(operation);
}

// The last requests take the places of those that are done: from the highest place down, so that
// what moves is never itself done.
void MpiTransport::State::RemoveRequests(int count) {
  std::sort(indices.begin(), indices.begin() + count);
  for (int i = count - 1; i >= 0; --i) {
    requests[indices[i]] = requests.back();
    parts[indices[i]] = parts.back();
    requests.pop_back();
    parts.pop_back();
  }
}

// Finds this rank's place on its host, and who else is there.
void MpiTransport::State::SetPieces(const MpiPieces& pieces) {
  MPI_Comm local = MPI_COMM_NULL;
  PD_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local));
  PD_MPI(MPI_Comm_rank(local, &local_rank));
  PD_MPI(MPI_Comm_size(local, &local_size));
  std::vector<int> local_ranks(static_cast<size_t>(local_size));
  PD_MPI(MPI_Allgather(&rank, 1, MPI_INT, local_ranks.data(), 1, MPI_INT, local));
  PD_MPI(MPI_Comm_free(&local));
  lanes.resize(static_cast<size_t>(size));
  for (Lane& lane : lanes) lane.piece_bytes = pieces.far_bytes;
  for (const int peer : local_ranks) lanes[peer].piece_bytes = pieces.near_bytes;
}

MpiTransport::MpiTransport(MpiSession& /*session*/, const MpiPieces& pieces)
    : state_(std::make_unique<State>()) {
  for (const size_t bytes : {pieces.near_bytes, pieces.far_bytes}) {
    PD_CHECK(bytes >= 1 && bytes <= size_t{INT_MAX}, "pieces of {} bytes", bytes);
  }
  State& s = *state_;
  PD_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &s.comm));
  PD_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &s.pieces_comm));
  PD_MPI(MPI_Comm_rank(s.comm, &s.rank));
  PD_MPI(MPI_Comm_size(s.comm, &s.size));
  int length = 0;
  PD_MPI(MPI_Get_processor_name(s.host, &length));
  void* max_tag = nullptr;
  int found = 0;
  PD_MPI(MPI_Comm_get_attr(s.comm, MPI_TAG_UB, &max_tag, &found));
  // 32767 is what the standard promises; the upper half is for announcements.
  s.max_tag = (found != 0 ? *static_cast<int*>(max_tag) : 32767) / 2;
  s.SetPieces(pieces);
}

MpiTransport::~MpiTransport() {
  // Freeing is collective: not when an error takes this rank elsewhere than the others.
  if (std::uncaught_exceptions() > 0) return;
  size_t left = state_->operations.size() - state_->free.size();
  for (const Channel& channel : state_->channels) left += channel.arrivals.size();
  if (left > 0) {
    Warn("rank {}: {} messages were never finished", state_->rank, left);
  } else {
    MPI_Comm_free(&state_->pieces_comm);
    MPI_Comm_free(&state_->comm);
  }
}

int MpiTransport::rank() const { return state_->rank; }
int MpiTransport::size() const { return state_->size; }
const char* MpiTransport::host() const { return state_->host; }
bool MpiTransport::takes_device_memory() const {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}
int MpiTransport::local_rank() const { return state_->local_rank; }
int MpiTransport::local_size() const { return state_->local_size; }

void MpiTransport::StartSend(int peer, int tag, const void* data, size_t bytes, Token token) {
  State& s = *state_;
  Operation* send = s.NewOperation(peer, tag, token);
  send->data = static_cast<std::byte*>(const_cast<void*>(data));  // MPI only reads it.
  send->bytes = bytes;
  if (bytes <= s.lanes[peer].piece_bytes) {
    s.SendWhole(send);
  } else {
    s.Announce(send);
  }
}

void MpiTransport::StartReceive(int peer, int tag, void* data, size_t max_bytes, Token token) {
  State& s = *state_;
  Operation* receive = s.NewOperation(peer, tag, token);
  receive->is_receive = true;
  receive->data = static_cast<std::byte*>(data);
  receive->max_bytes = max_bytes;
  Channel& channel = s.ChannelOf(peer, tag);
  channel.receives.push_back(receive);
  if (channel.arrivals.empty()) return;
  const Arrival arrival = channel.arrivals.front();
  channel.arrivals.erase(channel.arrivals.begin());
  s.Receive(channel, arrival);
}

size_t MpiTransport::Poll(std::span<Completion> done) {
  State& s = *state_;
  if (s.reported == s.finished.size()) {
    s.finished.clear();
    s.reported = 0;
    // Whoever is told of nothing may sleep now: not while pieces come and go.
    do {
      s.TakeArrivals();
    } while (s.Test() && s.finished.empty());
  }
  const size_t count = std::min(done.size(), s.finished.size() - s.reported);
  std::copy_n(s.finished.begin() + static_cast<ptrdiff_t>(s.reported), count, done.begin());
  s.reported += count;
  return count;
}

void MpiTransport::Abort(int status) {
  MPI_Abort(state_->comm, status);
  Throw(ErrorCode::kComm, "MPI_Abort returned");
}

}  // namespace pd
