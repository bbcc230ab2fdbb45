// Sums and maxima: see network_form.h.
#include "sim/network_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace perdure::sim {
namespace {

double with_headers(double bytes, double packet_bytes, double header_bytes) {
  return bytes + std::max(1.0, std::ceil(bytes / packet_bytes)) * header_bytes;
}

std::pair<Time, std::string_view> slowest_of(const EpochParts& parts) {
  const std::array<std::pair<Time, std::string_view>, 6> stations{{
      {parts.post, "client CPU"},
      {parts.gap, "queue pair"},
      {parts.fetch_busy, "client PCIe"},
      {parts.link_busy, "link"},
      {parts.pcie_busy, "server PCIe"},
      {parts.medium, "memory"},
  }};
  std::pair<Time, std::string_view> slowest = stations[0];
  for (const auto& each : stations) {
    if (each.first > slowest.first) slowest = each;
  }
  return slowest;
}

}  // namespace

EpochParts epoch_parts(const NetworkHardware& n, std::uint64_t bytes, bool ddio) {
  const auto payload = static_cast<double>(bytes);
  const bool is_inline = payload <= n.inline_bytes;
  const double on_link = with_headers(payload, n.packet_bytes, n.header_bytes);
  const double on_pcie = with_headers(payload, n.pcie_packet_bytes, n.pcie_header_bytes);
  EpochParts parts;
  parts.post = picoseconds(n.post);
  parts.gap = picoseconds(n.message_gap);
  parts.fetch = is_inline ? 0 : picoseconds(n.fetch);
  parts.fetch_busy =
      is_inline ? 0 : picoseconds(std::min(payload, n.fetch_bytes) * n.fetch_per_byte);
  parts.rnic = picoseconds(n.rnic);
  parts.wire = picoseconds(n.wire);
  parts.link_busy = picoseconds(on_link * n.wire_per_byte);
  parts.dma = picoseconds(n.dma_write);
  parts.pcie_busy = picoseconds(on_pcie * n.pcie_per_byte);
  parts.drain = ddio ? picoseconds(n.cache_drain) : 0;
  parts.medium = picoseconds(n.medium_write);
  parts.ack = picoseconds(n.persist_ack);
  parts.ack_link = picoseconds(n.header_bytes * n.wire_per_byte);
  parts.completion = picoseconds(n.completion);
  return parts;
}

Time EpochParts::round_trip() const {
  // The server's PCIe sends on what the link brings: the slower of the two counts.
  const Time there = post + fetch + fetch_busy + rnic + wire + std::max(link_busy, pcie_busy) +
                     rnic + dma + in_memory();
  const Time back = ack + rnic + wire + ack_link + rnic + completion;
  return there + back;
}

Time EpochParts::spacing() const { return slowest_of(*this).first; }

NetworkHardware with_spacing(NetworkHardware hardware, std::uint64_t bytes, double share) {
  const EpochParts parts = epoch_parts(hardware, bytes, true);
  const double spacing = static_cast<double>(parts.spacing()) / 1e3;
  const double round_trip = static_cast<double>(parts.round_trip()) / 1e3;
  if (spacing < share * round_trip) {
    hardware.message_gap = share * round_trip;  // which is not part of the round trip
  } else {
    hardware.wire += (spacing / share - round_trip) / 2;
  }
  return hardware;
}

std::string_view EpochParts::slowest() const { return slowest_of(*this).second; }

}  // namespace perdure::sim
