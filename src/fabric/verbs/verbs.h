// Reliable connections of an RDMA NIC, through libibverbs and librdmacm: InfiniBand, RoCE, iWARP,
// and the kernel's software RNICs (rxe, siw).
//
// What it makes of the contract in fabric.h:
//   - One queue pair (RC), one completion queue and one completion channel per connection.
//   - Only some requests ask the RNIC for a completion: those whose caller wants one, and one now
//     and then to free the queue. What is posted in one call goes with one doorbell,
//     and one more for each change between native FLUSH or ATOMIC WRITE and others.
//   - Messages never meet an empty receive queue: each end tells the other, by a WRITE into a word
//     that it registered for that, how many receives it has posted so far (credits.h). A SEND or
//     WRITE_WITH_IMM without credit waits in this process, and what is posted behind it too. The
//     receiver tells from poll() and arm(). iWARP needs it: there a message without a buffer ends
//     the connection (RFC 5040 section 7.3, DDP untagged buffers).
//   - On iWARP the end that connected speaks first, by a hello of its own (RFC 5044 section 7.1.2),
//     and a WRITE_WITH_IMM is two WRITEs and an empty SEND (work_batch.h).
//   - A transfer longer than the RNIC's largest message is split; a READ into several segments is
//     split where the RNIC scatters into one only (iWARP).
//   - FLUSH and ATOMIC WRITE (IBTA volume 1 release 1.6, annex A19) through the extended queue
//     pair, where headers, RNIC, queue pair and peer all have them; see Endpoint::capabilities.
//   - A peer that dies under traffic shows after the RNIC's own retries (about 4 s). An idle
//     connection asks after its peer by a READ every 5 s, from poll(); iWARP gives up after 25 s.
//
// Trust. A connection reaches what was registered on the Device that it was accepted into, checked
// by the RNIC: each Device has a protection domain of its own. Destroying a Memory revokes its key
// before the call returns.
//
// Windows are memory windows of type 2B where the RNIC has them (rxe, ConnectX), bound when the
// connection is accepted; the end that connected waits for a hello before it posts anything. They
// share the domain of the registration below them, which opens nothing itself; what else lies in it
// is each connection's credit word: who guesses its key and address can make another connection
// stall or fail, and reaches no byte of a pool. Never over iWARP, where more than that lies there.
#pragma once

#include "fabric/fabric.h"

#include <string>
#include <vector>

namespace perdure::fabric::verbs {

/// One port of an RNIC with an address, as found on this machine.
struct RnicReport {
  std::string name;     // as `ibv_devices` shows it, for example "mlx5_0"
  std::string address;  // of its network interface, for example "10.2.0.1"
  Transport transport = Transport::InfiniBand;
  Capabilities capabilities;
  bool software = false;              // rxe or siw: a driver, no hardware
  bool pages_on_demand = false;       // so it also registers what the kernel pins no pages of
  std::vector<std::string> evidence;  // for a person: what was asked, and what it said
};

/// All RNICs with an address that connections can be made over. Opens each. Errors: Unsupported,
/// with the reason, when this build or machine has none.
Result<std::vector<RnicReport>> list_rnics();

/// Opens the RNIC that is named by `which`: its name, an address of its interface, or empty for the
/// first one found. `transport`: only an RNIC of that kind. Each call gives a protection domain of
/// its own, so that a server can have one Device, and with it one set of keys, for each session.
/// Addresses are "host:port" or "[v6]:port". Errors: Unsupported, naming those that there are.
Result<std::unique_ptr<Device>> open_device(const std::string& which = {},
                                            std::optional<Transport> transport = {});

}  // namespace perdure::fabric::verbs
