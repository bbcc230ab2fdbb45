// probe: what this machine is as a responder, axis by axis, each with the reasons for it.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include <string>
#include <string_view>
#include <vector>

#include "pmem/cache_flush.h"
#include "pmem/medium.h"

namespace perdure::pmem {

/// One axis: "persistence domain" is "page", because...
struct ProbedAxis {
  std::string axis;
  std::string value;
  std::vector<std::string> evidence;  // sentences, for a person
};

/// What is known of the place and its machine. What is not known is the pessimistic value.
struct ProbeReport {
  PersistenceDomain domain = PersistenceDomain::None;
  Ddio ddio = Ddio::On;
  Medium medium;  // the facts of which the domain follows
  /// In this order: persistence domain, file system, granularity, flush instruction, ddio, numa,
  /// free space.
  std::vector<ProbedAxis> axes;

  /// The axis of that name, or null.
  const ProbedAxis* find(std::string_view axis) const;
};

/// Two of the axes, of what was found out. Pure.
ProbedAxis domain_axis(const Medium& medium);
ProbedAxis flush_axis(FlushInstruction best);

/// Examines the place of a pool: a directory, a file in it, or a DAX device. Writes nothing; in a
/// directory it opens an unnamed file for a moment.
///
/// Errors  NotFound, PermissionDenied, InvalidArgument (neither file, directory nor DAX device),
///         SystemError.
Result<ProbeReport> probe(const std::string& path);

}  // namespace perdure::pmem
