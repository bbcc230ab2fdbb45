// ServerRun: programs on a processor, its caches, persist buffers and memory, until so many
// transactions have committed.
//
// The way of a write that must persist, and the file of each part:
//
//   hardware thread -> store buffer   server_threads.cc
//   -> L1, directory, other cores     caches.cc            whom does it depend on?
//   -> persist buffer                 persist_buffers.cc   is that persisted?
//   -> ordering controller            ordering.cc          is its epoch next, and its bank free?
//   -> memory controller, bank        memory_side.cc, channel.cc
//   -> persisted                      back to the buffer
#pragma once

#include "memsys/server/caches.h"
#include "memsys/server/memory_side.h"
#include "memsys/server/ordering.h"
#include "memsys/server/persist_buffers.h"
#include "memsys/server/server_law.h"
#include "workload/operation.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace perdure::memsys {

/// Writes that arrive over the network, beside the threads, through the RNIC's persist buffer:
/// epochs of consecutive lines at random places, or those of a program that runs elsewhere.
struct RemoteOptions {
  std::uint32_t channels = 0;
  std::uint64_t epoch_bytes = 512;
  Time interval_ps = 1'000'000;  // between the epochs of a channel
  std::uint64_t first_line = 0;  // where they go
  std::uint64_t lines = 0;
  std::uint64_t seed = 1;
  /// Or what its threads persist, one for each channel, `first_line` further on; the lines that an
  /// epoch writes twice arrive once.
  workload::Program* trace = nullptr;
};

struct ServerOptions {
  Ordering ordering = Ordering::Broi;
  PersistPoint persist_point = PersistPoint::Array;
  std::uint64_t transactions = 20'000;  // to be measured
  std::uint64_t warm_transactions = 0;  // before, on the caches only: they take no time
  RemoteOptions remote;
  PersistLog* log = nullptr;                         // or gets what happens in the buffers
  BroiLog* broi_log = nullptr;                       // or gets what BROI chose from, each time
  BufferMutant buffer_mutant;                        // for the tests of the law
  ControllerMutant controller_mutant;                // the same, and of deadlocks
  std::function<void(std::uint64_t)> progress;       // hears now and then how many have committed
  std::function<void(std::uint64_t)> warm_progress;  // the same, of those that take no time
};

/// What threads waited for, in all.
struct Waits {
  Time memory = 0;   // lines from memory or the caches, for loads and locks
  Time stores = 0;   // room in the store buffer, or that it drains
  Time persist = 0;  // writes to persist: barriers of Sync, fences
  Time lock = 0;     // held by another thread
};

struct ServerResult {
  std::uint64_t transactions = 0;
  Time elapsed_ps = 0;    // until the last of them committed
  Time persisted_ps = 0;  // until all that was begun is persisted; Eadr: until the caches have it
  std::uint64_t instructions = 0;
  std::uint64_t loads = 0;
  std::uint64_t stores = 0;
  std::uint64_t persists = 0;    // lines that entered a persist buffer
  std::uint64_t coalesced = 0;   // more, that an entry took over
  std::uint64_t epochs = 0;      // closed by a barrier, with persists
  std::uint64_t singletons = 0;  // of those, with one line
  std::uint64_t direct = 0;      // dependencies on a write of another thread
  std::uint64_t chained = 0;     // on a fence
  std::uint64_t from_l1 = 0;     // accesses
  std::uint64_t from_l2 = 0;
  std::uint64_t from_peer = 0;
  std::uint64_t from_memory = 0;
  std::uint64_t remote_lines = 0;
  std::uint64_t bursts = 0;        // lines over the buses until elapsed_ps
  std::uint64_t bank_stalled = 0;  // requests that found another row of their bank, the same
  std::uint64_t bank_busy = 0;     // of those, whose bank was at work for it, the same
  std::uint64_t requests = 0;      // that entered the controller, the same
  Waits waits;
  std::uint64_t law_checked = 0;       // persists, coalesced ones too, and remote lines
  Recovery::Counts recovery;           // Asap: records of the controllers' tables
  std::uint64_t recovery_checked = 0;  // Asap: how often what recovery would restore was checked

  double transactions_per_us() const;
  double bus_gb_per_s() const;
};

/// Requires    a device with lines of 64 bytes, whose memory holds all addresses of the program.
/// Errors      InvalidArgument: a deadlock, with who waits for what, or a program that ended early.
///             ProtocolError: the order of persistence was broken, which only a mutant can do.
Result<ServerResult> run_server(const Device& device, const Processor& processor,
                                workload::Program& program, const ServerOptions& options);

}  // namespace perdure::memsys
