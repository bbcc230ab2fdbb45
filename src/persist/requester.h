// Requester: runs Methods on one connection. Methods are compiled once, when connecting; from then
// on an update fills in work requests that are ready: post, wait, post. Updates resolve in the
// order they were begun, so one number says how far durability has come.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "core/method.h"
#include "fabric/fabric.h"
#include "persist/responder.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace perdure::persist {

/// One item of an update: where it goes, and its bytes in registered memory of the same device.
/// The bytes must stay as they are until the update resolves.
struct UpdateItem {
  std::uint64_t at = 0;  // bytes from the start of the exported part of the pool
  fabric::Segment data;
};

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

/// Requires   endpoint and device outlive it; the endpoint is connected on that device.
/// Threads    one caller at a time.
class Requester {
 public:
  struct Options {
    fabric::RemoteMemory remote;   // the exported part of the pool
    ReceiveQueue queue;            // as the responder has it
    std::uint32_t session = 0;     // as the responder has it
    std::size_t updates_max = 64;  // in flight; more: QueueFull
    bool probes = false;           // begin_probe may be called
    /// Where 64 bytes of zeros are that may be written over with zeros. Nothing: no write probes.
    std::optional<std::uint64_t> probe_line;
  };

  /// Compiles `methods` for the connection; they are named by their index from then on. There may
  /// be none, until use_methods.
  /// Errors: Unsupported (a verb that device or peer lack, a method that is not for this profile's
  /// receive buffers), InvalidArgument (malformed method, or methods that must not be mixed).
  static Result<std::unique_ptr<Requester>> open(fabric::Endpoint& endpoint, fabric::Device& device,
                                                 const ServerProfile& profile,
                                                 std::vector<Method> methods,
                                                 const Options& options);
  virtual ~Requester() = default;

  /// Begins an update by method `method`; returns its number, counted from 1.
  ///
  /// Requires    one item per item of the method's shape, inside the pool; messages must fit into
  ///             message_bytes_max, later items of a method without later_any_size into 8 bytes.
  /// Errors      QueueFull (poll, then try again), Disconnected (nothing was posted),
  ///             OutOfRange, InvalidArgument.
  /// Cost        no allocation, no system call of its own; one post for all steps up to the first
  /// wait.
  virtual Result<std::uint64_t> begin(std::size_t method, std::span<const UpdateItem> items) = 0;

  /// The same for a probe, which counts as an update. Requires Options::probes, for write probes a
  /// probe line.
  virtual Result<std::uint64_t> begin_probe(Probe probe) = 0;
  /// Bytes that a LongMessage has more than a Message.
  virtual std::uint64_t probe_padding() const = 0;

  /// Takes other methods in place of those it has. They may allocate and register memory.
  ///
  /// Requires    nothing in flight. Methods that replay messages must not come after others, nor
  ///             the other way round: a copy of the responder's could still be in flight.
  /// Errors      those of open; the old methods are kept.
  virtual Result<void> use_methods(std::vector<Method> methods) = 0;

  /// Takes completions and goes on with what they release. Never blocks.
  /// Errors      Once the connection is lost or the responder refused: every update above
  ///             resolved() is OutcomeUnknown; the same error is returned from then on.
  virtual Result<void> poll() = 0;

  /// Every update up to this number has reached what its method promises.
  std::uint64_t resolved() const { return resolved_; }
  /// Number of the last update that was begun.
  std::uint64_t begun() const { return begun_; }
  virtual const RequesterCounters& counters() const = 0;

  /// The largest payload that one SEND of `method` carries, for all its copied items together.
  virtual std::uint64_t message_payload_max(std::size_t method) const = 0;

 protected:
  std::uint64_t begun_ = 0;
  std::uint64_t resolved_ = 0;
};

}  // namespace perdure::persist
