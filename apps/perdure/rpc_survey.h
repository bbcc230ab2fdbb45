// What stands in the pool of a durable RPC server that does not run, for `perdure rpc`.
#pragma once

#include <perdure/result.h>

#include "core/json.h"
#include "rpc/rpc_pool.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perdure::app {

inline constexpr int kRpcDocumentFormat = 1;  // docs/rpc.schema.json

/// A client, with what its ring holds behind what is applied.
struct ClientFound {
  std::size_t place = 0;
  rpc::ClientPlace of;
  std::vector<rpc::Entry> waiting;
};

struct PoolFound {
  std::string uuid;
  rpc::PoolShape shape;
  std::vector<rpc::Executing> executing;
  std::vector<ClientFound> clients;
};

/// The pool of a server that has ended.
struct OpenedPool {
  std::string uuid;
  std::unique_ptr<rpc::RpcPool> pool;
  bool seen = true;  // else a client's receive buffers could not be read, which was said
};

/// Recovers the pool, as the next server would, and executes nothing. It is not marked as cleanly
/// closed: what a server left visible and not durable stays the next one's to see to.
/// `declared`: as its server has it. Errors: Busy (it is served), those of rpc::open_ended_pool.
Result<OpenedPool> open_rpc_pool(const std::string& file,
                                 std::optional<PersistenceDomain> declared);

/// Errors: a page of it was lost: what is found then may be too little.
Result<PoolFound> survey(const OpenedPool& pool);
/// Errors: NotFound.
Result<const ClientFound*> find_client(const PoolFound& pool, const std::string& file,
                                       const std::string& name);

/// A call that is not applied, and what is to become of it.
struct CallFound {
  const ClientFound* client = nullptr;
  rpc::Entry entry;
  std::string state;  // docs/rpc.schema.json lists them
  /// From 1, of calls_in_order: those of one turn are executed at the same time. 0: not executed.
  std::size_t turn = 0;
};
/// Of one client, in the order of its calls.
std::vector<CallFound> calls_of(const PoolFound& pool, const ClientFound& client);
/// Of all, in the order in which the next server will execute them with so many handler threads, if
/// it has a handler for each, none fails, and none fills a transaction: with one thread one of each
/// client in turn. Those that it will not, since one is set aside, come last.
std::vector<CallFound> calls_in_order(const PoolFound& pool, std::size_t threads);

nlohmann::ordered_json client_json(const ClientFound& client);
nlohmann::ordered_json pool_json(const std::string& file, const PoolFound& pool);

}  // namespace perdure::app
