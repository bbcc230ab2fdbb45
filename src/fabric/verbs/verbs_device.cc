// The verbs provider's devices and listeners; see verbs.h for what they promise.
#include "fabric/verbs/verbs.h"
#ifdef PERDURE_WITH_VERBS
#include "core/log_message.h"
#include "core/mutex.h"
#include "core/try.h"
#include "fabric/verbs/verbs_endpoint.h"

#include <algorithm>
#include <cstring>

namespace perdure::fabric::verbs {
namespace {

constexpr int kBacklog = 128;
constexpr Nanoseconds kResolveWithin = std::chrono::hours(1);  // librdmacm takes an int

/// On an id that is not connected yet. An RNIC that does not know of it has its time-out from
/// elsewhere: others than RoCE.
void set_ack_timeout(rdma_cm_id* id, const EndpointOptions& options) {
  std::uint8_t timeout = std::clamp(options.ack_timeout, kAckTimeoutMin, kAckTimeoutMax);
  (void)::rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
}

/// Before the route of an id is resolved, or before it listens: of an accepted id it has no effect.
/// RoCE answers with the class of the peer's request (IBTA volume 1, 12.6.5: the path is the
/// requester's); iWARP has it from the id that listens (cma_iw_listen() of Linux).
void set_traffic_class(rdma_cm_id* id, const EndpointOptions& options) {
  if (!options.traffic_class) return;
  std::uint8_t traffic_class = *options.traffic_class;
  if (::rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class,
                        sizeof traffic_class) != 0) {
    log_message(Severity::Debug, fmt::format("traffic class {} is not taken: {}", traffic_class,
                                             std::generic_category().message(errno)));
  }
}

class VerbsDevice;

/// What a listener and the connections not yet accepted share.
struct ListenerCore {
  std::shared_ptr<Domain> domain;
  EndpointOptions options;
  Owned<rdma_event_channel> events;
  Owned<rdma_cm_id> id;
};

SocketAddress address_of(const sockaddr* generic) {
  SocketAddress address;
  address.length = generic->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&address.storage, generic, address.length);
  return address;
}

/// The connection request's own data live as long as its event.
class VerbsIncoming final : public Incoming {
 public:
  VerbsIncoming(std::shared_ptr<ListenerCore> core, Owned<rdma_cm_id> id,
                const rdma_conn_param& asked, const ReceivedHello& received)
      : core_(std::move(core)),
        id_(std::move(id)),
        asked_(asked),
        hello_(received.hello),
        private_data_(received.own.begin(), received.own.end()) {}

  ~VerbsIncoming() override {
    if (id_) ::rdma_reject(id_.get(), nullptr, 0);
  }

  std::span<const std::byte> private_data() const override { return private_data_; }
  Result<std::unique_ptr<Endpoint>> accept(Deadline deadline) override {
    return accept(core_->domain, nullptr, deadline);
  }
  Result<std::unique_ptr<Endpoint>> accept_into(Device& device, Deadline deadline) override;
  Result<std::unique_ptr<Endpoint>> accept_through(Device& device, Memory& window,
                                                   Deadline deadline) override;

 private:
  Result<std::unique_ptr<Endpoint>> accept(std::shared_ptr<Domain> domain,
                                           std::shared_ptr<BoundWindow> window, Deadline deadline);

  std::shared_ptr<ListenerCore> core_;
  Owned<rdma_cm_id> id_;  // empty once accepted
  rdma_conn_param asked_;
  Hello hello_;
  std::vector<std::byte> private_data_;
};

/// next() by one thread at a time. When the RNIC is reset the listener goes with it: next() then
/// looks for the RNIC, and listens at the same address again.
class VerbsListener final : public Listener {
 public:
  explicit VerbsListener(std::shared_ptr<ListenerCore> core)
      : core_(std::move(core)),
        address_(to_string(address_of(::rdma_get_local_addr(core_->id.get())))) {}

  std::string address() const override { return address_; }
  Result<std::unique_ptr<Incoming>> next(Deadline deadline) override;

 private:
  Result<void> listen_again();

  std::shared_ptr<ListenerCore> core_;
  const std::string address_;
  bool removed_ = false;
};

class VerbsDevice final : public Device {
 public:
  explicit VerbsDevice(std::shared_ptr<Domain> domain) : domain_(std::move(domain)) {}

  Result<std::unique_ptr<Memory>> register_memory(std::span<std::byte> range,
                                                  Access access) override {
    PERDURE_TRY(domain, living_domain());
    PERDURE_TRY(memory, register_range(std::move(domain), range, access));
    return std::unique_ptr<Memory>(std::move(memory));
  }
  WindowKind window_kind(std::uint64_t bytes) const override {
    return domain()->rnic->binds_windows(bytes) ? WindowKind::Bound : WindowKind::Registration;
  }
  Result<std::unique_ptr<Memory>> open_window(std::shared_ptr<Memory> over,
                                              Access access) override {
    if (window_kind(over->bytes().size()) != WindowKind::Bound) {
      return register_memory(over->bytes(), access);
    }
    PERDURE_TRY(window, open_bound_window(domain(), std::move(over), access));
    return std::unique_ptr<Memory>(std::move(window));
  }
  Result<std::unique_ptr<Listener>> listen(const std::string& address,
                                           const EndpointOptions& options) override;
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address,
                                            std::span<const std::byte> private_data,
                                            const EndpointOptions& options,
                                            Deadline deadline) override;
  Transport transport() const override { return domain()->rnic->transport(); }
  Capabilities capabilities() const override { return domain()->rnic->report().capabilities; }
  bool places_by_cpu() const override {
    return domain()->rnic->report().software || Device::places_by_cpu();
  }
  std::string describe() const override {
    const Rnic& rnic = *domain()->rnic;
    return fmt::format("RNIC {} at {}, {}, {}", rnic.name(), rnic.report().address,
                       to_string(rnic.transport()), rnic.provenance());
  }
  std::shared_ptr<Domain> domain() const {
    const MutexLock lock(mutex_);
    return domain_;
  }

 private:
  /// The keys of this device, on its RNIC as it is now: after a reset new ones. What was registered
  /// before is lost with the reset, and so are the connections that used it.
  Result<std::shared_ptr<Domain>> living_domain();

  mutable Mutex mutex_;
  std::shared_ptr<Domain> domain_ PERDURE_GUARDED_BY(mutex_);
};

/// The RNIC of that name, address and kind, after `dead` was reset. Errors: Unsupported,
/// SystemError.
Result<std::shared_ptr<Domain>> open_domain_again(const Rnic& dead) {
  PERDURE_TRY(rnics, find_rnics());
  for (Rnic* rnic : rnics) {
    if (rnic->name() == dead.name() && rnic->report().address == dead.report().address &&
        rnic->transport() == dead.transport()) {
      return open_domain(*rnic);
    }
  }
  return Error{ErrorCode::SystemError,
               fmt::format("RNIC {} at {} was reset or removed and is not back: see `rdma link`",
                           dead.name(), dead.report().address)};
}

Result<std::shared_ptr<Domain>> VerbsDevice::living_domain() {
  const MutexLock lock(mutex_);
  domain_->rnic->dispatch_events();
  if (!domain_->rnic->is_dead()) return domain_;
  PERDURE_TRY(again, open_domain_again(*domain_->rnic));
  domain_ = std::move(again);
  return domain_;
}

Result<std::unique_ptr<Endpoint>> VerbsIncoming::accept(std::shared_ptr<Domain> domain,
                                                        std::shared_ptr<BoundWindow> window,
                                                        Deadline deadline) {
  if (!id_) return Error{ErrorCode::InvalidArgument, "accept: already accepted"};
  PERDURE_TRY(channel, open_channel());
  if (::rdma_migrate_id(id_.get(), channel.get()) != 0) {
    return errno_error(ErrorCode::SystemError, "rdma_migrate_id");
  }
  set_ack_timeout(id_.get(), core_->options);
  const std::string peer = to_string(address_of(::rdma_get_peer_addr(id_.get())));
  PERDURE_TRY(endpoint, VerbsEndpoint::open(std::move(domain), std::move(channel), std::move(id_),
                                            core_->options, peer));
  PERDURE_TRY_VOID(endpoint->accept(hello_, asked_, std::move(window), deadline));
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

Result<std::unique_ptr<Endpoint>> VerbsIncoming::accept_into(Device& device, Deadline deadline) {
  const auto* own = dynamic_cast<VerbsDevice*>(&device);
  const std::shared_ptr<Domain> domain = own == nullptr ? nullptr : own->domain();
  if (domain == nullptr || domain->rnic->context() != core_->domain->rnic->context()) {
    return Error{ErrorCode::InvalidArgument, "accept_into: the device is not of this RNIC"};
  }
  return accept(domain, nullptr, deadline);
}

Result<std::unique_ptr<Endpoint>> VerbsIncoming::accept_through(Device& device, Memory& window,
                                                                Deadline deadline) {
  const auto* bound = dynamic_cast<const VerbsWindow*>(&window);
  if (bound == nullptr) return accept_into(device, deadline);  // a registration of its own
  // That of the window, not of the device as it may be by now: the RNIC may have been reset.
  if (bound->window()->domain()->rnic->context() != core_->domain->rnic->context()) {
    return Error{ErrorCode::InvalidArgument, "accept_through: the window is not of this RNIC"};
  }
  return accept(bound->window()->domain(), bound->window(), deadline);
}

Result<std::shared_ptr<ListenerCore>> start_listening(std::shared_ptr<Domain> domain,
                                                      const std::string& at,
                                                      const EndpointOptions& options) {
  PERDURE_TRY(local, parse_socket_address(at, Deadline::after(kListenNameWithin)));
  auto core = std::make_shared<ListenerCore>();
  core->domain = std::move(domain);
  core->options = options;
  PERDURE_TRY(channel, open_channel());
  core->events = std::move(channel);
  rdma_cm_id* id = nullptr;
  if (::rdma_create_id(core->events.get(), &id, nullptr, RDMA_PS_TCP) != 0) {
    return errno_error(ErrorCode::SystemError, "listen: rdma_create_id");
  }
  core->id.reset(id);
  set_traffic_class(id, options);
  if (::rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&local.storage)) != 0 ||
      ::rdma_listen(id, kBacklog) != 0) {
    return errno_error(ErrorCode::SystemError, "listen at " + at);
  }
  if (id->verbs != nullptr && id->verbs != core->domain->rnic->context()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("listen at {}: the address belongs to RNIC {}, not to {}", at,
                             ::ibv_get_device_name(id->verbs->device), core->domain->rnic->name())};
  }
  return core;
}

Result<void> VerbsListener::listen_again() {
  core_->id.reset();  // the address is free then
  PERDURE_TRY(domain, open_domain_again(*core_->domain->rnic));
  PERDURE_TRY(core, start_listening(std::move(domain), address_, core_->options));
  core_ = std::move(core);
  removed_ = false;
  log_message(Severity::Warning, fmt::format("RNIC {}: is back, and listens at {} again",
                                             core_->domain->rnic->name(), address_));
  return {};
}

Result<std::unique_ptr<Incoming>> VerbsListener::next(Deadline deadline) {
  if (removed_) PERDURE_TRY_VOID(listen_again());
  for (;;) {
    auto event = next_event(*core_->events, deadline);
    if (!event.ok()) {
      if (event.code() != ErrorCode::TimedOut) return event.error();
      return Error{ErrorCode::TimedOut, "no peer asked to connect in time"};
    }
    if ((*event)->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      removed_ = true;
      core_->domain->rnic->note_removal();
      return Error{ErrorCode::Disconnected,
                   fmt::format("RNIC {} was reset or removed; it is looked for again",
                               core_->domain->rnic->name())};
    }
    if ((*event)->event != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    Owned<rdma_cm_id> id((*event)->id);
    const rdma_conn_param asked = (*event)->param.conn;
    const auto received =
        decode_hello({static_cast<const std::byte*>(asked.private_data), asked.private_data_len});
    if (received && received->own.size() <= kPrivateBytesMax) {
      return std::unique_ptr<Incoming>(
          std::make_unique<VerbsIncoming>(core_, std::move(id), asked, *received));
    }
    ::rdma_reject(id.get(), nullptr, 0);  // not one of ours
    event = Error{};                      // acknowledged before its id is destroyed
  }
}

Result<std::unique_ptr<Listener>> VerbsDevice::listen(const std::string& address,
                                                      const EndpointOptions& options) {
  PERDURE_TRY(domain, living_domain());
  const std::string at = address.empty() ? to_string(domain->rnic->address()) : address;
  PERDURE_TRY(core, start_listening(std::move(domain), at, options));
  return std::unique_ptr<Listener>(std::make_unique<VerbsListener>(std::move(core)));
}

Result<std::unique_ptr<Endpoint>> VerbsDevice::connect(const std::string& address,
                                                       std::span<const std::byte> private_data,
                                                       const EndpointOptions& options,
                                                       Deadline deadline) {
  if (private_data.size() > kPrivateBytesMax) {
    return Error{ErrorCode::InvalidArgument, "connect: more private data than kPrivateBytesMax"};
  }
  PERDURE_TRY(domain, living_domain());
  PERDURE_TRY(remote, parse_socket_address(address, deadline));
  PERDURE_TRY(channel, open_channel());
  rdma_cm_id* made = nullptr;
  if (::rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP) != 0) {
    return errno_error(ErrorCode::SystemError, "connect: rdma_create_id");
  }
  Owned<rdma_cm_id> id(made);
  // From this RNIC's own address: the memory is registered with it.
  SocketAddress local = domain->rnic->address();
  const bool same_family = local.storage.ss_family == remote.storage.ss_family;
  const auto left = std::min<Nanoseconds>(deadline.left(), kResolveWithin);
  const int patience_ms =
      static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  if (::rdma_resolve_addr(id.get(),
                          same_family ? reinterpret_cast<sockaddr*>(&local.storage) : nullptr,
                          reinterpret_cast<sockaddr*>(&remote.storage), patience_ms) != 0) {
    return errno_error(ErrorCode::Disconnected, "connect to " + address);
  }
  PERDURE_TRY_VOID(expect_event(*channel, RDMA_CM_EVENT_ADDR_RESOLVED, address, deadline));
  if (id->verbs != domain->rnic->context()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is reached through another RNIC than {}: name that one", address,
                             domain->rnic->name())};
  }
  set_ack_timeout(id.get(), options);
  set_traffic_class(id.get(), options);
  if (::rdma_resolve_route(id.get(), patience_ms) != 0) {
    return errno_error(ErrorCode::Disconnected, "connect to " + address);
  }
  PERDURE_TRY_VOID(expect_event(*channel, RDMA_CM_EVENT_ROUTE_RESOLVED, address, deadline));
  PERDURE_TRY(endpoint, VerbsEndpoint::open(domain, std::move(channel), std::move(id), options,
                                            to_string(remote)));
  PERDURE_TRY_VOID(endpoint->connect(private_data, deadline));
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace

Result<std::vector<RnicReport>> list_rnics() {
  PERDURE_TRY(rnics, find_rnics());
  std::vector<RnicReport> reports;
  for (const Rnic* rnic : rnics) reports.push_back(rnic->report());
  return reports;
}

Result<std::unique_ptr<Device>> open_device(const std::string& which,
                                            std::optional<Transport> transport) {
  PERDURE_TRY(rnics, find_rnics());
  std::string there;
  for (Rnic* rnic : rnics) {
    const bool named = which.empty() || which == rnic->name() || which == rnic->report().address;
    if (named && (!transport || *transport == rnic->transport())) {
      PERDURE_TRY(domain, open_domain(*rnic));
      return std::unique_ptr<Device>(std::make_unique<VerbsDevice>(std::move(domain)));
    }
    there += fmt::format("{}{} ({}, {})", there.empty() ? "" : ", ", rnic->name(),
                         rnic->report().address, to_string(rnic->transport()));
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("no RNIC {}{}here; there is: {}", which.empty() ? "" : which + " ",
                           transport ? fmt::format("for {} ", to_string(*transport)) : "", there)};
}

}  // namespace perdure::fabric::verbs

#else

namespace perdure::fabric::verbs {

Result<std::vector<RnicReport>> list_rnics() {
  return Error{ErrorCode::Unsupported,
               "this build has no verbs: install libibverbs-dev and librdmacm-dev"};
}

Result<std::unique_ptr<Device>> open_device(const std::string&, std::optional<Transport>) {
  return list_rnics().error();
}

}  // namespace perdure::fabric::verbs
#endif
