// The commands of Redis that the port knows: see command_table.h.
#include "command_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "resp/reply.h"

namespace perdure::kv_app {
namespace {

// Of words in an error: what a client sent is shown, but not all of a megabyte.
constexpr std::size_t kShownBytesMax = 128;

constexpr std::array kCommands = {
    Command{"ping", -1, CommandKind::Plain},       Command{"echo", 2, CommandKind::Plain},
    Command{"set", -3, CommandKind::Set, 1, 1},    Command{"get", 2, CommandKind::LookUp, 1, 1},
    Command{"del", -2, CommandKind::Erase, 1, -1}, Command{"mget", -2, CommandKind::LookUp, 1, -1},
    Command{"scan", -2, CommandKind::Read},        Command{"dbsize", 1, CommandKind::Read},
    Command{"info", -1, CommandKind::Read},        Command{"command", -1, CommandKind::Plain},
    Command{"config", -2, CommandKind::Plain},     Command{"select", 2, CommandKind::Plain},
    Command{"quit", -1, CommandKind::Plain},
};

// What CONFIG GET says: a SET that was answered survives, as Redis's does with these two.
constexpr std::array kSettings = {
    std::pair{"appendonly", "yes"},
    std::pair{"appendfsync", "always"},
    std::pair{"save", ""},
};

char small(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

std::string lowered(std::string_view word) {
  std::string text(word);
  std::transform(text.begin(), text.end(), text.begin(), small);
  return text;
}

std::string unknown(const Words& words) {
  std::string shown;
  for (std::size_t at = 1; at < words.size() && shown.size() < kShownBytesMax; ++at) {
    shown += fmt::format("'{}' ", words[at].substr(0, kShownBytesMax - shown.size()));
  }
  return fmt::format("ERR unknown command '{}', with args beginning with: {}",
                     words[0].substr(0, kShownBytesMax), shown);
}

void append_command(std::string& reply, const Command& command) {
  const bool writes = command.kind == CommandKind::Set || command.kind == CommandKind::Erase;
  resp::append_array(reply, 6);
  resp::append_bulk(reply, command.name);
  resp::append_number(reply, command.arity);
  resp::append_array(reply, 1);
  resp::append_status(reply, writes ? "write" : "readonly");
  resp::append_number(reply, command.first_key);
  resp::append_number(reply, command.last_key);
  resp::append_number(reply, command.first_key != 0 ? 1 : 0);
}

void answer_command(const Words& words, std::string& reply) {
  if (words.size() == 1) {
    resp::append_array(reply, kCommands.size());
    for (const Command& each : kCommands) append_command(reply, each);
  } else if (same_word(words[1], "count")) {
    resp::append_number(reply, static_cast<std::int64_t>(kCommands.size()));
  } else if (same_word(words[1], "docs")) {
    resp::append_array(reply, 0);
  } else {
    resp::append_error(reply, fmt::format("ERR unknown subcommand '{}'. Try COMMAND HELP.",
                                          words[1].substr(0, kShownBytesMax)));
  }
}

void answer_config(const Words& words, std::string& reply) {
  if (!same_word(words[1], "get")) {
    resp::append_error(reply, fmt::format("ERR unknown subcommand '{}'. Try CONFIG HELP.",
                                          words[1].substr(0, kShownBytesMax)));
    return;
  }
  if (words.size() < 3) {
    resp::append_error(reply, "ERR wrong number of arguments for 'config|get' command");
    return;
  }
  std::string found;
  std::size_t count = 0;
  for (const auto& setting : kSettings) {
    const bool wanted = std::any_of(words.begin() + 2, words.end(), [&](const std::string& word) {
      return resp::matches(lowered(word.substr(0, kShownBytesMax)), setting.first);
    });
    if (!wanted) continue;
    count += 2;
    resp::append_bulk(found, setting.first);
    resp::append_bulk(found, setting.second);
  }
  resp::append_array(reply, count);
  reply += found;
}

void answer_ping(const Words& words, std::string& reply) {
  if (words.size() > 2) {
    resp::append_error(reply, "ERR wrong number of arguments for 'ping' command");
  } else if (words.size() == 2) {
    resp::append_bulk(reply, words[1]);
  } else {
    resp::append_status(reply, "PONG");
  }
}

void answer_select(const Words& words, std::string& reply) {
  const auto number = parse_number(words[1]);
  if (!number) {
    resp::append_error(reply, "ERR value is not an integer or out of range");
  } else if (*number != 0) {
    resp::append_error(reply, "ERR DB index is out of range");
  } else {
    resp::append_status(reply, "OK");
  }
}

}  // namespace

bool same_word(std::string_view one, std::string_view other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](char a, char b) { return small(a) == small(b); });
}

std::optional<std::int64_t> parse_number(std::string_view word) {
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || stop != word.data() + word.size()) return std::nullopt;
  return number;
}

const Command* find_command(const Words& words, std::string& error) {
  for (const Command& each : kCommands) {
    if (!same_word(words[0], each.name)) continue;
    const auto count = static_cast<int>(words.size());
    if (each.arity > 0 ? count == each.arity : count >= -each.arity) return &each;
    error = fmt::format("ERR wrong number of arguments for '{}' command", each.name);
    return nullptr;
  }
  error = unknown(words);
  return nullptr;
}

bool answer_plain(const Command& command, const Words& words, std::string& reply) {
  if (command.name == "ping") answer_ping(words, reply);
  if (command.name == "echo") resp::append_bulk(reply, words[1]);
  if (command.name == "command") answer_command(words, reply);
  if (command.name == "config") answer_config(words, reply);
  if (command.name == "select") answer_select(words, reply);
  if (command.name != "quit") return false;
  resp::append_status(reply, "OK");
  return true;
}

}  // namespace perdure::kv_app
