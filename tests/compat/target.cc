// A target on this machine: see target.h.
#include "tests/compat/target.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "testing/process.h"

namespace perdure::test {

namespace fs = std::filesystem;

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

std::string read_whole(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Target::Target(const char* transport, Medium medium)
    : medium_(medium),
      home_(medium == Medium::Memory ? "/dev/shm" : ""),
      local_(medium == Medium::Memory ? "/dev/shm" : "") {
  ::setenv("PERDURE_RPMEM_TRANSPORT", transport, 1);
  ::setenv("RPMEM_SSH", at_home("ssh").c_str(), 1);
  ::unsetenv("RPMEM_CMD");
  ::setenv("PERDURE_RPMEM_RECONNECT_MS", "20000", 1);
  ::unsetenv("RPMEM_MAX_NLANES");
  ::setenv("RPMEM_LOG_LEVEL", "1", 1);
  daemon_arguments("");
}

/// ssh's last argument is what the target's shell is to run. What was preloaded into the client is
/// not the daemon's.
void Target::daemon_arguments(const std::string& text) const {
  write_text(at_home("ssh"),
             fmt::format("#!/bin/sh\nfor last; do :; done\nunset LD_PRELOAD\n"
                         "export SSH_CONNECTION='127.0.0.1 50000 127.0.0.1 22'\n"
                         "rpmemd() {{ echo $$ >> '{}/daemons'; exec '{}' --config '{}/conf' {} "
                         "\"$@\"; }}\neval \"$last\"\n",
                         home(), RPMEMD, home(), text));
  ::chmod(at_home("ssh").c_str(), 0755);
  write_text(at_home("conf"), "poolset-dir = " + home() + "\nuse-syslog = no\n" +
                                  (medium_ == Medium::Memory ? "declare-domain = dmp\n" : ""));
}

std::vector<int> Target::daemons() const {
  std::vector<int> found;
  std::ifstream file(at_home("daemons"));
  for (int process = 0; file >> process;) found.push_back(process);
  return found;
}

void Target::serve_set(const std::string& name, const std::vector<std::string>& sizes,
                       const std::string& option) const {
  std::string text = "PMEMPOOLSET\n";
  if (!option.empty()) text += "OPTION " + option + "\n";
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    text += fmt::format("{} {}.{}\n", sizes[part], at_home(name), part);
  }
  write_text(at_home(name), text);
}

std::string Target::client_set(const std::string& name, const std::string& size,
                               const std::vector<std::string>& replicas,
                               const std::string& option) const {
  std::string text = "PMEMPOOLSET\n";
  if (!option.empty()) text += "OPTION " + option + "\n";
  text += fmt::format("{} {}.0\n", size, here(name));
  for (const std::string& each : replicas) text += fmt::format("REPLICA localhost {}\n", each);
  write_text(here(name), text);
  return here(name);
}

std::vector<std::string> client_command(const std::vector<std::string>& command) {
  std::vector<std::string> all = {"/usr/bin/env",
                                  std::string("LD_LIBRARY_PATH=") + RPMEM_LIBRARY_DIRECTORY};
  // A library with sanitizers in a program without them.
  if (*SANITIZER_LIBRARY != '\0') {
    all.push_back(std::string("LD_PRELOAD=") + SANITIZER_LIBRARY);
    all.emplace_back("ASAN_OPTIONS=detect_leaks=0");
  }
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

Outcome run_client(const std::vector<std::string>& command) {
  const TestDirectory scratch;
  Outcome outcome;
  auto child = ChildProcess::start(client_command(command), scratch.file("output"));
  if (!child.ok()) return {-1, child.error().message};
  child->wait();
  if (child->end()) outcome.status = child->end()->status;
  outcome.output = read_whole(scratch.file("output"));
  return outcome;
}

std::size_t different_bytes(const std::string& one, const std::string& other) {
  constexpr std::size_t kPieceBytes = 4096;
  constexpr std::size_t kSkipped = 2 * kPieceBytes;
  const std::string left = read_whole(one);
  const std::string right = read_whole(other);
  std::size_t count = left.size() == right.size() ? 0 : left.size() + right.size();
  const std::size_t common = std::min(left.size(), right.size());
  for (std::size_t piece = kSkipped; piece < common; piece += kPieceBytes) {
    const std::size_t end = std::min(piece + kPieceBytes, common);
    if (std::memcmp(&left[piece], &right[piece], end - piece) == 0) continue;
    for (std::size_t at = piece; at < end; ++at) count += left[at] == right[at] ? 0 : 1;
  }
  return count;
}

}  // namespace perdure::test
