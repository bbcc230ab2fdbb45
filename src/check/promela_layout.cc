// Lays out a Promela model, and prints what must be true in each of its states.
#include "check/promela_layout.h"

#include <fmt/format.h>

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

  /// One unit of an item, by itself or by the replay of a message that carries the item.
  std::string recovered(Item item, std::size_t unit) const {
    std::vector<std::string> ways{kept(layout_.item_cell[item] + unit)};
    std::size_t message = 0;
    for (std::size_t index = 0; index < layout_.requests.size(); ++index) {
      const RequesterStep& step = *layout_.requests[index].step;
      if (!is_message(step)) continue;
      ++message;
      if (!layout_.survives(index)) continue;
      for (const Item carried : step.items) {
        if (carried != item) continue;
        std::vector<std::string> whole;
        for (const Unit& part : layout_.requests[index].units) whole.push_back(kept(part.cell));
        const bool reacts = !layout_.script.reactions[message - 1].empty();
        if (reacts) whole.push_back(fmt::format("!handled[{}]", message - 1));
        ways.push_back(joined(whole, " && ", "true"));
      }
    }
    return joined(ways, " || ", "false");
  }

  std::vector<std::string> units_recovered(std::size_t epoch_first, std::size_t epoch_end) const {
    std::vector<std::string> terms;
    for (std::size_t item = 0; item < layout_.script.epoch_of_item.size(); ++item) {
      const std::size_t epoch = layout_.script.epoch_of_item[item];
      if (epoch < epoch_first || epoch >= epoch_end) continue;
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
    for (std::size_t epoch = 0; epoch < layout_.script.chain_end.size(); ++epoch) {
      if (epoch + 1 >= layout_.script.chain_end[epoch]) continue;
      safe.push_back(fmt::format(
          "(!{} || {})",
          joined(units_recovered(epoch + 1, layout_.script.chain_end[epoch]), " || ", "false"),
          joined(units_recovered(epoch, epoch + 1), " && ", "true")));
    }
    return fmt::format("active proctype power() {{\nend: atomic {{ !{} -> assert(false) }}\n}}\n",
                       joined(safe, " &&\n  ", "true"));
  }

  const Layout& layout_;
};

}  // namespace

bool posted(Verb verb) {
  return verb == Verb::Write || verb == Verb::WriteImm || verb == Verb::Send ||
         verb == Verb::WritePersist;
}

std::string joined(const std::vector<std::string>& terms, std::string_view by,
                   std::string_view empty) {
  if (terms.empty()) return std::string(empty);
  return fmt::format("({})", fmt::join(terms, by));
}

Layout::Layout(const Method& method, const ServerProfile& server, const CheckOptions& bounds)
    : profile(server),
      durable(bounds.level == Level::Durable || bounds.level == Level::Committed),
      options(bounds),
      script(make_script(method, in_flight(bounds))) {
  for (std::size_t item = 0; item < script.epoch_of_item.size(); ++item) {
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
    if (step.verb == Verb::Send) {
      for (int unit = 0; unit < 2; ++unit) request.units.push_back({cells++, slots++});
    } else if (step.verb != Verb::Read && step.verb != Verb::Flush) {
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
  return script.small_item[item] ? 1 : options.units_per_item;
}

bool Layout::survives(std::size_t request) const {
  return durable && requests[request].step->replay &&
         profile.receive_buffers == ReceiveBuffers::Pm && profile.domain != PersistenceDomain::None;
}

std::string power_process(const Layout& layout) { return Power(layout).run(); }

}  // namespace perdure::check::promela
