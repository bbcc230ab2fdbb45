// Requester: runs Methods on one connection. Methods are compiled once, when connecting; from then
// on an update fills in work requests that are ready: post, wait, post. Updates resolve in the
// order they were begun, so one number says how far durability has come. How they move is in
// requester.cc; how methods and memory are made ready and what a work request looks like is in
// requester_requests.cc; messages that are answered with more than an acknowledgement, in
// requester_messages.cc.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "core/crc32c.h"
#include "core/method.h"
#include "fabric/fabric.h"
#include "persist/compiled_method.h"
#include "persist/responder.h"
#include "persist/wire.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace perdure::persist {

/// One item of an update: where it goes, and its bytes in registered memory of the same device.
/// The bytes must stay as they are until the update resolves (registered with Access::RemoteRead if
/// the method has the responder READ them), and registered until the connection
/// has ended: an RNIC may have to send again what the responder has long answered.
struct UpdateItem {
  std::uint64_t at = 0;  // bytes from the start of the exported part of the pool
  fabric::Segment data;
};

inline bool is_word(const UpdateItem& item) {
  return item.data.length == sizeof(std::uint64_t) && item.at % sizeof(std::uint64_t) == 0;
}

/// What is timed to learn what a connection costs. The responder does nothing for any of them but
/// answer; of the pool they read one byte, and write zeros to a line that holds nothing else.
enum class Probe : std::size_t {
  Message,       // an empty message, its answer
  LongMessage,   // the same with Requester::probe_padding() bytes of nothing behind it
  TwoMessages,   // two posted together, the answer to the second
  Read,          // a READ of one byte, or the device's FLUSH, its completion
  Write,         // a WRITE of one line, its completion; only with a probe line
  WriteMessage,  // the same WRITE and an empty message posted together; only with a probe line
};

struct RequesterCounters {
  std::uint64_t updates = 0;   // resolved
  std::uint64_t requests = 0;  // work requests posted
  std::uint64_t messages = 0;  // of which messages (SEND, WRITE_WITH_IMM)
  std::uint64_t posts = 0;     // calls of Endpoint::post that took some
};

/// Requires   the device outlives it, and the endpoint, which is connected on that device, is there
///            for each call. The endpoint goes first, or is disconnected: what is posted names
///            memory that the requester registered.
/// Threads    one caller at a time.
class Requester {
 public:
  struct Options {
    fabric::RemoteMemory remote;   // the exported part of the pool
    ReceiveQueue queue;            // as the responder has it
    std::uint32_t session = 0;     // as the responder has it
    std::size_t updates_max = 64;  // in flight; more: QueueFull
    /// What Responder::mailbox of the peer says; nothing: it polls for no messages.
    fabric::RemoteMemory mailbox{};
    /// Whether the responder READs what messages say that the requester has: Responder::Options.
    bool reads = false;
    /// Where the responder writes its acknowledgements, kAckBytes that peers may write, zeros at
    /// first; it is told of them (Responder::Options::acks) and sends none. Nothing: it sends them.
    /// Nothing wakes who sleeps until one is written.
    fabric::Segment acks{};
    bool probes = false;  // begin_probe may be called
    /// Where 64 bytes of zeros are that may be written over with zeros. Nothing: no write probes.
    std::optional<std::uint64_t> probe_line;
    /// The largest payload of a request; 0: begin_request is not called.
    std::size_t request_bytes_max = 0;
    /// The largest payload of a reply. Each receive buffer has room for one.
    std::size_t reply_bytes_max = 0;
  };

  /// How a request ended.
  struct Reply {
    std::optional<ErrorCode> refused;  // nothing of it was executed
    std::size_t bytes = 0;             // of payload
  };

  /// Compiles `methods` for the connection; they are named by their index from then on. There may
  /// be none, until use_methods.
  /// Errors: Unsupported (a verb that device or peer lack, a method that is not for this profile's
  /// receive buffers), InvalidArgument (malformed method, or methods that must not be mixed).
  static Result<std::unique_ptr<Requester>> open(fabric::Endpoint& endpoint, fabric::Device& device,
                                                 const ServerProfile& profile,
                                                 std::vector<Method> methods,
                                                 const Options& options);

  /// Begins an update by method `method`; returns its number, counted from 1.
  ///
  /// Requires    one item per item of the method's shape, inside the pool; messages must fit into
  ///             message_bytes_max, later items of a method without later_any_size into 8 bytes.
  /// Errors      QueueFull (poll, then try again), Disconnected (nothing was posted),
  ///             OutOfRange, InvalidArgument.
  /// Cost        no allocation, no system call of its own; one post for all steps up to the first
  /// wait.
  Result<std::uint64_t> begin(std::size_t method, std::span<const UpdateItem> items);

  /// The same for the commonest updates, in the caller: one message, or one WRITE and its flush,
  /// which can be posted at once. `word`: the second item; null: there is none. 0: it is not that,
  /// or something is wrong, and nothing was done. Whatever was posted is noted: where memory runs
  /// out between the two, the process ends.
  std::uint64_t begin_common(std::size_t method, const UpdateItem& first,
                             const UpdateItem* word) noexcept;

  /// The same for a probe, which counts as an update. Requires Options::probes, for write probes a
  /// probe line.
  Result<std::uint64_t> begin_probe(Probe probe);
  /// Bytes that a LongMessage has more than a Message.
  std::uint64_t probe_padding() const { return padding_.size(); }

  /// Begins a READ of the bytes at `item.at` into the item's memory, which counts as an update. It
  /// brings all that had resolved before it was begun, also what a replayed message only carries to
  /// its place later. Errors: as for begin.
  Result<std::uint64_t> begin_read(const UpdateItem& item) { return begin(read_, {&item, 1}); }

  /// Sends `payload` to the responder's handler of `kind`, which does what it asks for once, in its
  /// turn: messages that were begun before have been handled then, and WRITEs placed. Counts as an
  /// update, and has resolved when the reply is in `reply`, which stays until then or until the
  /// connection has ended. After a lost connection it may have been executed or not.
  ///
  /// Requires  Options::request_bytes_max.
  /// Errors    QueueFull, Disconnected; InvalidArgument (payload or reply too large): nothing was
  ///           sent.
  /// Cost      one copy of the payload; no allocation. With methods that replay messages, what is
  ///           begun behind it is posted when the reply has come.
  Result<std::uint64_t> begin_request(MessageKind kind, std::span<const std::byte> payload,
                                      std::span<std::byte> reply);
  /// How a request ended. Requires that it has resolved, and that fewer than Options::updates_max
  /// were begun since.
  const Reply& reply(std::uint64_t number) const { return replies_[slot_of(number)]; }

  /// Takes other methods in place of those it has. They may allocate and register memory.
  ///
  /// Requires    nothing in flight.
  /// Errors      those of open, InvalidArgument if the law of core/method_set.h keeps them from
  ///             coming after those (a copy of the responder's could still be in flight); the old
  ///             methods are kept.
  Result<void> use_methods(std::vector<Method> methods);

  /// Takes completions and goes on with what they release. Never blocks.
  /// Errors      Once the connection is lost or the responder refused: every update above
  ///             resolved() is OutcomeUnknown; the same error is returned from then on.
  Result<void> poll();

  /// Every update up to this number has reached what its method promises.
  std::uint64_t resolved() const { return resolved_; }
  /// Number of the last update that was begun.
  std::uint64_t begun() const { return begun_; }
  const RequesterCounters& counters() const { return counters_; }

  /// The largest item.
  std::uint64_t item_bytes_max() const { return item_bytes_max_; }
  /// The largest payload that one SEND of `method` carries, for all its copied items together.
  std::uint64_t message_payload_max(std::size_t method) const {
    return options_.queue.message_bytes_max - methods_[method].message_header_bytes_max;
  }

 private:
  // Context of a work request: bit 63 marks receives; else update slot << 8 |
  // CompiledRequest::awaited.
  static constexpr std::uint64_t kReceiveContext = std::uint64_t{1} << 63;
  static constexpr std::size_t kScratchBytes = 64;

  /// One update in flight.
  struct InFlight {
    const CompiledMethod* method = nullptr;  // nothing: these are others than before
    std::span<fabric::WorkRequest> ready;    // of that method
    std::size_t burst = 0;                   // the next one to post
    std::size_t posted = 0;                  // work requests that are posted
    std::uint64_t messages_before = 0;       // of all updates before it
    std::uint64_t completed = 0;             // bits: CompiledRequest::awaited
    /// By method: its work requests as they go out, but for what an update brings.
    std::vector<std::vector<fabric::WorkRequest>> requests;
  };

  Requester(fabric::Endpoint& endpoint, fabric::Device& device, const ServerProfile& profile,
            const Options& options);
  Result<void> prepare(std::vector<Method> methods);

  std::uint64_t slot_of(std::uint64_t number) const { return number & slot_mask_; }
  InFlight& update(std::uint64_t number) { return updates_[slot_of(number)]; }
  bool inside_pool(const UpdateItem& item) const {
    return item.data.length != 0 && item.data.length <= item_bytes_max_ &&
           item.data.length <= options_.remote.length &&
           item.at <= options_.remote.length - item.data.length;
  }
  bool acceptable(const CompiledMethod& method, std::span<const UpdateItem> items) const;
  Error refusal(const CompiledMethod& method, std::span<const UpdateItem> items) const;
  Result<void> advance();
  /// The messages for which the responder is known to have receive buffers, of all.
  std::uint64_t messages_allowed() const {
    return messages_acknowledged_ + options_.queue.depth - kResponderBurst;
  }
  std::size_t within_credit(const InFlight& current, std::size_t end) const;
  bool over(const InFlight& current, const std::vector<CompiledWait>& waits) const {
    for (const CompiledWait& wait : waits) {
      const bool done = wait.ack ? messages_acknowledged_ >= current.messages_before + wait.which
                                 : (current.completed >> wait.which & 1) != 0;
      if (!done) return false;
    }
    return true;
  }
  Result<void> make_room_for_messages(std::size_t needed);
  void make_ready();
  void make_room_for_lengths();
  void note_length(std::uint64_t sequence);
  fabric::WorkRequest ready_request(const CompiledRequest& compiled, std::size_t slot,
                                    std::byte* buffer) const;
  void fill_in(const InFlight& started, const CompiledRequest& compiled,
               std::span<const UpdateItem> items, fabric::WorkRequest& request);
  bool fill_in_message(const CompiledMessage& message, const UpdateItem& first,
                       const UpdateItem* word, fabric::WorkRequest& request) const;
  void fill_in_write_message(const CompiledMessage& message, const UpdateItem& item,
                             std::span<fabric::WorkRequest> requests) const;
  static void fill_in_write(const UpdateItem& item, std::span<fabric::WorkRequest> requests);
  bool find_room();
  void fail(Error error);
  void note_common(InFlight& started, const Result<std::size_t>& taken);
  void write_message(const InFlight& started, const CompiledRequest& compiled,
                     std::span<const UpdateItem> items, fabric::WorkRequest& request);
  Result<void> take(const fabric::Completion& completion);
  Result<void> take_ack(const fabric::Completion& completion);
  Result<void> take_written_ack();
  Result<void> note_ack(const Ack& ack);
  void write_barrier(const InFlight& started);
  Result<Ack> decode_answer(std::span<const std::byte> bytes);
  Result<Ack> take_reply(std::span<const std::byte> bytes);
  Result<void> post_ack_buffer(std::size_t index);
  Result<void> repost_ack();

  fabric::Endpoint& endpoint_;
  fabric::Device& device_;
  const ServerProfile profile_;
  const Options options_;
  const std::uint64_t item_bytes_max_;
  const std::uint64_t session_field_;    // of messages: see wire.h
  const std::size_t answer_bytes_;       // of one receive buffer
  std::vector<CompiledMethod> methods_;  // those that were given, the READ, the request, the probes
  std::size_t first_probe_ = 0;
  std::size_t read_ = 0;           // where the READ is among them
  std::size_t request_ = 0;        // and what carries a request, if there are any
  std::vector<InFlight> updates_;  // by number; a power of two
  std::uint64_t slot_mask_;

  std::vector<std::byte> message_bytes_;  // headers (or whole messages) of updates in flight
  std::unique_ptr<fabric::Memory> message_memory_;
  struct Outgrown {
    std::vector<std::byte> bytes;
    std::unique_ptr<fabric::Memory> memory;
  };
  std::vector<Outgrown> outgrown_;  // by methods that need more; the RNIC may send from it again
  std::size_t ack_buffers_ = 0;
  std::vector<std::byte> ack_bytes_;
  std::unique_ptr<fabric::Memory> ack_memory_;
  std::array<std::byte, kScratchBytes> scratch_{};  // what READs bring, never looked at
  std::unique_ptr<fabric::Memory> scratch_memory_;
  std::vector<std::byte> padding_;  // zeros, for probes; empty without them
  std::unique_ptr<fabric::Memory> padding_memory_;

  std::uint64_t begun_ = 0;
  std::uint64_t resolved_ = 0;
  std::uint64_t posting_ = 1;  // the update that may post: all before it have posted everything
  /// So many common updates can be begun at least: all before have posted everything, there is room
  /// for them and, if they are messages, a receive buffer for each. See find_room.
  std::uint64_t common_room_ = 0;
  std::uint64_t messages_begun_ = 0;  // of all updates so far; counters_.messages are posted
  std::uint64_t messages_acknowledged_ = 0;
  /// By sequence of a message, modulo a power of two: bytes that all WRITE_WITH_IMMs up to it
  /// write, as in Ack. Has room for those that are not acknowledged, and the last that is.
  std::vector<std::uint32_t> written_;
  std::uint32_t written_begun_ = 0;
  bool immediates_sent_ = false;
  std::uint64_t acks_taken_ = 0;
  std::uint64_t acks_reposted_ = 0;
  /// A request in flight, by the count of requests modulo as many as updates_.
  struct Requested {
    std::uint64_t number = 0;
    std::uint64_t sequence = 0;
    std::uint8_t message = 0;
    std::span<std::byte> reply;
  };
  std::vector<Requested> requested_;
  std::vector<Reply> replies_;  // by slot of the update
  std::uint64_t requests_begun_ = 0;
  std::uint64_t replies_taken_ = 0;
  std::array<fabric::Completion, 32> completions_;  // scratch of poll
  std::optional<Error> failure_;
  RequesterCounters counters_;
};

// What most updates go through.

/// Notes what the acknowledgement of this message will have to say of lengths. Until the first
/// WRITE_WITH_IMM that is 0, as everywhere in written_.
inline void Requester::note_length(std::uint64_t sequence) {
  if (immediates_sent_) written_[sequence & (written_.size() - 1)] = written_begun_;
}

/// The same as fill_in for a method that is one WRITE and a message about it.
inline void Requester::fill_in_write_message(const CompiledMessage& message, const UpdateItem& item,
                                             std::span<fabric::WorkRequest> requests) const {
  constexpr std::size_t kNamesNone = kMessageHeaderBytes;
  constexpr std::size_t kNamesOne = kMessageHeaderBytes + kMessageEntryBytes;
  requests[0].remote_offset = item.at;
  requests[0].segments[0] = item.data;
  std::byte* const buffer = requests[1].segments[0].data;
  put_header(buffer, message.head, messages_begun_ + 1, session_field_);
  if (message.entries == 0) {
    store(buffer, short_crc32c_of<kNamesNone - 4>(buffer + 4));
    requests[1].segments[0].length = kNamesNone;
    return;
  }
  put_entry(buffer, 0, item.at, message.actions[0] + item.data.length);
  store(buffer, short_crc32c_of<kNamesOne - 4>(buffer + 4));
  requests[1].segments[0].length = kNamesOne;
}

/// The same as fill_in for a method that is one message, by the CPU's crc32 instruction where it
/// has one. False: the word does not go this way.
inline bool Requester::fill_in_message(const CompiledMessage& message, const UpdateItem& first,
                                       const UpdateItem* word, fabric::WorkRequest& request) const {
  if (word != nullptr && (!inside_pool(*word) || !is_word(*word))) return false;
  constexpr std::size_t kOne = kMessageHeaderBytes + kMessageEntryBytes;
  constexpr std::size_t kTwo = kOne + kMessageEntryBytes;
  const std::uint64_t payload = first.data.length + (word == nullptr ? 0 : sizeof(std::uint64_t));
  // All of its bytes first: for all the compiler knows those could be the request.
  std::byte* const buffer = request.segments[0].data;
  put_header(buffer, message.head, messages_begun_ + 1, session_field_ + payload);
  put_entry(buffer, 0, first.at, message.actions[0] + first.data.length);
  if (word == nullptr) {
    store(buffer, short_crc32c_of<kOne - 4>(buffer + 4));
  } else {
    put_entry(buffer, 1, word->at, message.actions[1] + sizeof(std::uint64_t));
    store(buffer, short_crc32c_of<kTwo - 4>(buffer + 4));
    request.segments[2] = word->data;
  }
  request.segments[0].length = word == nullptr ? kOne : kTwo;
  request.segments[1] = first.data;
  return true;
}

/// The same as fill_in for a method that is one WRITE, with or without its flush.
inline void Requester::fill_in_write(const UpdateItem& item,
                                     std::span<fabric::WorkRequest> requests) {
  requests[0].remote_offset = item.at;
  requests[0].segments[0] = item.data;
  if (requests.size() == 1) return;
  // A READ is of the last byte that was written: its answer pushes every earlier write before it.
  fabric::WorkRequest& flush = requests[1];
  flush.remote_offset = item.at;
  if (flush.opcode == fabric::Opcode::Read) {
    flush.remote_offset += item.data.length - 1;
  } else {
    flush.flush_length = item.data.length;
  }
}

/// What is noted of a common update behind its post. All of it may go, as far as it was taken.
inline void Requester::note_common(InFlight& started, const Result<std::size_t>& taken) {
  started.messages_before = messages_begun_;
  if (started.method->is_common_message()) note_length(++messages_begun_);
  started.completed = 0;
  ++begun_;
  --common_room_;
  if (!taken) [[unlikely]]
    return fail(taken.error());
  started.posted = *taken;
  if (*taken != 0) {
    ++counters_.posts;
    counters_.requests += *taken;
    if (*taken == started.ready.size()) [[likely]] {
      counters_.messages = messages_begun_;
      started.burst = 1;
      ++posting_;
      return;
    }
  }
  started.burst = 0;
  common_room_ = 0;
}

[[gnu::always_inline]] inline std::uint64_t Requester::begin_common(
    std::size_t method, const UpdateItem& first, const UpdateItem* word) noexcept {
  const CompiledMethod& compiled = methods_[method];
  const std::uint64_t bytes = first.data.length;
  if (bytes - 1 >= compiled.common_bytes_max || first.at > options_.remote.length - bytes ||
      (common_room_ == 0 && !find_room())) {
    return 0;
  }
  InFlight& started = update(begun_ + 1);
  if (started.method != &compiled) [[unlikely]] {
    started.method = &compiled;
    started.ready = started.requests[method];
  }
  const std::span<fabric::WorkRequest> requests = started.ready;
  if (compiled.common == (word == nullptr ? CommonUpdate::Message : CommonUpdate::MessageAndWord)) {
    if (!fill_in_message(compiled.one_message, first, word, requests[0])) return 0;
  } else if (word == nullptr && compiled.common >= CommonUpdate::Write) [[likely]] {
    fill_in_write(first, requests);
  } else if (word == nullptr && compiled.common == CommonUpdate::WriteMessage) {
    fill_in_write_message(compiled.one_message, first, requests);
  } else {
    return 0;
  }
  note_common(started, endpoint_.post(requests));
  return begun_;
}

}  // namespace perdure::persist
