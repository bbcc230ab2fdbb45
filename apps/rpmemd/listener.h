// rpmemd in ssh's place: one that runs all the time, and starts an rpmemd of its own for each
// client that perdure-rpmem-connect brings. A client's connection begins as rpmem/asked_command.h
// says; of the command only rpmemd's own words are taken. What follows are the standard input and
// output of the rpmemd that is started.
#pragma once

#include <perdure/result.h>

#include <functional>
#include <string>
#include <vector>

namespace perdure::rpmem {

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
