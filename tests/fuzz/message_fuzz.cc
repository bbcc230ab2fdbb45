// The data plane's messages: whatever arrives is decoded or refused, never trusted.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "persist/atomics.h"
#include "persist/wire.h"
#include "pmem/crashable_region.h"

namespace {

/// A request is handled on a small pool, whatever it asks for: a handler trusts nothing of it, and
/// changes no more than the word that it names.
void handle_request(std::span<const std::byte> bytes) {
  const auto header = perdure::persist::decode_request(bytes);
  if (!header.ok()) return;
  if (perdure::persist::kRequestHeaderBytes + header->payload_bytes > bytes.size()) {
    __builtin_trap();
  }
  if (header->message >= perdure::persist::kMessageKinds) return;
  auto* const handler = perdure::persist::built_in_handlers()[header->message];
  if (handler == nullptr) return;
  static const auto region =
      *perdure::pmem::CrashableRegion::open({4096, perdure::PersistenceDomain::Wsp});
  const auto pool = region->bytes();
  std::fill(pool.begin(), pool.end(), std::byte{});
  std::array<std::byte, 16> room{};
  std::vector<perdure::pmem::Range> pending;
  const auto reply = std::span(room).first(std::min<std::size_t>(header->reply_bytes, 16));
  perdure::persist::Request request(
      bytes.subspan(perdure::persist::kRequestHeaderBytes, header->payload_bytes), reply, *region,
      {0, pool.size()}, pending, false);
  const auto answered = handler->handle(request);
  if (answered.ok() && (*answered > reply.size() || pending.size() != 1)) __builtin_trap();
  const auto changed =
      std::any_of(pool.begin(), pool.end(), [](auto b) { return b != std::byte{}; });
  if (!answered.ok() && (changed || !pending.empty())) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)perdure::persist::decode_ack(bytes);
  handle_request(bytes);
  const auto reply = perdure::persist::decode_reply(bytes);
  if (reply.ok() && perdure::persist::kReplyHeaderBytes + reply->payload_bytes > size) {
    __builtin_trap();
  }
  // A kind is one thing: what one of them decodes, no other does.
  if (reply.ok() && perdure::persist::decode_message(bytes).ok()) __builtin_trap();
  const auto header = perdure::persist::decode_message(bytes);
  if (!header.ok()) return 0;
  // What decodes fits: every entry and the whole payload lie inside.
  std::uint64_t copied = 0;
  for (std::size_t index = 0; index < header->entries; ++index) {
    const auto entry = perdure::persist::entry_at(bytes, index);
    if ((entry.actions & perdure::persist::kCopy) != 0) copied += entry.length;
    const bool reads = (entry.actions & perdure::persist::kRead) != 0;
    if (reads) copied += perdure::persist::kReadSourceBytes;
    // What is READ is named under the checksum, and by no message that recovery applies.
    const auto kinds =
        header->flags & (perdure::persist::kPayloadCrc | perdure::persist::kReplayable);
    if (reads && kinds != perdure::persist::kPayloadCrc) __builtin_trap();
  }
  if (header->bytes() + copied > size) __builtin_trap();
  return 0;
}
