// Clients as pools: see client_store.h.
#include "rpc/client_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/try.h"
#include "pmem/pool_format.h"
#include "pmem/window_region.h"

namespace perdure::rpc {
namespace {

Result<std::unique_ptr<pmem::Pool>> attach_window(RpcPool& pool, std::size_t place) {
  return pmem::Pool::attach(std::make_unique<pmem::WindowRegion>(pool.region(), pool.window(place)),
                            pool.place());
}

}  // namespace

Result<std::unique_ptr<pmem::Pool>> ClientStore::create(const control::PoolRequest& request,
                                                        const server::PoolSettings& settings,
                                                        const persist::ReceiveQueue& queue) {
  const PoolShape& shape = executor_.shape();
  const std::uint64_t needed =
      std::max(server::data_bytes_of({request.name, kRingAt + shape.ring_bytes}, settings, queue),
               request.bytes);
  if (needed > shape.window_bytes - pmem::kPoolDataOffset) {
    return Error{ErrorCode::NoSpace,
                 fmt::format("client '{}' needs {} bytes, and the server's pool was made with {} "
                             "for each",
                             request.name, needed, shape.window_bytes - pmem::kPoolDataOffset)};
  }
  pmem::PoolOptions options = server::pool_options_of(request, settings, queue);
  options.data_bytes = 0;  // its whole window
  options.kind = "rpc-client";
  return executor_.add_client(request.name, [&](std::size_t place) {
    RpcPool& pool = executor_.pool();
    return pmem::Pool::format(
        std::make_unique<pmem::WindowRegion>(pool.region(), pool.window(place)), options);
  });
}

Result<std::unique_ptr<pmem::Pool>> ClientStore::open(const std::string& name,
                                                      const server::PoolSettings&) {
  const auto place = executor_.place_of(name);
  if (!place) return Error{ErrorCode::NotFound, fmt::format("there is no client '{}'", name)};
  return attach_window(executor_.pool(), *place);
}

Result<std::uint64_t> replay_buffers(RpcPool& pool, std::size_t place) {
  if (pool.places()[place].client == 0) return std::uint64_t{0};
  PERDURE_TRY(client, attach_window(pool, place));
  // Its place was taken, and it was never served: how it will be is the server's to choose.
  if (client->state().opaque.empty()) return std::uint64_t{0};
  PERDURE_TRY(served, server::ServedPool::adopt(std::move(client), {}, {}));
  return served->replayed();
}

}  // namespace perdure::rpc
