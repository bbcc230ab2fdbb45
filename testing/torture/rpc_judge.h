// RpcJudge: what durable RPC (include/perdure/rpc.h, docs/rpc.md) promises, against what clients
// began and were told, and what the handlers have left in the pool. It knows nothing of rings, redo
// records or how a client comes back.
//
//   durable-is-executed       what was reported durable is executed after recovery, unless it, or
//                             one before it of its client, is set aside; and what was reported
//                             applied is there from then on
//   executed-once             no call is executed twice
//   order-is-kept             a client's calls are executed in the order in which they were begun,
//                             none is left out
//   nothing-from-nowhere      what is executed was called, with that payload, by a process that had
//                             the name then: nothing of one that was fenced arrives later
//   refused-leaves-nothing    of a call that was refused, cancelled or dropped there are no effects
//   replies-are-true          a reply says what the pool says, and the same to whoever asks later
//   money-is-kept             the balances are what the journals say, and add up
//   set-aside-is-earned       a call is set aside, or dropped, only when it was tried often enough
//   own-calls-are-seen        a query that is to see this client's calls does
//   errors-are-known          what a client is told is what the header names
//   calls-keep-their-deadline what takes a deadline returns by then, or as much later as coming
//   back
//                             to the server may take
//   something-can-be-done     with everything repaired, every call comes to an end, and new ones do
#pragma once

#include <perdure/rpc.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "testing/torture/rpc_bank.h"
#include "testing/torture/torture.h"

namespace perdure::test {

/// Clients are named by their id, calls by their sequence, as the contract names them.
class RpcJudge final : public Judge {
 public:
  struct Rules {
    std::uint32_t attempts_max = 3;
    bool refuse_failed = false;
  };
  struct Made {
    BankOperator operation = BankOperator::Transfer;
    BankOrder order;
    std::uint32_t digest = 0;  // crc32c of the payload
  };

  void rule(const Rules& rules) { rules_ = rules; }

  // What clients do, and are told.

  /// Said before it is begun, since it may be executed at once.
  void began(std::uint64_t client, std::uint64_t sequence, const Made& made);
  /// The last one was not begun after all.
  void not_begun(std::uint64_t client);
  void cancelled(std::uint64_t client, std::uint64_t sequence);
  /// All up to this one.
  void durable(std::uint64_t client, std::uint64_t sequence);
  void applied(std::uint64_t client, std::uint64_t sequence);
  void replied(std::uint64_t client, std::uint64_t sequence, const RpcReply& reply);
  /// A process opened the name and learned what of the earlier ones is durable: the rest is
  /// nobody's any more.
  void resumed(std::uint64_t client, std::uint64_t earlier_durable);
  /// A query of a row saw this, when all calls up to `sequence` were to be seen.
  void saw(std::uint64_t client, std::uint64_t sequence, const BankRow& row);
  void expired(std::uint64_t client);
  bool is_expired(std::uint64_t client) const { return of(client).expired; }
  bool is_cancelled(std::uint64_t client, std::uint64_t sequence) {
    const Call* const call = find(client, sequence);
    return call != nullptr && call->cancelled;
  }
  /// Whether somebody has called what he was not told to be applied.
  bool in_flight() const;
  std::uint64_t durable_of(std::uint64_t client) const { return of(client).durable; }

  // What the server and its operator do.

  /// A handler has it, and may not come to its end.
  void tried(std::uint64_t client, std::uint64_t sequence);
  /// Which call of the client is set aside now; 0: none.
  void set_aside(std::uint64_t client, std::uint64_t sequence);
  /// A client was told that it, or one before it, is: it must have been tried.
  void waits_for_operator(std::uint64_t client, std::uint64_t sequence);
  void retried(std::uint64_t client, std::uint64_t sequence);
  /// Said before, since nobody may hear of it.
  void dropping(std::uint64_t client, std::uint64_t sequence);
  void dropped(std::uint64_t client, std::uint64_t sequence);

  // What the pool holds.

  /// `recovered`: a server has just executed all that it found.
  void holds(const BankBytes& bank, bool recovered);
  /// The same when every call of every client is applied.
  void holds_all(const BankBytes& bank);

  void wrong_error(std::string story) { broken("errors-are-known", std::move(story)); }
  void late(std::string story) { broken("calls-keep-their-deadline", std::move(story)); }
  void order_is_broken(std::string story) { broken("order-is-kept", std::move(story)); }
  void lost(std::string story) { broken("durable-is-executed", std::move(story)); }
  void nothing_can_be_done(std::string story) { broken("something-can-be-done", std::move(story)); }

 private:
  struct Call {
    Made made;
    std::uint32_t tries = 0;  // since an operator decided
    bool cancelled = false;
    bool dropped = false;
    bool maybe_dropped = false;
    std::optional<RpcReply> reply;
  };
  struct Client {
    std::vector<Call> calls;  // by sequence - 1
    std::uint64_t durable = 0;
    std::uint64_t applied = 0;
    std::uint64_t held = 0;
    bool expired = false;
  };
  using FoundCalls = std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>>;

  const Client& of(std::uint64_t client) const;
  Call* find(std::uint64_t client, std::uint64_t sequence);
  static bool has_to_be_there(const Call& call);
  bool may_be_given_up(const Call& call) const;
  void check_line(const BankLine& line, std::uint64_t at);
  void check_reply(const Call& call, const BankLine& line, std::uint64_t at);
  void check_half(const BankBytes& bank, std::uint64_t half, FoundCalls& found);
  void check_client(std::uint64_t id, const Client& client,
                    const std::map<std::uint64_t, std::uint64_t>& executed, std::uint64_t settled);
  void check_all(const BankBytes& bank, bool recovered, bool all);
  static std::string name_of(std::uint64_t client, std::uint64_t sequence);

  Rules rules_;
  std::map<std::uint64_t, Client> clients_;
};

}  // namespace perdure::test
