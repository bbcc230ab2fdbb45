// The bank of rpc_world.h: what its calls do to the pool, and how a judge reads it there. Each call
// that is executed changes two accounts, its client's row and the count of a journal, and writes a
// line of that journal.
//
// Handlers' data: two halves of the bank, whose calls have different order keys, touch different
// bytes:
//
//   0       halves x accounts x 8   balances
//   512     halves x 64             lines of the half's journal: u64
//   1024    clients x 64            rows (BankRow), by the number at the end of a client's name
//   4096    halves x lines x 64     journals (BankLine)
#pragma once

#include <perdure/rpc.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

namespace perdure::test {

inline constexpr std::uint64_t kBankHalves = 2;
inline constexpr std::uint64_t kBankAccounts = 8;  // of each half
inline constexpr std::uint64_t kBankClients = 8;
inline constexpr std::uint64_t kBankLines = 3000;  // of each journal
inline constexpr std::uint64_t kBankBytes = 4096 + kBankHalves * kBankLines * 64;

/// Operators.
enum class BankOperator : std::uint32_t {
  Transfer = 1,
  Touch,      // no payload: a line, and no money
  Statement,  // a transfer with a large reply
  Refuse,     // writes, and returns InvalidArgument
  Newer,      // a transfer that some servers have no handler for
};
inline constexpr std::uint32_t kBankQuery = 16;  // of a row

/// How each payload begins, but that of Touch.
struct BankOrder {
  std::uint64_t ticket = 0;  // no other call of the world has it
  std::uint32_t half = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t reply_bytes = 0;  // of Statement, behind a BankReply
  std::int64_t amount = 0;
};

struct BankLine {
  std::uint64_t client = 0;
  std::uint64_t sequence = 0;
  std::uint64_t ordinal = 0;  // of its client's lines
  std::uint64_t ticket = 0;
  std::uint32_t operation = 0;
  std::uint32_t digest = 0;  // crc32c of the payload
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::int64_t from_after = 0;
  std::int64_t to_after = 0;
  bool operator==(const BankLine&) const = default;
};
static_assert(sizeof(BankLine) == 64);

struct BankRow {
  std::uint64_t client = 0;
  std::uint64_t lines = 0;
  std::uint64_t last = 0;  // sequence
};

struct BankReply {
  std::uint64_t line = 0;  // where it is
  std::int64_t from_after = 0;
  std::int64_t to_after = 0;
  std::uint64_t digest = 0;
};

/// What a query of a row asks for: answer_bytes behind a BankRow.
struct BankQuestion {
  std::uint32_t row = 0;
  std::uint32_t answer_bytes = 0;
};

/// What the bytes behind a reply or an answer are.
std::byte bank_filler(std::uint64_t number, std::size_t at);

/// `before` is called by each handler before it does anything; it may throw, or end its server.
void add_bank(std::map<std::uint32_t, RpcHandler>& handlers,
              std::map<std::uint32_t, RpcQueryHandler>& queries, bool newer,
              std::function<void(const RpcCall&)> before);

/// To break the promise: the last line of a journal, if there is one, was never written.
void forget_last_line(std::span<std::byte> bytes);

/// The handlers' bytes as they are in a pool. Requires that they stay.
class BankBytes {
 public:
  explicit BankBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::int64_t balance(std::uint64_t half, std::uint64_t account) const;
  std::uint64_t lines(std::uint64_t half) const;
  BankLine line(std::uint64_t half, std::uint64_t line) const;
  static std::uint64_t line_at(std::uint64_t half, std::uint64_t line);

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace perdure::test
