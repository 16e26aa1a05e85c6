// The part of a worker that exchanges messages with other stages. A message has a header, which is
// written and checked on the host, and a payload, which kernels make and read. Through the host
// they are one message; direct ones, whose payload stays on the device, are two.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "pipeline/worker.h"

namespace pd {

void Worker::MakeSlots() {
  const std::vector<TensorId>& inputs = setup_.full().inputs();
  for (const TensorId t : inputs) {
    int tag = -1;
    for (const int m : spec_.cut->Incoming(stage_, false)) {
      if (MessageAt(m).tensor == t) tag = m;
    }
    input_tags_.push_back(tag);
  }
  payload_bytes_.reserve(std::max(inputs.size(), setup_.gradients_in().size()));
  const bool direct = spec_.direct_messages;
  for (int i = 0; i < setup_.input_slots(); ++i) {
    inputs_.push_back(staging_.MakeSlot(setup_.InputBytes(), direct && stage_ > 0,
                                        "inputs uploaded", "inputs read"));
  }
  const size_t sent = setup_.outputs().size();  // one a tensor and reader
  for (int i = 0; i < spec_.shape.stages[static_cast<size_t>(stage_)].in_flight; ++i) {
    outputs_.push_back(staging_.MakeSlot(setup_.OutputBytes(), direct));
    outputs_.back().tickets = std::make_unique<Ticket[]>(sent);
    outputs_.back().header_tickets = std::make_unique<Ticket[]>(sent);
    outputs_.back().acknowledgements = std::make_unique<Ticket[]>(sent);
  }
  for (int i = 0; i < kGradientBuffers; ++i) {
    gradients_in_.push_back(staging_.MakeSlot(setup_.MessageBytes(setup_.gradients_in()), direct,
                                              "gradients uploaded", "gradients read"));
    gradients_out_.push_back(
        staging_.MakeSlot(setup_.MessageBytes(setup_.gradients_out()), direct));
  }
}

// ---- Receiving.

void Worker::PostReceive(MessageSlot& slot, size_t i, const BorderMessage& message, int64_t b) {
  const int peer = PeerOf(message.from, b);
  const size_t bytes = setup_.MessageBytes(message.tensor);
  if (slot.direct) {
    comm_.Receive(peer, HeaderTag(message), slot.headers[i], kHeaderBytes, slot.header_tickets[i],
                  slot.free);
    comm_.Receive(peer, kTagBorder + message.tag, slot.payloads[i], bytes - kHeaderBytes,
                  slot.tickets[i], slot.free);
  } else {
    comm_.Receive(peer, kTagBorder + message.tag, slot.headers[i], bytes, slot.tickets[i],
                  slot.free);
  }
}

void Worker::PostInputs(int64_t k) {
  if (k >= local_minibatches_) return;
  const int64_t b = k * replicas_ + replica_;
  MessageSlot& slot = InputsOf(b);
  for (size_t i = 0; i < input_tags_.size(); ++i) {
    if (input_tags_[i] >= 0) PostReceive(slot, i, MessageAt(input_tags_[i]), b);
  }
}

void Worker::PostGradients(int64_t k) {
  if (k >= local_minibatches_) return;
  const int64_t b = k * replicas_ + replica_;
  MessageSlot& slot = GradientsIn(b);
  for (size_t i = 0; i < slot.payloads.size(); ++i) {
    PostReceive(slot, i, MessageAt(setup_.gradients_in()[i]), b);
  }
}

void Worker::AwaitMessage(MessageSlot& slot, size_t i, const BorderMessage& message, int64_t b,
                          const char* action) {
  const WaitReason reason{action, RunNumber(b), PeerOf(message.from, b)};
  comm_.Wait(slot.tickets[i], reason);
  size_t bytes = slot.tickets[i].bytes();
  if (slot.direct) {
    comm_.Wait(slot.header_tickets[i], reason);
    bytes += slot.header_tickets[i].bytes();
  }
  CheckMessage(slot.headers[i], bytes, message, b);
}

void Worker::CheckMessage(const std::byte* at, size_t bytes, const BorderMessage& message,
                          int64_t b) const {
  MessageHeader header;
  std::memcpy(&header, at, sizeof header);
  const MessageHeader expected{SequenceOf(segment_index_, b), SamplesIn(b), message.tensor};
  const size_t expected_bytes =
      kHeaderBytes + spec_.model->spec(message.tensor).Bytes(expected.samples);
  PD_CHECK(
      header == expected && bytes == expected_bytes,
      "a message of another minibatch or size: expected {:x} of tensor {}, {} samples, {} bytes, "
      "found {:x} of tensor {}, {} samples, {} bytes",
      expected.sequence, expected.tensor, expected.samples, expected_bytes, header.sequence,
      header.tensor, header.samples, bytes);
}

void Worker::ReceiveInputs(int64_t b) {
  MessageSlot& slot = InputsOf(b);
  payload_bytes_.clear();
  for (const TensorId t : setup_.full().inputs()) {
    payload_bytes_.push_back(spec_.model->spec(t).Bytes(SamplesIn(b)));
  }
  if (stage_ == 0) {
    Load(slot, b);
  } else {
    for (size_t i = 0; i < slot.payloads.size(); ++i) {
      const BorderMessage& message = MessageAt(input_tags_[i]);
      AwaitMessage(slot, i, message, b, "receive inputs");
      if (!Acknowledges(message)) continue;
      const int peer = PeerOf(message.from, b);
      comm_.Wait(slot.acknowledgements[i], {"acknowledge inputs", RunNumber(b), peer});
      comm_.Send(peer, AcknowledgementTag(message), nullptr, 0, slot.acknowledgements[i]);
    }
  }
  staging_.Fill(slot, payload_bytes_);
}

void Worker::Load(MessageSlot& slot, int64_t b) {
  const Minibatch& minibatch = segment_.loader->Next();
  PD_CHECK(minibatch.samples == SamplesIn(b), "the loader gave {} samples for minibatch {}, not {}",
           minibatch.samples, b, SamplesIn(b));
  staging_.AwaitFree(slot, "inputs loaded");
  for (size_t i = 0; i < slot.payloads.size(); ++i) {
    const TensorId t = setup_.full().inputs()[i];
    std::memcpy(slot.host_payload(i), minibatch.fields[static_cast<size_t>(t)], payload_bytes_[i]);
  }
}

void Worker::ReceiveGradients(int64_t b) {
  MessageSlot& slot = GradientsIn(b);
  payload_bytes_.clear();
  for (size_t i = 0; i < slot.payloads.size(); ++i) {
    const BorderMessage& message = MessageAt(setup_.gradients_in()[i]);
    AwaitMessage(slot, i, message, b, "receive gradients");
    payload_bytes_.push_back(spec_.model->spec(message.tensor).Bytes(SamplesIn(b)));
  }
  staging_.Fill(slot, payload_bytes_);
}

// A stage that no gradient comes back to, and every stage in an evaluation, would run ahead of its
// readers, and its messages would pile up in the transport without limit. So their readers
// acknowledge each input, and the stage has no more unacknowledged minibatches than minibatches in
// flight.
bool Worker::Acknowledges(const BorderMessage& message) const {
  return !segment_.training || !throttled_[static_cast<size_t>(message.from)];
}

// Behind the tags of the messages: those of their acknowledgements, then those of headers apart.
int Worker::AcknowledgementTag(const BorderMessage& message) const {
  return kTagBorder + static_cast<int>(spec_.cut->messages.size()) + message.tag;
}

int Worker::HeaderTag(const BorderMessage& message) const {
  return kTagBorder + 2 * static_cast<int>(spec_.cut->messages.size()) + message.tag;
}

// ---- Sending.

// Waits until the outputs that lay in the slot of `b` have left. They have long since, unless
// nothing comes back for them.
void Worker::AwaitOutputs(int64_t b) {
  MessageSlot& slot = OutputsOf(b);
  for (size_t i = 0; i < setup_.outputs().size(); ++i) {
    const int peer = PeerOf(MessageAt(setup_.outputs()[i]).to, b);
    const WaitReason sent{"send earlier outputs,", RunNumber(b), peer};
    comm_.Wait(slot.tickets[i], sent);
    comm_.Wait(slot.header_tickets[i], sent);
    comm_.Wait(slot.acknowledgements[i],
               {"receive the acknowledgement of outputs before those", RunNumber(b), peer});
  }
}

// Writes the header of a tensor that the compute queue has just made, and takes the payload to the
// host unless it goes directly. The opening is there when the message may leave.
Opening Worker::HandOver(MessageSlot& slot, size_t i, TensorId tensor, size_t bytes,
                         const char* purpose) {
  const MessageHeader header{SequenceOf(segment_index_, current_), SamplesIn(current_), tensor};
  std::memcpy(slot.headers[i], &header, sizeof header);
  staging_.FollowCompute(purpose);
  if (!slot.direct) staging_.Download(slot.host_payload(i), slot.payloads[i], bytes);
  return staging_.Downloaded();
}

void Worker::SendTo(const BorderMessage& message, const MessageSlot& slot, size_t i, size_t bytes,
                    Opening opening, Ticket& ticket, Ticket& header_ticket) {
  const int peer = PeerOf(message.to, current_);
  const int tag = kTagBorder + message.tag;
  if (slot.direct) {
    comm_.Send(peer, HeaderTag(message), slot.headers[i], kHeaderBytes, header_ticket, opening);
    comm_.Send(peer, tag, slot.payloads[i], bytes, ticket, opening);
  } else {
    comm_.Send(peer, tag, slot.headers[i], kHeaderBytes + bytes, ticket, opening);
  }
}

void Worker::OutputReady(int output) {
  const auto o = static_cast<size_t>(output);
  const StageProgram::Output& what = current_program_->outputs()[o];
  MessageSlot& slot = OutputsOf(current_);
  const Opening made = HandOver(slot, o, what.tensor, what.bytes, "outputs made");
  for (size_t i = 0; i < setup_.outputs().size(); ++i) {
    const BorderMessage& border = MessageAt(setup_.outputs()[i]);
    if (border.tensor != what.tensor) continue;
    slot.tickets[i].SetLabel(ActionKind::kSendOutputs, RunNumber(current_));
    SendTo(border, slot, o, what.bytes, made, slot.tickets[i], slot.header_tickets[i]);
    if (!Acknowledges(border)) continue;
    comm_.Receive(PeerOf(border.to, current_), AcknowledgementTag(border), nullptr, 0,
                  slot.acknowledgements[i]);
  }
}

void Worker::GradientReady(int index) {
  const auto i = static_cast<size_t>(index);
  const BorderMessage& message = MessageAt(setup_.gradients_out()[i]);
  MessageSlot& slot = GradientsOut(current_);
  const size_t bytes = spec_.model->spec(message.tensor).Bytes(SamplesIn(current_));
  const Opening made = HandOver(slot, i, message.tensor, bytes, "gradients made");
  slot.tickets[i].SetLabel(ActionKind::kSendGradients, RunNumber(current_));
  SendTo(message, slot, i, bytes, made, slot.tickets[i], slot.header_tickets[i]);
}

void Worker::WaitForSends() {
  for (MessageSlot& slot : outputs_) {
    for (size_t i = 0; i < setup_.outputs().size(); ++i) {
      comm_.Wait(slot.tickets[i], {.action = "finish sending outputs"});
      comm_.Wait(slot.header_tickets[i], {.action = "finish sending outputs"});
      comm_.Wait(slot.acknowledgements[i], {.action = "receive acknowledgements"});
    }
  }
  for (MessageSlot& slot : gradients_out_) {
    for (size_t i = 0; i < slot.payloads.size(); ++i) {
      comm_.Wait(slot.tickets[i], {.action = "finish sending gradients"});
      comm_.Wait(slot.header_tickets[i], {.action = "finish sending gradients"});
    }
  }
  // All losses of the segment were finite: a checkpoint may follow.
  for (LossReport& report : reports_) comm_.Wait(report.seen, {.action = "look at the losses"});
}

}  // namespace pd
