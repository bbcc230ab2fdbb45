// What durable RPC promises: see rpc_judge.h.
#include "testing/torture/rpc_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/assert.h"

namespace perdure::test {

std::string RpcJudge::name_of(std::uint64_t client, std::uint64_t sequence) {
  return fmt::format("call {} of client {:x}", sequence, client);
}

const RpcJudge::Client& RpcJudge::of(std::uint64_t client) const {
  static const Client nobody;
  const auto found = clients_.find(client);
  return found == clients_.end() ? nobody : found->second;
}

RpcJudge::Call* RpcJudge::find(std::uint64_t client, std::uint64_t sequence) {
  const auto found = clients_.find(client);
  if (found == clients_.end() || sequence == 0 || sequence > found->second.calls.size()) {
    return nullptr;
  }
  return &found->second.calls[sequence - 1];
}

void RpcJudge::began(std::uint64_t client, std::uint64_t sequence, const Made& made) {
  Client& at = clients_[client];
  if (sequence != at.calls.size() + 1) {
    return order_is_broken(
        fmt::format("{} is begun behind {} calls", name_of(client, sequence), at.calls.size()));
  }
  at.calls.push_back({made, 0, false, false, false, std::nullopt});
}

void RpcJudge::not_begun(std::uint64_t client) { clients_[client].calls.pop_back(); }

void RpcJudge::cancelled(std::uint64_t client, std::uint64_t sequence) {
  if (Call* call = find(client, sequence)) call->cancelled = true;
}

void RpcJudge::durable(std::uint64_t client, std::uint64_t sequence) {
  Client& at = clients_[client];
  if (sequence > at.calls.size()) {
    return broken("nothing-from-nowhere",
                  fmt::format("{} is durable, and nobody called it", name_of(client, sequence)));
  }
  at.durable = std::max(at.durable, sequence);
}

void RpcJudge::applied(std::uint64_t client, std::uint64_t sequence) {
  durable(client, sequence);
  Client& at = clients_[client];
  at.applied = std::max(at.applied, sequence);
}

void RpcJudge::resumed(std::uint64_t client, std::uint64_t earlier_durable) {
  Client& at = clients_[client];
  if (earlier_durable < at.durable) {
    return lost(fmt::format("{} was durable, and whoever comes back hears of {} calls",
                            name_of(client, at.durable), earlier_durable));
  }
  durable(client, earlier_durable);
  if (earlier_durable < at.calls.size()) at.calls.resize(earlier_durable);
}

void RpcJudge::expired(std::uint64_t client) {
  Client& at = clients_[client];
  at.expired = true;
  if (at.held == 0) return;
  lost(fmt::format("a client has expired, and {} is set aside", name_of(client, at.held)));
}

bool RpcJudge::in_flight() const {
  return std::ranges::any_of(clients_, [](const auto& each) {
    return !each.second.expired && each.second.applied < each.second.calls.size();
  });
}

void RpcJudge::tried(std::uint64_t client, std::uint64_t sequence) {
  if (Call* call = find(client, sequence)) ++call->tries;
}

bool RpcJudge::may_be_given_up(const Call& call) const { return call.tries >= rules_.attempts_max; }

void RpcJudge::set_aside(std::uint64_t client, std::uint64_t sequence) {
  clients_[client].held = sequence;
  if (sequence == 0) return;
  const Call* call = find(client, sequence);
  if (call != nullptr && may_be_given_up(*call) && !rules_.refuse_failed) return;
  broken("set-aside-is-earned",
         fmt::format("{} is set aside after {} tries of {}", name_of(client, sequence),
                     call == nullptr ? 0 : call->tries, rules_.attempts_max));
}

void RpcJudge::retried(std::uint64_t client, std::uint64_t sequence) {
  clients_[client].held = 0;
  if (Call* call = find(client, sequence)) call->tries = 0;
}

void RpcJudge::waits_for_operator(std::uint64_t client, std::uint64_t sequence) {
  const Client& at = of(client);
  const std::uint64_t end = std::min<std::uint64_t>(sequence, at.calls.size());
  for (std::uint64_t each = at.applied; each < end; ++each) {
    if (may_be_given_up(at.calls[each])) return;
  }
  broken("set-aside-is-earned",
         fmt::format("a client is told that {} waits for an operator, and none was tried enough",
                     name_of(client, sequence)));
}

void RpcJudge::dropping(std::uint64_t client, std::uint64_t sequence) {
  if (Call* call = find(client, sequence)) call->maybe_dropped = true;
}

void RpcJudge::dropped(std::uint64_t client, std::uint64_t sequence) {
  clients_[client].held = 0;
  if (Call* call = find(client, sequence)) call->dropped = true;
}

/// Whether it does something, as far as is known.
bool RpcJudge::has_to_be_there(const Call& call) {
  if (call.cancelled || call.dropped || call.made.operation == BankOperator::Refuse) return false;
  if (call.reply) return !call.reply->refused;
  if (call.maybe_dropped) return false;
  return call.made.operation != BankOperator::Newer;
}

void RpcJudge::replied(std::uint64_t client, std::uint64_t sequence, const RpcReply& reply) {
  Call* const call = find(client, sequence);
  if (call == nullptr) return;
  const std::string name = name_of(client, sequence);
  const auto& known = call->reply;
  const bool same =
      !known || (known->refused == reply.refused && known->bytes == reply.bytes &&
                 known->dropped == reply.dropped && known->cancelled == reply.cancelled);
  if (!same) return broken("replies-are-true", name + " has another reply than before");
  if (reply.cancelled != call->cancelled) {
    return broken("refused-leaves-nothing",
                  fmt::format("{} was {}cancelled, and its reply says otherwise", name,
                              call->cancelled ? "" : "not "));
  }
  const bool given_up = call->maybe_dropped || (rules_.refuse_failed && may_be_given_up(*call));
  if (reply.dropped && !given_up) {
    return broken("set-aside-is-earned",
                  fmt::format("{} is dropped after {} tries", name, call->tries));
  }
  if (call->dropped && !reply.dropped) {
    return broken("refused-leaves-nothing", name + " was dropped, and its reply says otherwise");
  }
  ErrorCode wanted = ErrorCode::InvalidArgument;
  if (call->made.operation == BankOperator::Newer) wanted = ErrorCode::Unsupported;
  if (reply.dropped) wanted = ErrorCode::SystemError;
  if (reply.cancelled) wanted = ErrorCode::TimedOut;
  const bool refusable = reply.cancelled || reply.dropped ||
                         call->made.operation == BankOperator::Refuse ||
                         call->made.operation == BankOperator::Newer;
  const bool right = reply.refused ? refusable && *reply.refused == wanted
                                   : call->made.operation != BankOperator::Refuse;
  if (!right) {
    return broken("replies-are-true",
                  fmt::format("{}, of operator {}: {}", name,
                              static_cast<std::uint32_t>(call->made.operation),
                              reply.refused ? to_string(*reply.refused) : "executed"));
  }
  call->reply = reply;
}

void RpcJudge::saw(std::uint64_t client, std::uint64_t sequence, const BankRow& row) {
  for (std::uint64_t each = sequence; each > 0; --each) {
    const Call* const call = find(client, each);
    if (call == nullptr || !has_to_be_there(*call)) continue;
    if (rules_.refuse_failed && may_be_given_up(*call)) continue;
    if (row.client == client && row.last >= each) return;
    return broken("own-calls-are-seen", fmt::format("a query does not see {}, but {} of {:x}",
                                                    name_of(client, each), row.last, row.client));
  }
}

/// The reply that its client had is the line's.
void RpcJudge::check_reply(const Call& call, const BankLine& line, std::uint64_t at) {
  if (!call.reply) return;
  const std::string name = name_of(line.client, line.sequence);
  if (call.reply->refused) return broken("refused-leaves-nothing", name + " was refused");
  const std::size_t more = call.made.order.reply_bytes;
  const std::vector<std::byte>& bytes = call.reply->bytes;
  const BankReply wanted{at, line.from_after, line.to_after, line.digest};
  bool same = bytes.size() == sizeof wanted + more &&
              std::memcmp(bytes.data(), &wanted, sizeof wanted) == 0;
  for (std::size_t index = 0; same && index < more; ++index) {
    same = bytes[sizeof wanted + index] == bank_filler(call.made.order.ticket, index);
  }
  if (!same) broken("replies-are-true", name + " says other than the pool");
}

void RpcJudge::check_line(const BankLine& line, std::uint64_t at) {
  const std::string name = name_of(line.client, line.sequence);
  const Call* const call = find(line.client, line.sequence);
  const bool as_called = call != nullptr && line.ticket == call->made.order.ticket &&
                         line.digest == call->made.digest &&
                         line.operation == static_cast<std::uint32_t>(call->made.operation);
  if (!as_called) {
    return broken("nothing-from-nowhere",
                  fmt::format("{}, ticket {}, is executed, and {}", name, line.ticket,
                              call == nullptr ? std::string("nobody called it")
                                              : fmt::format("it is another call, ticket {}",
                                                            call->made.order.ticket)));
  }
  if (call->cancelled) return broken("refused-leaves-nothing", name + " was cancelled");
  if (call->dropped) return broken("refused-leaves-nothing", name + " was dropped");
  if (call->made.operation == BankOperator::Refuse) {
    return broken("refused-leaves-nothing", name + " is refused by its handler");
  }
  check_reply(*call, line, at);
}

/// One journal, and whether the balances are what it makes of them.
void RpcJudge::check_half(const BankBytes& bank, std::uint64_t half, FoundCalls& found) {
  std::array<std::int64_t, kBankAccounts> balances{};
  const std::uint64_t lines = bank.lines(half);
  if (lines > kBankLines) {
    return broken("nothing-from-nowhere", fmt::format("a journal of {} lines", lines));
  }
  for (std::uint64_t index = 0; index < lines && !breach(); ++index) {
    const BankLine line = bank.line(half, index);
    check_line(line, BankBytes::line_at(half, index));
    if (breach()) return;
    auto& executed = found[line.client];
    if (!executed.emplace(line.sequence, line.ordinal).second) {
      return broken("executed-once", name_of(line.client, line.sequence) + " is executed twice");
    }
    const std::int64_t amount = find(line.client, line.sequence)->made.order.amount;
    balances[line.from] -= amount;
    const std::int64_t from_after = balances[line.from];
    balances[line.to] += amount;
    if (from_after != line.from_after || balances[line.to] != line.to_after) {
      return broken("money-is-kept",
                    fmt::format("{} found other balances than the calls before it left",
                                name_of(line.client, line.sequence)));
    }
  }
  for (std::uint64_t account = 0; account < kBankAccounts; ++account) {
    if (bank.balance(half, account) == balances[account]) continue;
    return broken("money-is-kept",
                  fmt::format("account {} of half {} has {}, and its journal says {}", account,
                              half, bank.balance(half, account), balances[account]));
  }
}

/// `settled`: all up to here have an end.
void RpcJudge::check_client(std::uint64_t id, const Client& client,
                            const std::map<std::uint64_t, std::uint64_t>& executed,
                            std::uint64_t settled) {
  std::uint64_t ordinal = 0;
  for (const auto& [sequence, found] : executed) {
    if (found == ++ordinal) continue;
    return order_is_broken(fmt::format("{} was the {}th of its client's, and is the {}th",
                                       name_of(id, sequence), found, ordinal));
  }
  const std::uint64_t last = executed.empty() ? 0 : executed.rbegin()->first;
  for (std::uint64_t each = 1; each <= client.calls.size(); ++each) {
    const Call& call = client.calls[each - 1];
    const bool excused = rules_.refuse_failed && may_be_given_up(call) && !call.reply;
    if (!has_to_be_there(call) || excused || executed.count(each) != 0) continue;
    if (each < last) {
      return order_is_broken(
          fmt::format("{} is not executed, and call {} is", name_of(id, each), last));
    }
    if (each <= client.applied) {
      return lost(name_of(id, each) + " was applied, and is not there");
    }
    if (client.held != 0 && each >= client.held) return;
    if (each > settled) return;
    return lost(fmt::format("{} was durable, and is not executed", name_of(id, each)));
  }
}

void RpcJudge::check_all(const BankBytes& bank, bool recovered, bool all) {
  FoundCalls found;
  for (std::uint64_t half = 0; half < kBankHalves && !breach(); ++half) {
    check_half(bank, half, found);
  }
  if (breach()) return;
  for (const auto& [id, client] : clients_) {
    const bool ended = all && !client.expired;
    const std::uint64_t settled = ended                         ? client.calls.size()
                                  : recovered || client.expired ? client.durable
                                                                : 0;
    check_client(id, client, found[id], settled);
    if (breach()) return;
  }
}

void RpcJudge::holds(const BankBytes& bank, bool recovered) { check_all(bank, recovered, false); }

void RpcJudge::holds_all(const BankBytes& bank) { check_all(bank, true, true); }

}  // namespace perdure::test
