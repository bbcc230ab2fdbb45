// Which sequences a set allows, and each of them explored.
#include "check/set_check.h"

#include "check/check.h"
#include "check/explorer.h"
#include "check/program_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::check {
namespace {

bool has_word(const SetMember& member) { return member.method.shape.items_per_epoch.size() > 1; }

/// Writes down one sequence after another.
class Sequences {
 public:
  explicit Sequences(const std::vector<SetMember>& members) : members_(members) {}

  std::vector<SetSequence> run(std::size_t updates_max) {
    for (std::size_t length = 2; length <= updates_max; ++length) {
      std::vector<std::size_t> methods(length, 0);
      do add(methods);
      while (advance(methods));
    }
    return std::move(sequences_);
  }

 private:
  bool advance(std::vector<std::size_t>& methods) const {
    for (std::size_t at = methods.size(); at-- > 0;) {
      if (++methods[at] < members_.size()) return true;
      methods[at] = 0;
    }
    return false;
  }

  void add(const std::vector<std::size_t>& methods) {
    add_with(methods, 0);
    if (const std::size_t after = reused_after(methods)) add_with(methods, after);
  }

  /// The update after whose end, counted from 1, the last update may write over the first; 0: it
  /// may not.
  std::size_t reused_after(const std::vector<std::size_t>& methods) const {
    if (members_[methods.back()].reuse == Reuse::Never) return 0;
    switch (members_[methods.front()].reuse) {
      case Reuse::Never: return 0;
      case Reuse::AfterItsEnd: return 1;
      case Reuse::AfterAnother: break;
    }
    for (std::size_t between = 1; between + 1 < methods.size(); ++between) {
      if (members_[methods[between]].reuse == Reuse::AfterItsEnd) return between + 1;
    }
    return 0;
  }

  void add_with(const std::vector<std::size_t>& methods, std::size_t reused_after) {
    SetSequence sequence;
    sequence.methods = methods;
    constexpr std::size_t kWord = 0;
    std::size_t places = 1;
    std::size_t first_place = 0;  // of the first update
    std::size_t items = 0;
    for (std::size_t index = 0; index < methods.size(); ++index) {
      const SetMember& member = members_[methods[index]];
      MixedUpdate update;
      update.method = member.method;
      update.has_word = has_word(member);
      update.vouched = member.vouched;
      const bool over = reused_after != 0 && index + 1 == methods.size();
      if (over) update.after = reused_after;
      const std::size_t last_epoch = member.method.shape.items_per_epoch.size() - 1;
      std::string where;
      for (std::size_t item = 0; item < member.method.shape.items(); ++item) {
        const auto epoch = member.method.shape.epoch_of(static_cast<Item>(item));
        const bool word = update.has_word && epoch == last_epoch;
        const std::size_t place = word ? kWord : places++;
        if (index == 0 && item == 0) first_place = place;
        update.places.push_back(over && item == 0 ? first_place : place);
        where += fmt::format("{}{}", item == 0 ? "" : ", ", item_name(static_cast<Item>(items++)));
        if (over && item == 0)
          where += fmt::format(" where a is, once update {} has resolved", reused_after);
        if (word) where += " as the word";
      }
      sequence.text +=
          fmt::format("{}{} ({})", index == 0 ? "" : ", then ", member.method.name, where);
      sequence.updates.push_back(std::move(update));
    }
    sequences_.push_back(std::move(sequence));
  }

  const std::vector<SetMember>& members_;
  std::vector<SetSequence> sequences_;
};

}  // namespace

std::vector<SetSequence> sequences(const std::vector<SetMember>& members, std::size_t updates_max) {
  if (members.empty()) return {};
  return Sequences(members).run(updates_max);
}

Report check_sequence(const std::vector<MixedUpdate>& updates, const ServerProfile& profile,
                      const SetOptions& options) {
  std::size_t items = 0;
  for (const MixedUpdate& update : updates) {
    if (const auto reason = meaningless(update.method)) return report_not_modelled(*reason);
    items += update.method.shape.items();
  }
  if (items > kItemsInFlightMax) return report_not_modelled("too many items in flight");
  Report report =
      run_script(make_script(updates), profile,
                 {options.level, options.units_per_item, Recovery::Careful}, options.states_max);
  report.bounds.in_flight.updates = updates.size();
  report.bounds.in_flight.between = Between::AcknowledgedInOrder;
  for (const MixedUpdate& update : updates) {
    if (report.holds() && is_refused(update.method, profile)) {
      return report_refused(update.method, profile);
    }
  }
  return report;
}

SetReport check_set(const std::vector<SetMember>& members, const ServerProfile& profile,
                    const SetOptions& options) {
  SetReport result;
  result.options = options;
  for (SetSequence& sequence : sequences(members, options.updates_max)) {
    Report report = check_sequence(sequence.updates, profile, options);
    ++result.sequences;
    result.states += report.states;
    result.transitions += report.transitions;
    if (report.holds()) continue;
    result.verdict = report.verdict;
    result.report = std::move(report);
    result.failed = std::move(sequence);
    break;
  }
  return result;
}

}  // namespace perdure::check
