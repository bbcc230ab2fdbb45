// The commands of Redis that the port knows, and what each is answered with where no store is
// needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "resp_session.h"

namespace perdure::kv_app {

enum class CommandKind {
  Plain,  // answered by answer_plain()
  Set,
  Erase,
  LookUp,  // GET and MGET: its words are keys
  Read,    // asks the store something else
};

struct Command {
  std::string_view name;  // in small letters
  int arity = 0;          // as COMMAND shows it: words with the name; below zero: at least so many
  CommandKind kind = CommandKind::Plain;
  int first_key = 0;
  int last_key = 0;
};

/// Nothing: there is none of this name, or it takes another number of arguments; `error` says which
/// as Redis does.
const Command* find_command(const Words& words, std::string& error);

/// Appends the answer; true: the session ends behind it.
bool answer_plain(const Command& command, const Words& words, std::string& reply);

/// Whether two words are the same but for capital letters.
bool same_word(std::string_view one, std::string_view other);
std::optional<std::int64_t> parse_number(std::string_view word);

}  // namespace perdure::kv_app
