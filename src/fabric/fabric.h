// The one interface over which Perdure moves bytes: devices, registered memory, connections.
// Four providers implement it (verbs/, ofi/, shm/, emu/), and tests/conformance holds them to it.
//
// The verbs and their ordering are those of a reliable connection (InfiniBand specification
// volume 1, section 9.5 and 10.8.3; design section 4):
//   - posted operations (Send, Write, WriteImm) become visible in the order they were posted, but
//     for transports on which nothing is known of it (ServerProfile::write_order): there only what
//     is said below holds;
//   - non-posted operations (Read, Flush, AtomicWrite, CompareSwap, FetchAdd, SendFlush) take
//   effect
//     after everything posted before them; a posted operation may overtake an earlier non-posted
//     one;
//   - a receive completion comes after the message and all earlier posted operations are visible.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "core/clock.h"
#include "core/cut_switch.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::fabric {

enum class Opcode : std::uint8_t {
  Send,  // to Read: transfers
  Write,
  WriteImm,
  Read,
  Flush,        // where the device lacks it: a Read inside the range, by whoever compiles methods
  AtomicWrite,  // 8 bytes, aligned
  CompareSwap,
  FetchAdd,
  WritePersist,  // PWRITE of core/method.h: posted; it completes with the persist ACK
  SendFlush,     // SFLUSH of core/method.h: the Send before it, and flush_length bytes if not 0
  Receive,       // appears in completions only
};

std::string_view to_string(Opcode opcode);

/// What a native FLUSH guarantees when it completes (IBTA volume 1 release 1.6, annex A19.4.1).
enum class FlushPlacement : std::uint8_t {
  None,         // not possible
  Visibility,   // the bytes are globally visible: a load on the responder returns them
  Persistence,  // they are inside its persistence domain, whatever its caches and DDIO do
};

/// What others may do with a registered range.
enum class Access : std::uint8_t {
  Local,            // this side only: source of sends and writes, target of reads and receives
  Windows,          // the same, and peers through windows over it: see Device::open_window
  RemoteRead,       // peers may read, and flush what others wrote
  RemoteReadWrite,  // peers may read, write, flush and use atomics
};

/// A registered range of this process. Deregistered when destroyed: from then on a peer's request
/// that names its key is refused. The range must outlive it.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::span<std::byte> bytes() const = 0;
  /// What a peer must name to reach the range: see RemoteMemory.
  virtual std::uint64_t key() const = 0;
  /// What a peer must add to an offset in the range (0 where the device counts from its start).
  virtual std::uint64_t base() const = 0;
  /// Whether what peers write there makes a page of a file dirty. No for what is pinned; where a
  /// CPU places it (placed_by_cpu), nobody asks.
  virtual DmaDirties dma_dirties() const { return DmaDirties::No; }
  /// The strongest native FLUSH that peers may ask of it.
  virtual FlushPlacement flush_placement() const { return FlushPlacement::None; }
  /// Whether the device has forgotten it, key and all: it was reset.
  virtual bool is_lost() const { return false; }
  /// Takes the key away before the destruction does, and says whether that worked: on success no
  /// request of a peer reaches the range any more. Harmless when repeated.
  /// Errors: SystemError: the device refused. The key may be alive; ask again, and let nobody rely
  /// on its being dead.
  virtual Result<void> deregister() = 0;
};

/// What a window over registered memory costs, and whom its key lets in.
enum class WindowKind : std::uint8_t {
  Registration,  // as much as registering the range once more: it is pinned again, page by page
  Key,           // an entry in a table; the key is good on every connection of the device
  Bound,         // an entry in a table; the key is good on the one connection it is bound to
};

std::string_view to_string(WindowKind kind);

/// A range registered by the peer.
struct RemoteMemory {
  std::uint64_t key = 0;
  std::uint64_t base = 0;
  std::uint64_t length = 0;
};

/// Part of a registered range: what a work request reads from or writes to on this side.
struct Segment {
  std::byte* data = nullptr;
  std::size_t length = 0;
  const Memory* memory = nullptr;
};

inline constexpr std::size_t kSegmentsMax = 3;

/// One work request. The memory it names must stay as it is until the request completes.
struct WorkRequest {
  Opcode opcode = Opcode::Send;
  bool signalled = true;  // a completion is wanted; errors complete in any case
  bool fenced = false;    // held back until all earlier non-posted operations complete
  std::uint8_t segment_count = 0;
  std::uint32_t immediate = 0;                 // WriteImm: delivered with the receive completion
  std::uint64_t context = 0;                   // comes back in the completion
  std::array<Segment, kSegmentsMax> segments;  // gathered in order; FLUSH has none
  RemoteMemory remote;              // all but Send: where; base and length as the peer gave them
  std::uint64_t remote_offset = 0;  // bytes from the start of `remote`
  std::uint64_t flush_length = 0;   // Flush, SendFlush: bytes from remote_offset
  FlushPlacement placement = FlushPlacement::Visibility;  // Flush
  bool whole_region = false;  // Flush: all of `remote`, whatever remote_offset
  std::uint64_t operand = 0;  // AtomicWrite: value; CompareSwap: expected; FetchAdd: addend
  std::uint64_t swap = 0;     // CompareSwap: new value
};

/// One entry of the completion queue.
struct Completion {
  std::uint64_t context = 0;
  Opcode opcode = Opcode::Send;
  bool has_immediate = false;  // Receive: a WriteImm arrived, `immediate` is set
  std::uint32_t immediate = 0;
  std::uint64_t length = 0;  // Receive: bytes of the message, or bytes written by the WriteImm
  /// Nothing, or why it failed. OutOfRange: the peer refused the address. OutcomeUnknown: the
  /// connection was lost after the request was posted. After any error the connection is down.
  std::optional<ErrorCode> error;
};

/// What a connection can carry at most. A request beyond a limit is refused with InvalidArgument.
struct Limits {
  std::uint64_t transfer_bytes_max = 0;  // one Write, Read or Send
  std::size_t send_depth = 0;            // requests posted and not completed; more: QueueFull
  std::size_t receive_depth = 0;         // receive buffers posted at a time; more: QueueFull
};

/// Bytes of all segments.
inline std::uint64_t total_length(const WorkRequest& request) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < request.segment_count; ++i) length += request.segments[i].length;
  return length;
}

/// 8 bytes at a multiple of 8.
constexpr bool is_atomic(Opcode opcode) {
  return opcode == Opcode::AtomicWrite || opcode == Opcode::CompareSwap ||
         opcode == Opcode::FetchAdd;
}

/// Whether `length` bytes from its remote_offset on are inside what it names of the peer's.
inline bool is_inside(const WorkRequest& request, std::uint64_t length) {
  return request.remote_offset <= request.remote.length &&
         length <= request.remote.length - request.remote_offset;
}

/// Whether a transfer of `length` bytes in all is within the limits and what it names.
inline bool fits(const WorkRequest& request, std::uint64_t length, const Limits& limits) {
  if (length > limits.transfer_bytes_max) return false;
  return request.opcode == Opcode::Send || is_inside(request, length);
}

/// Whether it is a transfer within the limits: what check_request need not look at.
inline bool is_plain(const WorkRequest& request, const Limits& limits) {
  return request.opcode <= Opcode::Read && request.segment_count <= kSegmentsMax &&
         fits(request, total_length(request), limits);
}

/// What a provider refuses before it posts: a request that is malformed or beyond the limits
/// (InvalidArgument), or a verb that is not among `able` (Unsupported). `atomics`: it has
/// CompareSwap and FetchAdd.
Result<void> check_request(const WorkRequest& request, const Limits& limits,
                           const Capabilities& able, bool atomics);

/// One end of a reliable connection, with its own completion queue.
/// Threads: one caller at a time. Different endpoints are independent.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  /// Posts requests in order; one virtual call for a batch. Returns how many were taken: fewer
  /// than given when the queue is full (poll, then post the rest). Never blocks. A request may wait
  /// in this process for a later poll: behind a fence, or for a receive buffer at the peer.
  /// Errors: Disconnected (nothing of the batch was posted), InvalidArgument (request `taken`).
  virtual Result<std::size_t> post(std::span<const WorkRequest> requests) = 0;

  /// Offers a buffer for one incoming message (or the immediate of a WriteImm).
  /// Errors: Disconnected, QueueFull.
  virtual Result<void> post_receive(const Segment& buffer, std::uint64_t context) = 0;

  /// Takes completions out of the queue; returns how many. Makes progress; never blocks.
  virtual std::size_t poll(std::span<Completion> completions) = 0;

  /// Prepares to sleep: true means that from now on `wait_fd` becomes readable when poll may have
  /// something; false means poll again first. Undone by the next poll.
  virtual bool arm() = 0;
  /// Readable when there may be something to poll, after arm() said true; -1 if there is none.
  virtual int wait_fd() const = 0;

  /// Whether the peer is still there, as far as this end knows. Kept up to date by poll.
  virtual bool connected() const = 0;
  /// How the connection was lost; empty: it stands, or was ended at this end, or nobody knows.
  virtual std::string lost_reason() const { return {}; }
  /// Ends the connection; requests in flight complete with OutcomeUnknown. Harmless when repeated.
  virtual void disconnect() = 0;
  /// disconnect(), and whether the device has let go of the peer: on success nothing of this
  /// process is reached through the connection any more. Harmless when repeated.
  /// Errors: SystemError: as for Memory::deregister.
  virtual Result<void> sever() {
    disconnect();
    return {};
  }
  /// For whoever must end the connection in a signal handler: after that nothing is answered on it,
  /// neither what this end executes for the peer nor a message. Empty: it can not be.
  virtual CutSwitch cut_switch() { return {}; }

  virtual const Limits& limits() const = 0;
  virtual Transport transport() const = 0;
  virtual Capabilities capabilities() const = 0;
};

class Device;

/// A connection that a peer asks for, before it is accepted. Rejected when destroyed unaccepted.
class Incoming {
 public:
  virtual ~Incoming() = default;
  /// What the peer gave to connect: at most kPrivateBytesMax bytes, not to be trusted.
  virtual std::span<const std::byte> private_data() const = 0;
  /// Errors: Disconnected when the peer has gone; TimedOut.
  virtual Result<std::unique_ptr<Endpoint>> accept(Deadline deadline) = 0;
  /// The same, but the peer reaches the memory registered on `device` instead of the listener's:
  /// how a server gives each session keys of its own. The device is of the same provider. Where
  /// keys are not kept apart by device, this is accept().
  virtual Result<std::unique_ptr<Endpoint>> accept_into(Device& device, Deadline deadline) {
    (void)device;
    return accept(deadline);
  }
  /// accept_into() of the connection that `window`, opened on `device`, is for. Where windows are
  /// Bound it is bound before the peer may ask for anything, until the connection is severed.
  /// Errors: also SystemError: the device does not bind it. There is no connection then.
  virtual Result<std::unique_ptr<Endpoint>> accept_through(Device& device, Memory& window,
                                                           Deadline deadline) {
    (void)window;
    return accept_into(device, deadline);
  }
};

/// librdmacm carries 56 bytes (rdma_connect(3)), of which verbs/ needs 16.
inline constexpr std::size_t kPrivateBytesMax = 40;

class Listener {
 public:
  virtual ~Listener() = default;
  /// What a peer passes to Device::connect, for example "127.0.0.1:7471".
  virtual std::string address() const = 0;
  /// The next peer that asks. Errors: TimedOut; Disconnected once the listener was closed.
  virtual Result<std::unique_ptr<Incoming>> next(Deadline deadline) = 0;
};

/// What is asked of a connection. Of depths the provider may give less, see Endpoint::limits.
struct EndpointOptions {
  std::size_t send_depth = 256;
  std::size_t receive_depth = 256;
  /// RDMA: how long an RNIC waits for the peer's before it sends again, 4.096 us times two to the
  /// power of this (InfiniBand volume 1, 9.7.6.1.3; an RNIC may take up to four times as long). It
  /// tries 7 times: at 17, 0.54 s, a peer that is gone shows after about 4 s. Lower it where that
  /// is too long and the network never pauses; InfiniBand takes it from the subnet manager.
  std::uint8_t ack_timeout = 17;
  /// RoCE: the traffic class of its packets, DSCP times 4 and two bits for ECN, by which switches
  /// choose a queue without loss. Not set: the system's own. The end that connects decides for
  /// both; on iWARP each end for what it sends.
  std::optional<std::uint8_t> traffic_class = std::nullopt;
};

/// How often an RNIC sends before it gives a peer up, and before it gives up one that has no
/// receive buffer.
inline constexpr std::uint8_t kAckTries = 7;

/// 0.26 ms to 17 s: shorter is within an RNIC's own delays, longer is longer than anybody waits.
inline constexpr std::uint8_t kAckTimeoutMin = 6;
inline constexpr std::uint8_t kAckTimeoutMax = 22;

/// One RNIC, or what stands in for it. Must outlive all it gave out.
/// Threads: any.
class Device {
 public:
  virtual ~Device() = default;

  /// Registers a range. Errors: Unsupported or SystemError (locked memory limit and the like).
  virtual Result<std::unique_ptr<Memory>> register_memory(std::span<std::byte> range,
                                                          Access access) = 0;
  /// Of windows over a registration of so many bytes. Bound ones have a largest size, which may
  /// show only when one is bound: that accept_through fails, and the answer is another one then.
  virtual WindowKind window_kind([[maybe_unused]] std::uint64_t bytes) const {
    return WindowKind::Registration;
  }
  /// A key of its own to memory that is registered with Access::Windows on this device. Taking it
  /// away (Memory::deregister) ends neither the registration nor other windows over it, and where
  /// windows are no registrations it takes no longer for a terabyte than for a page. Bound ones
  /// open nothing but through Incoming::accept_through, and their key is only dead once the
  /// connection was severed, too. `access`: RemoteRead or RemoteReadWrite.
  /// Errors: those of register_memory.
  virtual Result<std::unique_ptr<Memory>> open_window(std::shared_ptr<Memory> over, Access access) {
    return register_memory(over->bytes(), access);
  }
  /// Waits for peers at `address` (provider's form; empty: any free one on loopback).
  virtual Result<std::unique_ptr<Listener>> listen(const std::string& address,
                                                   const EndpointOptions& options) = 0;
  /// Connects to a listener. Errors: Disconnected (refused, unreachable), TimedOut.
  virtual Result<std::unique_ptr<Endpoint>> connect(const std::string& address,
                                                    std::span<const std::byte> private_data,
                                                    const EndpointOptions& options,
                                                    Deadline deadline) = 0;

  virtual Transport transport() const = 0;
  virtual Capabilities capabilities() const = 0;
  /// Whether this machine's CPU stores what peers write, through its caches: by transport, and of a
  /// software RNIC too.
  virtual bool places_by_cpu() const { return placed_by_cpu(transport()); }
  /// For a person: provider, version, device.
  virtual std::string describe() const = 0;
};

/// Sleeps until one of the endpoints may have something to poll, or until the deadline, or for at
/// most `slice`. Returns at once if any of them can not sleep. The caller polls afterwards.
void wait_any(std::span<Endpoint* const> endpoints, Nanoseconds slice);

}  // namespace perdure::fabric
