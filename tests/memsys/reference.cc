// Pairs of commands, and every cycle: see reference.h.
#include "tests/memsys/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace perdure::memsys {
namespace {

using enum CommandKind;

bool is_column(const Command& c) { return c.kind == Read || c.kind == Write; }

struct Judge {
  const Device& device;
  const Timing& t = device.timing;

  std::uint64_t rank(const Command& c) const { return c.bank / device.geometry.banks_in_rank(); }
  std::uint64_t group(const Command& c) const { return c.bank / device.geometry.banks; }

  /// Cycles that must lie between the two, because of the bank they share.
  std::uint64_t bank_gap(const Command& a, const Command& b) const {
    if (a.kind == Activate && is_column(b)) return t.tRCD;
    if (a.kind == Activate && b.kind == Precharge) return t.tRAS;
    if (a.kind == Precharge && b.kind == Activate) return t.tRP;
    if (a.kind == Read && b.kind == Precharge) return t.tRTP;
    if (a.kind == Write && b.kind == Precharge) return t.CWL + t.BL + t.tWR;
    if (is_column(a) && is_column(b) && !device.controller.hits_pipeline) {
      return (a.kind == Read ? t.CL : t.CWL) + t.BL;
    }
    return 1;
  }

  std::uint64_t rank_gap(const Command& a, const Command& b) const {
    const bool one_group = group(a) == group(b);
    if (a.kind == Refresh) return t.tRFC;
    if (b.kind == Refresh) return a.kind == Precharge ? t.tRP : 1;
    if (a.kind == Activate && b.kind == Activate) return one_group ? t.tRRD_L : t.tRRD;
    if (is_column(a) && a.kind == b.kind) return one_group ? t.tCCD_L : t.tCCD;
    if (a.kind == Write && b.kind == Read) {
      return t.CWL + t.BL + (one_group ? t.tWTR_L : t.tWTR);
    }
    return 1;
  }

  /// The bursts of both on the data bus.
  bool bursts_meet(const Command& a, const Command& b) const {
    const auto begin = [&](const Command& c) { return c.cycle + (c.kind == Read ? t.CL : t.CWL); };
    const bool turn = rank(a) != rank(b) || (a.kind == Read && b.kind == Write);
    return begin(b) < begin(a) + t.BL + (turn ? t.tRTRS : 0);
  }

  /// Why `b` may not follow `a`; empty: it may.
  std::string_view pair(const Command& a, const Command& b) const {
    if (b.cycle <= a.cycle) return "two commands in a cycle, or time goes back";
    const std::uint64_t gap = b.cycle - a.cycle;
    if (a.bank == b.bank && b.kind != Refresh && a.kind != Refresh && gap < bank_gap(a, b)) {
      return "too soon after one of its bank";
    }
    if (rank(a) == rank(b) && gap < rank_gap(a, b)) return "too soon after one of its rank";
    if (is_column(a) && is_column(b) && bursts_meet(a, b)) return "two bursts meet on the bus";
    return "";
  }

  /// No gap is longer: each is a sum of some of these.
  std::uint64_t longest_gap() const {
    return t.CL + t.CWL + t.BL + t.tRCD + t.tRP + t.tRAS + t.tRTP + t.tWR + t.tCCD_L + t.tRRD_L +
           t.tFAW + t.tWTR + t.tWTR_L + t.tRTRS + t.tRFC;
  }
};

}  // namespace

void History::add(const Command& c) {
  commands_.push_back(c);
  if (c.kind == Activate) open_[c.bank] = c.row;
  if (c.kind == Precharge) open_.erase(c.bank);
}

Refusal History::why_not(const Command& next) const {
  const Judge judge{device_};
  const std::uint64_t longest = judge.longest_gap();
  std::uint64_t activates = 0;
  for (auto c = commands_.rbegin(); c != commands_.rend(); ++c) {
    if (c->cycle + longest < next.cycle) break;  // so are all before it
    if (const auto why = judge.pair(*c, next); !why.empty()) return {why, *c};
    const bool both_activate = c->kind == Activate && next.kind == Activate;
    if (both_activate && judge.rank(*c) == judge.rank(next)) {
      activates += c->cycle + device_.timing.tFAW > next.cycle ? 1 : 0;
    }
  }
  if (activates >= 4) return {"a fifth ACT within tFAW", {}};
  const auto row = open_.find(next.bank);
  if (next.kind == Activate && row != open_.end()) return {"ACT of an open bank", {}};
  if (next.kind == Precharge && row == open_.end()) return {"PRE of a closed bank", {}};
  if (is_column(next) && (row == open_.end() || row->second != next.row)) {
    return {"a column command for a row that is not open", {}};
  }
  for (const auto& [bank, its_row] : open_) {
    const Command of_bank{0, Activate, 0, bank, its_row, 0};
    if (next.kind == Refresh && judge.rank(of_bank) == judge.rank(next)) {
      return {"REF of open rows", {}};
    }
  }
  return {};
}

std::string first_breach(const Device& device, const std::vector<Command>& log) {
  std::map<std::uint32_t, History> by_channel;
  for (const Command& c : log) {
    History& history = by_channel.try_emplace(c.channel, device).first->second;
    const Refusal refusal = history.why_not(c);
    if (!refusal.why.empty()) {
      return fmt::format("cycle {}: {} channel {} bank {} row {}: {} (cycle {}: {})", c.cycle,
                         to_string(c.kind), c.channel, c.bank, c.row, refusal.why,
                         refusal.because_of.cycle, to_string(refusal.because_of.kind));
    }
    history.add(c);
  }
  return "";
}

namespace {

bool writes(const ReferenceEvent& event) { return event.kind == EventKind::Write; }
bool is_request(const ReferenceEvent& event) { return event.kind <= EventKind::Write; }

/// The controller of the reference.
struct Trial {
  struct Waiting {
    ReferenceEvent request;
    std::size_t index = 0;
  };

  const Device& device;
  History log{device};
  std::deque<Waiting> queue{};

  bool hits(const ReferenceEvent& r) const {
    const auto row = log.open().find(r.place.bank);
    return row != log.open().end() && row->second == r.place.row;
  }

  static Command command(CommandKind kind, const Place& place, Cycle cycle) {
    return {cycle, kind, place.channel, place.bank, place.row, place.column};
  }

  /// An older request for the same line, of which one writes.
  bool held_back(std::size_t i) const {
    const ReferenceEvent& mine = queue[i].request;
    return std::any_of(
        queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(i), [&](const Waiting& older) {
          return older.request.place == mine.place && (writes(older.request) || writes(mine));
        });
  }

  /// The event that was served.
  std::optional<std::size_t> try_column(Cycle cycle) {
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const ReferenceEvent& r = queue[i].request;
      const std::size_t index = queue[i].index;
      if (!hits(r) || held_back(i)) continue;
      const Command c = command(writes(r) ? Write : Read, r.place, cycle);
      if (!log.why_not(c).why.empty()) continue;
      log.add(c);
      queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
      return index;
    }
    return std::nullopt;
  }

  /// The oldest request of each bank may open its row, or close another that nobody waits for.
  bool try_row(Cycle cycle) {
    std::map<std::uint32_t, bool> seen;
    for (const Waiting& each : queue) {
      const Place& place = each.request.place;
      if (seen[place.bank]) continue;
      seen[place.bank] = true;
      const auto row = log.open().find(place.bank);
      const bool is_open = row != log.open().end();
      const bool wanted = std::any_of(queue.begin(), queue.end(), [&](const Waiting& other) {
        return other.request.place.bank == place.bank && hits(other.request);
      });
      if (is_open && wanted) continue;
      Command c = command(is_open ? Precharge : Activate, place, cycle);
      c.column = 0;
      if (is_open) c.row = row->second;
      if (!log.why_not(c).why.empty()) continue;
      log.add(c);
      return true;
    }
    return false;
  }
};

/// The line before it.
struct Line {
  const std::vector<ReferenceEvent>& events;
  std::vector<Cycle> persists{std::vector<Cycle>(events.size(), kNever)};
  std::vector<bool> entered{std::vector<bool>(events.size(), false)};
  std::set<std::pair<Cycle, std::size_t>> requests{};  // when they entered, and which

  /// What comes before it in the trace lets the request enter.
  bool may_enter(std::size_t i, Cycle cycle) const {
    bool barrier = false;  // of its thread, between the two
    bool fence = false;
    for (std::size_t j = i; j-- > 0;) {
      const bool own = events[j].thread == events[i].thread;
      if (own && is_request(events[j]) && !entered[j]) return false;
      if (own) barrier = barrier || events[j].kind == EventKind::Barrier;
      if (own) fence = fence || events[j].kind == EventKind::Fence;
      const bool waits = own ? fence || (barrier && writes(events[i]))
                             : writes(events[i]) && events[i].place == events[j].place;
      if (waits && writes(events[j]) && persists[j] > cycle) return false;
    }
    return true;
  }

  void enter(Cycle cycle) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (!is_request(events[i]) || entered[i] || !may_enter(i, cycle)) continue;
      entered[i] = true;
      requests.emplace(cycle, i);
    }
  }
};

}  // namespace

std::vector<Command> reference_commands(const Device& device,
                                        const std::vector<ReferenceEvent>& events,
                                        PersistPoint persist_point) {
  const Timing& t = device.timing;
  Trial trial{device};
  Line line{events};
  auto left = std::count_if(events.begin(), events.end(), is_request);
  for (Cycle cycle = 0; left > 0; ++cycle) {
    line.enter(cycle);
    if (!line.requests.empty() && trial.queue.size() < device.controller.window) {
      const std::size_t next = line.requests.begin()->second;
      line.requests.erase(line.requests.begin());
      trial.queue.push_back({events[next], next});
      if (persist_point == PersistPoint::Accept) line.persists[next] = cycle;
      line.enter(cycle);
    }
    const auto served = trial.try_column(cycle);
    if (!served) trial.try_row(cycle);
    if (!served) continue;
    --left;
    if (persist_point == PersistPoint::Accept) continue;
    const bool array = persist_point == PersistPoint::Array;
    line.persists[*served] = cycle + t.CWL + t.BL + (array ? t.tWR : 0);
  }
  return trial.log.commands();
}

}  // namespace perdure::memsys
