// What librdmacm tells about connections, and what two ends tell each other when they connect.
#pragma once

#include "core/clock.h"
#include "fabric/fabric.h"
#include "fabric/verbs/handles.h"

#include <array>
#include <optional>
#include <string>

namespace perdure::fabric::verbs {

/// A channel whose reads do not block. Errors: SystemError.
Result<Owned<rdma_event_channel>> open_channel();

/// The next event, for at most the time to the deadline. Errors: TimedOut, SystemError.
Result<Owned<rdma_cm_event>> next_event(rdma_event_channel& channel, Deadline deadline);

/// Waits for one event. Errors: Disconnected when another comes, with its name and status;
/// TimedOut; SystemError.
Result<Owned<rdma_cm_event>> expect_event(rdma_event_channel& channel, rdma_cm_event_type expected,
                                          const std::string& peer, Deadline deadline);

/// The first bytes of the private data, in both directions; the caller's own data follow.
/// Little-endian.
///
///   offset  size  field
///   0       1     magic         0x56
///   1       1     version       1
///   2       1     capabilities  bit 0: FLUSH, 1: ATOMIC WRITE, 2: FLUSH to persistence;
///                               bits 3 to 6: binary logarithm of the number of immediates; bit 7:
///                               all messages solicit an event (never on iWARP, where an older
///                               peer would take it for a part of the logarithm)
///   3       1     bytes of the caller's data (the transport pads them); bit 7: the end that
///                 accepts binds a memory window first, and says hello then, before which nothing
///                 may be posted (an older peer that connects takes it for nonsense, and gives up)
///   4       4     key of the credit word
///   8       8     address of the credit word
struct Hello {
  Capabilities capabilities;
  std::uint32_t credit_key = 0;
  std::uint64_t credit_address = 0;
  bool solicits = false;         // see wake_up.h
  bool binds_window = false;     // see VerbsEndpoint::accept
  unsigned immediates_log2 = 0;  // of the ring behind the credit word (iWARP): see work_batch.h
};

inline constexpr std::size_t kConnectHeaderBytes = 16;

/// The private data of one end, and how much of it is used.
struct PrivateData {
  std::array<std::byte, kConnectHeaderBytes + kPrivateBytesMax> bytes{};
  std::uint8_t length = 0;
};

PrivateData encode(const Hello& hello, std::span<const std::byte> own);

/// A hello and where the caller's data are. Nothing if it is not one of this version.
struct ReceivedHello {
  Hello hello;
  std::span<const std::byte> own;
};
std::optional<ReceivedHello> decode_hello(std::span<const std::byte> data);

}  // namespace perdure::fabric::verbs
