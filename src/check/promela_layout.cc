// Lays out a Promela model, and prints what must be true in each of its states.
#include "check/promela_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace perdure::check::promela {
namespace {

using Kind = RequesterStep::Kind;

class Power {
 public:
  explicit Power(const Layout& layout) : layout_(layout) {}

  std::string kept(std::size_t cell) const {
    PersistenceDomain domain = layout_.profile.domain;
    if (layout_.options.level == Level::Visible) domain = PersistenceDomain::Mhp;
    if (layout_.options.level == Level::Received) domain = PersistenceDomain::Wsp;
    switch (domain) {
      case PersistenceDomain::None: return "false";
      case PersistenceDomain::Page:
      case PersistenceDomain::Dmp: return fmt::format("dom[{}]", cell);
      case PersistenceDomain::Mhp: return fmt::format("vis[{}]", cell);
      case PersistenceDomain::Wsp: break;
    }
    std::string text = fmt::format("vis[{}]", cell);
    for (const Request& request : layout_.requests) {
      for (const Unit& unit : request.units) {
        if (unit.cell == cell) text += fmt::format(" || arrived[{}]", unit.slot);
      }
    }
    return "(" + text + ")";
  }

  /// What a power failure leaves at a shared place.
  std::string kept_version(std::size_t place) const {
    PersistenceDomain domain = layout_.profile.domain;
    if (!layout_.durable) domain = PersistenceDomain::Mhp;
    if (domain == PersistenceDomain::None) return "0";
    const bool drains = domain == PersistenceDomain::Page || domain == PersistenceDomain::Dmp;
    return fmt::format("{}[{}]", drains ? "med" : "now", place);
  }

  /// Of mixed updates: whether recovery replays a message. It takes them in their order, from the
  /// first that the responder is not through with to the first that it can not replay.
  std::string replayed(std::size_t request) const {
    std::vector<std::string> terms;
    std::size_t message = 0;
    for (std::size_t index = 0; index <= request; ++index) {
      if (!is_message(*layout_.requests[index].step)) continue;
      const std::string handled = fmt::format("handled[{}]", message++);
      std::vector<std::string> whole;
      if (!layout_.survives(index)) whole.emplace_back("false");
      for (const Unit& part : layout_.requests[index].units) whole.push_back(kept(part.cell));
      const std::string there = joined(whole, " && ", "true");
      terms.push_back(index == request ? fmt::format("!{} && {}", handled, there)
                                       : fmt::format("({} || {})", handled, there));
    }
    return joined(terms, " && ", "true");
  }

  /// The version at a shared place after recovery: that of the last message with one, if any.
  std::string recovered_version(std::size_t place) const {
    std::string text = kept_version(place);
    for (std::size_t index = 0; index < layout_.requests.size(); ++index) {
      if (!layout_.survives(index)) continue;
      for (const Item carried : layout_.requests[index].step->items) {
        const auto at = layout_.shared(layout_.item_cell[carried]);
        if (!at || at->place != place) continue;
        text = fmt::format("({} -> {} : {})", replayed(index), at->version, text);
      }
    }
    return text;
  }

  /// That what the RNIC keeps is still on its way to a shared place: asked again when it is there.
  std::string unsettled() const {
    const bool keeps = layout_.options.level == Level::Received ||
                       (layout_.durable && layout_.profile.domain == PersistenceDomain::Wsp);
    std::vector<std::string> terms;
    for (const Request& request : layout_.requests) {
      if (!keeps || !is_posted(request.step->verb)) continue;
      for (const Unit& unit : request.units) {
        if (!layout_.shared(unit.cell)) continue;
        terms.push_back(fmt::format("(arrived[{}] && !vis[{}])", unit.slot, unit.cell));
      }
    }
    return joined(terms, " || ", "false");
  }

  /// One unit of an item, by itself or by the replay of a message that carries the item. At a
  /// shared place a newer one will do.
  std::string recovered(Item item, std::size_t unit) const {
    if (const auto at = layout_.shared(layout_.item_cell[item])) {
      return fmt::format("({} >= {})", recovered_version(at->place), at->version);
    }
    std::vector<std::string> ways{kept(layout_.item_cell[item] + unit)};
    std::size_t message = 0;
    for (std::size_t index = 0; index < layout_.requests.size(); ++index) {
      const RequesterStep& step = *layout_.requests[index].step;
      if (!is_message(step)) continue;
      ++message;
      if (!layout_.survives(index)) continue;
      for (const Item carried : step.items) {
        if (carried != item) continue;
        if (layout_.script.mixed) {
          ways.push_back(replayed(index));
          continue;
        }
        std::vector<std::string> whole;
        for (const Unit& part : layout_.requests[index].units) whole.push_back(kept(part.cell));
        const bool reacts = !layout_.script.reactions[message - 1].empty();
        if (reacts) whole.push_back(fmt::format("!handled[{}]", message - 1));
        ways.push_back(joined(whole, " && ", "true"));
      }
    }
    return joined(ways, " || ", "false");
  }

  std::vector<std::string> units_recovered(const std::vector<std::size_t>& epochs) const {
    std::vector<std::string> terms;
    for (std::size_t item = 0; item < layout_.script.epoch_of_item.size(); ++item) {
      const std::size_t epoch = layout_.script.epoch_of_item[item];
      if (std::count(epochs.begin(), epochs.end(), epoch) == 0) continue;
      for (std::size_t unit = 0; unit < layout_.units_of(static_cast<Item>(item)); ++unit) {
        terms.push_back(recovered(static_cast<Item>(item), unit));
      }
    }
    return terms;
  }

  std::string run() const {
    std::vector<std::string> safe;
    for (std::size_t index = 0; index < layout_.script.promises.size(); ++index) {
      std::vector<std::string> terms;
      for (const Item item : layout_.script.promises[index].items) {
        for (std::size_t unit = 0; unit < layout_.units_of(item); ++unit) {
          terms.push_back(recovered(item, unit));
        }
      }
      safe.push_back(fmt::format("(acked <= {} || {})", index, joined(terms, " && ", "true")));
    }
    for (std::size_t epoch = 0; epoch < layout_.script.dependents.size(); ++epoch) {
      const std::vector<std::size_t>& later = layout_.script.dependents[epoch];
      if (later.empty()) continue;
      safe.push_back(fmt::format("(!{} || {})", joined(units_recovered(later), " || ", "false"),
                                 joined(units_recovered({epoch}), " && ", "true")));
    }
    return fmt::format(
        "active proctype power() {{\nend: atomic {{ !({} || {}) -> assert(false) }}\n}}\n",
        unsettled(), joined(safe, " &&\n  ", "true"));
  }

  const Layout& layout_;
};

}  // namespace

std::string joined(const std::vector<std::string>& terms, std::string_view by,
                   std::string_view empty) {
  if (terms.empty()) return std::string(empty);
  return fmt::format("({})", fmt::join(terms, by));
}

Layout::Layout(Script asked, const ServerProfile& server, const CheckOptions& bounds)
    : profile(server),
      durable(bounds.level == Level::Durable || bounds.level == Level::Committed),
      options(bounds),
      script(std::move(asked)) {
  for (std::size_t item = 0; item < script.epoch_of_item.size(); ++item) {
    if (shares_place(item) &&
        std::count(places.begin(), places.end(), script.place_of_item[item]) == 0) {
      places.push_back(script.place_of_item[item]);
    }
    item_cell.push_back(cells);
    cells += units_of(static_cast<Item>(item));
  }
  for (std::size_t index = 0; index < script.steps.size(); ++index) {
    const RequesterStep& step = script.steps[index];
    request_of_step.push_back(requests.size());
    if (step.kind != Kind::Post) continue;
    Request request;
    request.step = &step;
    request.connection = script.connection_of_step[index];
    request.slot_first = slots;
    if (sends_items(step.verb)) {
      const bool mark_alone = step.verb == Verb::WritePolled && step.items.empty();
      for (int unit = mark_alone ? 1 : 0; unit < 2; ++unit)
        request.units.push_back({cells++, slots++});
    } else if (brings_items(step.verb)) {
      for (const Item item : step.items) {
        for (std::size_t unit = 0; unit < units_of(item); ++unit) {
          request.units.push_back({item_cell[item] + unit, slots++});
        }
      }
    }
    if (request.units.empty()) ++slots;
    request.slot_last = slots - 1;
    requests.push_back(std::move(request));
  }
}

std::size_t Layout::units_of(Item item) const {
  return script.small_item[item] || shares_place(item) ? 1 : options.units_per_item;
}

bool Layout::shares_place(std::size_t item) const {
  const auto& all = script.place_of_item;
  return !all.empty() && std::count(all.begin(), all.end(), all[item]) > 1;
}

std::optional<Layout::Shared> Layout::shared(std::size_t cell) const {
  const auto found = std::find(item_cell.begin(), item_cell.end(), cell);
  if (found == item_cell.end()) return std::nullopt;
  const auto item = found - item_cell.begin();
  if (!shares_place(static_cast<std::size_t>(item))) return std::nullopt;
  const auto all = script.place_of_item.begin();
  const std::size_t number = all[item];
  const auto place = std::find(places.begin(), places.end(), number) - places.begin();
  return Shared{static_cast<std::size_t>(place),
                static_cast<std::size_t>(std::count(all, all + item + 1, number))};
}

std::string Layout::show(std::size_t cell) const {
  const auto at = shared(cell);
  const std::string visible = fmt::format("vis[{}] = true", cell);
  return at ? fmt::format("{}; now[{}] = {}", visible, at->place, at->version) : visible;
}

std::string Layout::drained(std::size_t cell) const {
  const auto at = shared(cell);
  return at ? fmt::format("med[{0}] == now[{0}]", at->place) : fmt::format("dom[{}]", cell);
}

bool Layout::survives(std::size_t request) const {
  return durable && requests[request].step->replay &&
         profile.receive_buffers == ReceiveBuffers::Pm && profile.domain != PersistenceDomain::None;
}

std::string power_process(const Layout& layout) { return Power(layout).run(); }

}  // namespace perdure::check::promela
