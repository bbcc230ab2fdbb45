// The requester's end of a session: see data_plane.h.
#include "data_plane.h"

#include <cstring>

#include "persist/wire.h"

namespace perdure::server {
namespace {

/// The next completion of that kind; nothing if none comes.
std::optional<fabric::Completion> await(client::Session& session, fabric::Opcode opcode) {
  fabric::Completion completion;
  const Deadline deadline = soon();
  while (!deadline.passed()) {
    if (session.endpoint->poll({&completion, 1}) == 0) continue;
    if (completion.opcode == opcode || completion.error) return completion;
  }
  return std::nullopt;
}

}  // namespace

Deadline soon() { return Deadline::after(std::chrono::seconds{60}); }

std::optional<ErrorCode> run(client::Session& session, fabric::Device& device,
                             fabric::Opcode opcode, std::span<std::byte> bytes) {
  auto memory = device.register_memory(bytes, fabric::Access::Local);
  fabric::WorkRequest request;
  request.opcode = opcode;
  request.remote = session.remote;
  request.segments[0] = {bytes.data(), bytes.size(), memory->get()};
  request.segment_count = 1;
  const auto posted = session.endpoint->post({&request, 1});
  if (!posted.ok()) return posted.code();
  const auto completion = await(session, opcode);
  return completion ? completion->error : ErrorCode::TimedOut;
}

std::vector<std::byte> update_message(const client::Session& session, std::uint64_t sequence,
                                      std::uint64_t offset) {
  std::vector<std::byte> bytes(256);
  const std::vector<std::byte> payload(64, std::byte{5});
  const persist::Entry entry{offset, 64, persist::kCopy | persist::kFlush};
  const std::span<const std::byte> part(payload);
  persist::MessageHeader header;
  header.entries = 1;
  header.flags = persist::kAckWanted;
  header.sequence = sequence;
  header.payload_bytes = 64;
  header.session = static_cast<std::uint32_t>(session.id);
  persist::put_entry(bytes.data(), 0, entry);
  const std::size_t at = persist::encode_message(header, {&part, 1}, bytes.data());
  std::memcpy(bytes.data() + at, payload.data(), payload.size());
  bytes.resize(at + payload.size());
  return bytes;
}

int update(client::Session& session, fabric::Device& device, std::uint64_t sequence,
           std::uint64_t offset) {
  std::vector<std::byte> answer(persist::kAckBytes);
  auto answer_memory = device.register_memory(answer, fabric::Access::Local);
  auto message = update_message(session, sequence, offset);
  auto message_memory = device.register_memory(message, fabric::Access::Local);
  const fabric::Segment buffer{answer.data(), answer.size(), answer_memory->get()};
  if (!session.endpoint->post_receive(buffer, 0).ok()) return -1;
  fabric::WorkRequest request;
  request.signalled = false;
  request.segments[0] = {message.data(), message.size(), message_memory->get()};
  request.segment_count = 1;
  if (!session.endpoint->post({&request, 1}).ok()) return -1;
  const auto completion = await(session, fabric::Opcode::Receive);
  if (!completion || completion->error) return -1;
  const auto ack = persist::decode_ack(answer);
  return ack.ok() && ack->sequence == sequence ? ack->status : -1;
}

}  // namespace perdure::server
