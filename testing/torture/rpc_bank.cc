// What the calls of the bank do: see rpc_bank.h.
#include "testing/torture/rpc_bank.h"

#include <array>
#include <cstring>
#include <utility>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/try.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kCountsAt = 512;
constexpr std::uint64_t kRowsAt = 1024;
constexpr std::uint64_t kJournalsAt = 4096;
constexpr std::uint64_t kStride = 64;

using Outcome = Result<std::size_t>;

std::uint64_t balance_at(std::uint64_t half, std::uint64_t account) {
  return 8 * (half * kBankAccounts + account);
}

/// The name ends with it.
std::uint64_t row_at(std::string_view client) {
  return kRowsAt + kStride * (static_cast<std::uint64_t>(client.back() - '0') % kBankClients);
}

Result<BankOrder> order_of(const RpcCall& call) {
  BankOrder order;
  if (call.operation == static_cast<std::uint32_t>(BankOperator::Touch)) return order;
  if (call.payload.size() < sizeof order) return Error{ErrorCode::ProtocolError, "no order"};
  std::memcpy(&order, call.payload.data(), sizeof order);
  if (order.half < kBankHalves && order.from < kBankAccounts && order.to < kBankAccounts) {
    return order;
  }
  return Error{ErrorCode::ProtocolError, "an order that makes no sense"};
}

Result<void> move_money(const BankOrder& order, RpcTransaction& data, BankLine& line) {
  const std::uint64_t from_at = balance_at(order.half, order.from);
  PERDURE_TRY(from, data.load<std::int64_t>(from_at));
  line.from_after = from - order.amount;
  PERDURE_TRY_VOID(data.store(from_at, line.from_after));
  const std::uint64_t to_at = balance_at(order.half, order.to);
  PERDURE_TRY(to, data.load<std::int64_t>(to_at));
  line.to_after = to + order.amount;
  return data.store(to_at, line.to_after);
}

/// Returns where the line is.
Result<std::uint64_t> book(const RpcCall& call, const BankOrder& order, RpcTransaction& data,
                           BankLine& line) {
  const std::uint64_t at = row_at(call.client);
  PERDURE_TRY(row, data.load<BankRow>(at));
  if (row.client != call.client_id) row = {call.client_id, 0, 0};
  row = {row.client, row.lines + 1, call.sequence};
  PERDURE_TRY_VOID(data.store(at, row));
  line.client = call.client_id;
  line.sequence = call.sequence;
  line.ordinal = row.lines;
  line.ticket = order.ticket;
  line.operation = call.operation;
  line.digest = crc32c(call.payload);
  line.from = order.from;
  line.to = order.to;
  const std::uint64_t count_at = kCountsAt + kStride * order.half;
  PERDURE_TRY(count, data.load<std::uint64_t>(count_at));
  if (count >= kBankLines) return Error{ErrorCode::NoSpace, "the journal is full"};
  const std::uint64_t line_at = BankBytes::line_at(order.half, count);
  PERDURE_TRY_VOID(data.store(line_at, line));
  PERDURE_TRY_VOID(data.store(count_at, count + 1));
  return line_at;
}

Outcome execute(const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply) {
  PERDURE_TRY(order, order_of(call));
  BankLine line;
  PERDURE_TRY_VOID(move_money(order, data, line));
  PERDURE_TRY(at, book(call, order, data, line));
  if (call.operation == static_cast<std::uint32_t>(BankOperator::Refuse)) {
    return Error{ErrorCode::InvalidArgument, "the bank does not do that"};
  }
  const BankReply said{at, line.from_after, line.to_after, line.digest};
  const std::size_t bytes = sizeof said + order.reply_bytes;
  if (bytes > reply.size()) return Error{ErrorCode::OutOfRange, "the reply is too large"};
  std::memcpy(reply.data(), &said, sizeof said);
  for (std::size_t index = 0; index < order.reply_bytes; ++index) {
    reply[sizeof said + index] = bank_filler(order.ticket, index);
  }
  return bytes;
}

Outcome look_up(std::span<const std::byte> payload, const RpcData& data,
                std::span<std::byte> reply) {
  if (payload.size() != sizeof(BankQuestion)) return Error{ErrorCode::InvalidArgument, "size"};
  BankQuestion question;
  std::memcpy(&question, payload.data(), sizeof question);
  PERDURE_TRY(row, data.load<BankRow>(kRowsAt + kStride * (question.row % kBankClients)));
  const std::size_t bytes = sizeof row + question.answer_bytes;
  if (bytes > reply.size()) return Error{ErrorCode::OutOfRange, "the answer is too large"};
  std::memcpy(reply.data(), &row, sizeof row);
  for (std::size_t index = 0; index < question.answer_bytes; ++index) {
    reply[sizeof row + index] = bank_filler(question.row, index);
  }
  return bytes;
}

}  // namespace

std::byte bank_filler(std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>(number * 31 + at * 7 + (at >> 8));
}

void add_bank(std::map<std::uint32_t, RpcHandler>& handlers,
              std::map<std::uint32_t, RpcQueryHandler>& queries, bool newer,
              std::function<void(const RpcCall&)> before) {
  using enum BankOperator;
  for (const BankOperator each : {Transfer, Touch, Statement, Refuse, Newer}) {
    if (each == Newer && !newer) continue;
    handlers[static_cast<std::uint32_t>(each)] = [before](const RpcCall& call, RpcTransaction& data,
                                                          std::span<std::byte> reply) {
      before(call);
      return execute(call, data, reply);
    };
  }
  queries[kBankQuery] = look_up;
}

void forget_last_line(std::span<std::byte> bytes) {
  for (std::uint64_t half = 0; half < kBankHalves; ++half) {
    std::byte* const at = bytes.data() + kCountsAt + kStride * half;
    const auto lines = load<std::uint64_t>(at);
    if (lines == 0) continue;
    return store(at, lines - 1);
  }
}

std::uint64_t BankBytes::line_at(std::uint64_t half, std::uint64_t line) {
  return kJournalsAt + (half * kBankLines + line) * kStride;
}

std::int64_t BankBytes::balance(std::uint64_t half, std::uint64_t account) const {
  return load<std::int64_t>(bytes_.data() + balance_at(half, account));
}

std::uint64_t BankBytes::lines(std::uint64_t half) const {
  return load<std::uint64_t>(bytes_.data() + kCountsAt + kStride * half);
}

BankLine BankBytes::line(std::uint64_t half, std::uint64_t line) const {
  BankLine found;
  std::memcpy(&found, bytes_.data() + line_at(half, line), sizeof found);
  return found;
}

}  // namespace perdure::test
