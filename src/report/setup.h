// Setup: under which circumstances numbers were found. Every report and table of results has one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perdure::report {

struct Setup {
  std::vector<std::pair<std::string, std::string>> rows;  // name, value; in order

  void add(std::string name, std::string value) {
    rows.emplace_back(std::move(name), std::move(value));
  }
  /// "name: value" lines.
  std::string text() const;
};

/// What is the same for every run: program, commit, compiler, processor, kernel, time of day.
Setup machine_setup();

/// Names one configuration, so that rows of different files can be matched: 16 hexadecimal digits
/// of its description. Equal descriptions have equal hashes on every machine.
std::string configuration_hash(std::string_view description);

/// The commit that was built, with "-dirty" if files differed; "unknown" outside of git. Made at
/// build time (src/report/CMakeLists.txt), like the next two.
std::string_view build_commit();
/// The build type, for example "Release".
std::string_view build_type();
std::string_view build_version();

}  // namespace perdure::report
