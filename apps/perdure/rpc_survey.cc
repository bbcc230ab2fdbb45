// The pool of a durable RPC server, looked at: see rpc_survey.h.
#include "rpc_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

/// What rpc::Executor chooses, call for call, where every call is applied when it has its turn.
class Turns {
 public:
  Turns(const PoolFound& pool, std::size_t threads) : threads_(threads) {
    for (const ClientFound& each : pool.clients) {
      if (!each.of.held) lines_.push_back({calls_of(pool, each)});
    }
  }

  std::vector<CallFound> take_all() {
    // What was begun when the last server ended, and all before it, goes alone.
    std::size_t suspects = 0;
    for (const Line& line : lines_) suspects += begun_in(line);
    while (suspects != 0) {
      const std::size_t line = first_waiting();
      if (line == lines_.size()) return std::move(order_);
      suspects -= lines_[line].front().state == "begun" ? 1 : 0;
      take({line});
      next_ = line + 1;
    }
    while (wave()) continue;
    return std::move(order_);
  }

 private:
  struct Line {
    std::vector<CallFound> calls;
    std::size_t taken = 0;
    bool empty() const { return taken == calls.size(); }
    const CallFound& front() const { return calls[taken]; }
  };

  static std::size_t begun_in(const Line& line) {
    const auto begun = [](const CallFound& each) { return each.state == "begun"; };
    return static_cast<std::size_t>(std::count_if(line.calls.begin(), line.calls.end(), begun));
  }

  std::size_t first_waiting() const {
    for (std::size_t step = 0; step < lines_.size(); ++step) {
      const std::size_t line = (next_ + step) % lines_.size();
      if (!lines_[line].empty()) return line;
    }
    return lines_.size();
  }

  /// As Executor::may_go_beside.
  bool goes_beside(const CallFound& call, const std::vector<std::size_t>& lanes) const {
    const bool ordinary = call.entry.order_key != 0 && call.state != "failed" &&
                          call.entry.operation != kRpcCancelled;
    return ordinary && std::none_of(lanes.begin(), lanes.end(), [&](std::size_t lane) {
             return lines_[lane].front().entry.order_key == call.entry.order_key;
           });
  }

  /// As Executor::execute_wave. False: nothing waits any more.
  bool wave() {
    std::vector<std::size_t> lanes;
    std::optional<std::size_t> left_out;  // the first that has no part in it
    for (std::size_t step = 0; step < lines_.size(); ++step) {
      const std::size_t line = (next_ + step) % lines_.size();
      if (lines_[line].empty()) continue;
      const bool full = lanes.size() == threads_;
      const CallFound& call = lines_[line].front();
      if (!full && threads_ > 1 && goes_beside(call, lanes)) {
        lanes.push_back(line);
        continue;
      }
      if (!left_out) left_out = line;
      const bool waits_for_its_key = call.entry.order_key != 0 && !lanes.empty();
      if (full || !waits_for_its_key) break;
    }
    if (lanes.empty() && !left_out) return false;
    const bool alone = lanes.empty();
    if (alone) lanes.push_back(*left_out);
    take(lanes);
    next_ = !alone && left_out ? *left_out : lanes.back() + 1;
    return true;
  }

  void take(const std::vector<std::size_t>& lanes) {
    ++turn_;
    for (const std::size_t lane : lanes) {
      order_.push_back(std::move(lines_[lane].calls[lines_[lane].taken++]));
      order_.back().turn = turn_;
    }
  }

  const std::size_t threads_;
  std::vector<Line> lines_;  // in the order of their places
  std::size_t next_ = 0;
  std::size_t turn_ = 0;
  std::vector<CallFound> order_;
};

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

Result<PoolFound> survey(const OpenedPool& opened) {
  rpc::RpcPool& pool = *opened.pool;
  PoolFound found{opened.uuid, pool.shape(), pool.executing(), {}};
  for (std::size_t place = 0; place < pool.places().size(); ++place) {
    const rpc::ClientPlace& client = pool.places()[place];
    if (client.client == 0) continue;
    found.clients.push_back({place, client, waiting_calls(pool, place, client)});
  }
  PERDURE_TRY_VOID(pool.region().check());
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

std::vector<CallFound> calls_in_order(const PoolFound& pool, std::size_t threads) {
  Turns turns(pool, threads);
  std::vector<CallFound> order = turns.take_all();
  for (const ClientFound& each : pool.clients) {
    if (!each.of.held) continue;
    std::vector<CallFound> held = calls_of(pool, each);
    std::move(held.begin(), held.end(), std::back_inserter(order));
  }
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
