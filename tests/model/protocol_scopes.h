// What is explored: for each corner of the protocol a few places, records and faults, so that it is
// explored whole. And the mutants of the protocol, each with a scope in which it is found.
#pragma once

#include "model/protocol_model.h"

#include <string>
#include <vector>

namespace perdure::model {

/// Every scope. `large`: with more of everything; minutes instead of seconds.
std::vector<Bounds> scopes(bool large);

/// The scope of that name. Requires that there is one.
/// Of a replacement that was given up with a loss: what is not promised.
Bounds replacement_and_loss();
Bounds scope(const std::string& name, bool large = false);

/// A mutant, where it is found, and the law that its shortest story breaks.
struct Known {
  Mutant mutant;
  const char* scope;
  Law breaks;
  bool large = false;  // found in the large scope only
};
std::vector<Known> known_mutants();

/// What a scope bounds, in a line.
std::string describe(const Bounds& bounds);

}  // namespace perdure::model
