// Report: what a check found, what it explored, under which bounds, and what it left out.
#pragma once

#include "check/path.h"
#include "check/properties.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perdure::check {

enum class Verdict {
  Holds,         // every property in every reachable state, within the bounds
  Violated,      // `property` is broken by `path`
  LimitReached,  // nothing broken in what was explored, but not everything was: no proof
  NotModelled,   // the machine can not run it; `reason` says why
};

std::string_view to_string(Verdict verdict);

/// Under which bounds the exploration is exhaustive.
struct Bounds {
  std::size_t units_per_item = 2;
  InFlight in_flight;
  std::uint64_t states_max = 0;
};

struct Report {
  Verdict verdict = Verdict::NotModelled;
  std::optional<Property> property;  // Violated
  std::string reason;                // NotModelled
  std::vector<PathStep> path;        // Violated: the shortest way to the broken state
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  Level level = Level::Durable;
  Bounds bounds;

  bool holds() const { return verdict == Verdict::Holds; }
};

/// One paragraph: verdict, counts, bounds, and what was left out.
std::string summary(const Report& report);

}  // namespace perdure::check
