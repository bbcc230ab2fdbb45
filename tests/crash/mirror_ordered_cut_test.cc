// Ordered updates of a mirror, and the power of the replica fails at every step of one: every event
// between posting it and its answer, on every kind of responder. Nothing of an epoch is on the
// medium then without all of the earlier ones, and all of it is there when it was answered.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "mirror/replicated_mirror.h"
#include "pmem/crashable_region.h"
#include "pmem/pool_format.h"
#include "testing/soak.h"
#include "testing/world_server.h"

namespace perdure::mirror {
namespace {

constexpr std::uint64_t kBytes = 32 * 1024;
constexpr std::byte kNew{0x5a};
constexpr std::uint64_t kStepsMax = 2000;
constexpr std::chrono::seconds kPatience{10};

/// An update: ranges of each epoch. Every byte becomes kNew.
using Ranges = std::vector<std::vector<MirrorRange>>;

/// What the emulated fabric has for responders.
std::vector<ServerProfile> responders() {
  using enum PersistenceDomain;
  std::vector<ServerProfile> all;
  for (const auto domain : {Dmp, Mhp, Wsp, Page}) {
    for (const auto transport :
         {Transport::InfiniBand, Transport::Iwarp, Transport::Roce, Transport::Tcp}) {
      for (unsigned bits = 0; bits < 16; ++bits) {
        ServerProfile profile;
        profile.domain = domain;
        profile.transport = transport;
        profile.ddio = (bits & 1) != 0 ? Ddio::Off : Ddio::On;
        profile.write_order = (bits & 2) != 0 ? WriteOrder::Ordered : WriteOrder::Unknown;
        profile.receive_buffers = (bits & 4) != 0 ? ReceiveBuffers::Pm : ReceiveBuffers::Dram;
        profile.capabilities.native_flush = (bits & 8) != 0;
        const bool contradicts = profile.capabilities.native_flush &&
                                 (profile.ddio == Ddio::On || transport == Transport::Tcp);
        if (!contradicts) all.push_back(profile);
      }
    }
  }
  return all;
}

/// A mirror of one replica.
class One {
 public:
  One(const ServerProfile& profile, std::uint64_t seed) : random_(seed) {
    server_ = *test::WorldServer::start(world_, "replica", profile, {"tree", 160 * 1024});
    client_ = &world_.add_machine("client", profile);
    MirrorOptions options;
    options.pool = "tree";
    options.measure_costs = false;
    options.spin = std::chrono::microseconds(0);
    options.reconnect = std::chrono::milliseconds(0);
    options.staging_bytes = 64 * 1024;
    auto opened =
        ReplicatedMirror::open(*local_, {server_->peer(*client_)}, options, world_.clock());
    if (opened.ok()) mirror_ = std::move(*opened);
    if (!opened.ok()) why_not_ = opened.error().code;
  }

  bool can() const { return mirror_ != nullptr; }
  ErrorCode why_not() const { return why_not_; }

  /// Whether it was answered. `events` after it is begun the power of the replica fails.
  bool update(const Ranges& epochs, bool brings, std::uint64_t events) {
    std::vector<std::vector<std::byte>> values;
    std::vector<std::vector<MirrorWrite>> writes(epochs.size());
    for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
      for (const MirrorRange& range : epochs[epoch]) {
        values.emplace_back(range.length, kNew);
        writes[epoch].push_back({range.at, values.back()});
        if (!brings) std::ranges::copy(values.back(), local_->bytes().begin() + range.at);
      }
    }
    if (brings) return write(std::vector<MirrorWriteEpoch>(writes.begin(), writes.end()), events);
    return cut_while(events, [&] {
      return mirror_->begin(std::vector<MirrorEpoch>(epochs.begin(), epochs.end()));
    });
  }
  bool write(std::span<const MirrorWriteEpoch> epochs, std::uint64_t events) {
    return cut_while(events, [&] { return mirror_->write(epochs); });
  }
  /// Nothing: it was begun.
  std::optional<ErrorCode> why_refused(const std::array<MirrorWriteEpoch, 2>& epochs) {
    const auto begun = mirror_->write(epochs);
    return begun.ok() ? std::nullopt : std::optional(begun.code());
  }

  /// A range that is sent from where it is, and a word that is stored behind it.
  bool has_arrived_before_word(const MirrorRange& range, std::uint64_t at) {
    const MirrorEpoch epoch(&range, 1);
    const auto sent = mirror_->begin({&epoch, 1});
    const auto word = mirror_->store_word(at, 1);
    EXPECT_TRUE(sent.ok() && word.ok());
    const bool arrived = sent.ok() && mirror_->reached(*sent);
    EXPECT_TRUE(word.ok() && mirror_->wait(*word, kPatience).ok());
    return arrived;
  }

  bool cut_while(std::uint64_t events, const std::function<Result<MirrorTicket>()>& begin) {
    world_.cut_after(server_->machine(), events);
    const auto ticket = begin();
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    const bool answered = ticket.ok() && mirror_->wait(*ticket, kPatience).ok();
    world_.cancel_cut();
    was_cut_ = !server_->machine().powered();
    server_->lose_power();
    return answered;
  }
  bool was_cut() const { return was_cut_; }

  /// How much of each epoch is on the medium: 0 nothing, 1 some, 2 all.
  std::vector<int> kept(const Ranges& epochs) const {
    const std::vector<std::byte> medium = server_->region().durable();
    const auto bytes = std::span(medium).subspan(pmem::kPoolDataOffset + kDataAt, kBytes);
    std::vector<int> all;
    for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
      std::uint64_t there = 0;
      std::uint64_t of = 0;
      for (const MirrorRange& range : epochs[epoch]) {
        const auto part = bytes.subspan(range.at, range.length);
        there += static_cast<std::uint64_t>(std::ranges::count(part, kNew));
        of += range.length;
      }
      all.push_back(there == of ? 2 : there == 0 ? 0 : 1);
    }
    return all;
  }

 private:
  Random random_;
  fabric::emu::World world_{random_};
  std::unique_ptr<test::WorldServer> server_;
  fabric::emu::Machine* client_ = nullptr;
  std::unique_ptr<pmem::CrashableRegion> local_ =
      *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  std::unique_ptr<ReplicatedMirror> mirror_;
  ErrorCode why_not_{};
  bool was_cut_ = false;
};

/// Something of an epoch is there, and not all of an earlier one.
bool out_of_order(const std::vector<int>& kept) {
  for (std::size_t epoch = 1; epoch < kept.size(); ++epoch) {
    if (kept[epoch] > 0 && kept[epoch - 1] < 2) return true;
  }
  return false;
}

struct Found {
  std::uint64_t cuts = 0;      // with the update in flight
  std::uint64_t answered = 0;  // updates
  std::uint64_t torn = 0;      // cuts that left something, and not all
  std::uint64_t disorder = 0;  // by the order of `epochs`
  std::uint64_t lost = 0;      // answered, and not all there
  std::uint64_t unsupported = 0;
  std::string first;  // what was wrong
};

/// `sent`: how the update is given; `epochs`: the order that is looked for.
Found cut_everywhere(const Ranges& sent, const Ranges& epochs, bool brings, std::uint64_t one_in) {
  Found found;
  std::uint64_t number = 0;
  for (const ServerProfile& profile : responders()) {
    if (!test::in_turn(number++, one_in)) continue;
    bool completed = false;
    const std::uint64_t unsupported = found.unsupported;
    for (std::uint64_t events = 1; events < kStepsMax && !completed; ++events) {
      One one(profile, 1000 * number + events);
      if (!one.can()) {
        EXPECT_EQ(one.why_not(), ErrorCode::Unsupported) << describe(profile);
        ++found.unsupported;
        break;
      }
      const bool answered = one.update(sent, brings, events);
      completed = !one.was_cut();
      EXPECT_TRUE(answered || !completed) << describe(profile);
      const std::vector<int> kept = one.kept(epochs);
      const bool all = std::ranges::all_of(kept, [](int each) { return each == 2; });
      const bool any = std::ranges::any_of(kept, [](int each) { return each > 0; });
      found.cuts += completed ? 0 : 1;
      found.answered += answered ? 1 : 0;
      found.torn += any && !all ? 1 : 0;
      found.lost += answered && !all ? 1 : 0;
      found.disorder += out_of_order(kept) ? 1 : 0;
      if (found.first.empty() && (out_of_order(kept) || (answered && !all))) {
        found.first =
            fmt::format("{}: cut after {}: {}", describe(profile), events, fmt::join(kept, " "));
      }
    }
    EXPECT_TRUE(completed || found.unsupported > unsupported) << describe(profile);
  }
  return found;
}

/// Three epochs: a line, three lines, and more than a message takes.
const Ranges kThree = {{{64, 64}}, {{1024, 64}, {2048, 40}, {4096, 64}}, {{8192, 12'000}}};
/// The same, small.
const Ranges kSmall = {{{64, 64}}, {{1024, 64}}, {{2048, 64}}};

/// Of the responders one in so many; in a soak all.
void expect_order(const Ranges& epochs, bool brings, std::uint64_t one_in) {
  const Found found = cut_everywhere(epochs, epochs, brings, one_in);
  EXPECT_EQ(found.disorder, 0u) << found.first;
  EXPECT_EQ(found.lost, 0u) << found.first;
  EXPECT_GT(found.cuts, 100u);
  EXPECT_GT(found.answered, 5u);
  EXPECT_GT(found.torn, 10u);
}

TEST(MirrorOrderedCut, EpochsThatBringTheirBytesKeepTheirOrder) { expect_order(kSmall, true, 7); }
TEST(MirrorOrderedCut, EpochsThatFindThemStoredKeepTheirOrder) { expect_order(kSmall, false, 7); }
TEST(MirrorOrderedCut, LargeOnesThatBringTheirBytesKeepTheirOrder) {
  expect_order(kThree, true, 19);
}
TEST(MirrorOrderedCut, LargeOnesThatFindThemStoredKeepTheirOrder) {
  expect_order(kThree, false, 19);
}

// A transaction: its mark says that it has begun, its data, and in the same bytes that it has
// ended. Expect: on no replica the latter without the data, wherever the power fails.
TEST(MirrorOrderedCut, AMarkGoesFromOneStateToTheNextInItsTurn) {
  const std::vector<std::byte> begun(8, std::byte{1});
  const std::vector<std::byte> data(64, kNew);
  const std::vector<std::byte> ended(8, kNew);
  const std::array<MirrorWrite, 1> first{{{64, begun}}};
  const std::array<MirrorWrite, 1> second{{{1024, data}}};
  const std::array<MirrorWrite, 1> third{{{64, ended}}};
  const std::array<MirrorWriteEpoch, 3> epochs{{first, second, third}};
  const Ranges order = {{{1024, 64}}, {{64, 8}}};  // of the bytes that are kNew at the end
  std::uint64_t number = 0;
  std::uint64_t cuts = 0;
  for (const ServerProfile& profile : responders()) {
    if (!test::in_turn(number++, 7)) continue;
    for (std::uint64_t events = 1; events < kStepsMax; ++events) {
      One one(profile, 1000 * number + events);
      if (!one.can()) break;
      const bool answered = one.write(epochs, events);
      const std::vector<int> kept = one.kept(order);
      ASSERT_FALSE(out_of_order(kept)) << describe(profile) << ": cut after " << events;
      ASSERT_TRUE(!answered || (kept[0] == 2 && kept[1] == 2)) << describe(profile);
      if (!one.was_cut()) break;
      ++cuts;
    }
  }
  EXPECT_GT(cuts, 100u);
}

// What is sent from where it is can have one state only.
TEST(MirrorOrderedCut, LargeRangesOfTwoEpochsDoNotOverlap) {
  One one(responders().front(), 1);
  ASSERT_TRUE(one.can());
  const std::vector<std::byte> large(kDirectBytes, kNew);
  const std::vector<std::byte> small(8, kNew);
  const std::array<MirrorWrite, 1> first{{{4096, large}}};
  const std::array<MirrorWrite, 1> second{{{4096 + kDirectBytes - 1, small}}};
  const std::array<MirrorWrite, 1> behind{{{4096 + kDirectBytes, small}}};
  EXPECT_EQ(one.why_refused({{first, second}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(one.why_refused({{second, first}}), ErrorCode::InvalidArgument);
  EXPECT_EQ(one.why_refused({{first, behind}}), std::nullopt);
}

// A word in a range that is being sent from where it is: half of it could go along. Expect: it is
// stored once that has arrived.
TEST(MirrorOrderedCut, AWordWaitsForWhatIsBeingSentAroundIt) {
  One one(responders().front(), 1);
  ASSERT_TRUE(one.can());
  EXPECT_TRUE(one.has_arrived_before_word({4096, kDirectBytes}, 4096 + 8));
  EXPECT_FALSE(one.has_arrived_before_word({4096, kDirectBytes}, 64));
}

// The same ranges, given as one epoch. Expect: that is seen, so the order above is the update's.
TEST(MirrorOrderedCut, WhatIsInOneEpochHasNoOrder) {
  Ranges one(1);
  for (const auto& epoch : kThree) one[0].insert(one[0].end(), epoch.begin(), epoch.end());
  EXPECT_GT(cut_everywhere(one, kThree, false, 19).disorder, 0u);
}

}  // namespace
}  // namespace perdure::mirror
