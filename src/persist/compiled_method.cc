#include "persist/compiled_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/assert.h"
#include "core/method_set.h"
#include "core/try.h"
#include "persist/wire.h"

namespace perdure::persist {
namespace {

Error unsupported(const Method& method, std::string_view why) {
  return Error{ErrorCode::Unsupported, fmt::format("method '{}': {}", method.name, why)};
}

/// What the responder is to do with a message, as entries: its reaction, or, for a message that
/// recovery may replay, storing and flushing what it carries.
std::vector<CompiledEntry> entries_for(const RequesterStep& step,
                                       const std::vector<ResponderAction>& reaction) {
  std::vector<CompiledEntry> entries;
  bool awaited = false;  // since the last READ
  for (const ResponderAction& action : reaction) {
    std::uint32_t bit = 0;
    switch (action.kind) {
      case ResponderAction::Kind::Copy: bit = kCopy; break;
      case ResponderAction::Kind::Read:
        bit = awaited ? kRead | kAfterReads : kRead;
        awaited = false;
        break;
      case ResponderAction::Kind::Flush: bit = kFlush; break;
      case ResponderAction::Kind::Await: awaited = true; continue;  // all else waits in any case
      case ResponderAction::Kind::Ack: continue;
    }
    const bool joins = bit == kFlush && !entries.empty() && entries.back().item == action.item;
    if (joins) {
      entries.back().actions |= bit;
    } else {
      entries.push_back({action.item, bit});
    }
  }
  if (reaction.empty()) {
    for (const Item item : step.items) entries.push_back({item, kCopy | kFlush});
  }
  return entries;
}

Result<fabric::Opcode> opcode_for(const Method& method, Verb verb, const Capabilities& device) {
  switch (verb) {
    case Verb::Write: return fabric::Opcode::Write;
    case Verb::WriteImm: return fabric::Opcode::WriteImm;
    case Verb::Send: return fabric::Opcode::Send;
    case Verb::Read:
    case Verb::Flush: return fabric::Opcode::Read;  // FLUSH: unless compile_flush can do better
    case Verb::WriteAtomic:
      if (!device.atomic_write) return unsupported(method, "the device has no ATOMIC WRITE");
      return fabric::Opcode::AtomicWrite;
    case Verb::WritePersist:
      if (!device.ordered_persist) return unsupported(method, "the device has no PWRITE");
      return fabric::Opcode::WritePersist;
    case Verb::SendFlush:
      if (!device.send_flush) return unsupported(method, "the device has no SFLUSH");
      return fabric::Opcode::SendFlush;
    case Verb::WritePolled: return fabric::Opcode::Write;
  }
  return unsupported(method, "unknown verb");
}

/// Items of a FLUSH; empty if one of them was sent, or none is named. A native FLUSH reaches the
/// range that it names, and a receive buffer is in none.
std::vector<Item> flushed_items(const Method& method, std::size_t index) {
  const std::vector<Item>& items = method.requester[index].items;
  return written_items(method, index) == items ? items : std::vector<Item>{};
}

/// Refuses a FLUSH that would say that messages survive, and does not make them.
Result<void> check_messages_flushed(const Method& method, std::size_t index,
                                    const ServerProfile& profile, const CompiledRequest& request) {
  if (profile.domain == PersistenceDomain::Wsp || !speaks_for_messages(method, index)) return {};
  if (request.opcode == fabric::Opcode::Flush) return {};
  return unsupported(
      method, profile.domain == PersistenceDomain::Dmp
                  ? "behind a message, only a FLUSH to persistence says that it survives in its "
                    "receive buffer on dmp, and this connection has none"
                  : "behind a message, only a native FLUSH says that it survives in its receive "
                    "buffer, and this connection has none");
}

/// A native FLUSH where there is one that suffices: of each item that was written, so that what it
/// makes persistent or visible is named; behind messages alone, of anything, since it comes after
/// them. Else a READ inside the last item: on its way to memory it pushes everything before it
/// (taxonomy section 3.4.1).
Result<std::vector<Item>> compile_flush(const Method& method, std::size_t index,
                                        const ServerProfile& profile, const Capabilities& usable,
                                        CompiledRequest& request) {
  const bool dmp = profile.domain == PersistenceDomain::Dmp;
  // To persistence it takes what it names, and where inbound data goes past the caches, what came
  // before it (docs/hardware.md, what to verify first on an RNIC).
  const bool reaches =
      !flushed_items(method, index).empty() || (dmp && dma_bypasses_caches(profile));
  const bool persists = usable.native_flush && usable.persistent_flush && reaches;
  // To visibility a FLUSH promises that, of the bytes that it names (InfiniBand Specification
  // A19.4.1), and nothing of the memory controllers, into which a READ pushes what was written.
  const bool shows = usable.native_flush && !dmp;
  if (persists || shows) request.opcode = fabric::Opcode::Flush;
  if (persists) request.placement = fabric::FlushPlacement::Persistence;
  const bool rests_on_it =
      profile.capabilities.persistent_flush && dmp && !dma_bypasses_caches(profile);
  if (rests_on_it && !persists) {
    return unsupported(method, "this connection has no FLUSH to persistence");
  }
  PERDURE_TRY_VOID(check_messages_flushed(method, index, profile, request));
  const std::vector<Item> written = written_items(method, index);
  const bool names = request.opcode == fabric::Opcode::Flush && !written.empty();
  return names ? written : std::vector<Item>{covered_item(method, index)};
}

/// A SEND, or the one request of a WRITE_WITH_IMM: what the responder does with it.
Result<void> compile_message(const Method& method, const RequesterStep& step, std::size_t message,
                             const ResponderHabits& habits, CompiledRequest& request) {
  static const std::vector<ResponderAction> kNone;
  const auto& reaction = message < method.responder.size() ? method.responder[message] : kNone;
  request.wants_ack = acknowledges(reaction);
  if (step.verb == Verb::WriteImm) return {};
  request.entries = entries_for(step, reaction);
  if (request.entries.size() > kEntriesMax) return unsupported(method, "too many entries");
  if (request.wants_ack) request.message_flags |= kAckWanted;
  if (step.replay) request.message_flags |= kReplayable | kPayloadCrc;
  if (step.checked) request.message_flags |= kPayloadCrc;
  request.reads = std::any_of(request.entries.begin(), request.entries.end(),
                              [](const auto& entry) { return (entry.actions & kRead) != 0; });
  if (!request.reads) return {};
  if (!habits.reads) return unsupported(method, "the responder READs nothing of its requesters");
  if (step.verb != Verb::Send) return unsupported(method, "only a SEND says what is to be READ");
  if (step.replay) return unsupported(method, "nothing is READ again by recovery");
  request.message_flags |= kReads | kPayloadCrc;
  return {};
}

/// Appends the requests of a posting step.
Result<void> compile_post(const Method& method, std::size_t index, const ServerProfile& profile,
                          const Capabilities& device, const ResponderHabits& habits,
                          CompiledMethod& compiled) {
  const RequesterStep& step = method.requester[index];
  CompiledRequest request;
  const Capabilities usable = both(device, profile.capabilities);
  PERDURE_TRY(opcode, opcode_for(method, step.verb, usable));
  request.opcode = opcode;
  request.fenced = step.fenced;
  std::vector<Item> items = step.items;
  switch (step.verb) {
    case Verb::WritePolled:
      request.polled = true;
      if (!step.checked) return unsupported(method, "responders take no message by its mark alone");
      if (!habits.polls)
        return unsupported(method, "the responder polls no mailbox of this connection");
      items = {0};
      break;
    case Verb::Send: items = {0}; break;  // one request: its entries say which items
    case Verb::Read: items = {covered_item(method, index)}; break;
    case Verb::Flush: {
      PERDURE_TRY(flushed, compile_flush(method, index, profile, usable, request));
      items = std::move(flushed);
      break;
    }
    case Verb::SendFlush:
      items = written_items(method, index);
      request.names_item = !items.empty();
      if (items.empty()) items = {0};
      break;
    default: break;
  }
  if (request.carries_message()) {
    if (items.size() != 1) return unsupported(method, "a WRITE_WITH_IMM carries one item");
    PERDURE_TRY_VOID(compile_message(method, step, compiled.messages(), habits, request));
  }
  for (const Item item : items) {
    request.item = item;
    compiled.add(request);
  }
  return {};
}

/// What has to be known of each item before it is taken, and how much a message takes.
void note_uses(const ReceiveQueue& queue, CompiledMethod& compiled) {
  const Method& method = compiled.source;
  compiled.items.resize(method.shape.items());
  for (std::size_t index = 0; index < compiled.items.size(); ++index) {
    const bool later = method.shape.epoch_of(static_cast<Item>(index)) > 0;
    compiled.items[index].word = later && !method.later_any_size;
  }
  for (CompiledRequest& request : compiled.requests) {
    const bool named = request.opcode == fabric::Opcode::WriteImm && request.wants_ack;
    if (named) compiled.items[request.item].immediate = true;
    std::size_t copies = 0;
    for (const CompiledEntry& entry : request.entries) {
      if ((entry.actions & kCopy) == 0) continue;
      ++copies;
      compiled.items[entry.item].sent = true;
    }
    std::size_t header = kMessageHeaderBytes + request.entries.size() * kMessageEntryBytes;
    for (const CompiledEntry& entry : request.entries) {
      if ((entry.actions & kRead) != 0) header += kReadSourceBytes;
    }
    compiled.message_header_bytes_max = std::max(compiled.message_header_bytes_max, header);
    // More pieces than a request can gather are copied together into the message's own buffer.
    // So are they among places to READ.
    const bool fits = copies < fabric::kSegmentsMax && (copies == 0 || !request.reads);
    request.gathered = fits ? copies : 0;
    compiled.message_buffer_bytes =
        std::max(compiled.message_buffer_bytes, fits ? header : queue.message_bytes_max);
    if ((request.message_flags & kReplayable) != 0) {
      compiled.message_buffer_bytes = std::max(compiled.message_buffer_bytes, kReplayableBytesMin);
    }
  }
}

/// What is known of the message that ends the method, if that waits for nothing in between and is
/// not replayed. `carries`: all the items; else none of them.
std::optional<CompiledMessage> only_message(const CompiledMethod& method, bool carries) {
  const std::size_t items = method.items.size();
  if (method.bursts.size() != 1 || !method.bursts.front().waits.empty()) return {};
  const CompiledRequest& request = method.requests.back();
  if (request.opcode != fabric::Opcode::Send || request.fenced || request.reads ||
      request.padding_bytes != 0 || (request.message_flags & kPayloadCrc) != 0) {
    return {};
  }
  const std::size_t gathered = carries ? items : 0;
  const std::size_t named = request.entries.size();
  const bool names_none = named == 0 && !carries;
  if (items > 2 || request.gathered != gathered || (named != items && !names_none)) return {};
  CompiledMessage message;
  message.entries = static_cast<std::uint8_t>(named);
  message.head = message_head(message.entries, request.message_flags);
  for (std::size_t index = 0; index < named; ++index) {
    const bool word = index == 1;
    if (request.entries[index].item != index || method.items[index].word != word) return {};
    message.actions[index] = actions_field(request.entries[index].actions);
  }
  return message;
}

/// Whether the method is one WRITE of one item: alone, or with a message (`told`) or what flushes
/// it posted behind it.
CommonUpdate one_write(const CompiledMethod& method, bool told) {
  const auto& requests = method.requests;
  const bool whole = method.items.size() == 1 && method.bursts.size() == 1 &&
                     method.bursts.front().waits.empty() && !method.items[0].word;
  if (!whole || requests[0].opcode != fabric::Opcode::Write || requests[0].polled) {
    return CommonUpdate::None;
  }
  if (requests.size() == 1) return CommonUpdate::Write;
  if (requests.size() != 2) return CommonUpdate::None;
  if (told) return CommonUpdate::WriteMessage;
  const CompiledRequest& flush = requests[1];
  const bool reads = flush.opcode == fabric::Opcode::Read && !flush.brings;
  return reads || flush.opcode == fabric::Opcode::Flush ? CommonUpdate::WriteFlush
                                                        : CommonUpdate::None;
}

/// Notes in the method which of the common updates it is.
void note_common(const ReceiveQueue& queue, CompiledMethod& method) {
  const bool one = method.requests.size() == 1;
  const auto message = has_short_crc() ? only_message(method, /*carries=*/one) : std::nullopt;
  if (message) method.one_message = *message;
  method.common = one_write(method, message.has_value());
  if (method.common != CommonUpdate::None) {
    method.common_bytes_max = std::numeric_limits<std::uint64_t>::max();
  } else if (message && one) {
    const bool word = method.items.size() == 2;
    method.common = word ? CommonUpdate::MessageAndWord : CommonUpdate::Message;
    method.common_bytes_max = queue.message_bytes_max - method.message_header_bytes_max -
                              (word ? sizeof(std::uint64_t) : 0);
  }
}

/// How acknowledgements come is a matter of the connection.
Result<void> check_acks(const Method& method, const ServerProfile& profile,
                        const ResponderHabits& habits) {
  if (!two_sided(method)) return {};
  if (!habits.writes_acks && writes_acks(method)) {
    return unsupported(method, "the responder writes no acknowledgements to this requester");
  }
  if (!habits.writes_acks) return {};
  if (!writes_acks(method)) {
    return unsupported(method, "the responder writes its acknowledgements, and sends none");
  }
  if (!keeps_write_order(profile)) {
    return unsupported(method,
                       "WRITEs keep no order here, so an older acknowledgement could be "
                       "placed over the newest");
  }
  return {};
}

/// Over uc and ud there is nothing that is answered, and over ud nothing but SENDs.
Result<void> check_carried(const Method& method, QpType type) {
  if (type == QpType::Rc) return {};
  for (const RequesterStep& step : method.requester) {
    if (step.kind != RequesterStep::Kind::Post || step.verb == Verb::Send) continue;
    const bool writes =
        step.verb == Verb::Write || step.verb == Verb::WriteImm || step.verb == Verb::WritePolled;
    if (type == QpType::Uc && writes) continue;
    return unsupported(
        method, fmt::format("{} is not carried over {}", to_string(step.verb), to_string(type)));
  }
  if (fetches(method) || (type == QpType::Ud && writes_acks(method))) {
    return unsupported(
        method, fmt::format("what the responder posts is not carried over {}", to_string(type)));
  }
  return {};
}

Result<CompiledMethod> compile_one(const Method& method, const ServerProfile& profile,
                                   const Capabilities& device, const ReceiveQueue& queue,
                                   const ResponderHabits& habits) {
  PERDURE_TRY_VOID(validate(method));
  PERDURE_TRY_VOID(check_carried(method, profile.qp_type));
  PERDURE_TRY_VOID(check_acks(method, profile, habits));
  if (const auto why = why_refused(method, profile); !why.empty()) {
    return unsupported(method, why);
  }
  if (replays(method) && profile.receive_buffers != ReceiveBuffers::Pm) {
    return unsupported(method, "replays messages, but the receive buffers are in DRAM");
  }
  CompiledMethod compiled;
  compiled.source = method;
  std::vector<std::size_t> last_request(method.requester.size());  // of each step
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    const RequesterStep& step = method.requester[index];
    switch (step.kind) {
      case RequesterStep::Kind::Post:
        PERDURE_TRY_VOID(compile_post(method, index, profile, device, habits, compiled));
        last_request[index] = compiled.requests.size() - 1;
        break;
      case RequesterStep::Kind::WaitCompletion:
        compiled.await_completion(last_request[step.of]);
        break;
      case RequesterStep::Kind::WaitAck: compiled.await_ack(); break;
    }
  }
  note_uses(queue, compiled);
  note_common(queue, compiled);
  return compiled;
}

}  // namespace

void CompiledMethod::add(CompiledRequest request) {
  request.messages = messages() + (request.carries_message() ? 1 : 0);
  if (bursts.empty() || !waits.empty()) bursts.push_back({std::exchange(waits, {}), 0});
  requests.push_back(std::move(request));
  bursts.back().requests_end = requests.size();
}

void CompiledMethod::await_completion(std::size_t request) {
  std::optional<std::uint8_t>& bit = requests[request].awaited;
  if (!bit) {
    bit = static_cast<std::uint8_t>(
        std::count_if(requests.begin(), requests.end(),
                      [](const CompiledRequest& each) { return each.awaited.has_value(); }));
  }
  PERDURE_ASSERT(*bit < kAwaitedMax);
  waits.push_back({false, *bit});
}

void CompiledMethod::await_ack() {
  for (auto each = requests.rbegin(); each != requests.rend(); ++each) {
    if (!each->wants_ack) continue;
    waits.push_back({true, each->messages});
    return;
  }
}

std::uint8_t empty_message_flags(const ServerProfile& profile) {
  const bool replayed = profile.receive_buffers == ReceiveBuffers::Pm;
  return replayed ? kReplayable | kPayloadCrc : 0;
}

CompiledMethod compile_read(const ServerProfile& profile, bool behind_messages) {
  CompiledMethod method;
  method.source.name = "read";
  method.items.resize(1);
  if (behind_messages) {
    CompiledRequest message;
    message.message_flags = empty_message_flags(profile) | kAckWanted;
    message.wants_ack = true;
    method.add(message);
    method.await_ack();
    method.message_header_bytes_max = kMessageHeaderBytes;
    method.message_buffer_bytes = std::max(kMessageHeaderBytes, kReplayableBytesMin);
  }
  CompiledRequest read;
  read.opcode = fabric::Opcode::Read;
  read.brings = true;
  method.add(read);
  method.await_completion(method.requests.size() - 1);
  return method;
}

CompiledMethod compile_request(const ServerProfile& profile, std::size_t payload_bytes_max,
                               const std::vector<CompiledMethod>& methods) {
  bool atomics = false;
  bool replayed = false;
  for (const CompiledMethod& each : methods) {
    replayed = replayed || replays(each.source);
    for (const CompiledRequest& posted : each.requests) {
      atomics = atomics || posted.opcode == fabric::Opcode::AtomicWrite;
    }
  }
  CompiledMethod method;
  method.source.name = "request";
  CompiledRequest request;
  request.wants_ack = true;
  request.fenced = atomics;
  method.add(request);
  method.await_ack();
  if (replayed) {
    CompiledRequest barrier;
    barrier.message_flags = empty_message_flags(profile);
    method.add(barrier);
  }
  method.message_header_bytes_max = kRequestHeaderBytes;
  method.message_buffer_bytes =
      std::max(kRequestHeaderBytes + payload_bytes_max, kReplayableBytesMin);
  return method;
}

Result<std::vector<CompiledMethod>> compile(const std::vector<Method>& methods,
                                            const ServerProfile& profile,
                                            const Capabilities& device, const ReceiveQueue& queue,
                                            const ResponderHabits& habits) {
  // Which places updates write is their caller's business, who has chosen the methods for it.
  std::vector<SetMember> members;
  for (const Method& method : methods) members.push_back({method, Reuse::Never, false});
  PERDURE_TRY_VOID(may_share(members, profile));
  std::vector<CompiledMethod> compiled;
  for (const Method& method : methods) {
    PERDURE_TRY(one, compile_one(method, profile, device, queue, habits));
    compiled.push_back(std::move(one));
  }
  return compiled;
}

}  // namespace perdure::persist
