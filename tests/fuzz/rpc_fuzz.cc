// A durable RPC pool's bytes, and what travels between its clients and its server: any bytes give
// whole entries that lie inside their ring, or none, in bounded time; replies lie inside too.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/bytes.h"
#include "rpc/rpc_format.h"
#include "rpc/rpc_requests.h"

namespace {

using namespace perdure::rpc;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

/// The input as a ring that a client has written.
void walk_ring(std::span<const std::byte> input) {
  constexpr std::uint64_t kRing = 4096;
  static std::vector<std::byte> ring(kRing);
  std::fill(ring.begin(), ring.end(), std::byte{});
  std::copy_n(input.begin(), std::min<std::size_t>(input.size(), kRing), ring.begin());
  const auto client = perdure::load<std::uint64_t>(ring.data() + 8);
  const auto first = perdure::load<std::uint64_t>(ring.data() + 16);
  // An entry with a right checksum would be found by chance only: the first one gets one.
  Entry entry{
      client, first, 0, 0, 1, std::min(perdure::load<std::uint32_t>(ring.data() + 44), 1900u), 0};
  const std::vector<std::byte> payload(
      ring.begin() + kEntryHeadBytes,
      ring.begin() + kEntryHeadBytes + static_cast<std::ptrdiff_t>(entry.payload_bytes));
  encode_entry(entry, payload, ring.data());
  std::vector<std::byte> copy;
  NextEntry next{client, first, 0, 0};
  std::uint64_t found = 0;
  while (const auto each = find_entry(ring, next, copy)) {
    require(copy.size() == kEntryHeadBytes + each->entry.payload_bytes);
    require(each->entry.position >= next.position && each->next.position > each->entry.position);
    require(each->entry.position % kRing + entry_bytes(each->entry.payload_bytes) <= kRing);
    require(each->entry.generation >= next.generation);
    next = each->next;
    ++found;
    require(found <= kRing);  // sequences and positions only grow
    if (next.position > 16 * kRing) break;
  }
  require(found >= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  walk_ring(bytes);
  if (const auto shape = decode_header(bytes); shape.ok() && *shape) {
    require(validate(**shape).ok() && (*shape)->bytes() <= size);
  }
  if (size >= kPlaceBytes) {
    const auto place = decode_place(bytes.first(kPlaceBytes));
    if (place.ok() && place->client != 0) require(place->name.size() <= kClientNameMax);
  }
  if (const auto welcome = decode_welcome(bytes); welcome.ok()) {
    require(welcome->welcome.applied <= welcome->welcome.durable && welcome->ring_bytes != 0);
  }
  Collected collected;
  if (decode_collected(bytes, collected).ok()) {
    std::size_t all = 0;
    for (const CollectedReply& each : collected.replies) all += each.bytes.size();
    require(all <= size);
    require(!collected.cut ||
            collected.replies.back().head.bytes > collected.replies.back().bytes.size());
  }
  if (const auto piece = decode_piece_question(bytes); piece.ok()) {
    const auto again = encode_piece_question(*piece);
    require(decode_piece_question(again).ok());
  }
  if (const auto answer = decode_query_reply(bytes); answer.ok()) {
    require(answer->bytes >= size - kQueryReplyHeadBytes);
  }
  return 0;
}
