#include "client/remote_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "client/writer_name.h"
#include "core/try.h"

namespace perdure::client {
namespace {

constexpr Nanoseconds kWaitSlice = std::chrono::milliseconds(10);
constexpr Nanoseconds kSpin = std::chrono::microseconds(50);

}  // namespace

Result<std::unique_ptr<RemoteBytes>> RemoteBytes::open(Peer& peer, const std::string& pool,
                                                       Nanoseconds timeout, const Clock& clock) {
  control::SessionRequest request;
  request.pool = pool;
  request.writer_name = this_writer();
  return open(peer, request, timeout, clock, std::nullopt);
}

Result<std::unique_ptr<RemoteBytes>> RemoteBytes::open_for_writer(
    Peer& peer, const std::string& pool, Nanoseconds timeout, const Clock& clock,
    const std::optional<Deadline>& until) {
  control::SessionRequest request;
  request.pool = pool;
  request.writer_name = this_writer();
  request.for_writer = true;
  return open(peer, request, timeout, clock, until);
}

Result<std::unique_ptr<RemoteBytes>> RemoteBytes::open(Peer& peer,
                                                       const control::SessionRequest& request,
                                                       Nanoseconds timeout, const Clock& clock,
                                                       const std::optional<Deadline>& until) {
  const bool ends_first = until && until->left() <= timeout;
  PERDURE_TRY(session, peer.open_session(request, ends_first ? *until : Deadline(clock, timeout)));
  std::unique_ptr<RemoteBytes> bytes(new RemoteBytes(std::move(session), timeout, clock, until));
  bytes->device_ = &peer.device();
  PERDURE_TRY(landing, make_landing(*bytes->device_, kReadBytes));
  bytes->read_ = std::move(landing);
  return bytes;
}

Result<RemoteBytes::Landing> RemoteBytes::make_landing(fabric::Device& device, std::size_t length) {
  Landing landing;
  landing.length = length;
  landing.bytes = std::make_unique_for_overwrite<std::byte[]>(length);
  PERDURE_TRY(memory, device.register_memory(landing.first(length), fabric::Access::Local));
  landing.memory = std::move(memory);
  return landing;
}

Result<void> RemoteBytes::read(std::uint64_t at, std::span<std::byte> to) {
  while (!to.empty()) {
    const auto window = read_.first(std::min(to.size(), kReadBytes));
    PERDURE_TRY_VOID(read_window(at, read_, window.size()));
    std::copy(window.begin(), window.end(), to.begin());
    at += window.size();
    to = to.subspan(window.size());
  }
  return {};
}

Result<std::span<const std::byte>> RemoteBytes::view(std::uint64_t at, std::size_t least,
                                                     std::size_t most) {
  if (least > kViewBytes) return ByteSource::view(at, least, most);
  ++views_;
  const std::size_t bytes = std::min(most, kViewBytes);
  if (bytes > view_.length) {
    PERDURE_TRY(landing,
                make_landing(*device_, bytes > kFirstViewBytes ? kViewBytes : kFirstViewBytes));
    view_ = std::move(landing);
  }
  PERDURE_TRY_VOID(read_window(at, view_, bytes));
  return std::span<const std::byte>(view_.first(bytes));
}

Result<void> RemoteBytes::read_window(std::uint64_t at, const Landing& landing,
                                      std::size_t length) {
  const std::span<std::byte> to = landing.first(length);
  std::size_t posted = 0;  // bytes
  std::size_t in_flight = 0;
  while (posted < to.size() || in_flight > 0) {
    for (; posted < to.size() && in_flight < kPieces; ++in_flight) {
      const std::size_t bytes = std::min(kPieceBytes, to.size() - posted);
      PERDURE_TRY_VOID(post_read(at + posted, to.subspan(posted, bytes), *landing.memory));
      posted += bytes;
    }
    PERDURE_TRY(count, await_reads(at, to.size()));
    in_flight -= count;
  }
  return {};
}

Result<void> RemoteBytes::post_read(std::uint64_t at, std::span<std::byte> to,
                                    fabric::Memory& memory) {
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::Read;
  request.remote = session_.remote;
  request.remote_offset = at;
  request.segments[0] = {to.data(), to.size(), &memory};
  request.segment_count = 1;
  PERDURE_TRY(posted, session_.endpoint->post(std::span<const fabric::WorkRequest>(&request, 1)));
  if (posted == 0) return Error{ErrorCode::Disconnected, "the read session takes no requests"};
  return {};
}

/// Waits for the next completions, and returns how many came. `at` and `bytes` are for the error.
Result<std::size_t> RemoteBytes::await_reads(std::uint64_t at, std::size_t bytes) {
  fabric::Endpoint* endpoint = session_.endpoint.get();
  const Deadline deadline = until_ ? until_->within(timeout_) : Deadline(clock_, timeout_);
  // Who waits for much lets the peer have the core: there may be fewer than replicas that are read.
  const Deadline spin(clock_, bytes > kPieceBytes ? Nanoseconds{0} : kSpin);
  while (true) {
    std::array<fabric::Completion, kPieces> completions;
    const std::size_t count = endpoint->poll(completions);
    for (std::size_t i = 0; i < count; ++i) {
      if (!completions[i].error) continue;
      return Error{ErrorCode::Disconnected,
                   fmt::format("reading {} bytes at {} of pool '{}' failed: {}", bytes, at,
                               session_.pool.name, to_string(*completions[i].error))};
    }
    if (count != 0) return count;
    if (!endpoint->connected()) {
      return Error{ErrorCode::Disconnected,
                   fmt::format("the peer of pool '{}' went away", session_.pool.name)};
    }
    if (deadline.passed()) {
      endpoint->disconnect();  // a late answer must not land in a later read
      const std::string& pool = session_.pool.name;
      return Error{ErrorCode::TimedOut,
                   until_ && until_->passed()
                       ? fmt::format("there was no time left to read pool '{}'", pool)
                       : fmt::format("the peer of pool '{}' stopped answering", pool)};
    }
    if (!spin.passed()) continue;
    fabric::wait_any(std::span(&endpoint, 1), std::min(kWaitSlice, deadline.left()));
  }
}

}  // namespace perdure::client
