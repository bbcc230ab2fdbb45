// The requests and replies of one client of Redis's, without its socket.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

namespace perdure::kv_app {

using Words = std::vector<std::string>;

struct RespSession {
  std::deque<Words> requests;     // whole, and not executed yet
  std::size_t request_bytes = 0;  // bytes_of all of them
  std::string output;             // replies that are still to be sent
  std::size_t sent = 0;           // of output
  bool quitting = false;          // nothing more is executed; it ends when output is sent

  std::size_t unsent() const { return output.size() - sent; }
  /// Or who never reads all of it would keep all that it was ever told. Cost: on the whole less
  /// than a copy of it.
  void forget_sent() {
    if (sent < unsent()) return;
    output.erase(0, sent);
    sent = 0;
  }
  /// What a request takes of memory: of empty words, too.
  static std::size_t bytes_of(const Words& request) {
    std::size_t bytes = request.size() * sizeof(std::string);
    for (const std::string& word : request) bytes += word.size();
    return bytes;
  }
};

}  // namespace perdure::kv_app
