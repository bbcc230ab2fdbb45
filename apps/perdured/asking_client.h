// AskingClient: a client of librpmem that has not said yet what it wants (rpmem/asked_command.h).
#pragma once

#include <optional>
#include <string>

#include "core/clock.h"
#include "core/descriptor.h"

namespace perdure::daemon {

/// Threads: one caller at a time.
class AskingClient {
 public:
  enum class Heard {
    More,     // is to come
    Command,  // is there, and what it shows before
    End,      // it has gone, or says what no client says
  };

  /// Takes care that the connection ends also when the client's machine is gone: its rpmemd would
  /// keep the set for ever.
  AskingClient(Descriptor connection, std::string address, Deadline until);

  /// Takes what has come in, without waiting. What is behind the command stays in the socket: it is
  /// rpmemd's.
  Heard hear();

  Descriptor& connection() { return connection_; }
  const Descriptor& connection() const { return connection_; }
  const std::string& address() const { return address_; }
  const Deadline& until() const { return until_; }
  // Once the command is there:
  const std::string& command() const { return line_; }
  const std::optional<std::string>& credential() const { return credential_; }

 private:
  Descriptor connection_;
  std::string address_;
  Deadline until_;
  std::string line_;  // so far
  std::optional<std::string> credential_;
};

}  // namespace perdure::daemon
