// The documents of the control plane: see json_codec.h.
#include "control/json_codec.h"

#include <fmt/format.h>

#include <limits>

#include "control/json_fields.h"
#include "core/json.h"
#include "core/required_domain.h"
#include "core/try.h"

namespace perdure::control {
namespace {

using nlohmann::json;

constexpr std::uint64_t kAnyNumber = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kSentenceMax = 4096;
constexpr std::size_t kListMax = 65536;
constexpr std::uint64_t kCostMax = 1'000'000'000'000;  // a second a byte, a quarter hour a sync

json document() { return json{{"format", 1}}; }

/// An answer that can not be read is the peer's fault, not the caller's.
Error blame_peer(Error error) {
  if (error.code == ErrorCode::InvalidArgument) error.code = ErrorCode::ProtocolError;
  return error;
}

template <typename T, typename Read>
Result<T> read_answer(std::string_view text, const char* what, Read read) {
  auto parsed = parse_json_object(text, kJsonAnswerBytesMax);
  if (!parsed) return blame_peer(parsed.error());
  JsonFields fields(*parsed, what);
  fields.format(true);
  T value = read(fields);
  if (auto finished = fields.finish(); !finished) return blame_peer(finished.error());
  return value;
}

json to_json(const ServerProfile& profile) {
  const Capabilities& can = profile.capabilities;
  return {{"domain", to_string(profile.domain)},
          {"ddio", to_string(profile.ddio)},
          {"receive_buffers", to_string(profile.receive_buffers)},
          {"transport", to_string(profile.transport)},
          {"write_order", to_string(profile.write_order)},
          {"dma_dirties", to_string(profile.dma_dirties)},
          {"capabilities",
           {{"native_flush", can.native_flush},
            {"atomic_write", can.atomic_write},
            {"ordered_persist", can.ordered_persist},
            {"send_flush", can.send_flush},
            {"persistent_flush", can.persistent_flush}}}};
}

ServerProfile read_profile(JsonFields& outer, const char* key) {
  JsonFields fields(outer.object(key), "profile");
  ServerProfile profile;
  profile.domain = fields.parsed("domain", parse_persistence_domain);
  profile.ddio = fields.parsed("ddio", parse_ddio);
  profile.receive_buffers = fields.parsed("receive_buffers", parse_receive_buffers);
  profile.transport = fields.parsed("transport", parse_transport);
  // A peer that says nothing of them does not know.
  if (fields.has("write_order")) {
    profile.write_order = fields.parsed("write_order", parse_write_order);
  }
  if (fields.has("dma_dirties")) {
    profile.dma_dirties = fields.parsed("dma_dirties", parse_dma_dirties);
  }
  JsonFields can(fields.object("capabilities"), "capabilities");
  profile.capabilities.native_flush = can.flag("native_flush");
  profile.capabilities.atomic_write = can.flag("atomic_write");
  profile.capabilities.ordered_persist = can.flag("ordered_persist");
  profile.capabilities.send_flush = can.flag("send_flush");
  profile.capabilities.persistent_flush = can.flag("persistent_flush");
  fields.absorb(can.finish());
  outer.absorb(fields.finish());
  return profile;
}

Result<PoolStatus> parse_pool_state(std::string_view word) {
  for (const auto state : {PoolStatus::Open, PoolStatus::Closed, PoolStatus::Unavailable}) {
    if (to_string(state) == word) return state;
  }
  return Error{ErrorCode::InvalidArgument, "is not open, closed or unavailable"};
}

Result<SessionPhase> parse_phase(std::string_view word) {
  for (const auto phase : {SessionPhase::Granted, SessionPhase::Connected, SessionPhase::Ending}) {
    if (to_string(phase) == word) return phase;
  }
  return Error{ErrorCode::InvalidArgument, "is not granted, connected or ending"};
}

Result<ErrorCode> parse_error_code(std::string_view word) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::SystemError); ++i) {
    if (to_string(ErrorCode{i}) == word) return ErrorCode{i};
  }
  return Error{ErrorCode::InvalidArgument, "is not known"};
}

json to_json(const PoolDescription& pool) {
  return {{"name", pool.name},
          {"state", to_string(pool.state)},
          {"reason", pool.reason},
          {"uuid", pool.uuid},
          {"bytes", pool.bytes},
          {"profile", to_json(pool.profile)},
          {"epoch", pool.epoch.value},
          {"writer", hexadecimal(pool.writer)},
          {"writer_name", pool.writer_name},
          {"writer_present", pool.writer_present},
          {"evidence", pool.evidence},
          {"was_closed", pool.was_closed}};
}

PoolDescription read_pool(JsonFields& fields) {
  PoolDescription pool;
  pool.name = fields.text("name", kPoolNameMax);
  pool.state = fields.parsed("state", parse_pool_state);
  pool.reason = fields.text("reason", kSentenceMax);
  pool.uuid = fields.text("uuid", 64);
  pool.bytes = fields.number("bytes", kPoolBytesMax);
  pool.profile = read_profile(fields, "profile");
  pool.epoch.value = static_cast<std::uint32_t>(fields.number("epoch", UINT32_MAX));
  pool.writer = fields.hex("writer");
  pool.writer_name = fields.text("writer_name", kWriterNameMax * 3);
  pool.writer_present = fields.flag("writer_present");
  pool.evidence = fields.text("evidence", kSentenceMax);
  if (fields.has("was_closed")) pool.was_closed = fields.flag("was_closed");
  if (auto named = validate_pool_name(pool.name); !named) fields.fail("name", "is not a name");
  return pool;
}

json to_json(const pmem::MediumCosts& medium) {
  return {{"copy_byte_ps", medium.copy_byte_ps},
          {"flush_line_ps", medium.flush_line_ps},
          {"sync_ns", medium.sync_ns}};
}

pmem::MediumCosts read_medium(JsonFields& outer) {
  JsonFields fields(outer.object("medium"), "medium");
  pmem::MediumCosts medium;
  medium.copy_byte_ps = fields.number("copy_byte_ps", kCostMax);
  medium.flush_line_ps = fields.number("flush_line_ps", kCostMax);
  medium.sync_ns = fields.number("sync_ns", kCostMax);
  outer.absorb(fields.finish());
  return medium;
}

json to_json(const ServiceCounters& counters) {
  return {{"messages", counters.messages},
          {"refused_messages", counters.refused_messages},
          {"copied_bytes", counters.copied_bytes},
          {"flush_calls", counters.flush_calls},
          {"acks", counters.acks}};
}

json to_json(const SessionDescription& session) {
  json out = {{"id", hexadecimal(session.id)},        {"pool", session.pool},
              {"phase", to_string(session.phase)},    {"write", session.write},
              {"epoch", session.epoch.value},         {"writer", hexadecimal(session.writer)},
              {"writer_name", session.writer_name},   {"transport", to_string(session.transport)},
              {"counters", to_json(session.counters)}};
  if (!session.unrevoked.empty()) out["unrevoked"] = session.unrevoked;
  return out;
}

json with_format(json value) {
  value["format"] = 1;
  return value;
}

}  // namespace

std::string encode(const PoolRequest& request) {
  json body{{"format", 1}, {"name", request.name}, {"bytes", request.bytes}};
  if (request.required_domain != PersistenceDomain::None) {
    body["required_domain"] = to_string(request.required_domain);
  }
  if (request.receive_buffers) body["receive_buffers"] = to_string(*request.receive_buffers);
  return json_text(body);
}

Result<PoolRequest> decode_pool_request(std::string_view text) {
  PERDURE_TRY(parsed, parse_json_object(text, kJsonBytesMax));
  JsonFields fields(parsed, "pool request");
  fields.format(false);
  PoolRequest request;
  request.name = fields.text("name", kPoolNameMax);
  request.bytes = fields.number("bytes", kAnyNumber);
  if (fields.has("required_domain")) {
    request.required_domain = fields.parsed("required_domain", parse_required_domain);
  }
  if (fields.has("receive_buffers")) {
    request.receive_buffers = fields.parsed("receive_buffers", parse_receive_buffers);
  }
  PERDURE_TRY_VOID(fields.finish());
  PERDURE_TRY_VOID(validate(request));
  return request;
}

std::string encode(const SessionAsk& ask) {
  json body = document();
  body["write"] = ask.request.write;
  body["transport"] = transport_word(ask.transport);
  if (!ask.request.writer_name.empty()) body["writer_name"] = ask.request.writer_name;
  if (ask.request.write) {
    body["epoch"] = ask.request.epoch.value;
    body["writer"] = hexadecimal(ask.request.writer);
    body["take_over"] = ask.request.take_over;
  } else if (ask.request.for_writer) {
    body["for_writer"] = true;
  }
  return json_text(body);
}

Result<SessionAsk> decode_session_ask(std::string_view text, const std::string& pool) {
  PERDURE_TRY(parsed, parse_json_object(text, kJsonBytesMax));
  JsonFields fields(parsed, "session request");
  fields.format(false);
  SessionAsk ask;
  ask.request.pool = pool;
  ask.request.write = fields.flag("write");
  if (fields.has("transport")) ask.transport = fields.parsed("transport", parse_transport_choice);
  if (fields.has("writer_name")) {
    ask.request.writer_name = fields.text("writer_name", kWriterNameMax);
  }
  if (ask.request.write) {
    ask.request.epoch.value = static_cast<std::uint32_t>(fields.number("epoch", UINT32_MAX));
    ask.request.writer = fields.hex("writer");
    if (fields.has("take_over")) ask.request.take_over = fields.flag("take_over");
  } else if (fields.has("for_writer")) {
    ask.request.for_writer = fields.flag("for_writer");
  }
  PERDURE_TRY_VOID(fields.finish());
  PERDURE_TRY_VOID(validate(ask.request));
  return ask;
}

std::string encode_fence(Epoch epoch) {
  return json_text(json{{"format", 1}, {"epoch", epoch.value}});
}

Result<Epoch> decode_fence(std::string_view text) {
  PERDURE_TRY(parsed, parse_json_object(text, kJsonBytesMax));
  JsonFields fields(parsed, "fence request");
  fields.format(false);
  const Epoch epoch{static_cast<std::uint32_t>(fields.number("epoch", UINT32_MAX))};
  PERDURE_TRY_VOID(fields.finish());
  return epoch;
}

std::string encode(const Deletion& deletion) {
  json body{{"format", 1}, {"uuid", deletion.uuid}};
  if (deletion.look) body["look"] = true;  // unknown to older daemons, which then delete nothing
  return json_text(body);
}

Result<Deletion> decode_deletion(std::string_view text) {
  PERDURE_TRY(parsed, parse_json_object(text, kJsonBytesMax));
  JsonFields fields(parsed, "deletion");
  fields.format(false);
  Deletion deletion;
  deletion.uuid = fields.text("uuid", 64);
  if (fields.has("look")) deletion.look = fields.flag("look");
  PERDURE_TRY_VOID(fields.finish());
  return deletion;
}

Result<void> decode_empty(std::string_view text) {
  if (text.empty()) return {};
  PERDURE_TRY(parsed, parse_json_object(text, kJsonBytesMax));
  JsonFields fields(parsed, "request");
  fields.format(false);
  return fields.finish();
}

std::string encode(const PoolDescription& pool) { return json_text(with_format(to_json(pool))); }

Result<PoolDescription> decode_pool(std::string_view text) {
  return read_answer<PoolDescription>(text, "pool", read_pool);
}

std::string encode(const std::vector<PoolDescription>& pools) {
  json list = json::array();
  for (const PoolDescription& pool : pools) list.push_back(to_json(pool));
  return json_text(json{{"format", 1}, {"pools", std::move(list)}});
}

Result<std::vector<PoolDescription>> decode_pools(std::string_view text) {
  return read_answer<std::vector<PoolDescription>>(text, "pools", [](JsonFields& fields) {
    std::vector<PoolDescription> pools;
    for (const json& each : fields.array("pools", kListMax)) {
      JsonFields pool(each, "pool");
      pools.push_back(read_pool(pool));
      fields.absorb(pool.finish());
    }
    return pools;
  });
}

std::string encode(const SessionGrant& grant) {
  json body =
      json({{"format", 1},
            {"session", hexadecimal(grant.session)},
            {"token", hexadecimal(grant.token)},
            {"transport", to_string(grant.transport)},
            {"address", grant.address},
            {"remote",
             {{"key", hexadecimal(grant.remote.key)},
              {"base", hexadecimal(grant.remote.base)},
              {"length", grant.remote.length}}},
            {"receive",
             {{"depth", grant.receive_depth}, {"message_bytes_max", grant.message_bytes_max}}},
            {"pool", to_json(grant.pool)}});
  if (grant.medium) body["medium"] = to_json(*grant.medium);
  return json_text(body);
}

Result<SessionGrant> decode_grant(std::string_view text) {
  return read_answer<SessionGrant>(text, "session grant", [](JsonFields& fields) {
    SessionGrant grant;
    grant.session = fields.hex("session");
    grant.token = fields.hex("token");
    grant.transport = fields.parsed("transport", parse_transport);
    grant.address = fields.text("address", 256);
    JsonFields remote(fields.object("remote"), "remote");
    grant.remote.key = remote.hex("key");
    grant.remote.base = remote.hex("base");
    grant.remote.length = remote.number("length", kPoolBytesMax);
    fields.absorb(remote.finish());
    JsonFields receive(fields.object("receive"), "receive");
    grant.receive_depth = receive.number("depth", 65536);
    grant.message_bytes_max = receive.number("message_bytes_max", std::uint64_t{1} << 30);
    fields.absorb(receive.finish());
    JsonFields pool(fields.object("pool"), "pool");
    pool.format(false);
    grant.pool = read_pool(pool);
    fields.absorb(pool.finish());
    if (fields.has("medium")) grant.medium = read_medium(fields);
    return grant;
  });
}

std::string encode(const SessionDescription& session) {
  return json_text(with_format(to_json(session)));
}

Result<SessionDescription> decode_session(std::string_view text) {
  return read_answer<SessionDescription>(text, "session", [](JsonFields& fields) {
    SessionDescription session;
    session.id = fields.hex("id");
    session.pool = fields.text("pool", kPoolNameMax);
    session.phase = fields.parsed("phase", parse_phase);
    session.write = fields.flag("write");
    session.epoch.value = static_cast<std::uint32_t>(fields.number("epoch", UINT32_MAX));
    session.writer = fields.hex("writer");
    session.writer_name = fields.text("writer_name", kWriterNameMax * 3);
    session.transport = fields.parsed("transport", parse_transport);
    if (fields.has("unrevoked")) session.unrevoked = fields.text("unrevoked", kSentenceMax);
    JsonFields counters(fields.object("counters"), "counters");
    session.counters.messages = counters.number("messages", kAnyNumber);
    session.counters.refused_messages = counters.number("refused_messages", kAnyNumber);
    session.counters.copied_bytes = counters.number("copied_bytes", kAnyNumber);
    session.counters.flush_calls = counters.number("flush_calls", kAnyNumber);
    session.counters.acks = counters.number("acks", kAnyNumber);
    fields.absorb(counters.finish());
    return session;
  });
}

std::string encode(const std::vector<SessionDescription>& sessions) {
  json list = json::array();
  for (const SessionDescription& session : sessions) list.push_back(to_json(session));
  return json_text(json{{"format", 1}, {"sessions", std::move(list)}});
}

std::string encode(const ServiceDescription& service) {
  json transports = json::array();
  for (const Transport transport : service.transports) transports.push_back(to_string(transport));
  json text{{"format", 1},
            {"version", service.version},
            {"host", service.host},
            {"transports", std::move(transports)},
            {"devices", service.devices},
            {"pools", service.pools},
            {"sessions", service.sessions},
            {"emulated", service.emulated}};
  if (service.kernel_up_s) text["kernel_up_s"] = *service.kernel_up_s;
  return json_text(text);
}

Result<ServiceDescription> decode_service(std::string_view text) {
  return read_answer<ServiceDescription>(text, "profile", [](JsonFields& fields) {
    ServiceDescription service;
    service.version = fields.text("version", 64);
    service.host = fields.text("host", 64);
    for (const json& each : fields.array("transports", 8)) {
      const auto* word = each.get_ptr<const json::string_t*>();
      const auto transport = parse_transport(word == nullptr ? "" : *word);
      if (transport.ok())
        service.transports.push_back(*transport);
      else
        fields.fail("transports", transport.error().message);
    }
    for (const json& each : fields.array("devices", 8)) {
      const auto* word = each.get_ptr<const json::string_t*>();
      if (word != nullptr)
        service.devices.push_back(*word);
      else
        fields.fail("devices", "has something other than strings");
    }
    service.pools = fields.number("pools", kListMax);
    service.sessions = fields.number("sessions", kListMax);
    service.emulated = fields.flag("emulated");
    if (fields.has("kernel_started_s")) (void)fields.number("kernel_started_s", kAnyNumber);
    if (fields.has("kernel_up_s")) service.kernel_up_s = fields.number("kernel_up_s", kAnyNumber);
    return service;
  });
}

std::string encode(const Error& error) {
  return json_text(json{{"format", 1},
                        {"error", {{"code", to_string(error.code)}, {"message", error.message}}}});
}

Error decode_error(std::string_view text) {
  const Error nonsense{ErrorCode::ProtocolError,
                       "the peer refused without a reason that makes sense"};
  struct Refusal {
    Error error;
  };
  const auto read = read_answer<Refusal>(text, "error answer", [](JsonFields& fields) {
    JsonFields inner(fields.object("error"), "error");
    Refusal refusal;
    refusal.error.code = inner.parsed("code", parse_error_code);
    refusal.error.message = inner.text("message", kSentenceMax);
    fields.absorb(inner.finish());
    return refusal;
  });
  return read.ok() ? read->error : nonsense;
}

std::string encode_accepted() { return json_text(document()); }

Result<void> decode_accepted(std::string_view text) {
  auto read = read_answer<bool>(text, "answer", [](JsonFields&) { return true; });
  if (!read) return read.error();
  return {};
}

}  // namespace perdure::control
