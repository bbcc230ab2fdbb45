// A Method made ready for one connection: every decision that depends on device, peer or profile
// is taken here, once, so that the data path only fills in what an update brings.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "core/method.h"
#include "fabric/fabric.h"
#include "persist/responder.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace perdure::persist {

/// One entry of a message, before it is known where the item goes.
struct CompiledEntry {
  Item item = 0;
  std::uint32_t actions = 0;  // EntryActions
};

/// One work request: everything but where and what, which come with the update.
struct CompiledRequest {
  fabric::Opcode opcode = fabric::Opcode::Send;
  bool fenced = false;
  bool wants_ack = false;  // message: the responder is to acknowledge it
  bool brings = false;     // READ: of all bytes of its item, into the item's own memory
  bool reads = false;      // SEND: says where the responder READs some of its items
  bool polled = false;     // WRITE: of a message, as a SEND has it, to where the responder polls
  bool names_item = true;  // SFLUSH: its item was written; else it is about the message alone
  Item item = 0;           // that it is about; SEND: see entries
  fabric::FlushPlacement placement = fabric::FlushPlacement::Visibility;  // FLUSH
  std::vector<CompiledEntry> entries;                                     // SEND
  std::uint8_t message_flags = 0;                                         // SEND
  std::size_t gathered = 0;       // SEND: items gathered from where they are; 0: they are copied
  std::size_t padding_bytes = 0;  // SEND: of nothing, behind the message; probes only
  std::size_t messages = 0;       // of the method, up to and with this request
  std::optional<std::uint8_t> awaited;  // set in its update by its completion

  bool carries_message() const {
    return opcode == fabric::Opcode::Send || opcode == fabric::Opcode::WriteImm || polled;
  }
};

/// Completions that one method can wait for.
inline constexpr std::size_t kAwaitedMax = 64;

/// What an update has to wait for.
struct CompiledWait {
  bool ack = false;       // an acknowledgement; else a completion
  std::size_t which = 0;  // acknowledgement: of this message, from 1; completion: `awaited`
};

/// Requests that go to the endpoint together, once the waits are over.
struct CompiledBurst {
  std::vector<CompiledWait> waits;
  std::size_t requests_end = 0;
};

/// What is known of an item before it comes.
struct ItemUse {
  bool sent = false;       // it travels inside a message
  bool word = false;       // 8 bytes at a multiple of 8, nothing else
  bool immediate = false;  // an immediate says where it goes
};

/// The message of a method that has one, with every item as its entry: most updates are made by
/// one that carries them; or with none, where the responder has only to answer. What is known of it
/// before the items come.
struct CompiledMessage {
  std::uint32_t head = 0;  // see message_head
  std::uint8_t entries = 0;
  std::array<std::uint64_t, 2> actions{};  // by item: see actions_field
};

/// What updates most often are, and what is posted without asking further.
enum class CommonUpdate : std::uint8_t {
  None,            // anything else
  Message,         // CompiledMethod::one_message, of one item
  MessageAndWord,  // the same of two, the second a word
  WriteMessage,    // one WRITE, and a message about it that carries nothing
  Write,           // one WRITE, which is all
  WriteFlush,      // one WRITE, and a READ or FLUSH of what it wrote
};

struct CompiledMethod {
  Method source;
  std::vector<CompiledRequest> requests;
  std::vector<CompiledBurst> bursts;  // after the last one a later update may post
  std::vector<CompiledWait> waits;    // then: over means resolved
  std::vector<ItemUse> items;
  std::size_t message_header_bytes_max = 0;
  std::size_t message_buffer_bytes = 0;  // what one message needs beside the items' own memory
  CommonUpdate common = CommonUpdate::None;
  std::uint64_t common_bytes_max = 0;  // of its first item; 0 with CommonUpdate::None
  CompiledMessage one_message;         // where it is_common_message()

  /// Messages of an update.
  std::size_t messages() const { return requests.empty() ? 0 : requests.back().messages; }
  /// Whether an update that is not CommonUpdate::None takes a message.
  bool is_common_message() const {
    return common != CommonUpdate::None && common < CommonUpdate::Write;
  }
  /// Appends to the last burst, or to a new one if something has to be waited for before.
  void add(CompiledRequest request);
  /// Makes what follows wait: for the completion of a request, or for the acknowledgement of the
  /// last message so far that wants one.
  void await_completion(std::size_t request);
  void await_ack();
};

/// Flags of a message that carries nothing. Where receive buffers are persistent it can be replayed
/// (which does nothing): replay stops at the first message that can not.
std::uint8_t empty_message_flags(const ServerProfile& profile);

/// A READ of one item, which is no method: nothing becomes durable by it. `behind_messages`: the
/// responder has handled every message before it, since what they carry is stored by its CPU after
/// the update has resolved.
CompiledMethod compile_read(const ServerProfile& profile, bool behind_messages);

/// A request (wire.h) beside `methods`, which is no method either. Where messages are replayed:
/// recovery stops at a request, so nothing is posted before this one is answered, and an empty
/// message is behind it for that. Where an update may end with an ATOMIC WRITE: that is no posted
/// operation, so a message behind it may be handled before it takes effect; this one is fenced.
CompiledMethod compile_request(const ServerProfile& profile, std::size_t payload_bytes_max,
                               const std::vector<CompiledMethod>& methods);

/// What the responder of a connection does beside what every one does.
struct ResponderHabits {
  bool polls = false;        // it looks for messages in its mailbox
  bool reads = false;        // it READs what messages say that the requester has
  bool writes_acks = false;  // it writes every acknowledgement to the requester, and sends none
};

/// Errors: InvalidArgument (malformed, or methods that must not share a connection), Unsupported.
Result<std::vector<CompiledMethod>> compile(const std::vector<Method>& methods,
                                            const ServerProfile& profile,
                                            const Capabilities& device, const ReceiveQueue& queue,
                                            const ResponderHabits& habits = {});

}  // namespace perdure::persist
