// A target on this machine: a home for rpmemd with its set files, a directory of the client's own,
// and what stands in for ssh. The environment of this process says so to librpmem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "testing/temporary_directory.h"

namespace perdure::test {

class Target {
 public:
  /// On files, whose pages the daemon has to sync; or in memory, as if a battery kept it.
  enum class Medium { Files, Memory };
  explicit Target(const char* transport = "tcp", Medium medium = Medium::Files);

  const std::string& home() const { return home_.path(); }
  std::string at_home(const std::string& name) const { return home_.file(name); }
  std::string here(const std::string& name) const { return local_.file(name); }
  /// A set of the target, with parts of these sizes called NAME.0, NAME.1 ...
  void serve_set(const std::string& name, const std::vector<std::string>& sizes,
                 const std::string& option = "") const;
  /// A set of the client, with a part of its own called NAME.0, and these sets of the target as
  /// replicas.
  std::string client_set(const std::string& name, const std::string& size,
                         const std::vector<std::string>& replicas,
                         const std::string& option = "") const;
  /// More arguments for every rpmemd that is started from now on.
  void daemon_arguments(const std::string& text) const;
  /// The rpmemd processes that were started, as they say themselves; those that ended among them.
  std::vector<int> daemons() const;

 private:
  const Medium medium_;
  TestDirectory home_;
  TestDirectory local_;
};

/// What a program wrote to both outputs, and its exit status; -1: a signal ended it.
struct Outcome {
  int status = -1;
  std::string output;
};
/// A program of PMDK, or one that uses it, with librpmem.so.1 to be found.
Outcome run_client(const std::vector<std::string>& command);
/// The same command, to be started some other way.
std::vector<std::string> client_command(const std::vector<std::string>& command);

/// In how many bytes two parts differ, without the first two pages: their headers, and what PMDK
/// keeps there of the running program.
std::size_t different_bytes(const std::string& one, const std::string& other);

void write_text(const std::string& path, const std::string& text);
std::string read_whole(const std::string& path);

}  // namespace perdure::test
