// See rnic.h.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/rnic.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/utsname.h>

#include "core/log_message.h"
#include "core/try.h"
#include "fabric/verbs/extended.h"
#include "fabric/verbs/fork_protection.h"
#include "fabric/verbs/known_devices.h"
#include "fabric/verbs/on_demand.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace perdure::fabric::verbs {
namespace {

constexpr std::uint32_t kSiwVendor = 0x626d74;  // drivers/infiniband/sw/siw: SIW_VENDOR_ID
constexpr std::uint32_t kRxeVendor = 0xffffff;  // drivers/infiniband/sw/rxe: RXE_VENDOR_ID

Transport transport_of(ibv_context* context, const ibv_port_attr& port) {
  if (context->device->transport_type == IBV_TRANSPORT_IWARP) return Transport::Iwarp;
  return port.link_layer == IBV_LINK_LAYER_ETHERNET ? Transport::Roce : Transport::InfiniBand;
}

/// rxe and siw show that of the network device that they use.
std::string driver_of(const std::string& device) {
  std::error_code none;
  const auto driver =
      std::filesystem::read_symlink("/sys/class/infiniband/" + device + "/device/driver", none);
  return none ? std::string() : driver.filename().string();
}

std::string provenance_of(const std::string& driver, const std::string& firmware) {
  utsname kernel{};
  (void)::uname(&kernel);
  return fmt::format("driver {}, firmware {}, {} {}", driver.empty() ? "software" : driver,
                     firmware.empty() ? "unknown" : firmware, kernel.sysname, kernel.release);
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

bool port_answers(ibv_context* context, std::uint8_t port) {
  ibv_port_attr attributes{};
  return ::ibv_query_port(context, port, &attributes) == 0;
}

/// The RNIC that librdmacm would use for an address of this machine; null when there is none.
Rnic* rnic_at(rdma_event_channel* channel, SocketAddress address, KnownDevices<Rnic>& known) {
  rdma_cm_id* made = nullptr;
  if (::rdma_create_id(channel, &made, nullptr, RDMA_PS_TCP) != 0) return nullptr;
  Owned<rdma_cm_id> id(made);
  auto* generic = reinterpret_cast<sockaddr*>(&address.storage);
  if (::rdma_bind_addr(id.get(), generic) != 0 || id->verbs == nullptr) return nullptr;
  const char* name = ::ibv_get_device_name(id->verbs->device);
  const auto answers = [&] { return port_answers(id->verbs, id->port_num); };
  Rnic* const rnic = known.at(fmt::format("{} {}", name, host_of(address)), id->verbs, answers,
                              [&] { return std::make_unique<Rnic>(std::move(id), address); });
  if (rnic == nullptr) {
    log_message(Severity::Warning,
                fmt::format("RNIC {}: was reset, and librdmacm of this process still has it as it "
                            "was; it is asked again at the next request",
                            name));
    return nullptr;
  }
  rnic->dispatch_events();  // nobody may have read of its end
  return rnic->is_dead() ? nullptr : rnic;
}

}  // namespace

std::shared_ptr<Rnic::Watched> Rnic::watched_of(ibv_context* context) {
  static std::mutex mutex;
  static auto& known = *new std::map<ibv_context*, std::shared_ptr<Watched>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Watched>& watched = known[context];
  if (!watched || watched->fates.dead()) watched = std::make_shared<Watched>();
  return watched;
}

Rnic::Rnic(Owned<rdma_cm_id> bound, const SocketAddress& address)
    : bound_(std::move(bound)), address_(address), watched_(watched_of(context_)) {
  ibv_port_attr port_attributes{};
  ::ibv_query_port(context_, port_, &port_attributes);
  ::ibv_query_device_ex(context_, nullptr, &attributes_);
  message_bytes_max_ = port_attributes.max_msg_sz;
  is_siw_ = limits().vendor_id == kSiwVendor;
  report_.name = ::ibv_get_device_name(context_->device);
  report_.address = host_of(address_);
  report_.transport = transport_of(context_, port_attributes);
  report_.software = is_siw_ || limits().vendor_id == kRxeVendor;
  const std::string driver = report_.software ? "" : driver_of(report_.name);
  provenance_ = provenance_of(driver, limits().fw_ver);
  watched_->windows.lower(window_bytes_max_of(driver));
  find_capabilities();
  std::ifstream place(fmt::format("/sys/class/infiniband/{}/device/local_cpulist", report_.name));
  std::string near_cores;  // empty for software RNICs
  std::getline(place, near_cores);
  vectors_.prepare(context_->num_comp_vectors, count_processors(near_cores));
  const int flags = ::fcntl(context_->async_fd, F_GETFL);
  ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK);
  report_.evidence.push_back(fmt::format(
      "port {} {}, {}, largest message {} B, {} READs in flight at most", port_,
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
  const bool type_2b = (limits().device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
  has_windows_ = type_2b && limits().max_mw > 0 && !is_iwarp();
  const std::uint64_t largest = watched_->windows.bytes_max();
  report_.evidence.push_back(fmt::format(
      "memory windows of type 2B {}: {}{}", yes_no(type_2b),
      has_windows_ ? "a pool is registered once, and fencing takes no longer for a large one"
                   : "each session registers its pool anew, and fencing a large one takes as long",
      has_windows_ && largest != WindowLimit::kNone
          ? fmt::format("; not for pools over {} bytes, which each session registers anew", largest)
          : ""));
  report_.pages_on_demand = pages_on_demand();
  if (pages_on_demand()) report_.evidence.emplace_back("registers memory that is paged on demand");
}

void Rnic::note_successor(const Rnic& now) {
  // Where a failed context merely answers again, nothing of it is known to be gone. Contexts are
  // never closed, so another one has another address.
  if (now.context_ != context_) watched_->fates.note_successor();
}

bool Rnic::has_let_go(int returned) {
  // After what it destroyed, for it may have failed before. Its port's state comes from firmware,
  // and no driver makes it up.
  const bool answers = returned == 0 && port_answers(context_, port_);
  dispatch_events();  // it may have failed before it answered
  if (is_dead() && !watched_->fates.was_reset()) (void)find_rnics();
  return watched_->fates.has_let_go(returned, answers);
}

bool Rnic::is_up() const {
  ibv_port_attr now{};
  return ::ibv_query_port(context_, port_, &now) == 0 && now.state == IBV_PORT_ACTIVE;
}

bool Rnic::pages_on_demand() const {
  // Of reliable connections: each operation has a bit of its own (ibv_query_device_ex(3)).
  constexpr std::uint32_t kNeeded =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  const ibv_odp_caps& odp = attributes_.odp_caps;
  return pages_each_operation((odp.general_caps & IBV_ODP_SUPPORT) != 0,
                              odp.per_transport_caps.rc_odp_caps, kNeeded);
}

void Rnic::dispatch_events() {
  constexpr int kEventsMax = 64;  // the rest stays readable
  const std::lock_guard lock(watched_->reading);
  for (int i = 0; i < kEventsMax; ++i) {
    ibv_async_event event{};
    if (::ibv_get_async_event(context_, &event) != 0) return;
    watched_->fates.take(event);
    log_message(meaning_of(event.event_type).severity,
                fmt::format("RNIC {}: {}", name(), ::ibv_event_type_str(event.event_type)));
    ::ibv_ack_async_event(&event);
  }
}

namespace {

/// ibv_fork_init(3) has to come before the first registration of the process.
Result<void> survive_forks() {
  const int returned = ::ibv_fork_init();
  if (fork_protection(returned, ::ibv_is_fork_initialized()) != ForkProtection::Missing) return {};
  return Error{ErrorCode::Unsupported,
               "this process registered memory with an RNIC before it used Perdure, on a kernel "
               "where a fork() would then make the RNIC send stale data: call ibv_fork_init() "
               "first, set IBV_FORK_SAFE=1, or use Linux 5.12 or newer"};
}

}  // namespace

Result<std::vector<Rnic*>> find_rnics() {
  // Never destroyed: librdmacm closes its devices in a destructor of its own. To the channel comes
  // one event for each RNIC that is removed; nobody reads it, for the RNIC itself says so, too.
  static auto& known = *new KnownDevices<Rnic>;
  static rdma_event_channel* channel = nullptr;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (channel == nullptr) channel = ::rdma_create_event_channel();
  if (channel == nullptr) {
    return errno_error(ErrorCode::Unsupported,
                       "this machine has no RDMA devices (librdmacm can not open "
                       "/dev/infiniband/rdma_cm)");
  }
  PERDURE_TRY_VOID(survive_forks());
  std::vector<Rnic*> found;
  for (const SocketAddress& address : interface_addresses()) {
    if (Rnic* rnic = rnic_at(channel, address, known)) found.push_back(rnic);
  }
  // Whoever names none takes the first: one whose port is up, if there is any.
  std::stable_partition(found.begin(), found.end(), [](Rnic* rnic) { return rnic->is_up(); });
  if (found.empty()) {
    return Error{ErrorCode::Unsupported,
                 "no network interface with an address belongs to an RDMA device: see `rdma link`"};
  }
  return found;
}

}  // namespace perdure::fabric::verbs
#endif
