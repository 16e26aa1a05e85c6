// Receives are not posted ahead: Poll takes each message that arrives with a matched probe, looks
// for the receive that waits for it, checks the length, and only then lets MPI write. Posted
// receives would leave the check to MPI, and Open MPI 4.1.4 writes a whole rendezvous message past
// the end of a buffer that is too small before it reports MPI_ERR_TRUNCATE. MPI makes progress only
// inside Poll anyway, so this costs no time that could be measured between two ranks, over TCP and
// shared memory, from 1 KB to 32 MB.
//
// A message travels as pieces of exactly piece_bytes and one last piece that is shorter, perhaps
// empty, so that the receiver knows where it ends without a header: below piece_bytes, which is
// every message of usual size, it is one MPI message. All pieces of a send start at once, hence
// nothing with the same peer and tag comes between them.
#include "transport/mpi/mpi_transport.h"

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <deque>
#include <exception>
#include <vector>

#include "base/log.h"
#include "transport/mpi/check.h"

namespace pd {
namespace {

/// One send or receive that a caller started.
struct Operation {
  bool is_receive = false;
  std::byte* data = nullptr;  ///< Of a receive.
  size_t max_bytes = 0;       ///< Of a receive.
  size_t bytes = 0;           ///< Of the message; of a receive: of its pieces found so far.
  int open_pieces = 0;        ///< Pieces that MPI is moving.
  bool last_found = true;     ///< Of a receive: whether its last piece was found.
  Transport::Token token = nullptr;
};

/// A piece that arrived before its receive was started.
struct Arrival {
  MPI_Message message = MPI_MESSAGE_NULL;
  int bytes = 0;
};

/// What comes from one peer with one tag; one of the two queues is empty. Both keep their memory.
struct Channel {
  int peer = 0, tag = 0;
  std::vector<Operation*> receives;
  std::vector<Arrival> arrivals;
};

}  // namespace

struct MpiTransport::State {
  explicit State(size_t piece) : piece_bytes(piece) {}

  Operation* NewOperation(int peer, int tag, Token token);
  Channel& ChannelOf(int peer, int tag);
  void AddRequest(MPI_Request request, Operation* owner);
  void RemoveRequests(int count);
  void TakeArrivals();
  void ReceivePiece(Channel& channel, Arrival piece);
  void Test();
  void Finish(Operation* operation);

  const size_t piece_bytes;
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 0, local_rank = 0, local_size = 0, max_tag = 0;
  char host[MPI_MAX_PROCESSOR_NAME + 1] = "";

  std::deque<Operation> operations;  ///< All of them; they never move.
  std::vector<Operation*> free;
  std::vector<Channel> channels;
  // MPI requests in flight and, beside each, whose it is; then what MPI_Testsome writes.
  std::vector<MPI_Request> requests;
  std::vector<Operation*> owners;
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
  std::vector<Completion> finished;  ///< Not yet reported: from `reported` on.
  size_t reported = 0;
};

Operation* MpiTransport::State::NewOperation(int peer, int tag, Token token) {
  PD_CHECK(peer >= 0 && peer < size, "peer {} of {}", peer, size);
  PD_CHECK(tag >= 0 && tag <= max_tag, "tag {}, MPI's largest is {}", tag, max_tag);
  if (free.empty()) {
    free.push_back(&operations.emplace_back());
    // Room for all, so that finishing them never allocates.
    free.reserve(operations.size());
    finished.reserve(operations.size());
  }
  Operation* operation = free.back();
  free.pop_back();
  *operation = {.token = token};
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

void MpiTransport::State::AddRequest(MPI_Request request, Operation* owner) {
  ++owner->open_pieces;
  requests.push_back(request);
  owners.push_back(owner);
  if (requests.size() > indices.size()) {
    indices.resize(requests.capacity());
    statuses.resize(requests.capacity());
  }
}

void MpiTransport::State::TakeArrivals() {
  while (true) {
    int found = 0;
    MPI_Status status;
    Arrival piece;
    PD_MPI(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &piece.message, &status));
    if (found == 0) return;
    PD_MPI(MPI_Get_count(&status, MPI_BYTE, &piece.bytes));
    Channel& channel = ChannelOf(status.MPI_SOURCE, status.MPI_TAG);
    if (channel.receives.empty()) {
      channel.arrivals.push_back(piece);
    } else {
      ReceivePiece(channel, piece);
    }
  }
}

// Gives `piece` to the oldest receive of `channel`, which stays there until its last piece.
void MpiTransport::State::ReceivePiece(Channel& channel, Arrival piece) {
  Operation* receive = channel.receives.front();
  const auto bytes = static_cast<size_t>(piece.bytes);
  receive->last_found = bytes < piece_bytes;
  if (bytes > receive->max_bytes - receive->bytes) {
    Throw(ErrorCode::kComm,
          "rank {}: message from rank {} with tag {}: expected at most {} bytes, found {}{}", rank,
          channel.peer, channel.tag, receive->max_bytes, receive->bytes + bytes,
          receive->last_found ? "" : " or more");
  }
  MPI_Request request = MPI_REQUEST_NULL;
  PD_MPI(
      MPI_Imrecv(receive->data + receive->bytes, piece.bytes, MPI_BYTE, &piece.message, &request));
  receive->bytes += bytes;
  AddRequest(request, receive);
  if (receive->last_found) channel.receives.erase(channel.receives.begin());
}

void MpiTransport::State::Test() {
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count,
                                indices.data(), statuses.data());
  if (code != MPI_ERR_IN_STATUS) PD_MPI(code);
  if (count == MPI_UNDEFINED || count == 0) return;
  for (int i = 0; i < count; ++i) {
    Operation* operation = owners[indices[i]];
    if (code == MPI_ERR_IN_STATUS) {
      CheckMpi(statuses[i].MPI_ERROR, operation->is_receive ? "MPI_Imrecv" : "MPI_Isend");
    }
    if (--operation->open_pieces == 0 && operation->last_found) Finish(operation);
  }
  RemoveRequests(count);
}

// The last requests take the places of those that are done: from the highest place down, so that
// what moves is never itself done.
void MpiTransport::State::RemoveRequests(int count) {
  std::sort(indices.begin(), indices.begin() + count);
  for (int i = count - 1; i >= 0; --i) {
    requests[indices[i]] = requests.back();
    owners[indices[i]] = owners.back();
    requests.pop_back();
    owners.pop_back();
  }
}

void MpiTransport::State::Finish(Operation* operation) {
  finished.push_back({operation->token, operation->bytes});
  free.push_back(operation);
}

MpiTransport::MpiTransport(MpiSession& /*session*/, size_t piece_bytes)
    : state_(std::make_unique<State>(piece_bytes)) {
  PD_CHECK(piece_bytes >= 1 && piece_bytes <= size_t{INT_MAX}, "pieces of {} bytes", piece_bytes);
  State& s = *state_;
  PD_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &s.comm));
  PD_MPI(MPI_Comm_rank(s.comm, &s.rank));
  PD_MPI(MPI_Comm_size(s.comm, &s.size));
  int length = 0;
  PD_MPI(MPI_Get_processor_name(s.host, &length));
  void* max_tag = nullptr;
  int found = 0;
  PD_MPI(MPI_Comm_get_attr(s.comm, MPI_TAG_UB, &max_tag, &found));
  s.max_tag = found != 0 ? *static_cast<int*>(max_tag) : 32767;  // What the standard promises.
  MPI_Comm local = MPI_COMM_NULL;
  PD_MPI(MPI_Comm_split_type(s.comm, MPI_COMM_TYPE_SHARED, s.rank, MPI_INFO_NULL, &local));
  PD_MPI(MPI_Comm_rank(local, &s.local_rank));
  PD_MPI(MPI_Comm_size(local, &s.local_size));
  PD_MPI(MPI_Comm_free(&local));
}

MpiTransport::~MpiTransport() {
  // Freeing is collective: not when an error takes this rank elsewhere than the others.
  if (std::uncaught_exceptions() > 0) return;
  size_t left = state_->requests.size();
  for (const Channel& channel : state_->channels) {
    left += channel.receives.size() + channel.arrivals.size();
  }
  if (left > 0) {
    Warn("rank {}: {} messages were never finished", state_->rank, left);
  } else {
    MPI_Comm_free(&state_->comm);
  }
}

int MpiTransport::rank() const { return state_->rank; }
int MpiTransport::size() const { return state_->size; }
const char* MpiTransport::host() const { return state_->host; }
int MpiTransport::local_rank() const { return state_->local_rank; }
int MpiTransport::local_size() const { return state_->local_size; }

void MpiTransport::StartSend(int peer, int tag, const void* data, size_t bytes, Token token) {
  State& s = *state_;
  Operation* send = s.NewOperation(peer, tag, token);
  send->bytes = bytes;
  const auto* begin = static_cast<const std::byte*>(data);
  size_t length = s.piece_bytes;
  for (size_t at = 0; length == s.piece_bytes; at += length) {
    length = std::min(s.piece_bytes, bytes - at);
    MPI_Request request = MPI_REQUEST_NULL;
    PD_MPI(MPI_Isend(begin + at, static_cast<int>(length), MPI_BYTE, peer, tag, s.comm, &request));
    s.AddRequest(request, send);
  }
}

void MpiTransport::StartReceive(int peer, int tag, void* data, size_t max_bytes, Token token) {
  State& s = *state_;
  Operation* receive = s.NewOperation(peer, tag, token);
  receive->is_receive = true;
  receive->data = static_cast<std::byte*>(data);
  receive->max_bytes = max_bytes;
  receive->last_found = false;
  Channel& channel = s.ChannelOf(peer, tag);
  channel.receives.push_back(receive);
  while (!channel.arrivals.empty() && !channel.receives.empty()) {
    const Arrival piece = channel.arrivals.front();
    channel.arrivals.erase(channel.arrivals.begin());
    s.ReceivePiece(channel, piece);
  }
}

size_t MpiTransport::Poll(std::span<Completion> done) {
  State& s = *state_;
  if (s.reported == s.finished.size()) {
    s.finished.clear();
    s.reported = 0;
    s.TakeArrivals();
    s.Test();
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
