// ServerProfile: what must be known of a responder to persist on it correctly.
// The axes are those of the taxonomy (taxonomy paper, table 1), completed for machines of today.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace perdure {

/// The part of a responder that survives its power failure. Ordered from nothing to everything.
enum class PersistenceDomain {
  None,  // volatile DRAM: nothing survives
  Page,  // a file behind the page cache: durable only after msync or fdatasync
  Dmp,   // DIMM and memory controller (ADR): taxonomy section 3.1.1
  Mhp,   // memory hierarchy, caches included (eADR, CXL GPF)
  Wsp,   // whole system, RNIC buffers included (battery, UPS)
};

/// Data Direct I/O or cache stashing: inbound DMA lands in the last-level cache. Unknown is On.
enum class Ddio { Off, On };

/// Where the responder's receive queue work request buffers (RQWRB) live.
enum class ReceiveBuffers { Dram, Pm };

/// What carries the messages. Iwarp and Tcp complete a posted operation before the responder has
/// it (taxonomy section 3.2); the others when the responder's RNIC has it.
enum class Transport { InfiniBand, Roce, Iwarp, Tcp, Shm };

/// Whether successive WRITEs of one connection reach memory in the order of posting. Adaptive
/// routing, selective repeat and relaxed PCIe ordering (mlx5: PCI_WR_ORDERING) place them in any
/// order and complete them in order all the same; what is not known is not ordered. Over Tcp and
/// Shm the responder's CPU places them in order, whatever is said here.
enum class WriteOrder { Unknown, Ordered };

/// Whether what an RNIC writes makes a clean page of a file dirty, as a store does. Only domain
/// Page asks. A pinned mapping: No, once the page was written back; then msync writes nothing.
/// Paged on demand: Yes, since a write-back takes the page from the RNIC. Over Tcp and Shm a CPU
/// stores.
enum class DmaDirties { No, Yes };

/// What kind of queue pair a connection is (IBTA volume 1, section 9.8; ibv_post_send(3)).
/// Rc acknowledges every packet and sends again what was lost. The others do neither, so a
/// completion only says that the operation has left:
///   - Uc carries WRITEs, WRITE_WITH_IMMs and SENDs, and neither READs, FLUSHes nor atomics. What
///     arrives is in order; of what does not, the packets before the lost one may have been placed;
///   - Ud carries SENDs alone, each a single packet, in any order.
/// Only InfiniBand and Roce have them.
enum class QpType { Rc, Uc, Ud };

/// The most that one SEND over Ud carries: the largest path MTU (IBV_MTU_4096, ibv_modify_qp(3)).
inline constexpr std::uint64_t kDatagramBytesMax = 4096;

/// What device and peer can do beyond the basic verbs. Probed, then agreed in the handshake.
struct Capabilities {
  bool native_flush = false;     // RDMA FLUSH; otherwise a READ inside the written range stands in
  bool atomic_write = false;     // RDMA ATOMIC WRITE of 8 bytes
  bool ordered_persist = false;  // pwrite with persist acknowledgement (BROI paper, section V)
  bool send_flush = false;       // SFlush in the RNIC (durable RPC paper)
  /// RDMA FLUSH with placement type persistence (IBTA volume 1 release 1.6, annex A19): when it
  /// completes, the range that it names is in the persistence domain, whatever DDIO does.
  bool persistent_flush = false;
  bool operator==(const Capabilities&) const = default;
};

/// What two ends can do together.
constexpr Capabilities both(const Capabilities& one, const Capabilities& other) {
  return {one.native_flush && other.native_flush, one.atomic_write && other.atomic_write,
          one.ordered_persist && other.ordered_persist, one.send_flush && other.send_flush,
          one.persistent_flush && other.persistent_flush};
}

/// One responder. The default is the weakest machine there is: nothing optimistic is assumed.
struct ServerProfile {
  PersistenceDomain domain = PersistenceDomain::None;
  Ddio ddio = Ddio::On;
  ReceiveBuffers receive_buffers = ReceiveBuffers::Dram;
  Transport transport = Transport::Tcp;
  Capabilities capabilities;
  WriteOrder write_order = WriteOrder::Unknown;
  DmaDirties dma_dirties = DmaDirties::No;
  QpType qp_type = QpType::Rc;
  bool operator==(const ServerProfile&) const = default;
};

std::string_view to_string(PersistenceDomain domain);
std::string_view to_string(Ddio ddio);
std::string_view to_string(ReceiveBuffers buffers);
std::string_view to_string(Transport transport);
std::string_view to_string(WriteOrder order);
std::string_view to_string(DmaDirties dirties);
/// "rc", "uc", "ud".
std::string_view to_string(QpType type);

/// The inverse of to_string. Errors: InvalidArgument, naming the accepted words.
Result<PersistenceDomain> parse_persistence_domain(std::string_view word);
Result<Ddio> parse_ddio(std::string_view word);
Result<ReceiveBuffers> parse_receive_buffers(std::string_view word);
Result<Transport> parse_transport(std::string_view word);
Result<WriteOrder> parse_write_order(std::string_view word);
Result<DmaDirties> parse_dma_dirties(std::string_view word);
Result<QpType> parse_qp_type(std::string_view word);

/// One line, for example "dmp, ddio on, receive buffers dram, tcp". Of the write order and of pages
/// only what makes methods wrong: "..., roce, write order unknown". Of queue pairs, those that are
/// not reliable: "..., roce, uc".
std::string describe(const ServerProfile& profile);

/// Whether a posted operation may complete before the responder has any of it.
constexpr bool completes_early(Transport transport) {
  return transport == Transport::Iwarp || transport == Transport::Tcp;
}

/// Whether there are such queue pairs on it.
constexpr bool has_qp_type(Transport transport, QpType type) {
  return type == QpType::Rc || transport == Transport::InfiniBand || transport == Transport::Roce;
}

/// Whether the responder's CPU stores what a peer writes.
constexpr bool placed_by_cpu(Transport transport) {
  return transport == Transport::Tcp || transport == Transport::Shm;
}

/// Whether what a peer writes goes past the responder's caches: not what its CPU stores.
constexpr bool dma_bypasses_caches(const ServerProfile& profile) {
  return profile.ddio == Ddio::Off && !placed_by_cpu(profile.transport);
}

/// Whether a WRITE is placed after those that were posted before it.
constexpr bool keeps_write_order(const ServerProfile& profile) {
  return placed_by_cpu(profile.transport) || profile.write_order == WriteOrder::Ordered;
}

/// Whether syncing a page of a file also syncs what peers wrote there.
constexpr bool syncs_peer_writes(const ServerProfile& profile) {
  return placed_by_cpu(profile.transport) || profile.dma_dirties == DmaDirties::Yes;
}

}  // namespace perdure
