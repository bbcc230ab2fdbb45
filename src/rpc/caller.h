// Caller: a client of durable RPC over a durable session. What include/perdure/rpc.h promises of
// RpcClient, with peer and clock given, so that it runs in one process with emulated machines.
//
// Calls stand in a copy of the ring, each at its place, until they are applied. So what was in
// flight on a connection that was lost is written again as it was, and to the same place.
#pragma once

#include <perdure/result.h>
#include <perdure/rpc.h>

#include "client/durable_session.h"
#include "core/clock.h"
#include "rpc/flights.h"
#include "rpc/pieces.h"
#include "rpc/rpc_format.h"
#include "rpc/rpc_requests.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::rpc {

// Between two questions for replies of which none had come.
inline constexpr Nanoseconds kAskPauseMin = std::chrono::microseconds(20);
inline constexpr Nanoseconds kAskPauseMax = std::chrono::milliseconds(1);
// Of a client that is slowed, where it is as good as full.
inline constexpr Nanoseconds kSlowedMax = std::chrono::milliseconds(1);

/// Threads: one caller at a time.
class Caller {
 public:
  /// Of the options, server, transport and rnic are not looked at. Errors: those of
  /// RpcClient::open.
  static Result<std::unique_ptr<Caller>> open(std::unique_ptr<client::Peer> peer,
                                              const RpcClientOptions& options, const Clock& clock);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // As in RpcClient.
  Result<RpcHandle> call(std::uint32_t operation, std::span<const std::byte> payload,
                         std::uint64_t order_key);
  Result<void> wait(const RpcHandle& handle, RpcLevel level, Nanoseconds timeout);
  Result<RpcReply> reply(const RpcHandle& handle, Nanoseconds timeout);
  Result<void> cancel(const RpcHandle& handle);
  Result<std::vector<std::byte>> query(std::uint32_t operation, std::span<const std::byte> payload,
                                       bool own_calls, Nanoseconds timeout);
  Result<void> poll();
  /// Also what one update of the session takes.
  std::uint64_t payload_bytes_max() const {
    return std::min(rpc::payload_bytes_max(ring_bytes_), client::kRangeBytesMax - kEntryHeadBytes);
  }
  RpcHandle handle_of(std::uint64_t sequence) const { return {sequence, client_}; }
  RpcClientStatus status() const;

  /// Whether a call has got there, as far as it is known by now.
  bool reached(const RpcHandle& handle, RpcLevel level) const;
  /// A call that is not reported yet: its reply is wanted as soon as it is there.
  void want(const RpcHandle& handle);

 private:
  /// Calls that went in one update.
  struct Update {
    std::uint64_t number = 0;  // of the session
    std::uint64_t last = 0;    // sequence
  };

  Caller(std::unique_ptr<client::Peer> peer, const RpcClientOptions& options, const Clock& clock);
  Result<void> find_place(Deadline deadline);
  Result<void> connect(Deadline deadline);
  Result<void> reach(Deadline deadline);
  Result<void> require_open(const control::PoolDescription& pool) const;
  Error expired();
  Error older_copy(std::string_view why) const;
  Result<WelcomeReply> ask_welcome();
  Result<void> take_welcome(const WelcomeReply& reply);
  Result<void> begin_life(const WelcomeReply& reply);
  Result<void> await(std::uint64_t number, Deadline deadline);
  void progress(const std::optional<Deadline>& until = std::nullopt);
  void come_back();
  void note_lost();
  void take_durable();
  void take_collected();
  void take_replies(const Collected& collected);
  void take_reply(const ReplyHead& head, std::span<const std::byte> bytes);
  void fetch_rest();
  enum class Asked { Again, Answered, Lost };
  Result<Asked> ask_query(std::span<const std::byte> question, Deadline deadline,
                          std::vector<std::byte>& answer);
  Result<Asked> fetch_answer(const QueryReplyHead& head, std::size_t here, Deadline deadline,
                             std::vector<std::byte>& answer);
  void post_calls();
  std::uint64_t next_batch() const;
  Result<std::uint64_t> post(std::uint64_t first, std::uint64_t last);
  bool goes_with_question() const;
  bool post_with_question();
  void ask_for_replies();
  bool replies_due() const;
  void rest(Nanoseconds since, Nanoseconds slice);
  Result<void> await_room(std::uint64_t bytes, Deadline deadline);
  bool has_room(std::uint64_t bytes) const;
  void slow_down();
  std::uint64_t percent_full() const;
  bool is_cancelled(const RpcHandle& handle) const {
    return flights_.holds(handle.sequence) && flight(handle.sequence).cancelled;
  }
  Result<void> check(const RpcHandle& handle) const;
  void forget_held();
  Error set_aside() const;
  Flight& flight(std::uint64_t sequence) { return flights_.at(sequence); }
  const Flight& flight(std::uint64_t sequence) const { return flights_.at(sequence); }

  const RpcClientOptions options_;
  const Clock& clock_;
  std::unique_ptr<std::byte[]> ring_;            // the copy
  std::unique_ptr<fabric::Memory> ring_memory_;  // goes after the connection
  std::vector<std::byte> replies_;               // room for what was asked for
  std::vector<std::byte> answer_;                // the same of welcome and query
  client::DurableSession session_;
  std::uint64_t writer_ = 0;
  Epoch epoch_;
  std::string uuid_;           // of the client's pool
  std::optional<Error> over_;  // it can not come back

  std::uint64_t client_ = 0;
  std::uint64_t ring_bytes_ = 0;
  std::uint64_t replies_kept_ = 0;  // at the server
  std::uint64_t reply_bytes_max_ = 0;
  std::uint64_t begun_ = 0;   // sequences, each up to here
  std::uint64_t posted_ = 0;  // on this connection, or durable
  std::uint64_t sent_ = 0;    // on any connection: what is behind it nobody else has
  std::uint64_t durable_ = 0;
  std::uint64_t applied_ = 0;
  std::uint64_t received_ = 0;  // replies
  std::uint64_t wanted_ = 0;    // replies that somebody waits for
  std::uint64_t earlier_ = 0;
  std::uint64_t end_ = 0;    // position behind the last call
  std::uint64_t freed_ = 0;  // position behind the last that is applied
  Flights flights_;          // calls, from their beginning until their reply is forgotten
  std::array<Update, client::kUpdatesMax> updates_{};
  std::uint64_t updates_begun_ = 0;
  std::uint64_t updates_taken_ = 0;
  Collected collected_;  // what was asked for last
  Pieces rest_;          // of a reply that is larger than a message
  ReplyHead rest_head_;  // of that; sequence 0: none
  std::vector<std::byte> rest_bytes_;
  std::uint64_t held_ = 0;          // sequence of the call that is set aside; 0: none
  std::uint64_t asked_before_ = 0;  // a question whose answer may be too old to say so
  std::uint64_t asking_ = 0;        // number of the request for replies; 0: none
  std::uint64_t asked_with_ = 0;    // sequence of the call that went with it; 0: none
  bool replies_lately_ = false;     // who waited last waited for a reply
  Nanoseconds ask_at_{0};           // not before
  Nanoseconds ask_pause_{0};
  std::uint64_t slow_from_percent_ = 100;
  std::uint64_t slowed_ = 0;
  Nanoseconds slowed_for_{0};
  std::uint64_t cancelled_ = 0;
  std::uint64_t resent_ = 0;
  std::uint64_t connections_ = 0;
};

}  // namespace perdure::rpc
