// The pool of a durable RPC server: see rpc_pool.h.
#include "rpc/rpc_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/assert.h"
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

/// What is read before it was written is zero first: a device may hold what it held before. Then
/// the copy of the header, then the header.
Result<void> RpcPool::format(const PoolShape& shape) {
  PERDURE_TRY_VOID(validate(shape));
  if (shape.bytes() > pool_->data_bytes()) {
    return Error{ErrorCode::NoSpace, fmt::format("the pool has {} bytes, and {} are needed",
                                                 pool_->data_bytes(), shape.bytes())};
  }
  const std::array<pmem::Range, 3> blank = {{
      {kExecutingAt, shape.reply_at(0, 0) - kExecutingAt},
      {shape.redo_at(0), kRedoHeadBytes},
      {shape.redo_at(1), kRedoHeadBytes},
  }};
  for (const pmem::Range& each : blank) {
    const auto bytes = pool_->data().subspan(each.at, each.length);
    std::fill(bytes.begin(), bytes.end(), std::byte{});
    PERDURE_TRY_VOID(region().flush(pool_->data_offset() + each.at, each.length));
  }
  const HeaderBytes header = encode_header(shape);
  for (auto at = kHeadersAt.rbegin(); at != kHeadersAt.rend(); ++at) {
    std::copy(header.begin(), header.end(), pool_->data().subspan(*at).begin());
    PERDURE_TRY_VOID(region().flush(pool_->data_offset() + *at, kHeaderBytes));
  }
  shape_ = shape;
  return {};
}

Result<void> RpcPool::make_durable(std::size_t place, const Entry& entry) {
  const pmem::Range range{
      pool_->data_offset() + shape_.ring_at(place) + entry.position % shape_.ring_bytes,
      entry_bytes(entry.payload_bytes)};
  region().dirty_pages(range);  // an RNIC's stores do not
  return region().flush(range.at, range.length);
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
  return region().check();  // or zeros were taken for places that are free
}

std::vector<Executing> RpcPool::executing() const {
  std::vector<Executing> calls;
  for (std::size_t thread = 0; thread < kExecutingMax; ++thread) {
    const std::byte* const at = pool_->data().data() + kExecutingAt + 16 * thread;
    const auto place = load<std::uint64_t>(at);
    if (place == 0 || place > shape_.clients) continue;
    calls.push_back({place - 1, load<std::uint64_t>(at + 8)});
  }
  return calls;
}

void RpcPool::note_executing(const std::optional<Executing>& call, std::size_t thread) {
  PERDURE_ASSERT(thread < kExecutingMax);
  std::byte* const at = pool_->data().data() + kExecutingAt + 16 * thread;
  store<std::uint64_t>(at + 8, call ? call->sequence : 0);
  store<std::uint64_t>(at, call ? call->place + 1 : 0);
}

Result<EndedPool> open_ended_pool(const std::string& file,
                                  std::optional<PersistenceDomain> declared) {
  pmem::OpenOptions options;
  options.declared = declared;
  options.must_be_declared = true;
  PERDURE_TRY(opened, pmem::Pool::open(file, options));
  PERDURE_TRY(shape, decode_header(opened->data()));
  if (!shape) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{}: no durable RPC server has ever served this pool", file)};
  }
  EndedPool ended;
  ended.uuid = pmem::to_string(opened->uuid());
  ended.domain = opened->region().domain();
  PERDURE_TRY(pool, RpcPool::open(std::move(opened), *shape));
  ended.pool = std::move(pool);
  return ended;
}

std::string flushed_in_vain(const EndedPool& pool, const std::string& file) {
  if (pool.domain != PersistenceDomain::None) return {};
  return fmt::format(
      "of where {} lies it is not known that anything lasts, so nothing is flushed; if its server "
      "is told more (--declare-domain), say the same here",
      file);
}

}  // namespace perdure::rpc
