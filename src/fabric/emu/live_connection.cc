#include "fabric/emu/live_connection.h"

#include "core/assert.h"
#include "fabric/emu/live_state.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace perdure::fabric::emu {

namespace {

/// Operations are read from the program's memory as late as this many bytes before they are sent.
constexpr std::size_t kOutgoingBytesMax = 64 * 1024;
/// Steps of the platform that one pump makes at most.
constexpr std::size_t kStepsPerPump = 4096;
/// Operations that one pump takes from the socket at most.
constexpr std::size_t kOperationsPerPump = 256;

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) ::close(fd_);
}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

int OwnedFd::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

LiveConnection::LiveConnection(LiveState& state, const Terms& terms, OwnedFd requests,
                               OwnedFd arrivals)
    : state_(state),
      terms_(terms),
      limits_{kTransferBytesMax, terms.options.send_depth, terms.options.receive_depth},
      requests_(std::move(requests)),
      arrivals_(std::move(arrivals)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      answers_(requests_.value()),
      operations_out_(requests_.value()),
      operations_(arrivals_.value()),
      answers_out_(arrivals_.value()),
      send_(state.memory, limits_, terms.transport, terms.capabilities),
      inbound_(state.memory,
               RnicBehaviour(state.options.profile, terms.transport, state.options.switches),
               state.counters) {}

std::optional<Nanoseconds> LiveConnection::pump() {
  if (down_) return std::nullopt;
  if (!answers_over_) read_answers();
  if (!operations_over_) read_operations();
  step_inbound();
  if (!broken()) send_operations();
  if (!broken() && !answers_out_.flush().ok()) answers_over_ = true;
  deliver();
  // A peer that leaves ends its operations first, so all of them can still be read.
  const bool all_read = operations_over_ || held_back_;
  if (broken() && all_read && !down_ && inbound_.idle()) go_down();
  notify();

  if (down_) return std::nullopt;
  const auto posted = inbound_.posted_ready();
  const auto non_posted = inbound_.non_posted_ready();
  if (posted && non_posted) return std::min(*posted, *non_posted);
  return posted ? posted : non_posted;
}

void LiveConnection::send_operations() {
  while (true) {
    while (send_.sendable() && operations_out_.waiting_bytes() < kOutgoingBytesMax) {
      auto operation = send_.take_next();
      if (!operation) break;  // no longer registered: it completes with an error
      operations_out_.push(frame_of(std::move(*operation)));
    }
    const std::size_t before = operations_out_.waiting_bytes();
    if (before == 0) return;
    if (!operations_out_.flush().ok()) {
      answers_over_ = true;
      return;
    }
    if (operations_out_.waiting_bytes() > 0) return;  // the socket is full
  }
}

void LiveConnection::read_answers() {
  const Nanoseconds now = state_.clock.now();
  // Bounded: the peer answers at most what was posted, and every turn takes one answer.
  for (std::size_t i = 0; i < 2 * limits_.send_depth + 1; ++i) {
    const auto ready = answers_.ready();
    if (!ready.ok()) {
      answers_over_ = true;
      return;
    }
    if (!*ready) return;
    Frame frame = answers_.take();
    if (frame.header.kind == FrameKind::Accepted) {
      send_.accepted_up_to(frame.header.sequence, now);
    } else if (frame.header.kind == FrameKind::Answer) {
      if (!send_.respond(response_of(std::move(frame)), now)) return lose();
    } else {
      return lose();
    }
  }
}

void LiveConnection::read_operations() {
  held_back_ = false;
  std::uint64_t accepted = 0;
  for (std::size_t i = 0; i < kOperationsPerPump; ++i) {
    const auto ready = operations_.ready();
    if (!ready.ok()) {
      take_truncated();
      operations_over_ = true;
      break;
    }
    if (!*ready) break;
    const FrameHeader& header = operations_.header();
    if (header.kind != FrameKind::Operation || header.sequence <= last_sequence_) return lose();
    if (!inbound_.can_take(static_cast<Opcode>(header.opcode))) {
      held_back_ = true;
      break;
    }
    last_sequence_ = header.sequence;
    const bool posted = is_posted(static_cast<Opcode>(header.opcode));
    take_operation(operations_.take());
    if (!send_responses()) break;  // refused: nothing more is taken
    if (posted) accepted = last_sequence_;
  }
  if (accepted == 0 || completes_early(terms_.transport)) return;
  Frame frame;
  frame.header.kind = FrameKind::Accepted;
  frame.header.sequence = accepted;
  answers_out_.push(std::move(frame));
}

void LiveConnection::take_operation(Frame frame) {
  Operation operation = operation_of(std::move(frame));
  operation.ready_at = state_.hold_until();
  inbound_.take(std::move(operation), state_.random);
}

/// The peer or the power went in the middle of a transfer: what is here of it is here.
void LiveConnection::take_truncated() {
  auto part = operations_.take_part();
  if (!part || part->header.kind != FrameKind::Operation || part->data.empty()) return;
  const auto opcode = static_cast<Opcode>(part->header.opcode);
  if (part->data.size() == part->header.data || !inbound_.can_take(opcode)) return;
  take_operation(std::move(*part));
}

/// False when one of them is a refusal.
bool LiveConnection::send_responses() {
  bool good = true;
  while (auto response = inbound_.next_response()) {
    good = good && !response->error;
    answers_out_.push(frame_of(std::move(*response)));
  }
  return good;
}

void LiveConnection::step_inbound() {
  const Nanoseconds now = state_.clock.now();
  for (std::size_t steps = 0; steps < kStepsPerPump; ++steps) {
    const auto posted_at = inbound_.posted_ready();
    const auto non_posted_at = inbound_.non_posted_ready();
    const bool posted = posted_at && *posted_at <= now;
    const bool non_posted = non_posted_at && *non_posted_at <= now;
    if (!posted && !non_posted) break;
    if (posted && (!non_posted || state_.random.chance(1, 2))) {
      inbound_.step_posted(state_.random, now);
    } else {
      inbound_.step_non_posted(state_.random, now);
    }
    (void)send_responses();
  }
}

void LiveConnection::deliver() {
  while (inbound_.receive_ready()) completions_.push(inbound_.next_receive());
  while (send_.completable()) {
    if (!send_.complete_next(completions_)) continue;
    // An error is the last thing that a connection says.
    return go_down();
  }
}

void LiveConnection::go_down() {
  if (down_) return;
  inbound_.close(state_.random);
  send_.break_all(completions_);
  down_ = true;
  // The operations' stream first, see pump().
  ::shutdown(requests_.value(), SHUT_RDWR);
  ::shutdown(arrivals_.value(), SHUT_RDWR);
}

void LiveConnection::notify() {
  if (!armed_ || (completions_.empty() && (!down_ || down_seen_))) return;
  armed_ = false;
  const std::uint64_t one = 1;
  (void)!::write(wake_.value(), &one, sizeof one);
}

Result<std::size_t> LiveConnection::post(std::span<const WorkRequest> requests) {
  if (down_) return is_down();
  auto taken = send_.post(requests, completions_.sends(), state_.clock.now());
  if (!taken.ok() || *taken == 0) return taken;
  if (!broken()) send_operations();
  if (socket_full()) state_.plan(state_.clock.now());
  if (armed_) {
    deliver();
    notify();
  }
  return taken;
}

Result<void> LiveConnection::post_receive(const Segment& buffer, std::uint64_t context) {
  if (down_) return is_down();
  if (inbound_.receives_posted() + completions_.receives() >= limits_.receive_depth) {
    return Error{ErrorCode::QueueFull, "as many receive buffers are posted as the queue holds"};
  }
  auto place = state_.memory.find_local(buffer);
  if (!place && buffer.length > 0) {
    return Error{ErrorCode::InvalidArgument,
                 "a receive buffer outside of memory registered with this device"};
  }
  if (!place) place = nowhere();
  inbound_.post_receive(std::move(*place), context);
  if (held_back_) state_.plan(state_.clock.now());
  return {};
}

void LiveConnection::drive() {
  const auto due = pump();
  state_.plan(socket_full() ? state_.clock.now() : due);
}

std::size_t LiveConnection::poll(std::span<Completion> completions) {
  armed_ = false;
  if (completions_.empty()) drive();
  const std::size_t taken = completions_.take(completions);
  down_seen_ = down_;
  return taken;
}

bool LiveConnection::arm() {
  drive();
  if (!completions_.empty() || down_ != down_seen_) return false;
  std::uint64_t count = 0;
  (void)!::read(wake_.value(), &count, sizeof count);
  armed_ = true;
  return true;
}

void LiveConnection::disconnect() {
  go_down();
  notify();
}

void LiveConnection::power_cut() {
  if (!down_) {
    if (operations_.ready().ok()) take_truncated();
    inbound_.power_cut(state_.random);
    go_down();
  }
  completions_ = CompletionQueue{};
  notify();
}

void LiveConnection::reset() {
  if (down_) return;
  inbound_.reset(state_.random);
  go_down();
  notify();
}

short LiveConnection::requests_events() const {
  const int out = operations_out_.waiting_bytes() > 0 ? POLLOUT : 0;
  const int in = answers_over_ ? 0 : POLLIN;
  return static_cast<short>(in | out);
}

short LiveConnection::arrivals_events() const {
  const int out = answers_out_.waiting_bytes() > 0 ? POLLOUT : 0;
  const int in = held_back_ || operations_over_ ? 0 : POLLIN;
  return static_cast<short>(in | out);
}

}  // namespace perdure::fabric::emu
