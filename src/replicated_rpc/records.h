// What the records of a replicated RPC service's logs hold.
//
// A record of a client's log of calls:
//
//   0     4   kind           1: the client's first record; 2: a call
//   4     4   operation      of a call
//   8     8   client         id of the client, drawn when its log was created
//   16    8   sequence       of a call, from 1, without a gap; 0 in the first record
//   24    8   order key      as the caller gave it
//   32    ..  payload
//
// A record of the log of effects is a list of items; it is applied as a whole. An item:
//
//   0     4   type           see ItemType
//   4     4   generation     of a call: epoch in which it was written
//   8     8   number         a place in the handlers' bytes; or a client's id; or pages that are
//                            copied; or flags of an opening
//   16    8   sequence       of a call
//   24    4   status         of a reply: 0, or 1 + ErrorCode, and kDropped; or how many servers
//                            have ended, and kHeld
//   28    4   name bytes
//   32    8   bytes
//   40    ..  name, bytes, and zeros up to a multiple of 8
//
// Logs have checksums of their own, and return whole records. What makes no sense all the same was
// written by somebody else, and is refused.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace perdure::replicated_rpc {

inline constexpr std::size_t kCallHeadBytes = 32;
inline constexpr std::size_t kItemHeadBytes = 40;

enum class CallKind : std::uint32_t { First = 1, Call = 2 };

struct CallRecord {
  CallKind kind = CallKind::Call;
  std::uint32_t operation = 0;
  std::uint64_t client_id = 0;
  std::uint64_t sequence = 0;
  std::uint64_t order_key = 0;
  std::span<const std::byte> payload;  // of the record that was decoded
};

/// All but the payload.
std::vector<std::byte> encode_call_head(const CallRecord& call);
/// Errors: Corrupt.
Result<CallRecord> decode_call(std::span<const std::byte> record);

enum class ItemType : std::uint32_t {
  Sizes = 1,       // bytes: the service's sizes. First in a log, and in each round
  Change = 2,      // number: place; bytes: what is there now
  Applied = 3,     // number: client; sequence, generation, status; name; bytes: the reply
  Place = 4,       // number: client; sequence, generation of the last call applied; name
  Kept = 5,        // number: client; sequence, status; name; bytes: a reply of the place before it
  RoundBegin = 6,  // who reads from the record of this one on gets everything, once there is ...
  RoundStep = 7,   // name: the last place copied; number: pages that are, once all places are
  RoundEnd = 8,    // ... this one
  Opened = 9,      // a server begins to execute; number: kDied, kCareful. Then, 0: it is calm
  Ended = 10,      // it has ended in order
  Trying = 11,     // number: client; sequence, generation, name: the call it executes now, alone
  Tried = 12,      // the same of a call in which servers have ended; status: how many, and kHeld
};

/// Of an opening: the server before has ended without a word, in the call that it tried, if any.
inline constexpr std::uint64_t kDied = 1;
/// Of an opening: a call may end this server, too, so they are tried one at a time.
inline constexpr std::uint64_t kCareful = 2;
/// In the status of a reply: not its handler has refused the call, but servers ended in it.
inline constexpr std::uint32_t kDropped = 0x80000000;
/// In the status of a call that was tried: it waits for an operator.
inline constexpr std::uint32_t kHeld = 0x80000000;

struct RecordItem {
  ItemType type = ItemType::Change;
  std::uint32_t generation = 0;
  std::uint64_t number = 0;
  std::uint64_t sequence = 0;
  std::uint32_t status = 0;
  std::string_view name;
  std::span<const std::byte> bytes;
};

std::uint64_t item_bytes(std::size_t name, std::size_t bytes);
void append_item(std::vector<std::byte>& record, const RecordItem& item);
/// Calls `visit` for each item until it says what is wrong with one. Errors: those, Corrupt.
Result<void> for_each_item(std::span<const std::byte> record,
                           const std::function<Result<void>(const RecordItem&)>& visit);

}  // namespace perdure::replicated_rpc
