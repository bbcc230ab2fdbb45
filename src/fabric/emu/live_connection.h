// One end of a live connection: the two state machines of the emulated RNIC, fed from sockets.
// Whoever has time drives it: the device's RNIC thread, or the program that polls.
#pragma once

#include "fabric/emu/completion_queue.h"
#include "fabric/emu/inbound_queue.h"
#include "fabric/emu/live_frame.h"
#include "fabric/emu/send_queue.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace perdure::fabric::emu {

struct LiveState;

/// A file descriptor that is closed with its owner.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  int value() const { return fd_; }
  int release();

 private:
  int fd_ = -1;
};

/// All members are guarded by the mutex of `state` once the connection runs.
class LiveConnection {
 public:
  struct Terms {
    EndpointOptions options;
    Transport transport = Transport::Tcp;
    Capabilities capabilities;  // of the peer
  };
  /// `requests`: the stream on which this end's operations go out; `arrivals`: the other.
  LiveConnection(LiveState& state, const Terms& terms, OwnedFd requests, OwnedFd arrivals);

  /// Moves everything that can move now. Returns when something here is due by itself.
  std::optional<Nanoseconds> pump();

  Result<std::size_t> post(std::span<const WorkRequest> requests);
  Result<void> post_receive(const Segment& buffer, std::uint64_t context);
  std::size_t poll(std::span<Completion> completions);
  bool arm();
  /// This end is closed; nothing is touched afterwards.
  void disconnect();
  /// The machine of this end loses power; its regions follow.
  void power_cut();
  /// The RNIC of this end starts anew.
  void reset();

  int wait_fd() const { return wake_.value(); }
  /// What windows are bound to.
  std::uint64_t number() const { return inbound_.connection(); }
  bool down() const { return down_; }
  const Terms& terms() const { return terms_; }
  const Limits& limits() const { return limits_; }

  /// What the RNIC thread waits for: descriptors and poll events; -1 for none.
  int requests_fd() const { return down_ ? -1 : requests_.value(); }
  int arrivals_fd() const { return down_ ? -1 : arrivals_.value(); }
  short requests_events() const;
  short arrivals_events() const;

 private:
  void send_operations();
  void read_answers();
  void read_operations();
  void take_operation(Frame frame);
  bool send_responses();
  void step_inbound();
  void deliver();
  /// The peer broke a rule, or can not be reached: nothing more is read.
  void lose() { answers_over_ = operations_over_ = true; }
  bool broken() const { return answers_over_ || operations_over_; }
  /// Pumps, and has the RNIC thread go on with what is due later.
  void drive();
  void go_down();
  void take_truncated();
  void notify();
  bool socket_full() const {
    return operations_out_.waiting_bytes() > 0 || answers_out_.waiting_bytes() > 0;
  }

  LiveState& state_;
  const Terms terms_;
  const Limits limits_;
  OwnedFd requests_;
  OwnedFd arrivals_;
  OwnedFd wake_;  // eventfd: what an armed program waits for
  FrameReader answers_;
  FrameWriter operations_out_;
  FrameReader operations_;
  FrameWriter answers_out_;
  SendQueue send_;
  InboundQueue inbound_;
  CompletionQueue completions_;
  std::uint64_t last_sequence_ = 0;  // of the operations that arrived
  bool held_back_ = false;           // an operation waits in the socket for a receive buffer
  bool answers_over_ = false;        // the streams have ended; what came is still dealt with
  bool operations_over_ = false;
  bool down_ = false;
  bool down_seen_ = false;  // by the program
  bool armed_ = false;
};

}  // namespace perdure::fabric::emu
