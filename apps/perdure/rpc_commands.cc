// `perdure rpc`: what stands in the pool of a durable RPC server that does not run.
#include "commands.h"
#include "control/json_fields.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/try.h"
#include "output.h"
#include "pmem/pool.h"
#include "rpc/rpc_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

constexpr int kRpcDocumentFormat = 1;  // docs/rpc.schema.json

struct RpcCommand {
  std::string pool;
  std::string client;
  Format format = Format::Text;
};

/// A client, with what its ring holds behind what is applied.
struct ClientFound {
  std::size_t place = 0;
  rpc::ClientPlace of;
  std::vector<rpc::Entry> waiting;
};

struct PoolFound {
  std::string uuid;
  rpc::PoolShape shape;
  std::optional<rpc::Executing> executing;
  std::vector<ClientFound> clients;
};

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

/// Recovers the pool, as the next server would, and executes nothing. It is not marked as cleanly
/// closed: what a server left visible and not durable stays the next one's to see to.
Result<std::unique_ptr<rpc::RpcPool>> open_rpc_pool(const std::string& file, std::string& uuid) {
  PERDURE_TRY(pool, pmem::Pool::open(file, {}));
  PERDURE_TRY(shape, rpc::decode_header(pool->data()));
  if (!shape) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{}: no durable RPC server has ever served this pool", file)};
  }
  uuid = pmem::to_string(pool->uuid());
  return rpc::RpcPool::open(std::move(pool), *shape);
}

PoolFound survey(const rpc::RpcPool& pool, const std::string& uuid) {
  PoolFound found{uuid, pool.shape(), pool.executing(), {}};
  for (std::size_t place = 0; place < pool.places().size(); ++place) {
    const rpc::ClientPlace& client = pool.places()[place];
    if (client.client == 0) continue;
    found.clients.push_back({place, client, waiting_calls(pool, place, client)});
  }
  return found;
}

std::string list_text(const std::string& file, const PoolFound& pool) {
  std::size_t waiting = 0;
  for (const ClientFound& each : pool.clients) waiting += each.waiting.size();
  std::string text = fmt::format("{} ({}): {}, room for {}; {} not applied\n", file, pool.uuid,
                                 counted(pool.clients.size(), "client"), pool.shape.clients,
                                 counted(waiting, "durable call"));
  if (pool.clients.empty()) return text;
  text += fmt::format("\n  {:<24}{:<18}{:>12}{:>10}{:>10}{:>11}\n", "client", "id", "applied",
                      "waiting", "attempts", "set aside");
  for (const ClientFound& each : pool.clients) {
    text += fmt::format("  {:<24}{:<18}{:>12}{:>10}{:>10}{:>11}\n", each.of.name,
                        control::hexadecimal(each.of.client), each.of.applied, each.waiting.size(),
                        each.of.attempts, each.of.set_aside);
  }
  return text;
}

ordered_json client_json(const ClientFound& client) {
  return {{"name", client.of.name},         {"client_id", control::hexadecimal(client.of.client)},
          {"applied", client.of.applied},   {"waiting", client.waiting.size()},
          {"attempts", client.of.attempts}, {"set_aside", client.of.set_aside}};
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

ExitStatus run_list(const RpcCommand& command) {
  std::string uuid;
  const auto pool = open_rpc_pool(command.pool, uuid);
  if (!pool.ok()) return fail(pool.error());
  const PoolFound found = survey(**pool, uuid);
  print(command.format == Format::Json ? pool_json(command.pool, found).dump(2) + "\n"
                                       : list_text(command.pool, found));
  return ExitStatus::Ok;
}

/// Of the replies that are kept: those of the last calls that were applied.
std::vector<rpc::ReplyHead> kept_replies(const rpc::RpcPool& pool, const ClientFound& client) {
  std::vector<rpc::ReplyHead> replies;
  const std::uint64_t kept = std::min<std::uint64_t>(pool.shape().replies, client.of.applied);
  for (std::uint64_t sequence = client.of.applied - kept + 1; sequence <= client.of.applied;
       ++sequence) {
    const auto head = rpc::decode_reply_head(pool.reply(client.place, sequence).data());
    if (head.sequence == sequence) replies.push_back(head);
  }
  return replies;
}

std::string outcome_of(const rpc::ReplyHead& reply) {
  if (reply.status == 0) return "applied";
  return std::string(to_string(static_cast<ErrorCode>(reply.status - 1)));
}

std::string state_of(const PoolFound& pool, const ClientFound& client, const rpc::Entry& call) {
  const bool begun = pool.executing && pool.executing->place == client.place &&
                     pool.executing->sequence == call.sequence;
  if (begun) return "begun";  // by a server that ended in it
  return call.sequence == client.of.applied + 1 && client.of.attempts != 0 ? "failed" : "waiting";
}

std::string inspect_text(const PoolFound& pool, const ClientFound& client,
                         const std::vector<rpc::ReplyHead>& replies) {
  std::string text = fmt::format("client '{}' ({}): applied up to {}, {} not applied\n",
                                 client.of.name, control::hexadecimal(client.of.client),
                                 client.of.applied, counted(client.waiting.size(), "durable call"));
  if (!replies.empty()) {
    text += fmt::format("\n  {:>12}  {:<18}{:>8}\n", "sequence", "outcome", "bytes");
    for (const rpc::ReplyHead& each : replies) {
      text += fmt::format("  {:>12}  {:<18}{:>8}\n", each.sequence, outcome_of(each), each.bytes);
    }
  }
  if (client.waiting.empty()) return text;
  text += fmt::format("\n  {:>12}  {:>10}{:>12}{:>22}  state\n", "sequence", "operator", "bytes",
                      "order key");
  for (const rpc::Entry& each : client.waiting) {
    const std::string state = state_of(pool, client, each);
    text += fmt::format("  {:>12}  {:>10}{:>12}{:>22}  {}{}\n", each.sequence, each.operation,
                        each.payload_bytes, each.order_key, state,
                        state == "failed" ? ", " + counted(client.of.attempts, "time") : "");
  }
  return text;
}

ordered_json inspect_json(const std::string& file, const PoolFound& pool, const ClientFound& client,
                          const std::vector<rpc::ReplyHead>& replies) {
  ordered_json json = pool_json(file, pool);
  json["clients"] = ordered_json::array({client_json(client)});
  json["replies_kept"] = ordered_json::array();
  for (const rpc::ReplyHead& each : replies) {
    json["replies_kept"].push_back(
        {{"sequence", each.sequence}, {"outcome", outcome_of(each)}, {"bytes", each.bytes}});
  }
  json["calls"] = ordered_json::array();
  for (const rpc::Entry& each : client.waiting) {
    json["calls"].push_back({{"sequence", each.sequence},
                             {"operator", each.operation},
                             {"order_key", control::hexadecimal(each.order_key)},
                             {"bytes", each.payload_bytes},
                             {"state", state_of(pool, client, each)}});
  }
  return json;
}

ExitStatus run_inspect(const RpcCommand& command) {
  std::string uuid;
  const auto pool = open_rpc_pool(command.pool, uuid);
  if (!pool.ok()) return fail(pool.error());
  const PoolFound found = survey(**pool, uuid);
  const auto client =
      std::find_if(found.clients.begin(), found.clients.end(),
                   [&](const ClientFound& each) { return each.of.name == command.client; });
  if (client == found.clients.end()) {
    return fail(
        {ErrorCode::NotFound,
         fmt::format("{}: there is no client '{}'; `perdure rpc list` names those there are",
                     command.pool, command.client)});
  }
  const auto replies = kept_replies(**pool, *client);
  print(command.format == Format::Json
            ? inspect_json(command.pool, found, *client, replies).dump(2) + "\n"
            : inspect_text(found, *client, replies));
  return ExitStatus::Ok;
}

Command add_rpc_subcommand(Command rpc, const std::string& name, const std::string& description,
                           RpcCommand& command) {
  const Command added = rpc.add_subcommand(name, description);
  added.add_option("pool", command.pool, "File of the server's pool")
      .required()
      .option_text("FILE");
  add_format_option(added, command.format);
  return added;
}

}  // namespace

void add_rpc_commands(Command app) {
  const Command rpc = app.add_subcommand(
      "rpc", "What stands in the pool of a durable RPC server that does not run");
  rpc.require_subcommand();
  const auto command = std::make_shared<RpcCommand>();

  const Command list =
      add_rpc_subcommand(rpc, "list", "The clients, and how far each is", *command);
  add_examples(list, "  perdure rpc list /var/lib/bank/rpc.pool\n");
  run_with(list, [command] { return run_list(*command); });

  const Command inspect = add_rpc_subcommand(
      rpc, "inspect", "One client's calls: those not applied, and the replies kept", *command);
  inspect.add_option("--client", command->client, "Its name").required().option_text("NAME");
  add_examples(inspect, "  perdure rpc inspect /var/lib/bank/rpc.pool --client teller-1\n");
  run_with(inspect, [command] { return run_inspect(*command); });
}

}  // namespace perdure::app
