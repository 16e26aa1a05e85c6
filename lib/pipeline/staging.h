#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "pipeline/comm.h"
#include "pipeline/message.h"

namespace pd {

/// The border messages of one minibatch, one after another: what kernels read or write, and what
/// the transport does. On a host backend both are the same memory; on a device the host's side is
/// pinned memory of its own.
struct MessageSlot {
  Buffer memory, staging;
  std::vector<std::byte*> payloads;  ///< Dense, in the backend's memory.
  /// On the host's side: a header, and behind it the payload, unless the slot is direct.
  std::vector<std::byte*> headers;
  /// Payloads travel from and to the device's memory, and headers in messages of their own.
  bool direct = false;
  const char* filled_purpose = "";
  const char* read_purpose = "";
  std::unique_ptr<Ticket[]> tickets, header_tickets, acknowledgements;
  std::unique_ptr<Mark> uploaded;  ///< kUpload: the host's side is on the device.
  std::unique_ptr<Mark> read;      ///< kCompute: the last kernel has read the payloads.
  Opening free;                    ///< When the slot may be received into again.

  std::byte* host_payload(size_t i) const { return headers[i] + kHeaderBytes; }
};

/// Moves a worker's data between the memory of its device and the host's, and says when it is
/// there. All calls only queue work (of the copying queues, beside the computing one). With a host
/// backend nothing is copied, and all is there at once.
///
/// Who waits for whom: kDownload for kCompute, so that it copies what is made; kCompute for
/// kUpload, so that it reads what has come; kUpload for kCompute, before it overwrites what kernels
/// read; the communication thread for either copying queue, by notices. Memory that a message
/// leaves from is written again only after its ticket, so nobody else waits for kDownload.
class Staging {
 public:
  /// Both outlive this.
  Staging(Backend& backend, Comm& comm);
  /// When all that is queued is done.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// `bytes`: of each message, header included, as StageSetup::MessageBytes gives it. The purposes
  /// name what Fill and Read wait for.
  MessageSlot MakeSlot(const std::vector<size_t>& bytes, bool direct, const char* filled = "",
                       const char* read = "");
  /// The host's side of such a slot on a device.
  static size_t StagingBytes(const std::vector<size_t>& bytes, bool direct);

  /// Downloads from here on copy what the compute queue has made so far.
  void FollowCompute(const char* purpose);
  void Download(void* host, const void* device, size_t bytes);
  /// There when all downloads so far are done; before the first after FollowCompute, when the
  /// compute queue has got there.
  Opening Downloaded();
  /// `mark` is reached when all downloads so far are done.
  void MarkDownloads(Mark& mark, const char* purpose);
  /// What the compute queue does from here on finds `device` as `host` is now.
  void Upload(void* device, const void* host, size_t bytes, const char* purpose);

  // A slot's way: received or filled on the host, Fill, kernels, Read, received again.

  /// The payloads are on the host's side: the compute queue finds `bytes[i]` of each.
  void Fill(MessageSlot& slot, const std::vector<size_t>& bytes);
  /// The kernels that are queued were the last to read the payloads.
  void Read(MessageSlot& slot);
  /// Returns when the host may write the host's side again.
  void AwaitFree(const MessageSlot& slot, const char* purpose);

  Backend& backend() { return backend_; }

 private:
  Opening After(Queue queue, Gate& gate, uint64_t& count);

  Backend& backend_;
  Gate uploads_, downloads_;
  uint64_t uploads_asked_ = 0, downloads_asked_ = 0;
  std::unique_ptr<Mark> made_, uploaded_;
};

}  // namespace pd
