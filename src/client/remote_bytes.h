// A peer's pool read over a session, as a ByteSource: small READs, several in flight.
#pragma once

#include <perdure/result.h>

#include "client/peer.h"
#include "core/byte_source.h"
#include "core/clock.h"

#include <memory>
#include <optional>
#include <string>

namespace perdure::client {

/// Threads: one caller at a time. Cost: one round trip and more for each 256 KiB and a copy (read),
/// or for each MiB (view).
class RemoteBytes final : public ByteSource {
 public:
  /// Opens a read session; `clock` must outlive it. A peer may be silent for `timeout`; `until`, if
  /// given, ends everything.
  /// Errors: those of Peer::open_session and of registration.
  static Result<std::unique_ptr<RemoteBytes>> open(Peer& peer, const std::string& pool,
                                                   Nanoseconds timeout, const Clock& clock);
  /// The same for what a writer has to read to open, repair or trim: where the peer has no room for
  /// another reader, there may be room for a writer.
  static Result<std::unique_ptr<RemoteBytes>> open_for_writer(
      Peer& peer, const std::string& pool, Nanoseconds timeout, const Clock& clock,
      const std::optional<Deadline>& until = std::nullopt);

  std::uint64_t size() const override { return session_.remote.length; }
  /// Errors: Disconnected, TimedOut.
  Result<void> read(std::uint64_t at, std::span<std::byte> to) override;
  /// Errors: the same.
  Result<std::span<const std::byte>> view(std::uint64_t at, std::size_t least,
                                          std::size_t most) override;

  const Session& session() const { return session_; }
  /// From now on this ends everything, in place of what open was given.
  void set_until(const Deadline& until) { until_ = until; }

 private:
  static Result<std::unique_ptr<RemoteBytes>> open(Peer& peer,
                                                   const control::SessionRequest& request,
                                                   Nanoseconds timeout, const Clock& clock,
                                                   const std::optional<Deadline>& until);
  RemoteBytes(Session session, Nanoseconds timeout, const Clock& clock,
              const std::optional<Deadline>& until)
      : session_(std::move(session)), timeout_(timeout), clock_(clock), until_(until) {}
  /// Registered memory for what READs bring.
  struct Landing {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t length = 0;
    std::unique_ptr<fabric::Memory> memory;
    std::span<std::byte> first(std::size_t count) const { return {bytes.get(), count}; }
  };
  static Result<Landing> make_landing(fabric::Device& device, std::size_t length);
  Result<void> read_window(std::uint64_t at, const Landing& landing, std::size_t bytes);
  Result<void> post_read(std::uint64_t at, std::span<std::byte> to, fabric::Memory& memory);
  Result<std::size_t> await_reads(std::uint64_t at, std::size_t bytes);

  // A peer is silent while no READ completes. One that is long never would where packets are lost:
  // on a RoCE connection each loss costs it an ACK time-out.
  static constexpr std::size_t kPieceBytes = 16 * 1024;
  static constexpr std::size_t kPieces = 16;  // in flight
  static constexpr std::size_t kReadBytes = 256 * 1024;
  static constexpr std::size_t kFirstViewBytes = 64 * 1024;
  static constexpr std::size_t kViewBytes = 1024 * 1024;

  fabric::Device* device_ = nullptr;
  Landing read_;     // for read()
  Landing view_;     // for view(), once it is called: most look at little
  Session session_;  // goes before the memory that its READs name
  const Nanoseconds timeout_;
  const Clock& clock_;
  std::optional<Deadline> until_;
};

}  // namespace perdure::client
