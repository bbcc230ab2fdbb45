// Tables, steps, diagrams and reasons.
#include "plan/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/assert.h"
#include "core/named.h"
#include "core/rpmem_family.h"
#include "core/try.h"

namespace perdure::plan {
namespace {

constexpr std::uint64_t kCrossoverBytesMax = 64u << 20;  // the largest transfer a fabric must carry

/// The cheapest right method whose data travels by `primary`: what Perdure runs if asked for it.
Method best(const ServerProfile& profile, Primary primary, const UpdateShape& shape) {
  Update update;
  update.shape = shape;
  update.primary = primary;
  auto method = plan(profile, update);
  PERDURE_ASSERT(method.ok());
  return std::move(method).value();
}

void add_page_scenarios(Transport transport, WriteOrder order, const UpdateShape& shape,
                        std::vector<Scenario>& scenarios) {
  for (const DmaDirties dirties : {DmaDirties::No, DmaDirties::Yes}) {
    const ServerProfile profile{
        PersistenceDomain::Page, Ddio::On, ReceiveBuffers::Dram, transport, {}, order, dirties};
    const bool by_write = syncs_peer_writes(profile);
    if (by_write && dirties == DmaDirties::No) continue;  // a CPU stores: asked once
    for (const Primary primary : {Primary::Write, Primary::WriteImm, Primary::Send}) {
      if (!by_write && primary != Primary::Send) continue;
      scenarios.push_back({profile, primary, shape, best(profile, primary, shape)});
    }
  }
}

std::string step_words(const Method& method, std::size_t index) {
  const RequesterStep& step = method.requester[index];
  if (step.kind != RequesterStep::Kind::WaitCompletion) return perdure::describe(step);
  return "wait for the completion of " + perdure::describe(method.requester[step.of]);
}

constexpr std::size_t kRequesterLane = 0;
constexpr std::size_t kRnicLane = 1;
constexpr std::size_t kCpuLane = 2;

void draw_reaction(const RequesterStep& message, const std::vector<ResponderAction>& reaction,
                   SequenceDiagram& drawing) {
  if (reaction.empty()) return;
  const char* const found = takes_receive_buffer(message) ? "receive completion"
                            : message.checked             ? "found whole by polling"
                                                          : "mark found by polling";
  drawing.events.push_back({kRnicLane, kCpuLane, found, false});
  for (const ResponderAction& action : reaction) {
    const std::string words = perdure::describe(action);
    switch (action.kind) {
      case ResponderAction::Kind::Read:
        drawing.events.push_back({kCpuLane, kRequesterLane, words, false});
        break;
      case ResponderAction::Kind::Await:
        drawing.events.push_back(
            {kRequesterLane, kRnicLane, "the bytes of " + item_name(action.item), false});
        drawing.events.push_back(
            {kRnicLane, kCpuLane, "completion of READ " + item_name(action.item), false});
        break;
      case ResponderAction::Kind::Ack:
        drawing.events.push_back(
            {kCpuLane, kRequesterLane, action.written ? "ack, written" : "ack", false});
        break;
      default: drawing.events.push_back({kCpuLane, kCpuLane, words, false});
    }
  }
}

std::string usage_words(const Usage& usage) {
  return fmt::format("{} rt, {} copied, {} wake-up{}, {} buffer{}", usage.round_trips,
                     usage.copied_items, usage.responder_wakes,
                     usage.responder_wakes == 1 ? "" : "s", usage.receive_buffers,
                     usage.receive_buffers == 1 ? "" : "s");
}

}  // namespace

Result<Source> parse_source(std::string_view word) {
  return find_named<Source>("source", word, std::to_array<std::string_view>({"paper", "best"}));
}

std::vector<Scenario> all_scenarios(Source source, const std::vector<Transport>& transports,
                                    WriteOrder order) {
  std::vector<Scenario> scenarios;
  for (const Transport transport : transports) {
    for (Scenario scenario : paper_methods(transport)) {
      scenario.profile.write_order = order;
      if (source == Source::Best) {
        scenario.method = best(scenario.profile, scenario.primary, scenario.shape);
      }
      scenarios.push_back(std::move(scenario));
    }
    if (source != Source::Best) continue;
    for (const UpdateShape& shape : {singleton(), compound()}) {
      add_page_scenarios(transport, order, shape, scenarios);
    }
  }
  return scenarios;
}

std::string to_table(const std::vector<Scenario>& scenarios) {
  std::string text;
  std::string shape;
  const Scenario* row = nullptr;
  std::array<std::string, 3> cells;
  const auto end_row = [&] {
    if (row == nullptr) return;
    text += fmt::format("{:<72}{:<38}{:<38}{}\n", perdure::describe(row->profile), cells[0],
                        cells[1], cells[2]);
  };
  for (const Scenario& scenario : scenarios) {
    const bool new_shape = to_string(scenario.shape) != shape;
    if (row == nullptr || new_shape || !(row->profile == scenario.profile)) {
      end_row();
      row = &scenario;
      cells.fill("none");
    }
    if (new_shape) {
      shape = to_string(scenario.shape);
      text += fmt::format("{}{} update\n{:<72}{:<38}{:<38}{}\n", text.empty() ? "" : "\n", shape,
                          "responder", "write", "write_imm", "send");
    }
    cells[static_cast<std::size_t>(scenario.primary)] =
        fmt::format("{} ({})", scenario.method.name, round_trips(scenario.method));
  }
  end_row();
  return text + "\nIn parentheses: round trips.\n";
}

std::string to_text(const Method& method) {
  std::string text = fmt::format("{} ({}, {} round trip{})\n", method.name, to_string(method.shape),
                                 round_trips(method), round_trips(method) == 1 ? "" : "s");
  std::size_t message = 0;
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    text += fmt::format("  {:2}. {}\n", index + 1, step_words(method, index));
    if (!is_message(method.requester[index])) continue;
    if (message < method.responder.size()) {
      for (const ResponderAction& action : method.responder[message]) {
        text += fmt::format("        responder: {}\n", perdure::describe(action));
      }
    }
    ++message;
  }
  if (!method.later_any_size) text += "  items after the first epoch: at most 8 bytes, aligned\n";
  return text;
}

SequenceDiagram diagram(const Method& method, const ServerProfile& profile) {
  SequenceDiagram drawing;
  drawing.title = fmt::format("{} ({}) on {}", method.name, to_string(method.shape),
                              perdure::describe(profile));
  drawing.lanes = {"requester", "responder RNIC", "responder CPU"};
  std::size_t message = 0;
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    const RequesterStep& step = method.requester[index];
    switch (step.kind) {
      case RequesterStep::Kind::Post:
        drawing.events.push_back({kRequesterLane, kRnicLane, perdure::describe(step), false});
        if (is_message(step)) {
          if (message < method.responder.size()) {
            draw_reaction(step, method.responder[message], drawing);
          }
          ++message;
        }
        break;
      case RequesterStep::Kind::WaitCompletion:
        drawing.events.push_back({kRnicLane, kRequesterLane,
                                  "completion of " + perdure::describe(method.requester[step.of]),
                                  false});
        break;
      case RequesterStep::Kind::WaitAck: break;  // drawn where the responder sends it
    }
  }
  drawing.events.push_back({kRequesterLane, kRequesterLane, "acknowledged", false});
  return drawing;
}

std::string to_text(const CostModel& costs) {
  const std::pair<std::string_view, double> lines[] = {
      {"message and its answer", costs.message_round_trip_ns},
      {"WRITE and its completion", costs.write_round_trip_ns},
      {"READ or FLUSH", costs.read_round_trip_ns},
      {"PWRITE and its persist ACK", costs.persist_round_trip_ns},
      {"one more request before the wait", costs.extra_post_ns},
      {"waking the responder, per reply", costs.responder_wake_ns},
      {"waking it, per completion", costs.one_sided_wake_ns},
      {"responder copies a byte", costs.copy_byte_ns},
      {"responder flushes, besides lines", costs.flush_ns},
      {"responder flushes a line", costs.flush_line_ns},
      {"responder syncs a file", costs.sync_ns},
      {"SFLUSH looks for its message", costs.send_flush_ns},
      {"a byte of the wire", costs.wire_byte_ns},
      {"fetching what is not inline", costs.fetch.fixed_ns},
      {"fetching a byte of it", costs.fetch.byte_ns},
  };
  std::string text;
  for (const auto& [what, cost] : lines) text += fmt::format("  {:<36}{:>14.3f} ns\n", what, cost);
  return text;
}

Result<std::string> explain(const ServerProfile& server, const Update& update,
                            const CostModel& costs) {
  PERDURE_TRY(found, candidates(server, update, costs));
  std::string text =
      fmt::format("responder: {}\nupdate: {}, {} bytes, level {}\n\n", perdure::describe(server),
                  to_string(update.shape), update.bytes, to_string(update.level));
  const Method& chosen = found.front().method;
  text += to_text(chosen);
  text += fmt::format("  in the words of the rpmem papers: {}\n\n", rpmem_family(chosen));
  text += fmt::format("{:<36}{:>10}  {:<42}{}\n", "candidate", "cost", "uses", "right because");
  for (const Candidate& candidate : found) {
    text += fmt::format("{:<36}{:>7.2f} us  {:<42}{}\n", candidate.method.name,
                        candidate.cost_ns / 1000, usage_words(candidate.usage), candidate.reason);
  }
  PERDURE_TRY(changes, crossovers(server, update, costs, kCrossoverBytesMax));
  text += "\nby size:\n";
  for (const Crossover& change : changes) {
    text += fmt::format("  from {:>9} bytes  {}\n", change.bytes, change.method.name);
  }
  return text + fmt::format("\ncosts: {}\n", source_of(costs));
}

}  // namespace perdure::plan
