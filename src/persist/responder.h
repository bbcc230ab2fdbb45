// Responder: what the responder's CPU does for one session. It takes messages from the receive
// queue, copies and flushes what they name, and acknowledges. The reaction of a Method travels in
// the message (wire.h); the responder checks every address and executes nothing outside the pool.
#pragma once

#include <perdure/result.h>

#include "fabric/fabric.h"
#include "pmem/region.h"

#include <cstdint>
#include <memory>
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
    bool may_write = true;  // false: a message that names bytes of the pool is refused
  };

  /// Posts receive buffers: kIdleReceiveBuffers, or all if they are persistent. Errors: those of
  /// registration and posting.
  static Result<std::unique_ptr<Responder>> open(fabric::Endpoint& endpoint, fabric::Device& device,
                                                 pmem::Region& region, const Options& options);
  virtual ~Responder() = default;

  /// Handles what has arrived and answers it; returns how many messages. Blocks only while the
  /// medium flushes. One flush and one acknowledgement serve all that arrived together.
  ///
  /// Errors   Disconnected: the session is over (the peer went).
  ///          ProtocolError, OutOfRange: the peer sent nonsense or named memory outside the pool;
  ///          it has been told, nothing of that message was executed, the session is over.
  ///          SystemError: the medium refused a flush; the peer has been told that.
  virtual Result<std::size_t> pump() = 0;

  virtual const ResponderCounters& counters() const = 0;
};

/// Applies the messages that a power failure left whole in persistent receive buffers, in their
/// order, up to the first that is missing or torn. Applying them again is harmless.
/// Call it before the region is used again. Returns how many messages were applied.
Result<std::uint64_t> replay_messages(pmem::Region& region, pmem::Range exported,
                                      pmem::Range persistent_buffers, const ReceiveQueue& queue);

}  // namespace perdure::persist
