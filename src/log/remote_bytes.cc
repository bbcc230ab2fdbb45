#include "log/remote_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/try.h"

namespace perdure::log {
namespace {

constexpr std::size_t kLandingBytes = 1024 * 1024;
constexpr Nanoseconds kSleepSlice = std::chrono::milliseconds(10);
constexpr Nanoseconds kSpin = std::chrono::microseconds(50);

}  // namespace

Result<std::unique_ptr<RemoteLogBytes>> RemoteLogBytes::open(peer::Peer& peer,
                                                             const std::string& pool,
                                                             Nanoseconds timeout,
                                                             const Clock& clock) {
  peer::SessionRequest request;
  request.pool = pool;
  PERDURE_TRY(session, peer.open_session(request, Deadline(clock, timeout)));
  std::unique_ptr<RemoteLogBytes> bytes(new RemoteLogBytes(std::move(session), timeout, clock));
  bytes->landing_.resize(kLandingBytes);
  PERDURE_TRY(memory, peer.device().register_memory(bytes->landing_, fabric::Access::Local));
  bytes->landing_memory_ = std::move(memory);
  return bytes;
}

Result<void> RemoteLogBytes::read(std::uint64_t at, std::span<std::byte> to) {
  while (!to.empty()) {
    const auto piece = to.first(std::min(to.size(), landing_.size()));
    PERDURE_TRY_VOID(read_piece(at, piece));
    at += piece.size();
    to = to.subspan(piece.size());
  }
  return {};
}

Result<void> RemoteLogBytes::read_piece(std::uint64_t at, std::span<std::byte> to) {
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::Read;
  request.remote = session_.remote;
  request.remote_offset = at;
  request.segments[0] = {landing_.data(), to.size(), landing_memory_.get()};
  request.segment_count = 1;
  fabric::Endpoint* endpoint = session_.endpoint.get();
  PERDURE_TRY(posted, endpoint->post(std::span<const fabric::WorkRequest>(&request, 1)));
  if (posted == 0) return Error{ErrorCode::Disconnected, "the read session takes no requests"};

  const Deadline deadline = Deadline(clock_, timeout_);
  const Deadline spin = Deadline(clock_, kSpin);
  while (true) {
    std::array<fabric::Completion, 4> completions;
    const std::size_t count = endpoint->poll(completions);
    if (count != 0 && completions[0].error) {
      return Error{ErrorCode::Disconnected,
                   fmt::format("reading {} bytes at {} of pool '{}' failed: {}", to.size(), at,
                               session_.pool.name, to_string(*completions[0].error))};
    }
    if (count != 0) break;
    if (!endpoint->connected()) {
      return Error{ErrorCode::Disconnected,
                   fmt::format("the peer of pool '{}' went away", session_.pool.name)};
    }
    if (deadline.passed()) {
      endpoint->disconnect();  // a late answer must not land in a later read
      return Error{ErrorCode::TimedOut,
                   fmt::format("the peer of pool '{}' stopped answering", session_.pool.name)};
    }
    if (spin.passed()) fabric::wait_any(std::span(&endpoint, 1), kSleepSlice);
  }
  std::copy_n(landing_.begin(), to.size(), to.begin());
  return {};
}

}  // namespace perdure::log
