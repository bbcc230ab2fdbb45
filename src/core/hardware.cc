// Reading hardware files: see hardware.h.
#include "core/hardware.h"

#include "core/assert.h"
#include "core/built_in_hardware.h"
#include "core/parameter_file.h"
#include "core/printable.h"
#include "core/try.h"

namespace perdure {
namespace {

constexpr double kTimeMax = 1e9;  // ns

Result<Hardware> hardware_of(ParameterFile& file) {
  using enum ParameterFile::Need;
  Hardware hardware;
  NetworkHardware& n = hardware.network;
  ServerHardware& s = hardware.server;
  n.name = file.name();
  file.text("network", "name", Optional, n.name);
  n.name = printable_name(n.name);
  const auto ns = [&](std::string_view table, std::string_view key, double& target) {
    file.quantity(table, key, Required, "ns", 0, kTimeMax, target);
  };
  const auto per_byte = [&](std::string_view table, std::string_view key, double& target) {
    file.quantity(table, key, Required, "ns/byte", 0, 1e3, target);
  };
  ns("network", "post", n.post);
  ns("network", "rnic", n.rnic);
  ns("network", "wire", n.wire);
  per_byte("network", "wire_per_byte", n.wire_per_byte);
  file.quantity("network", "header_bytes", Required, "bytes", 0, 4096, n.header_bytes);
  file.quantity("network", "packet_bytes", Required, "bytes", 64, 1 << 20, n.packet_bytes);
  ns("network", "message_gap", n.message_gap);
  file.quantity("network", "inline_bytes", Required, "bytes", 0, 4096, n.inline_bytes);
  ns("network", "fetch", n.fetch);
  per_byte("network", "fetch_per_byte", n.fetch_per_byte);
  file.quantity("network", "fetch_bytes", Required, "bytes", 0, 1 << 20, n.fetch_bytes);
  per_byte("network", "pcie_per_byte", n.pcie_per_byte);
  file.quantity("network", "pcie_packet_bytes", Required, "bytes", 16, 4096, n.pcie_packet_bytes);
  file.quantity("network", "pcie_header_bytes", Required, "bytes", 0, 256, n.pcie_header_bytes);
  ns("network", "dma_write", n.dma_write);
  ns("network", "dma_read_cache", n.dma_read_cache);
  ns("network", "dma_read_memory", n.dma_read_memory);
  ns("network", "cache_drain", n.cache_drain);
  ns("network", "poll", n.poll);
  ns("network", "completion", n.completion);
  ns("network", "persist_ack", n.persist_ack);
  ns("network", "medium_write", n.medium_write);
  ns("network", "send_flush_lookup", n.send_flush_lookup);
  ns("server", "handle", s.handle);
  ns("server", "flush_line", s.flush_line);
  ns("server", "flush_page", s.flush_page);
  per_byte("server", "copy_per_byte", s.copy_per_byte);
  file.quantity("server", "line_bytes", Required, "bytes", 16, 4096, s.line_bytes);
  PERDURE_TRY_VOID(file.outcome());
  return hardware;
}

/// A file that is part of the library: a test reads all of them.
Hardware built_in(std::string_view text) {
  auto hardware = parse_hardware(text, "built-in hardware");
  PERDURE_ASSERT(hardware.ok());
  return std::move(hardware).value();
}

}  // namespace

Result<Hardware> read_hardware(const std::string& path) {
  PERDURE_TRY(file, ParameterFile::read(path));
  return hardware_of(file);
}

Result<Hardware> parse_hardware(std::string_view text, std::string name) {
  PERDURE_TRY(file, ParameterFile::parse(text, std::move(name)));
  return hardware_of(file);
}

const Hardware& default_hardware(Transport transport) {
  static const Hardware rdma = built_in(kRdmaHardware);
  static const Hardware tcp = built_in(kTcpHardware);
  static const Hardware shm = built_in(kShmHardware);
  switch (transport) {
    case Transport::Tcp: return tcp;
    case Transport::Shm: return shm;
    case Transport::InfiniBand:
    case Transport::Roce:
    case Transport::Iwarp: break;
  }
  return rdma;
}

}  // namespace perdure
