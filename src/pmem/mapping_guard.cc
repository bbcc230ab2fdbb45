// See mapping_guard.h. The handler uses nothing but lock-free atomics, mmap, sigaction and write.
#include "pmem/mapping_guard.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include "core/mutex.h"

namespace perdure::pmem {
namespace {

/// `end` is set last and cleared first: a slot whose end is 0 holds nothing.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<bool> failed{false};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

std::array<Slot, MappingGuard::kGuardedMax> guarded_slots;
std::atomic<std::size_t> slots_used{0};  // guarded_slots from here on were never taken
std::atomic<std::uint64_t> caught{0};
std::atomic<int> notice{-1};
std::uintptr_t guarded_page_bytes = 4096;  // set before the handler is installed

Mutex install_mutex;
/// Whom a fault that is not ours is passed to. Two places, so that the handler always reads a whole
/// one while the other is being written.
std::array<struct sigaction, 2> handlers_before;
std::atomic<int> before_at{-1};  // -1: the default

// Set while a fault is being passed on: a handler that passes it back must not begin a circle.
// constinit: the handler must not run an initialisation.
constinit thread_local volatile std::sig_atomic_t passing_on = 0;

/// A connection that ends with a mapping. `slot` is set last and cleared first; 0: free.
struct TieEntry {
  std::atomic<bool> taken{false};
  std::atomic<std::size_t> slot{0};  // plus 1
  std::atomic<int> socket{-1};
  std::atomic<std::atomic<bool>*> cut{nullptr};
};
std::array<TieEntry, MappingGuard::kTiesMax> ties;
std::atomic<std::size_t> ties_used{0};
std::atomic<int> handlers{0};  // threads that are within take_fault

void turn_all(std::size_t slot) {
  const std::size_t used = ties_used.load();
  for (std::size_t i = 0; i < used; ++i) {
    const TieEntry& tie = ties[i];
    if (tie.slot.load() == slot + 1) CutSwitch{tie.socket.load(), tie.cut.load()}.turn();
  }
}

class Tie final : public FailureTie {
 public:
  explicit Tie(std::size_t entry) : entry_(entry) {}
  ~Tie() override {
    ties[entry_].slot.store(0);
    // A handler may have seen it, and be about to shut down a socket whose number is free soon.
    while (handlers.load() != 0) std::this_thread::yield();
    ties[entry_].taken.store(false);
  }
  Tie(const Tie&) = delete;
  Tie& operator=(const Tie&) = delete;

 private:
  const std::size_t entry_;
};

/// Puts zeros in the place of the smallest unit around `at` that the kernel lets go. That is a page
/// of a file; but device DAX and hugetlbfs are split only at multiples of their own alignment,
/// 2 MiB or 1 GiB (dev_dax_may_split, hugetlb_vm_op_split of Linux), and a MAP_FIXED that would
/// split them elsewhere fails and changes nothing. So the kernel is asked, and no file about it.
bool replace_unit(std::uintptr_t at, std::uintptr_t begin, std::uintptr_t end) {
  for (std::uintptr_t bytes = guarded_page_bytes; bytes != 0; bytes *= 2) {
    const std::uintptr_t first = at & ~(bytes - 1);
    if (first < begin || end - first < bytes) return false;
    void* const place = reinterpret_cast<void*>(first);
    if (::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1,
               0) == place)
      return true;
  }
  return false;
}

void give_notice() {
  const std::uint64_t one = 1;
  const int descriptor = notice.load(std::memory_order_relaxed);
  if (descriptor >= 0) {
    [[maybe_unused]] const auto written = ::write(descriptor, &one, sizeof one);
  }
}

/// Whether the fault was in a guarded mapping and the access can be repeated.
bool take_fault(std::uintptr_t at) {
  const std::size_t used = slots_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    Slot& slot = guarded_slots[i];
    const std::uintptr_t end = slot.end.load(std::memory_order_acquire);
    const std::uintptr_t begin = slot.begin.load(std::memory_order_relaxed);
    if (at >= end || at < begin) continue;
    // First the mark: whoever sees what is in the new page can see that it is worth nothing.
    slot.failed.store(true, std::memory_order_seq_cst);
    turn_all(i);
    if (!replace_unit(at, begin, end)) return false;
    caught.fetch_add(1, std::memory_order_relaxed);
    give_notice();
    return true;
  }
  return false;
}

void die_of(int signal, const siginfo_t* info) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  // A fault repeats when the handler returns, and the core shows its place; a signal that somebody
  // sent does not.
  if (info == nullptr || info->si_code <= 0) ::raise(signal);
}

void pass_on(int signal, siginfo_t* info, void* context) {
  const int at = before_at.load(std::memory_order_acquire);
  if (at < 0 || passing_on != 0) return die_of(signal, info);
  const struct sigaction& next = handlers_before[static_cast<std::size_t>(at)];
  passing_on = 1;
  if ((next.sa_flags & SA_SIGINFO) != 0)
    next.sa_sigaction(signal, info, context);
  else
    next.sa_handler(signal);
  passing_on = 0;
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  // A positive code: from the kernel, so that the address means something.
  const bool of_kernel = info != nullptr && info->si_code > 0;
  handlers.fetch_add(1);
  const bool taken = of_kernel && take_fault(reinterpret_cast<std::uintptr_t>(info->si_addr));
  handlers.fetch_sub(1);
  // For no access: nothing repeats, and what it tells of is not ours.
  const bool told_of = of_kernel && info->si_code == BUS_MCEERR_AO;
  if (!taken && !told_of) pass_on(signal, info, context);
  errno = saved;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &on_fault;
}

}  // namespace

void guard_faults() {
  const MutexLock lock(install_mutex);
  struct sigaction now {};
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || is_ours(now)) return;
  guarded_page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (notice.load() < 0) notice.store(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const bool handled =
      (now.sa_flags & SA_SIGINFO) != 0 || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN);
  if (handled) {
    const int place = before_at.load() == 0 ? 1 : 0;
    handlers_before[static_cast<std::size_t>(place)] = now;
    before_at.store(place, std::memory_order_release);
  }
  struct sigaction action {};
  action.sa_sigaction = &on_fault;
  // On the alternate stack where a thread has one; not blocked within itself, so that a handler
  // which we pass a fault on to, and which faults, is noticed (passing_on).
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  (void)::sigaction(SIGBUS, &action, nullptr);
}

void ask_for_lost_pages() { (void)::prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0); }

std::uint64_t faults_caught() { return caught.load(std::memory_order_relaxed); }

int fault_notice() { return notice.load(); }

MappingGuard::MappingGuard(std::span<std::byte> mapping) {
  guard_faults();
  for (std::size_t i = 0; i < kGuardedMax; ++i) {
    Slot& slot = guarded_slots[i];
    bool free = false;
    if (!slot.taken.compare_exchange_strong(free, true)) continue;
    slot_ = i;
    slot.failed.store(false);
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping.data());
    slot.begin.store(begin, std::memory_order_relaxed);
    slot.end.store(begin + mapping.size(), std::memory_order_release);
    std::size_t used = slots_used.load();
    while (used < i + 1 && !slots_used.compare_exchange_weak(used, i + 1)) {
    }
    return;
  }
}

MappingGuard::~MappingGuard() {
  if (slot_ == kGuardedMax) return;
  guarded_slots[slot_].end.store(0, std::memory_order_release);
  guarded_slots[slot_].taken.store(false);
}

void MappingGuard::fail() const {
  if (slot_ == kGuardedMax) return;
  handlers.fetch_add(1);  // as within a fault: no tie goes meanwhile
  guarded_slots[slot_].failed.store(true, std::memory_order_seq_cst);
  turn_all(slot_);
  handlers.fetch_sub(1);
  give_notice();
}

std::unique_ptr<FailureTie> MappingGuard::tie(const CutSwitch& connection) const {
  const bool empty = connection.socket < 0 && connection.cut == nullptr;
  if (empty || slot_ == kGuardedMax) return nullptr;
  for (std::size_t i = 0; i < kTiesMax; ++i) {
    TieEntry& entry = ties[i];
    bool free = false;
    if (!entry.taken.compare_exchange_strong(free, true)) continue;
    entry.socket.store(connection.socket);
    entry.cut.store(connection.cut);
    entry.slot.store(slot_ + 1);
    std::size_t used = ties_used.load();
    while (used < i + 1 && !ties_used.compare_exchange_weak(used, i + 1)) {
    }
    // Either the handler has seen it, or this sees that there was one.
    if (failed()) connection.turn();
    return std::make_unique<Tie>(i);
  }
  return nullptr;
}

bool MappingGuard::failed() const {
  return slot_ != kGuardedMax && guarded_slots[slot_].failed.load(std::memory_order_seq_cst);
}

}  // namespace perdure::pmem
