// MESI with a directory: see caches.h.
#include "memsys/server/caches.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <bit>

namespace perdure::memsys {

Caches::Caches(const Processor& processor)
    : processor_(processor), l1_(processor.cores, L1(processor.l1)), l2_(processor.l2) {}

Reply Caches::access(std::uint32_t thread, std::uint64_t line, CacheAccess access) {
  const std::uint32_t core = thread / processor_.threads_per_core;
  Reply reply;
  reply.latency = processor_.l1_ps;
  L1::Way* way = l1_[core].find(line);
  const bool writes = access != CacheAccess::Load;
  if (way != nullptr && !(writes && way->payload.state == State::Shared)) {
    return hit(thread, *way, access, reply);
  }
  reply.latency += processor_.crossbar_ps + processor_.l2_ps;
  L2::Way* home = l2_.find(line);
  if (home == nullptr) {
    reply.source = Source::Memory;
    return reply;
  }
  reply.source = Source::L2;
  l2_.touch(*home);
  if (way != nullptr) {  // shared, and to be written
    reply.latency += make_sole_owner(core, *home);
    way->payload.state = State::Exclusive;
  } else {
    way = &bring(core, *home, access, reply);
  }
  reply.latency += processor_.crossbar_ps;
  return hit(thread, *way, access, reply);
}

/// The L1 has the line in a state that allows the access.
Reply Caches::hit(std::uint32_t thread, L1::Way& way, CacheAccess access, Reply reply) {
  const std::uint32_t core = thread / processor_.threads_per_core;
  L1Line& line = way.payload;
  l1_[core].touch(way);
  const auto me = static_cast<std::uint8_t>(1U << thread % processor_.threads_per_core);
  if (line.writer != kNobody && line.writer != thread && (line.seen & me) == 0) {
    reply.writer = line.writer;
  }
  line.seen |= me;
  if (access == CacheAccess::Load) return reply;
  line.state = State::Modified;
  line.dirty = access == CacheAccess::Store;
  line.writer = thread;
  line.seen = me;
  return reply;
}

/// Invalidates all other copies. Returns what that takes: they answer side by side.
Time Caches::make_sole_owner(std::uint32_t core, L2::Way& home) {
  const std::uint32_t others = home.payload.sharers & ~(1U << core);
  for (std::uint32_t i = 0; i < processor_.cores; ++i) {
    if ((others >> i & 1) != 0) take_back(i, home, true);
  }
  home.payload.owner = core;
  home.payload.sharers = 1U << core;
  return others == 0 ? 0 : processor_.crossbar_ps + processor_.l1_ps;
}

/// From the L2, or from the L1 that owns the line, into the core's L1.
Caches::L1::Way& Caches::bring(std::uint32_t core, L2::Way& home, CacheAccess access,
                               Reply& reply) {
  const bool owned = home.payload.owner != kNobody;
  if (owned) reply.source = Source::Peer;
  if (access != CacheAccess::Load) {
    reply.latency += make_sole_owner(core, home);
  } else {
    if (owned) {
      reply.latency += processor_.crossbar_ps + processor_.l1_ps;
      take_back(home.payload.owner, home, false);
    }
    if (home.payload.sharers == 0) home.payload.owner = core;
    home.payload.sharers |= 1U << core;
  }
  L1::Way& way = l1_[core].victim(home.line);
  if (way.line != kNoLine) evict_from_l1(core, way);
  way.line = home.line;
  way.payload = L1Line{};
  way.payload.state = home.payload.owner == core ? State::Exclusive : State::Shared;
  way.payload.writer = home.payload.writer;
  // Whoever owns a line answers for it.
  way.payload.dirty = false;
  return way;
}

/// The copy of a core becomes shared or goes; what only it knew goes to the L2.
void Caches::take_back(std::uint32_t core, L2::Way& home, bool invalidate) {
  L1::Way* const copy = l1_[core].find(home.line);
  PERDURE_ASSERT(copy != nullptr);
  if (home.payload.owner == core) {
    if (copy->payload.state == State::Modified) {
      home.payload.dirty = copy->payload.dirty;
      home.payload.writer = copy->payload.writer;
    }
    home.payload.owner = kNobody;
  }
  if (invalidate) {
    l1_[core].remove(*copy);
    home.payload.sharers &= ~(1U << core);
  } else {
    copy->payload.state = State::Shared;
    copy->payload.dirty = false;
  }
}

void Caches::evict_from_l1(std::uint32_t core, L1::Way& way) {
  L2::Way* const home = l2_.find(way.line);
  PERDURE_ASSERT(home != nullptr);  // inclusive
  take_back(core, *home, true);
}

Caches::Evicted Caches::fill(std::uint64_t line, std::optional<std::uint32_t> writer) {
  PERDURE_ASSERT(l2_.find(line) == nullptr);
  L2::Way& way = l2_.victim(line);
  Evicted evicted;
  if (way.line != kNoLine) {
    for (std::uint32_t i = 0; i < processor_.cores; ++i) {
      if ((way.payload.sharers >> i & 1) != 0) take_back(i, way, true);
    }
    evicted = {way.line, way.payload.dirty, {}};
    if (way.payload.writer != kNobody) evicted.writer = way.payload.writer;
  }
  way.line = line;
  way.payload = L2Line{};
  way.payload.writer = writer.value_or(kNobody);
  l2_.touch(way);
  return evicted;
}

Caches::State Caches::state_of(std::uint32_t core, std::uint64_t line) {
  const L1::Way* const way = l1_[core].find(line);
  return way == nullptr ? State::Invalid : way->payload.state;
}

std::string Caches::check() const {
  const auto l1_of = [&](std::uint32_t core, std::uint64_t line) -> const L1Line* {
    for (const L1::Way& way : l1_[core].ways()) {
      if (way.line == line) return &way.payload;
    }
    return nullptr;
  };
  std::size_t copies = 0;
  for (const L2::Way& home : l2_.ways()) {
    if (home.line == kNoLine) continue;
    const L2Line& d = home.payload;
    copies += static_cast<std::size_t>(std::popcount(d.sharers));
    if (d.owner != kNobody && d.sharers != 1U << d.owner) return "an owner is not alone";
    for (std::uint32_t core = 0; core < processor_.cores; ++core) {
      const L1Line* const copy = l1_of(core, home.line);
      if ((copy != nullptr) != ((d.sharers >> core & 1) != 0)) {
        return fmt::format("line {}: the directory is wrong about core {}", home.line, core);
      }
      if (copy == nullptr) continue;
      if ((d.owner == core) == (copy->state == State::Shared)) {
        return fmt::format("line {}: core {} is not what the directory says", home.line, core);
      }
    }
  }
  for (const L1& l1 : l1_) {
    for (const L1::Way& way : l1.ways()) copies -= way.line == kNoLine ? 0 : 1;
  }
  return copies == 0 ? "" : "an L1 holds a line that the L2 does not";
}

}  // namespace perdure::memsys
