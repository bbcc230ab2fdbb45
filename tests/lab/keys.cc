// What a key of a session opens, and when it ends: one-sided WRITEs, completion by completion.
// Writer A is fenced by writer B; then B's session is closed. Says what happened, line by line;
// status 1 with `broken: ...` when a key lived longer than its session.
#include "client/dial.h"
#include "core/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace {

using namespace perdure;

constexpr std::uint64_t kPlace = 1 << 20;  // in the pool
constexpr std::size_t kBytes = 64;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

Error broken(std::string what) { return Error{ErrorCode::ProtocolError, std::move(what)}; }

/// A session of one pool with a buffer, and verbs on it.
class PoolSession {
 public:
  static Result<PoolSession> open(client::HttpPeer& peer, const control::SessionRequest& request) {
    PERDURE_TRY(session, peer.open_session(request, soon()));
    auto bytes = std::make_unique<std::array<std::byte, kBytes>>();
    PERDURE_TRY(memory, peer.device().register_memory(*bytes, fabric::Access::Local));
    return PoolSession(std::move(session), std::move(bytes), std::move(memory));
  }

  const client::Session& session() const { return session_; }

  /// Nothing: the WRITE is there. Disconnected: it could not even be posted.
  Result<std::optional<ErrorCode>> write(char value, const fabric::RemoteMemory& remote) {
    bytes_->fill(static_cast<std::byte>(value));
    PERDURE_TRY(refused, run(fabric::Opcode::Write, remote));
    if (refused) return std::optional(*refused);
    return run(fabric::Opcode::Read, remote);  // behind it: on iWARP a completion says less
  }

  Result<char> read() {
    PERDURE_TRY(refused, run(fabric::Opcode::Read, session_.remote));
    if (refused) return Error{*refused, "a reader can not read"};
    return static_cast<char>(bytes_->front());
  }

 private:
  PoolSession(client::Session session, std::unique_ptr<std::array<std::byte, kBytes>> bytes,
              std::unique_ptr<fabric::Memory> memory)
      : bytes_(std::move(bytes)), memory_(std::move(memory)), session_(std::move(session)) {}

  Result<std::optional<ErrorCode>> run(fabric::Opcode opcode, const fabric::RemoteMemory& remote) {
    fabric::WorkRequest request;
    request.opcode = opcode;
    request.remote = remote;
    request.remote_offset = kPlace;
    request.segments[0] = {bytes_->data(), bytes_->size(), memory_.get()};
    request.segment_count = 1;
    const auto posted = session_.endpoint->post({&request, 1});
    if (!posted.ok()) return std::optional(posted.code());
    const Deadline deadline = soon();
    fabric::Completion completion;
    while (!deadline.passed()) {
      if (session_.endpoint->poll({&completion, 1}) == 1) return completion.error;
    }
    return broken(fmt::format("a {} never completed", to_string(opcode)));
  }

  std::unique_ptr<std::array<std::byte, kBytes>> bytes_;
  std::unique_ptr<fabric::Memory> memory_;
  client::Session session_;  // ends before the memory that it uses
};

Result<void> expect_written(std::string_view who, Result<std::optional<ErrorCode>> outcome) {
  if (!outcome.ok()) return outcome.error();
  if (*outcome) return broken(fmt::format("{}: the WRITE failed: {}", who, to_string(**outcome)));
  fmt::print("{}: written\n", who);
  return {};
}

Result<void> expect_refused(std::string_view who, Result<std::optional<ErrorCode>> outcome) {
  if (!outcome.ok()) return outcome.error();
  if (!*outcome) return broken(fmt::format("{}: the WRITE was executed", who));
  fmt::print("{}: refused, {}\n", who, to_string(**outcome));
  return {};
}

Result<void> expect_content(client::HttpPeer& peer, const std::string& pool, char wanted) {
  control::SessionRequest request;
  request.pool = pool;
  PERDURE_TRY(reader, PoolSession::open(peer, request));
  PERDURE_TRY(found, reader.read());
  if (found != wanted) return broken(fmt::format("'{}' is there, not '{}'", found, wanted));
  return {};
}

Result<void> run(client::HttpPeer& peer, const std::string& pool) {
  PERDURE_TRY(before, peer.describe(pool, soon()));
  control::SessionRequest request{pool, true, Epoch{before.epoch.value + 1}, 1, "A", true};
  PERDURE_TRY(first, PoolSession::open(peer, request));
  const fabric::RemoteMemory old = first.session().remote;
  PERDURE_TRY_VOID(expect_written("A", first.write('a', old)));

  request = {pool, true, Epoch{before.epoch.value + 2}, 2, "B", true};
  PERDURE_TRY(second, PoolSession::open(peer, request));
  PERDURE_TRY_VOID(expect_refused("A, fenced", first.write('x', old)));
  // Not only A's connection ended: the key opens nothing for anybody.
  PERDURE_TRY_VOID(expect_refused("A's key on B's connection", second.write('x', old)));
  PERDURE_TRY_VOID(expect_content(peer, pool, 'a'));

  PERDURE_TRY(third, PoolSession::open(peer, request));
  const fabric::RemoteMemory key = third.session().remote;
  PERDURE_TRY_VOID(expect_written("B", third.write('b', key)));
  PERDURE_TRY_VOID(peer.close_session(third.session().id, control::Left::NotKnown, soon()));
  PERDURE_TRY_VOID(expect_refused("B, closed", third.write('x', key)));
  return expect_content(peer, pool, 'b');
}

Result<void> run(const std::string& address, const std::string& pool, const std::string& word) {
  PERDURE_TRY(transport, control::parse_transport_choice(word));
  client::Dialer dialer;
  PERDURE_TRY(peer, dialer.dial(address, transport));
  return run(*peer, pool);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: perdure_lab_keys HOST:PORT POOL TRANSPORT\n");
    return 2;
  }
  const auto done = run(argv[1], argv[2], argv[3]);
  if (!done.ok()) fmt::print("broken: {}\n", done.error().message);
  return done.ok() ? 0 : 1;
}
