// Devices and runs of the tests of the memory simulator.
#pragma once

#include "core/random.h"
#include "memsys/memory_run.h"

#include <fmt/format.h>

#include <map>
#include <string>

namespace perdure::memsys {

/// Keys of [device] and their values, as they stand in the file.
using DeviceKeys = std::map<std::string, std::string>;

/// One rank, two bank groups of two banks, small rows; every timing a different number.
DeviceKeys small_device();
/// configs/hardware/nvm-a.toml.
Device nvm();
/// Any device that is legal.
DeviceKeys random_device(Random& random);

Device device_of(const DeviceKeys& keys, const std::string& controller = "window = 8");

struct RunOutcome {
  Result<MemoryResult> result;
  std::vector<Command> commands;
};

/// Simulates `trace`, with the log of its commands.
RunOutcome run_trace(const Device& device, const std::string& trace, MemoryOptions options = {});

}  // namespace perdure::memsys
