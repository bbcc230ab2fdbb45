// What Perdure costs beside a bare libfabric or verbs program that does the same, in one run and in
// the same layout: a requester process and a responder process on this machine, both polling.
//
// Bare: bench/bare.h. Perdure: the public Log API and a perdured, its pool in /dev/shm with the
// domain declared as dmp, so that both sides write cache lines back and fence before they answer.
#pragma once

#include <perdure/result.h>

#include "report/setup.h"
#include "report/table.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::report {
class ReportPage;
}  // namespace perdure::report

namespace perdure::bench {

struct LimitsOptions {
  std::vector<std::string> fabrics{"tcp", "shm"};    // of tcp, shm, verbs
  std::size_t rounds = 7;                            // of each comparison; sides take turns
  std::uint64_t samples = 5'000;                     // appends or exchanges per round
  std::uint64_t log_bytes = std::uint64_t{1} << 30;  // of the log whose client is weighed
  std::uint64_t idle_seconds = 10;
  std::string only;  // part of a question's name; empty: all
};

/// One side's value in each round.
struct Series {
  std::vector<double> values;
  double median() const;
  /// Median absolute deviation.
  double deviation() const;
  double low() const;
  double high() const;
};

/// The answer to one question.
struct Finding {
  std::string question;                              // "64 B durable, one in flight"
  std::string fabric;                                // empty: none is involved
  report::Origin origin = report::Origin::Measured;  // Emulated: over a software RNIC
  std::string unit;                                  // of both sides
  Series perdure;
  Series bare;         // empty: there is nothing to compare with
  Series perdure_p99;  // of latencies; in the same unit
  Series bare_p99;
  Series ratio;        // round by round; what it divides is said in `target`
  std::string target;  // "ratio at most 1.10"
  std::optional<bool> met;
  std::string note;
  std::string failure;  // why there is no answer
};

/// Called before each question and before each of its rounds, which `what` names: `done` of the
/// rounds of `all` questions are behind. One without rounds counts as much as the others.
using LimitsProgress =
    std::function<void(const std::string& what, std::uint64_t done, std::uint64_t all)>;

/// Answers every question. What can not be answered here says why. Errors: InvalidArgument (no
/// question has `only` in its name; at once), SystemError when interrupted.
Result<std::vector<Finding>> find_limits(const LimitsOptions& options,
                                         const LimitsProgress& progress);

/// The names of all questions about the fabrics, whatever `only` says. Nothing is started.
std::vector<std::string> limits_questions(const LimitsOptions& options);

report::Table limits_table(const std::vector<Finding>& findings);
std::string limits_text(const std::vector<Finding>& findings);
std::string limits_json(const std::vector<Finding>& findings, const report::Setup& setup);

void add_limits(report::ReportPage& page, const std::vector<Finding>& findings);

}  // namespace perdure::bench
