// The replica set: which replicas a log has, who of them may vote, whose history is taken, and when
// something is committed. Pure decisions over what was found; who reads and writes are others.
// docs/log-protocol.md has the laws.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "pmem/pool_format.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace perdure::log {

inline constexpr std::size_t kMembersMax = 15;
inline constexpr std::size_t kMemberNameMax = 64;

/// One replica of a set: the pool that holds it, and a word for people (where it was last).
struct Member {
  pmem::Uuid pool;
  std::string name;
  bool operator==(const Member&) const = default;
};

/// The replicas and how many of them a record needs.
struct Configuration {
  std::uint32_t generation = 0;  // 1 is the first
  std::uint32_t quorum = 0;
  std::vector<Member> members;
  /// The epoch that began with the loss that was accepted last: what was changed before and is not
  /// known to this one was given up, whatever its generation. 0: none.
  Epoch loss{};
  bool operator==(const Configuration&) const = default;

  bool newer_than(const Configuration& other) const {
    return loss != other.loss ? loss > other.loss : generation > other.generation;
  }

  bool has(const pmem::Uuid& pool) const;
  /// Voters that are needed to know all that is committed: every quorum has one of them.
  std::size_t votes_needed() const { return members.size() - quorum + 1; }
  /// Sessions that are needed to write: no two writers can have them both.
  std::size_t sessions_needed() const { return quorum > votes_needed() ? quorum : votes_needed(); }
};

/// Whether it can be: 1 to kMembersMax different members, a quorum among them. Errors:
/// InvalidArgument.
Result<void> validate(const Configuration& configuration);

/// For people: "quorum 2 of 3 replicas: 127.0.0.1:7470 (pool 2f1c...), ...".
std::string describe(const Configuration& configuration);

std::optional<pmem::Uuid> parse_uuid(std::string_view text);

/// How much a replica has: first by the last epoch of which it was a full part, then by length.
struct Rank {
  Epoch epoch;
  Lsn end;
  auto operator<=>(const Rank&) const = default;
};

/// After every rank that is: the extent of a replica of which nothing is known.
inline constexpr Rank kUnknownRank{Epoch{UINT32_MAX}, Lsn{UINT64_MAX}};

enum class Standing {
  Whole,       // it can return everything that it ever acknowledged
  Damaged,     // it acknowledged more than it can return
  Incomplete,  // its records were being replaced; `extent` is from before
  Unknown,     // it could not be read, or it is not of this set
};

/// What is known of one replica.
struct Candidate {
  pmem::Uuid pool;
  Standing standing = Standing::Unknown;
  Rank readable;               // nothing: no record of it can be read
  Rank extent = kUnknownRank;  // the same, or more: all that it can have acknowledged
  Lsn claimed;                 // everything before was committed, by its own account
};

/// The configurations in play: one, or two while the newer is not known to be committed.
using Configurations = std::vector<Configuration>;

/// A configuration record that was found.
struct ConfigurationAt {
  Lsn end;  // of the record
  Configuration configuration;
};

/// Those in play by a history: the newest that it holds, and the one before while the newest is not
/// known to be committed. `stated`: the newest by the state of any replica; `found`: by the records
/// of the history, in order; `claimed`: by its own replica. What another replica claims may be said
/// of another history, where another record is at that LSN.
Configurations configurations_in_play(const Configuration& stated,
                                      std::span<const ConfigurationAt> found, Lsn claimed);

/// What one replica says of the configuration: its state, and the records of its ring, if that was
/// read.
struct Statement {
  Epoch epoch;  // of the state
  Configuration stated;
  std::span<const ConfigurationAt> found;
  Lsn claimed;
  // The content is being replaced: the claim may already be that of the new one, and a change that
  // was buried stand in the old.
  bool incomplete = false;
};

/// What the replicas of a log say. `history`: of these, the one that is taken if it has the votes;
/// `voters`: who votes for it.
struct Statements {
  std::vector<Statement> all;
  std::optional<std::size_t> history;
  std::vector<pmem::Uuid> voters;
};

/// The newest configuration that a state names. A loss that one replica alone says was accepted
/// makes its configuration no newer.
Configuration newest_stated(const Statements& statements);

/// The newest that is known to be committed: by a state, or by the ring of any replica, where both
/// the record and the claim are of its own history. What is committed stays so: whoever read it,
/// and when (`before`).
Configuration newest_known(const Statements& statements, const Configuration& before);

/// Those in play when this history is taken; nothing: none is. A change that is not known to be
/// committed counts only there: in another history it was buried.
Configurations in_play_by(const Configuration& known, const std::optional<Statement>& history);

/// Whose history is taken, if one may be.
struct Choice {
  std::optional<std::size_t> history;  // of the candidates; nothing: none may be taken
  std::size_t voters = 0;              // in the configuration where fewest are
  std::size_t needed = 0;
  bool damage = false;  // nothing: because of damage, not only of absence
  Lsn claimed;          // the highest of all
};

/// The candidate with most: among whole ones, or with `any` among all that can be read: an
/// incomplete one only where no other has as much of the same epoch.
std::optional<std::size_t> best_of(std::span<const Candidate> candidates, bool any = false);

/// Whether a replica's vote counts when `history` is taken: it never held a committed record that
/// is not there.
bool votes(const Candidate& candidate, const Rank& history);

/// Up to which something was committed, by those whose word counts beside `history`: what a replica
/// of a lower epoch says was decided when the epoch of the history began.
Lsn claimed_beside(std::span<const Candidate> candidates, const Rank& history);

/// The history that holds everything committed, if enough replicas vote in every configuration.
Choice choose(std::span<const Candidate> candidates, const Configurations& in_play);

/// Replicas of a configuration among these.
std::size_t count_members(const Configuration& configuration, std::span<const pmem::Uuid> pools);

/// When a record is committed: how many of which replicas must have it, in one configuration or in
/// two at a time. Made when the configuration changes; asked at every answer.
class CommitRule {
 public:
  CommitRule() = default;
  /// `pools`: of the replicas in the order in which they are asked about.
  CommitRule(const Configurations& in_play, std::span<const pmem::Uuid> pools);

  /// Everything below it is on enough replicas. `durable`: one for each replica.
  /// Cost  no allocation.
  Lsn committed(std::span<const Lsn> durable);
  /// Whether the replicas for which `counts(index)` holds are enough.
  template <typename Counts>
  bool enough(Counts counts) const {
    for (const Part& part : parts_) {
      std::size_t found = 0;
      for (const std::size_t index : part.replicas) found += counts(index) ? 1 : 0;
      if (found < part.quorum) return false;
    }
    return !parts_.empty();
  }

 private:
  struct Part {
    std::size_t quorum = 0;
    std::vector<std::size_t> replicas;
  };
  std::vector<Part> parts_;
  std::vector<Lsn> scratch_;
};

}  // namespace perdure::log
