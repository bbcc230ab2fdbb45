// A responder that finds messages by polling its own memory needs nothing of the fabric but WRITEs.
#include "pair.h"

#include "core/bytes.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "plan/catalog.h"
#include "pmem/crashable_region.h"

#include <algorithm>

namespace perdure::conformance {
namespace {

constexpr persist::ReceiveQueue kQueue{32, 4096};
constexpr std::uint64_t kUpdateBytes = 1000;
constexpr std::uint64_t kUpdates = 200;

class Polled : public Conformance {
 protected:
  void SetUp() override {
    if (!GetParam().responder_polls) {
      GTEST_SKIP() << "its RNIC is a thread beside the one that polls";
    }
    auto pair = connect_pair(GetParam());
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    pair_ = std::move(pair).value();
    auto region = pmem::CrashableRegion::open({.bytes = 1 << 20, .domain = PersistenceDomain::Dmp});
    ASSERT_TRUE(region.ok());
    region_ = std::move(region).value();
    auto memory =
        pair_->devices.server->register_memory(region_->bytes(), fabric::Access::RemoteReadWrite);
    ASSERT_TRUE(memory.ok());
    memory_ = std::move(memory).value();
    source_.emplace(*pair_->devices.client, kUpdates * kUpdateBytes, fabric::Access::Local);
    profile_.domain = PersistenceDomain::Dmp;
    profile_.transport = pair_->client.endpoint->transport();
    profile_.write_order = GetParam().keeps_write_order ? WriteOrder::Ordered : WriteOrder::Unknown;
  }
  void TearDown() override {
    if (pair_) pair_->client.endpoint.reset();
    if (pair_) pair_->server.endpoint.reset();
    requester_.reset();
    responder_.reset();
    source_.reset();
    memory_.reset();
    pair_.reset();
  }

  void open(const Method& method) {
    persist::Responder::Options answers;
    answers.exported = {0, region_->bytes().size()};
    answers.queue = kQueue;
    answers.session = 9;
    answers.polls = true;
    auto responder = persist::Responder::open(*pair_->server.endpoint, *pair_->devices.server,
                                              *region_, answers);
    ASSERT_TRUE(responder.ok());
    responder_ = std::move(responder).value();
    persist::Requester::Options asks;
    asks.remote = {memory_->key(), memory_->base(), region_->bytes().size()};
    asks.queue = kQueue;
    asks.session = 9;
    asks.mailbox = responder_->mailbox();
    auto requester = persist::Requester::open(*pair_->client.endpoint, *pair_->devices.client,
                                              profile_, {method}, asks);
    ASSERT_TRUE(requester.ok()) << requester.error().message;
    requester_ = std::move(requester).value();
  }

  bool pump_until(const std::function<bool()>& reached) {
    const Deadline deadline = Deadline::after(kPatience);
    while (!reached() && !deadline.passed()) {
      if (!responder_->pump().ok() || !requester_->poll().ok()) return false;
    }
    return reached();
  }

  std::unique_ptr<Pair> pair_;
  std::unique_ptr<pmem::CrashableRegion> region_;
  std::unique_ptr<fabric::Memory> memory_;
  std::optional<Buffer> source_;
  ServerProfile profile_;
  std::unique_ptr<persist::Responder> responder_;
  std::unique_ptr<persist::Requester> requester_;
};

TEST_P(Polled, UpdatesAreDurableWhenTheyResolve) {
  std::size_t methods = 0;
  for (const plan::Known& known :
       plan::known_methods(profile_, {singleton(), Level::Durable, false, true})) {
    if (known.method.name.find("poll") == std::string::npos) continue;
    ++methods;
    SCOPED_TRACE(known.method.name);
    TearDown();
    SetUp();
    ASSERT_NO_FATAL_FAILURE(open(known.method));
    source_->fill(methods, 0, kUpdates * kUpdateBytes);
    std::uint64_t begun = 0;
    while (begun < kUpdates) {
      const std::uint64_t at = begun * kUpdateBytes;
      const persist::UpdateItem item{at, source_->segment(at, kUpdateBytes)};
      if (requester_->begin(0, {&item, 1}).ok()) {
        ++begun;
        continue;
      }
      const std::uint64_t before = requester_->resolved();
      ASSERT_TRUE(pump_until([&] { return requester_->resolved() > before; }));
    }
    ASSERT_TRUE(pump_until([&] { return requester_->resolved() == kUpdates; }));
    // Expect: every byte, durable, and not one receive buffer used.
    EXPECT_TRUE(region_->is_durable({0, kUpdates * kUpdateBytes}));
    EXPECT_TRUE(std::equal(source_->at(0), source_->at(0) + kUpdates * kUpdateBytes,
                           region_->bytes().begin()));
    EXPECT_EQ(responder_->counters().messages, kUpdates);
  }
  EXPECT_EQ(
      methods,
      profile_.write_order == WriteOrder::Ordered || placed_by_cpu(profile_.transport) ? 2u : 1u);
}

INSTANTIATE_TEST_SUITE_P(Providers, Polled, testing::ValuesIn(harnesses()), harness_name);

}  // namespace
}  // namespace perdure::conformance
