// Asking peers for the pools that they have.
#include "missing_pool.h"

#include "client/http_peer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string>

namespace perdure::app {
namespace {

constexpr std::size_t kPoolsNamed = 8;  // in an error

/// The pools of the peers that answer; nothing: one of them has it, or nobody answers.
std::optional<std::set<std::string>> pools_instead(const PeerOptions& options) {
  const Deadline deadline = Deadline::after(options.timeout());
  std::set<std::string> names;
  bool any_answer = false;
  for (const std::string& address : options.peers) {
    const auto peer = client::HttpPeer::open(address, nullptr);
    if (!peer.ok()) continue;
    const auto pools = (*peer)->list(deadline);
    if (!pools.ok()) continue;
    any_answer = true;
    for (const control::PoolDescription& pool : *pools) names.insert(pool.name);
  }
  if (!any_answer || names.contains(options.pool)) return std::nullopt;
  return names;
}

}  // namespace

Error explain_missing_pool(Error error, const PeerOptions& options) {
  if (error.code != ErrorCode::NotFound) return error;
  const auto instead = pools_instead(options);
  if (!instead) return error;
  const std::vector<std::string> names(instead->begin(), instead->end());
  std::string hint;
  if (const auto meant = nearest_word(options.pool, names)) {
    hint = fmt::format("; did you mean '{}'?", *meant);
  } else if (names.empty()) {
    hint = ", nor any other; `perdure pool create` makes it";
  } else if (names.size() <= kPoolsNamed) {
    hint = fmt::format("; there are: {}", fmt::join(names, ", "));
  } else {
    hint = "; `perdure pool list` shows those that there are";
  }
  return Error{ErrorCode::NotFound, fmt::format("there is no pool '{}' on {}{}", options.pool,
                                                fmt::join(options.peers, ", "), hint)};
}

}  // namespace perdure::app
