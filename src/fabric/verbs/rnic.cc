// See rnic.h.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/rnic.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "core/log_message.h"
#include "core/try.h"
#include "fabric/verbs/extended.h"

#include <cstring>
#include <fstream>
#include <sstream>

namespace perdure::fabric::verbs {
namespace {

constexpr std::uint32_t kSiwVendor = 0x626d74;  // drivers/infiniband/sw/siw: SIW_VENDOR_ID
constexpr std::uint32_t kRxeVendor = 0xffffff;  // drivers/infiniband/sw/rxe: RXE_VENDOR_ID

Transport transport_of(ibv_context* context, const ibv_port_attr& port) {
  if (context->device->transport_type == IBV_TRANSPORT_IWARP) return Transport::Iwarp;
  return port.link_layer == IBV_LINK_LAYER_ETHERNET ? Transport::Roce : Transport::InfiniBand;
}

std::string_view yes_no(bool value) { return value ? "yes" : "no"; }

std::string headers_say(bool have, std::string_view what) {
  return have ? std::string() : fmt::format("; this build's headers lack {}", what);
}

/// Every address of a network interface that is up; loopback is never an RNIC's.
std::vector<SocketAddress> interface_addresses() {
  std::vector<SocketAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    SocketAddress address;
    if (entry->ifa_addr->sa_family == AF_INET) {
      address.length = sizeof(sockaddr_in);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      address.length = sizeof(sockaddr_in6);
    } else {
      continue;
    }
    std::memcpy(&address.storage, entry->ifa_addr, address.length);
    found.push_back(address);
  }
  ::freeifaddrs(list);
  return found;
}

/// The RNIC that librdmacm would use for an address of this machine; null when there is none.
Rnic* rnic_at(rdma_event_channel* channel, SocketAddress address,
              std::map<std::string, std::unique_ptr<Rnic>>& known) {
  rdma_cm_id* made = nullptr;
  if (::rdma_create_id(channel, &made, nullptr, RDMA_PS_TCP) != 0) return nullptr;
  const Owned<rdma_cm_id> id(made);
  auto* generic = reinterpret_cast<sockaddr*>(&address.storage);
  if (::rdma_bind_addr(id.get(), generic) != 0 || id->verbs == nullptr) return nullptr;
  const char* name = ::ibv_get_device_name(id->verbs->device);
  std::unique_ptr<Rnic>& rnic = known[fmt::format("{} {}", name, host_of(address))];
  if (!rnic) rnic = std::make_unique<Rnic>(id->verbs, id->port_num, address);
  return rnic.get();
}

}  // namespace

Rnic::Rnic(ibv_context* context, std::uint8_t port, const SocketAddress& address)
    : context_(context), address_(address) {
  ibv_port_attr port_attributes{};
  ::ibv_query_port(context_, port, &port_attributes);
  ::ibv_query_device_ex(context_, nullptr, &attributes_);
  message_bytes_max_ = port_attributes.max_msg_sz;
  is_siw_ = limits().vendor_id == kSiwVendor;
  report_.name = ::ibv_get_device_name(context_->device);
  report_.address = host_of(address_);
  report_.transport = transport_of(context_, port_attributes);
  report_.software = is_siw_ || limits().vendor_id == kRxeVendor;
  find_capabilities();
  const int flags = ::fcntl(context_->async_fd, F_GETFL);
  ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK);
  report_.evidence.push_back(fmt::format(
      "port {} {}, {}, largest message {} B, {} READs in flight at most", port,
      ::ibv_port_state_str(port_attributes.state),
      report_.transport == Transport::Iwarp ? "transport type iWARP" : "link layer of the port",
      message_bytes_max_, limits().max_qp_init_rd_atom));
}

void Rnic::find_capabilities() {
  const std::uint64_t bits = attributes_.device_cap_flags_ex;
  if (kHeadersHaveFlush && (bits & kDeviceFlushGlobal) != 0) flags_ |= kFlushGlobal;
  if (kHeadersHaveFlush && (bits & kDeviceFlushPersistent) != 0) flags_ |= kFlushPersistent;
  if (kHeadersHaveAtomicWrite && (bits & kDeviceAtomicWrite) != 0) flags_ |= kAtomicWrite;
  report_.capabilities.native_flush = flushes();
  report_.capabilities.persistent_flush = flushes_persistently();
  report_.capabilities.atomic_write = writes_atomically();
  report_.evidence.push_back(fmt::format(
      "device capability bits {:#x}: FLUSH to visibility {}, to persistence {}, ATOMIC WRITE "
      "{}{}{}",
      bits, yes_no((bits & kDeviceFlushGlobal) != 0), yes_no((bits & kDeviceFlushPersistent) != 0),
      yes_no((bits & kDeviceAtomicWrite) != 0), headers_say(kHeadersHaveFlush, "FLUSH"),
      headers_say(kHeadersHaveAtomicWrite, "ATOMIC WRITE")));
  if (pages_on_demand()) report_.evidence.emplace_back("registers memory that is paged on demand");
}

bool Rnic::pages_on_demand() const {
  return (attributes_.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
}

void Rnic::dispatch_events() {
  constexpr int kEventsMax = 64;  // the rest stays readable
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < kEventsMax; ++i) {
    ibv_async_event event{};
    if (::ibv_get_async_event(context_, &event) != 0) return;
    const char* what = ::ibv_event_type_str(event.event_type);
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        if (const auto found = watched_.find(event.element.qp); found != watched_.end()) {
          found->second->broken = true;
        }
        break;
      case IBV_EVENT_DEVICE_FATAL:
        for (const auto& [qp, fate] : watched_) fate->broken = true;
        log_message(Severity::Error, fmt::format("RNIC {}: {}", name(), what));
        break;
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_PORT_ACTIVE:
        log_message(Severity::Warning, fmt::format("RNIC {}: {}", name(), what));
        break;
      default: log_message(Severity::Debug, fmt::format("RNIC {}: {}", name(), what));
    }
    ::ibv_ack_async_event(&event);
  }
}

void Rnic::watch(ibv_qp* qp, std::shared_ptr<Fate> fate) {
  const std::lock_guard lock(mutex_);
  watched_[qp] = std::move(fate);
}

void Rnic::unwatch(ibv_qp* qp) {
  const std::lock_guard lock(mutex_);
  watched_.erase(qp);
}

Result<std::vector<Rnic*>> find_rnics() {
  // Never destroyed: librdmacm closes its devices in a destructor of its own.
  static auto& known = *new std::map<std::string, std::unique_ptr<Rnic>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const Owned<rdma_event_channel> channel(::rdma_create_event_channel());
  if (!channel) {
    return errno_error(ErrorCode::Unsupported,
                       "this machine has no RDMA devices (librdmacm can not open "
                       "/dev/infiniband/rdma_cm)");
  }
  std::vector<Rnic*> found;
  for (const SocketAddress& address : interface_addresses()) {
    if (Rnic* rnic = rnic_at(channel.get(), address, known)) found.push_back(rnic);
  }
  if (found.empty()) {
    return Error{ErrorCode::Unsupported,
                 "no network interface with an address belongs to an RDMA device: see `rdma link`"};
  }
  return found;
}

}  // namespace perdure::fabric::verbs
#endif
