#include "rpc/models/design.h"

#include "core/assert.h"
#include "core/sequence_diagram.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace perdure::rpc::models {
namespace {

constexpr const Design* kDesigns[]{&kDarpc, &kFasst,  &kSflush, &kSRflush,  &kFarm,
                                   &kL5,    &kRfp,    &kHerd,   &kScalerpc, &kOctopus,
                                   &kLite,  &kWflush, &kWRflush};

Result<void> check_options(const Design& design, const EndOptions& options) {
  if (options.window == 0 || options.window > kWindowMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a window of {} calls; 1 to {}", options.window, kWindowMax)};
  }
  if (options.payload_bytes_max == 0 || options.payload_bytes_max > design.payload_bytes_max) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("payloads of {} B; {} takes 1 to {}", options.payload_bytes_max,
                             design.title, design.payload_bytes_max)};
  }
  return {};
}

std::string how_often(const Often& often) {
  if (often.or_more) return "until it is there";
  if (often.times == often.calls) return "";
  return fmt::format("{} in {} calls", often.times, often.calls);
}

SequenceEvent event_of(const Step& step) {
  const std::size_t here = step.at == At::Client ? 0 : 1;
  SequenceEvent event{here, here, std::string(step.what)};
  if (step.verb) {
    event.text = fmt::format("{}: {}", to_string(*step.verb), step.what);
    const bool leaves = *step.verb != Verb::Receive && *step.verb != Verb::SystemCall;
    if (leaves) event.to = 1 - here;
  }
  const std::string often = how_often(step.often);
  if (!often.empty()) event.text += fmt::format(" ({})", often);
  return event;
}

std::string verbs_at(const Design& design, At at) {
  std::string verbs;
  for (const Step& step : design.steps) {
    if (step.at != at || !step.verb) continue;
    const std::string often = how_often(step.often);
    verbs += fmt::format("{}{}{}", verbs.empty() ? "" : ", ", to_string(*step.verb),
                         often.empty() ? "" : " (" + often + ")");
  }
  return verbs.empty() ? "nothing" : verbs;
}

std::string list_of(std::string_view title, std::span<const std::string_view> lines) {
  std::string text = fmt::format("\n{}:\n", title);
  for (const std::string_view line : lines) text += fmt::format("- {}\n", line);
  return text;
}

}  // namespace

std::string_view to_string(At at) { return at == At::Client ? "client" : "server"; }

std::string_view to_string(Family family) { return family == Family::Send ? "SEND" : "WRITE"; }

Result<std::unique_ptr<Client>> open_client(const Design& design, const EndOptions& options) {
  PERDURE_TRY_VOID(check_options(design, options));
  return design.make_client(options);
}

Result<std::unique_ptr<Server>> open_server(const Design& design, const EndOptions& options,
                                            Handler& handler) {
  PERDURE_TRY_VOID(check_options(design, options));
  return design.make_server(options, handler);
}

std::uint64_t period(const Design& design) {
  std::uint64_t calls = 1;
  for (const Step& step : design.steps) {
    calls = std::lcm(calls, std::uint64_t{step.often.calls});
  }
  return calls;
}

Declared declared(const Design& design, At at, Verb verb, std::uint64_t calls) {
  Declared all;
  for (const Step& step : design.steps) {
    if (step.at != at || step.verb != verb) continue;
    PERDURE_ASSERT(calls % step.often.calls == 0);
    all.count += calls / step.often.calls * step.often.times;
    all.or_more = all.or_more || step.often.or_more;
  }
  return all;
}

std::span<const Design* const> designs() { return kDesigns; }

const Design* find_design(std::string_view name) {
  const auto found = std::find_if(std::begin(kDesigns), std::end(kDesigns),
                                  [&](const Design* design) { return design->name == name; });
  return found == std::end(kDesigns) ? nullptr : *found;
}

std::string diagram(const Design& design) {
  SequenceDiagram drawn;
  drawn.title = fmt::format("{}: a call", design.title);
  drawn.lanes = {"client", "server"};
  for (const Step& step : design.steps) drawn.events.push_back(event_of(step));
  return to_text(drawn);
}

std::string verbs_of(const Design& design) {
  return fmt::format("client: {}; server: {}", verbs_at(design, At::Client),
                     verbs_at(design, At::Server));
}

std::string explain(const Design& design) {
  std::string text = diagram(design);
  text +=
      fmt::format("\nVerbs of a call, counted by the conformance suite: {}.\n", verbs_of(design));
  text += fmt::format(
      "Compared with the designs whose requests are {}s. Payloads up to {} B.{}\n",
      to_string(design.family), design.payload_bytes_max,
      design.needs_write_order ? " Needs WRITEs that become visible in the order of posting." : "");
  if (design.is_durable) text += "A call is durable before it is executed.\n";
  if (design.needs_send_flush)
    text += "Needs the verb SFLUSH, which only the emulated fabric has.\n";
  text += list_of("From", design.sources);
  return text + list_of("Otherwise here", design.departures);
}

}  // namespace perdure::rpc::models
