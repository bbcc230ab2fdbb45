// check_set: whether the methods of a set leave each other's updates unharmed on one connection, in
// every state that the machine of model.h can reach.
#pragma once

#include "check/report.h"

#include "core/method_set.h"
#include "core/sequence_diagram.h"

#include <cstdint>
#include <string>
#include <vector>

namespace perdure::check {

struct SetOptions {
  Level level = Level::Durable;           // Committed is Durable, per replica
  std::size_t updates_max = 3;            // in a sequence; at least 2
  std::size_t units_per_item = 1;         // of places that no other update writes
  std::uint64_t states_max = 50'000'000;  // of one sequence
};

/// What was asked about: some updates, one after the other, each by a method of the set.
struct SetSequence {
  std::vector<std::size_t> methods;  // indices of members
  std::vector<MixedUpdate> updates;
  /// "write-flush (a), then send-copy-ack (b, where a is, when a has resolved)"
  std::string text;
};

/// Every sequence that a set allows: each of its methods after each, up to `updates_max` of them,
/// one word for all updates of several epochs, first epochs in places of their own or, as far as
/// Reuse allows, the last one where the first one is.
std::vector<SetSequence> sequences(const std::vector<SetMember>& members, std::size_t updates_max);

struct SetReport {
  Verdict verdict = Verdict::Holds;  // of `failed` if that is given
  std::size_t sequences = 0;
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  SetOptions options;
  std::optional<SetSequence> failed;  // the first one that does not hold
  Report report;                      // on it

  bool holds() const { return verdict == Verdict::Holds; }
};

/// Explores every reachable state of every sequence on `profile`, shortest sequences first, until
/// one does not hold. Errors, Threads: as check(). Cost: milliseconds for a set that is planned.
SetReport check_set(const std::vector<SetMember>& members, const ServerProfile& profile,
                    const SetOptions& options = {});

/// The same for one sequence.
Report check_sequence(const std::vector<MixedUpdate>& updates, const ServerProfile& profile,
                      const SetOptions& options);

/// What happened, in the order in which it happened, and the summary.
std::string story(const ServerProfile& profile, const SetReport& report);
std::string summary(const SetReport& report);
/// The path of a violated report; without events if the set holds.
SequenceDiagram diagram(const ServerProfile& profile, const SetReport& report);
std::string to_json(const std::vector<SetMember>& members, const ServerProfile& profile,
                    const SetReport& report);

}  // namespace perdure::check
