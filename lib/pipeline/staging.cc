#include "pipeline/staging.h"

#include <exception>

#include "base/log.h"

namespace pd {

Staging::Staging(Backend& backend, Comm& comm)
    : backend_(backend),
      uploads_(comm),
      downloads_(comm),
      made_(backend.MakeMark()),
      uploaded_(backend.MakeMark()) {}

Staging::~Staging() {
  for (const Queue queue : {Queue::kCompute, Queue::kUpload, Queue::kDownload}) {
    try {
      backend_.Record(queue, *made_, "end");
      backend_.WaitOnHost(*made_, "end");
    } catch (const std::exception& e) {
      // What failed first is on its way already.
      if (std::uncaught_exceptions() == 0) Warn("{}", e.what());
    }
  }
}

size_t Staging::StagingBytes(const std::vector<size_t>& bytes, bool direct) {
  size_t sum = 0;
  for (const size_t each : bytes) sum += direct ? kHeaderBytes : each;
  return sum;
}

MessageSlot Staging::MakeSlot(const std::vector<size_t>& bytes, bool direct, const char* filled,
                              const char* read) {
  MessageSlot slot;
  slot.filled_purpose = filled;
  slot.read_purpose = read;
  slot.direct = direct;
  slot.memory = backend_.Allocate(StagingBytes(bytes, false));
  if (backend_.on_device()) slot.staging = backend_.AllocateStaging(StagingBytes(bytes, direct));
  std::byte* at = slot.memory.data();
  std::byte* host = slot.staging.data();
  for (const size_t each : bytes) {
    slot.payloads.push_back(at + kHeaderBytes);
    slot.headers.push_back(backend_.on_device() ? host : at);
    at += each;
    host += direct ? kHeaderBytes : each;
  }
  slot.tickets = std::make_unique<Ticket[]>(bytes.size());
  slot.header_tickets = std::make_unique<Ticket[]>(bytes.size());
  slot.acknowledgements = std::make_unique<Ticket[]>(bytes.size());
  slot.uploaded = backend_.MakeMark();
  slot.read = backend_.MakeMark();
  return slot;
}

Opening Staging::After(Queue queue, Gate& gate, uint64_t& count) {
  if (!backend_.on_device()) return {};
  backend_.Notify(queue, &Gate::Open, &gate);
  return {&gate, ++count};
}

void Staging::FollowCompute(const char* purpose) {
  backend_.Record(Queue::kCompute, *made_, purpose);
  backend_.Wait(Queue::kDownload, *made_, purpose);
}

void Staging::Download(void* host, const void* device, size_t bytes) {
  backend_.Transfer(Queue::kDownload, host, device, bytes);
}

Opening Staging::Downloaded() { return After(Queue::kDownload, downloads_, downloads_asked_); }

void Staging::MarkDownloads(Mark& mark, const char* purpose) {
  backend_.Record(Queue::kDownload, mark, purpose);
}

void Staging::Upload(void* device, const void* host, size_t bytes, const char* purpose) {
  backend_.Transfer(Queue::kUpload, device, host, bytes);
  backend_.Record(Queue::kUpload, *uploaded_, purpose);
  backend_.Wait(Queue::kCompute, *uploaded_, purpose);
}

void Staging::Fill(MessageSlot& slot, const std::vector<size_t>& bytes) {
  if (slot.direct || slot.payloads.empty()) return;
  backend_.Wait(Queue::kUpload, *slot.read, slot.read_purpose);
  for (size_t i = 0; i < slot.payloads.size(); ++i) {
    backend_.Transfer(Queue::kUpload, slot.payloads[i], slot.host_payload(i), bytes[i]);
  }
  backend_.Record(Queue::kUpload, *slot.uploaded, slot.filled_purpose);
  backend_.Wait(Queue::kCompute, *slot.uploaded, slot.filled_purpose);
  slot.free = After(Queue::kUpload, uploads_, uploads_asked_);
}

void Staging::Read(MessageSlot& slot) {
  if (slot.payloads.empty()) return;
  if (slot.direct) {
    // By way of the download queue, so that the notice does not hold kernels up.
    FollowCompute(slot.read_purpose);
    slot.free = Downloaded();
  } else {
    backend_.Record(Queue::kCompute, *slot.read, slot.read_purpose);
  }
}

void Staging::AwaitFree(const MessageSlot& slot, const char* purpose) {
  backend_.WaitOnHost(*slot.uploaded, purpose);
}

}  // namespace pd
