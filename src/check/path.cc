// Replays actions on the model and says each one as a sentence.
#include "check/path.h"

#include "check/properties.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::check {
namespace {

using Wide = State<kWordsMax>;

std::string steps_words(const Program& program, const Operation& operation) {
  return describe(program.script.steps[operation.step]);
}

/// "the first half of a", "b", "part 1 of the message": what a cell holds.
std::string cell_words(const Program& program, std::size_t cell) {
  for (std::size_t item = 0; item < program.item_cells.size(); ++item) {
    const Mask& mask = program.item_cells[item];
    if ((mask[word_of(cell)] & bit_of(cell)) == 0) continue;
    std::size_t count = 0;
    std::size_t before = 0;
    for (std::size_t other = 0; other < program.cells; ++other) {
      if ((mask[word_of(other)] & bit_of(other)) == 0) continue;
      ++count;
      if (other < cell) ++before;
    }
    const std::string name = item_name(static_cast<Item>(item));
    return count == 1 ? name : fmt::format("{}[{}]", name, before);
  }
  for (const Operation& operation : program.operations) {
    const auto at = std::find(operation.cells.begin(), operation.cells.end(), cell);
    if (at == operation.cells.end()) continue;
    std::string name = fmt::format("message {}", operation.message.value());
    if (operation.cells.size() == 1) return name;
    if (operation.verb == Verb::WritePolled) {
      return (cell == operation.cells.back() ? "the mark of " : "the body of ") + name;
    }
    return fmt::format("{}[{}]", name, at - operation.cells.begin());
  }
  return fmt::format("unit {}", cell);
}

std::string over(const Program& program, std::size_t connection) {
  if (program.connections.size() == 1) return "";
  return fmt::format(" over connection {}", connection);
}

PathStep drained(const std::string& what, bool many) {
  return {Place::Visible, Place::Domain,
          fmt::format("{} {} into the persistence domain", what, many ? "drain" : "drains")};
}

PathStep delivered(const Program& program, const Action& action) {
  const Connection& connection = program.connections[action.connection];
  const std::size_t slot = action.index;
  const Operation& operation = program.operations[connection.operation_of_slot[slot]];
  const std::string what = operation.cells.empty()
                               ? steps_words(program, operation)
                               : cell_words(program, operation.cells[slot - operation.slot_first]);
  return {Place::Requester, Place::Rnic,
          fmt::format("{} reaches the responder's RNIC{}", what, over(program, action.connection))};
}

PathStep executed(const Program& program, const Operation& operation) {
  if (operation.verb == Verb::WriteAtomic) {
    return {Place::Rnic, Place::Visible,
            fmt::format("{} takes effect", steps_words(program, operation))};
  }
  return {Place::Rnic, Place::Requester,
          fmt::format("{} is answered", steps_words(program, operation))};
}

PathStep responded(const Program& program, const Action& action) {
  const Reaction& reaction = program.connections[action.connection].reactions[action.index];
  const std::string name = item_name(reaction.item);
  switch (reaction.kind) {
    case Reaction::Kind::Ack:
      return {Place::ResponderCpu, Place::Requester,
              reaction.written ? "the responder WRITEs the ack" : "the responder sends the ack"};
    case Reaction::Kind::Flush:
      return {
          Place::ResponderCpu, Place::Domain,
          fmt::format("the responder's flush of {} is over{}", name,
                      reaction.finds_clean ? ": it found the page clean and wrote nothing" : "")};
    case Reaction::Kind::Read:
      return {Place::ResponderCpu, Place::Requester, "the responder posts READ " + name};
    case Reaction::Kind::Await:
      return {Place::Rnic, Place::ResponderCpu,
              fmt::format("the responder sees the completion of READ {}", name)};
    case Reaction::Kind::Release:
      return {Place::ResponderCpu, Place::ResponderCpu,
              fmt::format("the responder gives the buffer of message {} back", reaction.message)};
    case Reaction::Kind::Store: break;
  }
  return {Place::ResponderCpu, Place::Visible,
          fmt::format("the responder stores {}", cell_words(program, reaction.cell))};
}

PathStep recovered(const Program& program, const Action& action) {
  const RecoveryStep& step = program.recovery[action.index];
  PathStep said{Place::ResponderCpu, Place::ResponderCpu, "recovery "};
  switch (step.kind) {
    case RecoveryStep::Kind::Judge:
      said.text +=
          fmt::format("finds message {} {}", step.message,
                      action.kind == Action::Kind::Ignore ? "torn and ignores it" : "whole");
      break;
    case RecoveryStep::Kind::Store:
      said.to = Place::Visible;
      said.text += "stores " + cell_words(program, step.cell);
      break;
    case RecoveryStep::Kind::Flush:
      said.to = Place::Domain;
      said.text += "has flushed " + item_name(step.item);
      break;
    case RecoveryStep::Kind::Release:
      said.text += fmt::format("gives the buffer of message {} back", step.message);
      break;
  }
  return said;
}

PathStep said(const Program& program, const Action& action) {
  switch (action.kind) {
    case Action::Kind::Deliver: return delivered(program, action);
    case Action::Kind::Execute: return executed(program, program.operations[action.index]);
    case Action::Kind::Persist:
      return {Place::Domain, Place::Requester,
              "the persist ACK of " + steps_words(program, program.operations[action.index])};
    case Action::Kind::Respond: return responded(program, action);
    case Action::Kind::PowerFails: return {Place::Domain, Place::Domain, "power fails"};
    case Action::Kind::Restarts:
      return {Place::ResponderCpu, Place::ResponderCpu, "the responder's process restarts"};
    case Action::Kind::Recover:
    case Action::Kind::Ignore: return recovered(program, action);
    case Action::Kind::Fetch:
      return {Place::Requester, Place::Visible,
              fmt::format("{} arrives and becomes visible", cell_words(program, action.index))};
    case Action::Kind::Show: break;
  }
  if (program.loses) {
    return {Place::Requester, Place::Visible,
            fmt::format("{} arrives and becomes visible", cell_words(program, action.index))};
  }
  return {Place::Rnic, Place::Visible,
          fmt::format("{} becomes visible", cell_words(program, action.index))};
}

/// Whether a newer version than that of the cell is at its place, too.
bool replaced(const Program& program, const Mask& cells, std::size_t cell) {
  if (!in_mask(program.shared, cell)) return false;
  const Version at = program.version_of_cell[cell];
  const SharedPlace& place = program.places[at.place];
  return at.version < place.cells.size() && in_mask(cells, place.cells[at.version]);
}

/// ", over d", where an older version becomes visible over a newer one.
std::string over_newer(const Program& program, const Wide& before, const Wide& after) {
  for (const SharedPlace& place : program.places) {
    const auto was = visible_version(before, place);
    const auto now = visible_version(after, place);
    if (!was || !now || *was <= *now) continue;
    return ", over " + cell_words(program, place.cells[*was - 1]);
  }
  return "";
}

/// Where the responder acts on a message that it polls and that is not whole.
std::string_view from_torn(const Program& program, const Wide& before, const Action& action) {
  if (action.kind != Action::Kind::Respond) return "";
  const Reaction& reaction = program.connections[action.connection].reactions[action.index];
  return contains(before, reaction.reads) ? "" : ", by a message of which only the mark is there";
}

/// What is inside the domain after and was not before.
void drained_steps(const Program& program, const Mask& before, const Mask& after,
                   std::vector<PathStep>& path) {
  std::string names;
  std::size_t count = 0;
  for (std::size_t cell = program.first_cell; cell < program.cells; ++cell) {
    if ((after[word_of(cell)] & ~before[word_of(cell)] & bit_of(cell)) == 0) continue;
    if (replaced(program, after, cell)) continue;
    names += (names.empty() ? "" : ", ") + cell_words(program, cell);
    ++count;
  }
  if (count != 0) path.push_back(drained(names, count > 1));
}

/// What can not come any more from here on.
void lost_steps(const Program& program, const Wide& before, const Wide& after,
                std::vector<PathStep>& path) {
  for (const Operation& operation : program.operations) {
    if (contains_any(before, operation.lost_when)) continue;
    if (!contains_any(after, operation.lost_when)) continue;
    if (contains(after, operation.cell_mask)) continue;
    const bool in_part = contains_any(after, operation.cell_mask);
    path.push_back({Place::Requester, Place::Requester,
                    fmt::format("{}{} is lost on the way", in_part ? "a part of " : "",
                                steps_words(program, operation))});
  }
}

/// The requester's steps between two program counters.
void requester_steps(const Program& program, std::size_t from, std::size_t to,
                     std::vector<PathStep>& path) {
  for (std::size_t step = from; step < to; ++step) {
    const RequesterStep& each = program.script.steps[step];
    std::string words = describe(each);
    switch (each.kind) {
      case RequesterStep::Kind::Post: words.insert(0, "the requester posts "); break;
      case RequesterStep::Kind::WaitAck: words = "the requester receives the ack"; break;
      case RequesterStep::Kind::WaitCompletion:
        words = fmt::format("the requester sees the completion of {}",
                            describe(program.script.steps[each.of]));
        break;
    }
    path.push_back({Place::Requester, Place::Requester, std::move(words)});
  }
  for (const Promise& promise : program.script.promises) {
    if (program.script.mixed) break;  // see resolved_steps
    if (promise.step > to || (promise.step <= from && from != 0) || promise.step < from) continue;
    std::string names;
    for (const Item item : promise.items) names += (names.empty() ? "" : ", ") + item_name(item);
    path.push_back({Place::Requester, Place::Requester,
                    fmt::format("acknowledged to the requester: {} recoverable", names)});
  }
}

/// The updates of a mixture that resolve between two states.
void resolved_steps(std::size_t from, std::size_t to, std::vector<PathStep>& path) {
  for (std::size_t update = from + 1; update <= to; ++update) {
    path.push_back({Place::Requester, Place::Requester,
                    fmt::format("update {} resolves: acknowledged to the requester", update)});
  }
}

/// The state after each action, from the initial one on.
std::vector<Wide> replay(const Program& program, const std::vector<Action>& actions) {
  std::vector<Wide> states{initial_state<kWordsMax>(program)};
  for (const Action& action : actions) {
    Wide after = states.back();
    for_each_next(program, states.back(), [&](const Wide& next, const Action& by) {
      if (by == action) after = next;
    });
    states.push_back(after);
  }
  return states;
}

}  // namespace

std::string_view to_string(Place place) {
  switch (place) {
    case Place::Requester: return "requester";
    case Place::Rnic: return "responder RNIC";
    case Place::Visible: return "visible";
    case Place::Domain: return "persistence domain";
    case Place::ResponderCpu: return "responder CPU";
  }
  return "unknown";
}

std::vector<PathStep> make_path(const Program& program, const std::vector<Action>& actions) {
  const std::vector<Wide> states = replay(program, actions);
  std::vector<PathStep> path;
  requester_steps(program, 0, pc_of(states[0][0]), path);
  for (std::size_t index = 0; index < actions.size(); ++index) {
    const Wide& before = states[index];
    const Wide& after = states[index + 1];
    // A flush by the responder says itself what it waited for.
    const bool waited = actions[index].kind == Action::Kind::Execute ||
                        actions[index].kind == Action::Kind::Persist;
    if (waited && program.keeps == Keeps::Domain) {
      drained_steps(program, kept_cells(program, before).surely, kept_cells(program, after).surely,
                    path);
    }
    lost_steps(program, before, after, path);
    path.push_back(said(program, actions[index]));
    path.back().text += over_newer(program, before, after);
    path.back().text += from_torn(program, before, actions[index]);
    const std::size_t pc_before = pc_of(before[0]);
    const std::size_t pc_after = pc_of(after[0]);
    if (pc_before < pc_after) requester_steps(program, pc_before, pc_after, path);
    if (program.script.mixed && !recovering(after[0])) {
      resolved_steps(progress(program, before), progress(program, after), path);
    }
  }
  const auto broken = find_broken(program, states.back());
  if (broken && program.keeps == Keeps::Domain) {
    drained_steps(program, kept_cells(program, states.back()).surely, broken->kept, path);
  }
  return path;
}

std::string after_power_loss(const Program& program, const std::vector<Action>& actions) {
  const Wide state = replay(program, actions).back();
  const auto broken = find_broken(program, state);
  const Mask kept = broken ? broken->kept : kept_cells(program, state).surely;
  const Mask recovered = recovered_cells(program, state, kept);
  std::string text;
  for (std::size_t item = 0; item < program.item_cells.size(); ++item) {
    bool whole = true;
    bool any = false;
    for (std::size_t word = 0; word < kWordsMax; ++word) {
      const std::uint64_t here = recovered[word] & program.item_cells[item][word];
      whole = whole && here == program.item_cells[item][word];
      any = any || here != 0;
    }
    text += fmt::format("{}{}: {}", item == 0 ? "" : ", ", item_name(static_cast<Item>(item)),
                        whole ? "whole" : (any ? "torn" : "lost"));
    if (program.places.empty()) continue;
    for (std::size_t cell = program.first_cell; cell < program.cells; ++cell) {
      const bool here = in_mask(program.item_cells[item], cell);
      if (here && replaced(program, recovered, cell)) text += " or replaced";
    }
  }
  return text;
}

}  // namespace perdure::check
