// What a handler sees of the executor's transaction.
#pragma once

#include <fmt/format.h>

#include "core/try.h"
#include "rpc/executor.h"

namespace perdure::rpc {

/// What one handler sees of the transaction. Leaves room for what comes behind it.
class Executor::Transaction final : public RpcTransaction {
 public:
  Transaction(RedoLog& redo, const PoolShape& shape, std::uint64_t reserved)
      : redo_(redo), shape_(shape), reserved_(reserved) {}

  std::uint64_t bytes() const override { return shape_.data_bytes; }
  Result<void> read(std::uint64_t at, std::span<std::byte> into) const override {
    PERDURE_TRY_VOID(check(at, into.size()));
    redo_.read(shape_.data_at() + at, into);
    return {};
  }
  Result<void> write(std::uint64_t at, std::span<const std::byte> bytes) override {
    auto written = check(at, bytes.size());
    if (written.ok() && redo_.room() < bytes.size() + reserved_) {
      written = Error{ErrorCode::NoSpace, "the transaction would be too large"};
    }
    if (written.ok()) written = redo_.write(shape_.data_at() + at, bytes);
    if (!written.ok() && !failure_) failure_ = written.error();
    return written;
  }
  /// The first write that failed.
  const std::optional<Error>& failure() const { return failure_; }

 private:
  Result<void> check(std::uint64_t at, std::uint64_t length) const {
    if (pmem::inside({at, length}, shape_.data_bytes)) return {};
    return Error{ErrorCode::OutOfRange, fmt::format("bytes {}+{} lie outside the handlers' {}", at,
                                                    length, shape_.data_bytes)};
  }

  RedoLog& redo_;
  const PoolShape& shape_;
  const std::uint64_t reserved_;
  std::optional<Error> failure_;
};

}  // namespace perdure::rpc
