// The words of a ServerProfile.
#include <perdure/profile.h>

#include <fmt/format.h>

#include <array>

#include "core/named.h"

namespace perdure {
std::string_view to_string(PersistenceDomain domain) {
  switch (domain) {
    case PersistenceDomain::None: return "none";
    case PersistenceDomain::Page: return "page";
    case PersistenceDomain::Dmp: return "dmp";
    case PersistenceDomain::Mhp: return "mhp";
    case PersistenceDomain::Wsp: return "wsp";
  }
  return "unknown";
}

std::string_view to_string(Ddio ddio) { return ddio == Ddio::On ? "on" : "off"; }

std::string_view to_string(ReceiveBuffers buffers) {
  return buffers == ReceiveBuffers::Pm ? "pm" : "dram";
}

std::string_view to_string(Transport transport) {
  switch (transport) {
    case Transport::InfiniBand: return "infiniband";
    case Transport::Roce: return "roce";
    case Transport::Iwarp: return "iwarp";
    case Transport::Tcp: return "tcp";
    case Transport::Shm: return "shm";
  }
  return "unknown";
}

std::string_view to_string(WriteOrder order) {
  return order == WriteOrder::Ordered ? "ordered" : "unknown";
}

std::string_view to_string(DmaDirties dirties) { return dirties == DmaDirties::Yes ? "yes" : "no"; }

std::string_view to_string(QpType type) {
  switch (type) {
    case QpType::Rc: return "rc";
    case QpType::Uc: return "uc";
    case QpType::Ud: return "ud";
  }
  return "unknown";
}

Result<PersistenceDomain> parse_persistence_domain(std::string_view word) {
  using enum PersistenceDomain;
  return find_named("persistence domain", word, std::array{None, Page, Dmp, Mhp, Wsp});
}

Result<Ddio> parse_ddio(std::string_view word) {
  return find_named("ddio", word, std::array{Ddio::Off, Ddio::On});
}

Result<ReceiveBuffers> parse_receive_buffers(std::string_view word) {
  return find_named("receive buffers", word, std::array{ReceiveBuffers::Dram, ReceiveBuffers::Pm});
}

Result<Transport> parse_transport(std::string_view word) {
  using enum Transport;
  return find_named("transport", word, std::array{InfiniBand, Roce, Iwarp, Tcp, Shm});
}

Result<WriteOrder> parse_write_order(std::string_view word) {
  return find_named("write order", word, std::array{WriteOrder::Unknown, WriteOrder::Ordered});
}

Result<DmaDirties> parse_dma_dirties(std::string_view word) {
  return find_named("dma dirties", word, std::array{DmaDirties::No, DmaDirties::Yes});
}

Result<QpType> parse_qp_type(std::string_view word) {
  return find_named("queue pair type", word, std::array{QpType::Rc, QpType::Uc, QpType::Ud});
}

std::string describe(const ServerProfile& profile) {
  const bool asked = profile.domain == PersistenceDomain::Page && !placed_by_cpu(profile.transport);
  const bool reliable = profile.qp_type == QpType::Rc;
  return fmt::format("{}, ddio {}, receive buffers {}, {}{}{}{}", to_string(profile.domain),
                     to_string(profile.ddio), to_string(profile.receive_buffers),
                     to_string(profile.transport),
                     reliable ? "" : fmt::format(", {}", to_string(profile.qp_type)),
                     keeps_write_order(profile) ? "" : ", write order unknown",
                     asked ? fmt::format(", dma dirties {}", to_string(profile.dma_dirties)) : "");
}

}  // namespace perdure
