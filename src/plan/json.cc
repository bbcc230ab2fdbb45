// Scenarios as JSON: docs/plan.schema.json.
#include <fmt/format.h>

#include "core/json.h"
#include "plan/render.h"

namespace perdure::plan {
namespace {

using Json = nlohmann::ordered_json;

Json item_names(const std::vector<Item>& items) {
  Json names = Json::array();
  for (const Item item : items) names.push_back(item_name(item));
  return names;
}

Json step_json(const RequesterStep& step) {
  switch (step.kind) {
    case RequesterStep::Kind::WaitAck: return {{"wait", "ack"}};
    case RequesterStep::Kind::WaitCompletion: return {{"wait", "completion"}, {"of", step.of}};
    case RequesterStep::Kind::Post: break;
  }
  Json json{{"post", to_string(step.verb)}, {"items", item_names(step.items)}};
  if (sends_items(step.verb)) json["flush"] = item_names(step.flush);
  if (step.verb == Verb::Send) json["replay"] = step.replay;
  if (step.verb == Verb::WritePolled) json["checked"] = step.checked;
  if (!step.readable.empty()) json["readable"] = item_names(step.readable);
  if (step.fenced) json["fenced"] = true;
  return json;
}

Json action_json(const ResponderAction& action) {
  switch (action.kind) {
    case ResponderAction::Kind::Copy: return {{"do", "copy"}, {"item", item_name(action.item)}};
    case ResponderAction::Kind::Read: return {{"do", "read"}, {"item", item_name(action.item)}};
    case ResponderAction::Kind::Await: return {{"do", "await"}, {"item", item_name(action.item)}};
    case ResponderAction::Kind::Flush: return {{"do", "flush"}, {"item", item_name(action.item)}};
    case ResponderAction::Kind::Ack: break;
  }
  Json json{{"do", "ack"}};
  if (action.written) json["written"] = true;
  return json;
}

Json scenario_json(const Scenario& scenario) {
  const ServerProfile& server = scenario.profile;
  Json json;
  json["update"] = to_string(scenario.shape);
  json["primary"] = to_string(scenario.primary);
  json["server"] = {{"domain", to_string(server.domain)},
                    {"ddio", server.ddio == Ddio::On},
                    {"receive_buffers", to_string(server.receive_buffers)},
                    {"transport", to_string(server.transport)},
                    {"write_order", to_string(server.write_order)},
                    {"dma_dirties", to_string(server.dma_dirties)}};
  if (server.qp_type != QpType::Rc) json["server"]["qp_type"] = to_string(server.qp_type);
  // What a method may rest on; what is not there is not named.
  const auto name = [&json](const char* capability, bool has) {
    if (has) json["server"][capability] = true;
  };
  name("native_flush", server.capabilities.native_flush);
  name("atomic_write", server.capabilities.atomic_write);
  name("persistent_flush", server.capabilities.persistent_flush);
  name("ordered_persist", server.capabilities.ordered_persist);
  name("send_flush", server.capabilities.send_flush);
  json["requester"] = Json::array();
  for (const RequesterStep& step : scenario.method.requester) {
    json["requester"].push_back(step_json(step));
  }
  json["responder"] = Json::array();
  for (const auto& reaction : scenario.method.responder) {
    Json actions = Json::array();
    for (const ResponderAction& action : reaction) actions.push_back(action_json(action));
    json["responder"].push_back(std::move(actions));
  }
  json["round_trips"] = round_trips(scenario.method);
  const bool has_later = scenario.shape.items_per_epoch.size() > 1;
  if (has_later && scenario.method.later_any_size) json["b_bytes"] = "any";
  return json;
}

}  // namespace

std::string to_json(const std::vector<Scenario>& scenarios) {
  std::string text = "{\"format\": 2, \"methods\": [";
  for (std::size_t index = 0; index < scenarios.size(); ++index) {
    text += index == 0 ? "\n" : ",\n";
    text += json_text(scenario_json(scenarios[index]));
  }
  return text + "\n]}\n";
}

std::string to_json(const ServerProfile& profile, const Method& method) {
  return json_text(scenario_json({profile, method.primary, method.shape, method}));
}

}  // namespace perdure::plan
