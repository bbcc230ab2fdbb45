// What a client says first to a daemon that takes ssh's place, before the standard input and output
// of the rpmemd that is started for it: lines of text.
//
//   credential SECRET   only where the client has one to show
//   COMMAND             as librpmem gives it to ssh, and as a shell reads it
//
// Where the command removes a set, the last line of the answer says how it ended: "exit N", behind
// what it said.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::rpmem {

inline constexpr std::size_t kCommandBytesMax = 4096;  // of each line
inline constexpr std::size_t kCredentialBytesMax = 256;

/// The arguments of rpmemd in such a command: none, or those of --remove. Pure.
/// Errors: InvalidArgument: not the words of a shell, or others than librpmem's and libpmempool's.
Result<std::vector<std::string>> arguments_in(std::string_view command);

/// What a line shows as a credential; nothing: it is a command. Pure.
std::optional<std::string_view> credential_in(std::string_view line);

/// The credential in a file: its only line. Errors: those of reading it; InvalidArgument: not one
/// line of visible characters; PermissionDenied: everybody on this machine may read it.
Result<std::string> load_credential(const std::string& file);

/// Whether both are the same, in a time that does not say how much of them is.
bool same_credential(std::string_view one, std::string_view other);

/// How a command is refused, as a client reads it that runs such a one. Pure.
std::string refusal(std::string_view command, const Error& error);

// Back from the rpmemd that was started, over a descriptor of its own (rpmemd --report-to), to who
// started it: "set NAME" and a newline, once the client has a pool of that set. Its end is that of
// the process.
inline constexpr std::size_t kReportBytesMax = 1024;  // less than a pipe takes whole

/// The text with another character in place of each that would break a line of a log. Pure.
std::string visible(std::string_view text);
/// The report of a set, visible. Pure.
std::string reported_set(std::string_view set);
/// The set in a line without its end; nothing: it is no such report. Pure.
std::optional<std::string_view> set_in_report(std::string_view line);

/// A connection's ends as sshd says them: client, its port, this side, its port.
std::string ends_of(int connection);

}  // namespace perdure::rpmem
