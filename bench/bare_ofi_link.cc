// A bare libfabric connection.
#include "bench/bare_link.h"

#ifdef PERDURE_WITH_LIBFABRIC
#include "fabric/ofi/libfabric.h"

#include <fmt/format.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/random.h"
#include "core/try.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace perdure::bench {
namespace {

using fabric::ofi::kApiVersion;
using fabric::ofi::libfabric;
using fabric::ofi::load_libfabric;

Error failed(const char* what, std::int64_t returned) {
  return Error{ErrorCode::Unsupported,
               fmt::format("bare libfabric: {}: {}", what,
                           libfabric().strerror(static_cast<int>(-returned)))};
}

struct Name {
  std::uint64_t length = 0;
  std::array<std::byte, 128> bytes{};
};

struct OfiKeys {
  std::uint64_t key = 0;
  std::uint64_t base = 0;
};

struct CloseBareFid {
  template <typename Object>
  void operator()(Object* object) const {
    ::fi_close(&object->fid);
  }
};
template <typename Object>
using BareFid = std::unique_ptr<Object, CloseBareFid>;

std::uint64_t flags_of(BareEnding ending) {
  switch (ending) {
    case BareEnding::Silent: return 0;
    case BareEnding::Completed: return FI_COMPLETION;
    case BareEnding::Delivered: return FI_COMPLETION | FI_DELIVERY_COMPLETE;
    case BareEnding::Committed: return FI_COMPLETION | FI_COMMIT_COMPLETE;
    case BareEnding::Immediate: return FI_REMOTE_CQ_DATA;
  }
  return 0;
}

class OfiLink final : public BareLink {
 public:
  static Result<std::unique_ptr<BareLink>> open(BareProvider provider, const BareSetup& setup);
  ~OfiLink() override;

  Result<void> send(const std::byte* data, std::size_t length) override;
  Result<void> write(const std::byte* data, std::size_t length, std::size_t offset,
                     BareEnding ending) override;
  Result<void> write_and_read(const std::byte* data, std::size_t length,
                              std::byte* read_to) override;
  Result<void> look(const OnReceive& on_receive) override;
  void remove_leftover() const override;

 private:
  OfiLink() = default;
  Result<void> open_common(BareProvider provider, int control);
  Result<void> open_endpoint(fi_info* info);
  Result<void> connect(int control);
  Result<void> listen_and_accept(int control);
  Result<void> wait_connected();
  Result<void> meet_by_name(int control);
  Result<void> exchange_keys(int control);
  Result<void> post_receive(std::size_t slot);
  template <typename Post>
  Result<void> insist(const char* what, Post&& post);

  fi_info* info_ = nullptr;
  BareFid<fid_fabric> fabric_;
  BareFid<fid_eq> events_;
  BareFid<fid_domain> domain_;
  BareFid<fid_av> addresses_;
  BareFid<fid_cq> queue_;
  BareFid<fid_mr> memory_;
  BareFid<fid_ep> endpoint_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::uint64_t peer_key_ = 0;
  std::uint64_t peer_base_ = 0;
  std::span<std::byte> region_;
  std::vector<std::byte> inbox_;
  std::size_t inbox_slot_ = 0;
  std::string name_;  // shm: of this side's shared memory, and of the peer's
  std::string peer_name_;
};

OfiLink::~OfiLink() {
  endpoint_.reset();
  memory_.reset();
  queue_.reset();
  addresses_.reset();
  domain_.reset();
  events_.reset();
  fabric_.reset();
  if (info_ != nullptr) libfabric().freeinfo(info_);
}

Result<std::unique_ptr<BareLink>> OfiLink::open(BareProvider provider, const BareSetup& setup) {
  std::unique_ptr<OfiLink> link(new OfiLink);
  link->region_ = setup.region;
  link->inbox_slot_ = std::max<std::size_t>(setup.message_bytes_max, kReplyBytes);
  link->inbox_.resize(link->inbox_slot_ * kReceivesPosted);
  PERDURE_TRY_VOID(link->open_common(provider, setup.control));
  if (provider == BareProvider::Tcp) {
    PERDURE_TRY_VOID(setup.requester ? link->connect(setup.control)
                                     : link->listen_and_accept(setup.control));
  } else {
    PERDURE_TRY_VOID(link->meet_by_name(setup.control));
  }
  PERDURE_TRY_VOID(link->exchange_keys(setup.control));
  return std::unique_ptr<BareLink>(std::move(link));
}

Result<void> OfiLink::open_common(BareProvider provider, int) {
  PERDURE_TRY_VOID(load_libfabric());
  fi_info* hints = libfabric().dupinfo(nullptr);
  hints->caps = FI_MSG | FI_RMA;
  hints->ep_attr->type = provider == BareProvider::Tcp ? FI_EP_MSG : FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;  // one thread in each process
  hints->fabric_attr->prov_name = ::strdup(provider == BareProvider::Tcp ? "tcp" : "shm");
  if (provider == BareProvider::Tcp) hints->addr_format = FI_SOCKADDR_IN;
  const char* node = provider == BareProvider::Tcp ? "127.0.0.1" : nullptr;
  const std::uint64_t flags = provider == BareProvider::Tcp ? FI_SOURCE : 0;
  int returned = libfabric().getinfo(kApiVersion, node, nullptr, flags, hints, &info_);
  libfabric().freeinfo(hints);
  if (returned != 0) return failed("fi_getinfo", returned);

  fid_fabric* fabric = nullptr;
  returned = libfabric().fabric(info_->fabric_attr, &fabric, nullptr);
  if (returned != 0) return failed("fi_fabric", returned);
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  returned = ::fi_domain(fabric, info_, &domain, nullptr);
  if (returned != 0) return failed("fi_domain", returned);
  domain_.reset(domain);
  fi_eq_attr event_attr{};
  event_attr.wait_obj = FI_WAIT_UNSPEC;
  fid_eq* events = nullptr;
  returned = ::fi_eq_open(fabric, &event_attr, &events, nullptr);
  if (returned != 0) return failed("fi_eq_open", returned);
  events_.reset(events);

  fi_cq_attr queue_attr{};
  queue_attr.format = FI_CQ_FORMAT_DATA;
  queue_attr.size = 1024;
  // Spinning on tcp is faster with a descriptor than without: see fabric/ofi/tcp_endpoint.cc.
  queue_attr.wait_obj = provider == BareProvider::Tcp ? FI_WAIT_FD : FI_WAIT_NONE;
  fid_cq* queue = nullptr;
  returned = ::fi_cq_open(domain, &queue_attr, &queue, nullptr);
  if (returned != 0) return failed("fi_cq_open", returned);
  queue_.reset(queue);
  fid_mr* memory = nullptr;
  returned = ::fi_mr_reg(domain, region_.data(), region_.size(), FI_REMOTE_READ | FI_REMOTE_WRITE,
                         0, 1, 0, &memory, nullptr);
  if (returned != 0) return failed("fi_mr_reg", returned);
  memory_.reset(memory);
  return {};
}

Result<void> OfiLink::open_endpoint(fi_info* info) {
  fid_ep* endpoint = nullptr;
  int returned = ::fi_endpoint(domain_.get(), info, &endpoint, nullptr);
  if (returned != 0) return failed("fi_endpoint", returned);
  endpoint_.reset(endpoint);
  if (addresses_) {
    returned = ::fi_ep_bind(endpoint, &addresses_->fid, 0);
  } else {
    returned = ::fi_ep_bind(endpoint, &events_->fid, 0);
  }
  if (returned == 0) {
    returned = ::fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
  }
  if (returned == 0) returned = ::fi_ep_bind(endpoint, &queue_->fid, FI_RECV);
  if (returned == 0 && !name_.empty()) {
    returned = ::fi_setname(&endpoint->fid, name_.data(), name_.size() + 1);
  }
  if (returned == 0) returned = ::fi_enable(endpoint);
  if (returned != 0) return failed("fi_enable", returned);
  for (std::size_t slot = 0; slot < kReceivesPosted; ++slot) PERDURE_TRY_VOID(post_receive(slot));
  return {};
}

Result<void> OfiLink::wait_connected() {
  std::uint32_t event = 0;
  fi_eq_cm_entry entry{};
  const auto returned = ::fi_eq_sread(events_.get(), &event, &entry, sizeof entry, 10'000, 0);
  if (returned < 0 || event != FI_CONNECTED) return failed("connecting", -FI_ECONNREFUSED);
  return {};
}

Result<void> OfiLink::connect(int control) {
  Name name;
  PERDURE_TRY_VOID(hear_peer(control, name));
  PERDURE_TRY_VOID(open_endpoint(info_));
  const int returned = ::fi_connect(endpoint_.get(), name.bytes.data(), nullptr, 0);
  if (returned != 0) return failed("fi_connect", returned);
  return wait_connected();
}

Result<void> OfiLink::listen_and_accept(int control) {
  fid_pep* opened = nullptr;
  int returned = ::fi_passive_ep(fabric_.get(), info_, &opened, nullptr);
  if (returned != 0) return failed("fi_passive_ep", returned);
  const BareFid<fid_pep> passive(opened);
  returned = ::fi_pep_bind(opened, &events_->fid, 0);
  if (returned == 0) returned = ::fi_listen(opened);
  Name name;
  std::size_t length = name.bytes.size();
  if (returned == 0) returned = ::fi_getname(&opened->fid, name.bytes.data(), &length);
  if (returned != 0) return failed("fi_listen", returned);
  name.length = length;
  PERDURE_TRY_VOID(tell_peer(control, name));

  std::uint32_t event = 0;
  fi_eq_cm_entry entry{};
  const auto got = ::fi_eq_sread(events_.get(), &event, &entry, sizeof entry, 10'000, 0);
  if (got < 0 || event != FI_CONNREQ) return failed("listening", -FI_ETIMEDOUT);
  auto opened_endpoint = open_endpoint(entry.info);
  libfabric().freeinfo(entry.info);
  if (!opened_endpoint.ok()) return opened_endpoint;
  returned = ::fi_accept(endpoint_.get(), nullptr, 0);
  if (returned != 0) return failed("fi_accept", returned);
  return wait_connected();
}

/// shm has no connections: both sides take a name, and put the other's into their address vector.
Result<void> OfiLink::meet_by_name(int control) {
  fi_av_attr attr{};
  attr.type = FI_AV_MAP;
  fid_av* addresses = nullptr;
  int returned = ::fi_av_open(domain_.get(), &attr, &addresses, nullptr);
  if (returned != 0) return failed("fi_av_open", returned);
  addresses_.reset(addresses);
  name_ = fmt::format("{}{:016x}", bare_shm_prefix(), random_secret());
  PERDURE_TRY_VOID(open_endpoint(info_));

  Name own;
  Name other;
  own.length = name_.size() + 1;
  std::memcpy(own.bytes.data(), name_.c_str(), own.length);
  PERDURE_TRY_VOID(tell_peer(control, own));
  PERDURE_TRY_VOID(hear_peer(control, other));
  returned = ::fi_av_insert(addresses, other.bytes.data(), 1, &peer_, 0, nullptr);
  if (returned != 1) return failed("fi_av_insert", -FI_EINVAL);
  other.bytes.back() = std::byte{0};
  peer_name_ = reinterpret_cast<const char*>(other.bytes.data());
  return {};
}

void OfiLink::remove_leftover() const {
  if (!peer_name_.empty()) ::shm_unlink(("/" + peer_name_).c_str());
}

Result<void> OfiLink::exchange_keys(int control) {
  const bool virtual_addresses = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  const OfiKeys own{::fi_mr_key(memory_.get()),
                    virtual_addresses ? reinterpret_cast<std::uintptr_t>(region_.data()) : 0};
  OfiKeys other;
  PERDURE_TRY_VOID(tell_peer(control, own));
  PERDURE_TRY_VOID(hear_peer(control, other));
  peer_key_ = other.key;
  peer_base_ = other.base;
  return {};
}

Result<void> OfiLink::post_receive(std::size_t slot) {
  const auto returned = ::fi_recv(endpoint_.get(), inbox_.data() + slot * inbox_slot_, inbox_slot_,
                                  nullptr, FI_ADDR_UNSPEC, reinterpret_cast<void*>(slot + 1));
  if (returned != 0) return failed("fi_recv", returned);
  return {};
}

/// Posts until the provider takes it, making progress in between. Receives that complete meanwhile
/// stay in the queue: reading nothing still progresses.
template <typename Post>
Result<void> OfiLink::insist(const char* what, Post&& post) {
  const Deadline deadline = Deadline::after(kBarePatience);
  for (std::uint64_t attempts = 0;; ++attempts) {
    const std::int64_t returned = post();
    if (returned == 0) return {};
    if (returned != -FI_EAGAIN) return failed(what, returned);
    (void)::fi_cq_read(queue_.get(), nullptr, 0);
    if (attempts % 4096 == 4095 && deadline.passed()) {
      return Error{ErrorCode::TimedOut, fmt::format("bare libfabric: {} is not taken", what)};
    }
  }
}

Result<void> OfiLink::send(const std::byte* data, std::size_t length) {
  iovec piece{const_cast<std::byte*>(data), length};
  fi_msg message{};
  message.msg_iov = &piece;
  message.iov_count = 1;
  message.addr = peer_;
  return insist("fi_sendmsg", [&] { return ::fi_sendmsg(endpoint_.get(), &message, 0); });
}

Result<void> OfiLink::write(const std::byte* data, std::size_t length, std::size_t offset,
                            BareEnding ending) {
  const std::uint64_t flags = flags_of(ending);
  iovec piece{const_cast<std::byte*>(data), length};
  const fi_rma_iov target{peer_base_ + offset, length, peer_key_};
  fi_msg_rma message{};
  message.msg_iov = &piece;
  message.iov_count = 1;
  message.addr = peer_;
  message.rma_iov = &target;
  message.rma_iov_count = 1;
  return insist("fi_writemsg", [&] { return ::fi_writemsg(endpoint_.get(), &message, flags); });
}

Result<void> OfiLink::write_and_read(const std::byte* data, std::size_t length,
                                     std::byte* read_to) {
  PERDURE_TRY_VOID(write(data, length, 0, BareEnding::Silent));
  iovec piece{read_to, 8};
  const fi_rma_iov source{peer_base_, 8, peer_key_};
  fi_msg_rma message{};
  message.msg_iov = &piece;
  message.iov_count = 1;
  message.addr = peer_;
  message.rma_iov = &source;
  message.rma_iov_count = 1;
  return insist("fi_readmsg",
                [&] { return ::fi_readmsg(endpoint_.get(), &message, FI_COMPLETION); });
}

Result<void> OfiLink::look(const OnReceive& on_receive) {
  std::array<fi_cq_data_entry, 16> batch;
  const ssize_t count = ::fi_cq_read(queue_.get(), batch.data(), batch.size());
  if (count == -FI_EAGAIN) return {};
  if (count < 0) return Error{ErrorCode::Disconnected, "bare libfabric: the connection failed"};
  for (ssize_t i = 0; i < count; ++i) {
    const fi_cq_data_entry& entry = batch[static_cast<std::size_t>(i)];
    if ((entry.flags & FI_RECV) != 0) {
      const auto slot = reinterpret_cast<std::uintptr_t>(entry.op_context) - 1;
      ++received_;
      on_receive(std::span<const std::byte>(inbox_).subspan(slot * inbox_slot_, entry.len));
      if (auto posted = post_receive(slot); !posted.ok()) return posted;
    } else if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
      ++received_;
      on_receive(std::span<const std::byte>());
    } else {
      ++requests_completed_;
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<BareLink>> open_ofi_link(BareProvider provider, const BareSetup& setup) {
  return OfiLink::open(provider, setup);
}

void warm_up_ofi() {
  if (!load_libfabric()) return;
  fi_info* found = nullptr;
  fi_info* hints = libfabric().dupinfo(nullptr);
  hints->fabric_attr->prov_name = ::strdup("tcp");
  if (libfabric().getinfo(kApiVersion, nullptr, nullptr, 0, hints, &found) == 0) {
    libfabric().freeinfo(found);
  }
  libfabric().freeinfo(hints);
}

std::string bare_libfabric() {
  if (const auto loaded = load_libfabric(); !loaded.ok()) return loaded.error().message;
  const std::uint32_t version = libfabric().version();
  return fmt::format("libfabric {}.{}", FI_MAJOR(version), FI_MINOR(version));
}

}  // namespace perdure::bench

#else

namespace perdure::bench {

Result<std::unique_ptr<BareLink>> open_ofi_link(BareProvider, const BareSetup&) {
  return Error{ErrorCode::Unsupported, "this build has no libfabric"};
}
void warm_up_ofi() {}
std::string bare_libfabric() { return "this build has no libfabric"; }

}  // namespace perdure::bench
#endif
