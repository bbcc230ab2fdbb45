// `perdure rpc service`: what the peers of a service on k servers hold: who executes it, and how
// far each client is. It reads, and changes nothing. `service-retry` and `service-drop` decide
// about a call that is set aside, where no server executes.
#include <perdure/log.h>
#include <perdure/pool.h>
#include <perdure/replicated_rpc.h>

#include "control/json_fields.h"
#include "core/byte_text.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/try.h"
#include "output.h"
#include "peer_options.h"
#include "replicated_rpc/decision.h"
#include "replicated_rpc/effects.h"
#include "replicated_rpc/group.h"
#include "rpc_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;
using replicated_rpc::CallKind;
using replicated_rpc::Effects;

constexpr int kServiceDocumentFormat = 1;  // docs/rpc-service.schema.json
/// Behind the end of what one replica knows to be committed the others are asked so long.
constexpr Nanoseconds kOthersWithin = std::chrono::milliseconds(200);

struct ServiceCommand {
  PeerOptions peers;
  std::string service;
  std::string client;          // of a decision
  std::uint64_t sequence = 0;  // of its call
  Format format = Format::Text;
};

struct ClientSeen {
  std::uint64_t client_id = 0;
  std::uint64_t applied = 0;
  std::uint32_t attempts = 0;
  bool held = false;
  std::optional<std::uint64_t> waiting;  // nothing: its calls could not be read
  Epoch epoch;
  bool present = false;
};

struct ServiceSeen {
  Effects effects;
  std::uint64_t effects_bytes = 0;
  PoolDescription server;  // of the newest server's pool of effects
  std::map<std::string, ClientSeen> clients;
  bool left_out = false;  // a peer: it did not answer
};

ReplicatedRpcGroup group_of(const ServiceCommand& command) {
  ReplicatedRpcGroup group;
  group.peers = command.peers.peers;
  group.service = command.service;
  group.transport = command.peers.transport;
  group.rnic.name = command.peers.rnic;
  group.peer_timeout = command.peers.timeout();
  return group;
}

/// Returns how many bytes of the log are kept.
Result<std::uint64_t> read_effects(const ReplicatedRpcGroup& group, Effects& effects) {
  PERDURE_TRY(reader, LogReader::open(replicated_rpc::reader_options(
                          group, replicated_rpc::effects_pool(group.service))));
  std::optional<Lsn> first;
  std::optional<Deadline> until;  // once it was at an end
  while (!until || !until->passed()) {
    PERDURE_TRY(record, reader.next());
    if (record) {
      if (!first) first = record->lsn;
      PERDURE_TRY_VOID(effects.apply(record->bytes, record->lsn));
      continue;
    }
    if (!until) until.emplace(Deadline::after(kOthersWithin));
    std::this_thread::yield();
  }
  if (first && effects.is_whole()) return reader.position().value - first->value;
  return Error{ErrorCode::TimedOut,
               fmt::format("the log of effects of service '{}' has nothing whole yet; ask again",
                           group.service)};
}

/// Calls of this client that are committed, and not applied.
Result<std::uint64_t> count_waiting(const ReplicatedRpcGroup& group, const std::string& name,
                                    const ClientSeen& client) {
  PERDURE_TRY(reader, LogReader::open(replicated_rpc::reader_options(
                          group, replicated_rpc::calls_pool(group.service, name))));
  for (std::uint64_t waiting = 0;;) {
    PERDURE_TRY(record, reader.next());
    if (!record) return waiting;
    PERDURE_TRY(call, replicated_rpc::decode_call(record->bytes));
    const bool applied = call.client_id == client.client_id && call.sequence <= client.applied;
    waiting += call.kind == CallKind::Call && !applied ? 1 : 0;
  }
}

/// What the pools are, as each peer says that answers.
void look_at_pools(const ServiceCommand& command, ServiceSeen& seen) {
  const std::string effects = replicated_rpc::effects_pool(command.service);
  for (const std::string& peer : command.peers.peers) {
    const auto pools = list_pools(peer, command.peers.timeout());
    if (!pools.ok()) {
      print_warning(fmt::format("{} is left out: {}", peer, pools.error().message));
      seen.left_out = true;
      continue;
    }
    for (const PoolDescription& pool : *pools) {
      if (pool.name == effects) {
        const bool newer = pool.epoch > seen.server.epoch;
        if (newer || (pool.epoch == seen.server.epoch && pool.writer_present)) seen.server = pool;
      }
      const auto name = replicated_rpc::client_of(command.service, pool.name);
      if (!name) continue;
      ClientSeen& client = seen.clients[*name];
      client.epoch = std::max(client.epoch, pool.epoch);
      client.present = client.present || pool.writer_present;
    }
  }
}

Result<ServiceSeen> look_at_service(const ServiceCommand& command) {
  const ReplicatedRpcGroup group = group_of(command);
  PERDURE_TRY_VOID(replicated_rpc::check_group(group));
  ServiceSeen seen;
  look_at_pools(command, seen);  // before the effects: a server says there that it ends, then goes
  auto kept = read_effects(group, seen.effects);
  if (!kept.ok() && kept.code() == ErrorCode::NotFound) {
    return Error{ErrorCode::NotFound, fmt::format("these peers have no service '{}': {}",
                                                  command.service, kept.error().message)};
  }
  PERDURE_TRY(bytes, std::move(kept));
  seen.effects_bytes = bytes;
  for (const auto& [name, place] : seen.effects.places()) {
    seen.clients[name].client_id = place.client_id;
    seen.clients[name].applied = place.applied;
  }
  for (const auto& [name, tried] : seen.effects.tried()) {
    seen.clients[name].attempts = tried.ends;
    seen.clients[name].held = tried.held;
  }
  for (auto& [name, client] : seen.clients) {
    const auto waiting = count_waiting(group, name, client);
    if (waiting.ok()) client.waiting = *waiting;
  }
  return seen;
}

/// Of nobody that is seen: a peer that is left out may have the server's session, or nothing was
/// ever said of servers that begin or end.
bool is_unknown(const ServiceSeen& seen) {
  return (seen.effects.is_open() && seen.left_out) || !seen.effects.knows_of_openings();
}

/// In one word, which the document has, too.
const char* state_of(const ServiceSeen& seen) {
  if (seen.server.writer_present) return "executing";
  if (is_unknown(seen)) return "unknown";
  return seen.effects.is_open() ? "died" : "ended";
}

std::string headline(const ServiceSeen& seen) {
  const std::string server =
      fmt::format("'{}', epoch {}", seen.server.writer_name, seen.server.epoch.value);
  if (seen.server.writer_present) return "executed by " + server;
  if (is_unknown(seen)) {
    return fmt::format(
        "nobody is seen that executes it; the last one was {}, and whether it has "
        "ended is not known{}",
        server, seen.left_out ? ": not every peer answers" : "");
  }
  return fmt::format("nobody executes it; the last one was {}, and has ended {}", server,
                     seen.effects.is_open() ? "without a word" : "in order");
}

/// Of calls that wait for an operator.
std::string held_text(const ServiceCommand& command, const ServiceSeen& seen) {
  std::string text;
  for (const auto& [name, tried] : seen.effects.tried()) {
    if (!tried.held) continue;
    text += fmt::format(
        "\ncall {0} of client '{1}' is set aside, and what was called behind it waits. In the "
        "server's program, or when it is stopped:\n"
        "  perdure rpc service-retry --peers {2} --service {3} --client {1} --sequence {0}\n"
        "  perdure rpc service-drop --peers {2} --service {3} --client {1} --sequence {0}\n",
        tried.sequence, name, fmt::join(command.peers.peers, ","), command.service);
  }
  return text;
}

std::string service_text(const ServiceCommand& command, const ServiceSeen& seen) {
  const replicated_rpc::Sizes& sizes = *seen.effects.sizes();
  std::string text = fmt::format(
      "service '{}': {}\n  application {}, {} of handlers, room for {}; {} of effects are kept\n",
      command.service, headline(seen), sizes.application, format_bytes(sizes.data_bytes),
      counted(sizes.clients_max, "client"), format_bytes(seen.effects_bytes));
  if (seen.effects.is_careful()) {
    text +=
        "  the server before had not said that it ends: calls of that time are tried one at a "
        "time\n";
  }
  if (seen.clients.empty()) return text;
  text += fmt::format("\n  {:<34}{:<18}{:>12}{:>10}{:>10}\n", "client", "id", "applied", "waiting",
                      "attempts");
  for (const auto& [name, client] : seen.clients) {
    text += fmt::format("  {:<34}{:<18}{:>12}{:>10}{:>10}{}\n", name,
                        control::hexadecimal(client.client_id), client.applied,
                        client.waiting ? std::to_string(*client.waiting) : "unknown",
                        client.attempts, client.present ? "" : "  away");
  }
  return text + held_text(command, seen);
}

ordered_json service_json(const ServiceCommand& command, const ServiceSeen& seen) {
  const replicated_rpc::Sizes& sizes = *seen.effects.sizes();
  ordered_json json{{"format", kServiceDocumentFormat}, {"service", command.service},
                    {"state", state_of(seen)},          {"server", seen.server.writer_name},
                    {"epoch", seen.server.epoch.value}, {"careful", seen.effects.is_careful()},
                    {"application", sizes.application}, {"data_bytes", sizes.data_bytes},
                    {"clients_max", sizes.clients_max}, {"effects_bytes", seen.effects_bytes},
                    {"clients", ordered_json::array()}};
  for (const auto& [name, client] : seen.clients) {
    ordered_json each{{"name", name},
                      {"client_id", control::hexadecimal(client.client_id)},
                      {"epoch", client.epoch.value},
                      {"present", client.present},
                      {"applied", client.applied},
                      {"attempts", client.attempts},
                      {"held", client.held}};
    if (client.waiting) each["waiting"] = *client.waiting;
    json["clients"].push_back(std::move(each));
  }
  return json;
}

ExitStatus run_service(const ServiceCommand& command) {
  const auto seen = look_at_service(command);
  if (!seen.ok()) return fail(seen.error());
  print(command.format == Format::Json ? json_text(service_json(command, *seen), 2) + "\n"
                                       : service_text(command, *seen));
  return ExitStatus::Ok;
}

ExitStatus run_decision(const ServiceCommand& command, replicated_rpc::Decision decision) {
  const auto decided =
      replicated_rpc::decide(group_of(command), command.client, command.sequence, decision);
  if (!decided.ok()) return fail(decided.error());
  const bool retried = decision == replicated_rpc::Decision::Retry;
  if (command.format == Format::Json) {
    print(json_text(ordered_json{{"format", kServiceDocumentFormat},
                                 {"service", command.service},
                                 {"decided",
                                  {{"client", command.client},
                                   {"sequence", command.sequence},
                                   {"state", retried ? "waiting" : "dropped"}}}},
                    2) +
          "\n");
    return ExitStatus::Ok;
  }
  const std::string call = fmt::format("call {} of client '{}'", command.sequence, command.client);
  print(retried
            ? fmt::format("{} is executed again by the next server, alone, then what was called "
                          "behind it\n",
                          call)
            : fmt::format("{} is dropped: it is never executed, and its client gets system-error; "
                          "the next server executes what was called behind it\n",
                          call));
  return ExitStatus::Ok;
}

Command add_service_command(Command rpc, const std::string& name, const std::string& description,
                            ServiceCommand& command) {
  const Command added = rpc.add_subcommand(name, description);
  add_peers_option(added, command.peers);
  added.add_option("--service", command.service, "Its name").required().option_text("NAME");
  add_transport_option(added, command.peers);
  add_timeout_option(added, command.peers);
  add_format_option(added, command.format);
  return added;
}

void add_decision(Command rpc, const std::string& name, const std::string& description,
                  replicated_rpc::Decision decision) {
  const auto command = std::make_shared<ServiceCommand>();
  const Command added = add_service_command(rpc, name, description, *command);
  added.add_option("--client", command->client, "Its client's name").required().option_text("NAME");
  added.add_option("--sequence", command->sequence, "Its number, as `perdure rpc service` says it")
      .required()
      .option_text("NUMBER");
  add_examples(added,
               fmt::format("  perdure rpc {} --peers a:7470,b:7470,c:7470 --service bank "
                           "--client teller-1 --sequence 17\n"
                           "While a server executes the service this is busy: its program "
                           "decides (ReplicatedRpcServer::{}).\n",
                           name, decision == replicated_rpc::Decision::Retry ? "retry" : "drop"));
  run_with(added, [command, decision] { return run_decision(*command, decision); });
}

}  // namespace

void add_rpc_service(Command rpc) {
  const auto command = std::make_shared<ServiceCommand>();
  const Command added = add_service_command(
      rpc, "service", "A service on k servers: who executes it, and how far each client is",
      *command);
  add_examples(added, "  perdure rpc service --peers a:7470,b:7470,c:7470 --service bank\n");
  run_with(added, [command] { return run_service(*command); });

  add_decision(rpc, "service-retry",
               "Of a service on k servers that nobody executes: has a call that was set aside "
               "executed again",
               replicated_rpc::Decision::Retry);
  add_decision(rpc, "service-drop",
               "Of a service on k servers that nobody executes: refuses a call that was set aside "
               "for good",
               replicated_rpc::Decision::Drop);
}

}  // namespace perdure::app
