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

}  // namespace perdure
