// `perdure rpc`: what stands in the pool of a durable RPC server that does not run, and what
// becomes of calls that were set aside. No call is executed here: handlers are in the server's
// program. Of one that runs: rpc_status.cc; of a service on k servers: rpc_service.cc.
#include "rpc_commands.h"

#include "commands.h"
#include "control/json_fields.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/try.h"
#include "output.h"
#include "rpc/executor.h"
#include "rpc_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

struct RpcCommand {
  std::string pool;
  std::optional<PersistenceDomain> declared;
  std::string client;
  std::uint64_t sequence = 0;
  std::size_t threads = 1;
  Format format = Format::Text;
};

std::size_t calls_waiting(const PoolFound& pool) {
  std::size_t waiting = 0;
  for (const ClientFound& each : pool.clients) waiting += each.waiting.size();
  return waiting;
}

std::string list_text(const std::string& file, const PoolFound& pool) {
  std::string text = fmt::format("{} ({}): {}, room for {}; {} not applied\n", file, pool.uuid,
                                 counted(pool.clients.size(), "client"), pool.shape.clients,
                                 counted(calls_waiting(pool), "durable call"));
  if (pool.clients.empty()) return text;
  text += fmt::format("\n  {:<24}{:<18}{:>12}{:>10}{:>10}{:>11}{:>9}\n", "client", "id", "applied",
                      "waiting", "attempts", "set aside", "dropped");
  for (const ClientFound& each : pool.clients) {
    text += fmt::format("  {:<24}{:<18}{:>12}{:>10}{:>10}{:>11}{:>9}\n", each.of.name,
                        control::hexadecimal(each.of.client), each.of.applied, each.waiting.size(),
                        each.of.attempts, each.of.set_aside, each.of.dropped);
  }
  for (const ClientFound& each : pool.clients) {
    if (!each.of.held) continue;
    text += fmt::format(
        "\ncall {0} of client '{1}' is set aside, and what was called behind it "
        "waits:\n  perdure rpc retry {2} --client {1} --sequence {0}\n"
        "  perdure rpc drop {2} --client {1} --sequence {0}\n",
        each.of.applied + 1, each.of.name, file);
  }
  return text;
}

ExitStatus run_list(const RpcCommand& command) {
  const auto pool = open_rpc_pool(command.pool, command.declared);
  if (!pool.ok()) return fail(pool.error());
  const auto surveyed = survey(*pool);
  if (!surveyed.ok()) return fail(surveyed.error());
  const PoolFound& found = *surveyed;
  print(command.format == Format::Json ? json_text(pool_json(command.pool, found), 2) + "\n"
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
  if ((reply.status & rpc::kStatusDropped) != 0) return "dropped";
  if ((reply.status & rpc::kStatusCancelled) != 0) return "cancelled";
  const auto refused = rpc::refusal_of(reply.status);
  return refused ? std::string(to_string(*refused)) : "applied";
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
  for (const CallFound& each : calls_of(pool, client)) {
    text += fmt::format("  {:>12}  {:>10}{:>12}{:>22}  {}{}\n", each.entry.sequence,
                        each.entry.operation, each.entry.payload_bytes, each.entry.order_key,
                        each.state,
                        each.state == "failed" ? ", " + counted(client.of.attempts, "time") : "");
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
  for (const CallFound& each : calls_of(pool, client)) {
    json["calls"].push_back({{"sequence", each.entry.sequence},
                             {"operator", each.entry.operation},
                             {"order_key", control::hexadecimal(each.entry.order_key)},
                             {"bytes", each.entry.payload_bytes},
                             {"state", each.state}});
  }
  return json;
}

ExitStatus run_inspect(const RpcCommand& command) {
  const auto pool = open_rpc_pool(command.pool, command.declared);
  if (!pool.ok()) return fail(pool.error());
  const auto surveyed = survey(*pool);
  if (!surveyed.ok()) return fail(surveyed.error());
  const PoolFound& found = *surveyed;
  const auto client = find_client(found, command.pool, command.client);
  if (!client.ok()) return fail(client.error());
  const auto replies = kept_replies(*pool->pool, **client);
  print(command.format == Format::Json
            ? json_text(inspect_json(command.pool, found, **client, replies), 2) + "\n"
            : inspect_text(found, **client, replies));
  return ExitStatus::Ok;
}

ordered_json order_json(const RpcCommand& command, const PoolFound& pool, bool drained) {
  ordered_json json = pool_json(command.pool, pool);
  json["drained"] = drained;
  json["handler_threads"] = command.threads;
  json["order"] = ordered_json::array();
  for (const CallFound& each : calls_in_order(pool, command.threads)) {
    ordered_json call{{"client", each.client->of.name},
                      {"sequence", each.entry.sequence},
                      {"operator", each.entry.operation},
                      {"order_key", control::hexadecimal(each.entry.order_key)},
                      {"state", each.state}};
    if (each.turn != 0) call["turn"] = each.turn;
    json["order"].push_back(std::move(call));
  }
  return json;
}

std::string order_text(const RpcCommand& command, const PoolFound& pool, bool drained) {
  if (drained) return fmt::format("{}: drained: every durable call is applied\n", command.pool);
  const std::size_t waiting = calls_waiting(pool);
  std::string text = fmt::format("{}: not drained: {} not applied\n", command.pool,
                                 counted(waiting, "durable call"));
  if (waiting == 0) return text;
  text += fmt::format("\n  {:>6}  {:<24}{:>12}{:>12}{:>22}  state\n", "turn", "client", "sequence",
                      "operator", "order key");
  for (const CallFound& each : calls_in_order(pool, command.threads)) {
    text +=
        fmt::format("  {:>6}  {:<24}{:>12}{:>12}{:>22}  {}\n",
                    each.turn == 0 ? "-" : std::to_string(each.turn), each.client->of.name,
                    each.entry.sequence, each.entry.operation, each.entry.order_key, each.state);
  }
  return text + fmt::format(
                    "\nSo with {}{}, unless a call fails, has no handler, or fills its "
                    "transaction.\nThe server's program executes them when it opens the "
                    "pool: RpcServer::open, or RpcServer::replay, which serves nobody.\n",
                    counted(command.threads, "handler thread"),
                    command.threads == 1 ? " (--handler-threads if it has more)"
                                         : ": calls of one turn at the same time");
}

/// `drain` asks whether anything is left, `replay` what.
ExitStatus run_order(const RpcCommand& command, bool must_be_drained) {
  const auto pool = open_rpc_pool(command.pool, command.declared);
  if (!pool.ok()) return fail(pool.error());
  const auto surveyed = survey(*pool);
  if (!surveyed.ok()) return fail(surveyed.error());
  const PoolFound& found = *surveyed;
  const bool held = std::any_of(found.clients.begin(), found.clients.end(),
                                [](const ClientFound& each) { return each.of.held; });
  const bool drained = pool->seen && !held && calls_waiting(found) == 0;
  print(command.format == Format::Json ? json_text(order_json(command, found, drained), 2) + "\n"
                                       : order_text(command, found, drained));
  return must_be_drained && !drained ? ExitStatus::Failed : ExitStatus::Ok;
}

enum class Decision { Retry, Drop };

/// As RpcServer::retry and drop do it. What is printed is durable.
Result<void> decide(OpenedPool opened, const RpcCommand& command, Decision decision) {
  rpc::ExecutorOptions options;
  options.executes = false;
  PERDURE_TRY(executor, rpc::Executor::open(std::move(opened.pool), std::move(options)));
  return decision == Decision::Retry ? executor->retry(command.client, command.sequence)
                                     : executor->drop(command.client, command.sequence);
}

ExitStatus run_decision(const RpcCommand& command, Decision decision) {
  auto pool = open_rpc_pool(command.pool, command.declared);
  if (!pool.ok()) return fail(pool.error());
  const auto surveyed = survey(*pool);
  if (!surveyed.ok()) return fail(surveyed.error());
  const PoolFound& found = *surveyed;
  const auto client = find_client(found, command.pool, command.client);
  if (!client.ok()) return fail(client.error());
  const std::vector<CallFound> calls = calls_of(found, **client);
  if ((*client)->of.held && calls.empty()) {
    return fail({ErrorCode::Corrupt, fmt::format("the call of client '{}' that is set aside is not "
                                                 "whole in its ring any more",
                                                 command.client)});
  }
  if (const auto decided = decide(std::move(*pool), command, decision); !decided.ok()) {
    return fail(decided.error());
  }
  const std::size_t behind = calls.size() - 1;  // of a call that is set aside, so the first
  if (command.format == Format::Json) {
    print(json_text(ordered_json{{"format", kRpcDocumentFormat},
                                 {"pool", command.pool},
                                 {"uuid", found.uuid},
                                 {"decided",
                                  {{"client", command.client},
                                   {"sequence", command.sequence},
                                   {"operator", calls.front().entry.operation},
                                   {"state", decision == Decision::Retry ? "waiting" : "dropped"}}},
                                 {"behind", behind}},
                    2) +
          "\n");
    return ExitStatus::Ok;
  }
  const std::string call = fmt::format("call {} of client '{}'", command.sequence, command.client);
  print(decision == Decision::Retry
            ? fmt::format("{} is executed again by the next server, then {} behind it\n", call,
                          counted(behind, "call"))
            : fmt::format("{} is dropped: it is never executed, and its client gets system-error; "
                          "the next server executes {} behind it\n",
                          call, counted(behind, "call")));
  return ExitStatus::Ok;
}

Command add_rpc_subcommand(Command rpc, const std::string& name, const std::string& description,
                           RpcCommand& command) {
  const Command added = rpc.add_subcommand(name, description);
  added.add_option("pool", command.pool, "File of the server's pool")
      .required()
      .option_text("FILE");
  add_declared_option(added, command.declared,
                      "As its server is told: what survives a power failure there");
  add_format_option(added, command.format);
  return added;
}

void add_threads_option(Command command, std::size_t& threads) {
  command
      .add_option("--handler-threads", threads,
                  "Of the server: RpcServerOptions::handler_threads (1)")
      .range(1, static_cast<std::int64_t>(rpc::kExecutingMax))
      .option_text("NUMBER");
}

void add_decision(Command rpc, const std::shared_ptr<RpcCommand>& command, Decision decision) {
  const std::string name = decision == Decision::Retry ? "retry" : "drop";
  const Command added = add_rpc_subcommand(
      rpc, name,
      decision == Decision::Retry
          ? "Has the next server execute a call again that was set aside"
          : "Refuses a call that was set aside: it is never executed, and its client is told",
      *command);
  added.add_option("--client", command->client, "Its client's name").required().option_text("NAME");
  added.add_option("--sequence", command->sequence, "Its number, as `perdure rpc list` shows it")
      .required()
      .option_text("NUMBER");
  add_examples(added, fmt::format("  perdure rpc {} /var/lib/bank/rpc.pool --client teller-1 "
                                  "--sequence 17\n",
                                  name));
  run_with(added, [command, decision] { return run_decision(*command, decision); });
}

}  // namespace

void add_rpc_commands(Command app) {
  const Command rpc = app.add_subcommand(
      "rpc", "A durable RPC server: its status, and what stands in its pool when it does not run");
  rpc.require_subcommand();
  const auto command = std::make_shared<RpcCommand>();

  add_rpc_status(rpc);
  add_rpc_service(rpc);

  const Command list =
      add_rpc_subcommand(rpc, "list", "The clients, and how far each is", *command);
  add_examples(list, "  perdure rpc list /var/lib/bank/rpc.pool\n");
  run_with(list, [command] { return run_list(*command); });

  const Command inspect = add_rpc_subcommand(
      rpc, "inspect", "One client's calls: those not applied, and the replies kept", *command);
  inspect.add_option("--client", command->client, "Its name").required().option_text("NAME");
  add_examples(inspect, "  perdure rpc inspect /var/lib/bank/rpc.pool --client teller-1\n");
  run_with(inspect, [command] { return run_inspect(*command); });

  const Command drain = add_rpc_subcommand(
      rpc, "drain", "Whether every durable call is applied; exits with 1 if not", *command);
  add_examples(
      drain,
      "  perdure rpc drain /var/lib/bank/rpc.pool && bank-server-2 /var/lib/bank/rpc.pool\n"
      "What the handlers have stored is in the same file: it stays needed.\n");
  add_threads_option(drain, command->threads);
  run_with(drain, [command] { return run_order(*command, true); });

  const Command replay = add_rpc_subcommand(
      rpc, "replay", "What the next server will execute, in its order; executes nothing", *command);
  add_examples(replay, "  perdure rpc replay /var/lib/bank/rpc.pool\n");
  add_threads_option(replay, command->threads);
  run_with(replay, [command] { return run_order(*command, false); });

  add_decision(rpc, command, Decision::Retry);
  add_decision(rpc, command, Decision::Drop);
}

}  // namespace perdure::app
