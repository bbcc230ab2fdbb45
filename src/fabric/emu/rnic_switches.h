// What an emulated RNIC does that real ones do and the verbs do not forbid, beside what the profile
// of its machine says (WriteOrder, DmaDirties). Off unless a test or a trial turns it on.
#pragma once

#include <perdure/profile.h>

#include "core/clock.h"
#include "fabric/window_limit.h"

#include <cstdint>

namespace perdure::fabric::emu {

struct RnicSwitches {
  /// A SEND of at most so many bytes stays in its completion queue entry, in DRAM, until a program
  /// polls it; only then is it in the receive buffer. mlx5: 32, with MLX5_CQE_SIZE=128 64.
  std::uint64_t cqe_payload_bytes = 0;
  /// The receive completion of a WRITE_WITH_IMM says 0 bytes.
  bool immediate_without_length = false;
  /// It says so many bytes fewer than were written, but at least one.
  std::uint64_t immediate_bytes_missing = 0;
  /// What a WRITE brings it places in pieces that may end within a word: the verbs promise no
  /// atomicity of a WRITE (InfiniBand has ATOMIC WRITE since 2021 for that).
  bool tears_words = false;
  /// What it buffers of a connection it still places when that has ended and the key was taken
  /// away, though it says that it has let go. No device may; it is what fencing counts on. World
  /// only.
  bool places_late = false;
  /// The first access of a peer to a page of a region takes so much longer: it is paged on demand.
  /// World only.
  Nanoseconds first_touch{0};
  /// Windows over registered memory are bound to one connection (memory windows of type 2), as
  /// hardware has them. Off: they are keys of their own.
  bool binds_windows = false;
  /// It binds no larger ones: libmlx5 none of more than 2 GiB.
  std::uint64_t window_bytes_max = WindowLimit::kNone;
  /// It says so before one is bound. Off: by refusing it.
  bool says_window_limit = true;
};

/// How the RNIC of a machine behaves on one connection, decided once.
struct RnicBehaviour {
  RnicBehaviour(const ServerProfile& profile, Transport transport, const RnicSwitches& wanted)
      : ddio(profile.ddio == Ddio::Off && !placed_by_cpu(transport) ? Ddio::Off : Ddio::On),
        keeps_write_order(placed_by_cpu(transport) || profile.write_order == WriteOrder::Ordered),
        dirties_pages(placed_by_cpu(transport) || profile.dma_dirties == DmaDirties::Yes),
        switches(wanted) {}

  Ddio ddio;
  bool keeps_write_order;
  bool dirties_pages;
  /// Packets of an operation may come after those of later ones. Until then it is not acknowledged.
  bool packets_overtake = false;
  /// From a PWRITE's being visible to its persist ACK.
  Nanoseconds persist_time{0};
  RnicSwitches switches;
};

}  // namespace perdure::fabric::emu
