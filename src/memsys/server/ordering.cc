// The designs, side by side: see ordering.h.
#include "memsys/server/ordering.h"

#include "core/named.h"
#include "memsys/bank_bits.h"
#include "memsys/broi_priority.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::memsys {
namespace {

constexpr std::array<std::string_view, 8> kOrderingNames{"sync", "epoch",  "thread", "broi",
                                                         "hops", "strand", "asap",   "eadr"};

/// ASAP: a thread's writes go in their order, whatever barriers are between them.
const PersistEntry* next_ahead(const PersistBuffers& buffers, std::uint32_t thread, Time now) {
  for (const PersistEntry& entry : buffers.of(thread)) {
    if (entry.stage == PersistStage::Waiting) return nullptr;
    if (entry.fence || entry.stage >= PersistStage::Sent) continue;
    const bool held = buffers.is_held_back(thread) && !buffers.is_safe(entry.id, now);
    return held ? nullptr : &entry;
  }
  return nullptr;
}

/// What the BROI controller knows of one of its entries: the banks of its SubReady-SET and of its
/// Next-SET. Returns the size of the former.
std::uint64_t broi_entry(const std::deque<PersistEntry>& entries, std::span<std::uint64_t> ready,
                         std::span<std::uint64_t> next) {
  std::uint64_t size = 0;
  int fences = 0;
  for (const PersistEntry& entry : entries) {
    if (entry.stage == PersistStage::Waiting) break;  // not in the controller
    if (entry.fence) {
      if (++fences == 2) break;
    } else if (fences == 0) {
      set_bit(ready, entry.bank);
      ++size;
    } else {
      set_bit(next, entry.bank);
    }
  }
  return size;
}

/// A thread's part of the Ready-SET: what is in the controller before its first barrier.
template <typename Visit>
void for_each_ready(const std::deque<PersistEntry>& entries, Visit visit) {
  for (const PersistEntry& entry : entries) {
    if (entry.fence || entry.stage == PersistStage::Waiting) return;
    visit(entry);
  }
}

}  // namespace

std::string_view to_string(Ordering ordering) {
  return kOrderingNames.at(static_cast<std::size_t>(ordering));
}

std::string ordering_names() { return fmt::format("{}", fmt::join(kOrderingNames, "|")); }

Result<Ordering> parse_ordering(std::string_view word) {
  return find_named<Ordering>("order", word, kOrderingNames);
}

bool is_remote_ordering(Ordering ordering) {
  return std::find(kRemoteOrderings.begin(), kRemoteOrderings.end(), ordering) !=
         kRemoteOrderings.end();
}

BufferRules rules_of(Ordering ordering) {
  return {.poll_ps = ordering == Ordering::Hops ? kHopsPollNs * 1000 : 0,
          .strands = ordering == Ordering::Strand,
          .by_epoch = ordering == Ordering::Hops || ordering == Ordering::Asap,
          .sends_ahead = ordering == Ordering::Asap};
}

OrderingController::OrderingController(const Processor& processor, Ordering ordering,
                                       ControllerMutant mutant)
    : processor_(processor), ordering_(ordering), mutant_(mutant) {}

OrderingController::Choice OrderingController::choose(const PersistBuffers& buffers,
                                                      const ControllerView& view) {
  const Choice choice = choose_unbroken(buffers, view);
  if (choice.id && choice.id->thread == mutant_.holds_thread) return {};
  return choice;
}

OrderingController::Choice OrderingController::choose_unbroken(const PersistBuffers& buffers,
                                                               const ControllerView& view) {
  if (ordering_ == Ordering::Broi && !mutant_.ignores_barriers) {
    find_sets(buffers, bank_words(view.bank_waiting.size()));
    const Choice choice = choose_broi(buffers, view);
    if (log_ != nullptr) note(buffers, view, choice);
    return choice;
  }
  newest_sent_.resize(buffers.threads());
  Choice choice = choose_oldest(buffers, view.now);
  if (ordering_ != Ordering::Epoch || choice.id || in_round_ > 0) return choice;
  // All of the round is persisted and nobody can add to it: all pass their barriers.
  ++round_;
  return choose_oldest(buffers, view.now);
}

/// The oldest of the writes that may go, whatever its bank.
OrderingController::Choice OrderingController::choose_oldest(const PersistBuffers& buffers,
                                                             Time now) const {
  const PersistEntry* oldest = nullptr;
  const bool asap = ordering_ == Ordering::Asap;
  for (std::uint32_t thread = 0; thread < buffers.threads(); ++thread) {
    const PersistEntry* const entry =
        asap ? next_ahead(buffers, thread, now) : oldest_of(buffers, thread);
    if (entry == nullptr) continue;
    if (oldest == nullptr || entry->ready < oldest->ready) oldest = entry;
  }
  if (oldest == nullptr) return {};
  return {oldest->id, kTimeNever};
}

/// Of a thread, before its first barrier; or before that of each of its strands.
const PersistEntry* OrderingController::oldest_of(const PersistBuffers& buffers,
                                                  std::uint32_t thread) const {
  if (ordering_ == Ordering::Hops && !buffers.drains(thread)) return nullptr;
  const PersistEntry* oldest = nullptr;
  std::uint64_t strand = 0;
  bool held = false;  // the strand, by a barrier or by what is not in the controller
  for (const PersistEntry& entry : buffers.of(thread)) {
    held &= entry.strand == strand;
    strand = entry.strand;
    held |= entry.stage == PersistStage::Waiting || (entry.fence && !mutant_.ignores_barriers);
    if (held && ordering_ != Ordering::Strand) break;
    if (held || entry.fence || entry.stage == PersistStage::Sent) continue;
    if (ordering_ == Ordering::Epoch && !mutant_.ignores_barriers &&
        newest_sent_[thread].round == round_ && newest_sent_[thread].epoch != entry.epoch) {
      break;
    }
    if (oldest == nullptr || entry.ready < oldest->ready) oldest = &entry;
  }
  return oldest;
}

/// Remote writes that have waited too long, then local ones, then remote ones when the memory
/// controller has little to do (section IV.D, discussion).
OrderingController::Choice OrderingController::choose_broi(const PersistBuffers& buffers,
                                                           const ControllerView& view) const {
  const Choice starved = best_of_ready(buffers, view, Turn::Starved);
  if (starved.id) return starved;
  const Choice local = best_of_ready(buffers, view, Turn::Local);
  if (local.id) return local;
  if (view.queue_used >= processor_.remote_share) return starved;
  return best_of_ready(buffers, view, Turn::Remote);
}

void OrderingController::note(const PersistBuffers& buffers, const ControllerView& view,
                              const Choice& choice) const {
  BroiChoice& noted = log_->emplace_back(BroiChoice{view.now, choice.id, {}, {}});
  for (std::uint32_t i = 0; i < buffers.threads(); ++i) {
    for_each_ready(buffers.of(i), [&](const PersistEntry& e) { noted.ready_set.push_back(e.id); });
  }
  // A bank's candidate is what would be chosen if a write waited for every other bank.
  for (std::size_t bank = 0; bank < view.bank_waiting.size(); ++bank) {
    std::vector<std::uint32_t> waiting(view.bank_waiting.size(), ~std::uint32_t{0});
    waiting[bank] = view.bank_waiting[bank];
    const Choice candidate = choose_broi(buffers, {view.now, waiting, view.queue_used});
    if (candidate.id) noted.sch_set.push_back(*candidate.id);
  }
}

void OrderingController::find_sets(const PersistBuffers& buffers, std::size_t words) {
  const std::uint32_t threads = buffers.threads();
  ready_sets_.assign(threads * words, 0);
  next_sets_.assign(threads * words, 0);
  ready_sizes_.resize(threads);
  for (std::uint32_t i = 0; i < threads; ++i) {
    const auto set_of = [&](std::vector<std::uint64_t>& sets) {
      return std::span(sets).subspan(i * words, words);
    };
    ready_sizes_[i] = broi_entry(buffers.of(i), set_of(ready_sets_), set_of(next_sets_));
  }
}

bool OrderingController::has_turn(const PersistBuffers& buffers, std::uint32_t thread, Time now,
                                  Turn turn) const {
  if (turn == Turn::Local || !buffers.is_remote(thread)) {
    return turn == Turn::Local && !buffers.is_remote(thread);
  }
  return turn == Turn::Remote || now >= starves_at(buffers, thread);
}

/// Steps i to iii of section IV.D: the priority of each SubReady-SET by equation 2; of each bank
/// the candidate of the highest priority. That a bank with so many writes in the memory controller
/// gets none is an assumption of this model; a remote write goes where none waits.
OrderingController::Choice OrderingController::best_of_ready(const PersistBuffers& buffers,
                                                             const ControllerView& view,
                                                             Turn turn) const {
  const std::size_t words = bank_words(view.bank_waiting.size());
  const std::uint64_t most = turn == Turn::Local ? processor_.bank_writes : 1;
  Choice choice;
  double best = 0;
  Time best_ready = 0;
  for (std::uint32_t i = 0; i < buffers.threads(); ++i) {
    if (ready_sizes_[i] == 0) continue;
    if (!has_turn(buffers, i, view.now, turn)) {
      if (buffers.is_remote(i) && starves_at(buffers, i) > view.now) {
        choice.ask_again = std::min(choice.ask_again, starves_at(buffers, i));
      }
      continue;
    }
    std::optional<double> priority;  // asked for by the first entry that may go
    for_each_ready(buffers.of(i), [&](const PersistEntry& entry) {
      if (entry.stage == PersistStage::Sent || view.bank_waiting[entry.bank] >= most) return;
      if (!priority) {
        priority = broi_priority(ready_sets_, i, std::span(next_sets_).subspan(i * words, words),
                                 ready_sizes_[i], processor_.sigma);
      }
      const bool better =
          !choice.id || *priority > best || (*priority == best && entry.ready < best_ready);
      if (!better) return;
      choice.id = entry.id;
      best = *priority;
      best_ready = entry.ready;
    });
  }
  return choice;
}

void OrderingController::on_sent(const PersistEntry& entry) {
  newest_sent_.resize(std::max<std::size_t>(newest_sent_.size(), entry.id.thread + 1));
  newest_sent_[entry.id.thread] = {round_, entry.epoch};
  ++in_round_;
}

void OrderingController::on_persisted() { --in_round_; }

}  // namespace perdure::memsys
