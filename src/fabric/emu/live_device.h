// LiveDevice: the emulated RNIC between processes and threads of one host, in real time. The same
// platform code as World; operations travel over Unix domain sockets, a thread per device plays the
// RNIC, delays are random under a seed but what happens between threads is not repeatable.
//
// Addresses are "@name" (abstract) or "/path" (a socket file, removed with the listener).
// Latency is that of the host's sockets and threads: label it *emulated*.
#pragma once

#include "core/clock.h"
#include "fabric/emu/inbound_queue.h"
#include "fabric/emu/rnic_switches.h"
#include "fabric/fabric.h"
#include "pmem/crashable_region.h"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace perdure::fabric::emu {

struct LiveState;

struct LiveOptions {
  /// This machine, as a responder. Transport and capabilities of a connection are its listener's.
  ServerProfile profile;
  RnicSwitches switches{};
  std::uint64_t seed = 0;  // of keys and delays; 0: from the operating system
  /// One operation in so many stays in the RNIC for a while, at most hold_max; 0: none does.
  std::uint64_t hold_one_in = 4;
  Nanoseconds hold_max = std::chrono::microseconds{20};
};

/// Threads: any.
class LiveDevice final : public Device {
 public:
  /// Errors: SystemError; Unsupported: queue pairs of another type than rc.
  static Result<std::unique_ptr<LiveDevice>> open(const LiveOptions& options);
  ~LiveDevice() override;
  LiveDevice(const LiveDevice&) = delete;
  LiveDevice& operator=(const LiveDevice&) = delete;

  /// Memory in this region loses power with this machine. It must outlive the device.
  void attach(pmem::CrashableRegion& region);

  /// Cuts connections, RNIC and regions off as design section 4 says; registrations end, listeners
  /// close. Programs of this machine find all calls failing with Disconnected: stop them.
  void power_cut();
  /// Regions show what survived; listen and register again.
  void power_on();
  bool powered() const;
  /// See Machine::refuse_revocations.
  void refuse_revocations(bool refused);
  /// The RNIC starts anew and forgets all it had: connections, listeners, registrations, and what
  /// it had acknowledged and not placed. One may register, listen and connect again at once.
  void reset();
  RnicCounters counters() const;

  Result<std::unique_ptr<Memory>> register_memory(std::span<std::byte> range,
                                                  Access access) override;
  WindowKind window_kind(std::uint64_t bytes) const override;
  Result<std::unique_ptr<Memory>> open_window(std::shared_ptr<Memory> over, Access access) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address,
                                           const EndpointOptions& options) override;
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address,
                                            std::span<const std::byte> private_data,
                                            const EndpointOptions& options,
                                            Deadline deadline) override;
  Transport transport() const override;
  Capabilities capabilities() const override;
  std::string describe() const override;

 private:
  friend class LiveIncoming;
  LiveDevice(std::shared_ptr<LiveState> state);

  std::shared_ptr<LiveState> state_;
  std::thread rnic_;
};

}  // namespace perdure::fabric::emu
