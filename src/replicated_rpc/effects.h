// Effects: what the calls of a service have done, in memory: the handlers' bytes, and of each
// client how far its calls are applied, with its last replies. It is what the log of effects says;
// this reads the log's records, and makes them.
#pragma once

#include <perdure/result.h>
#include <perdure/rpc.h>
#include <perdure/types.h>

#include "replicated_rpc/records.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::replicated_rpc {

/// Of a service, since it was created.
struct Sizes {
  std::uint64_t data_bytes = 0;
  std::uint64_t transaction_bytes = 0;
  std::uint32_t clients_max = 0;
  std::uint32_t replies = 0;
  std::uint32_t reply_bytes_max = 0;
  std::uint32_t application = 0;

  /// Of the ring that the log of effects needs: a round is at most a quarter of it.
  std::uint64_t ring_bytes() const;
};

inline constexpr std::uint64_t kPageBytes = 64 * 1024;
inline constexpr std::uint64_t kTransactionBytesMax = 4 * 1024 * 1024;
inline constexpr std::uint64_t kPlaceBytesMax = 2 * 1024 * 1024;
/// Behind that a transaction takes no further call: so each has room for its own.
inline constexpr std::uint64_t kFullBytes = 64 * 1024;
/// Of a record of effects.
inline constexpr std::uint64_t kRecordBytesMax = kTransactionBytesMax + 4 * 1024 * 1024;

/// Errors: InvalidArgument.
Result<void> check_sizes(const Sizes& sizes);

struct KeptReply {
  std::uint64_t sequence = 0;
  std::uint32_t status = 0;
  std::vector<std::byte> bytes;
};

struct Place {
  std::uint64_t client_id = 0;
  std::uint64_t applied = 0;     // sequence of the last call that is
  std::uint32_t generation = 0;  // of that call
  std::deque<KeptReply> replies;
};

/// A call in which servers have ended, or may end.
struct Tried {
  std::uint64_t client_id = 0;
  std::uint64_t sequence = 0;
  std::uint32_t generation = 0;
  std::uint32_t ends = 0;  // how many
  bool held = false;       // it waits for an operator, and what its client called behind it, too
};

/// An operator's, of a call that is held: it is tried again, or refused as one that was dropped.
enum class Decision { Retry, Drop };

/// The copy of everything that goes round.
struct Round {
  Lsn begun;
  std::string last_name;  // of the places, in the order of names
  bool places_copied = false;
  std::uint64_t pages = 0;  // that are copied
};

/// Threads: one caller at a time.
class Effects {
 public:
  using Places = std::map<std::string, Place, std::less<>>;

  /// What a record of the log has done, which begins at `lsn`. Errors: Corrupt, VersionMismatch.
  Result<void> apply(std::span<const std::byte> record, Lsn lsn);

  /// Nothing: the log has no record yet.
  const std::optional<Sizes>& sizes() const { return sizes_; }
  const Places& places() const { return places_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Whether what was applied is the whole of some moment: not if it began with a round that has
  /// not ended yet.
  bool is_whole() const { return sizes_ && (begun_whole_ || complete_from_ != Lsn{}); }

  /// The first record of a log.
  static std::vector<std::byte> first_record(const Sizes& sizes);
  /// Errors: InvalidArgument. Requires sizes.
  Result<void> check_application(std::uint32_t application, const std::string& service) const;

  // A transaction. Its changes are seen here at once, and are in its record.

  /// Executes one more call in it; the mark goes where the changes go. Returns why it was refused.
  /// `handler` null: there is none.
  std::optional<ErrorCode> execute(const RpcCall& call, const RpcHandler* handler);
  bool full() const { return record_.size() >= kFullBytes; }
  bool empty() const { return record_.empty(); }
  /// Of the transaction, which is over with it.
  std::vector<std::byte> take_record();

  // Servers that end without a word, and the calls that they were at. Each note is a record of its
  // own, applied here at once, while no transaction is open.

  /// A server has begun to execute, and has not ended in order.
  bool is_open() const { return open_; }
  /// Whether anything was ever said of that: in version 1 it was not.
  bool knows_of_openings() const { return knows_of_openings_; }
  /// That server tries calls one at a time.
  bool is_careful() const { return careful_; }
  /// `died`: the server before has ended without a word. Then the call that it tried has ended it.
  std::vector<std::byte> note_opened(bool died, bool careful);
  /// It has tried all that may have ended the one before. Requires that it tries none now.
  std::vector<std::byte> note_calm() { return note_opened(false, false); }
  std::vector<std::byte> note_ended();
  /// Before it is executed alone.
  std::vector<std::byte> note_trying(const RpcCall& call);
  /// It waits for an operator.
  std::vector<std::byte> note_held(const RpcCall& call);
  /// How many servers have ended in it, since an operator has last decided about it.
  std::uint32_t ends_in(const RpcCall& call) const;
  /// Whether servers have ended in it at any time.
  bool is_suspect(const RpcCall& call) const;
  bool is_held(const RpcCall& call) const;
  /// Whether a call of this client is.
  bool is_held(std::string_view client) const;
  /// By client: at most its next call.
  const std::map<std::string, Tried, std::less<>>& tried() const { return tried_; }
  /// Refuses one more call in the transaction, without its handler.
  void drop(const RpcCall& call);
  /// The record of a decision about a call that is held. It is applied when it has its place in the
  /// log. Errors: NotFound (no such client), InvalidArgument (this call is not held).
  Result<std::vector<std::byte>> decide(const std::string& client, std::uint64_t sequence,
                                        Decision decision) const;

  // The round. Its records are applied, too, when they have their place in the log.

  const std::optional<Round>& round() const { return round_; }
  /// Where the last round that has ended begun: who reads from there gets everything.
  Lsn complete_from() const { return complete_from_; }
  std::vector<std::byte> begin_round() const;
  /// The next piece. Requires a round.
  std::vector<std::byte> next_piece() const;

 private:
  class Transaction;

  Result<void> apply_item(const RecordItem& item, Lsn lsn);
  Result<void> apply_sizes(const RecordItem& item);
  void add_mark(const RecordItem& mark);
  const Tried* tried_of(const RpcCall& call) const;
  void note_applied(const RecordItem& item);
  void keep(Place& place, const RecordItem& item);
  void append_places(std::vector<std::byte>& record, RecordItem& step) const;
  void append_tried(std::vector<std::byte>& record) const;
  void note_opened(std::uint64_t flags);
  std::vector<std::byte> note(const RecordItem& item);

  std::optional<Sizes> sizes_;
  bool begun_whole_ = true;  // at the first record of the log
  std::vector<std::byte> bytes_;
  std::vector<bool> touched_;  // pages that were ever written; the others are zeros
  Places places_;
  std::vector<std::byte> record_;  // of the transaction
  std::vector<std::byte> reply_;
  bool open_ = false;
  bool knows_of_openings_ = false;
  bool careful_ = false;
  std::string trying_name_;  // of its client
  std::optional<Tried> trying_;
  std::map<std::string, Tried, std::less<>> tried_;
  std::optional<Round> round_;
  Lsn complete_from_;
};

}  // namespace perdure::replicated_rpc
