// Generates mutants, kind by kind.
#include "check/mutate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace perdure::check {
namespace {

using Kind = RequesterStep::Kind;

class Weakener {
 public:
  explicit Weakener(const Method& method) : method_(method) {}

  std::vector<Mutant> run() {
    drop_steps();
    drop_reactions();
    swap_steps();
    swap_reactions();
    wait_earlier();
    flush_less();
    return std::move(found_);
  }

 private:
  void add(std::string what, Method mutated) {
    if (mutated == method_) return;
    const bool known = std::any_of(found_.begin(), found_.end(),
                                   [&](const Mutant& other) { return other.method == mutated; });
    if (known) return;
    found_.push_back({std::move(what), std::move(mutated)});
  }

  /// The step as a sentence can name it; waits name what they wait for.
  std::string words(std::size_t index) const {
    const RequesterStep& step = method_.requester[index];
    if (step.kind != Kind::WaitCompletion) return describe(step);
    return "wait for the completion of " + describe(method_.requester[step.of]);
  }

  /// The method without the steps for which `gone` is true; the waits are renumbered.
  Method without(const std::vector<bool>& gone) const {
    Method mutated = method_;
    mutated.requester.clear();
    std::vector<std::size_t> moved(gone.size(), 0);
    std::size_t message = 0;
    for (std::size_t index = 0; index < gone.size(); ++index) {
      moved[index] = mutated.requester.size();
      RequesterStep step = method_.requester[index];
      if (gone[index]) {
        const bool reacts = is_message(step) && message < mutated.responder.size();
        if (reacts) {
          mutated.responder.erase(mutated.responder.begin() + static_cast<std::ptrdiff_t>(message));
        }
        continue;
      }
      if (is_message(step)) ++message;
      if (step.kind == Kind::WaitCompletion) step.of = moved[step.of];
      mutated.requester.push_back(std::move(step));
    }
    return mutated;
  }

  void drop_steps() {
    const auto& steps = method_.requester;
    for (std::size_t index = 0; index < steps.size(); ++index) {
      std::vector<bool> gone(steps.size(), false);
      gone[index] = true;
      for (std::size_t wait = index + 1; wait < steps.size(); ++wait) {
        if (steps[wait].kind == Kind::WaitCompletion && steps[wait].of == index) gone[wait] = true;
      }
      add("drop " + words(index), without(gone));
    }
  }

  void drop_reactions() {
    for (std::size_t message = 0; message < method_.responder.size(); ++message) {
      for (std::size_t at = 0; at < method_.responder[message].size(); ++at) {
        Method mutated = method_;
        auto& reaction = mutated.responder[message];
        reaction.erase(reaction.begin() + static_cast<std::ptrdiff_t>(at));
        add(fmt::format("drop the responder's {}", describe(method_.responder[message][at])),
            std::move(mutated));
      }
    }
  }

  void swap_steps() {
    for (std::size_t index = 0; index + 1 < method_.requester.size(); ++index) {
      Method mutated = method_;
      auto& steps = mutated.requester;
      // A wait can not come before the post that it waits for.
      if (steps[index + 1].kind == Kind::WaitCompletion && steps[index + 1].of == index) continue;
      std::swap(steps[index], steps[index + 1]);
      for (RequesterStep& step : steps) {
        if (step.kind != Kind::WaitCompletion) continue;
        if (step.of == index) {
          step.of = index + 1;
        } else if (step.of == index + 1) {
          step.of = index;
        }
      }
      swap_reactions_of(index, mutated);
      add(fmt::format("swap {} and {}", words(index), words(index + 1)), std::move(mutated));
    }
  }

  /// Two neighbouring messages take their reactions along.
  void swap_reactions_of(std::size_t index, Method& mutated) const {
    if (!is_message(method_.requester[index]) || !is_message(method_.requester[index + 1])) return;
    const auto message = static_cast<std::size_t>(
        std::count_if(method_.requester.begin(),
                      method_.requester.begin() + static_cast<std::ptrdiff_t>(index), is_message));
    if (mutated.responder.size() < message + 2) mutated.responder.resize(message + 2);
    std::swap(mutated.responder[message], mutated.responder[message + 1]);
    while (!mutated.responder.empty() && mutated.responder.back().empty()) {
      mutated.responder.pop_back();
    }
  }

  void swap_reactions() {
    for (std::size_t message = 0; message < method_.responder.size(); ++message) {
      const auto& reaction = method_.responder[message];
      for (std::size_t at = 0; at + 1 < reaction.size(); ++at) {
        Method mutated = method_;
        std::swap(mutated.responder[message][at], mutated.responder[message][at + 1]);
        add(fmt::format("swap the responder's {} and {}", describe(reaction[at]),
                        describe(reaction[at + 1])),
            std::move(mutated));
      }
    }
  }

  void wait_earlier() {
    const auto& steps = method_.requester;
    for (std::size_t wait = 0; wait < steps.size(); ++wait) {
      if (steps[wait].kind == Kind::Post) continue;
      const std::size_t end = steps[wait].kind == Kind::WaitAck ? wait : steps[wait].of;
      for (std::size_t earlier = 0; earlier < end; ++earlier) {
        if (steps[earlier].kind != Kind::Post) continue;
        Method mutated = method_;
        mutated.requester[wait] = RequesterStep{};
        mutated.requester[wait].kind = Kind::WaitCompletion;
        mutated.requester[wait].of = earlier;
        add(fmt::format("wait for the completion of {} instead of: {}", words(earlier),
                        words(wait)),
            std::move(mutated));
      }
    }
  }

  void flush_less() {
    for (std::size_t index = 0; index < method_.requester.size(); ++index) {
      const RequesterStep& step = method_.requester[index];
      for (std::size_t at = 0; at < step.flush.size(); ++at) {
        Method mutated = method_;
        auto& addresses = mutated.requester[index].flush;
        addresses.erase(addresses.begin() + static_cast<std::ptrdiff_t>(at));
        add(fmt::format("no address of {} in {}", item_name(step.flush[at]), words(index)),
            std::move(mutated));
      }
      for (std::size_t at = 0; at < step.readable.size(); ++at) {
        Method mutated = method_;
        auto& places = mutated.requester[index].readable;
        places.erase(places.begin() + static_cast<std::ptrdiff_t>(at));
        add(fmt::format("no place of {} in {}", item_name(step.readable[at]), words(index)),
            std::move(mutated));
      }
      Method mutated = method_;
      if (step.kind == Kind::Post &&
          (step.verb == Verb::WriteAtomic || step.verb == Verb::WritePersist)) {
        mutated.requester[index].verb = Verb::Write;
        add("a plain WRITE for " + words(index), mutated);
      }
      if (step.kind == Kind::Post && step.verb == Verb::SendFlush) {
        mutated.requester[index].verb = Verb::Flush;
        add("a FLUSH for " + words(index), mutated);
      }
      mutated = method_;
      mutated.requester[index].fenced = false;
      add("no fence at " + words(index), mutated);
      mutated = method_;
      mutated.requester[index].checked = false;
      add("no checksum of " + words(index), mutated);
      mutated = method_;
      mutated.requester[index].replay = false;
      add("no replay of " + words(index), std::move(mutated));
    }
  }

  const Method& method_;
  std::vector<Mutant> found_;
};

}  // namespace

std::vector<Mutant> mutants(const Method& method) { return Weakener(method).run(); }

}  // namespace perdure::check
