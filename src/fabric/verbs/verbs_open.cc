// See verbs_endpoint.h: making a connection.
#ifdef PERDURE_WITH_VERBS
#include <fcntl.h>
#include <sys/epoll.h>

#include "core/bytes.h"
#include "core/log_message.h"
#include "core/try.h"
#include "fabric/verbs/extended.h"
#include "fabric/verbs/verbs_endpoint.h"

#include <algorithm>
#include <bit>
#include <memory>

namespace perdure::fabric::verbs {
namespace {

constexpr std::uint64_t kTransferBytesMax = std::uint64_t{1} << 30;
constexpr std::size_t kPiecesMax = 16;  // of one transfer, besides those for its segments
constexpr std::size_t kSplitEntries = kPiecesMax + kSegmentsMax;
constexpr std::size_t kInternalEntries = 2;  // a credit message and a probe
constexpr std::size_t kDepthMax = 4096;
constexpr std::uint32_t kInlineWanted = 256;
constexpr std::uint8_t kReadsMax = 16;            // in flight on one connection
constexpr std::uint8_t kRetries = kAckTries - 1;  // 7 is "without end" on some RNICs

std::size_t depth_of(std::size_t asked, const Rnic& rnic) {
  const auto most = static_cast<std::size_t>(std::max(rnic.limits().max_qp_wr, 64));
  return std::clamp(asked, std::size_t{1},
                    std::min(kDepthMax, most - kSplitEntries - kInternalEntries));
}

std::uint64_t transfer_max(const Rnic& rnic) {
  return std::min(kTransferBytesMax, rnic.message_bytes_max() * kPiecesMax);
}

}  // namespace

VerbsEndpoint::VerbsEndpoint(std::shared_ptr<Domain> domain, Owned<rdma_event_channel> channel,
                             const EndpointOptions& options, std::string peer)
    : domain_(std::move(domain)),
      peer_(std::move(peer)),
      limits_{transfer_max(*domain_->rnic), depth_of(options.send_depth, *domain_->rnic),
              depth_of(options.receive_depth, *domain_->rnic)},
      events_(std::move(channel)),
      requests_(limits_.send_depth, limits_.send_depth + kSplitEntries, !domain_->rnic->is_iwarp()),
      receive_credits_(limits_.receive_depth),
      receives_(limits_.receive_depth),
      look_at_(Deadline::after(Nanoseconds{0})),
      ask_at_(Deadline::after(kAskPeerEvery)) {}

Result<std::unique_ptr<VerbsEndpoint>> VerbsEndpoint::open(std::shared_ptr<Domain> domain,
                                                           Owned<rdma_event_channel> channel,
                                                           Owned<rdma_cm_id> id,
                                                           const EndpointOptions& options,
                                                           std::string peer) {
  std::unique_ptr<VerbsEndpoint> made(
      new VerbsEndpoint(std::move(domain), std::move(channel), options, std::move(peer)));
  made->id_ = std::move(id);
  PERDURE_TRY_VOID(made->make_queues());
  PERDURE_TRY_VOID(made->make_control_block());
  PERDURE_TRY_VOID(made->make_queue_pair());
  PERDURE_TRY_VOID(made->make_wait_fd());
  return made;
}

Result<void> VerbsEndpoint::make_queues() {
  sleep_channel_.reset(::ibv_create_comp_channel(domain_->rnic->context()));
  if (!sleep_channel_) return errno_error(ErrorCode::SystemError, "ibv_create_comp_channel");
  const int flags = ::fcntl(sleep_channel_->fd, F_GETFL);
  ::fcntl(sleep_channel_->fd, F_SETFL, flags | O_NONBLOCK);
  const std::size_t entries =
      limits_.send_depth + kSplitEntries + kInternalEntries + limits_.receive_depth;
  queue_.reset(::ibv_create_cq(domain_->rnic->context(), static_cast<int>(entries), nullptr,
                               sleep_channel_.get(), domain_->rnic->next_completion_vector()));
  if (!queue_) return errno_error(ErrorCode::SystemError, "ibv_create_cq");
  return {};
}

Result<void> VerbsEndpoint::make_control_block() {
  const std::size_t slots = domain_->rnic->is_iwarp() ? std::bit_ceil(limits_.receive_depth) : 0;
  const std::size_t bytes = sizeof(ControlBlock) + slots * sizeof(Immediate);
  void* memory = std::aligned_alloc(alignof(ControlBlock), round_up(bytes, alignof(ControlBlock)));
  if (memory == nullptr) return Error{ErrorCode::SystemError, "out of memory"};
  control_.reset(new (memory) ControlBlock);
  auto* ring = reinterpret_cast<Immediate*>(control_.get() + 1);
  std::uninitialized_value_construct_n(ring, slots);
  immediates_ = {ring, slots};
  control_region_.reset(
      ::ibv_reg_mr(domain_->protection.get(), control_.get(), bytes,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  if (!control_region_) return errno_error(ErrorCode::SystemError, "registering the credit word");
  return {};
}

/// With as much as the RNIC gives: FLUSH and ATOMIC WRITE need an extended queue pair, and some
/// RNICs have none at all.
Result<void> VerbsEndpoint::make_queue_pair() {
  const Rnic& rnic = *domain_->rnic;
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = queue_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.pd = domain_->protection.get();
  wanted.cap.max_send_wr =
      static_cast<std::uint32_t>(limits_.send_depth + kSplitEntries + kInternalEntries);
  wanted.cap.max_recv_wr = static_cast<std::uint32_t>(limits_.receive_depth);
  wanted.cap.max_send_sge = kSegmentsMax;
  wanted.cap.max_recv_sge = 1;

  constexpr std::uint64_t kBasic = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ |
                                   IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  const std::uint64_t extra =
      (rnic.flushes() ? kQpWithFlush : 0) | (rnic.writes_atomically() ? kQpWithAtomicWrite : 0);
  struct Kind {
    std::uint32_t mask;
    std::uint64_t operations;
  };
  std::vector<Kind> kinds;
  if (extra != 0) {
    kinds.push_back({IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, kBasic | extra});
  }
  kinds.push_back({IBV_QP_INIT_ATTR_PD, 0});
  for (const Kind& kind : kinds) {
    for (const std::uint32_t inline_bytes : {kInlineWanted, 128U, 64U, 0U}) {
      ibv_qp_init_attr_ex attributes = wanted;
      attributes.comp_mask = kind.mask;
      attributes.send_ops_flags = kind.operations;
      attributes.cap.max_inline_data = inline_bytes;
      if (::rdma_create_qp_ex(id_.get(), &attributes) != 0) continue;
      if (kind.operations != 0) extended_ = ::ibv_qp_to_qp_ex(id_->qp);
      queue_limits_.inline_bytes_max = attributes.cap.max_inline_data;
      queue_limits_.message_bytes_max = rnic.message_bytes_max();
      // iWARP names one place for the answer of a READ (RFC 5040 section 4.4).
      queue_limits_.read_segments_max = rnic.is_iwarp() ? 1 : kSegmentsMax;
      queue_limits_.writes_immediates = !rnic.is_iwarp();
      queue_limits_.reads_in_order = requests_.reads_in_order();
      capabilities_.native_flush = extended_ != nullptr && rnic.flushes();
      capabilities_.persistent_flush = extended_ != nullptr && rnic.flushes_persistently();
      capabilities_.atomic_write = extended_ != nullptr && rnic.writes_atomically();
      batch_.prepare(queue_limits_, limits_.transfer_bytes_max, control_region_.get(),
                     &control_->scratch);
      domain_->rnic->watch(id_->qp, fate_);
      return {};
    }
  }
  return errno_error(ErrorCode::SystemError,
                     fmt::format("RNIC {}: queue pair of {} requests and {} receives", rnic.name(),
                                 limits_.send_depth, limits_.receive_depth));
}

/// Readable for any of: a completion, an event of the connection, an event of the device.
Result<void> VerbsEndpoint::make_wait_fd() {
  wait_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (wait_fd_ < 0) return errno_error(ErrorCode::SystemError, "epoll_create1");
  for (const int fd : {sleep_channel_->fd, events_->fd, domain_->rnic->event_fd()}) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    wanted.data.fd = fd;
    if (::epoll_ctl(wait_fd_, EPOLL_CTL_ADD, fd, &wanted) != 0) {
      return errno_error(ErrorCode::SystemError, "epoll_ctl");
    }
  }
  return {};
}

Hello VerbsEndpoint::hello() const {
  Hello own;
  own.capabilities = capabilities_;
  own.solicits = !domain_->rnic->is_iwarp();
  own.credit_key = control_region_->rkey;
  own.credit_address = reinterpret_cast<std::uintptr_t>(&control_->granted);
  if (!immediates_.empty()) {
    own.immediates_log2 = static_cast<unsigned>(std::countr_zero(immediates_.size()));
  }
  return own;
}

/// Both ends must be able.
void VerbsEndpoint::agree(const Hello& peer) {
  peer_hello_ = peer;
  capabilities_ = both(capabilities_, peer.capabilities);
  batch_.send_immediates_to({peer.credit_address + sizeof(ControlBlock),
                             std::uint64_t{1} << peer.immediates_log2, peer.credit_key});
}

rdma_conn_param VerbsEndpoint::connection_parameters(const PrivateData& data) const {
  const ibv_device_attr& most = domain_->rnic->limits();
  rdma_conn_param parameters{};
  parameters.private_data = data.bytes.data();
  parameters.private_data_len = data.length;
  parameters.responder_resources =
      static_cast<std::uint8_t>(std::clamp<int>(most.max_qp_rd_atom, 1, kReadsMax));
  parameters.initiator_depth =
      static_cast<std::uint8_t>(std::clamp<int>(most.max_qp_init_rd_atom, 1, kReadsMax));
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kRetries;  // credits keep the receive queue from being empty
  return parameters;
}

Result<void> VerbsEndpoint::connect(std::span<const std::byte> private_data, Deadline deadline) {
  const PrivateData data = encode(hello(), private_data);
  rdma_conn_param parameters = connection_parameters(data);
  if (::rdma_connect(id_.get(), &parameters) != 0) {
    return errno_error(ErrorCode::Disconnected, "connect to " + peer_);
  }
  PERDURE_TRY(event, expect_event(*events_, RDMA_CM_EVENT_ESTABLISHED, peer_, deadline));
  const auto answer = decode_hello({static_cast<const std::byte*>(event->param.conn.private_data),
                                    event->param.conn.private_data_len});
  if (!answer) return Error{ErrorCode::Disconnected, peer_ + " is not a peer of this version"};
  agree(answer->hello);
  silent_ = answer->hello.binds_window;
  send_hello();
  return {};
}

Result<void> VerbsEndpoint::accept(const Hello& peer, const rdma_conn_param& asked,
                                   std::shared_ptr<BoundWindow> window, Deadline deadline) {
  window_ = std::move(window);
  Hello own = hello();
  own.binds_window = window_ != nullptr;
  const PrivateData data = encode(own, {});
  rdma_conn_param parameters = connection_parameters(data);
  // No more READs in flight, in either direction, than the event allows this end.
  parameters.initiator_depth = std::min(parameters.initiator_depth, asked.initiator_depth);
  parameters.responder_resources =
      std::min(parameters.responder_resources, asked.responder_resources);
  agree(peer);
  silent_ = domain_->rnic->is_iwarp();
  if (::rdma_accept(id_.get(), &parameters) != 0) {
    return errno_error(ErrorCode::Disconnected, "accept " + peer_);
  }
  PERDURE_TRY_VOID(await_established(deadline));
  return window_ == nullptr ? Result<void>() : bind_window(deadline);
}

/// What the peer says last of connecting may be lost: it counts as connected all the same, and
/// nobody repeats the word for seconds. What it writes next tells as well.
Result<void> VerbsEndpoint::await_established(Deadline deadline) {
  constexpr Nanoseconds kTryAgainEvery = std::chrono::milliseconds(20);
  for (;;) {
    const Deadline slice = Deadline::after(std::min(deadline.left(), kTryAgainEvery));
    auto event = expect_event(*events_, RDMA_CM_EVENT_ESTABLISHED, peer_, slice);
    if (event.ok()) return {};
    if (event.code() != ErrorCode::TimedOut || deadline.passed()) return event.error();
    if (hello_received()) (void)::rdma_notify(id_.get(), IBV_EVENT_COMM_EST);  // raises the event
  }
}

}  // namespace perdure::fabric::verbs
#endif
