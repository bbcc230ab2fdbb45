// The status of a durable RPC server as JSON: see status_json.h.
#include "rpc/status_json.h"

#include "control/json_fields.h"
#include "core/json.h"
#include "core/try.h"
#include "rpc/rpc_format.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace perdure::rpc {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kCountMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kNumberMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kFailureBytesMax = 4096;

struct Counter {
  const char* name;
  std::uint64_t RpcServerStatus::*value;
};
constexpr std::array kCounters = {Counter{"applied", &RpcServerStatus::applied},
                                  Counter{"refused", &RpcServerStatus::refused},
                                  Counter{"unknown", &RpcServerStatus::unknown},
                                  Counter{"set_aside", &RpcServerStatus::set_aside},
                                  Counter{"dropped", &RpcServerStatus::dropped},
                                  Counter{"refused_failed", &RpcServerStatus::refused_failed},
                                  Counter{"cancelled", &RpcServerStatus::cancelled},
                                  Counter{"transactions", &RpcServerStatus::transactions},
                                  Counter{"queries", &RpcServerStatus::queries},
                                  Counter{"expired", &RpcServerStatus::expired}};

std::uint32_t small(control::JsonFields& fields, const char* key) {
  return static_cast<std::uint32_t>(fields.number(key, kNumberMax));
}

Result<RpcClientPlace> client_of(const nlohmann::json& json) {
  control::JsonFields fields(json, "a client");
  RpcClientPlace client;
  client.name = fields.text("name", kClientNameMax);
  client.client_id = fields.hex("client_id");
  client.applied = fields.number("applied", kCountMax);
  client.waiting = fields.number("waiting", kCountMax);
  client.attempts = small(fields, "attempts");
  client.set_aside = small(fields, "set_aside");
  client.dropped = small(fields, "dropped");
  client.held = fields.flag("held");
  PERDURE_TRY_VOID(fields.finish());
  return client;
}

Result<RpcExecuting> executing_of(const nlohmann::json& json) {
  control::JsonFields fields(json, "what is executed");
  RpcExecuting call;
  call.client = fields.text("client", kClientNameMax);
  call.client_id = fields.hex("client_id");
  if (fields.has("sequence")) call.sequence = fields.number("sequence", kCountMax);
  call.operation = small(fields, "operator");
  constexpr auto kLongest = std::numeric_limits<std::chrono::nanoseconds::rep>::max();
  call.lasted = std::chrono::nanoseconds(
      static_cast<std::chrono::nanoseconds::rep>(fields.number("lasted_ns", kLongest)));
  PERDURE_TRY_VOID(fields.finish());
  return call;
}

template <typename T>
void take_all(control::JsonFields& fields, const char* key, std::size_t count_max,
              Result<T> (*take)(const nlohmann::json&), std::vector<T>& into) {
  for (const nlohmann::json& each : fields.array(key, count_max)) {
    auto taken = take(each);
    if (!taken.ok()) return fields.absorb(taken.error());
    into.push_back(std::move(*taken));
  }
}

}  // namespace

std::string encode_status(const RpcServerStatus& status, int indent) {
  ordered_json json{{"format", 1}};
  if (status.failure) json["failure"] = status.failure->message.substr(0, kFailureBytesMax);
  for (const Counter& each : kCounters) json[each.name] = status.*each.value;
  json["clients"] = ordered_json::array();
  for (const RpcClientPlace& each : status.clients) {
    json["clients"].push_back({{"name", each.name},
                               {"client_id", control::hexadecimal(each.client_id)},
                               {"applied", each.applied},
                               {"waiting", each.waiting},
                               {"attempts", each.attempts},
                               {"set_aside", each.set_aside},
                               {"dropped", each.dropped},
                               {"held", each.held}});
  }
  json["executing"] = ordered_json::array();
  for (const RpcExecuting& each : status.executing) {
    ordered_json call{{"client", each.client}, {"client_id", control::hexadecimal(each.client_id)}};
    if (each.sequence != 0) call["sequence"] = each.sequence;
    call["operator"] = each.operation;
    call["lasted_ns"] = each.lasted.count();
    json["executing"].push_back(std::move(call));
  }
  return json_text(json, indent) + "\n";
}

Result<RpcServerStatus> decode_status(std::string_view text) {
  PERDURE_TRY(document, control::parse_json_object(text, control::kJsonAnswerBytesMax));
  control::JsonFields fields(document, "the status of an RPC server");
  RpcServerStatus status;
  fields.format(true);
  if (fields.has("failure")) {
    status.failure = Error{ErrorCode::SystemError, fields.text("failure", kFailureBytesMax)};
  }
  for (const Counter& each : kCounters) status.*each.value = fields.number(each.name, kCountMax);
  take_all(fields, "clients", kClientsMax, client_of, status.clients);
  take_all(fields, "executing", kExecutingMax + 1, executing_of, status.executing);
  PERDURE_TRY_VOID(fields.finish());
  return status;
}

}  // namespace perdure::rpc
