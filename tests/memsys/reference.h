// The rules of a DDR device, each pair of commands judged by itself, and a controller that tries
// every cycle. Slow, plain, and without a line in common with src/memsys/channel.cc: the judge of
// what that one sends.
#pragma once

#include "memsys/address_map.h"
#include "memsys/command_log.h"
#include "memsys/device.h"
#include "memsys/memory_run.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::memsys {

struct Refusal {
  std::string_view why;  // empty: the command may be sent
  Command because_of;    // the earlier one, if it is one alone
};

/// The commands of one channel so far.
class History {
 public:
  explicit History(const Device& device) : device_(device) {}
  Refusal why_not(const Command& next) const;
  void add(const Command& command);
  const std::vector<Command>& commands() const { return commands_; }
  /// The open row of each bank that has one.
  const std::map<std::uint32_t, std::uint32_t>& open() const { return open_; }

 private:
  const Device& device_;
  std::vector<Command> commands_;
  std::map<std::uint32_t, std::uint32_t> open_;
};

/// The first command of the log that breaks a rule, in words; empty: none does.
std::string first_breach(const Device& device, const std::vector<Command>& log);

struct ReferenceEvent {
  Place place;  // of requests
  EventKind kind = EventKind::Read;
  std::uint32_t thread = 0;
};

/// What a FR-FCFS controller with one queue and open pages sends for these events under
/// Order::Thread. Every cycle each thread is asked whether its next request may enter the line
/// before the controller, which accepts one a cycle. One channel, no refresh, no strands.
std::vector<Command> reference_commands(const Device& device,
                                        const std::vector<ReferenceEvent>& events,
                                        PersistPoint persist_point);

}  // namespace perdure::memsys
