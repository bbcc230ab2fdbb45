// broi_controller.sv in lock step with the simulator's controller itself: PersistBuffers and
// OrderingController::choose run on random writes, barriers and persists, and before each choice
// the module gets what is in the buffers.
//
//   controller_lockstep COUNT SEED   so many choices
//
// Prints the number of cases, and the first that differs; exit status 1 if any does. All writes are
// of the same age: a tie goes to the lower entry, as in the module.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "Vbroi_controller.h"
#include "core/assert.h"
#include "memsys/server/ordering.h"
#include "parameters.h"
#include "verilated.h"

/// In place of core's, which brings more than this program needs.
void perdure::assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, condition);
  std::abort();
}

namespace {

using perdure::memsys::Ordering;
using perdure::memsys::OrderingController;
using perdure::memsys::PersistBuffers;
using perdure::memsys::PersistEntry;
using perdure::memsys::PersistId;
using perdure::memsys::PersistStage;
using perdure::memsys::Processor;

constexpr std::uint32_t kUnits = 8;
constexpr std::uint32_t kRemote = 2;  // entries, the last ones
constexpr unsigned kBankBits = 3;
constexpr unsigned kIndexBits = 4;
constexpr std::uint64_t kRemoteWait = 60;
static_assert(ENTRIES == 8 && BANKS == 8, "the widths above are for these");

Processor processor() {
  Processor p;
  p.cores = ENTRIES - kRemote;
  p.threads_per_core = 1;
  p.buffer_entries = 12;
  p.remote_entries = kUnits;  // of both: none has more than its units
  p.queue_entries = kUnits;
  p.barrier_registers = 2;
  p.sigma = 1.0 / (1 << SIGMA_SHIFT);
  p.remote_share = 0.25;
  p.remote_wait_ps = kRemoteWait;
  return p;
}

/// Sets `bits` bits of a port, which is an integer or an array of words of 32 bits.
template <typename Port>
void put(Port& port, unsigned at, unsigned bits, std::uint64_t value) {
  for (unsigned i = 0; i < bits; ++i) {
    const unsigned bit = at + i;
    const bool one = (value >> i & 1) != 0;
    if constexpr (std::is_integral_v<Port>) {
      const Port mask = static_cast<Port>(Port{1} << bit);
      port = static_cast<Port>(one ? port | mask : port & ~mask);
    } else {
      const std::uint32_t mask = std::uint32_t{1} << bit % 32;
      port[bit / 32] = one ? port[bit / 32] | mask : port[bit / 32] & ~mask;
    }
  }
}

class LockStep {
 public:
  explicit LockStep(std::uint64_t seed)
      : random_(seed),
        processor_(processor()),
        buffers_(processor_, kRemote, {}),
        controller_(processor_, Ordering::Broi, {}),
        waiting_(BANKS) {}

  /// False: the module's answer differs.
  bool step() {
    ++now_;
    // Busy and idle times, so that sets are also small.
    const std::uint64_t density = (now_ >> 9) % 6;
    for (std::uint32_t thread = 0; thread < ENTRIES; ++thread) write_some(thread, density);
    buffers_.advance(now_);
    queue_used_ = static_cast<double>(random_() % 100) / 100;
    show();
    module_.eval();
    const std::uint64_t wanted = choose();
    ++compared_;
    nothing_ += wanted == 0 ? 1 : 0;
    const std::uint64_t got = module_.schedule;
    if (got != wanted) {
      std::printf("case %llu: schedule %llx, the simulator chooses %llx\n",
                  static_cast<unsigned long long>(compared_), static_cast<unsigned long long>(got),
                  static_cast<unsigned long long>(wanted));
      return false;
    }
    persist_some();
    return true;
  }
  void print() const {
    std::printf(
        "%llu choices compared: %llu of remote writes and %llu of starved ones, %llu of several "
        "banks, %llu of none\n",
        static_cast<unsigned long long>(compared_), static_cast<unsigned long long>(remote_chosen_),
        static_cast<unsigned long long>(starved_), static_cast<unsigned long long>(several_),
        static_cast<unsigned long long>(nothing_));
  }
  bool covered() const {
    return remote_chosen_ > 0 && starved_ > 0 && several_ > 0 && nothing_ > 0;
  }

 private:
  struct Sent {
    PersistId id;
    std::uint32_t bank = 0;
    bool at_bank = true;
  };

  void write_some(std::uint32_t thread, std::uint64_t density) {
    if (random_() % 8 > density || !buffers_.has_room(thread)) return;
    buffers_.reserve(thread);
    const auto bank = static_cast<std::uint32_t>(random_() % BANKS);
    buffers_.add_write(thread, {next_line_++, bank, 0, now_});
    if (random_() % 3 == 0 && buffers_.has_room(thread)) buffers_.add_fence(thread, now_);
  }

  /// What the controller has of the buffers: writes that are not in it end an entry.
  void show() {
    module_.turn = 0;
    for (unsigned bank = 0; bank < BANKS; ++bank) put(module_.waiting, bank, 1, waiting_[bank]);
    for (unsigned e = 0; e < ENTRIES; ++e) {
      unsigned unit = 0;
      unsigned barriers = 0;
      for (unsigned u = 0; u < kUnits; ++u) put(module_.valid, e * kUnits + u, 1, 0);
      for (unsigned b = 0; b < 2; ++b)
        put(module_.barrier, (2 * e + b) * kIndexBits, kIndexBits, kUnits);
      for (const PersistEntry& entry : buffers_.of(e)) {
        if (entry.stage == PersistStage::Waiting || unit == kUnits) break;
        if (entry.fence) {
          if (barriers == 2) break;
          put(module_.barrier, (2 * e + barriers++) * kIndexBits, kIndexBits, unit);
          continue;
        }
        put(module_.valid, e * kUnits + unit, 1, 1);
        put(module_.sent, e * kUnits + unit, 1, entry.stage == PersistStage::Sent ? 1 : 0);
        put(module_.bank, (e * kUnits + unit) * kBankBits, kBankBits, entry.bank);
        ++unit;
      }
      put(module_.turn, 2 * e, 2, turn_of(e));
    }
  }

  unsigned turn_of(std::uint32_t entry) const {
    if (!buffers_.is_remote(entry)) return 0;
    const auto& entries = buffers_.of(entry);
    if (!entries.empty() && now_ >= entries.front().since + kRemoteWait) return 3;
    return queue_used_ < processor_.remote_share ? 2 : 1;
  }

  /// The simulator chooses one write after the other; those of a class are one Sch-SET.
  std::uint64_t choose() {
    std::uint64_t schedule = 0;
    unsigned turn = 0;
    unsigned chosen = 0;
    for (;; ++chosen) {
      const auto choice = controller_.choose(buffers_, {now_, waiting_, queue_used_});
      if (!choice.id) break;
      const std::uint32_t thread = choice.id->thread;
      if (chosen > 0 && turn_of(thread) != turn) break;
      turn = turn_of(thread);
      std::uint32_t bank = 0;
      for (const PersistEntry& entry : buffers_.of(thread)) {
        if (entry.id == *choice.id) bank = entry.bank;
      }
      buffers_.send(*choice.id, now_);
      ++waiting_[bank];
      sent_.push_back({*choice.id, bank});
      schedule |= std::uint64_t{1} << (bank * ENTRIES + thread);
    }
    remote_chosen_ += turn == 2 ? 1 : 0;
    starved_ += turn == 3 ? 1 : 0;
    several_ += chosen > 1 ? 1 : 0;
    return schedule;
  }

  void persist_some() {
    std::vector<Sent> left;
    for (Sent& each : sent_) {
      if (each.at_bank && random_() % 4 == 0) {
        --waiting_[each.bank];
        each.at_bank = false;
      }
      if (!each.at_bank && random_() % 2 == 0) {
        buffers_.persisted(each.id, now_);
      } else {
        left.push_back(each);
      }
    }
    sent_ = std::move(left);
  }

  Vbroi_controller module_;
  std::mt19937_64 random_;
  const Processor processor_;
  PersistBuffers buffers_;
  OrderingController controller_;
  std::vector<std::uint32_t> waiting_;
  std::vector<Sent> sent_;
  double queue_used_ = 0;
  std::uint64_t now_ = 0;
  std::uint64_t next_line_ = 0;
  std::uint64_t compared_ = 0;
  std::uint64_t nothing_ = 0;
  std::uint64_t remote_chosen_ = 0;
  std::uint64_t starved_ = 0;
  std::uint64_t several_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::uint64_t count = std::strtoull(argv[1], nullptr, 10);
  const auto lock_step = std::make_unique<LockStep>(std::strtoull(argv[2], nullptr, 10));
  bool same = true;
  for (std::uint64_t i = 0; same && i < count; ++i) same = lock_step->step();
  lock_step->print();
  return same && lock_step->covered() ? 0 : 1;
}
