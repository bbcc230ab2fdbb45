// The pool of a durable RPC server: see rpc_pool.h.
#include "rpc/rpc_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/try.h"

namespace perdure::rpc {

Result<std::unique_ptr<RpcPool>> RpcPool::open(std::unique_ptr<pmem::Pool> pool,
                                               const PoolShape& shape) {
  PERDURE_TRY(found, decode_header(pool->data()));
  std::unique_ptr<RpcPool> opened(new RpcPool(std::move(pool)));
  if (found) {
    opened->shape_ = *found;
  } else {
    PERDURE_TRY_VOID(opened->format(shape));
  }
  PERDURE_TRY_VOID(opened->recover());
  return opened;
}

/// The copy is durable first, and the rest of the pool is taken to be zero, as a new pool is.
Result<void> RpcPool::format(const PoolShape& shape) {
  PERDURE_TRY_VOID(validate(shape));
  if (shape.bytes() > pool_->data_bytes()) {
    return Error{ErrorCode::NoSpace, fmt::format("the pool has {} bytes, and {} are needed",
                                                 pool_->data_bytes(), shape.bytes())};
  }
  const HeaderBytes header = encode_header(shape);
  for (auto at = kHeadersAt.rbegin(); at != kHeadersAt.rend(); ++at) {
    std::copy(header.begin(), header.end(), pool_->data().subspan(*at).begin());
    PERDURE_TRY_VOID(region().flush(pool_->data_offset() + *at, kHeaderBytes));
  }
  shape_ = shape;
  return {};
}

Result<void> RpcPool::recover() {
  RedoLog::Options options;
  options.base = pool_->data_offset();
  options.bytes = shape_.bytes();
  options.areas = {shape_.redo_at(0), shape_.redo_at(1)};
  options.area_bytes = shape_.transaction_bytes;
  redo_ = std::make_unique<RedoLog>(region(), options);
  PERDURE_TRY_VOID(redo_->recover());
  for (std::size_t place = 0; place < shape_.clients; ++place) {
    PERDURE_TRY(client, decode_place(pool_->data().subspan(shape_.place_at(place), kPlaceBytes)));
    places_.push_back(std::move(client));
  }
  return {};
}

std::optional<Executing> RpcPool::executing() const {
  const std::byte* const at = pool_->data().data() + kExecutingAt;
  const auto place = load<std::uint64_t>(at);
  if (place == 0 || place > shape_.clients) return std::nullopt;
  return Executing{place - 1, load<std::uint64_t>(at + 8)};
}

void RpcPool::note_executing(const std::optional<Executing>& call) {
  std::byte* const at = pool_->data().data() + kExecutingAt;
  store<std::uint64_t>(at + 8, call ? call->sequence : 0);
  store<std::uint64_t>(at, call ? call->place + 1 : 0);
}

}  // namespace perdure::rpc
