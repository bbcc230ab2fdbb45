// Caches: private L1 data caches, a shared inclusive L2 with the directory, MESI between them.
//
// A request takes effect at once, in the order of the calls; how long it takes is in the reply. So
// the order of the calls is the coherence order. Contention for the crossbar and the L2 is not
// simulated.
//
// Each line knows the thread that wrote it last. The reply carries it to a thread that sees the
// line for the first time since: that is how dependencies between threads are found (BROI
// paper, section IV.C).
#pragma once

#include "memsys/server/processor.h"
#include "memsys/server/tag_array.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perdure::memsys {

enum class CacheAccess : std::uint8_t {
  Load,
  Store,
  Persist,  // a store whose data also go to the persist buffer, so that memory will have them
};

enum class Source : std::uint8_t { L1, L2, Peer, Memory };

struct Reply {
  Source source = Source::L1;
  Time latency = 0;  // Memory: until the request leaves for memory
  std::optional<std::uint32_t> writer;
};

class Caches {
 public:
  explicit Caches(const Processor& processor);

  /// If the source is Memory nothing has changed: fetch the line, `fill`, and ask again.
  Reply access(std::uint32_t thread, std::uint64_t line, CacheAccess access);

  struct Evicted {
    std::uint64_t line = kNoLine;  // kNoLine: a free way was found
    bool dirty = false;            // memory does not have it
    std::optional<std::uint32_t> writer;
  };
  /// Memory has delivered the line; `writer` is the last one if that is known.
  /// Requires  the line is not in the L2.
  Evicted fill(std::uint64_t line, std::optional<std::uint32_t> writer = {});

  enum class State : std::uint8_t { Invalid, Shared, Exclusive, Modified };
  State state_of(std::uint32_t core, std::uint64_t line);
  /// Whether the caches and the directory agree; empty, or what is wrong. For tests.
  std::string check() const;

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  struct L1Line {
    State state = State::Invalid;
    bool dirty = false;
    std::uint8_t seen = 0;  // by which threads of the core, since the last write
    std::uint32_t writer = kNobody;
  };
  struct L2Line {
    std::uint32_t sharers = 0;      // a bit for each core that has it
    std::uint32_t owner = kNobody;  // the core that may write it
    std::uint32_t writer = kNobody;
    bool dirty = false;
  };
  using L1 = TagArray<L1Line>;
  using L2 = TagArray<L2Line>;

  Reply hit(std::uint32_t thread, L1::Way& way, CacheAccess access, Reply reply);
  Time make_sole_owner(std::uint32_t core, L2::Way& home);
  L1::Way& bring(std::uint32_t core, L2::Way& home, CacheAccess access, Reply& reply);
  void take_back(std::uint32_t core, L2::Way& home, bool invalidate);
  void evict_from_l1(std::uint32_t core, L1::Way& way);

  const Processor processor_;
  std::vector<L1> l1_;
  L2 l2_;
};

}  // namespace perdure::memsys
