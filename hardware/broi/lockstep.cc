// broi_schedule.sv in lock step with the simulator's priority (memsys::broi_priority): compiled by
// lockstep.py together with what verilator makes of the module.
//
//   lockstep random COUNT SEED   so many random cases
//   lockstep all                 every case there is; for sizes for which there are few
//
// Prints the number of cases, and the first that differs; exit status 1 if any does. The schedule
// is read LATENCY clocks after its inputs, which change at every clock.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "Vbroi_schedule.h"
#include "memsys/broi_priority.h"
#include "parameters.h"
#include "verilated.h"

namespace {

constexpr unsigned kBitsMax = 24;  // of all inputs together, for trying all of them
constexpr double kSigma = 1.0 / (1 << SIGMA_SHIFT);

struct Case {
  std::vector<std::uint64_t> ready = std::vector<std::uint64_t>(ENTRIES);
  std::vector<std::uint64_t> next = ready;
  std::vector<std::uint64_t> unsent = ready;
  std::vector<std::uint64_t> size = ready;
  std::uint64_t waiting = 0;
  std::uint64_t turns = 0;  // two bits an entry, as the module has them
};

constexpr std::uint64_t ones(unsigned bits) { return (std::uint64_t{1} << bits) - 1; }

/// Each field from the bits that `draw` gives.
template <typename Draw>
Case make_case(Draw draw) {
  Case made;
  for (std::size_t e = 0; e < ENTRIES; ++e) {
    made.ready[e] = draw(BANKS);
    made.next[e] = draw(BANKS);
    made.unsent[e] = draw(BANKS) & made.ready[e];  // what was not sent is part of what is ready
    made.size[e] = draw(SIZE_BITS);
  }
  made.waiting = draw(BANKS);
  made.turns = draw(2 * ENTRIES);
  return made;
}

/// The Sch-SET as the simulator chooses (OrderingController::best_of_ready), of each bank for
/// itself; all writes are of the same age.
std::uint64_t expected(const Case& in) {
  std::uint64_t schedule = 0;
  for (const unsigned turn : {3U, 0U, 2U}) {
    for (unsigned bank = 0; bank < BANKS; ++bank) {
      double best = 0;
      int chosen = -1;
      for (unsigned e = 0; e < ENTRIES; ++e) {
        if ((in.turns >> 2 * e & 3) != turn) continue;
        if (((in.unsent[e] & ~in.waiting) >> bank & 1) == 0) continue;
        const double priority =
            perdure::memsys::broi_priority(in.ready, e, {&in.next[e], 1}, in.size[e], kSigma);
        if (chosen >= 0 && priority <= best) continue;
        best = priority;
        chosen = static_cast<int>(e);
      }
      if (chosen >= 0) schedule |= std::uint64_t{1} << (bank * ENTRIES + unsigned(chosen));
    }
    if (schedule != 0) break;  // what comes first goes alone
  }
  return schedule;
}

std::uint64_t packed(const std::vector<std::uint64_t>& fields, unsigned bits) {
  std::uint64_t all = 0;
  for (std::size_t e = 0; e < fields.size(); ++e) all |= fields[e] << (e * bits);
  return all;
}

/// Ports are as wide as verilator makes them.
template <typename Port>
void set(Port& port, std::uint64_t value) {
  port = static_cast<Port>(value);
}

class LockStep {
 public:
  /// False: the module's answer differs.
  bool run(const Case& in) {
    set(module_.ready, packed(in.ready, BANKS));
    set(module_.next, packed(in.next, BANKS));
    set(module_.unsent, packed(in.unsent, BANKS));
    set(module_.size, packed(in.size, SIZE_BITS));
    set(module_.waiting, in.waiting);
    set(module_.turn, in.turns);
    owed_.push_back(expected(in));
    module_.clock = 0;
    module_.eval();
    if (LATENCY == 0) return compare();
    module_.clock = 1;
    module_.eval();
    if (owed_.size() < LATENCY) return true;
    return compare();
  }
  /// What is in the registers when there are no more cases.
  bool drain() {
    bool same = true;
    for (unsigned i = 1; same && i < LATENCY; ++i) same = run({});
    return same;
  }
  std::uint64_t compared() const { return compared_; }
  std::uint64_t nothing() const { return nothing_; }

 private:
  bool compare() {
    const std::uint64_t wanted = owed_.front();
    owed_.pop_front();
    ++compared_;
    nothing_ += wanted == 0 ? 1 : 0;
    if (module_.schedule == wanted) return true;
    std::printf(
        "case %llu: schedule %llx, expected %llx\n", static_cast<unsigned long long>(compared_),
        static_cast<unsigned long long>(module_.schedule), static_cast<unsigned long long>(wanted));
    return false;
  }

  Vbroi_schedule module_;
  std::deque<std::uint64_t> owed_;
  std::uint64_t compared_ = 0;
  std::uint64_t nothing_ = 0;  // of those, without any write to send
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const auto lock_step = std::make_unique<LockStep>();
  std::uint64_t count = 0;
  bool same = true;
  if (std::strcmp(argv[1], "all") == 0) {
    constexpr unsigned kBits = ENTRIES * (3 * BANKS + SIZE_BITS) + BANKS + 2 * ENTRIES;
    if (kBits > kBitsMax) return 2;
    count = std::uint64_t{1} << (kBits % 64);
    for (std::uint64_t number = 0; same && number < count; ++number) {
      std::uint64_t rest = number;
      same = lock_step->run(make_case([&rest](unsigned bits) {
        const std::uint64_t value = rest & ones(bits);
        rest >>= bits;
        return value;
      }));
    }
  } else if (argc > 3) {
    count = std::strtoull(argv[2], nullptr, 10);
    std::mt19937_64 random(std::strtoull(argv[3], nullptr, 10));
    // Every other case is sparse, so that banks and candidates are also few.
    for (std::uint64_t number = 0; same && number < count; ++number) {
      same = lock_step->run(make_case([&random, number](unsigned bits) {
        const std::uint64_t value = random() & ones(bits);
        return number % 2 == 0 ? value : value & random();
      }));
    }
  }
  same = same && lock_step->drain();
  std::printf("%llu cases compared, %llu of them with nothing to send\n",
              static_cast<unsigned long long>(lock_step->compared()),
              static_cast<unsigned long long>(lock_step->nothing()));
  return same && count > 0 && lock_step->compared() == count ? 0 : 1;
}
