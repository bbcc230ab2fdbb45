// Prints the processes: requester, wire, RNIC (posted and non-posted), drains, responder, power.
#include "check/promela.h"

#include "check/promela_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::check {
namespace {

using namespace promela;

using Kind = RequesterStep::Kind;

class Printer : private Layout {
 public:
  using Layout::Layout;

  std::string run() {
    std::string text = "/* generated from the method's data */\n";
    text += fmt::format("byte sent = 0;\nbyte acked = 0;\nbyte acks[{}];\nbool handled[{}];\n",
                        script.connections, script.reactions.size() + 1);
    text += fmt::format("bool arrived[{}];\nbool vis[{}];\nbool dom[{}];\nbool answered[{}];\n\n",
                        slots + 1, cells + 1, cells + 1, requests.size() + 1);
    if (loses()) text += fmt::format("bool taken[{}];\n\n", script.reactions.size() + 1);
    const std::vector<Item> fetched = fetched_items();
    if (!fetched.empty()) text += fmt::format("bool asked[{}];\n\n", script.epoch_of_item.size());
    if (!places.empty()) text += fmt::format("byte now[{0}];\nbyte med[{0}];\n\n", places.size());
    text += requester() + drains();
    for (const Item item : fetched) text += fetch(item);
    if (script.mixed) text += resolver();
    for (std::size_t at = 0; at < script.connections; ++at) {
      text += wire(at) + posted_requests(at) + other_requests(at) + responder(at);
    }
    return text + power_process(*this);
  }

 private:
  /// Whether what is posted may not arrive.
  bool loses() const { return profile.qp_type != QpType::Rc; }

  /// A label where a process may wait for ever: what it waits for may be lost.
  std::string may_end(std::size_t number) const {
    return loses() ? fmt::format("endwait{}:", number) : "";
  }

  std::string requester() const {
    std::string text = "active proctype requester() {\n";
    const std::vector<std::size_t> senders = ack_senders();
    std::size_t acks = 0;
    std::size_t promise = 0;
    for (std::size_t index = 0; index <= script.steps.size(); ++index) {
      while (!script.mixed && promise < script.promises.size() &&
             script.promises[promise].step == index) {
        text += fmt::format("  acked = {};\n", ++promise);
      }
      if (index == script.steps.size()) break;
      const RequesterStep& step = script.steps[index];
      if (script.mixed && step.kind != Kind::Post) {
        text += fmt::format("{}  {};\n", may_end(index), over(step));
        continue;
      }
      switch (step.kind) {
        case Kind::Post: text += fmt::format("  sent = {};\n", request_of_step[index] + 1); break;
        case Kind::WaitAck:
          text += fmt::format("{}  {};\n", may_end(index), received(senders, acks++));
          break;
        case Kind::WaitCompletion:
          text += fmt::format("  {};\n", completion(request_of_step[step.of]));
          break;
      }
    }
    return text + "}\n\n";
  }

  /// Among mixed updates: that a wait is over. An acknowledgement is that of one message.
  std::string over(const RequesterStep& wait) const {
    if (wait.kind == Kind::WaitCompletion) return completion(request_of_step[wait.of]);
    if (wait.of >= script.steps.size() || !is_message(script.steps[wait.of])) return "false";
    std::size_t acks = 0;
    std::size_t message = 0;
    for (std::size_t index = 0; index <= request_of_step[wait.of]; ++index) {
      if (!is_message(*requests[index].step)) continue;
      for (const ResponderAction& action : script.reactions[message]) {
        acks += action.kind == ResponderAction::Kind::Ack ? 1 : 0;
      }
      ++message;
    }
    return fmt::format("acks[0] >= {}", acks);
  }

  /// Updates resolve one after the other, and hold back no post of a later one.
  std::string resolver() const {
    std::string text = "active proctype resolver() {\n";
    std::size_t resolved = 0;
    for (const Promise& promise : script.promises) {
      std::size_t posts = 0;
      for (std::size_t step = 0; step < promise.step; ++step) {
        posts += script.steps[step].kind == Kind::Post ? 1 : 0;
      }
      text += fmt::format("{}  sent >= {};\n", loses() ? fmt::format("endsent{}:", resolved) : "",
                          posts);
      for (std::size_t wait = 0; wait < promise.waits.size(); ++wait) {
        const std::size_t label = resolved * script.steps.size() + wait;
        text += fmt::format("{}  {};\n", may_end(label), over(promise.waits[wait]));
      }
      text += fmt::format("  acked = {};\n", ++resolved);
    }
    return text + "}\n\n";
  }

  /// The connection of each acknowledgement, in posting order.
  std::vector<std::size_t> ack_senders() const {
    std::vector<std::size_t> senders;
    std::size_t message = 0;
    for (const Request& request : requests) {
      if (!is_message(*request.step)) continue;
      for (const ResponderAction& action : script.reactions[message]) {
        if (action.kind == ResponderAction::Kind::Ack) senders.push_back(request.connection);
      }
      ++message;
    }
    return senders;
  }

  /// That the next acknowledgement is here, after so many.
  static std::string received(const std::vector<std::size_t>& senders, std::size_t before) {
    if (before >= senders.size()) return "false";
    std::size_t count = 1;
    for (std::size_t ack = 0; ack < before; ++ack) count += senders[ack] == senders[before] ? 1 : 0;
    return fmt::format("acks[{}] >= {}", senders[before], count);
  }

  std::string completion(std::size_t index) const {
    if (!is_posted(requests[index].step->verb)) return fmt::format("answered[{}]", index);
    if (requests[index].step->verb == Verb::WritePersist) return persisted(index);
    if (loses() || completes_early(profile.transport)) return "true";
    return fmt::format("arrived[{}]", requests[index].slot_last);
  }

  /// The persist ACK: under dmp all units are in the memory controller, elsewhere visible.
  std::string persisted(std::size_t index) const {
    std::vector<std::string> terms;
    for (const Unit& unit : requests[index].units) {
      terms.push_back(fmt::format("{}[{}]", persists_in_order() ? "dom" : "vis", unit.cell));
    }
    return joined(terms, " && ", "true");
  }

  bool persists_in_order() const { return durable && profile.domain == PersistenceDomain::Dmp; }

  std::string wire(std::size_t at) const {
    if (loses()) return "";  // what comes, becomes visible
    std::string text = fmt::format("active proctype wire{}() {{\n", at);
    for (std::size_t index = 0; index < requests.size(); ++index) {
      const Request& request = requests[index];
      if (request.connection != at) continue;
      std::string guard = fmt::format("sent > {}", index);
      if (request.step->fenced) guard += answered_before(index);
      text += fmt::format("end{}: {};\n", index, guard);
      for (std::size_t slot = request.slot_first; slot <= request.slot_last; ++slot) {
        text += fmt::format("  arrived[{}] = true;\n", slot);
      }
    }
    return text + "  skip\n}\n\n";
  }

  /// One after the other, or where the order of WRITEs is not known each by itself; the units of
  /// one in any order.
  std::string posted_requests(std::size_t at) const {
    const bool ordered = keeps_write_order(profile) && !loses();
    std::string text;
    std::string in_turn;
    for (std::size_t index = 0; index < requests.size(); ++index) {
      const Request& request = requests[index];
      if (!is_posted(request.step->verb) || request.units.empty() || request.connection != at) {
        continue;
      }
      if (ordered || request.step->verb == Verb::WritePersist) {
        in_turn += shown(index, ordered ? "" : left(index));
      } else {
        text += fmt::format("active proctype placed{}() {{\n{}  skip\n}}\n", index,
                            shown(index, left(index)));
      }
    }
    return fmt::format("{}active proctype posted{}() {{\n{}  skip\n}}\n\n", text, at, in_turn);
  }

  /// That the PWRITEs before one have drained: "", or " && " and so on.
  std::string persisted_before(std::size_t index) const {
    std::string guard;
    if (requests[index].step->verb != Verb::WritePersist || !persists_in_order()) return guard;
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      const Request& other = requests[earlier];
      if (other.step->verb != Verb::WritePersist) continue;
      if (other.connection == requests[index].connection) guard += " && " + persisted(earlier);
    }
    return guard;
  }

  /// That the requester has let it go: whatever waits for a fence, waits.
  std::string left(std::size_t index) const {
    std::string guard = fmt::format("sent > {}", index);
    for (std::size_t fence = 0; fence <= index; ++fence) {
      if (!requests[fence].step->fenced) continue;
      if (requests[fence].connection != requests[index].connection) continue;
      guard += answered_before(fence);
    }
    return guard;
  }

  /// What a fence at this request waits for.
  std::string answered_before(std::size_t index) const {
    std::string guard;
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      const Request& other = requests[earlier];
      if (is_posted(other.step->verb) || other.connection != requests[index].connection) continue;
      guard += fmt::format(" && answered[{}]", earlier);
    }
    return guard;
  }

  /// The units of a request become visible: each when it has arrived, or, under a guard, all.
  std::string shown(std::size_t index, const std::string& guard) const {
    std::vector<std::string> all;
    std::string text = guard.empty() ? "" : fmt::format("endleft{}: {};\n", index, guard);
    text += fmt::format("end{}: do\n", index);
    for (const Unit& unit : requests[index].units) {
      const std::string here =
          guard.empty() ? fmt::format("arrived[{}] && ", unit.slot) : std::string();
      text += fmt::format("  :: atomic {{ {1}!vis[{0}]{3}{4} -> {2} }}\n", unit.cell, here,
                          show(unit.cell), persisted_before(index), not_lost(index));
      all.push_back(fmt::format("vis[{}]", unit.cell));
    }
    return text + fmt::format("  :: {} -> break\n  od;\n", joined(all, " && ", "true"));
  }

  /// Over UC: that nothing has shown yet that what is missing of a request is lost.
  std::string not_lost(std::size_t index) const {
    std::string guard;
    if (profile.qp_type != QpType::Uc) return guard;
    for (std::size_t later = index + 1; later < requests.size(); ++later) {
      if (requests[later].connection != requests[index].connection) continue;
      for (const Unit& unit : requests[later].units) {
        if (keeps_write_order(profile)) guard += fmt::format(" && !vis[{}]", unit.cell);
      }
      if (is_message(*requests[later].step)) guard += fmt::format(" && !taken[{}]", number(later));
    }
    return guard;
  }

  /// Of a message, counted from 0.
  std::size_t number(std::size_t message) const {
    std::size_t count = 0;
    for (std::size_t index = 0; index < message; ++index) {
      count += is_message(*requests[index].step) ? 1 : 0;
    }
    return count;
  }

  /// That the responder takes a message which may be lost next: one with a number in its turn,
  /// another when it has come.
  std::string takes(std::size_t index) const {
    std::string guard = fmt::format("!taken[{}] && {}", number(index), receive_completion(index));
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      if (!is_message(*requests[earlier].step)) continue;
      if (requests[earlier].connection != requests[index].connection) continue;
      const bool reacts = !script.reactions[number(earlier)].empty();
      if (requests[index].step->verb == Verb::WriteImm) {
        if (reacts) guard += fmt::format(" && !({})", takes(earlier));
      } else {
        guard += reacts ? fmt::format(" && taken[{}]", number(earlier))
                        : fmt::format(" && {}", receive_completion(earlier));
      }
    }
    return guard;
  }

  std::string other_requests(std::size_t at) const {
    std::string text = fmt::format("active proctype nonposted{}() {{\n", at);
    for (std::size_t index = 0; index < requests.size(); ++index) {
      const Request& request = requests[index];
      if (is_posted(request.step->verb) || request.connection != at) continue;
      const std::string guard = joined(before(index), " && ", "true");
      text += fmt::format("end{}: atomic {{ {} ->", index, guard);
      for (const Unit& unit : request.units) text += fmt::format(" {};", show(unit.cell));
      text += fmt::format(" answered[{}] = true }};\n", index);
    }
    return text + "  skip\n}\n\n";
  }

  /// What a non-posted request waits for.
  std::vector<std::string> before(std::size_t index) const {
    const Request& request = requests[index];
    std::vector<std::string> terms{fmt::format("arrived[{}]", request.slot_last)};
    const bool flushes = request.step->verb != Verb::WriteAtomic;
    const bool native = request.step->verb == Verb::Flush && profile.capabilities.native_flush;
    const bool reads = flushes && !native && request.step->verb != Verb::SendFlush;
    if (reads && !reads_written(index)) return terms;
    const bool reaches_memory = durable && flushes && dma_bypasses_caches(profile) &&
                                profile.domain == PersistenceDomain::Dmp;
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      if (requests[earlier].connection != request.connection) continue;
      for (const Unit& unit : requests[earlier].units) {
        terms.push_back(fmt::format("vis[{}]", unit.cell));
        const bool in_dram = sends_items(requests[earlier].step->verb) && !survives(earlier);
        if ((reaches_memory && !in_dram) || persists(request, requests[earlier]) ||
            looks_up(index, earlier)) {
          terms.push_back(drained(unit.cell));
        }
      }
    }
    return terms;
  }

  /// Whether a FLUSH to persistence waits for what an earlier request wrote.
  bool persists(const Request& flush, const Request& earlier) const {
    const bool by_send = flush.step->verb == Verb::SendFlush;
    if (flush.step->verb != Verb::Flush && !by_send) return false;
    if (!writes_items(earlier.step->verb)) return false;
    const Capabilities& able = profile.capabilities;
    if (!by_send && (!able.native_flush || !able.persistent_flush)) return false;
    if (!durable || profile.domain != PersistenceDomain::Dmp) return false;
    return std::any_of(earlier.step->items.begin(), earlier.step->items.end(), [&](Item item) {
      return std::count(flush.step->items.begin(), flush.step->items.end(), item) != 0;
    });
  }

  /// Whether `flush` is an SFLUSH, and `message` the SEND before it, whose buffer survives.
  bool looks_up(std::size_t flush, std::size_t message) const {
    if (requests[flush].step->verb != Verb::SendFlush || !survives(message)) return false;
    if (profile.domain != PersistenceDomain::Dmp) return false;
    for (std::size_t between = message + 1; between < flush; ++between) {
      const bool sent = requests[between].step->verb == Verb::Send &&
                        requests[between].connection == requests[flush].connection;
      if (sent) return false;
    }
    return true;
  }

  /// Whether the byte that a READ asks for was written before it on its connection.
  bool reads_written(std::size_t index) const {
    const RequesterStep& reading = *requests[index].step;
    if (reading.items.empty()) return false;
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      const RequesterStep& step = *requests[earlier].step;
      if (!writes_items(step.verb) || requests[earlier].connection != requests[index].connection)
        continue;
      if (std::count(step.items.begin(), step.items.end(), reading.items.back()) != 0) return true;
    }
    return false;
  }

  std::string drains() const {
    std::string text;
    for (std::size_t place = 0; place < places.size(); ++place) {
      text += fmt::format(
          "active proctype drain_place{0}() {{\nend0: do\n  :: atomic {{ med[{0}] != now[{0}] -> "
          "med[{0}] = now[{0}] }}\n  od\n}}\n",
          place);
    }
    for (std::size_t cell = 0; cell < cells; ++cell) {
      if (shared(cell) && !by_pwrite(cell)) continue;
      text += fmt::format(
          "active proctype drain{0}() {{\nend0: atomic {{ vis[{0}]{1} -> dom[{0}] = true }}\n}}\n",
          cell, shared(cell) ? " && " + drained(cell) : "");
    }
    return text + "\n";
  }

  /// What the responder READs from the requester.
  std::vector<Item> fetched_items() const {
    std::vector<Item> items;
    for (const auto& reaction : script.reactions) {
      for (const ResponderAction& action : reaction) {
        if (action.kind == ResponderAction::Kind::Read) items.push_back(action.item);
      }
    }
    return items;
  }

  /// Its units become visible in any order, once the READ is posted.
  std::string fetch(Item item) const {
    std::string text;
    for (std::size_t unit = 0; unit < units_of(item); ++unit) {
      const std::size_t cell = item_cell[item] + unit;
      text +=
          fmt::format("active proctype fetch{1}() {{\nend0: atomic {{ asked[{0}] -> {2} }}\n}}\n",
                      item, cell, show(cell));
    }
    return text;
  }

  bool by_pwrite(std::size_t cell) const {
    return std::any_of(requests.begin(), requests.end(), [&](const Request& request) {
      return request.step->verb == Verb::WritePersist &&
             std::any_of(request.units.begin(), request.units.end(),
                         [&](const Unit& unit) { return unit.cell == cell; });
    });
  }

  std::string responder(std::size_t at) const {
    std::string text = fmt::format("active proctype responder{}() {{\n", at);
    if (loses()) text += "end: do\n";
    const std::vector<bool> none(script.epoch_of_item.size(), false);
    std::vector<bool> named = none;
    std::vector<bool> received = none;
    std::vector<bool> readable = none;
    std::size_t message = 0;
    for (std::size_t index = 0; index < requests.size(); ++index) {
      const RequesterStep& step = *requests[index].step;
      if (!is_message(step)) continue;
      if (requests[index].connection != at) {
        ++message;
        continue;
      }
      // Where it came without those before it, they have named nothing.
      if (loses() && step.verb == Verb::WriteImm) named = received = readable = none;
      for (const Item item : step.items) {
        named[item] = true;
        if (sends_items(step.verb)) received[item] = true;
      }
      for (const Item item : step.flush) named[item] = true;
      for (const Item item : step.readable) named[item] = readable[item] = true;
      if (loses()) {
        if (script.reactions[message].empty()) {
          ++message;
          continue;
        }
        text += fmt::format("  :: atomic {{ {} -> taken[{}] = true }};\n", takes(index), message);
      } else {
        text += fmt::format("end{}: {};\n", index, receive_completion(index));
      }
      for (const ResponderAction& action : script.reactions[message]) {
        if (action.kind == ResponderAction::Kind::Ack) {
          text += fmt::format("  acks[{}]++;\n", at);
        } else if (action.kind == ResponderAction::Kind::Read) {
          if (readable[action.item]) text += fmt::format("  asked[{}] = true;\n", action.item);
        } else if (action.kind == ResponderAction::Kind::Await) {
          for (std::size_t unit = 0; unit < units_of(action.item); ++unit) {
            text += fmt::format("  vis[{}];\n", item_cell[action.item] + unit);
          }
        } else {
          text += act(action, named[action.item], received[action.item], torn(index));
        }
      }
      text += fmt::format("  handled[{}] = true;\n", message++);
    }
    return text + (loses() ? "  :: false\n  od\n}\n\n" : "  skip\n}\n\n");
  }

  /// That a message which is polled is not all there; "" where it is whole when it is found.
  std::string torn(std::size_t index) const {
    const Request& request = requests[index];
    const bool by_mark = request.step->verb == Verb::WritePolled && !request.step->checked;
    if (!by_mark || request.units.size() == 1) return "";
    return fmt::format("!vis[{}]", request.units.front().cell);
  }

  std::string receive_completion(std::size_t index) const {
    const Request& request = requests[index];
    std::vector<std::string> terms;
    if (request.step->verb == Verb::WritePolled) {
      for (const Unit& unit : request.units) {
        const bool mark = unit.cell == request.units.back().cell;
        if (mark || request.step->checked) terms.push_back(fmt::format("vis[{}]", unit.cell));
      }
      return joined(terms, " && ", "true");
    }
    for (std::size_t earlier = loses() ? index : 0; earlier <= index; ++earlier) {
      if (!is_posted(requests[earlier].step->verb)) continue;
      if (requests[earlier].connection != requests[index].connection) continue;
      for (const Unit& unit : requests[earlier].units) {
        terms.push_back(fmt::format("vis[{}]", unit.cell));
      }
    }
    return joined(terms, " && ", "true");
  }

  std::string act(const ResponderAction& action, bool named, bool received,
                  const std::string& torn) const {
    std::string text;
    const std::size_t first = item_cell[action.item];
    if (action.kind == ResponderAction::Kind::Copy) {
      for (std::size_t unit = 0; received && unit < units_of(action.item); ++unit) {
        text += torn.empty() ? fmt::format("  atomic {{ {} }};\n", show(first + unit))
                             : fmt::format("  atomic {{ if :: {} -> skip :: else -> {} fi }};\n",
                                           torn, show(first + unit));
      }
      return text;
    }
    // A page that only an RNIC has written is clean: nothing is written, nothing waited for.
    const bool clean = profile.domain == PersistenceDomain::Page && !syncs_peer_writes(profile) &&
                       written_by_rnic(action.item);
    for (std::size_t unit = 0; named && !clean && unit < units_of(action.item); ++unit) {
      const std::string or_torn = torn.empty() ? "" : torn + " || ";
      text += fmt::format("  ({}!vis[{}] || {});\n", or_torn, first + unit, drained(first + unit));
    }
    return text;
  }

  bool written_by_rnic(Item item) const {
    const auto fetched = fetched_items();
    if (std::count(fetched.begin(), fetched.end(), item) != 0) return true;
    return std::any_of(requests.begin(), requests.end(), [&](const Request& request) {
      return writes_items(request.step->verb) &&
             std::count(request.step->items.begin(), request.step->items.end(), item) != 0;
    });
  }
};

}  // namespace

std::string to_promela(const Method& method, const ServerProfile& profile,
                       const CheckOptions& options) {
  return Printer(make_script(method, in_flight(options)), profile, options).run();
}

std::string to_promela(const std::vector<MixedUpdate>& updates, const ServerProfile& profile,
                       const SetOptions& options) {
  CheckOptions bounds;
  bounds.level = options.level;
  bounds.units_per_item = options.units_per_item;
  return Printer(make_script(updates), profile, bounds).run();
}

}  // namespace perdure::check
