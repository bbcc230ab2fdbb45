// What a broken or hostile client of durable RPC sends: see rpc_world.h. It has its own name's key
// and connection, no other's: nothing of it may count, and everybody else goes on.
#include <algorithm>
#include <array>
#include <cstring>

#include "client/durable_session.h"
#include "core/try.h"
#include "pmem/pool_format.h"
#include "rpc/rpc_requests.h"
#include "testing/torture/rpc_world.h"
#include "testing/world_peer.h"

namespace perdure::test {
namespace {

constexpr std::size_t kForgedPayload = 200;
constexpr std::uint64_t kRequestsMax = 6;

enum class Wrong : std::uint64_t {
  Bytes,
  Earlier,
  Skips,
  Cut,
  Client,
  Generation,
  Lap,
  Length,
  Count
};

/// Puts a word of a forged entry, and its checksum as it was.
template <typename Word>
void put(std::span<std::byte> entry, std::size_t at, Word word) {
  std::memcpy(entry.data() + at, &word, sizeof word);
}

void fill(std::span<std::byte> bytes, Random& choices) {
  for (std::byte& each : bytes) each = static_cast<std::byte>(choices.next());
}

/// An entry where the next one is expected that lacks one thing of what makes it that one. Nothing:
/// there can be none that is wrong in this way.
std::vector<std::byte> malformed_entry(const rpc::ClientPlace& place, std::uint64_t ring_bytes,
                                       std::span<const std::byte> payload, Wrong wrong,
                                       Random& choices) {
  const rpc::NextEntry next = rpc::next_entry(place);
  const std::uint64_t bytes = rpc::entry_bytes(payload.size());
  rpc::Entry entry;
  entry.client = next.client;
  entry.sequence = next.sequence;
  entry.position = rpc::place_entry(next.position, bytes, ring_bytes);
  entry.operation = static_cast<std::uint32_t>(BankOperator::Transfer);
  entry.payload_bytes = static_cast<std::uint32_t>(payload.size());
  entry.generation = next.generation;
  if (wrong == Wrong::Generation && next.generation == 0) return {};
  switch (wrong) {
    case Wrong::Earlier: --entry.sequence; break;
    case Wrong::Skips: ++entry.sequence; break;
    case Wrong::Client: ++entry.client; break;
    case Wrong::Generation: --entry.generation; break;
    case Wrong::Lap: entry.position += ring_bytes; break;
    default: break;
  }
  std::vector<std::byte> made(bytes);
  rpc::encode_entry(entry, payload, made.data());
  constexpr std::size_t kLengthAt = 44;  // rpc/rpc_format.h
  if (wrong == Wrong::Bytes) fill(made, choices);
  if (wrong == Wrong::Cut) fill(std::span(made).subspan(rpc::kEntryHeadBytes + 64, 64), choices);
  if (wrong == Wrong::Length) {
    constexpr std::array<std::uint32_t, 3> kLengths = {16 * 1024, 1u << 31, UINT32_MAX};
    put(std::span(made), kLengthAt, kLengths[choices.below(kLengths.size())]);
  }
  return made;
}

}  // namespace

void RpcWorld::add_malformed() {
  add("malformed-entry", 4, with_person([this](Person& person, Random& choices) {
        put_malformed_entry(person, choices);
      }));
  add("malformed-requests", 3, with_person([this](Person& person, Random& choices) {
        send_malformed_requests(person, choices);
      }));
}

/// Where its next call would be, and its server looks for it: so nothing of its own may be there.
void RpcWorld::put_malformed_entry(Person& person, Random& choices) {
  if (!serving() || person.caller == nullptr) return;
  const RpcClientStatus status = person.caller->status();
  const auto pool = region_->bytes().subspan(pmem::kPoolDataOffset);
  std::size_t at = 0;
  Result<rpc::ClientPlace> place = Error{ErrorCode::NotFound, "no place"};
  for (; at < shape_.clients; ++at) {
    place = rpc::decode_place(pool.subspan(shape_.place_at(at), rpc::kPlaceBytes));
    if (place.ok() && place->client == person.id) break;
  }
  if (at == shape_.clients || place->applied != status.begun || place->held) return;
  std::vector<std::byte> payload;
  (void)make_call(choices, BankOperator::Transfer, kForgedPayload, payload);
  const auto wrong = static_cast<Wrong>(choices.below(static_cast<std::uint64_t>(Wrong::Count)));
  const std::vector<std::byte> entry =
      malformed_entry(*place, shape_.ring_bytes, payload,
                      options_.an_entry_is_forged ? Wrong::Count : wrong, choices);
  if (entry.empty()) return;
  const std::uint64_t position =
      rpc::place_entry(place->position, entry.size(), shape_.ring_bytes) % shape_.ring_bytes;
  tell("     a malformed entry ({}) behind call {} of {}", static_cast<std::uint64_t>(wrong),
       place->applied, person.name);
  std::ranges::copy(entry, pool.subspan(shape_.ring_at(at) + position).begin());
  ++counts_["malformed_entries"];
  (void)person.caller->poll();
  world_.tick(std::chrono::milliseconds(1));
}

/// By a process of that name which knows how to connect, and nothing else. The one that has the
/// name is fenced by it, as by any newer one.
void RpcWorld::send_malformed_requests(Person& person, Random& choices) {
  person.contended = true;
  const auto sent = send_malformed(person, choices);
  if (!sent.ok()) tell("     malformed requests are not sent: {}", sent.error().message);
}

Result<void> RpcWorld::send_malformed(Person& person, Random& choices) {
  client::DurableSessionOptions options;
  options.requests_in_flight = client::kUpdatesMax;
  options.probe_line = rpc::kRingProbeLineAt;
  options.ranges_again = true;
  options.request_bytes_max = rpc::kRequestBytesMax;
  options.reply_bytes_max = rpc::kRequestReplyBytesMax;
  options.timeout = std::chrono::milliseconds(100);
  options.clock = &clock_;
  std::vector<std::byte> answer(rpc::kRequestReplyBytesMax);
  client::DurableSession session(std::shared_ptr<client::Peer>(peer_of(person)), options);
  session.set_deadline(Deadline(clock_, std::chrono::milliseconds(100)));
  PERDURE_TRY(pool, session.peer().describe(person.name, session.deadline()));
  control::SessionRequest request;
  request.pool = person.name;
  request.write = true;
  request.epoch = {pool.epoch.value + 1};
  request.writer = choices.next() | 1;
  request.take_over = true;
  PERDURE_TRY_VOID(session.open(request));
  PERDURE_TRY_VOID(session.prepare(true));
  for (std::uint64_t count = 1 + choices.below(kRequestsMax); count > 0; --count) {
    const auto kind = static_cast<persist::MessageKind>(
        choices.chance(3, 4) ? static_cast<std::uint64_t>(rpc::kWelcomeKind) + choices.below(4)
                             : choices.below(64));
    // As long as requests are, or any length; some of them by the right client.
    std::array<std::byte, rpc::kRequestBytesMax> bytes{};
    constexpr std::array<std::size_t, 4> kLengths = {sizeof(std::uint64_t),
                                                     rpc::kCollectRequestBytes,
                                                     rpc::kQueryHeadBytes, rpc::kPieceRequestBytes};
    const std::size_t length = choices.chance(3, 4) ? kLengths[choices.below(kLengths.size())]
                                                    : choices.below(bytes.size() + 1);
    const std::span<std::byte> payload(bytes.data(), length);
    fill(payload, choices);
    if (length >= sizeof person.id && choices.chance(1, 2)) put(payload, 0, person.id);
    PERDURE_TRY(number, session.request(kind, payload, answer, false));
    ++counts_["malformed_requests"];
    for (int polls = 0; polls < 50 && !session.has_resolved(number); ++polls) {
      if (session.is_forgotten(number)) return {};  // the server has ended it
      session.poll();
      world_.tick(std::chrono::milliseconds(1));
    }
  }
  return {};
}

}  // namespace perdure::test
