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
  std::size_t request_bytes = 0;  // of all their words
  std::string output;             // replies that are still to be sent
  std::size_t sent = 0;           // of output
  bool quitting = false;          // nothing more is executed; it ends when output is sent

  std::size_t unsent() const { return output.size() - sent; }
};

}  // namespace perdure::kv_app
