// Every method of the taxonomy and every one the planner knows, run by persist on the emulated
// fabric, with the power cut at every event and at random instants. After recovery the real bytes
// must show the properties the checker proves of the model:
//   acknowledged implies durable   what had resolved is whole;
//   later implies earlier      where the second item arrived, the first is whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "fabric/emu/world.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "plan/catalog.h"
#include "plan/paper.h"
#include "testing/soak.h"

namespace perdure {
namespace {

constexpr std::uint64_t kSlotBytes = 256;  // four lines, so that tearing is seen
constexpr std::uint64_t kShortBytes = 8;   // where it matters whether a message is short
constexpr std::uint64_t kUpdates = 4;
constexpr std::uint64_t kWordAt = 0;
constexpr std::uint64_t kFirstSlotAt = 4096;
constexpr std::uint64_t kExportedBytes = 16 * 1024;
constexpr std::uint64_t kEventsMax = 4000;
constexpr persist::ReceiveQueue kQueue{32, 512};

/// One responder with its pool, one requester, and updates on their way.
class MethodRun {
 public:
  MethodRun(const ServerProfile& profile, const Method& method, std::uint64_t seed,
            const fabric::emu::RnicSwitches& switches = {})
      : random_(seed),
        world_(random_),
        method_(method),
        item_bytes_(switches.cqe_payload_bytes != 0 ? kShortBytes : kSlotBytes) {
    server_ = &world_.add_machine("server", profile, switches);
    client_ = &world_.add_machine("client", profile);
    region_ = &server_->add_region(kExportedBytes + kQueue.persistent_bytes());
    auto ends = world_.connect(*client_, *server_);
    near_ = std::move(ends.first);
    far_ = std::move(ends.second);
    options_.exported = {0, kExportedBytes};
    options_.queue = kQueue;
    options_.session = 7;
    if (profile.receive_buffers == ReceiveBuffers::Pm) {
      options_.persistent_buffers = {kExportedBytes, kQueue.persistent_bytes()};
    }
    memory_ = *server_->register_memory(region_->bytes().first(kExportedBytes),
                                        fabric::Access::RemoteReadWrite);
    options_.polls = polls(method);
    options_.reads = fetches(method);
    persist::Requester::Options options;
    if (writes_acks(method)) {
      acks_memory_ = *client_->register_memory(acks_, fabric::Access::RemoteReadWrite);
      options_.acks = {acks_memory_->key(), acks_memory_->base(), acks_.size()};
      options.acks = {acks_.data(), acks_.size(), acks_memory_.get()};
    }
    responder_ = *persist::Responder::open(*far_, *server_, *region_, options_);
    server_->add_actor([this] {
      if (!responding_) return false;
      const auto handled = responder_->pump();
      return handled.ok() && *handled != 0;
    });
    options.reads = options_.reads;
    options.remote = {memory_->key(), memory_->base(), kExportedBytes};
    options.queue = kQueue;
    options.session = 7;
    options.mailbox = responder_->mailbox();
    auto requester = persist::Requester::open(*near_, *client_, profile, {method}, options);
    EXPECT_TRUE(requester.ok()) << requester.error().message;
    requester_ = std::move(requester).value();
    source_.resize(kUpdates * (kSlotBytes + 8));
    source_memory_ = *client_->register_memory(source_, fabric::Access::RemoteRead);
  }

  /// The responder's RNIC is reset when so many more events have happened.
  void reset_after(std::uint64_t events) {
    world_.after(events, [this] { server_->reset_rnic(); });
  }
  /// Between two polls of go(), when so many events have happened.
  void between_polls(std::uint64_t events, std::function<void()> happens) {
    happens_at_ = events;
    happens_ = std::move(happens);
  }
  void refuse_revocations(bool refused) { server_->refuse_revocations(refused); }

  /// Ends the connection, takes the key away and stops the responder, as whoever grants the pool to
  /// somebody else does.
  bool revoke() {
    const bool severed = far_->sever().ok();
    const bool revoked = memory_->deregister().ok() && severed;
    responding_ = responding_ && !revoked;
    return revoked;
  }
  /// Lets happen what still can.
  void settle() {
    (void)world_.settle();
    (void)requester_->poll();
    (void)world_.settle();
  }
  std::vector<std::byte> bytes() const {
    const auto all = region_->bytes().first(kExportedBytes);
    return {all.begin(), all.end()};
  }

  /// Posts all updates and waits for them until the power fails or everything has resolved.
  void go(std::uint64_t cut_after) {
    if (cut_after != 0) world_.cut_after(*server_, cut_after);
    const std::uint64_t start = world_.events();
    std::uint64_t begun = 0;
    while (requester_->resolved() < kUpdates && world_.events() - start < kEventsMax) {
      if (happens_ && world_.events() - start >= happens_at_) std::exchange(happens_, nullptr)();
      if (begun < kUpdates && begin(begun + 1)) ++begun;
      if (!requester_->poll().ok()) break;
    }
    events_ = world_.events() - start;
    cut_in_flight_ = !server_->powered() && begun > requester_->resolved();
  }

  /// Cuts the power if it is still on, brings the server back and recovers.
  void recover() {
    world_.cancel_cut();
    if (server_->powered()) server_->power_cut();
    responder_.reset();
    server_->power_on();
    if (options_.persistent_buffers.length != 0) {
      ASSERT_TRUE(
          persist::replay_messages(*region_, options_.exported, options_.persistent_buffers, kQueue)
              .ok());
      // Replaying again is harmless.
      ASSERT_TRUE(
          persist::replay_messages(*region_, options_.exported, options_.persistent_buffers, kQueue)
              .ok());
    }
  }

  /// What the bytes violate, or nothing.
  std::string violation() const {
    const std::byte* bytes = region_->bytes().data();
    for (std::uint64_t number = 1; number <= requester_->resolved(); ++number) {
      if (!slot_is(number))
        return "update " + std::to_string(number) + " was acknowledged and is lost";
    }
    if (method_.shape.items() < 2) return "";
    const auto word = load<std::uint64_t>(bytes + kWordAt);
    if (word < requester_->resolved()) return "the word of an acknowledged update is lost";
    if (word > kUpdates) return "the word is torn";
    for (std::uint64_t number = 1; number <= word; ++number) {
      if (!slot_is(number))
        return "the word says " + std::to_string(word) + " but the record of " +
               std::to_string(number) + " is not there";
    }
    return "";
  }

  std::uint64_t resolved() const { return requester_->resolved(); }
  std::uint64_t events() const { return events_; }
  /// Whether the power failed while an update had been begun and nobody had been told of its end.
  bool cut_in_flight() const { return cut_in_flight_; }

 private:
  static bool polls(const Method& method) {
    return std::any_of(method.requester.begin(), method.requester.end(), [](const auto& step) {
      return step.kind == RequesterStep::Kind::Post && step.verb == Verb::WritePolled;
    });
  }

  static std::byte pattern(std::uint64_t number, std::uint64_t at) {
    return static_cast<std::byte>(number * 37 + at * 11 + 1);
  }

  bool begin(std::uint64_t number) {
    std::byte* data = source_.data() + (number - 1) * (kSlotBytes + 8);
    for (std::uint64_t at = 0; at < kSlotBytes; ++at) data[at] = pattern(number, at);
    store(data + kSlotBytes, number);
    std::vector<persist::UpdateItem> items(method_.shape.items());
    items[0] = {kFirstSlotAt + number * kSlotBytes, {data, item_bytes_, source_memory_.get()}};
    if (items.size() > 1) items[1] = {kWordAt, {data + kSlotBytes, 8, source_memory_.get()}};
    const auto begun = requester_->begin(0, items);
    return begun.ok();
  }

  bool slot_is(std::uint64_t number) const {
    const std::byte* slot = region_->bytes().data() + kFirstSlotAt + number * kSlotBytes;
    for (std::uint64_t at = 0; at < item_bytes_; ++at) {
      if (slot[at] != pattern(number, at)) return false;
    }
    return true;
  }

  Random random_;
  fabric::emu::World world_;
  const Method method_;
  const std::uint64_t item_bytes_;
  fabric::emu::Machine* server_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<fabric::Endpoint> near_;
  std::unique_ptr<fabric::Endpoint> far_;
  persist::Responder::Options options_;
  std::unique_ptr<fabric::Memory> memory_;
  std::unique_ptr<persist::Responder> responder_;
  std::unique_ptr<persist::Requester> requester_;
  std::vector<std::byte> source_;
  std::unique_ptr<fabric::Memory> source_memory_;
  std::array<std::byte, persist::kAckBytes> acks_{};
  std::unique_ptr<fabric::Memory> acks_memory_;
  std::uint64_t events_ = 0;
  bool responding_ = true;
  std::uint64_t happens_at_ = 0;
  std::function<void()> happens_;
  bool cut_in_flight_ = false;
};

struct Case {
  ServerProfile profile;
  Method method;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      all.push_back({scenario.profile, scenario.method});
    }
  }
  for (const Transport transport : {Transport::InfiniBand, Transport::Tcp}) {
    std::vector<ServerProfile> profiles = plan::paper_profiles(transport);
    ServerProfile page;
    page.domain = PersistenceDomain::Page;
    page.transport = transport;
    profiles.push_back(page);
    if (transport == Transport::InfiniBand) {
      ServerProfile flushing{PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram, transport, {}};
      flushing.capabilities = {
          .native_flush = true, .atomic_write = true, .persistent_flush = true};
      profiles.push_back(flushing);
      // With what no RNIC has, the emulated one included unless it is told.
      for (const auto buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
        ServerProfile to_come{PersistenceDomain::Dmp, Ddio::On, buffers, transport, {}};
        to_come.capabilities.ordered_persist = to_come.capabilities.send_flush = true;
        profiles.push_back(to_come);
      }
    }
    for (const ServerProfile& profile : profiles) {
      for (const UpdateShape& shape : {singleton(), compound()}) {
        plan::Request request;
        request.shape = shape;
        request.later_small = true;
        request.polled = true;
        request.responder_posts = true;
        for (const plan::Known& known : plan::known_methods(profile, request)) {
          if (writes_acks(known.method) && !keeps_write_order(profile)) continue;  // refused
          all.push_back({profile, known.method});
        }
      }
    }
  }
  return all;
}

std::string name_of(const Case& each) {
  return describe(each.profile) + ": " + each.method.name + ", " + to_string(each.method.shape);
}

TEST(MethodCrash, EveryMethodCompletesWithoutACrash) {
  for (const Case& each : cases()) {
    MethodRun run(each.profile, each.method, 1);
    run.go(0);
    EXPECT_EQ(run.resolved(), kUpdates) << name_of(each);
    run.recover();
    EXPECT_EQ(run.violation(), "") << name_of(each);
  }
}

TEST(MethodCrash, PowerLossAtAnyEventLosesNothingAcknowledged) {
  const std::uint64_t stride = test::soak() ? 1 : 7;
  std::uint64_t cuts = 0;
  std::uint64_t cuts_in_flight = 0;
  std::uint64_t seed = 1;
  for (const Case& each : cases()) {
    MethodRun whole(each.profile, each.method, seed);
    whole.go(0);
    const std::uint64_t before = cuts_in_flight;
    for (std::uint64_t event = 1 + seed % stride; event <= whole.events(); event += stride) {
      MethodRun run(each.profile, each.method, seed);
      run.go(event);
      run.recover();
      ASSERT_EQ(run.violation(), "") << name_of(each) << ", seed " << seed << ", event " << event;
      ++cuts;
      cuts_in_flight += run.cut_in_flight() ? 1 : 0;
    }
    EXPECT_GT(cuts_in_flight, before) << name_of(each) << ": no cut met an update in flight";
    ++seed;
  }
  RecordProperty("cuts", static_cast<int>(cuts));
  RecordProperty("cuts_in_flight", static_cast<int>(cuts_in_flight));
  EXPECT_GT(cuts_in_flight, cuts * 3 / 4) << "of " << cuts;
}

/// Cuts power so often under each method, each time at a random event under another schedule; the
/// number of cuts that met an update in flight.
std::uint64_t cut_at_random_instants(std::uint64_t instants,
                                     const fabric::emu::RnicSwitches& switches) {
  Random random(99);
  std::uint64_t cuts_in_flight = 0;
  for (const Case& each : cases()) {
    const std::uint64_t before = cuts_in_flight;
    MethodRun whole(each.profile, each.method, 1, switches);
    whole.go(0);
    for (std::uint64_t round = 0; round < instants; ++round) {
      const std::uint64_t seed = random.next();
      MethodRun run(each.profile, each.method, seed, switches);
      const std::uint64_t event = 1 + random.below(whole.events());
      run.go(event);
      run.recover();
      EXPECT_EQ(run.violation(), "") << name_of(each) << ", seed " << seed << ", event " << event;
      cuts_in_flight += run.cut_in_flight() ? 1 : 0;
    }
    EXPECT_GT(cuts_in_flight, before) << name_of(each) << ": no cut met an update in flight";
  }
  return cuts_in_flight;
}

TEST(MethodCrash, PowerLossAtRandomInstantsUnderManySchedulesLosesNothingAcknowledged) {
  const std::uint64_t cuts = cut_at_random_instants(test::rounds(20, 1000), {});
  RecordProperty("cuts_in_flight", static_cast<int>(cuts));
}

// Messages that recovery looks for are longer than what an RNIC keeps in a completion.
TEST(MethodCrash, PowerLossWherePayloadsStayInCompletionsLosesNothingAcknowledged) {
  fabric::emu::RnicSwitches switches;
  switches.cqe_payload_bytes = 64;
  const std::uint64_t cuts = cut_at_random_instants(test::rounds(8, 1000), switches);
  RecordProperty("cuts_in_flight", static_cast<int>(cuts));
}

// What is flushed for a WRITE_WITH_IMM is what its completion says was written. One that says too
// little, or nothing, ends the connection; nothing was acknowledged by it.
TEST(MethodCrash, ACompletionThatSaysTooLittleLosesNothingAcknowledged) {
  std::size_t methods = 0;
  for (const Case& each : cases()) {
    const bool announces = std::any_of(
        each.method.requester.begin(), each.method.requester.end(), [](const RequesterStep& step) {
          return step.kind == RequesterStep::Kind::Post && step.verb == Verb::WriteImm;
        });
    if (!announces || each.method.responder.empty()) continue;
    ++methods;
    for (const std::uint64_t missing : {std::uint64_t{0}, std::uint64_t{1}, kSlotBytes}) {
      fabric::emu::RnicSwitches switches;
      switches.immediate_without_length = missing == 0;
      switches.immediate_bytes_missing = missing;
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        MethodRun run(each.profile, each.method, seed, switches);
        run.go(0);
        EXPECT_LT(run.resolved(), kUpdates) << name_of(each) << ", " << missing << " missing";
        run.recover();
        EXPECT_EQ(run.violation(), "") << name_of(each) << ", seed " << seed;
      }
    }
  }
  EXPECT_GT(methods, 10u);
}

bool keeps_what_its_rnic_has(const Case& each) {
  return each.profile.domain == PersistenceDomain::Wsp;
}

/// Violations after a reset at some events of each method for which `chosen`.
std::uint64_t violations_after_a_reset(bool (*chosen)(const Case&), std::uint64_t& resets) {
  constexpr std::uint64_t kResets = 6;  // of each run
  std::uint64_t violations = 0;
  for (const Case& each : cases()) {
    if (!chosen(each)) continue;
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      MethodRun whole(each.profile, each.method, seed);
      whole.go(0);
      for (std::uint64_t part = 1; part <= kResets; ++part) {
        MethodRun run(each.profile, each.method, seed);
        run.reset_after(1 + whole.events() * part / (kResets + 1));
        run.go(0);
        resets += run.resolved() < kUpdates ? 1 : 0;
        run.recover();
        violations += run.violation().empty() ? 0 : 1;
      }
    }
  }
  return violations;
}

// What was acknowledged was not in the RNIC any more. Only where a battery is counted on may it be
// there still, and a battery does not help against a reset (docs/hardware.md).
TEST(MethodCrash, AResetOfTheRnicLosesNothingAcknowledgedButWhatABatteryWasToKeep) {
  std::uint64_t resets = 0;
  EXPECT_EQ(violations_after_a_reset(
                [](const Case& each) { return !keeps_what_its_rnic_has(each); }, resets),
            0u);
  EXPECT_GT(resets, 100u) << "that met an update in flight";
  EXPECT_GT(violations_after_a_reset(keeps_what_its_rnic_has, resets), 0u);
}

/// How often bytes changed after the RNIC had said that it let go.
std::uint64_t changes_after_a_revocation(const fabric::emu::RnicSwitches& switches) {
  std::uint64_t changes = 0;
  for (const Case& each : cases()) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      MethodRun run(each.profile, each.method, seed, switches);
      run.between_polls(10 * seed, [&] {
        run.refuse_revocations(true);
        EXPECT_FALSE(run.revoke()) << name_of(each);
        run.refuse_revocations(false);
      });
      run.go(0);
      // Refused: all goes on as if nobody had asked.
      EXPECT_EQ(run.resolved(), kUpdates) << name_of(each) << ", seed " << seed;
      run.recover();
      EXPECT_EQ(run.violation(), "") << name_of(each) << ", seed " << seed;
    }
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      MethodRun run(each.profile, each.method, seed, switches);
      std::vector<std::byte> then;
      run.between_polls(10 * seed, [&] {
        EXPECT_TRUE(run.revoke()) << name_of(each);
        then = run.bytes();
      });
      run.go(0);
      run.settle();
      if (then.empty()) continue;  // it was through before
      changes += run.bytes() == then ? 0 : 1;
      run.recover();
      if (switches.places_late) continue;  // it loses what was acknowledged, too
      EXPECT_EQ(run.violation(), "") << name_of(each) << ", seed " << seed;
    }
  }
  return changes;
}

// A revocation that is refused changes nothing; after one that is not, no byte arrives.
TEST(MethodCrash, ARevocationIsRefusedAndChangesNothingOrNothingArrivesAfterIt) {
  EXPECT_EQ(changes_after_a_revocation({}), 0u);
  fabric::emu::RnicSwitches late;
  late.places_late = true;
  EXPECT_GT(changes_after_a_revocation(late), 0u);
}

// The tests above can fail: a method that is wrong for its responder is caught within a few cuts.
TEST(MethodCrash, AWrongMethodIsCaught) {
  ServerProfile dmp;
  dmp.domain = PersistenceDomain::Dmp;
  dmp.ddio = Ddio::On;
  dmp.transport = Transport::InfiniBand;
  // Right under MHP: WRITE, then FLUSH to visibility. With DDIO on, DMP does not reach that far.
  const Method* flushed_to_visibility = nullptr;
  const auto scenarios = plan::paper_methods(Transport::InfiniBand);
  for (const plan::Scenario& scenario : scenarios) {
    if (scenario.profile.domain == PersistenceDomain::Mhp && scenario.profile.ddio == Ddio::On &&
        scenario.primary == Primary::Write && scenario.shape == singleton()) {
      flushed_to_visibility = &scenario.method;
    }
  }
  ASSERT_NE(flushed_to_visibility, nullptr);
  int lost = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    MethodRun run(dmp, *flushed_to_visibility, seed);
    run.go(0);
    run.recover();
    lost += run.violation().empty() ? 0 : 1;
  }
  EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace perdure
