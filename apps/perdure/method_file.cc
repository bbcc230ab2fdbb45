// Strict reading of docs/plan.schema.json: its three documents, told apart by their fields.
#include "method_file.h"

#include "core/json.h"
#include "core/printable.h"
#include "core/try.h"
#include "profile_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <utility>

namespace perdure::app {
namespace {

using ParsedJson = nlohmann::json;

Error wrong(const std::string& where, std::string_view what) {
  return Error{ErrorCode::InvalidArgument, fmt::format("{}: {}", where, what)};
}

Result<void> only_fields(const ParsedJson& json, const std::string& where,
                         std::initializer_list<std::string_view> known) {
  if (!json.is_object()) return wrong(where, "must be an object");
  for (const auto& [name, value] : json.items()) {
    bool found = false;
    for (const std::string_view each : known) found = found || each == name;
    if (!found) return wrong(where, fmt::format("field '{}' is not known", name));
  }
  return {};
}

Result<std::string> text_at(const ParsedJson& json, const std::string& where, const char* field) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_string()) {
    return wrong(where, fmt::format("'{}' must be there and be a string", field));
  }
  return found->get<std::string>();
}

Result<bool> flag_at(const ParsedJson& json, const std::string& where, const char* field) {
  const auto found = json.find(field);
  if (found == json.end()) return false;
  if (!found->is_boolean()) return wrong(where, fmt::format("'{}' must be a boolean", field));
  return found->get<bool>();
}

Result<const ParsedJson*> array_at(const ParsedJson& json, const std::string& where,
                                   const char* field) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_array()) {
    return wrong(where, fmt::format("'{}' must be there and be an array", field));
  }
  if (found->size() > kMethodStepsMax) {
    return wrong(where, fmt::format("'{}' has {} entries; the limit is {}", field, found->size(),
                                    kMethodStepsMax));
  }
  return &*found;
}

Result<Item> parse_item(const std::string& name, const std::string& where) {
  if (name.size() == 1 && name[0] >= 'a' && name[0] <= 'z') return static_cast<Item>(name[0] - 'a');
  unsigned number = 0;
  if (name.size() > 1 && name[0] == 'i') {
    const char* const last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data() + 1, last, number);
    if (error == std::errc() && end == last && number < kItemsMax) return static_cast<Item>(number);
  }
  return wrong(where, fmt::format("'{}' is not the name of an item: a to z, i26 to i{}", name,
                                  kItemsMax - 1));
}

Result<std::vector<Item>> items_at(const ParsedJson& json, const std::string& where,
                                   const char* field) {
  PERDURE_TRY(names, array_at(json, where, field));
  std::vector<Item> items;
  for (const ParsedJson& name : *names) {
    if (!name.is_string()) return wrong(where, fmt::format("'{}' must hold names of items", field));
    PERDURE_TRY(item, parse_item(name.get<std::string>(), where));
    items.push_back(item);
  }
  return items;
}

Result<Verb> parse_verb(std::string_view word, const std::string& where) {
  for (const Verb each : kVerbs) {
    if (to_string(each) == word) return each;
  }
  return wrong(where, fmt::format("verb '{}' is not known", word));
}

Result<RequesterStep> parse_wait(const ParsedJson& json, const std::string& where) {
  PERDURE_TRY_VOID(only_fields(json, where, {"wait", "of"}));
  PERDURE_TRY(word, text_at(json, where, "wait"));
  RequesterStep step;
  if (word == "ack") {
    step.kind = RequesterStep::Kind::WaitAck;
    return step;
  }
  const auto of = json.find("of");
  if (word != "completion" || of == json.end() || !of->is_number_unsigned()) {
    return wrong(where, R"(a wait is {"wait": "ack"} or {"wait": "completion", "of": STEP})");
  }
  step.kind = RequesterStep::Kind::WaitCompletion;
  step.of = of->get<std::size_t>();
  return step;
}

Result<RequesterStep> parse_step(const ParsedJson& json, const std::string& where) {
  if (json.is_object() && json.contains("wait")) return parse_wait(json, where);
  PERDURE_TRY_VOID(only_fields(
      json, where, {"post", "items", "flush", "readable", "replay", "checked", "fenced"}));
  PERDURE_TRY(word, text_at(json, where, "post"));
  RequesterStep step;
  PERDURE_TRY(verb, parse_verb(word, where));
  step.verb = verb;
  PERDURE_TRY(items, items_at(json, where, "items"));
  step.items = std::move(items);
  if (json.contains("flush")) {
    PERDURE_TRY(flush, items_at(json, where, "flush"));
    step.flush = std::move(flush);
  }
  if (json.contains("readable")) {
    PERDURE_TRY(readable, items_at(json, where, "readable"));
    step.readable = std::move(readable);
  }
  PERDURE_TRY(replay, flag_at(json, where, "replay"));
  step.replay = replay;
  PERDURE_TRY(checked, flag_at(json, where, "checked"));
  step.checked = checked;
  PERDURE_TRY(fenced, flag_at(json, where, "fenced"));
  step.fenced = fenced;
  return step;
}

Result<ResponderAction> parse_action(const ParsedJson& json, const std::string& where) {
  using Kind = ResponderAction::Kind;
  PERDURE_TRY_VOID(only_fields(json, where, {"do", "item", "written"}));
  PERDURE_TRY(word, text_at(json, where, "do"));
  PERDURE_TRY(written, flag_at(json, where, "written"));
  if (word == "ack") return ResponderAction{Kind::Ack, 0, written};
  constexpr std::pair<std::string_view, Kind> kKinds[] = {
      {"copy", Kind::Copy}, {"read", Kind::Read}, {"await", Kind::Await}, {"flush", Kind::Flush}};
  const auto kind = std::ranges::find(kKinds, word, [](const auto& each) { return each.first; });
  if (kind == std::end(kKinds)) {
    return wrong(where,
                 fmt::format("a responder does copy, read, await, flush or ack, not '{}'", word));
  }
  if (written) return wrong(where, "'written' is for an ack");
  PERDURE_TRY(name, text_at(json, where, "item"));
  PERDURE_TRY(item, parse_item(name, where));
  return ResponderAction{kind->second, item};
}

Result<ServerProfile> parse_server(const ParsedJson& json, const std::string& where) {
  PERDURE_TRY_VOID(only_fields(
      json, where,
      {"domain", "ddio", "receive_buffers", "transport", "write_order", "dma_dirties", "qp_type",
       "native_flush", "atomic_write", "persistent_flush", "ordered_persist", "send_flush"}));
  ServerProfile server;
  PERDURE_TRY(domain_word, text_at(json, where, "domain"));
  PERDURE_TRY(domain, parse_persistence_domain(domain_word));
  PERDURE_TRY(buffers_word, text_at(json, where, "receive_buffers"));
  PERDURE_TRY(buffers, parse_receive_buffers(buffers_word));
  PERDURE_TRY(transport_word, text_at(json, where, "transport"));
  PERDURE_TRY(transport, parse_transport(transport_word));
  if (!json.contains("ddio")) return wrong(where, "'ddio' must be there");
  PERDURE_TRY(ddio, flag_at(json, where, "ddio"));
  if (json.contains("write_order")) {
    PERDURE_TRY(order_word, text_at(json, where, "write_order"));
    PERDURE_TRY(order, parse_write_order(order_word));
    server.write_order = order;
  }
  if (json.contains("dma_dirties")) {
    PERDURE_TRY(dirties_word, text_at(json, where, "dma_dirties"));
    PERDURE_TRY(dirties, parse_dma_dirties(dirties_word));
    server.dma_dirties = dirties;
  }
  if (json.contains("qp_type")) {
    PERDURE_TRY(type_word, text_at(json, where, "qp_type"));
    PERDURE_TRY(type, parse_qp_type(type_word));
    server.qp_type = type;
  }
  PERDURE_TRY(native_flush, flag_at(json, where, "native_flush"));
  PERDURE_TRY(atomic_write, flag_at(json, where, "atomic_write"));
  PERDURE_TRY(persistent_flush, flag_at(json, where, "persistent_flush"));
  PERDURE_TRY(ordered_persist, flag_at(json, where, "ordered_persist"));
  server.capabilities.native_flush = native_flush;
  server.capabilities.atomic_write = atomic_write;
  server.capabilities.persistent_flush = persistent_flush;
  server.capabilities.ordered_persist = ordered_persist;
  PERDURE_TRY(send_flush, flag_at(json, where, "send_flush"));
  server.capabilities.send_flush = send_flush;
  server.domain = domain;
  server.receive_buffers = buffers;
  server.transport = transport;
  server.ddio = ddio ? Ddio::On : Ddio::Off;
  return server;
}

Result<void> parse_responder(const ParsedJson& json, const std::string& where, Method& method) {
  PERDURE_TRY(reactions, array_at(json, where, "responder"));
  for (const ParsedJson& reaction : *reactions) {
    const std::string here = fmt::format("{}, responder[{}]", where, method.responder.size());
    if (!reaction.is_array() || reaction.size() > kMethodStepsMax) {
      return wrong(here, "must be an array of actions, and not a long one");
    }
    std::vector<ResponderAction> actions;
    for (const ParsedJson& action : reaction) {
      PERDURE_TRY(parsed, parse_action(action, here));
      actions.push_back(parsed);
    }
    method.responder.push_back(std::move(actions));
  }
  return {};
}

Result<FileMethod> parse_method(const ParsedJson& json, const std::string& where) {
  PERDURE_TRY_VOID(only_fields(
      json, where,
      {"name", "update", "primary", "server", "requester", "responder", "round_trips", "b_bytes"}));
  FileMethod read;
  Method& method = read.method;
  const bool named = json.contains("name") && json["name"].is_string();
  method.name = printable_name(named ? json["name"].get<std::string>() : where);
  PERDURE_TRY(shape_word, text_at(json, where, "update"));
  PERDURE_TRY(shape, parse_shape(shape_word));
  method.shape = std::move(shape);
  PERDURE_TRY(primary_word, text_at(json, where, "primary"));
  PERDURE_TRY(primary, parse_primary(primary_word));
  method.primary = primary;
  method.later_any_size = json.contains("b_bytes");
  PERDURE_TRY(steps, array_at(json, where, "requester"));
  for (const ParsedJson& step : *steps) {
    const auto here = fmt::format("{}, requester[{}]", where, method.requester.size());
    PERDURE_TRY(parsed, parse_step(step, here));
    method.requester.push_back(std::move(parsed));
  }
  PERDURE_TRY_VOID(parse_responder(json, where, method));
  PERDURE_TRY_VOID(validate(method));
  if (json.contains("server")) {
    PERDURE_TRY(server, parse_server(json["server"], where + ", server"));
    read.server = server;
  }
  return read;
}

/// All entries of an array, each read by `parse` with the name of its place.
template <typename Parse>
Result<std::vector<FileMethod>> parse_each(const ParsedJson& json, const char* field,
                                           const Parse& parse) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_array()) {
    return wrong("the file", fmt::format("'{}' must be there and be an array", field));
  }
  std::vector<FileMethod> methods;
  for (const ParsedJson& each : *found) {
    PERDURE_TRY(method, parse(each, fmt::format("{}[{}]", field, methods.size())));
    methods.push_back(std::move(method));
  }
  if (methods.empty()) return wrong("the file", fmt::format("has no {}", field));
  return methods;
}

/// The method in `entry`, which has its name.
Result<FileMethod> parse_named(const ParsedJson& entry, const std::string& where) {
  PERDURE_TRY(name, text_at(entry, where, "name"));
  const auto found = entry.find("method");
  if (found == entry.end()) return wrong(where, "'method' must be there");
  PERDURE_TRY(read, parse_method(*found, where + ", method"));
  read.method.name = printable_name(name);
  return read;
}

Result<Level> level_at(const ParsedJson& json) {
  PERDURE_TRY(word, text_at(json, "the file", "level"));
  return parse_level(word);
}

/// What `perdure plan` prints of one update: every method that it could choose. What they cost is
/// not looked at.
Result<MethodFile> parse_choice(const ParsedJson& json) {
  PERDURE_TRY_VOID(only_fields(json, "the file",
                               {"format", "server", "update", "bytes", "level", "chosen", "label",
                                "hardware", "costs", "candidates", "by_size"}));
  MethodFile file;
  PERDURE_TRY(level, level_at(json));
  file.level = level;
  const auto parse = [](const ParsedJson& entry, const std::string& where) -> Result<FileMethod> {
    PERDURE_TRY_VOID(only_fields(
        entry, where,
        {"name", "rpmem_family", "cost_ns", "simulated_ns", "reason", "uses", "method"}));
    return parse_named(entry, where);
  };
  PERDURE_TRY(methods, parse_each(json, "candidates", parse));
  file.methods = std::move(methods);
  return file;
}

Result<Reuse> reuse_at(const ParsedJson& json, const std::string& where) {
  PERDURE_TRY(word, text_at(json, where, "written_again"));
  for (const Reuse each : {Reuse::Never, Reuse::AfterAnother, Reuse::AfterItsEnd}) {
    if (to_string(each) == word) return each;
  }
  return wrong(where, fmt::format("'written_again' is never, after-another or after-its-end, "
                                  "not '{}'",
                                  word));
}

/// What `perdure plan --set` prints. Which of them takes which size is not looked at.
Result<MethodFile> parse_set(const ParsedJson& json) {
  PERDURE_TRY_VOID(
      only_fields(json, "the file", {"format", "server", "level", "batches", "places", "members"}));
  MethodFile file;
  PERDURE_TRY(level, level_at(json));
  file.level = level;
  const auto parse = [&file](const ParsedJson& entry,
                             const std::string& where) -> Result<FileMethod> {
    PERDURE_TRY_VOID(only_fields(entry, where, {"name", "written_again", "vouched", "method"}));
    PERDURE_TRY(read, parse_named(entry, where));
    PERDURE_TRY(reuse, reuse_at(entry, where));
    PERDURE_TRY(vouched, flag_at(entry, where, "vouched"));
    if (file.set.size() == kSetMethodsMax) {
      return wrong(where, fmt::format("a set has at most {} methods", kSetMethodsMax));
    }
    file.set.push_back({read.method, reuse, vouched});
    return read;
  };
  PERDURE_TRY(methods, parse_each(json, "members", parse));
  for (const FileMethod& each : methods) {
    if (each.server == methods.front().server) continue;
    return wrong("the file", "the members of a set are for one responder, and share a connection");
  }
  file.methods = std::move(methods);
  return file;
}

}  // namespace

Result<MethodFile> parse_methods(std::string_view text) {
  const ParsedJson json = ParsedJson::parse(text, nullptr, false);
  if (json.is_discarded()) return wrong("the file", "is not JSON");
  if (!json.is_object()) return wrong("the file", "must hold a JSON object");
  const auto format = json.find("format");
  if (format == json.end()) return wrong("the file", "'format' must be there and be 1 or 2");
  if (*format != 1 && *format != 2) {
    return wrong("the file",
                 "has another 'format' than 1 or 2: it was written for another version");
  }
  if (json.contains("candidates")) return parse_choice(json);
  if (json.contains("batches")) return parse_set(json);
  MethodFile file;
  // A file with one method may have it at the top.
  if (!json.contains("methods")) {
    ParsedJson single = json;
    single.erase("format");
    PERDURE_TRY(method, parse_method(single, "method"));
    file.methods.push_back(std::move(method));
    return file;
  }
  PERDURE_TRY_VOID(only_fields(json, "the file", {"format", "methods"}));
  PERDURE_TRY(methods, parse_each(json, "methods", parse_method));
  file.methods = std::move(methods);
  return file;
}

Result<MethodFile> read_methods(const std::string& path) {
  const bool standard_input = path == "-";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      standard_input ? stdin : std::fopen(path.c_str(), "re"),
      [](std::FILE* each) { return each == stdin ? 0 : std::fclose(each); });
  if (!file) {
    return Error{ErrorCode::NotFound, fmt::format("can not open '{}': give the path of a file of "
                                                  "methods (docs/plan.schema.json)",
                                                  path)};
  }
  std::string text(kMethodFileBytesMax + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return Error{ErrorCode::SystemError, fmt::format("can not read '{}'", path)};
  }
  if (text.size() > kMethodFileBytesMax) {
    return wrong(path, fmt::format("has more than {} bytes", kMethodFileBytesMax));
  }
  return parse_methods(text);
}

}  // namespace perdure::app
