// What one live device's endpoints, listeners and RNIC thread share.
#pragma once

#include "core/mutex.h"
#include "core/random.h"
#include "fabric/emu/live_connection.h"
#include "fabric/emu/live_device.h"
#include "fabric/emu/memory_table.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace perdure::fabric::emu {

/// A peer that asks for a connection: both its streams are here.
struct LiveKnock {
  OwnedFd streams[2];
  Capabilities capabilities;
  std::vector<std::byte> private_data;
};

struct LiveListenerState {
  OwnedFd fd;
  std::string address;
  EndpointOptions options;
  std::deque<LiveKnock> knocks;
  bool closed = false;

  /// Nobody connects any more; the RNIC thread, which may be waiting for the socket, closes it.
  void close() {
    closed = true;
    knocks.clear();
    (void)::shutdown(fd.value(), SHUT_RDWR);
  }
};

/// A stream whose Hello has not been read, or whose sibling has not come yet.
struct Handshake {
  OwnedFd fd;
  std::shared_ptr<LiveListenerState> listener;
  std::unique_ptr<FrameReader> reader;
  Nanoseconds since{0};
  bool hello_received = false;
  std::uint64_t number = 0;  // the connection's
  std::uint64_t stream = 0;
  Capabilities capabilities;
  std::vector<std::byte> private_data;
};

struct LiveState {
  LiveState(const LiveOptions& wanted, std::uint64_t seed)
      : options(wanted), random(seed), memory(random.next(), wanted.profile.dma_dirties) {
    memory.use_windows(wanted.switches);
  }

  const LiveOptions options;
  const Clock& clock = Clock::monotonic();
  Mutex mutex;  // guards all below, and the connections
  std::condition_variable knocked;
  Random random;
  MemoryTable memory;
  RnicCounters counters;
  std::vector<pmem::CrashableRegion*> regions;
  std::vector<std::shared_ptr<LiveConnection>> connections;
  std::vector<std::shared_ptr<LiveListenerState>> listeners;
  std::vector<Handshake> handshakes;
  Nanoseconds planned_wake = Nanoseconds::max();  // of the RNIC thread
  bool thread_waits = false;
  bool powered = true;
  bool stopping = false;
  OwnedFd wake;  // eventfd of the RNIC thread

  /// Wakes the RNIC thread.
  void kick() {
    thread_waits = false;
    const std::uint64_t one = 1;
    (void)!::write(wake.value(), &one, sizeof one);
  }
  /// Something is due then, or (now) new descriptors are to be waited for.
  void plan(std::optional<Nanoseconds> due) {
    if (due && thread_waits && *due < planned_wake) kick();
  }
  /// When what arrives now leaves its stage: mostly at once, sometimes later.
  Nanoseconds hold_until() {
    const Nanoseconds now = clock.now();
    if (options.hold_one_in == 0 || !random.chance(1, options.hold_one_in)) return now;
    const auto most = static_cast<std::uint64_t>(options.hold_max.count());
    return now + Nanoseconds{static_cast<std::int64_t>(random.below(most + 1))};
  }
};

}  // namespace perdure::fabric::emu
