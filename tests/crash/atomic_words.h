// AtomicWords: 8-byte words of a pool that atomics and updates change in turns, and what each of
// them may hold, judged by what their caller was told alone. One atomic done twice, or lost after
// it was reported, leaves a value that no word may hold.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "client/durable_session.h"
#include "core/bytes.h"
#include "core/random.h"

namespace perdure::test {

class AtomicWords {
 public:
  static constexpr std::size_t kWords = 6;
  static constexpr std::uint64_t kBytes = kWords * 8;

  explicit AtomicWords(std::uint64_t at) : at_(at) {
    for (auto& steps : steps_) steps.push_back({});
  }

  std::uint64_t place(std::size_t word) const { return at_ + 8 * word; }

  /// An atomic of `word` that is about to be begun as update `number`.
  persist::Atomic next(Random& random, std::size_t word, std::uint64_t number) {
    using enum persist::AtomicOperation;
    const std::uint64_t now = steps_[word].back().value;
    persist::Atomic atomic{FetchAdd, place(word), 1 + random.below(1u << 20), 0};
    std::uint64_t then = now + atomic.operand;
    if (const auto kind = random.below(3); kind != 0) {
      atomic.operation = kind == 1 ? CompareSwap : Store;
      const bool expects = random.below(2) == 0;
      if (kind == 1) atomic.expected = expects ? now : now + 1;
      then = kind == 2 || expects ? atomic.operand : now;
    }
    steps_[word].push_back({number, true, then});
    return atomic;
  }
  /// The same for an update.
  void note_update(std::size_t word, std::uint64_t number, std::uint64_t value) {
    steps_[word].push_back({number, false, value});
  }

  /// Atomic `number` has brought `before`.
  void check_before(std::uint64_t number, std::uint64_t before) const {
    for (const auto& steps : steps_) {
      for (std::size_t index = 1; index < steps.size(); ++index) {
        if (steps[index].number != number || !steps[index].atomic) continue;
        ASSERT_EQ(before, steps[index - 1].value) << "atomic " << number;
        return;
      }
    }
    FAIL() << "no atomic " << number;
  }
  bool has(std::uint64_t number) const {
    for (const auto& steps : steps_) {
      for (const Step& step : steps) {
        if (step.number == number && step.atomic) return true;
      }
    }
    return false;
  }

  /// What has not resolved by now never will.
  void forget(std::uint64_t resolved) {
    for (auto& steps : steps_) {
      for (Step& step : steps) step.number = step.number <= resolved ? 0 : UINT64_MAX;
    }
  }

  /// Of a word there may be what its last promised step left, or a later one. `pool` is what is
  /// there; from now on nothing else may be. `durable`: of updates, too, what resolved is promised.
  void judge(const std::byte* pool, std::uint64_t resolved, bool durable) {
    for (std::size_t word = 0; word < kWords; ++word) {
      auto& steps = steps_[word];
      const auto value = load<std::uint64_t>(pool + place(word));
      std::size_t least = steps.size() - 1;
      const auto promised = [&](const Step& step) {
        return step.number <= resolved && (step.atomic || durable);
      };
      while (least > 0 && !promised(steps[least])) --least;
      bool found = false;
      for (std::size_t index = least; index < steps.size(); ++index) {
        found = found || steps[index].value == value;
      }
      ASSERT_TRUE(found) << "word " << word << " holds " << value
                         << ", and its last promised step, " << steps[least].number << " of "
                         << resolved << " resolved, left " << steps[least].value << " of "
                         << steps.size() << " steps";
      steps = {{0, true, value}};
    }
  }

 private:
  struct Step {
    std::uint64_t number = 0;  // of the update; 0: it was there
    bool atomic = true;
    std::uint64_t value = 0;
  };

  std::uint64_t at_;
  std::array<std::vector<Step>, kWords> steps_;
};

}  // namespace perdure::test
