// `perdure check --set` and `perdure plan --set`: the methods that one connection mixes.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "check/set_check.h"
#include "core/method_set.h"
#include "core/sequence_diagram.h"
#include "plan/method_set.h"

#include <optional>
#include <string>
#include <vector>

namespace perdure::app {

/// What receive buffers hold where nobody has said otherwise (`[pool] message_bytes`).
inline constexpr std::uint64_t kUsualMessageBytes = 16 * 1024;

/// A set and where it comes from.
struct SetQuestion {
  std::vector<SetMember> members;
  std::optional<MethodSet> planned;  // nothing: its methods were named
};

/// "planned", for the set that plan chooses for a log (of shape compound: with a tail word), or
/// names joined by commas. Errors: those of find_method and plan, InvalidArgument.
Result<SetQuestion> find_set(const std::string& words, const ServerProfile& profile,
                             const std::optional<UpdateShape>& shape, Level level);

/// What the law says, what was explored, and if the set does not hold, how data is lost.
std::string set_text(const SetQuestion& question, const ServerProfile& profile,
                     const check::SetReport& report);
/// The law and, if the set does not hold, how data is lost, to be drawn.
struct SetDrawing {
  std::string heading;
  std::vector<SequenceDiagram> diagrams;
};
SetDrawing set_drawing(const SetQuestion& question, const ServerProfile& profile,
                       const check::SetReport& report);
/// The same as docs/set.schema.json has it.
std::string set_json(const SetQuestion& question, const ServerProfile& profile,
                     const check::SetReport& report);

/// What plan chooses as docs/plan.schema.json has it, without a proof.
std::string planned_json(const MethodSet& set, const ServerProfile& profile, Level level);
/// The same and the law, with a diagram of each member.
SetDrawing planned_drawing(const MethodSet& set, const ServerProfile& profile);

}  // namespace perdure::app
