// The conformance suite of RPC designs: some thousand calls of a design over a link, every reply
// compared with that of a local execution, and the verbs of both ends counted against what the
// design declares.
#pragma once

#include "core/random.h"
#include "link.h"
#include "rpc/models/design.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace perdure::rpc::models {

/// Eight registers. The first byte of a request says what is done, to which register (its low three
/// bits): reading, writing the rest of the request, or echoing the request. Replies to reading and
/// writing begin with how many calls were executed so far, so that no two are alike.
class Registers final : public Handler {
 public:
  enum Operation : std::uint8_t { Read = 0, Write = 8, Echo = 16 };

  std::size_t handle(std::span<const std::byte> request, std::span<std::byte> reply) override;

  const std::vector<std::byte>& value(std::size_t index) const { return values_[index]; }

 private:
  std::uint64_t executed_ = 0;
  std::array<std::vector<std::byte>, 8> values_;
};

struct SuiteOptions {
  std::uint64_t calls = 1000;  // rounded up to the design's period
  std::size_t window = 1;
  std::size_t payload_bytes_max = 512;
  std::uint64_t seed = 1;
  Confounders confounders = {};
};

/// How googletest names a design.
inline void PrintTo(const Design* design, std::ostream* out) { *out << design->name; }

/// And its tests: without what no name of a test may have.
inline std::string name_of(const ::testing::TestParamInfo<const Design*>& each) {
  std::string name(each.param->name);
  std::erase(name, '-');
  return name;
}

/// Runs the suite. Empty: the design passed; else what it did wrong first.
std::string run_suite(const Design& design, Link& link, const SuiteOptions& options);

}  // namespace perdure::rpc::models
