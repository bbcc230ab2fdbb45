// A state of the modelled log: what is on each medium, what each writer knows, and what nobody in
// the protocol sees: which records were ever acknowledged, and which faults are left.
//
// A record takes one place, an LSN counts places, and the ring has a few. A record's checksum is
// its number in a table: the same number means the same record behind the same history.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <type_traits>
#include <vector>

namespace perdure::model {

inline constexpr int kReplicas = 4;  // pools, at most
inline constexpr int kWriters = 2;   // at a time
inline constexpr int kRing = 4;      // places, at most
inline constexpr int kLsns = 10;

using Id = std::uint16_t;  // of a record
using Mask = std::uint8_t;
inline constexpr Id kNothing = 0;         // before the first record; an empty place
inline constexpr Id kUnreadable = 65535;  // a place that was damaged

constexpr bool has(Mask mask, int bit) { return (mask >> bit & 1) != 0; }
constexpr Mask bit(int number) { return static_cast<Mask>(1 << number); }

struct Record {
  Id previous = kNothing;
  std::uint8_t lsn = 0;
  std::uint8_t epoch = 0;
  std::uint8_t writer = 0;
  std::uint8_t committed = 0;      // the claim it carries
  std::uint8_t configuration = 0;  // 0: data
  std::uint8_t loss = 0;           // of that configuration
  std::uint8_t index = 0;
  bool operator==(const Record&) const = default;
};

/// Every record that was ever encoded in any history of the exploration.
class Records {
 public:
  Id intern(const Record& record) {
    const auto key = std::tuple(record.previous, record.lsn, record.epoch, record.writer,
                                record.committed, record.configuration, record.loss);
    const auto [at, fresh] = ids_.try_emplace(key, static_cast<Id>(records_.size()));
    if (fresh) records_.push_back(record);
    return at->second;
  }
  const Record& operator[](Id id) const { return records_[id]; }
  std::size_t size() const { return records_.size(); }

  std::uint8_t next_index(Id id) const {
    if (id == kNothing) return 0;
    return static_cast<std::uint8_t>(records_[id].index + (records_[id].configuration == 0));
  }
  /// The last record before `lsn` of the history that ends with `last`.
  Id before(Id last, int lsn) const {
    while (last != kNothing && records_[last].lsn >= lsn) last = records_[last].previous;
    return last;
  }
  /// The record at `lsn` of that history.
  Id at(Id last, int lsn) const {
    const Id id = before(last, lsn + 1);
    return id != kNothing && records_[id].lsn == lsn ? id : kNothing;
  }

 private:
  std::vector<Record> records_ = {Record{}};
  std::map<std::tuple<Id, int, int, int, int, int, int>, Id> ids_;
};

enum Marks : std::uint8_t { kCreating = 1, kIncomplete = 2, kRemoved = 4 };
/// What happened to a medium; known to the model alone.
enum Medium : std::uint8_t { kSound = 0, kDamaged = 1, kWiped = 2, kDead = 3 };

struct Replica {
  // On the medium.
  std::uint8_t log;  // 0: blank
  std::uint8_t marks;
  std::uint8_t epoch;
  std::uint8_t begin;
  std::uint8_t head;
  std::uint8_t configuration;
  std::uint8_t vouched_epoch;  // of a marked one: all that it ever acknowledged is not after this
  std::uint8_t vouched_end;
  std::uint8_t committed_word;
  std::uint8_t tail_word;
  std::uint8_t fence;
  std::uint8_t fence_writer;
  Mask loose;           // places that are visible and not durable
  std::uint8_t medium;  // Medium
  std::uint8_t acked;   // everything before was acknowledged, in its epoch
  std::uint8_t loss;    // the epoch that its configuration names
  Id head_id;           // of the record before the head
  std::array<Id, kRing> ring;
  bool operator==(const Replica&) const = default;
};

enum Phase : std::uint8_t { kAbsent, kLooked, kFenced, kRunning };

struct Writer {
  std::uint8_t phase;
  std::uint8_t self;  // who it is; never used again
  std::uint8_t epoch;
  std::uint8_t begin;
  std::uint8_t head;
  std::uint8_t tail;
  std::uint8_t committed;
  std::uint8_t log;
  std::uint8_t configuration;
  std::uint8_t loss;       // the epoch that it names
  std::uint8_t accepting;  // whether it accepts a loss
  std::uint8_t next;       // configuration that is appended and not committed; 0: none
  std::uint8_t unsettled;
  Mask sessions;       // looked: who answered; afterwards: with whom one was opened
  Mask sending;        // those that count
  std::uint8_t named;  // the configuration whose members were named
  std::array<std::uint8_t, kReplicas> durable;
  Id head_id;
  Id last;
  bool operator==(const Writer&) const = default;
};

/// What is remembered beside the protocol.
struct Judge {
  std::array<Id, kLsns> committed;  // by LSN
  // Was committed and was given up with an accepted loss; kUnreadable: several.
  std::array<Id, kLsns> given_up;
  std::uint8_t trimmed;  // acknowledged
  std::uint8_t trim_asked;
  std::uint8_t begun;          // the highest epoch
  std::uint8_t configuration;  // the newest that is committed
  Mask configurations;         // that were ever appended
  // How much there was of what is bounded.
  std::uint8_t appends;
  std::uint8_t trims;
  std::uint8_t openings;
  std::uint8_t interruptions;
  std::uint8_t losses;
  std::uint8_t changes;
  std::uint8_t acceptances;
  // A loss was perhaps accepted, and no epoch was begun since: what this history has not may be
  // given up. kUnreadable: several histories.
  std::uint8_t pending;
  std::uint8_t pending_head;
  Id pending_last;
  bool operator==(const Judge&) const = default;
};

struct State {
  std::array<Replica, kReplicas> replicas;
  std::array<Writer, kWriters> writers;
  Judge judge;
  bool operator==(const State&) const = default;
};
static_assert(std::has_unique_object_representations_v<State>, "it is hashed byte by byte");

}  // namespace perdure::model
