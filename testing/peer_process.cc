// Starting perdured and learning its address.
#include "testing/peer_process.h"

#include "core/text_file.h"
#include "core/try.h"
#include "testing/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

namespace perdure::test {
namespace {

constexpr Nanoseconds kStartsWithin = std::chrono::seconds(20);
constexpr Nanoseconds kAskAgain = std::chrono::milliseconds(3);

std::string port_file_in(const std::string& directory) { return directory + "/ports"; }

/// Of a port file's text, which is written at once; empty: it is not there yet.
std::string control_address(const std::string& text) {
  constexpr std::string_view kControl = "control ";
  const std::size_t end = text.find('\n');
  if (!text.starts_with(kControl) || end == std::string::npos) return "";
  return text.substr(kControl.size(), end - kControl.size());
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "it wrote no message";
  const std::size_t before = text.find_last_of('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, end - begin + 1);
}

std::string quoted(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words)
    out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", word);
  return out;
}

}  // namespace

Result<std::string> find_perdured() {
  const std::string here = program_directory();
  for (const std::string& path : {here + "/perdured", here + "/../perdured/perdured"}) {
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return Error{ErrorCode::NotFound,
               fmt::format("there is no perdured in '{0}' or '{0}/../perdured'; build the target "
                           "`perdured`, or install both programs into one directory",
                           here)};
}

std::string last_address(const std::string& directory) {
  return control_address(read_text(port_file_in(directory)));
}

Result<PeerProcess> PeerProcess::start(PeerProcessOptions options) {
  PeerProcess peer(std::move(options));
  PERDURE_TRY_VOID(peer.launch());
  return peer;
}

Result<void> PeerProcess::start_again() {
  process_.kill();
  return launch();
}

Result<void> PeerProcess::launch() {
  std::string program = options_.program;
  if (program.empty()) {
    PERDURE_TRY(found, find_perdured());
    program = std::move(found);
  }
  const std::string& directory = options_.directory;
  const std::string pools = directory + "/pools";
  const std::string port_file = port_file_in(directory);
  std::error_code ignored;
  std::filesystem::create_directories(pools, ignored);
  std::filesystem::remove(port_file, ignored);
  std::vector<std::string> command{program, "--pools", pools, "--port-file", port_file};
  std::string data = "[data]\n";
  if (!options_.transports.empty()) {
    data += fmt::format("transports = [{}]\n", quoted(options_.transports));
  }
  if (options_.spin) data += fmt::format("spin_us = {}\n", options_.spin->count());
  if (options_.allow_remote) data += "[control]\nallow_remote = true\n";
  const std::string config = directory + "/perdured.toml";
  PERDURE_TRY_VOID(write_file(config, data));
  command.insert(command.end(), {"--config", config});
  if (options_.declared) {
    command.insert(command.end(), {"--declare-domain", std::string(to_string(*options_.declared))});
  }
  const bool known = !address_.empty();
  command.insert(command.end(), {"--listen", known ? address_ : "127.0.0.1:0"});
  if (known) command.insert(command.end(), {"--data-listen", "127.0.0.1:0"});
  PERDURE_TRY(process, ChildProcess::start(command, directory + "/messages"));
  process_ = std::move(process);
  return await_ports(port_file);
}

Result<void> PeerProcess::await_ports(const std::string& port_file) {
  const Deadline deadline = Deadline::after(kStartsWithin);
  while (true) {
    PERDURE_TRY_VOID(InterruptGuard::check());
    const std::string address = control_address(read_text(port_file));
    if (!address.empty()) {
      address_ = address;
      return {};
    }
    const bool gone = !process_.running();
    if (gone || deadline.passed()) {
      process_.kill();
      return Error{gone ? ErrorCode::SystemError : ErrorCode::TimedOut,
                   fmt::format("perdured {}: {}", gone ? "ended while starting" : "does not start",
                               last_line(read_text(options_.directory + "/messages")))};
    }
    pause_for(kAskAgain);
  }
}

}  // namespace perdure::test
