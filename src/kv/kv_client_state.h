// What a key-value client keeps: its RPC client, and what it knows of the room that the server
// keeps for it.
#pragma once

#include <perdure/kv.h>

#include "core/bounded_time.h"
#include "core/clock.h"
#include "kv/kv_calls.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace perdure {

class KvClient::State {
 public:
  // Wanted of the server, to be kept for this client: keys, and bytes of values.
  static constexpr std::uint64_t kSlotsWanted = 1024;
  static constexpr std::uint64_t kBytesWanted = 4 * 1024 * 1024;
  // Between two questions for room.
  static constexpr std::uint64_t kChangesBetween = 64;

  State(RpcClient opened, std::chrono::milliseconds within)
      : rpc(std::move(opened)), timeout(within) {}

  static Error refused(ErrorCode code);
  std::uint64_t blocks_for(std::size_t record_bytes) const;
  Result<void> learn_form();
  Result<void> ask_for_room();
  Result<void> take_room(std::chrono::milliseconds within);
  Result<bool> use_room(std::size_t record_bytes);
  void give_back(std::size_t record_bytes);

  /// Of an operation that begins now, however many questions it takes.
  Deadline its_deadline() const { return Deadline::after(bounded(timeout)); }
  Result<std::vector<std::byte>> ask(kv::KvQuery query, std::span<const std::byte> payload,
                                     const Deadline& deadline);
  /// `own_calls`: behind the client's own changes, and Busy where one is set aside.
  Result<KvInfo> ask_info(bool own_calls);
  Result<Value> rest_of(std::string_view key, std::uint64_t version, std::uint32_t crc,
                        std::vector<std::byte> value, std::size_t bytes, const Deadline& deadline);
  Result<std::size_t> read_some(std::span<const std::string_view> keys, std::vector<Value>& values,
                                const Deadline& deadline);
  Result<std::vector<Value>> read(std::span<const std::string_view> keys, const Deadline& deadline);

  RpcClient rpc;
  const std::chrono::milliseconds timeout;
  std::size_t value_bytes_max = 0;
  std::uint64_t block_payload = 1;
  bool is_formatted = false;  // both are the store's for good

  std::optional<RpcHandle> asked;  // for room, and not answered yet
  std::uint64_t slots_left = 0;    // of the grant
  std::uint64_t blocks_left = 0;
  std::uint64_t used_slots = 0;  // since it was asked for
  std::uint64_t used_blocks = 0;
  std::uint64_t changes_since = 0;
};

}  // namespace perdure
