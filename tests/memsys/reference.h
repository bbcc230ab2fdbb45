// The rules of a DDR device, each pair of commands judged by itself, and a controller that tries
// every cycle. Slow, plain, and without a line in common with src/memsys/channel.cc: the judge of
// what that one sends.
#pragma once

#include "memsys/address_map.h"
#include "memsys/command_log.h"
#include "memsys/device.h"

#include <string>
#include <vector>

namespace perdure::memsys {

/// Why `next` may not follow `history`, all of one channel; empty: it may.
std::string why_not(const Device& device, const std::vector<Command>& history, const Command& next);

/// The first command of the log that breaks a rule, in words; empty: none does.
std::string first_breach(const Device& device, const std::vector<Command>& log);

struct ReferenceRequest {
  Place place;
  bool write = false;
};

/// What a FR-FCFS controller with one queue and open pages sends for these requests, all there from
/// cycle 0, one accepted a cycle. One channel, no refresh.
std::vector<Command> reference_commands(const Device& device,
                                        const std::vector<ReferenceRequest>& requests);

}  // namespace perdure::memsys
