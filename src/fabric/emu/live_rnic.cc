#include "fabric/emu/live_rnic.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace perdure::fabric::emu {

namespace {

/// Streams that wait for their Hello or their sibling at a time; more are refused.
constexpr std::size_t kHandshakesMax = 64;
constexpr Nanoseconds kHandshakeTimeMax = std::chrono::seconds{10};
/// Connections that wait for Listener::next at a time.
constexpr std::size_t kKnocksMax = 64;
/// How often regions evict something, and for how long after the last event.
constexpr Nanoseconds kDrainEvery = std::chrono::milliseconds{1};
constexpr Nanoseconds kDrainFor = std::chrono::milliseconds{50};

/// One turn of the thread, with the mutex held between waits.
class Rnic {
 public:
  explicit Rnic(LiveState& state) : state_(state) {}

  /// Does what can be done; fills in what to wait for. Nothing: wait without a limit.
  std::optional<Nanoseconds> turn(std::vector<pollfd>& waited);
  /// The connections of the last turn, so that their descriptors stay open while they are waited
  /// for.
  std::vector<std::shared_ptr<LiveConnection>> held;

 private:
  void accept_streams(LiveListenerState& listener,
                      const std::shared_ptr<LiveListenerState>& shared);
  void read_hellos();
  bool join_streams();
  void drain(Nanoseconds now);

  LiveState& state_;
  Nanoseconds last_drain_{0};
  std::uint64_t operations_seen_ = 0;
  Nanoseconds last_event_{0};  // when the last operation was seen to have arrived
};

std::optional<Nanoseconds> Rnic::turn(std::vector<pollfd>& waited) {
  waited.clear();
  held.clear();
  waited.push_back({state_.wake.value(), POLLIN, 0});
  std::erase_if(state_.listeners, [](const auto& listener) {
    if (listener->closed) listener->fd = OwnedFd();  // who waits in its backlog is refused
    return listener->closed;
  });
  for (const auto& listener : state_.listeners) {
    accept_streams(*listener, listener);
    waited.push_back({listener->fd.value(), POLLIN, 0});
  }
  read_hellos();
  while (join_streams()) {
  }
  for (const Handshake& handshake : state_.handshakes) {
    if (!handshake.hello_received) waited.push_back({handshake.fd.value(), POLLIN, 0});
  }

  std::optional<Nanoseconds> due;
  const auto sooner = [&](Nanoseconds at) { due = due ? std::min(*due, at) : at; };
  for (const auto& connection : state_.connections) {
    if (const auto at = connection->pump()) sooner(*at);
    if (connection->down()) continue;
    held.push_back(connection);
    waited.push_back({connection->requests_fd(), connection->requests_events(), 0});
    waited.push_back({connection->arrivals_fd(), connection->arrivals_events(), 0});
  }
  std::erase_if(state_.connections, [](const auto& connection) { return connection->down(); });

  const Nanoseconds now = state_.clock.now();
  if (state_.counters.operations != operations_seen_) last_event_ = now;
  operations_seen_ = state_.counters.operations;
  drain(now);
  if (!state_.handshakes.empty()) sooner(now + kHandshakeTimeMax);
  if (!state_.regions.empty() && now - last_event_ < kDrainFor) {
    sooner(now + kDrainEvery);
  }
  return due;
}

void Rnic::accept_streams(LiveListenerState& listener,
                          const std::shared_ptr<LiveListenerState>& shared) {
  while (state_.handshakes.size() < kHandshakesMax) {
    OwnedFd fd(::accept4(listener.fd.value(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.value() < 0) return;
    Handshake handshake;
    handshake.reader = std::make_unique<FrameReader>(fd.value());
    handshake.fd = std::move(fd);
    handshake.listener = shared;
    handshake.since = state_.clock.now();
    state_.handshakes.push_back(std::move(handshake));
  }
}

void Rnic::read_hellos() {
  const Nanoseconds now = state_.clock.now();
  std::erase_if(state_.handshakes, [&](Handshake& handshake) {
    if (handshake.listener->closed || now - handshake.since > kHandshakeTimeMax) return true;
    if (handshake.hello_received) return false;
    const auto ready = handshake.reader->ready();
    if (!ready.ok()) return true;
    if (!*ready) return false;
    Frame hello = handshake.reader->take();
    const FrameHeader& header = hello.header;
    if (header.kind != FrameKind::Hello || header.immediate != kFrameVersion) return true;
    if (header.address > 1) return true;
    handshake.hello_received = true;
    handshake.number = header.sequence;
    handshake.stream = header.address;
    handshake.capabilities = decode_capabilities(header.key);
    handshake.private_data = std::move(hello.data);
    return false;
  });
}

/// Makes one pair of streams a connection that asks; false when there is none.
bool Rnic::join_streams() {
  auto& all = state_.handshakes;
  const auto sibling_of = [&](const Handshake& first) {
    return std::ranges::find_if(all, [&](const Handshake& other) {
      return other.hello_received && other.number == first.number &&
             other.listener == first.listener && other.stream == 1;
    });
  };
  const auto first = std::ranges::find_if(all, [&](const Handshake& handshake) {
    return handshake.hello_received && handshake.stream == 0 && sibling_of(handshake) != all.end();
  });
  if (first == all.end()) return false;
  const auto second = sibling_of(*first);
  LiveKnock knock;
  knock.streams[0] = std::move(first->fd);
  knock.streams[1] = std::move(second->fd);
  knock.capabilities = first->capabilities;
  knock.private_data = std::move(first->private_data);
  auto& knocks = first->listener->knocks;
  if (knocks.size() < kKnocksMax) knocks.push_back(std::move(knock));
  std::erase_if(all, [](const Handshake& handshake) { return handshake.fd.value() < 0; });
  state_.knocked.notify_all();
  return true;
}

void Rnic::drain(Nanoseconds now) {
  if (state_.regions.empty() || now - last_drain_ < kDrainEvery) return;
  last_drain_ = now;
  (void)state_.regions[state_.random.below(state_.regions.size())]->drain_some(state_.random);
}

}  // namespace

void run_rnic(const std::shared_ptr<LiveState>& state) {
  // The default slack of 50 us would be longer than what is waited for.
  ::prctl(PR_SET_TIMERSLACK, 1000UL);
  Rnic rnic(*state);
  std::vector<pollfd> waited;
  while (true) {
    std::optional<Nanoseconds> due;
    {
      const MutexLock lock(state->mutex);
      if (state->stopping) return;
      due = rnic.turn(waited);
      state->planned_wake = due.value_or(Nanoseconds::max());
      state->thread_waits = true;
    }
    timespec timeout{};
    if (due) {
      const Nanoseconds left = std::max(Nanoseconds{0}, *due - state->clock.now());
      timeout.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
      timeout.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
    }
    (void)::ppoll(waited.data(), waited.size(), due ? &timeout : nullptr, nullptr);
    if (waited[0].revents != 0) {
      std::uint64_t count = 0;
      (void)!::read(waited[0].fd, &count, sizeof count);
    }
  }
}

}  // namespace perdure::fabric::emu
