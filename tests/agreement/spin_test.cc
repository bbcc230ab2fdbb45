// SPIN, the second witness: it must come to the verdict of our own explorer on every scenario and
// on every known unsafe wrong method. Needs the programs spin, tcc and cc.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "check/check.h"
#include "check/mutate.h"
#include "check/promela.h"
#include "plan/catalog.h"
#include "plan/known_unsafe.h"
#include "plan/method_set.h"
#include "plan/paper.h"
#include "plan/plan.h"
#include "plan/search.h"
#include "plan/steps.h"
#include "testing/soak.h"
#include "testing/temporary_directory.h"
#include "tests/agreement/wrong_sets.h"

namespace perdure {
namespace {

/// Standard output of a shell command; empty if it could not be run.
std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) output += buffer;
  pclose(pipe);
  return output;
}

class Spin : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* program : {"spin -V", "tcc -v"}) {
      if (output_of(fmt::format("{} 2>/dev/null", program)).empty()) {
        GTEST_SKIP() << program << ": not installed (Debian packages spin and tcc)";
      }
    }
    ASSERT_FALSE(workplace_.path().empty());
  }

  /// Whether SPIN finds nothing wrong. Equal models are run once. Most have some hundred states and
  /// would be compiled for longer than they run, hence tcc, and 2^16 places for states: to clear
  /// the usual 2^24 would take longer than all the rest.
  bool holds(const std::string& model, const char* compiler = "tcc", int places_log2 = 16) {
    const auto known = verdicts_.find(model);
    if (known != verdicts_.end()) return known->second;
    std::ofstream(workplace_.path() + "/model.pml") << model;
    const std::string output = output_of(
        fmt::format("cd {} && rm -f pan* *.trail && spin -P'tcc -E -xc' -a model.pml 2>&1 && "
                    "{} -w -DSAFETY -DVECTORSZ=4096 -o pan pan.c 2>&1 && ./pan -m100000 -w{} 2>&1",
                    workplace_.path(), compiler, places_log2));
    const bool ran = output.find("State-vector") != std::string::npos &&
                     output.find("max search depth too small") == std::string::npos;
    EXPECT_TRUE(ran) << output << model;
    const bool verdict = output.find("errors: 0") != std::string::npos;
    verdicts_[model] = verdict;
    return verdict;
  }

  std::size_t models() const { return verdicts_.size(); }

 private:
  test::TestDirectory workplace_;
  std::map<std::string, bool> verdicts_;
};

TEST_F(Spin, AgreesOnEveryScenario) {
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      EXPECT_TRUE(holds(check::to_promela(scenario.method, scenario.profile)))
          << describe(scenario);
    }
  }
  EXPECT_GE(models(), 20u);
}

TEST_F(Spin, AgreesThatTheKnownUnsafeMethodsAreWrong) {
  for (const plan::KnownUnsafe& wrong : plan::known_unsafe_methods()) {
    EXPECT_FALSE(holds(check::to_promela(wrong.method, wrong.profile))) << wrong.method.name;
  }
}

TEST_F(Spin, AgreesOnTwoConnections) {
  check::CheckOptions options;
  options.connections = 2;
  std::size_t right = 0;
  for (const plan::Scenario& scenario : plan::paper_methods(Transport::InfiniBand)) {
    if (scenario.shape == singleton()) continue;
    const bool ours = check::check(scenario.method, scenario.profile, options).holds();
    EXPECT_EQ(holds(check::to_promela(scenario.method, scenario.profile, options)), ours)
        << describe(scenario);
    if (ours) ++right;
  }
  // The ones that wait between the epochs, or that send both in one message.
  EXPECT_EQ(right, 18u);
}

TEST_F(Spin, AgreesOnOrderedPersist) {
  Method method;
  method.name = "pwrites";
  method.shape = compound();
  method.requester = {plan::post(Verb::WritePersist, {0}), plan::post(Verb::WritePersist, {1}),
                      plan::wait_completion(1)};
  ServerProfile profile{
      PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram, Transport::Iwarp, {}};
  profile.capabilities.ordered_persist = true;
  EXPECT_TRUE(holds(check::to_promela(method, profile)));
  for (const check::Mutant& weaker : check::mutants(method)) {
    EXPECT_FALSE(holds(check::to_promela(weaker.method, profile))) << weaker.what;
  }
  profile.domain = PersistenceDomain::Page;
  EXPECT_FALSE(holds(check::to_promela(method, profile)));
}

TEST_F(Spin, AgreesOnSendFlush) {
  std::size_t right = 0;
  std::size_t wrong = 0;
  for (const ReceiveBuffers buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
    ServerProfile able{PersistenceDomain::Dmp, Ddio::On, buffers, Transport::Iwarp, {}};
    able.capabilities.send_flush = true;
    std::vector<Method> asked;
    for (const ReceiveBuffers planned : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
      ServerProfile other = able;
      other.receive_buffers = planned;
      for (const char* name : {"send-replay-sflush", "write-send-sflush"}) {
        for (plan::Known& known : plan::known_methods(other, {singleton(), Level::Durable, true})) {
          if (known.method.name == name) asked.push_back(std::move(known.method));
        }
      }
    }
    for (std::size_t index = asked.size(); index-- > 0;) {
      for (check::Mutant& weaker : check::mutants(asked[index])) {
        asked.push_back(std::move(weaker.method));
      }
    }
    for (const Method& method : asked) {
      const check::Report report = check::check(method, able);
      if (report.verdict == check::Verdict::NotModelled) continue;
      EXPECT_EQ(holds(check::to_promela(method, able)), report.holds())
          << describe(able) << ": " << plan::one_line(method);
      ++(report.holds() ? right : wrong);
    }
  }
  EXPECT_GE(right, 4u);
  EXPECT_GE(wrong, 15u);
}

TEST_F(Spin, AgreesOnPolledMessages) {
  std::size_t wrong = 0;
  for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
    ServerProfile profile{
        PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram, Transport::Roce, {}};
    std::vector<Method> asked;
    profile.write_order = WriteOrder::Ordered;
    for (const plan::Known& known :
         plan::known_methods(profile, {singleton(), Level::Durable, true, true})) {
      if (known.method.name.find("poll") == std::string::npos) continue;
      asked.push_back(known.method);
      if (order == WriteOrder::Unknown) continue;
      for (check::Mutant& weaker : check::mutants(known.method)) {
        asked.push_back(std::move(weaker.method));
      }
    }
    profile.write_order = order;
    for (const Method& method : asked) {
      const bool ours = check::check(method, profile).holds();
      EXPECT_EQ(holds(check::to_promela(method, profile)), ours)
          << describe(profile) << ": " << plan::one_line(method);
      wrong += ours ? 0 : 1;
    }
  }
  EXPECT_GE(wrong, 10u);
}

TEST_F(Spin, AgreesOnRespondersThatPost) {
  std::size_t right = 0;
  std::size_t wrong = 0;
  for (const PersistenceDomain domain : {PersistenceDomain::Dmp, PersistenceDomain::Mhp}) {
    const ServerProfile profile{domain, Ddio::On, ReceiveBuffers::Dram, Transport::Roce, {}};
    std::vector<Method> asked;
    for (const UpdateShape& shape : {singleton(), compound()}) {
      for (const plan::Known& known :
           plan::known_methods(profile, {shape, Level::Durable, true, false, true})) {
        if (!fetches(known.method) && !writes_acks(known.method)) continue;
        asked.push_back(known.method);
        if (shape != singleton()) continue;
        for (check::Mutant& weaker : check::mutants(known.method)) {
          asked.push_back(std::move(weaker.method));
        }
      }
    }
    for (const Method& method : asked) {
      const check::Report report = check::check(method, profile);
      const bool stuck = report.property == check::Property::SometimesAcknowledged ||
                         report.property == check::Property::AlwaysCompletes;
      if (stuck) continue;  // no power failure shows it
      EXPECT_EQ(holds(check::to_promela(method, profile)), report.holds())
          << describe(profile) << ": " << plan::one_line(method);
      ++(report.holds() ? right : wrong);
    }
  }
  EXPECT_GE(right, 8u);
  EXPECT_GE(wrong, 8u);
}

/// Whatever is planned over RC, over queue pairs that lose it; alone, and what is short pipelined.
TEST_F(Spin, AgreesWhereMessagesAreLost) {
  std::size_t right = 0;
  std::size_t wrong = 0;
  for (const QpType type : {QpType::Uc, QpType::Ud}) {
    for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
      ServerProfile profile{PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram,
                            Transport::Roce,        {},       order};
      for (const UpdateShape& shape : {singleton(), compound()}) {
        profile.qp_type = QpType::Rc;
        const auto known = plan::known_methods(profile, {shape, Level::Durable, true, true, true});
        profile.qp_type = type;
        for (const plan::Known& each : known) {
          for (const std::size_t updates : {1u, 2u}) {
            if (updates == 2 && shape != singleton()) continue;
            check::CheckOptions options;
            options.updates_in_flight = updates;
            options.units_per_item = updates == 2 ? 1 : 2;
            const check::Report report = check::check(each.method, profile, options);
            if (report.verdict == check::Verdict::NotModelled) continue;
            const std::string apart = check::to_promela(each.method, profile, options);
            options.gathered = true;  // which the checker asks about as well
            const std::string together = check::to_promela(each.method, profile, options);
            const bool proved = holds(apart) && (apart == together || holds(together));
            EXPECT_EQ(proved, report.holds())
                << describe(profile) << ": " << plan::one_line(each.method);
            ++(report.holds() ? right : wrong);
          }
        }
      }
    }
  }
  EXPECT_GE(right, 12u);
  EXPECT_GE(wrong, 8u);
}

TEST_F(Spin, AgreesWhereWritesKeepNoOrder) {
  std::size_t right = 0;
  for (const plan::Scenario& scenario : plan::paper_methods(Transport::InfiniBand)) {
    if (scenario.shape == singleton() || scenario.profile.ddio == Ddio::On) continue;
    ServerProfile unordered = scenario.profile;
    unordered.write_order = WriteOrder::Unknown;
    for (const Method& method :
         {scenario.method, plan::plan(unordered, {scenario.shape, scenario.primary}).value()}) {
      const bool ours = check::check(method, unordered).holds();
      EXPECT_EQ(holds(check::to_promela(method, unordered)), ours)
          << describe(unordered) << ": " << method.name;
      right += ours ? 1 : 0;
    }
  }
  // 18 scenarios, and all that is planned; of the published, all but WRITEs on 4 responders.
  EXPECT_EQ(right, 18u + 18u - 2u * 4u);
}

TEST_F(Spin, AgreesAboutFilesUnderAnRnic) {
  for (const DmaDirties dirties : {DmaDirties::No, DmaDirties::Yes}) {
    const ServerProfile file{
        PersistenceDomain::Page, Ddio::On, ReceiveBuffers::Dram, Transport::Roce, {},
        WriteOrder::Unknown,     dirties};
    ServerProfile by_cpu = file;
    by_cpu.transport = Transport::Tcp;
    for (const UpdateShape& shape : {singleton(), compound()}) {
      // Whatever is right where a CPU stores.
      for (const plan::Known& known : plan::known_methods(by_cpu, {shape, Level::Durable, true})) {
        const bool ours = check::check(known.method, file).holds();
        EXPECT_EQ(holds(check::to_promela(known.method, file)), ours)
            << describe(file) << ": " << known.method.name;
      }
    }
  }
}

/// The sequence that the checker finds wrong is wrong, and the one before it right.
TEST_F(Spin, AgreesOnSets) {
  std::size_t right = 0;
  for (const WrongSet& wrong : wrong_sets()) {
    const check::SetReport report = check::check_set(wrong.members, wrong.profile);
    ASSERT_TRUE(report.failed.has_value());
    EXPECT_FALSE(holds(check::to_promela(report.failed->updates, wrong.profile, report.options)))
        << wrong.name << ": " << report.failed->text;
    if (report.sequences < 2) continue;
    const auto before =
        check::sequences(wrong.members, report.options.updates_max).at(report.sequences - 2);
    if (before.updates.size() > 2) continue;  // millions of states, without any reduction
    EXPECT_TRUE(holds(check::to_promela(before.updates, wrong.profile, report.options)))
        << wrong.name << ": " << before.text;
    ++right;
  }
  EXPECT_GE(right, 4u);
}

/// Two updates of a log with a tail word, small and large, and places, by what is planned: wherever
/// small and large ones do not use one method. Of those that do not alternate one in five; in a
/// soak each.
TEST_F(Spin, AgreesOnPlannedWords) {
  using enum PersistenceDomain;
  // Of the domains that have a mix; on DMP without DDIO all updates are written and flushed.
  const std::pair<PersistenceDomain, Ddio> mixed[] = {
      {Dmp, Ddio::On}, {Mhp, Ddio::Off}, {Wsp, Ddio::Off}};
  std::uint64_t number = 0;
  for (const auto& [domain, ddio] : mixed) {
    const ServerProfile profile{domain, ddio, ReceiveBuffers::Dram, Transport::Roce, {}};
    plan::SetOptions options;
    options.tail_word = true;
    options.message_bytes_max = 16 * 1024;
    const auto set = plan::choose_methods(profile, options, plan::default_costs(profile.transport));
    ASSERT_TRUE(set.ok());
    ASSERT_NE(set->batches.small.name, set->batches.large.name) << to_string(domain);
    const std::vector<SetMember> all = members(*set);
    ASSERT_EQ(all[0].method.name, set->batches.small.name);
    ASSERT_EQ(all[1].method.name, set->batches.large.name);
    std::size_t alternating = 0;  // sequences of a small and a large update
    for (const check::SetSequence& sequence : check::sequences(all, 2)) {
      EXPECT_TRUE(check::check_sequence(sequence.updates, profile, {}).holds()) << sequence.text;
      const std::vector<std::size_t>& by = sequence.methods;
      const bool alternates = by.size() == 2 && by[0] != by[1] && by[0] < 2 && by[1] < 2;
      if (!alternates && !test::in_turn(number++, 5)) continue;
      const char* const compiler = by == std::vector<std::size_t>{1, 1} ? "cc -O2" : "tcc";
      constexpr int kPlacesLog2 = 22;  // up to two million states
      EXPECT_TRUE(holds(check::to_promela(sequence.updates, profile, {}), compiler, kPlacesLog2))
          << sequence.text;
      if (alternates) ++alternating;
    }
    EXPECT_GE(alternating, 2u) << to_string(domain);
  }
}

}  // namespace
}  // namespace perdure
