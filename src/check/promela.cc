// Prints the processes: requester, wire, RNIC (posted and non-posted), drains, responder, power.
#include "check/promela.h"

#include <fmt/format.h>

#include "check/script.h"

namespace perdure::check {
namespace {

using Kind = RequesterStep::Kind;

/// One unit of data on its way: index into the arrays `vis` (visible) and `dom` (in the domain).
struct Unit {
  std::size_t cell = 0;
  std::size_t slot = 0;
};

/// One posted request and where its parts are.
struct Request {
  const RequesterStep* step = nullptr;
  std::size_t connection = 0;
  std::vector<Unit> units;
  std::size_t slot_first = 0;
  std::size_t slot_last = 0;
};

bool posted(Verb verb) {
  return verb == Verb::Write || verb == Verb::WriteImm || verb == Verb::Send;
}

std::string joined(const std::vector<std::string>& terms, std::string_view by,
                   std::string_view empty) {
  if (terms.empty()) return std::string(empty);
  return fmt::format("({})", fmt::join(terms, by));
}

class Printer {
 public:
  Printer(const Method& method, const ServerProfile& profile, const CheckOptions& options)
      : profile_(profile),
        durable_(options.level == Level::Durable || options.level == Level::Committed),
        options_(options),
        script_(make_script(method, in_flight(options))) {
    lay_out();
  }

  std::string run() {
    std::string text = "/* generated from the method's data */\n";
    text += fmt::format("byte sent = 0;\nbyte told = 0;\nbyte acks[{}];\nbool handled[{}];\n",
                        script_.connections, script_.reactions.size() + 1);
    text += fmt::format("bool arrived[{}];\nbool vis[{}];\nbool dom[{}];\nbool answered[{}];\n\n",
                        slots_ + 1, cells_ + 1, cells_ + 1, requests_.size() + 1);
    text += requester() + drains();
    for (std::size_t at = 0; at < script_.connections; ++at) {
      text += wire(at) + posted_requests(at) + other_requests(at) + responder(at);
    }
    return text + power();
  }

 private:
  std::size_t units_of(Item item) const {
    return script_.small_item[item] ? 1 : options_.units_per_item;
  }

  void lay_out() {
    for (std::size_t item = 0; item < script_.epoch_of_item.size(); ++item) {
      item_cell_.push_back(cells_);
      cells_ += units_of(static_cast<Item>(item));
    }
    for (std::size_t index = 0; index < script_.steps.size(); ++index) {
      const RequesterStep& step = script_.steps[index];
      request_of_step_.push_back(requests_.size());
      if (step.kind != Kind::Post) continue;
      Request request;
      request.step = &step;
      request.connection = script_.connection_of_step[index];
      request.slot_first = slots_;
      if (step.verb == Verb::Send) {
        for (int unit = 0; unit < 2; ++unit) request.units.push_back({cells_++, slots_++});
      } else if (step.verb != Verb::Read && step.verb != Verb::Flush) {
        for (const Item item : step.items) {
          for (std::size_t unit = 0; unit < units_of(item); ++unit) {
            request.units.push_back({item_cell_[item] + unit, slots_++});
          }
        }
      }
      if (request.units.empty()) ++slots_;
      request.slot_last = slots_ - 1;
      requests_.push_back(std::move(request));
    }
  }

  std::string requester() const {
    std::string text = "active proctype requester() {\n";
    const std::vector<std::size_t> senders = ack_senders();
    std::size_t acks = 0;
    std::size_t promise = 0;
    for (std::size_t index = 0; index <= script_.steps.size(); ++index) {
      while (promise < script_.promises.size() && script_.promises[promise].step == index) {
        text += fmt::format("  told = {};\n", ++promise);
      }
      if (index == script_.steps.size()) break;
      const RequesterStep& step = script_.steps[index];
      switch (step.kind) {
        case Kind::Post: text += fmt::format("  sent = {};\n", request_of_step_[index] + 1); break;
        case Kind::WaitAck: text += fmt::format("  {};\n", received(senders, acks++)); break;
        case Kind::WaitCompletion:
          text += fmt::format("  {};\n", completion(request_of_step_[step.of]));
          break;
      }
    }
    return text + "}\n\n";
  }

  /// The connection of each acknowledgement, in posting order.
  std::vector<std::size_t> ack_senders() const {
    std::vector<std::size_t> senders;
    std::size_t message = 0;
    for (const Request& request : requests_) {
      if (!is_message(*request.step)) continue;
      for (const ResponderAction& action : script_.reactions[message]) {
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

  static bool is_message(const RequesterStep& step) {
    return step.verb == Verb::Send || step.verb == Verb::WriteImm;
  }

  std::string completion(std::size_t index) const {
    if (!posted(requests_[index].step->verb)) return fmt::format("answered[{}]", index);
    if (completes_early(profile_.transport)) return "true";
    return fmt::format("arrived[{}]", requests_[index].slot_last);
  }

  std::string wire(std::size_t at) const {
    std::string text = fmt::format("active proctype wire{}() {{\n", at);
    for (std::size_t index = 0; index < requests_.size(); ++index) {
      const Request& request = requests_[index];
      if (request.connection != at) continue;
      std::string guard = fmt::format("sent > {}", index);
      for (std::size_t earlier = 0; request.step->fenced && earlier < index; ++earlier) {
        const Request& other = requests_[earlier];
        if (posted(other.step->verb) || other.connection != at) continue;
        guard += fmt::format(" && answered[{}]", earlier);
      }
      text += fmt::format("end{}: {};\n", index, guard);
      for (std::size_t slot = request.slot_first; slot <= request.slot_last; ++slot) {
        text += fmt::format("  arrived[{}] = true;\n", slot);
      }
    }
    return text + "  skip\n}\n\n";
  }

  /// One after the other; the units of one in any order.
  std::string posted_requests(std::size_t at) const {
    std::string text = fmt::format("active proctype posted{}() {{\n", at);
    for (std::size_t index = 0; index < requests_.size(); ++index) {
      const Request& request = requests_[index];
      if (!posted(request.step->verb) || request.units.empty() || request.connection != at) {
        continue;
      }
      std::vector<std::string> all;
      text += fmt::format("end{}: do\n", index);
      for (const Unit& unit : request.units) {
        text += fmt::format("  :: atomic {{ arrived[{1}] && !vis[{0}] -> vis[{0}] = true }}\n",
                            unit.cell, unit.slot);
        all.push_back(fmt::format("vis[{}]", unit.cell));
      }
      text += fmt::format("  :: {} -> break\n  od;\n", joined(all, " && ", "true"));
    }
    return text + "  skip\n}\n\n";
  }

  std::string other_requests(std::size_t at) const {
    std::string text = fmt::format("active proctype nonposted{}() {{\n", at);
    for (std::size_t index = 0; index < requests_.size(); ++index) {
      const Request& request = requests_[index];
      if (posted(request.step->verb) || request.connection != at) continue;
      const std::string guard = joined(before(index), " && ", "true");
      text += fmt::format("end{}: atomic {{ {} ->", index, guard);
      for (const Unit& unit : request.units) text += fmt::format(" vis[{}] = true;", unit.cell);
      text += fmt::format(" answered[{}] = true }};\n", index);
    }
    return text + "  skip\n}\n\n";
  }

  /// What a non-posted request waits for.
  std::vector<std::string> before(std::size_t index) const {
    const Request& request = requests_[index];
    std::vector<std::string> terms{fmt::format("arrived[{}]", request.slot_last)};
    const bool read = request.step->verb == Verb::Read;
    if (read && !covers_written(index)) return terms;
    const bool flushes = read || request.step->verb == Verb::Flush;
    const bool reaches_memory = durable_ && flushes && profile_.ddio == Ddio::Off &&
                                profile_.domain == PersistenceDomain::Dmp;
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      if (requests_[earlier].connection != request.connection) continue;
      for (const Unit& unit : requests_[earlier].units) {
        terms.push_back(fmt::format("vis[{}]", unit.cell));
        const bool in_dram = requests_[earlier].step->verb == Verb::Send && !survives(earlier);
        if (reaches_memory && !in_dram) terms.push_back(fmt::format("dom[{}]", unit.cell));
      }
    }
    return terms;
  }

  bool covers_written(std::size_t index) const {
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      const RequesterStep& step = *requests_[earlier].step;
      if (step.verb == Verb::Read || step.verb == Verb::Flush) continue;
      if (requests_[earlier].connection != requests_[index].connection) continue;
      for (const Item item : step.items) {
        for (const Item covered : requests_[index].step->items) {
          if (item == covered) return true;
        }
      }
    }
    return false;
  }

  bool survives(std::size_t request) const {
    return durable_ && requests_[request].step->replay &&
           profile_.receive_buffers == ReceiveBuffers::Pm &&
           profile_.domain != PersistenceDomain::None;
  }

  std::string drains() const {
    std::string text;
    for (std::size_t cell = 0; cell < cells_; ++cell) {
      text += fmt::format(
          "active proctype drain{0}() {{\nend0: atomic {{ vis[{0}] -> dom[{0}] = true }}\n}}\n",
          cell);
    }
    return text + "\n";
  }

  std::string responder(std::size_t at) const {
    std::string text = fmt::format("active proctype responder{}() {{\n", at);
    std::vector<bool> named(script_.epoch_of_item.size(), false);
    std::vector<bool> received(named.size(), false);
    std::size_t message = 0;
    for (std::size_t index = 0; index < requests_.size(); ++index) {
      const RequesterStep& step = *requests_[index].step;
      if (!is_message(step)) continue;
      if (requests_[index].connection != at) {
        ++message;
        continue;
      }
      for (const Item item : step.items) {
        named[item] = true;
        if (step.verb == Verb::Send) received[item] = true;
      }
      for (const Item item : step.flush) named[item] = true;
      text += fmt::format("end{}: {};\n", index, receive_completion(index));
      for (const ResponderAction& action : script_.reactions[message]) {
        if (action.kind == ResponderAction::Kind::Ack) {
          text += fmt::format("  acks[{}]++;\n", at);
        } else {
          text += act(action, named[action.item], received[action.item]);
        }
      }
      text += fmt::format("  handled[{}] = true;\n", message++);
    }
    return text + "  skip\n}\n\n";
  }

  std::string receive_completion(std::size_t index) const {
    std::vector<std::string> terms;
    for (std::size_t earlier = 0; earlier <= index; ++earlier) {
      if (!posted(requests_[earlier].step->verb)) continue;
      if (requests_[earlier].connection != requests_[index].connection) continue;
      for (const Unit& unit : requests_[earlier].units) {
        terms.push_back(fmt::format("vis[{}]", unit.cell));
      }
    }
    return joined(terms, " && ", "true");
  }

  std::string act(const ResponderAction& action, bool named, bool received) const {
    std::string text;
    const std::size_t first = item_cell_[action.item];
    if (action.kind == ResponderAction::Kind::Copy) {
      for (std::size_t unit = 0; received && unit < units_of(action.item); ++unit) {
        text += fmt::format("  vis[{}] = true;\n", first + unit);
      }
      return text;
    }
    for (std::size_t unit = 0; named && unit < units_of(action.item); ++unit) {
      text += fmt::format("  (!vis[{0}] || dom[{0}]);\n", first + unit);
    }
    return text;
  }

  std::string kept(std::size_t cell) const {
    PersistenceDomain domain = profile_.domain;
    if (options_.level == Level::Visible) domain = PersistenceDomain::Mhp;
    if (options_.level == Level::Received) domain = PersistenceDomain::Wsp;
    switch (domain) {
      case PersistenceDomain::None: return "false";
      case PersistenceDomain::Page:
      case PersistenceDomain::Dmp: return fmt::format("dom[{}]", cell);
      case PersistenceDomain::Mhp: return fmt::format("vis[{}]", cell);
      case PersistenceDomain::Wsp: break;
    }
    std::string text = fmt::format("vis[{}]", cell);
    for (const Request& request : requests_) {
      for (const Unit& unit : request.units) {
        if (unit.cell == cell) text += fmt::format(" || arrived[{}]", unit.slot);
      }
    }
    return "(" + text + ")";
  }

  /// One unit of an item, by itself or by the replay of a message that carries the item.
  std::string recovered(Item item, std::size_t unit) const {
    std::vector<std::string> ways{kept(item_cell_[item] + unit)};
    std::size_t message = 0;
    for (std::size_t index = 0; index < requests_.size(); ++index) {
      const RequesterStep& step = *requests_[index].step;
      if (!is_message(step)) continue;
      ++message;
      if (!survives(index)) continue;
      for (const Item carried : step.items) {
        if (carried != item) continue;
        std::vector<std::string> whole;
        for (const Unit& part : requests_[index].units) whole.push_back(kept(part.cell));
        const bool reacts = !script_.reactions[message - 1].empty();
        if (reacts) whole.push_back(fmt::format("!handled[{}]", message - 1));
        ways.push_back(joined(whole, " && ", "true"));
      }
    }
    return joined(ways, " || ", "false");
  }

  std::vector<std::string> units_recovered(std::size_t epoch_first, std::size_t epoch_end) const {
    std::vector<std::string> terms;
    for (std::size_t item = 0; item < script_.epoch_of_item.size(); ++item) {
      const std::size_t epoch = script_.epoch_of_item[item];
      if (epoch < epoch_first || epoch >= epoch_end) continue;
      for (std::size_t unit = 0; unit < units_of(static_cast<Item>(item)); ++unit) {
        terms.push_back(recovered(static_cast<Item>(item), unit));
      }
    }
    return terms;
  }

  std::string power() const {
    std::vector<std::string> safe;
    for (std::size_t index = 0; index < script_.promises.size(); ++index) {
      std::vector<std::string> terms;
      for (const Item item : script_.promises[index].items) {
        for (std::size_t unit = 0; unit < units_of(item); ++unit) {
          terms.push_back(recovered(item, unit));
        }
      }
      safe.push_back(fmt::format("(told <= {} || {})", index, joined(terms, " && ", "true")));
    }
    for (std::size_t epoch = 0; epoch < script_.chain_end.size(); ++epoch) {
      if (epoch + 1 >= script_.chain_end[epoch]) continue;
      safe.push_back(
          fmt::format("(!{} || {})",
                      joined(units_recovered(epoch + 1, script_.chain_end[epoch]), " || ", "false"),
                      joined(units_recovered(epoch, epoch + 1), " && ", "true")));
    }
    return fmt::format("active proctype power() {{\nend: atomic {{ !{} -> assert(false) }}\n}}\n",
                       joined(safe, " &&\n  ", "true"));
  }

  const ServerProfile& profile_;
  bool durable_;
  CheckOptions options_;
  Script script_;
  std::vector<Request> requests_;
  std::vector<std::size_t> request_of_step_;
  std::vector<std::size_t> item_cell_;
  std::size_t cells_ = 0;
  std::size_t slots_ = 0;
};

}  // namespace

std::string to_promela(const Method& method, const ServerProfile& profile,
                       const CheckOptions& options) {
  return Printer(method, profile, options).run();
}

}  // namespace perdure::check
