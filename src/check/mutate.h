// Mutants: every method that does a little less than a given one. A right method of which a
// mutant is right too has a superfluous step.
#pragma once

#include "core/method.h"

#include <string>
#include <vector>

namespace perdure::check {

struct Mutant {
  std::string what;  // for example "drop FLUSH a", "wait for WRITE a instead of FLUSH a"
  Method method;
};

/// All of them, each different from the method and from one another:
///   - drop a step of the requester (a post goes together with the waits for it) or of the
///   responder
///   - swap two neighbours, on either side
///   - wait for the completion of an earlier post instead
///   - flush less: an address or a place to READ less in a message, a plain WRITE for an ATOMIC
///   WRITE or a PWRITE, a
///     FLUSH for an SFLUSH, no fence, no checksum, no replay
std::vector<Mutant> mutants(const Method& method);

}  // namespace perdure::check
