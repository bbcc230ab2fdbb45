// Responder: what the responder's CPU does for one session. It takes messages from the receive
// queue, copies and flushes what they name, and acknowledges. The reaction of a Method travels in
// the message (wire.h); the responder checks every address and executes nothing outside the pool.
#pragma once

#include <perdure/result.h>

#include "fabric/fabric.h"
#include "persist/request_handler.h"
#include "persist/wire.h"
#include "pmem/region.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace perdure::persist {

/// Messages that a responder handles before it flushes, answers and posts their buffers again. A
/// requester keeps this many buffers in reserve, so the receive queue is never empty.
inline constexpr std::size_t kResponderBurst = 16;

/// Receive buffers, and so memory, of a session that has sent no message yet: most readers never
/// do. The first message brings the others; until then a message may wait at the requester.
inline constexpr std::size_t kIdleReceiveBuffers = 8;

/// Sizes of the receive queue of one session. Both ends must use the same.
struct ReceiveQueue {
  std::size_t depth = 64;
  std::size_t message_bytes_max = 16 * 1024;

  /// Bytes that replayable receive buffers take in persistent memory, their header included.
  std::uint64_t persistent_bytes() const;
};

/// Where in the responder's mailbox a message goes that is written there instead of sent. A place
/// is used again when as many messages were handled as the queue has buffers.
inline std::uint64_t mailbox_slot(const ReceiveQueue& queue, std::uint64_t sequence) {
  return sequence % queue.depth * queue.message_bytes_max;
}

struct ResponderCounters {
  std::uint64_t messages = 0;  // handled
  std::uint64_t refused = 0;   // malformed, or naming memory outside the pool: not executed
  std::uint64_t copied_bytes = 0;
  std::uint64_t flush_calls = 0;  // flushes of the medium; one may serve many messages
  std::uint64_t acks = 0;         // acknowledgements sent; one may serve many messages
};

/// Requires   endpoint, device and region outlive it; the endpoint is accepted on that device.
/// Threads    one caller at a time.
class Responder {
 public:
  struct Options {
    pmem::Range exported;       // the part of the region that the session may touch
    std::uint32_t session = 0;  // low bits of the session's id; the requester's messages carry it
    ReceiveQueue queue;
    /// Where receive buffers live in the region, for methods that replay messages at recovery:
    /// outside of `exported`, `queue.persistent_bytes()` long. Empty: they live in DRAM.
    pmem::Range persistent_buffers{};
    /// Whether it also looks for messages that are written into a mailbox of its own: in DRAM, as
    /// large as the receive queue. They are found by pump alone: nothing wakes who sleeps.
    bool polls = false;
    /// Whether it READs what messages say that the requester has, into the pool, which it registers
    /// once more for that.
    bool reads = false;
    /// Where it writes acknowledgements, kAckBytes of the requester's memory (Requester::Options);
    /// nothing: it sends them.
    fabric::RemoteMemory acks{};
    bool may_write = true;  // false: a message that names bytes of the pool is refused
    /// perdure::flushes_writes: whether a flush makes durable what WRITEs brought. Where not, a
    /// flush of bytes that its own message does not copy writes nothing and succeeds, so it is
    /// refused, whatever the requester thinks of its method (perdure::is_refused).
    bool flushes_writes = true;
    RequestHandlers handlers = built_in_handlers();
    /// The largest payload of a reply, at most kReplyPayloadMax. A session that sends requests
    /// takes kReplies times as much memory.
    std::size_t reply_bytes_max = 64;
  };

  /// Posts receive buffers: kIdleReceiveBuffers, or all if they are persistent. Errors: those of
  /// registration and posting.
  static Result<std::unique_ptr<Responder>> open(fabric::Endpoint& endpoint, fabric::Device& device,
                                                 pmem::Region& region, const Options& options);

  /// Handles what has arrived and answers it; returns how many messages. Blocks only while the
  /// medium flushes. One flush and one acknowledgement serve all that arrived together; a request
  /// has a reply of its own, behind that flush. A refused request is counted, and no error.
  ///
  /// Errors   Disconnected: the session is over (the peer went).
  ///          ProtocolError, OutOfRange: the peer sent nonsense or named memory outside the pool;
  ///          it has been sent the answer, nothing of that message was executed, the session
  ///          is over.
  ///          SystemError: the medium refused a flush; the peer has been sent that answer.
  Result<std::size_t> pump();

  /// Where a requester writes messages that are to be polled; nothing without Options::polls.
  fabric::RemoteMemory mailbox() const;

  const ResponderCounters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kAckBuffers = 16;
  static constexpr std::uint64_t kAckContext = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kReplyContext = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kReadContext = std::uint64_t{1} << 61;
  /// Replies that are not sent yet, by the RNIC's word. When there is no room for another, a
  /// request waits in its receive buffer, and so does what came after it.
  static constexpr std::size_t kReplies = 16;

  /// Replies, by their count modulo kReplies. There is one for each request that was handled.
  struct Replies {
    std::size_t stride = 0;
    std::unique_ptr<std::byte[]> bytes;
    std::unique_ptr<fabric::Memory> memory;
    std::array<ReplyHeader, kReplies> headers{};
    std::uint64_t made = 0;    // of those, from the oldest:
    std::uint64_t posted = 0;  // to be posted in order, behind the flush
    std::uint64_t sent = 0;    // their room is free again

    std::byte* at(std::uint64_t count) { return bytes.get() + count % kReplies * stride; }
  };

  /// A message that asks for READs, while it is executed. What comes behind it waits.
  struct Reading {
    Reading(std::span<const std::byte> bytes, const MessageHeader& decoded)
        : message(bytes), header(decoded), payload(decoded.bytes()) {}

    std::span<const std::byte> message;
    MessageHeader header;
    std::uint64_t buffer = 0;   // that it is in
    std::size_t entry = 0;      // the next one
    std::size_t payload;        // where what belongs to that is
    bool posted = false;        // the READ of that entry
    bool flush_named = false;   // by an entry before
    std::size_t in_flight = 0;  // READs
  };

  Responder(fabric::Endpoint& endpoint, fabric::Device& device, pmem::Region& region,
            const Options& options);
  Result<void> prepare();
  Result<void> prepare_mailbox();
  Error no_memory(std::size_t bytes) const;
  Result<void> prepare_reading();
  bool must_wait(const fabric::Completion& received) const;
  Result<void> take(const fabric::Completion& received);
  Result<std::size_t> handle_waiting();
  Result<void> handle(const fabric::Completion& completion);
  Result<void> begin_message();
  Result<std::size_t> handle_polled();
  Result<bool> handle_next_polled();
  Result<void> handle_request(std::span<const std::byte> message);
  Result<std::size_t> answer(const RequestHeader& header, std::span<const std::byte> message,
                             std::span<std::byte> reply);
  Result<void> prepare_replies();
  void post_replies();
  bool reply_due() const { return replies_ != nullptr && replies_->posted != replies_->made; }
  Result<void> check_turn(std::uint32_t session, std::uint64_t sequence) const;
  Result<void> move_watermark();
  Result<void> handle_message(std::span<const std::byte> message);
  Result<void> begin_reading(std::span<const std::byte> message, const MessageHeader& header);
  Result<bool> go_on_reading();
  Result<bool> post_read(const Entry& entry);
  Result<std::size_t> end_reading();
  Result<void> handle_immediate(const fabric::Completion& completion);
  Result<void> check_entries(std::span<const std::byte> message, const MessageHeader& header) const;
  Result<void> execute(std::span<const std::byte> message, const MessageHeader& header);
  Result<void> flush_pending();
  Result<void> finish_burst();
  Result<void> offer_buffers(std::size_t end);
  Result<void> offer_the_rest();
  Result<void> repost(std::uint64_t slot);
  void acknowledge(std::uint8_t status);
  Error fail(Error error);

  std::span<std::byte> buffer(std::uint64_t slot) const {
    return buffers_.subspan(slot * queue_.message_bytes_max, queue_.message_bytes_max);
  }
  bool inside_pool(std::uint64_t offset, std::uint64_t length) const {
    return length <= options_.exported.length && offset <= options_.exported.length - length;
  }
  bool persistent_buffers() const { return options_.persistent_buffers.length != 0; }

  fabric::Endpoint& endpoint_;
  fabric::Device& device_;
  pmem::Region& region_;
  const Options options_;
  const ReceiveQueue queue_;

  std::unique_ptr<std::byte[]> dram_buffers_;
  std::span<std::byte> buffers_;  // queue_.depth buffers, in DRAM or in the region
  std::size_t all_buffers_ = 0;   // receive buffers that the endpoint takes
  std::size_t idle_buffers_ = 0;  // of those, the ones offered from the start
  std::size_t offered_ = 0;
  bool few_buffers_ = false;                     // there is no memory for more
  std::unique_ptr<fabric::Memory> idle_memory_;  // the first idle_buffers_
  std::unique_ptr<fabric::Memory> rest_memory_;  // and the others, once they are offered
  std::unique_ptr<std::byte[]> mailbox_;         // none unless it polls
  std::unique_ptr<fabric::Memory> mailbox_memory_;
  std::vector<std::byte> polled_;  // a message of the mailbox, where its writer can not change it
  std::array<std::byte, kAckBuffers * kAckBytes> ack_bytes_{};
  std::unique_ptr<fabric::Memory> ack_memory_;
  std::array<bool, kAckBuffers> ack_busy_{};

  std::array<fabric::Completion, kResponderBurst> completions_;  // scratch of pump
  std::vector<pmem::Range> pending_;     // copied or named for flushing, not flushed yet
  bool stored_ = false;                  // something was, since the last flush
  std::vector<std::uint64_t> consumed_;  // receive buffers to post again at the end of the burst
  std::uint64_t handled_ = 0;            // sequence of the last message handled
  std::uint64_t marked_ = 0;             // of the last one at or below the watermark
  std::uint64_t flushed_ = 0;            // of the last whose effects are as durable as it asked
  std::uint32_t written_ = 0;            // lengths of immediates handled, as in Ack
  std::uint32_t written_flushed_ = 0;    // of those up to flushed_
  std::uint64_t acknowledged_ = 0;       // sequence in the last acknowledgement that was posted
  bool ack_due_ = false;
  std::unique_ptr<Replies> replies_;  // none until the first request
  /// Received, in order: the first has no room to reply, or one before it is still reading.
  std::vector<fabric::Completion> waiting_;
  std::optional<Reading> reading_;
  std::unique_ptr<fabric::Memory> read_memory_;  // the pool, where READs put what they bring
  std::optional<Error> medium_failed_;           // while a request was handled
  ResponderCounters counters_;
};

/// Applies the messages that a power failure left whole in persistent receive buffers, in their
/// order, up to the first that is missing or torn. Applying them again is harmless.
/// Call it before the region is used again. Returns how many messages were applied.
Result<std::uint64_t> replay_messages(pmem::Region& region, pmem::Range exported,
                                      pmem::Range persistent_buffers, const ReceiveQueue& queue);

}  // namespace perdure::persist
