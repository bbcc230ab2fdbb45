// libpmem's calls, which libpmemobj, libpmemlog and libpmemblk make too: each is passed on, then
// reported. Signatures and flags are libpmem(7)'s.
#include "interpose/mappings.h"
#include "interpose/real.h"

#include <cstddef>

namespace perdure::interpose {
namespace {

constexpr char kLibrary[] = "libpmem.so.1";
constexpr unsigned kNoDrain = 1U << 0;  // PMEM_F_MEM_NODRAIN
constexpr unsigned kNoFlush = 1U << 5;  // PMEM_F_MEM_NOFLUSH

using Range = void(const void*, std::size_t);
using RangeStatus = int(const void*, std::size_t);
using Copy = void*(void*, const void*, std::size_t);
using Set = void*(void*, int, std::size_t);
using FlaggedCopy = void*(void*, const void*, std::size_t, unsigned);
using FlaggedSet = void*(void*, int, std::size_t, unsigned);

void stored(const Call& call, const void* to, std::size_t length, unsigned flags) {
  if (!call.outermost() || (flags & kNoFlush) != 0) return;
  flushed(to, length);
  if ((flags & kNoDrain) == 0) drained(Drain::Ordered);
}

int synced(const Call& call, const void* at, std::size_t length, int outcome, Drain drain) {
  if (!call.outermost() || outcome != 0) return outcome;
  flushed(at, length);
  drained(drain);
  return outcome;
}

}  // namespace
}  // namespace perdure::interpose

using namespace perdure::interpose;  // the functions below have C names

extern "C" {

void pmem_persist(const void* at, std::size_t length) {
  static constinit Real<Range> real("pmem_persist", kLibrary);
  const Call call(__builtin_return_address(0));
  real.get()(at, length);
  stored(call, at, length, 0);
}

void pmem_flush(const void* at, std::size_t length) {
  static constinit Real<Range> real("pmem_flush", kLibrary);
  const Call call(__builtin_return_address(0));
  real.get()(at, length);
  stored(call, at, length, kNoDrain);
}

void pmem_drain(void) {
  static constinit Real<void()> real("pmem_drain", kLibrary);
  const Call call(__builtin_return_address(0));
  real.get()();
  if (call.outermost()) drained(Drain::Ordered);
}

int pmem_msync(const void* at, std::size_t length) {
  static constinit Real<RangeStatus> real("pmem_msync", kLibrary);
  const Call call(__builtin_return_address(0));
  // What libpmem's users call where the file is on no persistent memory: a persist, for all that
  // the program knows.
  return synced(call, at, length, real.get()(at, length), Drain::Ordered);
}

void pmem_deep_flush(const void* at, std::size_t length) {
  static constinit Real<Range> real("pmem_deep_flush", kLibrary);
  const Call call(__builtin_return_address(0));
  real.get()(at, length);
  stored(call, at, length, kNoDrain);
}

int pmem_deep_drain(const void* at, std::size_t length) {
  static constinit Real<RangeStatus> real("pmem_deep_drain", kLibrary);
  const Call call(__builtin_return_address(0));
  const int outcome = real.get()(at, length);
  if (call.outermost() && outcome == 0) drained(Drain::Durable);
  return outcome;
}

int pmem_deep_persist(const void* at, std::size_t length) {
  static constinit Real<RangeStatus> real("pmem_deep_persist", kLibrary);
  const Call call(__builtin_return_address(0));
  return synced(call, at, length, real.get()(at, length), Drain::Durable);
}

void* pmem_memmove_persist(void* to, const void* from, std::size_t length) {
  static constinit Real<Copy> real("pmem_memmove_persist", kLibrary);
  const Call call(__builtin_return_address(0));
  void* const outcome = real.get()(to, from, length);
  stored(call, to, length, 0);
  return outcome;
}

void* pmem_memcpy_persist(void* to, const void* from, std::size_t length) {
  static constinit Real<Copy> real("pmem_memcpy_persist", kLibrary);
  const Call call(__builtin_return_address(0));
  void* const outcome = real.get()(to, from, length);
  stored(call, to, length, 0);
  return outcome;
}

void* pmem_memset_persist(void* to, int byte, std::size_t length) {
  static constinit Real<Set> real("pmem_memset_persist", kLibrary);
  const Call call(__builtin_return_address(0));
  void* const outcome = real.get()(to, byte, length);
  stored(call, to, length, 0);
  return outcome;
}

void* pmem_memmove_nodrain(void* to, const void* from, std::size_t length) {
  static constinit Real<Copy> real("pmem_memmove_nodrain", kLibrary);
  const Call call(__builtin_return_address(0));
  void* const outcome = real.get()(to, from, length);
  stored(call, to, length, kNoDrain);
  return outcome;
}

void* pmem_memcpy_nodrain(void* to, const void* from, std::size_t length) {
  static constinit Real<Copy> real("pmem_memcpy_nodrain", kLibrary);
  const Call call(__builtin_return_address(0));
  void* const outcome = real.get()(to, from, length);
  stored(call, to, length, kNoDrain);
  return outcome;
}

void* pmem_memset_nodrain(void* to, int byte, std::size_t length) {
  static constinit Real<Set> real("pmem_memset_nodrain", kLibrary);
  const Call call(__builtin_return_address(0));
  void* const outcome = real.get()(to, byte, length);
  stored(call, to, length, kNoDrain);
  return outcome;
}

void* pmem_memmove(void* to, const void* from, std::size_t length, unsigned flags) {
  static constinit Real<FlaggedCopy> real("pmem_memmove", kLibrary);
  const Call call(__builtin_return_address(0));
  void* const outcome = real.get()(to, from, length, flags);
  stored(call, to, length, flags);
  return outcome;
}

void* pmem_memcpy(void* to, const void* from, std::size_t length, unsigned flags) {
  static constinit Real<FlaggedCopy> real("pmem_memcpy", kLibrary);
  const Call call(__builtin_return_address(0));
  void* const outcome = real.get()(to, from, length, flags);
  stored(call, to, length, flags);
  return outcome;
}

void* pmem_memset(void* to, int byte, std::size_t length, unsigned flags) {
  static constinit Real<FlaggedSet> real("pmem_memset", kLibrary);
  const Call call(__builtin_return_address(0));
  void* const outcome = real.get()(to, byte, length, flags);
  stored(call, to, length, flags);
  return outcome;
}

}  // extern "C"
