// `perdure rpc status`: what a durable RPC server that runs says of itself, and of what it is at.
#include "control/host_port.h"
#include "control/http_client.h"
#include "control/json_codec.h"
#include "control/json_fields.h"
#include "core/counted.h"
#include "core/try.h"
#include "output.h"
#include "peer_options.h"
#include "rpc/status_json.h"
#include "rpc_commands.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>

namespace perdure::app {
namespace {

struct StatusCommand {
  std::string server;
  PeerOptions peers;  // of them the time-out
  Format format = Format::Text;
};

Result<RpcServerStatus> ask(const StatusCommand& command) {
  PERDURE_TRY(at, control::parse_host_port(command.server));
  PERDURE_TRY(answer,
              control::http_call(at, {"GET", rpc::kStatusPath, ""}, control::kJsonAnswerBytesMax,
                                 Deadline::after(command.peers.timeout())));
  if (answer.status == 200) return rpc::decode_status(answer.body);
  if (answer.status == 404) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{} is no server of durable RPC that says this of itself: `perdure "
                             "status` asks peers that keep logs",
                             command.server)};
  }
  Error error = control::decode_error(answer.body);
  error.message = fmt::format("{}: {}", command.server, error.message);
  return error;
}

std::string clients_text(const std::vector<RpcClientPlace>& clients) {
  if (clients.empty()) return "";
  std::string text = fmt::format("\n  {:<24}{:<18}{:>12}{:>10}{:>10}{:>11}{:>9}\n", "client", "id",
                                 "applied", "waiting", "attempts", "set aside", "dropped");
  for (const RpcClientPlace& each : clients) {
    text += fmt::format("  {:<24}{:<18}{:>12}{:>10}{:>10}{:>11}{:>9}{}\n", each.name,
                        control::hexadecimal(each.client_id), each.applied, each.waiting,
                        each.attempts, each.set_aside, each.dropped, each.held ? "  held" : "");
  }
  return text;
}

std::string status_text(const std::string& server, const RpcServerStatus& status) {
  std::string text = fmt::format(
      "{}: {}; since it was opened {} in {}, {}\n", server,
      status.failure ? "nothing is executed any more: " + status.failure->message
                     : "calls are executed",
      counted(status.applied, "call") + " applied", counted(status.transactions, "transaction"),
      fmt::format("{} queries answered", status.queries));
  text += fmt::format(
      "  of the calls {} refused by their handlers, {} for unknown operators, {} "
      "dropped, {} refused after they failed, {} cancelled\n",
      status.refused, status.unknown, status.dropped, status.refused_failed, status.cancelled);
  text += clients_text(status.clients);
  if (status.executing.empty()) return text + "\nnothing is in its handler now\n";
  text += "\nin their handlers now:\n";
  for (const RpcExecuting& each : status.executing) {
    text += fmt::format("  {} of client '{}', operator {}: for {:.3f} s\n",
                        each.sequence == 0 ? "a query" : fmt::format("call {}", each.sequence),
                        each.client, each.operation, to_seconds(each.lasted));
  }
  return text;
}

ExitStatus run_status(const StatusCommand& command) {
  const auto status = ask(command);
  if (!status.ok()) return fail(status.error());
  print(command.format == Format::Json ? rpc::encode_status(*status, 2)
                                       : status_text(command.server, *status));
  return ExitStatus::Ok;
}

}  // namespace

void add_rpc_status(Command rpc) {
  const auto command = std::make_shared<StatusCommand>();
  const Command added = rpc.add_subcommand(
      "status", "What a server that runs has executed, and what is in its handlers now");
  added.add_option("server", command->server, "Control plane of the server")
      .required()
      .option_text("HOST:PORT");
  add_timeout_option(added, command->peers);
  add_format_option(added, command->format);
  add_examples(added, "  perdure rpc status 127.0.0.1:7470\n");
  run_with(added, [command] { return run_status(*command); });
}

}  // namespace perdure::app
