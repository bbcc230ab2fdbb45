// rpmemd in ssh's place: one that runs all the time, and starts an rpmemd of its own for each
// client that perdure-rpmem-connect brings.
//
// A client's connection begins with a line: the command that librpmem gives to ssh, as a shell
// reads it, of which only rpmemd's own words are taken. What follows are the standard input and
// output of the rpmemd that is started. Where that one removes a set, the last line says how it
// ended: "exit N", behind what it said.
#pragma once

#include <perdure/result.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::rpmem {

inline constexpr std::size_t kCommandBytesMax = 4096;

/// The arguments of rpmemd in such a line: none, or those of --remove. Pure.
/// Errors: InvalidArgument: not the words of a shell, or others than librpmem's and libpmempool's.
Result<std::vector<std::string>> arguments_in(std::string_view line);

struct ListenerOptions {
  std::string listen;  // host:port of loopback; port 0: any free one
  /// An rpmemd for one client, with these arguments besides those of this one: in a forked child,
  /// whose status of exit it returns. A program that is started anew would take longer to load than
  /// all else that an opening takes.
  std::function<int(const std::vector<std::string>& arguments)> run;
};

/// Prints "listening at HOST:PORT", and serves until a signal ends it. Where descriptors, memory or
/// processes are lacking it says so on standard error, and clients wait.
/// Errors: InvalidArgument, PermissionDenied (not of loopback), SystemError.
Result<void> listen_for_clients(const ListenerOptions& options);

}  // namespace perdure::rpmem
