// The pool of a durable RPC server, looked at: see rpc_survey.h.
#include "rpc_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "control/json_fields.h"
#include "core/try.h"
#include "output.h"
#include "rpc/client_store.h"

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

std::vector<rpc::Entry> waiting_calls(const rpc::RpcPool& pool, std::size_t place,
                                      const rpc::ClientPlace& client) {
  std::vector<rpc::Entry> calls;
  std::vector<std::byte> copy;
  rpc::NextEntry expected = rpc::next_entry(client);
  const std::uint64_t at_most = pool.shape().ring_bytes / rpc::kEntryAlignment;
  while (calls.size() < at_most) {
    const auto found = rpc::find_entry(pool.ring(place), expected, copy);
    if (!found) break;
    calls.push_back(found->entry);
    expected = found->next;
  }
  return calls;
}

}  // namespace

Result<OpenedPool> open_rpc_pool(const std::string& file,
                                 std::optional<PersistenceDomain> declared) {
  PERDURE_TRY(ended, rpc::open_ended_pool(file, declared));
  if (const std::string vain = rpc::flushed_in_vain(ended, file); !vain.empty())
    print_warning(vain);
  const std::unique_ptr<rpc::RpcPool>& pool = ended.pool;
  // Calls in persistent receive buffers are durable, and in no ring yet.
  bool seen = true;
  for (std::size_t place = 0; place < pool->places().size(); ++place) {
    const auto replayed = rpc::replay_buffers(*pool, place);
    if (replayed.ok()) continue;
    seen = false;
    print_warning(fmt::format("of client '{}' there may be more calls than are shown: {}",
                              pool->places()[place].name, replayed.error().message));
  }
  return OpenedPool{std::move(ended.uuid), std::move(ended.pool), seen};
}

PoolFound survey(const OpenedPool& opened) {
  const rpc::RpcPool& pool = *opened.pool;
  PoolFound found{opened.uuid, pool.shape(), pool.executing(), {}};
  for (std::size_t place = 0; place < pool.places().size(); ++place) {
    const rpc::ClientPlace& client = pool.places()[place];
    if (client.client == 0) continue;
    found.clients.push_back({place, client, waiting_calls(pool, place, client)});
  }
  return found;
}

Result<const ClientFound*> find_client(const PoolFound& pool, const std::string& file,
                                       const std::string& name) {
  const auto client = std::find_if(pool.clients.begin(), pool.clients.end(),
                                   [&](const ClientFound& each) { return each.of.name == name; });
  if (client != pool.clients.end()) return &*client;
  return Error{ErrorCode::NotFound,
               fmt::format("{}: there is no client '{}'; `perdure rpc list` names those there are",
                           file, name)};
}

std::vector<CallFound> calls_of(const PoolFound& pool, const ClientFound& client) {
  std::vector<CallFound> calls;
  for (const rpc::Entry& each : client.waiting) {
    const bool next = each.sequence == client.of.applied + 1;
    const auto is_it = [&](const rpc::Executing& call) {
      return call.place == client.place && call.sequence == each.sequence;
    };
    const bool begun = std::any_of(pool.executing.begin(), pool.executing.end(), is_it);
    std::string state = "waiting";
    if (client.of.held) {
      state = next ? "set-aside" : "held";
    } else if (begun) {
      state = "begun";  // by a server that ended in it
    } else if (next && client.of.attempts != 0) {
      state = "failed";
    }
    calls.push_back({&client, each, std::move(state)});
  }
  return calls;
}

std::vector<CallFound> calls_in_order(const PoolFound& pool) {
  std::vector<std::vector<CallFound>> left;
  std::vector<CallFound> order;
  std::vector<CallFound> held;
  for (const ClientFound& each : pool.clients) {
    std::vector<CallFound> calls = calls_of(pool, each);
    if (each.of.held) {
      std::move(calls.begin(), calls.end(), std::back_inserter(held));
    } else {
      left.push_back(std::move(calls));
    }
  }
  bool found = true;
  for (std::size_t round = 0; found; ++round) {
    found = false;
    for (std::vector<CallFound>& calls : left) {
      if (round >= calls.size()) continue;
      order.push_back(std::move(calls[round]));
      found = true;
    }
  }
  std::move(held.begin(), held.end(), std::back_inserter(order));
  return order;
}

ordered_json client_json(const ClientFound& client) {
  return {{"name", client.of.name},         {"client_id", control::hexadecimal(client.of.client)},
          {"applied", client.of.applied},   {"waiting", client.waiting.size()},
          {"attempts", client.of.attempts}, {"set_aside", client.of.set_aside},
          {"dropped", client.of.dropped},   {"held", client.of.held}};
}

ordered_json pool_json(const std::string& file, const PoolFound& pool) {
  ordered_json json{{"format", kRpcDocumentFormat},
                    {"pool", file},
                    {"uuid", pool.uuid},
                    {"clients_max", pool.shape.clients},
                    {"ring_bytes", pool.shape.ring_bytes},
                    {"replies", pool.shape.replies},
                    {"clients", ordered_json::array()}};
  for (const ClientFound& each : pool.clients) json["clients"].push_back(client_json(each));
  return json;
}

}  // namespace perdure::app
