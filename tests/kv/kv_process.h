// A perdure-kv process of a test, and a client of its port for Redis's that says what a test wants.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "testing/process.h"
#include "testing/temporary_directory.h"

namespace perdure::kv_test {

/// How a program ended, and what it said.
struct Ended {
  int status = -1;  // of exit; -1: a signal ended it, or it did not end in time
  std::string said;
};

/// Killed when this goes out of scope. Threads: one caller at a time.
class KvProcess {
 public:
  /// Starts perdure-kv with these arguments, a port file among them; the test ends with an
  /// exception if it does not serve within 60 s.
  explicit KvProcess(std::vector<std::string> arguments);

  /// `serve` on a pool in memory that is declared to survive, with a port for Redis's clients, all
  /// on free ports.
  static std::unique_ptr<KvProcess> serving(const std::string& pool,
                                            std::vector<std::string> more = {});

  /// "control" or "resp".
  std::string address(const std::string& name) const;
  /// The number of the port for Redis's clients.
  std::string resp_port() const;
  void kill() { process_.kill(); }
  void send(int signal) const { process_.signal(signal); }
  bool running() { return process_.running(); }
  /// What it has in memory; 0: it has ended.
  std::size_t resident_bytes() const {
    const auto bytes = test::resident_bytes(process_.pid());
    return bytes.ok() ? *bytes : 0;
  }
  /// Waits for its end, at most 60 s.
  Ended wait();

 private:
  test::TestDirectory directory_;
  test::ChildProcess process_;
};

/// Runs a program to its end, at most 120 s, with the file `input` as its standard input.
Ended run(const std::vector<std::string>& command, const std::string& input = "");

/// One reply of RESP2, as a test reads it: written without looking at src/resp.
struct Reply {
  char kind = 0;  // + - : $ *; 0: the connection has ended
  bool null = false;
  std::string text;  // of all kinds but *
  std::vector<Reply> elements;

  bool operator==(const Reply&) const = default;
};

/// A connection. Waits at most 60 s for anything. Threads: one caller at a time.
class RespClient {
 public:
  explicit RespClient(const std::string& address);
  ~RespClient();
  RespClient(const RespClient&) = delete;
  RespClient& operator=(const RespClient&) = delete;

  /// Bytes as they are. False: the other side does not take them.
  bool say(std::string_view bytes);
  static std::string encoded(const std::vector<std::string>& words);
  Reply hear();
  Reply ask(const std::vector<std::string>& words);
  /// Waits until something comes. False: the other side has closed it.
  bool fill();
  /// Whether the other side has closed it; waits for that.
  bool closed() { return hear().kind == 0; }

 private:
  std::optional<std::string> line();

  int socket_;
  std::string input_;
};

Reply status(std::string text);
Reply bulk(std::string text);
Reply number(long long value);
Reply null();

}  // namespace perdure::kv_test
