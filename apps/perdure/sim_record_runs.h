// What a recorded program would gain from other hardware: its trace, run on the simulator.
#pragma once

#include "memsys/memory_run.h"
#include "recorded_journal.h"
#include "sim/network_run.h"

#include <cstdint>
#include <string>
#include <vector>

namespace perdure::app {

struct GainOptions {
  std::vector<std::string>
      devices;           // files; none: the built-in one, and the same with faster cells
  std::string hardware;  // of the network; empty: the built-in one
  memsys::PersistPoint persist_point = memsys::PersistPoint::Array;
  std::uint64_t epochs_per_transaction = 0;  // 0: those between two durable drains, else 6
};

struct OrderGain {
  memsys::Order order = memsys::Order::Sync;
  double ns = 0;    // until the last burst has ended and the last write is persisted
  double gain = 0;  // the time under Sync on this device, over this one
};

struct DeviceGain {
  std::string device;
  std::vector<OrderGain> orders;  // Sync first
  double gain = 0;                // Sync's time on the first device, over Sync's here
};

/// A copy of the same epochs on another machine.
struct NetworkGain {
  std::string hardware;
  std::uint64_t epochs = 0;       // of a transaction
  std::uint64_t epoch_bytes = 0;  // the mean
  double sync_us = 0;             // a transaction: an epoch, its persist ACK, the next one
  double bsp_us = 0;              // all of its epochs, and the last one's persist ACK
  double gain = 0;
};

struct Gains {
  std::uint64_t buffer_entries = memsys::BufferOptions{}.entries;  // of a thread, in all orders
  std::vector<DeviceGain> devices;
  NetworkGain network;
};

/// Errors  InvalidArgument: a file of hardware, or the trace does not fit on a device.
Result<Gains> simulate_gains(const std::string& trace, const Recording& recording,
                             const GainOptions& options);

}  // namespace perdure::app
