// What things cost has one home, configs/hardware. The planner's sums are compared here with the
// prices of the simulator, which runs the steps; and what is assumed by default with what the seed
// paper measured.
#include <gtest/gtest.h>

#include "core/built_in_hardware.h"
#include "core/text_file.h"
#include "plan/render.h"
#include "sim/method_price.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace perdure {
namespace {

constexpr std::uint64_t kWordBytes = 8;
const std::uint64_t kSizes[] = {8, 256, 4096, 1 << 20};

/// A file, and how far sums may be from prices: below and above.
struct CostsCase {
  const char* file;
  std::vector<Transport> transports;
  double least;
  double most;
};

const CostsCase kCases[] = {
    // A READ answered from the cache, and what a message and a WRITE do at the same time, is all.
    {"edr-one-switch", {Transport::InfiniBand, Transport::Iwarp}, 0.88, 1.12},
    {"edr-back-to-back", {Transport::InfiniBand, Transport::Iwarp}, 0.88, 1.12},
    {"hdr100-one-switch", {Transport::InfiniBand, Transport::Iwarp}, 0.88, 1.12},
    // Here the gap between two messages is most of what a method takes. The sum has it and the
    // bytes
    // of the first, of which the longer one counts; and it has that of a FLUSH that nobody waits
    // for, which some published methods post.
    {"tcp-one-host", {Transport::Tcp}, 0.88, 1.7},
    {"shm-one-host", {Transport::Shm}, 0.88, 1.12},
};

Hardware hardware_of(const std::string& file) {
  auto read = read_hardware(std::string(PERDURE_HARDWARE) + "/" + file + ".toml");
  EXPECT_TRUE(read.ok()) << read.error().message;
  return std::move(read).value();
}

double price_ns(const Method& method, const ServerProfile& profile, const Hardware& hardware,
                std::uint64_t bytes) {
  const sim::PriceOptions sizes{static_cast<double>(bytes), kWordBytes};
  return sim::price(method, profile, hardware, sizes).latency_ns;
}

double sum_ns(const Method& method, const ServerProfile& profile, const plan::CostModel& costs,
              std::uint64_t bytes) {
  return plan::cost_ns(method, profile.domain, bytes, kWordBytes, costs);
}

/// Calls `each(profile, method)` with every method of the tables, as published and as planned, on
/// its responder, with and without what RNICs do not have yet.
template <typename Each>
void for_every_method(Transport transport, Each each) {
  for (const plan::Source source : {plan::Source::Paper, plan::Source::Best}) {
    for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
      for (const plan::Scenario& scenario : plan::all_scenarios(source, {transport}, order)) {
        each(scenario.profile, scenario.method);
        ServerProfile able = scenario.profile;
        able.capabilities = {true, true, true, true};
        if (transport == Transport::Shm) able.capabilities.ordered_persist = false;
        plan::Update update;
        update.shape = scenario.shape;
        update.polled = update.immediate_names_place = true;
        const auto found = plan::candidates(able, update);
        if (!found.ok()) continue;
        for (const plan::Candidate& candidate : *found) each(able, candidate.method);
      }
    }
  }
}

// Negative control: by the costs of other hardware sums are far from the prices.
TEST(Costs, ThePlannersSumsAreNearTheSimulatorsPrices) {
  const plan::CostModel foreign = plan::default_costs(Transport::Shm);
  for (const CostsCase& each : kCases) {
    const Hardware hardware = hardware_of(each.file);
    for (const Transport transport : each.transports) {
      const plan::CostModel costs = plan::usual_costs(hardware, transport);
      std::set<std::string> methods;
      double furthest = 1;
      for_every_method(transport, [&](const ServerProfile& profile, const Method& method) {
        methods.insert(method.name);
        for (const std::uint64_t bytes : kSizes) {
          const double price = price_ns(method, profile, hardware, bytes);
          const double ratio = sum_ns(method, profile, costs, bytes) / price;
          EXPECT_GE(ratio, each.least) << each.file << " " << method.name << " " << bytes;
          EXPECT_LE(ratio, each.most)
              << each.file << " " << method.name << " " << bytes << " on " << describe(profile);
          furthest = std::min(furthest, sum_ns(method, profile, foreign, bytes) / price);
        }
      });
      EXPECT_GT(methods.size(), 20u) << to_string(transport);
      if (transport != Transport::Shm) {
        EXPECT_LT(furthest, each.least) << each.file;
      }
    }
  }
}

// What matters of a cost: by the simulator's clock the choice is as good as any, or nearly.
TEST(Costs, WhatTheSumsChooseIsNearlyTheCheapestOnTheClock) {
  constexpr double kNearly = 1.05;
  for (const char* file : {"edr-one-switch", "edr-back-to-back", "hdr100-one-switch"}) {
    const Hardware hardware = hardware_of(file);
    const plan::CostModel costs = plan::usual_costs(hardware, Transport::Roce);
    for (const auto domain : {PersistenceDomain::Page, PersistenceDomain::Dmp,
                              PersistenceDomain::Mhp, PersistenceDomain::Wsp}) {
      for (const Ddio ddio : {Ddio::On, Ddio::Off}) {
        for (const UpdateShape& shape : {singleton(), compound()}) {
          for (const std::uint64_t bytes : kSizes) {
            ServerProfile profile;
            profile.domain = domain;
            profile.ddio = ddio;
            profile.transport = Transport::Roce;
            plan::Update update;
            update.shape = shape;
            update.bytes = bytes;
            const auto found = plan::candidates(profile, update, costs);
            ASSERT_TRUE(found.ok()) << found.error().message;
            double least = 1e18;
            for (const plan::Candidate& each : *found) {
              least = std::min(least, price_ns(each.method, profile, hardware, bytes));
            }
            EXPECT_LE(price_ns(found->front().method, profile, hardware, bytes), kNearly * least)
                << file << " " << found->front().method.name << " " << bytes << " "
                << describe(profile);
          }
        }
      }
    }
  }
}

/// The taxonomy paper, sections 4.3 and 4.4, on its machines.
TEST(Costs, TheDefaultReproducesWhatTheTaxonomyMeasured) {
  const Hardware& hardware = default_hardware(Transport::InfiniBand);
  const auto scenario_ns = [&](PersistenceDomain domain, Ddio ddio, Primary primary,
                               const UpdateShape& shape) {
    for (const auto& each :
         plan::all_scenarios(plan::Source::Paper, {Transport::InfiniBand}, WriteOrder::Ordered)) {
      ServerProfile profile = each.profile;
      profile.capabilities.native_flush = false;  // "we emulated a RDMA FLUSH with a RDMA READ"
      if (profile.domain == domain && profile.ddio == ddio && each.primary == primary &&
          profile.receive_buffers == ReceiveBuffers::Dram && each.shape == shape) {
        return price_ns(each.method, profile, hardware, 64);
      }
    }
    ADD_FAILURE() << "not in the tables";
    return 0.0;
  };
  using enum PersistenceDomain;
  const double wsp_write = scenario_ns(Wsp, Ddio::On, Primary::Write, singleton());
  const double mhp_write = scenario_ns(Mhp, Ddio::On, Primary::Write, singleton());
  const double wsp_send = scenario_ns(Wsp, Ddio::On, Primary::Send, singleton());
  EXPECT_NEAR(wsp_write, 1600, 30) << "\"drops its latency to 1.6 microseconds\"";
  EXPECT_NEAR(1 - wsp_write / mhp_write, 0.25, 0.03) << "\"a 25% reduction\"";
  EXPECT_NEAR(wsp_send / wsp_write, 1.5, 0.06) << "\"by up to 50%\"";
  EXPECT_LT(mhp_write, 0.95 * wsp_send) << "one-sided beats messages, with a FLUSH too";

  const double both_written = scenario_ns(Wsp, Ddio::On, Primary::Write, compound());
  const double both_sent = scenario_ns(Wsp, Ddio::On, Primary::Send, compound());
  EXPECT_NEAR(1 - both_written / both_sent, 0.3, 0.03) << "\"more pronounced to 30% for WSP\"";
  EXPECT_LT(scenario_ns(Mhp, Ddio::On, Primary::Write, compound()),
            scenario_ns(Mhp, Ddio::On, Primary::Send, compound()));
  EXPECT_GT(scenario_ns(Dmp, Ddio::On, Primary::Write, compound()),
            2 * scenario_ns(Dmp, Ddio::On, Primary::Send, compound()))
      << "\"more than 2X latency in DMP when DDIO is turned on\"";
}

TEST(Costs, WhatIsBuiltInIsTheFiles) {
  const auto text_of = [](const std::string& file) {
    return read_text(std::string(PERDURE_HARDWARE) + "/" + file + ".toml");
  };
  EXPECT_EQ(kRdmaHardware, text_of("edr-one-switch"));
  EXPECT_EQ(kTcpHardware, text_of("tcp-one-host"));
  EXPECT_EQ(kShmHardware, text_of("shm-one-host"));
  EXPECT_EQ(default_hardware(Transport::Iwarp).network.name, "edr-one-switch");
  EXPECT_EQ(default_hardware(Transport::Tcp).network.name, "tcp-one-host");
  EXPECT_EQ(default_hardware(Transport::Shm).network.name, "shm-one-host");
}

}  // namespace
}  // namespace perdure
