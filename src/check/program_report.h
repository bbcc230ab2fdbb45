// From a script to a report: what check() and check_set() have in common.
#pragma once

#include "check/report.h"

#include "core/method.h"

#include <optional>
#include <string>

namespace perdure::check {

inline constexpr std::size_t kItemsInFlightMax = 240;  // each needs at least one cell of a state

/// What makes the description meaningless. What only makes it wrong (an item never written, an ack
/// nobody awaits) is run and found out: mutated methods look like that.
std::optional<std::string> meaningless(const Method& method);

Report report_not_modelled(std::string reason);

/// Of what would be right if it were not refused: see why_refused().
Report report_refused(const Method& method, const ServerProfile& profile);

/// Explores a script. What is in flight, the caller fills in.
Report run_script(const Script& script, const ServerProfile& profile, const CompileOptions& options,
                  std::uint64_t states_max);

}  // namespace perdure::check
