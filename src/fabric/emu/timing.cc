// Sums of the hardware's parameters: see timing.h.
#include "fabric/emu/timing.h"

#include <algorithm>
#include <cmath>

namespace perdure::fabric::emu {
namespace {

Nanoseconds whole(double ns) { return Nanoseconds{std::llround(ns)}; }

}  // namespace

Times::Times(const Hardware& hardware)
    : network_(hardware.network),
      server_(hardware.server),
      post_(whole(network_.post)),
      shortest_way_(way(0)),
      visible_(whole(network_.dma_write)),
      completion_(whole(network_.completion)),
      notice_(whole(network_.poll)),
      handle_(whole(server_.handle)),
      flush_pages_(whole(server_.flush_page)) {}

/// Time of the bytes and their headers on the wire.
double Times::on_wire(std::uint64_t bytes) const {
  const auto payload = static_cast<double>(bytes);
  const double packets = std::max(1.0, std::ceil(payload / network_.packet_bytes));
  return (payload + packets * network_.header_bytes) * network_.wire_per_byte;
}

Nanoseconds Times::fetch(std::uint64_t bytes) const {
  const auto payload = static_cast<double>(bytes);
  if (payload <= network_.inline_bytes) return Nanoseconds{0};
  const double waited_for = std::min(payload, network_.fetch_bytes);
  return whole(network_.fetch + waited_for * network_.fetch_per_byte);
}

Nanoseconds Times::occupancy(std::uint64_t bytes) const {
  return whole(std::max(network_.message_gap, on_wire(bytes)));
}

Nanoseconds Times::way(std::uint64_t bytes) const {
  return whole(2 * network_.rnic + network_.wire + on_wire(bytes));
}

Nanoseconds Times::effect(Opcode opcode, bool to_persistence, const ServerProfile& profile) const {
  const bool flushes = opcode == Opcode::SendFlush || (opcode == Opcode::Flush && to_persistence);
  const bool from_cache = profile.ddio == Ddio::On && !flushes;
  double ns = from_cache ? network_.dma_read_cache : network_.dma_read_memory;
  if (opcode == Opcode::SendFlush) ns = network_.dma_write + network_.send_flush_lookup;
  if (flushes && profile.domain < PersistenceDomain::Mhp) {
    ns += network_.cache_drain + network_.medium_write;
  }
  return whole(ns);
}

Nanoseconds Times::persist_ack(Ddio ddio) const {
  const double drained = ddio == Ddio::On ? network_.cache_drain : 0;
  return whole(drained + network_.medium_write + network_.persist_ack);
}

Nanoseconds Times::flush_lines(std::uint64_t lines) const {
  return whole(static_cast<double>(lines) * server_.flush_line + network_.medium_write);
}

}  // namespace perdure::fabric::emu
