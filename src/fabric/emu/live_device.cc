#include "fabric/emu/live_device.h"

#include "core/assert.h"
#include "core/try.h"
#include "fabric/emu/live_rnic.h"
#include "fabric/emu/live_socket.h"
#include "fabric/emu/live_state.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace perdure::fabric::emu {

namespace {

constexpr Nanoseconds kNextSlice = std::chrono::milliseconds{100};

Error no_power() {
  return {ErrorCode::Disconnected, "the emulated machine has lost its power: turn it on first"};
}

}  // namespace

class LiveEndpoint final : public Endpoint {
 public:
  LiveEndpoint(std::shared_ptr<LiveState> state, std::shared_ptr<LiveConnection> connection)
      : state_(std::move(state)), connection_(std::move(connection)) {}
  ~LiveEndpoint() override { disconnect(); }
  LiveEndpoint(const LiveEndpoint&) = delete;
  LiveEndpoint& operator=(const LiveEndpoint&) = delete;

  Result<std::size_t> post(std::span<const WorkRequest> requests) override {
    const MutexLock lock(state_->mutex);
    return connection_->post(requests);
  }
  Result<void> post_receive(const Segment& buffer, std::uint64_t context) override {
    const MutexLock lock(state_->mutex);
    return connection_->post_receive(buffer, context);
  }
  std::size_t poll(std::span<Completion> completions) override {
    const MutexLock lock(state_->mutex);
    return connection_->poll(completions);
  }
  bool arm() override {
    const MutexLock lock(state_->mutex);
    return connection_->arm();
  }
  int wait_fd() const override { return connection_->wait_fd(); }
  bool connected() const override {
    const MutexLock lock(state_->mutex);
    return !connection_->down();
  }
  void disconnect() override {
    const MutexLock lock(state_->mutex);
    connection_->disconnect();
  }
  Result<void> sever() override {
    if (state_->memory.refuses_revocations()) return revocation_refused();
    disconnect();
    return {};
  }
  const Limits& limits() const override { return connection_->limits(); }
  Transport transport() const override { return connection_->terms().transport; }
  Capabilities capabilities() const override { return connection_->terms().capabilities; }

 private:
  std::shared_ptr<LiveState> state_;
  std::shared_ptr<LiveConnection> connection_;
};

namespace {

std::unique_ptr<Endpoint> run_connection(const std::shared_ptr<LiveState>& state,
                                         const LiveConnection::Terms& terms, OwnedFd requests,
                                         OwnedFd arrivals, const Memory* window = nullptr) {
  auto connection =
      std::make_shared<LiveConnection>(*state, terms, std::move(requests), std::move(arrivals));
  if (window != nullptr) (void)state->memory.bind(window->key(), connection->number());
  const MutexLock lock(state->mutex);
  state->connections.push_back(connection);
  if (!state->powered) connection->power_cut();
  state->kick();
  return std::make_unique<LiveEndpoint>(state, std::move(connection));
}

}  // namespace

class LiveIncoming final : public Incoming {
 public:
  LiveIncoming(std::shared_ptr<LiveState> state, const EndpointOptions& options, LiveKnock knock)
      : state_(std::move(state)), options_(options), knock_(std::move(knock)) {}

  std::span<const std::byte> private_data() const override { return knock_.private_data; }
  Result<std::unique_ptr<Endpoint>> accept(Deadline) override { return accept_on(state_, nullptr); }
  Result<std::unique_ptr<Endpoint>> accept_into(Device& device, Deadline) override {
    return accept_on(device, nullptr);
  }
  Result<std::unique_ptr<Endpoint>> accept_through(Device& device, Memory& window,
                                                   Deadline) override {
    return accept_on(device, &window);
  }

 private:
  Result<std::unique_ptr<Endpoint>> accept_on(Device& device, const Memory* window) {
    auto* live = dynamic_cast<LiveDevice*>(&device);
    if (live == nullptr) {
      return Error{ErrorCode::InvalidArgument, "accept_into: the device is not of this provider"};
    }
    return accept_on(live->state_, window);
  }
  Result<std::unique_ptr<Endpoint>> accept_on(const std::shared_ptr<LiveState>& state,
                                              const Memory* window) {
    if (knock_.streams[0].value() < 0) {
      return Error{ErrorCode::InvalidArgument, "this connection has been accepted already"};
    }
    {
      const MutexLock lock(state->mutex);
      if (!state->powered) return no_power();
    }
    if (window != nullptr && !state->memory.may_bind(window->key())) {
      return window_refused(window->bytes().size());
    }
    FrameWriter writer(knock_.streams[0].value());
    Frame welcome;
    welcome.header.kind = FrameKind::Welcome;
    welcome.header.key = encode_capabilities(state->options.profile.capabilities);
    welcome.header.address = static_cast<std::uint64_t>(state->options.profile.transport);
    writer.push(std::move(welcome));
    if (!writer.flush().ok() || writer.waiting_bytes() > 0) {
      return Error{ErrorCode::Disconnected, "the peer has gone"};
    }
    const LiveConnection::Terms terms{options_, state->options.profile.transport,
                                      knock_.capabilities};
    // The connector's operations come in on stream 0.
    return run_connection(state, terms, std::move(knock_.streams[1]), std::move(knock_.streams[0]),
                          window);
  }

  std::shared_ptr<LiveState> state_;
  const EndpointOptions options_;
  LiveKnock knock_;
};

class LiveListener final : public Listener {
 public:
  LiveListener(std::shared_ptr<LiveState> state, std::shared_ptr<LiveListenerState> listener)
      : state_(std::move(state)), listener_(std::move(listener)) {}
  ~LiveListener() override {
    remove_socket_file(listener_->address);
    const MutexLock lock(state_->mutex);
    listener_->close();
    state_->kick();
  }
  LiveListener(const LiveListener&) = delete;
  LiveListener& operator=(const LiveListener&) = delete;

  std::string address() const override { return listener_->address; }

  Result<std::unique_ptr<Incoming>> next(Deadline deadline) override {
    MutexLock lock(state_->mutex);
    while (true) {
      if (listener_->closed) return Error{ErrorCode::Disconnected, "the listener is closed"};
      if (!listener_->knocks.empty()) {
        LiveKnock knock = std::move(listener_->knocks.front());
        listener_->knocks.pop_front();
        return std::unique_ptr<Incoming>(
            std::make_unique<LiveIncoming>(state_, listener_->options, std::move(knock)));
      }
      if (deadline.passed()) {
        return Error{ErrorCode::TimedOut, "no peer asked for a connection in time"};
      }
      lock.wait_for(state_->knocked, std::min(deadline.left(), kNextSlice));
    }
  }

 private:
  std::shared_ptr<LiveState> state_;
  std::shared_ptr<LiveListenerState> listener_;
};

Result<std::unique_ptr<LiveDevice>> LiveDevice::open(const LiveOptions& options) {
  if (options.profile.qp_type != QpType::Rc) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("the emulated fabric between processes makes reliable connections, "
                             "and none of type {}",
                             to_string(options.profile.qp_type))};
  }
  const std::uint64_t seed = options.seed != 0 ? options.seed : random_secret();
  auto state = std::make_shared<LiveState>(options, seed);
  state->wake = OwnedFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (state->wake.value() < 0) {
    return Error{ErrorCode::SystemError,
                 fmt::format("no eventfd: {}", std::generic_category().message(errno))};
  }
  return std::unique_ptr<LiveDevice>(new LiveDevice(std::move(state)));
}

LiveDevice::LiveDevice(std::shared_ptr<LiveState> state)
    : state_(std::move(state)), rnic_([shared = state_] { run_rnic(shared); }) {}

LiveDevice::~LiveDevice() {
  {
    const MutexLock lock(state_->mutex);
    state_->stopping = true;
    for (const auto& connection : state_->connections) connection->disconnect();
    for (const auto& listener : state_->listeners) listener->close();
    state_->kick();
  }
  rnic_.join();
  const MutexLock lock(state_->mutex);
  state_->connections.clear();
  state_->handshakes.clear();
  state_->listeners.clear();
}

void LiveDevice::attach(pmem::CrashableRegion& region) {
  const MutexLock lock(state_->mutex);
  state_->regions.push_back(&region);
  state_->memory.add_region(region);
}

void LiveDevice::power_cut() {
  const MutexLock lock(state_->mutex);
  PERDURE_ASSERT(state_->powered);
  state_->powered = false;
  for (const auto& connection : state_->connections) connection->power_cut();
  for (pmem::CrashableRegion* region : state_->regions) {
    if (region->powered()) region->power_cut(state_->random);
  }
  state_->memory.revoke_all();
  for (const auto& listener : state_->listeners) listener->close();
  state_->handshakes.clear();
  state_->knocked.notify_all();
  state_->kick();
}

void LiveDevice::power_on() {
  const MutexLock lock(state_->mutex);
  PERDURE_ASSERT(!state_->powered);
  for (pmem::CrashableRegion* region : state_->regions) region->power_on();
  state_->powered = true;
}

bool LiveDevice::powered() const {
  const MutexLock lock(state_->mutex);
  return state_->powered;
}

void LiveDevice::refuse_revocations(bool refused) { state_->memory.refuse_revocations(refused); }

void LiveDevice::reset() {
  const MutexLock lock(state_->mutex);
  for (const auto& connection : state_->connections) connection->reset();
  state_->memory.revoke_all();
  for (const auto& listener : state_->listeners) listener->close();
  state_->handshakes.clear();
  state_->knocked.notify_all();
  state_->kick();
}

RnicCounters LiveDevice::counters() const {
  const MutexLock lock(state_->mutex);
  return state_->counters;
}

Result<std::unique_ptr<Memory>> LiveDevice::register_memory(std::span<std::byte> range,
                                                            Access access) {
  if (!powered()) return no_power();
  return state_->memory.register_memory(range, access);
}

WindowKind LiveDevice::window_kind(std::uint64_t bytes) const {
  return state_->memory.window_kind(bytes);
}

Result<std::unique_ptr<Memory>> LiveDevice::open_window(std::shared_ptr<Memory> over,
                                                        Access access) {
  if (!powered()) return no_power();
  if (window_kind(over->bytes().size()) != WindowKind::Bound) {
    return register_memory(over->bytes(), access);
  }
  return state_->memory.open_window(*over, access);
}

Result<std::unique_ptr<Listener>> LiveDevice::listen(const std::string& address,
                                                     const EndpointOptions& options) {
  if (!powered()) return no_power();
  auto listener = std::make_shared<LiveListenerState>();
  PERDURE_TRY(bound, listen_at(address));
  listener->address = bound.address;
  listener->fd = OwnedFd(bound.fd);
  listener->options = options;
  const MutexLock lock(state_->mutex);
  state_->listeners.push_back(listener);
  state_->kick();
  return std::unique_ptr<Listener>(std::make_unique<LiveListener>(state_, std::move(listener)));
}

Result<std::unique_ptr<Endpoint>> LiveDevice::connect(const std::string& address,
                                                      std::span<const std::byte> private_data,
                                                      const EndpointOptions& options,
                                                      Deadline deadline) {
  if (!powered()) return no_power();
  if (private_data.size() > kPrivateBytesMax) {
    return Error{ErrorCode::InvalidArgument, "too much private data to connect with"};
  }
  const std::uint64_t number = random_secret();
  OwnedFd streams[2];
  for (std::uint64_t stream : {0u, 1u}) {
    PERDURE_TRY(fd, connect_to(address, deadline));
    streams[stream] = OwnedFd(fd);
    Frame hello;
    hello.header.kind = FrameKind::Hello;
    hello.header.immediate = kFrameVersion;
    hello.header.sequence = number;
    hello.header.key = encode_capabilities(state_->options.profile.capabilities);
    hello.header.address = stream;
    hello.header.data = private_data.size();
    hello.data.assign(private_data.begin(), private_data.end());
    FrameWriter writer(fd);
    writer.push(std::move(hello));
    if (!writer.flush().ok() || writer.waiting_bytes() > 0) return refused(address);
  }
  PERDURE_TRY(welcome, await_frame(streams[0].value(), address, deadline));
  if (welcome.kind != FrameKind::Welcome || welcome.error != 0 ||
      welcome.address > static_cast<std::uint64_t>(Transport::Shm)) {
    return refused(address);
  }
  const LiveConnection::Terms terms{options, static_cast<Transport>(welcome.address),
                                    decode_capabilities(welcome.key)};
  return run_connection(state_, terms, std::move(streams[0]), std::move(streams[1]));
}

Transport LiveDevice::transport() const { return state_->options.profile.transport; }

Capabilities LiveDevice::capabilities() const { return state_->options.profile.capabilities; }

std::string LiveDevice::describe() const {
  return fmt::format("emu (software RNIC, live): {}", perdure::describe(state_->options.profile));
}

}  // namespace perdure::fabric::emu
