// Hardware: what a network, a PCIe bus and a server take, as numbers with unit and source. The one
// home of costs: the simulator runs on them, the emulated fabric's times and the planner's usual
// costs are made of them (docs/decisions/0024-one-home-of-costs.md).
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include <string>
#include <string_view>

namespace perdure {

/// Nanoseconds, unless the name says otherwise. configs/hardware has files with their sources.
struct NetworkHardware {
  std::string name;
  double post = 0;             // the CPU posts one request: WQE and doorbell
  double rnic = 0;             // one crossing of an RNIC, in either direction
  double wire = 0;             // switches and cables, one way
  double wire_per_byte = 0;    // of payload and headers
  double header_bytes = 0;     // bytes of headers in a packet
  double packet_bytes = 4096;  // bytes of payload in a packet
  double message_gap = 0;      // between messages of one queue pair
  double inline_bytes = 0;     // bytes that travel inside the request
  double fetch = 0;            // the RNIC fetches a payload that is not inline
  double fetch_per_byte = 0;   // of the first `fetch_bytes`: what follows comes while it sends
  double fetch_bytes = 0;
  double pcie_per_byte = 0;  // of payload and headers, towards memory
  double pcie_packet_bytes = 256;
  double pcie_header_bytes = 0;
  double dma_write = 0;          // arrived at the RNIC to visible
  double dma_read_cache = 0;     // answered from the last-level cache
  double dma_read_memory = 0;    // from memory: behind all writes before it
  double cache_drain = 0;        // the cache line is sent on to the memory controller
  double poll = 0;               // a completion in memory is noticed
  double completion = 0;         // completion entry written and noticed
  double persist_ack = 0;        // the RNIC makes the persist ACK (BROI paper, V.A)
  double medium_write = 0;       // memory controller to persistent
  double send_flush_lookup = 0;  // a SEND's receive buffer is found (durable RPC paper, 4.1.3)
};

/// What the CPU of a responder takes.
struct ServerHardware {
  double handle = 0;         // a message: found and understood; without its actions and its answer
  double flush_line = 0;     // CLWB and its share of the fence
  double flush_page = 0;     // msync of a page: domain `page`
  double copy_per_byte = 0;  // from the receive buffer to its place
  double line_bytes = 64;
};

struct Hardware {
  NetworkHardware network;
  ServerHardware server;
};

/// Every quantity as `key = {value = ..., unit = "...", source = "..."}` in [network] and [server].
/// Errors: InvalidArgument with file and line; NotFound, PermissionDenied, SystemError when it can
/// not be read.
Result<Hardware> read_hardware(const std::string& path);
Result<Hardware> parse_hardware(std::string_view text, std::string name);

/// What is assumed of a transport where nobody names a file and nothing is measured: the text of
/// one of configs/hardware, which is part of the library.
///   InfiniBand, RoCE, iWARP  edr-one-switch.toml
///   tcp, shm                 tcp-one-host.toml, shm-one-host.toml
/// Threads  any. Cost  read once, at the first call for the transport; then nothing.
const Hardware& default_hardware(Transport transport);

}  // namespace perdure
