// How long things take in the emulated world: made of a description of hardware, as the simulator's
// prices are (sim/method_price.h), so that an idle connection takes here what it takes there. Every
// latency made of them is to be labelled *emulated*: what queues is not modelled with care.
#pragma once

#include "core/hardware.h"
#include "fabric/emu/operation.h"

#include <cstdint>

namespace perdure::fabric::emu {

/// What an endless loop of polls that find nothing costs, each: the first, and at most.
inline constexpr Nanoseconds kIdlePollTime{100};
inline constexpr Nanoseconds kIdlePollTimeMax{1'000'000};

class Times {
 public:
  explicit Times(const Hardware& hardware);

  /// From a program's post to the request in its RNIC, and there to its being sent.
  Nanoseconds post() const { return post_; }
  Nanoseconds fetch(std::uint64_t bytes) const;
  /// How long the sender's RNIC takes nothing else of that connection.
  Nanoseconds occupancy(std::uint64_t bytes) const;
  /// One way, from RNIC to RNIC, both of them included.
  Nanoseconds way(std::uint64_t bytes) const;
  Nanoseconds shortest_way() const { return shortest_way_; }
  /// From its arrival to a posted operation's being visible, and to a non-posted one's effect.
  Nanoseconds visible() const { return visible_; }
  Nanoseconds effect(Opcode opcode, bool to_persistence, const ServerProfile& profile) const;
  /// From a PWRITE's being visible to the persist ACK leaving the RNIC.
  Nanoseconds persist_ack(Ddio ddio) const;
  /// From a completion's arrival in the RNIC, or a message's being visible, to a program's seeing
  /// it.
  Nanoseconds completion() const { return completion_; }
  Nanoseconds notice() const { return notice_; }
  /// What a program that serves takes for a message, besides.
  Nanoseconds handle() const { return handle_; }
  /// A program flushes so many lines, or any number of pages of a file.
  Nanoseconds flush_lines(std::uint64_t lines) const;
  Nanoseconds flush_pages() const { return flush_pages_; }

 private:
  double on_wire(std::uint64_t bytes) const;

  NetworkHardware network_;
  ServerHardware server_;
  Nanoseconds post_;
  Nanoseconds shortest_way_;
  Nanoseconds visible_;
  Nanoseconds completion_;
  Nanoseconds notice_;
  Nanoseconds handle_;
  Nanoseconds flush_pages_;
};

}  // namespace perdure::fabric::emu
