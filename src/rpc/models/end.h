// Client and Server: the two ends of one connection of an RPC design. What designs have in common
// is here: memory that the other end reaches, staging slots, the window, counted verbs. What makes
// a design is how a request gets to the server and a reply to the client: a few virtual functions.
//
//   client                                   server
//   begin(request)  -> post_request          pump -> find_request, handler, post_reply
//   pump, take(reply) -> find_reply
//
// An end is one connection. A process that serves many pumps many; what designs share among
// connections (one scan of all mailboxes, one completion queue, groups) is left to whoever does.
// Calls of a connection are executed and answered in the order in which they were begun.
#pragma once

#include "core/bytes.h"
#include "core/try.h"
#include "fabric/fabric.h"
#include "rpc/models/frame.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace perdure::rpc::models {

/// What is counted of each end. A Receive counts when it completes, all others when posted.
enum class Verb : std::uint8_t { Write, WriteImm, Send, Read, Receive, SendFlush, SystemCall };

inline constexpr std::array kVerbs{Verb::Write,   Verb::WriteImm,  Verb::Send,      Verb::Read,
                                   Verb::Receive, Verb::SendFlush, Verb::SystemCall};

std::string_view to_string(Verb verb);

class VerbCounts {
 public:
  std::uint64_t& operator[](Verb verb) { return of_[static_cast<std::size_t>(verb)]; }
  std::uint64_t operator[](Verb verb) const { return of_[static_cast<std::size_t>(verb)]; }

 private:
  std::array<std::uint64_t, kVerbs.size()> of_{};
};

inline constexpr std::size_t kWindowMax = 16;
/// Of a request and of a reply: an object of 64 KiB, and which one it is. Some designs take less.
inline constexpr std::size_t kPayloadBytesMax = 64 * 1024 + 64;
/// Slots of a ring, in the designs that have one: more than kWindowMax, so that its consumer need
/// not say at each entry that it has one.
inline constexpr std::uint64_t kRingSlots = 64;
static_assert(kRingSlots >= 4 * kWindowMax);

/// What the published artifact of *durable RPC* does otherwise than its text or than the systems it
/// compares with, and what moves its figures: each can be switched on by itself, so that a bench
/// shows what it is worth. Those that concern a design's verbs are here; the bench has others.
/// With all of them off a design does what its description says.
struct Confounders {
  /// The receiver-initiated designs say that a request is durable before they flush it.
  bool answers_before_flush = false;
  /// L5's mailbox is rung when the WRITE of the data has completed, and not posted with it.
  bool waits_before_mailbox = false;
  /// RFP's READs are all as long as the longest reply, also for calls whose reply has no bytes.
  bool reads_whole_replies = false;
  /// ScaleRPC registers a region at each warm-up, and deregisters it.
  bool registers_at_warm_up = false;
  /// WFlush-RPC takes a place of its log again when its call is durable, executed or not, and gets
  /// no reply to such a call. A server that is too slow then loses calls that it called durable.
  bool reuses_places = false;
};

/// Both ends of a connection take the same window, payload_bytes_max and confounders. Device and
/// endpoint must outlive the end.
struct EndOptions {
  fabric::Device* device = nullptr;
  fabric::Endpoint* endpoint = nullptr;
  std::size_t window = 1;  // calls in flight, at most kWindowMax
  std::size_t payload_bytes_max = 4096;
  Confounders confounders = {};
  /// Where the end keeps what the other one reaches: persistent memory of a server, for example. It
  /// must outlive the end. Empty: memory of its own.
  std::span<std::byte> memory = {};
};

/// What a client says of a call.
struct CallOptions {
  /// It changes something: designs that can tell that it is durable shall do so.
  bool durable = true;
  /// Its reply is known not to be longer; RFP makes use of it.
  std::size_t reply_bytes_max = kPayloadBytesMax;
};

/// What an endpoint must be opened with to carry a design.
inline constexpr fabric::EndpointOptions kEndpointOptions{.send_depth = 4 * kWindowMax,
                                                          .receive_depth = 2 * kWindowMax};

/// Equal places one behind another in an end's memory; that of a call is found by its sequence.
struct Slots {
  std::size_t at = 0;
  std::size_t count = 0;
  std::size_t stride = 0;

  std::size_t index(std::uint64_t sequence) const { return sequence % count; }
  std::size_t offset(std::uint64_t sequence) const { return at + index(sequence) * stride; }
  std::size_t end() const { return at + count * stride; }
};

/// `count` slots for frames behind `at`.
Slots frame_slots(std::size_t at, std::size_t count, const EndOptions& options);

/// Threads: one caller at a time.
class End {
 public:
  virtual ~End() = default;
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  /// Makes an end and registers its memory. Errors: those of Device::register_memory.
  template <typename Base, typename Made, typename... More>
  static Result<std::unique_ptr<Base>> open(const EndOptions& options, More&... more) {
    std::unique_ptr<Base> end = std::make_unique<Made>(options, more...);
    PERDURE_TRY_VOID(end->register_memory());
    return end;
  }

  /// What the other end must be given of this one before the first call; how is not the design's
  /// business (all of them exchange it when they connect).
  fabric::RemoteMemory memory() const;
  /// Takes the other end's, and posts the receives that the design has. Before the first call.
  /// Errors: InvalidArgument: the endpoint has less than kEndpointOptions, or carries less in one
  /// transfer than a frame; those of the fabric.
  Result<void> start(const fabric::RemoteMemory& peer);

  const VerbCounts& counts() const { return counts_; }

 protected:
  /// `area_bytes`: what the design itself needs, from offset 0 of the memory on.
  End(const EndOptions& options, std::size_t area_bytes);
  /// Posts the design's receives.
  virtual Result<void> post_receives() { return {}; }
  /// A message, or the immediate of a WRITE, has arrived. By default a ProtocolError.
  virtual Result<void> received(const fabric::Completion& completion);
  /// A READ of this end has brought what it was posted for, or an SFLUSH has completed; in the
  /// order of posting.
  virtual void read_completed() {}

  /// Takes what has completed. Errors: what ended the connection.
  Result<void> poll();

  std::span<std::byte> at(std::size_t offset, std::size_t length);
  std::span<std::byte> slot(const Slots& slots, std::uint64_t sequence);

  /// Bytes of this end's memory that a verb sends; those of a staging slot.
  struct Source {
    std::size_t staging = 0;  // its index; that of the line behind the frame comes a window later
    std::size_t offset = 0;
    std::size_t length = 0;
  };
  /// The staging slot of a call: a frame, and a cache line behind it for a word.
  std::span<std::byte> staged(std::uint64_t sequence);
  Source source(std::uint64_t sequence, std::size_t length) const;
  /// The word behind the frame, set to `value`.
  Source word(std::uint64_t sequence, std::uint64_t value);
  /// A frame without payload behind the frame: a message beside the reply.
  Source note(std::uint64_t sequence, std::uint32_t tag);
  /// Whether something of the call's staging slot may still be read by the RNIC; or its frame.
  bool is_sending(std::uint64_t sequence) const;
  bool is_frame_sending(std::uint64_t sequence) const;

  struct Target {
    fabric::Opcode opcode = fabric::Opcode::Write;  // Write, WriteImm or Send
    std::size_t offset = 0;                         // in the peer's memory; not for Send
    std::uint32_t immediate = 0;
  };
  struct Transfer {
    Source from;
    Target to;
  };
  /// Posts in this order, as one list. Errors: those of Endpoint::post.
  Result<void> post(std::span<const Transfer> transfers);
  Result<void> write(const Source& from, std::size_t to) {
    return post_one({from, {.offset = to}});
  }
  Result<void> write_imm(const Source& from, std::size_t to, std::uint32_t immediate) {
    return post_one({from, {fabric::Opcode::WriteImm, to, immediate}});
  }
  Result<void> send(const Source& from) {
    return post_one({from, {.opcode = fabric::Opcode::Send}});
  }
  /// READs so many bytes of the peer from `from` to `to` of this end's memory.
  Result<void> read(std::size_t to, std::size_t from, std::size_t length);
  /// SFLUSH of the SEND before it. Errors: also InvalidArgument: the connection has none.
  Result<void> send_flush();
  /// The completion's context will be `offset`.
  Result<void> post_receive(std::size_t offset, std::size_t length);
  /// A real system call that does nothing: what crossing into the kernel costs.
  void cross_into_kernel();

  const EndOptions& options() const { return options_; }
  /// Whether the peer's memory has that range: asked of offsets that came by the wire.
  bool peer_has(std::uint64_t offset, std::uint64_t length) const;

 private:
  Result<void> register_memory();
  Result<void> post_one(const Transfer& transfer) { return post({&transfer, 1}); }
  Result<void> post_requests(std::span<const fabric::WorkRequest> requests);
  Result<void> complete(const fabric::Completion& completion);

  struct alignas(kCacheLineBytes) CacheLine {
    std::array<std::byte, kCacheLineBytes> bytes;
  };

  const EndOptions options_;
  const Slots staging_;
  std::vector<CacheLine> lines_;  // empty: options_.memory is used
  std::unique_ptr<fabric::Memory> registered_;
  fabric::RemoteMemory peer_;
  /// Requests that have not completed: of each staging slot's frame, then of each one's line
  /// behind.
  std::vector<std::uint32_t> sending_;
  VerbCounts counts_;
};

class Client : public End {
 public:
  /// Begins a call. The request is copied.
  ///
  /// Errors  QueueFull: `window` calls are in flight, or the connection still holds the place of an
  ///         earlier one: pump, take replies, then again. InvalidArgument: larger than
  ///         payload_bytes_max. Others: the connection is of no use any more.
  Result<void> begin(std::span<const std::byte> request, const CallOptions& call = {});

  /// Goes on with the calls in flight. Errors: what ended the connection.
  Result<void> pump();

  /// The reply of the oldest call in flight, if it has come: copied, and the call is over.
  Result<bool> take(std::vector<std::byte>& reply);

  std::uint64_t in_flight() const { return next_ - oldest_; }
  /// Calls so far; the last one begun has this number.
  std::uint64_t begun() const { return next_ - 1; }
  /// Whether the server has said that the call is durable: of most designs only its reply says so.
  bool is_durable(std::uint64_t call) const { return call < oldest_ || call <= durable_; }
  /// Whether the request, the largest one in flight or before, has left: its verbs have completed.
  bool has_left(std::uint64_t call) const { return call < oldest_ || !is_sending(call); }

 protected:
  Client(const EndOptions& options, std::size_t area_bytes)
      : End(options, area_bytes), calls_(options.window) {}

  /// What was said of a call in flight.
  const CallOptions& said(std::uint64_t sequence) const { return calls_[sequence % calls_.size()]; }
  /// That call and those before it are durable, as far as that was asked for.
  void note_durable(std::uint64_t sequence) { durable_ = sequence; }

  /// Sends the request of a call, a whole frame in its staging slot. `tag` of the frame is
  /// request_tag().
  virtual Result<void> post_request(std::uint64_t sequence, const Source& frame) = 0;
  virtual std::uint32_t request_tag(std::uint64_t) const { return 0; }
  /// Whether the server has room for that call, beyond what the window says.
  virtual bool has_room(std::uint64_t) { return true; }
  /// The reply of that call, the oldest, if it is there.
  virtual Result<std::optional<Frame>> find_reply(std::uint64_t sequence) = 0;
  /// It was copied: its place may be used again.
  virtual Result<void> release_reply(std::uint64_t) { return {}; }
  /// What a client does on its own while it waits for the reply of call `oldest`.
  virtual Result<void> advance(std::uint64_t) { return {}; }

 private:
  std::uint64_t next_ = 1;
  std::uint64_t oldest_ = 1;  // whose reply was not taken
  std::uint64_t durable_ = 0;
  std::vector<CallOptions> calls_;
};

/// What a server does with calls.
class Handler {
 public:
  virtual ~Handler() = default;
  /// Executes a call. Returns the bytes of its reply, which it has written to the start of `reply`;
  /// no more than fit.
  virtual std::size_t handle(std::span<const std::byte> request, std::span<std::byte> reply) = 0;
  /// Whether a processor has got to that call, the next one; if not, it is asked again. How work
  /// that takes time goes on while the server takes what arrives.
  virtual bool is_ready(std::uint64_t, std::span<const std::byte>) { return true; }
  /// Makes a message durable where it was received; false: not yet, then it is asked again. For
  /// designs whose receiver flushes before it executes.
  virtual bool persist(std::uint64_t, std::span<const std::byte>) { return true; }
};

class Server : public End {
 public:
  /// Executes what has arrived, at most a window of it. How many calls that were.
  /// Errors: what ended the connection; ProtocolError: the client sent what makes no sense.
  Result<std::size_t> pump();

  /// Calls that were overwritten before they were executed: see Confounders::reuses_places.
  std::uint64_t lost() const { return lost_; }

 protected:
  Server(const EndOptions& options, std::size_t area_bytes, Handler& handler)
      : End(options, area_bytes), handler_(handler) {}

  Handler& handler() { return handler_; }
  /// Takes note of what has arrived, before anything is executed. `next`: the call that is executed
  /// next.
  virtual Result<void> take_arrivals(std::uint64_t) { return {}; }
  /// Whether the call's staging slot is free for its reply.
  virtual bool may_answer(std::uint64_t sequence) const { return !is_sending(sequence); }
  /// Whether that call will never be found.
  virtual bool is_lost(std::uint64_t) { return false; }

  /// The request of that call, if it is there.
  virtual Result<std::optional<Frame>> find_request(std::uint64_t sequence) = 0;
  /// It was executed: its place may be used again. Before its reply is sent.
  virtual Result<void> release_request(std::uint64_t) { return {}; }
  /// Sends a reply, a whole frame in its staging slot. `request`: the frame it answers, but for
  /// the payload.
  virtual Result<void> post_reply(const Frame& request, const Source& frame) = 0;

 private:
  Handler& handler_;
  std::uint64_t next_ = 1;
  std::uint64_t lost_ = 0;
};

}  // namespace perdure::rpc::models
