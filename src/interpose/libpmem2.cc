// libpmem2's calls. What it has to persist with is pointers to functions, which a program gets for
// a mapping and then calls: it gets ours instead. Signatures and flags are libpmem2(7)'s.
#include "interpose/mappings.h"
#include "interpose/real.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>

struct pmem2_map;

namespace perdure::interpose {
namespace {

constexpr char kLibrary[] = "libpmem2.so.1";
constexpr unsigned kNoDrain = 1U << 0;  // PMEM2_F_MEM_NODRAIN
constexpr unsigned kNoFlush = 1U << 5;  // PMEM2_F_MEM_NOFLUSH

/// The library has one function for each granularity of a mapping (page, cache line, byte), and
/// none of them gets the mapping: which one is behind a pointer is in the pointer itself.
constexpr int kKinds = 8;

using Persist = void(const void*, std::size_t);
using Fence = void();
using Copy = void*(void*, const void*, std::size_t, unsigned);
using Set = void*(void*, int, std::size_t, unsigned);

template <typename Function>
class Kinds {
 public:
  /// The number of a function of the library.
  int number_of(Function* function) {
    for (int kind = 0; kind < kKinds; ++kind) {
      Function* nothing = nullptr;
      if (functions_[kind].compare_exchange_strong(nothing, function) || nothing == function) {
        return kind;
      }
    }
    say("this libpmem2 has more kinds of mappings than are known here");
    std::abort();
  }
  Function* operator[](int kind) const { return functions_[kind].load(std::memory_order_acquire); }

 private:
  std::atomic<Function*> functions_[kKinds] = {};
};

Kinds<Persist> persists;
Kinds<Persist> flushes;
Kinds<Fence> drains;
Kinds<Copy> memmoves;
Kinds<Copy> memcpys;
Kinds<Set> memsets;

void stored(const Call& call, const void* to, std::size_t length, unsigned flags) {
  if (!call.outermost() || (flags & kNoFlush) != 0) return;
  flushed(to, length);
  if ((flags & kNoDrain) == 0) drained(Drain::Ordered);
}

template <int kind>
struct Ours {
  static void persist(const void* at, std::size_t length) {
    const Call call(__builtin_return_address(0));
    persists[kind](at, length);
    stored(call, at, length, 0);
  }
  static void flush(const void* at, std::size_t length) {
    const Call call(__builtin_return_address(0));
    flushes[kind](at, length);
    stored(call, at, length, kNoDrain);
  }
  static void drain() {
    const Call call(__builtin_return_address(0));
    drains[kind]();
    if (call.outermost()) drained(Drain::Ordered);
  }
  template <Kinds<Copy>& copies>
  static void* copy(void* to, const void* from, std::size_t length, unsigned flags) {
    const Call call(__builtin_return_address(0));
    void* const outcome = copies[kind](to, from, length, flags);
    stored(call, to, length, flags);
    return outcome;
  }
  static void* memset(void* to, int byte, std::size_t length, unsigned flags) {
    const Call call(__builtin_return_address(0));
    void* const outcome = memsets[kind](to, byte, length, flags);
    stored(call, to, length, flags);
    return outcome;
  }
};

/// One of ours for each kind.
template <typename Function>
struct Table {
  Function* of[kKinds];
};

#define PERDURE_KINDS(member)                                                              \
  {                                                                                        \
    {                                                                                      \
      Ours<0>::member, Ours<1>::member, Ours<2>::member, Ours<3>::member, Ours<4>::member, \
          Ours<5>::member, Ours<6>::member, Ours<7>::member                                \
    }                                                                                      \
  }

constexpr Table<Persist> kPersist = PERDURE_KINDS(persist);
constexpr Table<Persist> kFlush = PERDURE_KINDS(flush);
constexpr Table<Fence> kDrain = PERDURE_KINDS(drain);
constexpr Table<Copy> kMemmove = PERDURE_KINDS(template copy<memmoves>);
constexpr Table<Copy> kMemcpy = PERDURE_KINDS(template copy<memcpys>);
constexpr Table<Set> kMemset = PERDURE_KINDS(memset);
#undef PERDURE_KINDS

/// Ours for the library's function; what it has none of stays that.
template <typename Function>
Function* replaced(Function* function, Kinds<Function>& kinds, const Table<Function>& ours) {
  return function == nullptr ? nullptr : ours.of[kinds.number_of(function)];
}

}  // namespace
}  // namespace perdure::interpose

using namespace perdure::interpose;  // the functions below have C names

extern "C" {

Persist* pmem2_get_persist_fn(pmem2_map* map) {
  static constinit Real<Persist*(pmem2_map*)> real("pmem2_get_persist_fn", kLibrary);
  return replaced(real.get()(map), persists, kPersist);
}

Persist* pmem2_get_flush_fn(pmem2_map* map) {
  static constinit Real<Persist*(pmem2_map*)> real("pmem2_get_flush_fn", kLibrary);
  return replaced(real.get()(map), flushes, kFlush);
}

Fence* pmem2_get_drain_fn(pmem2_map* map) {
  static constinit Real<Fence*(pmem2_map*)> real("pmem2_get_drain_fn", kLibrary);
  return replaced(real.get()(map), drains, kDrain);
}

Copy* pmem2_get_memmove_fn(pmem2_map* map) {
  static constinit Real<Copy*(pmem2_map*)> real("pmem2_get_memmove_fn", kLibrary);
  return replaced(real.get()(map), memmoves, kMemmove);
}

Copy* pmem2_get_memcpy_fn(pmem2_map* map) {
  static constinit Real<Copy*(pmem2_map*)> real("pmem2_get_memcpy_fn", kLibrary);
  return replaced(real.get()(map), memcpys, kMemcpy);
}

Set* pmem2_get_memset_fn(pmem2_map* map) {
  static constinit Real<Set*(pmem2_map*)> real("pmem2_get_memset_fn", kLibrary);
  return replaced(real.get()(map), memsets, kMemset);
}

int pmem2_deep_flush(pmem2_map* map, void* at, std::size_t length) {
  static constinit Real<int(pmem2_map*, void*, std::size_t)> real("pmem2_deep_flush", kLibrary);
  const Call call(__builtin_return_address(0));
  const int outcome = real.get()(map, at, length);
  if (call.outermost() && outcome == 0) {
    flushed(at, length);
    drained(Drain::Durable);
  }
  return outcome;
}

}  // extern "C"
