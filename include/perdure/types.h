// The quantities that travel through every interface of Perdure, each with a type of its own.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace perdure {

/// Position of a record in a log: bytes since the log was created. Grows, never wraps, never
/// reused.
struct Lsn {
  std::uint64_t value = 0;
  auto operator<=>(const Lsn&) const = default;
};

/// Number of a writer of a log. A higher epoch fences every lower one; 0 is "no writer yet".
struct Epoch {
  std::uint32_t value = 0;
  auto operator<=>(const Epoch&) const = default;
};

/// How far a write has come. Each level includes the ones before it.
enum class Level {
  Received,   // the responder's NIC or transport has it
  Visible,    // a load on the responder returns it
  Durable,    // inside that responder's persistence domain: survives its power failure
  Committed,  // durable on the chosen number of replicas
};

std::string_view to_string(Level level);

/// How a log makes its tail known. Part of the format.
enum class LogShape : std::uint32_t {
  Singleton = 1,  // checksummed records; the tail is found by scanning them
  Compound = 2,   // a tail word follows every record (or batch) in durability
};

std::string_view to_string(LogShape shape);

/// Why a walk over records ended where it did.
enum class LogEnd {
  Clean,        // nothing was ever written there, or only what an earlier lap of the ring left
  Torn,         // a record begins there and its checksum fails
  ChainBroken,  // a whole record that does not follow the one before it: of another history
  RingFull,     // the records fill the ring
};

std::string_view to_string(LogEnd end);

/// The operation by which the data of an update travels: the column of the taxonomy's tables.
enum class Primary { Write, WriteImm, Send };

std::string_view to_string(Primary primary);

}  // namespace perdure
