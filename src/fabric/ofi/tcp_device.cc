// The tcp provider's devices, registered memory and listeners; see ofi.h for what they promise.
#ifdef PERDURE_WITH_LIBFABRIC
#include <poll.h>

#include "core/random.h"
#include "core/try.h"
#include "fabric/ofi/ofi.h"
#include "fabric/ofi/silent_peers.h"
#include "fabric/ofi/tcp_endpoint.h"
#include "fabric/socket_address.h"

#include <algorithm>
#include <cstring>

namespace perdure::fabric::ofi {
namespace {

/// Registered for peers. What peers have no key to needs no registration on tcp and gets none, so
/// there is no key by which a peer could name it.
class TcpMemory final : public Memory {
 public:
  TcpMemory(std::shared_ptr<Domain> domain, std::span<std::byte> range, Fid<fid_mr> region)
      : domain_(std::move(domain)),
        range_(range),
        region_(std::move(region)),
        key_(region_ ? ::fi_mr_key(region_.get()) : 0) {}

  std::span<std::byte> bytes() const override { return range_; }
  std::uint64_t key() const override { return key_; }
  std::uint64_t base() const override { return 0; }
  Result<void> deregister() override {
    if (!region_) return {};
    const int returned = ::fi_close(&region_->fid);
    if (returned != 0) return error_of(ErrorCode::SystemError, "deregistering memory", returned);
    (void)region_.release();
    return {};
  }

 private:
  std::shared_ptr<Domain> domain_;
  std::span<std::byte> range_;
  Fid<fid_mr> region_;  // empty: for this side only, or deregistered
  std::uint64_t key_;
};

/// What a listener and the connections not yet accepted share.
struct ListenerCore {
  std::shared_ptr<Domain> domain;
  EndpointOptions options;
  Fid<fid_eq> events;
  Fid<fid_pep> passive;
};

class TcpDevice;

class TcpIncoming final : public Incoming {
 public:
  TcpIncoming(std::shared_ptr<ListenerCore> core, Info info, std::vector<std::byte> private_data)
      : core_(std::move(core)), info_(std::move(info)), private_data_(std::move(private_data)) {}

  ~TcpIncoming() override {
    if (info_) ::fi_reject(core_->passive.get(), info_->handle, nullptr, 0);
  }

  std::span<const std::byte> private_data() const override { return private_data_; }
  Result<std::unique_ptr<Endpoint>> accept(Deadline deadline) override {
    return accept(core_->domain, deadline);
  }
  Result<std::unique_ptr<Endpoint>> accept_into(Device& device, Deadline deadline) override;

 private:
  Result<std::unique_ptr<Endpoint>> accept(std::shared_ptr<Domain> domain, Deadline deadline);

  std::shared_ptr<ListenerCore> core_;
  Info info_;  // empty once accepted
  std::vector<std::byte> private_data_;
};

class TcpListener final : public Listener {
 public:
  explicit TcpListener(std::shared_ptr<ListenerCore> core) : core_(std::move(core)) {}

  std::string address() const override {
    SocketAddress bound;
    std::size_t length = sizeof bound.storage;
    if (::fi_getname(&core_->passive->fid, &bound.storage, &length) != 0) return {};
    bound.length = static_cast<socklen_t>(length);
    return to_string(bound);
  }
  Result<std::unique_ptr<Incoming>> next(Deadline deadline) override;

 private:
  std::shared_ptr<ListenerCore> core_;
  SilentPeers silent_;
};

class TcpDevice final : public Device {
 public:
  explicit TcpDevice(std::shared_ptr<Domain> domain) : domain_(std::move(domain)) {}

  Result<std::unique_ptr<Memory>> register_memory(std::span<std::byte> range,
                                                  Access access) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address,
                                           const EndpointOptions& options) override;
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address,
                                            std::span<const std::byte> private_data,
                                            const EndpointOptions& options,
                                            Deadline deadline) override;
  WindowKind window_kind(std::uint64_t) const override { return WindowKind::Key; }
  Transport transport() const override { return Transport::Tcp; }
  Capabilities capabilities() const override { return {}; }
  std::string describe() const override {
    const std::uint32_t version = libfabric().version();
    return fmt::format("libfabric {}.{}, provider tcp", FI_MAJOR(version), FI_MINOR(version));
  }

  const std::shared_ptr<Domain>& domain() const { return domain_; }

 private:
  std::shared_ptr<Domain> domain_;
};

std::string peer_name(const fi_info& info) {
  SocketAddress address;
  address.length = static_cast<socklen_t>(std::min(info.dest_addrlen, sizeof address.storage));
  std::memcpy(&address.storage, info.dest_addr, address.length);
  return to_string(address);
}

Result<std::unique_ptr<Endpoint>> TcpIncoming::accept(std::shared_ptr<Domain> domain,
                                                      Deadline deadline) {
  if (!info_) return Error{ErrorCode::InvalidArgument, "accept: already accepted"};
  PERDURE_TRY(endpoint,
              TcpEndpoint::open(std::move(domain), info_.get(), core_->options, peer_name(*info_)));
  const Info accepted = std::move(info_);  // from here on the endpoint owns the socket
  PERDURE_TRY_VOID(endpoint->accept(deadline));
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

Result<std::unique_ptr<Endpoint>> TcpIncoming::accept_into(Device& device, Deadline deadline) {
  const auto* own = dynamic_cast<TcpDevice*>(&device);
  if (own == nullptr) {
    return Error{ErrorCode::InvalidArgument, "accept_into: the device is not of this provider"};
  }
  return accept(own->domain(), deadline);
}

Result<std::unique_ptr<Incoming>> TcpListener::next(Deadline deadline) {
  constexpr std::int64_t kSliceMs = 50;
  constexpr std::size_t kEntryBytes = sizeof(fi_eq_cm_entry);
  do {
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    std::int64_t wait_ms = std::min<std::int64_t>(left_ms, kSliceMs);
    silent_.tend(core_->events.get());
    if (silent_.no_descriptors()) {
      // The provider would try to accept in a circle, all the time that it is given.
      (void)::poll(nullptr, 0, static_cast<int>(wait_ms));
      wait_ms = 0;
    }
    std::uint32_t event = 0;
    std::array<std::byte, kEntryBytes + 256> request;  // 256: the provider's limit of data
    const std::int64_t returned = ::fi_eq_sread(core_->events.get(), &event, request.data(),
                                                request.size(), static_cast<int>(wait_ms), 0);
    if (returned == -FI_EAVAIL) {  // some peer gave up while connecting
      fi_eq_err_entry failure{};
      ::fi_eq_readerr(core_->events.get(), &failure, 0);
      continue;
    }
    if (returned == -FI_EAGAIN || returned == -FI_EINTR) continue;
    if (returned < 0) return error_of(ErrorCode::SystemError, "listener", returned);
    if (event != FI_CONNREQ) continue;
    fi_eq_cm_entry entry;
    std::memcpy(&entry, request.data(), kEntryBytes);
    std::vector<std::byte> data(request.begin() + kEntryBytes, request.begin() + returned);
    auto incoming = std::make_unique<TcpIncoming>(core_, Info(entry.info), std::move(data));
    if (incoming->private_data().size() > kPrivateBytesMax) continue;  // not ours: rejected
    return std::unique_ptr<Incoming>(std::move(incoming));
  } while (!deadline.passed());
  return Error{ErrorCode::TimedOut, "no peer asked to connect in time"};
}

Result<std::unique_ptr<Memory>> TcpDevice::register_memory(std::span<std::byte> range,
                                                           Access access) {
  constexpr int kAttemptsMax = 4;  // a key of 64 random bits that is taken already is luck enough
  if (range.empty()) return Error{ErrorCode::InvalidArgument, "register_memory: empty range"};
  fid_mr* region = nullptr;
  if (access > Access::Windows) {
    const std::uint64_t allowed =
        FI_REMOTE_READ | (access == Access::RemoteReadWrite ? FI_REMOTE_WRITE : 0);
    int returned = -FI_ENOKEY;
    for (int i = 0; i < kAttemptsMax && returned == -FI_ENOKEY; ++i) {
      returned = ::fi_mr_reg(domain_->domain.get(), range.data(), range.size(), allowed, 0,
                             random_secret(), 0, &region, nullptr);
    }
    if (returned != 0) return error_of(ErrorCode::SystemError, "register_memory", returned);
  }
  return std::unique_ptr<Memory>(std::make_unique<TcpMemory>(domain_, range, Fid<fid_mr>(region)));
}

/// The provider's description with the addresses of one listener or connection in it.
Info info_for(const Domain& domain, const SocketAddress& address) {
  Info info(libfabric().dupinfo(domain.info));
  if (!info) return info;
  info->addr_format = address.storage.ss_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  std::free(std::exchange(info->src_addr, nullptr));  // allocated by libfabric with malloc
  std::free(std::exchange(info->dest_addr, nullptr));
  info->src_addrlen = info->dest_addrlen = 0;
  return info;
}

Result<std::unique_ptr<Listener>> TcpDevice::listen(const std::string& address,
                                                    const EndpointOptions& options) {
  PERDURE_TRY(local, parse_socket_address(address, Deadline::after(kListenNameWithin)));
  const Info info = info_for(*domain_, local);
  if (!info) return Error{ErrorCode::SystemError, "libfabric: out of memory"};
  info->src_addr = std::malloc(local.length);
  if (info->src_addr == nullptr) return Error{ErrorCode::SystemError, "listen: out of memory"};
  std::memcpy(info->src_addr, &local.storage, local.length);
  info->src_addrlen = local.length;

  auto core = std::make_shared<ListenerCore>();
  core->domain = domain_;
  core->options = options;
  fi_eq_attr attr{};
  attr.wait_obj = FI_WAIT_POLLFD;
  fid_eq* events = nullptr;
  int returned = ::fi_eq_open(domain_->fabric, &attr, &events, nullptr);
  if (returned != 0) return error_of(ErrorCode::SystemError, "listen: fi_eq_open", returned);
  core->events.reset(events);
  fid_pep* passive = nullptr;
  returned = ::fi_passive_ep(domain_->fabric, info.get(), &passive, nullptr);
  if (returned != 0) return error_of(ErrorCode::SystemError, "listen at " + address, returned);
  core->passive.reset(passive);
  returned = ::fi_pep_bind(passive, &events->fid, 0);
  if (returned == 0) returned = ::fi_listen(passive);
  if (returned != 0) return error_of(ErrorCode::SystemError, "listen at " + address, returned);
  limit_handshake(events);
  return std::unique_ptr<Listener>(std::make_unique<TcpListener>(std::move(core)));
}

Result<std::unique_ptr<Endpoint>> TcpDevice::connect(const std::string& address,
                                                     std::span<const std::byte> private_data,
                                                     const EndpointOptions& options,
                                                     Deadline deadline) {
  if (private_data.size() > kPrivateBytesMax) {
    return Error{ErrorCode::InvalidArgument, "connect: more private data than kPrivateBytesMax"};
  }
  PERDURE_TRY(remote, parse_socket_address(address, deadline));
  const Info info = info_for(*domain_, remote);
  if (!info) return Error{ErrorCode::SystemError, "libfabric: out of memory"};
  PERDURE_TRY(endpoint, TcpEndpoint::open(domain_, info.get(), options, to_string(remote)));
  PERDURE_TRY_VOID(endpoint->connect(&remote.storage, private_data, deadline));
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace

Result<std::unique_ptr<Device>> open_device() {
  PERDURE_TRY(domain, open_domain());
  return std::unique_ptr<Device>(std::make_unique<TcpDevice>(std::move(domain)));
}

}  // namespace perdure::fabric::ofi

#else
#include "fabric/ofi/ofi.h"

namespace perdure::fabric::ofi {

Result<std::unique_ptr<Device>> open_device() {
  return Error{ErrorCode::Unsupported, "this build has no libfabric: install libfabric-dev"};
}

void prepare_to_open() {}

}  // namespace perdure::fabric::ofi
#endif
