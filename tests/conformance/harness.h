// What the conformance suite runs over: each provider, given as a Harness. To put a provider under
// the suite, add it to harnesses() in harness.cc.
#pragma once

#include "fabric/fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace perdure::conformance {

/// Two devices of one provider that can reach each other.
struct Devices {
  std::unique_ptr<fabric::Device> server;
  std::unique_ptr<fabric::Device> client;
};

struct Harness {
  std::string name;
  std::function<Result<Devices>()> open;
  /// Opens one device in whatever process calls it, such that devices of different processes reach
  /// each other by address. Empty: the provider lives in one process.
  std::function<Result<std::unique_ptr<fabric::Device>>()> open_in_process;
  /// Keys of one device reach nothing through connections accepted into another device.
  bool isolates_devices = true;
  /// Lets taking rights away fail at the server's device, or work again. Empty: it can not be done.
  std::function<void(Devices&, bool)> refuse_revocations;
  /// Nothing moves at the responder unless it polls; false where something else works for it.
  bool responder_polls = true;
  /// WRITEs become visible in the order of posting.
  bool keeps_write_order = true;
  /// Messages of at most so many bytes are not in their receive buffer before they are polled.
  std::uint64_t cqe_payload_bytes = 0;
  /// The completion of a WRITE_WITH_IMM says how many bytes were written; false: it says 0.
  bool immediate_says_length = true;
  /// Where it says it: so many bytes fewer, but at least one.
  std::uint64_t immediate_bytes_missing = 0;
  /// Starts a device of this provider anew, as a fault of its firmware does. Empty: it can not be.
  std::function<void(fabric::Device&)> reset;

  /// What the completion of a WRITE_WITH_IMM of so many bytes says.
  std::uint64_t immediate_length(std::uint64_t written) const {
    if (!immediate_says_length || written == 0) return 0;
    return written - std::min(written - 1, immediate_bytes_missing);
  }
};

const std::vector<Harness>& harnesses();
const Harness* find_harness(const std::string& name);

inline std::ostream& operator<<(std::ostream& out, const Harness& harness) {
  return out << harness.name;
}

/// One test, over every harness.
class Conformance : public ::testing::TestWithParam<Harness> {};

std::string harness_name(const ::testing::TestParamInfo<Harness>& info);

}  // namespace perdure::conformance

#define PERDURE_CONFORMANCE_SUITE(suite)                                             \
  INSTANTIATE_TEST_SUITE_P(Providers, suite,                                         \
                           ::testing::ValuesIn(::perdure::conformance::harnesses()), \
                           ::perdure::conformance::harness_name)
