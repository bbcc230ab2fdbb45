// What the demonstration found, as lines for a terminal and as a page.
#pragma once

#include "demo/job.h"
#include "demo/power.h"
#include "report/page.h"

#include <optional>
#include <string>
#include <vector>

namespace perdure::demo {

struct DemoResult {
  std::string text_origin;
  std::uint64_t records = 0;
  std::uint64_t text_bytes = 0;
  std::vector<JobResult> jobs;        // one per medium
  std::vector<std::string> left_out;  // media that could not be shown, with the reason
  std::optional<PowerResult> power;
  double seconds = 0;

  bool good() const;
  /// What is so if it is good, as the beginning of a sentence.
  std::string verdict() const;
};

/// The paragraph of one job, and of the power cuts.
std::string job_text(const JobResult& job);
std::string power_text(const PowerResult& power);

report::ReportPage demo_page(const DemoResult& result);

}  // namespace perdure::demo
