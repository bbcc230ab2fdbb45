// The public face of a key-value client: changes. Reading is in kv_client_reads.cc.
#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/try.h"
#include "kv/kv_client_state.h"

namespace perdure {

using kv::KvCall;

KvClient::KvClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
KvClient::KvClient(KvClient&&) noexcept = default;
KvClient& KvClient::operator=(KvClient&&) noexcept = default;
KvClient::~KvClient() = default;

Result<KvClient> KvClient::open(const KvClientOptions& options) {
  PERDURE_TRY(rpc, RpcClient::open(options.rpc));
  KvClient client(std::make_unique<State>(std::move(rpc), options.timeout));
  State& state = *client.state_;
  PERDURE_TRY_VOID(state.learn_form());
  // Without room of its own its changes wait until they are applied. Behind one that is set aside
  // there may be none for the question either.
  const auto asked = state.ask_for_room();
  if (!asked.ok() && asked.code() != ErrorCode::QueueFull) return asked.error();
  PERDURE_TRY_VOID(state.take_room(options.timeout));
  return client;
}

/// In front of the call that formats it, a store says what it would be: by the next server's
/// options it may become something else. So it is asked again behind that.
Result<void> KvClient::State::learn_form() {
  PERDURE_TRY(info, ask_info(false));  // a change of an earlier process may be set aside
  value_bytes_max = info.value_bytes_max;
  block_payload = info.block_bytes - kv::kBlockHeadBytes;
  return {};
}

/// A change that the server refused.
Error KvClient::State::refused(ErrorCode code) {
  if (code == ErrorCode::NoSpace) {
    return {code, "the store is full: erase something, or give it a larger pool"};
  }
  return {code, fmt::format("the server refused the change: {}", to_string(code))};
}

std::uint64_t KvClient::State::blocks_for(std::size_t record_bytes) const {
  if (record_bytes <= kv::kInlineBytes) return 0;
  return (record_bytes - kv::kInlineBytes + block_payload - 1) / block_payload;
}

Result<void> KvClient::State::ask_for_room() {
  std::vector<std::byte> payload;
  kv::append(payload, kSlotsWanted);
  kv::append(payload, std::uint64_t{kBytesWanted / block_payload});
  PERDURE_TRY(call, rpc.call(static_cast<std::uint32_t>(KvCall::Grant), payload));
  asked = call;
  used_slots = used_blocks = 0;
  changes_since = 0;
  return {};
}

/// What it has after the answer: the grant then, less what was used since it was asked for. Until
/// then, and where the answer is not kept any more, what it had before holds: a grant never shrinks
/// but by use.
Result<void> KvClient::State::take_room(std::chrono::milliseconds within) {
  if (!asked) return {};
  auto reply = rpc.reply(*asked, within);
  if (!reply.ok() && (reply.code() == ErrorCode::TimedOut || reply.code() == ErrorCode::Busy)) {
    return {};
  }
  asked.reset();
  // Thousands of other calls were answered since. A client that has expired is told by its next.
  if (!reply.ok() && reply.code() == ErrorCode::NotFound) return {};
  if (!reply.ok()) return reply.error();
  if (reply->refused || reply->bytes.size() != 16) return {};
  if (!is_formatted && !learn_form().ok()) return {};  // it asks for room again
  is_formatted = true;
  const auto slots = load<std::uint64_t>(reply->bytes.data());
  const auto blocks = load<std::uint64_t>(reply->bytes.data() + 8);
  slots_left = slots - std::min(slots, used_slots);
  blocks_left = blocks - std::min(blocks, used_blocks);
  return {};
}

/// Whether the room that is kept for this client takes one more record of this size.
Result<bool> KvClient::State::use_room(std::size_t record_bytes) {
  ++changes_since;
  const bool scarce =
      slots_left < kSlotsWanted / 2 ||
      blocks_left < std::max(kBytesWanted / block_payload / 2, blocks_for(record_bytes));
  // Not while it is away: to come back takes longer than no time.
  if (scarce && asked && rpc.status().up) PERDURE_TRY_VOID(take_room(std::chrono::milliseconds(0)));
  if (scarce && !asked && changes_since >= kChangesBetween) PERDURE_TRY_VOID(ask_for_room());
  const std::uint64_t blocks = blocks_for(record_bytes);  // taking room may have told their size
  if (slots_left == 0 || blocks_left < blocks) return false;
  --slots_left;
  blocks_left -= blocks;
  ++used_slots;
  used_blocks += blocks;
  return true;
}

Result<KvTicket> KvClient::begin_set(std::string_view key, std::span<const std::byte> value,
                                     KvCondition condition) {
  if (key.size() > kKvKeyBytesMax || value.size() > state_->value_bytes_max) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a key of {} and a value of {} bytes; the store takes {} and {}",
                             key.size(), value.size(), kKvKeyBytesMax, state_->value_bytes_max)};
  }
  kv::KvPut put;
  put.key = key;
  put.value = value;
  put.crc = crc32c(value, crc32c(std::as_bytes(std::span(key))));
  put.condition = static_cast<kv::KvIf>(condition);
  const std::size_t record_bytes = key.size() + value.size();
  PERDURE_TRY(assured, state_->use_room(record_bytes));
  auto call =
      state_->rpc.call(static_cast<std::uint32_t>(KvCall::Set), kv::encode_set(put, assured));
  if (!call.ok() && assured) state_->give_back(record_bytes);
  if (!call.ok()) return call.error();
  return KvTicket{*call, assured};
}

void KvClient::State::give_back(std::size_t record_bytes) {
  const std::uint64_t blocks = blocks_for(record_bytes);
  ++slots_left;
  blocks_left += blocks;
  --used_slots;
  used_blocks -= blocks;
}

Result<KvTicket> KvClient::begin_erase(std::span<const std::string_view> keys) {
  std::vector<std::byte> payload;
  for (const std::string_view key : keys) {
    if (key.size() > kKvKeyBytesMax) continue;  // it is not there
    kv::append_key(payload, key);
  }
  if (keys.size() > kKvEraseKeysMax || payload.size() > state_->rpc.payload_bytes_max()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} keys; one step removes up to {}", keys.size(), kKvEraseKeysMax)};
  }
  PERDURE_TRY(call, state_->rpc.call(static_cast<std::uint32_t>(KvCall::Erase), payload));
  return KvTicket{call, true};
}

Result<void> KvClient::wait(const KvTicket& ticket, RpcLevel level,
                            std::optional<std::chrono::milliseconds> timeout) {
  if (level == RpcLevel::Durable && ticket.assured) {
    return state_->rpc.wait(ticket.call, level, timeout.value_or(state_->timeout));
  }
  PERDURE_TRY_VOID(outcome(ticket, timeout));
  return {};
}

Result<KvChange> KvClient::outcome(const KvTicket& ticket,
                                   std::optional<std::chrono::milliseconds> timeout) {
  PERDURE_TRY(reply, state_->rpc.reply(ticket.call, timeout.value_or(state_->timeout)));
  if (reply.refused) return State::refused(*reply.refused);
  KvChange change;
  if (reply.bytes.size() == 8) {
    change.erased = load<std::uint64_t>(reply.bytes.data());
  } else if (reply.bytes.size() == 16) {
    change.stored = load<std::uint32_t>(reply.bytes.data()) != 0;
    change.was_there = load<std::uint32_t>(reply.bytes.data() + 4) != 0;
    change.version = load<std::uint64_t>(reply.bytes.data() + 8);
  } else {
    return Error{ErrorCode::ProtocolError, "a reply of another size"};
  }
  return change;
}

Result<void> KvClient::set(std::string_view key, std::span<const std::byte> value, RpcLevel level) {
  PERDURE_TRY(ticket, begin_set(key, value));
  return wait(ticket, level);
}

Result<std::uint64_t> KvClient::erase(std::span<const std::string_view> keys) {
  PERDURE_TRY(ticket, begin_erase(keys));
  PERDURE_TRY(change, outcome(ticket));
  return change.erased;
}

RpcClientStatus KvClient::status() const { return state_->rpc.status(); }

}  // namespace perdure
