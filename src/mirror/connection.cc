#include "mirror/connection.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/try.h"
#include "persist/ordered.h"

namespace perdure::mirror {
namespace {

client::DurableSessionOptions session_options(const MirrorOptions& options, const Clock& clock) {
  client::DurableSessionOptions session;
  session.primary = options.primary;
  session.measure_costs = options.measure_costs;
  session.requests_in_flight = client::kUpdatesMax;
  session.probe_line = kProbeLineAt;
  session.ranges_again = true;
  session.request_bytes_max = persist::kOrderedBytesMax;
  session.reply_bytes_max = 64;
  session.timeout = options.peer_timeout;
  session.clock = &clock;
  return session;
}

}  // namespace

Connection::~Connection() { session_.close(); }

Result<std::unique_ptr<Connection>> Connection::connect(std::shared_ptr<client::Peer> peer,
                                                        const control::SessionRequest& request,
                                                        const MirrorOptions& options,
                                                        const Buffers& buffers, const Clock& clock,
                                                        const StoppableClock& steps) {
  client::DurableSessionOptions session = session_options(options, clock);
  // What is sent from where it is may be read by whoever carries it, whenever that is.
  session.tie = [&local = buffers.of](const CutSwitch& connection) -> std::shared_ptr<void> {
    return local.cut_on_failure(connection);
  };
  std::unique_ptr<Connection> connection(new Connection(std::move(peer), session));
  const auto until = [&] { return steps.after(options.peer_timeout); };
  PERDURE_TRY_VOID(connection->open(request, buffers, until));
  connection->session_.set_deadline(std::nullopt);
  return connection;
}

Result<Connection::Look> Connection::look(std::shared_ptr<client::Peer> peer,
                                          const MirrorOptions& options, const Clock& clock) {
  PERDURE_TRY(bytes, client::RemoteBytes::open_for_writer(*peer, options.pool, options.peer_timeout,
                                                          clock));
  const client::DurableSession session(std::move(peer), session_options(options, clock));
  PERDURE_TRY_VOID(session.check_methods(bytes->session(), false));
  std::vector<std::byte> beginning(std::min<std::uint64_t>(kDataAt, bytes->size()));
  PERDURE_TRY_VOID(bytes->read(0, beginning));
  beginning.resize(kDataAt);
  PERDURE_TRY(start, decode_start(beginning));
  return Look{start, std::move(bytes)};
}

Result<void> Connection::open(const control::SessionRequest& request, const Buffers& buffers,
                              const std::function<Deadline()>& until) {
  session_.set_deadline(until());
  PERDURE_TRY_VOID(session_.open(request));
  if (session_.connection().remote.length <= kDataAt) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("its pool has {} bytes; a mirror takes {} besides what is mirrored",
                             session_.connection().remote.length, kDataAt)};
  }
  PERDURE_TRY(staging, session_.register_memory(buffers.staging));
  staging_ = std::move(staging);
  PERDURE_TRY(copies, session_.register_memory(buffers.copies));
  copies_ = std::move(copies);
  PERDURE_TRY(landing, session_.register_memory(buffers.landing));
  landing_ = std::move(landing);
  // Pages of a DAX file system, for example, can not be pinned for long: then ranges are copied.
  if (auto local = session_.register_memory(buffers.local); local.ok()) {
    local_ = std::move(*local);
  }
  session_.set_deadline(until());
  PERDURE_TRY_VOID(session_.prepare(false));
  std::vector<std::byte> beginning(kDataAt);
  // Not into the landing buffer, which others may use: this runs beside them.
  PERDURE_TRY(memory, session_.register_memory(beginning));
  auto number = session_.read(0, {beginning.data(), beginning.size(), memory.get()});
  auto read = number.ok() ? await(*number, until()) : Result<void>(number.error());
  if (!read.ok()) {
    session_.close();  // before the memory goes that the READ names
    return read;
  }
  PERDURE_TRY(start, decode_start(beginning));
  start_ = start;
  return {};
}

Result<void> Connection::await(std::uint64_t number, const std::optional<Deadline>& until) {
  while (!session_.has_resolved(number)) {
    session_.poll();
    if (!session_.up()) return *session_.down_reason();
    if (session_.has_resolved(number)) break;
    if (until && until->passed()) {
      return Error{ErrorCode::TimedOut, session_.peer().name() + " stopped answering"};
    }
    fabric::Endpoint* endpoint = session_.endpoint();
    fabric::wait_any(std::span(&endpoint, 1), std::chrono::milliseconds(1));
    session_.check_timeout();
  }
  return {};
}

std::uint64_t Connection::room() const { return session_.connection().remote.length - kDataAt; }

Result<void> Connection::claim(const MirrorHeader& header) {
  const HeaderBytes encoded = encode_header(header);
  const std::span<const std::byte> bytes(encoded);
  for (auto at = kHeadersAt.rbegin(); at != kHeadersAt.rend(); ++at) {
    PERDURE_TRY_VOID(session_.write_now(*at, std::array<std::byte, kMagicBytes>{}));
    PERDURE_TRY_VOID(session_.write_now(*at + kMagicBytes, bytes.subspan(kMagicBytes)));
    PERDURE_TRY_VOID(session_.write_now(*at, bytes.first(kMagicBytes)));
  }
  start_.header = header;
  return {};
}

Result<void> Connection::write_state(const ReplicaState& state) {
  const StateBytes bytes = encode_state(state);
  for (const std::uint64_t at : kStatesAt) PERDURE_TRY_VOID(session_.write_now(at, bytes));
  return {};
}

}  // namespace perdure::mirror
