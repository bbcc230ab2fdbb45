// The UNIX socket of a connection: how its two sides meet, and the byte that wakes a sleeper.
//
// Connecting: the asking side sends one packet, Hello with the shared memory attached; the other
// answers with one byte when it has accepted, or closes. From then on a byte means "look at the
// shared memory", and the end of the socket means that the peer has gone.
#pragma once

#include "core/clock.h"
#include "fabric/fabric.h"
#include "fabric/shm/shared_rings.h"

#include <string>
#include <vector>

namespace perdure::fabric::shm {

struct Hello {
  std::uint64_t magic = 0;
  std::uint32_t private_length = 0;
  std::uint32_t reserved = 0;
  std::array<std::byte, kPrivateBytesMax> private_data{};
};

/// Opens a listening socket at "@name", a path, or, where `address` is empty, a new random name;
/// `address` becomes what was opened. A socket file that nobody listens at any more is replaced.
Result<Descriptor> listen_at(std::string& address);

struct Asking {
  Descriptor socket;
  Descriptor memory;
  Hello hello;
};

/// Those that have connected and not said Hello yet. They are waited for together, so that one who
/// says nothing keeps nobody waiting: each for kHelloWithin, and kSilentMax of them at a time;
/// beyond that the one that has been silent the longest is dropped for the next.
/// Threads: one caller at a time.
class Askers {
 public:
  static constexpr Nanoseconds kHelloWithin = std::chrono::seconds{2};
  static constexpr std::size_t kSilentMax = 64;

  /// The next one that has said Hello. Who says nonsense is dropped. Errors: TimedOut; SystemError
  /// (accepting failed, for example for want of descriptors: pause, then ask again).
  Result<Asking> next(const Descriptor& listener, Deadline deadline);

 private:
  struct Silent {
    Descriptor socket;
    Deadline until;
  };
  Result<void> take_those_that_wait(const Descriptor& listener);

  std::vector<Silent> silent_;  // in the order in which they came
};

/// Connects, hands the memory over and waits to be accepted.
Result<Descriptor> ask(const std::string& address, std::span<const std::byte> private_data,
                       const Descriptor& memory, Deadline deadline);

/// Tells the asking side that it is accepted. False: it has gone.
bool accept_asking(const Descriptor& socket);

/// Wakes the peer if it sleeps in poll(2). Never blocks.
void ring(const Descriptor& socket);

/// Takes all pending wake-ups. False: the peer has gone.
bool drain_rings(const Descriptor& socket);

}  // namespace perdure::fabric::shm
