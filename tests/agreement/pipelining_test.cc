// Several updates of one method in flight on one connection: may update n+1 pass update n?
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "check/check.h"
#include "check/render.h"
#include "plan/catalog.h"
#include "plan/paper.h"
#include "tests/agreement/golden.h"

namespace perdure {
namespace {

check::Report in_flight(const plan::Known& known, const ServerProfile& profile, std::size_t updates,
                        check::Between between) {
  check::CheckOptions options;
  options.updates_in_flight = updates;
  options.between = between;
  return check::check(known.method, profile, options);
}

/// The papers' responders, with order among WRITEs and without.
std::vector<ServerProfile> profiles_of_both_orders() {
  auto profiles = plan::paper_profiles(Transport::InfiniBand);
  for (ServerProfile profile : plan::paper_profiles(Transport::InfiniBand)) {
    profile.write_order = WriteOrder::Unknown;
    profiles.push_back(profile);
  }
  return profiles;
}

TEST(Pipelining, BeingToldOfAnUpdatePromisesAllBeforeIt) {
  for (const UpdateShape& shape : {singleton(), compound()}) {
    for (const ServerProfile& profile : profiles_of_both_orders()) {
      for (const plan::Known& known : plan::known_methods(profile, {shape, Level::Durable, true})) {
        for (const std::size_t updates : {2u, 3u}) {
          const auto report =
              in_flight(known, profile, updates, check::Between::AcknowledgedInOrder);
          EXPECT_TRUE(report.holds()) << check::story(known.method, profile, report);
        }
      }
    }
  }
}

/// Which methods let update n+1 survive without update n, kept as a table. Where they do, recovery
/// must stop at the first hole; a reader that trusts a later record by itself would be wrong.
TEST(Pipelining, WhichMethodsKeepSuccessiveUpdatesInOrder) {
  std::string text;
  for (const UpdateShape& shape : {singleton(), compound()}) {
    for (const ServerProfile& profile : profiles_of_both_orders()) {
      for (const plan::Known& known : plan::known_methods(profile, {shape, Level::Durable, true})) {
        const auto report = in_flight(known, profile, 2, check::Between::Ordered);
        text += fmt::format(
            "{}: {} {}: {}, {} states\n", describe(profile), to_string(shape), known.method.name,
            report.holds() ? "in order" : std::string(to_string(*report.property)), report.states);
      }
    }
  }
  expect_golden("pipelined_order.txt", text);
}

TEST(Pipelining, FourCompoundUpdatesInFlightAreStillExhaustive) {
  for (const ServerProfile& profile : plan::paper_profiles(Transport::InfiniBand)) {
    for (const plan::Known& known :
         plan::known_methods(profile, {compound(), Level::Durable, true})) {
      const auto report = in_flight(known, profile, 4, check::Between::AcknowledgedInOrder);
      EXPECT_TRUE(report.holds()) << check::story(known.method, profile, report);
    }
  }
}

}  // namespace
}  // namespace perdure
