// Executes the requests of Redis's clients: see store_requests.h.
//
// In phases. In each a session gives its next changes and the reads behind them, up to the next
// change: so what is read later in the phase is neither older nor newer than the order of requests
// says. All changes are begun, then waited for, then everything is read; replies are appended in
// the order of requests.
#include "store_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "command_table.h"
#include "control/version.h"
#include "core/clock.h"
#include "resp/reply.h"

namespace perdure::kv_app {
namespace {

// In one phase: fewer calls than the server keeps replies of one client.
constexpr std::size_t kStepsMax = 128;
// Of values, asked for together.
constexpr std::size_t kKeysTogether = 64;
constexpr std::size_t kReplyBytesMax = 64 * 1024 * 1024;
constexpr std::uint64_t kScanMin = 1;
constexpr std::uint64_t kScanMax = 10'000;
constexpr std::uint64_t kScanDefault = 10;

std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::chrono::milliseconds left_of(const Deadline& deadline) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left());
}

/// How Redis's clients are told. The first word is the kind.
std::string error_text(const Error& error) {
  switch (error.code) {
    case ErrorCode::NoSpace: return "OOM command not allowed: " + error.message;
    case ErrorCode::OutcomeUnknown:
    case ErrorCode::TimedOut:
      return "ERR outcome unknown, it may still be executed: " + error.message;
    case ErrorCode::InvalidArgument: return "ERR invalid argument: " + error.message;
    default: return fmt::format("ERR {}: {}", to_string(error.code), error.message);
  }
}

bool is_outage(const Error& error) {
  return error.code == ErrorCode::TimedOut || error.code == ErrorCode::Disconnected ||
         error.code == ErrorCode::QueueFull;
}

}  // namespace

struct StoreRequests::Step {
  RespSession* session = nullptr;
  const Command* command = nullptr;  // none: the reply is an error
  Words words;
  std::optional<KvTicket> ticket;
  bool conditional = false;
  std::string reply;  // empty: there is none yet
  std::vector<KvClient::Value> values;
  std::size_t value_bytes = 0;
};

StoreRequests::StoreRequests(KvClient client, RpcLevel acknowledged,
                             std::chrono::milliseconds timeout, std::uint64_t unsent_max)
    : client_(std::move(client)),
      acknowledged_(acknowledged),
      timeout_(timeout),
      unsent_max_(unsent_max) {}

StoreRequests::~StoreRequests() = default;

Result<bool> StoreRequests::run(std::span<RespSession* const> sessions) {
  for (bool executed = false;; executed = true) {
    steps_.clear();
    collect(sessions);
    if (steps_.empty()) return executed;
    finish_changes();
    look_up();
    for (Step& step : steps_) {
      if (step.reply.empty()) read(step);
      step.session->output += step.reply;
      ++counts_.commands;
    }
    if (failure_) return *failure_;
  }
}

/// The next phase: what begins now is finished before anything behind it is looked at.
void StoreRequests::collect(std::span<RespSession* const> sessions) {
  std::uint64_t unsent = 0;
  std::size_t keys = 0;  // whose values will be in memory together
  for (const RespSession* session : sessions) unsent += session->unsent();
  if (unsent > unsent_max_) return;
  for (RespSession* session : sessions) {
    bool reads = false;
    while (!session->requests.empty() && !session->quitting && steps_.size() < kStepsMax &&
           keys < kKeysTogether && session->unsent() <= kUnsentMax) {
      std::string error;
      const Command* const command = find_command(session->requests.front(), error);
      const CommandKind kind = command != nullptr ? command->kind : CommandKind::Plain;
      if (reads && (kind == CommandKind::Set || kind == CommandKind::Erase)) break;
      reads = reads || kind == CommandKind::LookUp || kind == CommandKind::Read;
      Step& step = steps_.emplace_back();
      step.session = session;
      step.command = command;
      step.words = std::move(session->requests.front());
      session->requests.pop_front();
      session->request_bytes -= RespSession::bytes_of(step.words);
      if (kind == CommandKind::LookUp) keys += step.words.size() - 1;
      if (command != nullptr) begin(step);
      if (command == nullptr) resp::append_error(step.reply, error);
    }
  }
}

void StoreRequests::begin(Step& step) {
  switch (step.command->kind) {
    case CommandKind::Plain:
      step.session->quitting = answer_plain(*step.command, step.words, step.reply);
      break;
    case CommandKind::Set: begin_set(step); break;
    case CommandKind::Erase: begin_erase(step); break;
    case CommandKind::LookUp:
    case CommandKind::Read: break;
  }
}

void StoreRequests::begin_set(Step& step) {
  auto condition = KvCondition::Always;
  for (std::size_t at = 3; at < step.words.size(); ++at) {
    const bool absent = same_word(step.words[at], "nx");
    if ((!absent && !same_word(step.words[at], "xx")) || step.conditional) {
      return resp::append_error(step.reply, "ERR syntax error");
    }
    step.conditional = true;
    condition = absent ? KvCondition::IfAbsent : KvCondition::IfPresent;
  }
  if (outage_) return fail(step, *outage_);
  auto begun = client_.begin_set(step.words[1], bytes_in(step.words[2]), condition);
  if (!begun.ok()) return fail(step, begun.error());
  step.ticket = *begun;
}

void StoreRequests::begin_erase(Step& step) {
  if (step.words.size() - 1 > kKvEraseKeysMax) {
    return resp::append_error(
        step.reply, fmt::format("ERR DEL removes up to {} keys in one step", kKvEraseKeysMax));
  }
  if (outage_) return fail(step, *outage_);
  const std::vector<std::string_view> keys(step.words.begin() + 1, step.words.end());
  auto begun = client_.begin_erase(keys);
  if (!begun.ok()) return fail(step, begun.error());
  step.ticket = *begun;
}

/// One deadline for all of them: they are on their way together, in order. So what is behind one
/// that is late is not waited for: each look at a store that is away may take long.
void StoreRequests::finish_changes() {
  const Deadline deadline = Deadline::after(timeout_);
  std::optional<Error> late;
  for (Step& step : steps_) {
    if (!step.ticket) continue;
    if (late) {
      fail(step, *late);
      continue;
    }
    if (step.command->kind == CommandKind::Set && !step.conditional) {
      const auto waited = client_.wait(*step.ticket, acknowledged_, left_of(deadline));
      if (waited.ok())
        resp::append_status(step.reply, "OK");
      else
        fail(step, waited.error());
      if (!waited.ok() && waited.code() == ErrorCode::TimedOut) late = waited.error();
      continue;
    }
    const auto change = client_.outcome(*step.ticket, left_of(deadline));
    if (!change.ok()) {
      fail(step, change.error());
      if (change.code() == ErrorCode::TimedOut) late = change.error();
    } else if (step.command->kind == CommandKind::Erase) {
      resp::append_number(step.reply, static_cast<std::int64_t>(change->erased));
    } else if (change->stored) {
      resp::append_status(step.reply, "OK");
    } else {
      resp::append_null(step.reply);
    }
  }
}

/// The values of all GETs and MGETs of the phase, several in one question.
void StoreRequests::look_up() {
  std::vector<Step*> owners;
  std::vector<std::string_view> keys;
  for (Step& step : steps_) {
    if (step.command == nullptr || step.command->kind != CommandKind::LookUp) continue;
    for (std::size_t at = 1; at < step.words.size(); ++at) {
      if (!step.reply.empty()) break;  // it has failed
      owners.push_back(&step);
      keys.push_back(step.words[at]);
      if (keys.size() < kKeysTogether) continue;
      look_up_some(owners, keys);
      owners.clear();
      keys.clear();
    }
  }
  if (!keys.empty()) look_up_some(owners, keys);
  for (Step& step : steps_) {
    if (step.values.empty() || !step.reply.empty()) continue;
    if (step.words.size() > 2 || same_word(step.words[0], "mget")) {
      resp::append_array(step.reply, step.values.size());
    }
    for (const auto& value : step.values) {
      if (value)
        resp::append_bulk(step.reply, text_of(*value));
      else
        resp::append_null(step.reply);
    }
    step.values.clear();
  }
}

void StoreRequests::look_up_some(std::span<Step* const> steps,
                                 std::span<const std::string_view> keys) {
  Result<std::vector<KvClient::Value>> values = Error{ErrorCode::Disconnected, ""};
  if (outage_)
    values = *outage_;
  else
    values = client_.get(keys);
  for (std::size_t at = 0; at < steps.size(); ++at) {
    Step& step = *steps[at];
    if (!step.reply.empty()) continue;
    if (!values.ok()) {
      fail(step, values.error());
      continue;
    }
    KvClient::Value& value = (*values)[at];
    step.value_bytes += value ? value->size() : 0;
    step.values.push_back(std::move(value));
    if (step.value_bytes <= kReplyBytesMax) continue;
    step.values.clear();
    resp::append_error(step.reply, fmt::format("ERR the values have more than {} bytes together: "
                                               "ask for fewer keys at once",
                                               kReplyBytesMax));
  }
}

void StoreRequests::read(Step& step) {
  if (outage_) return fail(step, *outage_);
  if (step.command->name == "scan") return scan(step);
  return info(step);
}

void StoreRequests::scan(Step& step) {
  std::uint64_t slots = kScanDefault;
  std::string pattern = "*";
  bool strings = true;
  for (std::size_t at = 2; at < step.words.size(); at += 2) {
    if (at + 1 == step.words.size()) return resp::append_error(step.reply, "ERR syntax error");
    const std::string& value = step.words[at + 1];
    if (same_word(step.words[at], "match")) {
      pattern = value.substr(0, kKvKeyBytesMax * 4);
    } else if (same_word(step.words[at], "type")) {
      strings = same_word(value, "string");
    } else if (same_word(step.words[at], "count")) {
      const auto count = parse_number(value);
      if (!count) {
        return resp::append_error(step.reply, "ERR value is not an integer or out of range");
      }
      if (*count < 1) return resp::append_error(step.reply, "ERR syntax error");
      slots = std::clamp(static_cast<std::uint64_t>(*count), kScanMin, kScanMax);
    } else {
      return resp::append_error(step.reply, "ERR syntax error");
    }
  }
  const auto cursor = parse_number(step.words[1]);
  if (!cursor || *cursor < 0) return resp::append_error(step.reply, "ERR invalid cursor");
  auto walked =
      client_.walk(static_cast<std::uint64_t>(*cursor), static_cast<std::uint32_t>(slots));
  if (!walked.ok()) return fail(step, walked.error());
  std::erase_if(walked->keys,
                [&](const std::string& key) { return !strings || !resp::matches(pattern, key); });
  resp::append_array(step.reply, 2);
  resp::append_bulk(step.reply, std::to_string(walked->cursor));
  resp::append_array(step.reply, walked->keys.size());
  for (const std::string& key : walked->keys) resp::append_bulk(step.reply, key);
}

void StoreRequests::info(Step& step) {
  const auto info = client_.info();
  if (!info.ok()) return fail(step, info.error());
  if (step.command->name == "dbsize") {
    return resp::append_number(step.reply, static_cast<std::int64_t>(info->keys));
  }
  const RpcClientStatus status = client_.status();
  resp::append_bulk(
      step.reply,
      fmt::format(
          "# Server\r\nperdure_version:{}\r\nredis_mode:standalone\r\n\r\n"
          "# Clients\r\nconnected_clients:{}\r\n\r\n"
          "# Persistence\r\nloading:0\r\nacknowledged:{}\r\n\r\n"
          "# Stats\r\ntotal_connections_received:{}\r\nrejected_connections:{}\r\n"
          "total_commands_processed:{}\r\nprotocol_errors:{}\r\nstalled_connections:{}\r\n"
          "store_connections:{}\r\nstore_calls_sent_again:{}\r\n\r\n"
          "# Store\r\nrecord_bytes:{}\r\nkeys_max:{}\r\nkeys_available:{}\r\nblocks:{}\r\n"
          "blocks_available:{}\r\nblock_bytes:{}\r\nvalue_bytes_max:{}\r\n"
          "changes:{}\r\n\r\n# Keyspace\r\n{}",
          control::version(), counts_.connections, to_string(acknowledged_), counts_.accepted,
          counts_.rejected, counts_.commands, counts_.broken, counts_.stalled, status.connections,
          status.resent, info->record_bytes, info->keys_max, info->keys_available, info->blocks,
          info->blocks_available, info->block_bytes, info->value_bytes_max, info->version,
          info->keys != 0 ? fmt::format("db0:keys={},expires=0,avg_ttl=0\r\n", info->keys) : ""));
}

void StoreRequests::fail(Step& step, const Error& error) {
  resp::append_error(step.reply, error_text(error));
  if (is_outage(error)) outage_ = error;
  if (!failure_ && ends_all(error)) failure_ = error;
}

/// Whether the client of the store is of no use any more (rpc.h). One change may be NotFound alone,
/// because its reply is not kept any more.
bool StoreRequests::ends_all(const Error& error) {
  if (error.code == ErrorCode::NotFound) {
    const auto info = client_.info();
    return !info.ok() && info.code() == ErrorCode::NotFound;
  }
  // The last of them: and it was not told that the change is durable.
  return error.code == ErrorCode::Fenced || error.code == ErrorCode::OutcomeUnknown;
}

}  // namespace perdure::kv_app
