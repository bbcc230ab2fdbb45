// What durable RPC promises, judged by what clients were told and by what the handlers have left in
// the pool: after power failures, deaths of server and clients, and lost connections at any place,
// on several kinds of responder, each call that was reported durable was executed once, none
// twice, each client's in order, every reply is that of its call, and no money is made or lost.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "fabric/emu/world.h"
#include "pmem/lent_region.h"
#include "rpc/caller.h"
#include "rpc/rpc_host.h"
#include "testing/local_peer.h"
#include "testing/passing_clock.h"
#include "testing/soak.h"

namespace perdure::rpc {
namespace {

constexpr std::uint32_t kPay = 1;
constexpr std::uint32_t kBalance = 2;
constexpr std::uint64_t kRing = 16 * 1024;
constexpr std::uint64_t kInFlightBytes = kRing / 3;
constexpr std::size_t kClients = 3;
constexpr std::size_t kAccounts = 16;
// Halves of the bank, of which calls with other keys may be executed at the same time.
constexpr std::uint64_t kHalves = 2;
constexpr std::uint64_t kCountsAt = 2048;
constexpr std::uint64_t kJournalAt = 4096;
constexpr std::uint64_t kLines = 4000;
const persist::ReceiveQueue kQueue{32, 2048};

struct Payment {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::int64_t amount = 0;
};
struct Line {
  std::uint64_t client = 0;
  std::uint64_t sequence = 0;
};

std::uint64_t half_of(const Payment& payment) { return payment.from / (kAccounts / kHalves); }
std::uint64_t line_of(std::uint64_t half, std::uint64_t line) {
  return kJournalAt + (half * (kLines / kHalves) + line) * sizeof(Line);
}

/// Moves money, and says in which line of which journal.
Result<std::size_t> pay(const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply) {
  Payment payment;
  std::memcpy(&payment, call.payload.data(), sizeof payment);
  PERDURE_TRY(from, data.load<std::int64_t>(8 + 8 * payment.from));
  PERDURE_TRY_VOID(data.store(8 + 8 * payment.from, from - payment.amount));
  PERDURE_TRY(to, data.load<std::int64_t>(8 + 8 * payment.to));
  PERDURE_TRY_VOID(data.store(8 + 8 * payment.to, to + payment.amount));
  const std::uint64_t half = half_of(payment);
  PERDURE_TRY(line, data.load<std::uint64_t>(kCountsAt + 8 * half));
  PERDURE_TRY_VOID(data.store(line_of(half, line), Line{call.client_id, call.sequence}));
  PERDURE_TRY_VOID(data.store(kCountsAt + 8 * half, line + 1));
  store(reply.data(), line_of(half, line));
  return sizeof line;
}

Result<std::size_t> balance(std::span<const std::byte> payload, const RpcData& data,
                            std::span<std::byte> reply) {
  std::uint64_t lines = 0;
  for (std::uint64_t half = 0; half < kHalves; ++half) {
    PERDURE_TRY(count, data.load<std::uint64_t>(kCountsAt + 8 * half));
    lines += count;
  }
  store(reply.data(), lines);
  return payload.empty() ? sizeof lines : std::size_t{0};
}

std::vector<ServerProfile> rpc_profiles() {
  std::vector<ServerProfile> all;
  const auto add = [&](PersistenceDomain domain, Ddio ddio, ReceiveBuffers buffers,
                       Transport transport, WriteOrder order) {
    ServerProfile profile;
    profile.domain = domain;
    profile.ddio = ddio;
    profile.receive_buffers = buffers;
    profile.transport = transport;
    profile.write_order = order;
    all.push_back(profile);
  };
  using enum PersistenceDomain;
  using enum Transport;
  const auto dram = ReceiveBuffers::Dram;
  add(Dmp, Ddio::Off, dram, InfiniBand, WriteOrder::Ordered);
  add(Dmp, Ddio::On, dram, InfiniBand, WriteOrder::Unknown);
  add(Dmp, Ddio::Off, ReceiveBuffers::Pm, InfiniBand, WriteOrder::Ordered);
  add(Mhp, Ddio::On, dram, Roce, WriteOrder::Unknown);
  add(Wsp, Ddio::On, ReceiveBuffers::Pm, InfiniBand, WriteOrder::Ordered);
  add(Wsp, Ddio::On, dram, InfiniBand, WriteOrder::Ordered);
  add(Page, Ddio::On, dram, Tcp, WriteOrder::Unknown);
  add(Page, Ddio::On, dram, InfiniBand, WriteOrder::Unknown);
  return all;
}

PoolShape bank_shape() {
  PoolShape shape;
  shape.clients = kClients;
  shape.ring_bytes = kRing;
  shape.window_bytes =
      pmem::kPoolDataOffset + kRingAt + kRing + server::persistent_buffer_bytes(kQueue);
  shape.replies = 8;
  shape.reply_bytes_max = 32;
  shape.transaction_bytes = 16384;
  shape.data_bytes = kJournalAt + kLines * sizeof(Line);
  return shape;
}

struct Met {
  int calls = 0;
  int durable = 0;    // waits that said so
  int applied = 0;    // replies that were looked at
  int cuts = 0;       // of power, with calls in flight
  int kills = 0;      // of the server
  int deaths = 0;     // of a client, with calls in flight
  int resent = 0;     // calls
  int inherited = 0;  // calls of a process that died, executed all the same
  int queries = 0;
  int cancelled = 0;  // calls
};

/// A server with a bank, its clients, and the judge.
class Bank {
 public:
  Bank(std::uint64_t seed, const ServerProfile& profile, Met& met)
      : random_(seed),
        secrets_(random_),
        profile_(profile),
        quick_(seed % 3 == 0),
        threads_(1 + seed % 4),
        met_(met) {
    machine_ = &world_.add_machine("server", profile);
    region_ = &machine_->add_region(pmem::kPoolDataOffset + bank_shape().bytes());
    EXPECT_TRUE(pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region_), {}).ok());
    start();
    for (std::size_t index = 0; index < kClients; ++index) {
      people_[index].machine = &world_.add_machine(fmt::format("client{}", index), profile);
      people_[index].name = fmt::format("teller{}", index);
    }
  }
  ~Bank() {
    for (Person& each : people_) each.caller.reset();
    host_.reset();
  }

  void live(int lives) {
    for (int life = 0; life < lives && !testing::Test::HasFatalFailure(); ++life) one_life();
    if (!testing::Test::HasFatalFailure()) finish();
  }

 private:
  struct Person {
    fabric::emu::Machine* machine = nullptr;
    std::string name;
    std::unique_ptr<Caller> caller;
    std::uint64_t id = 0;
    std::uint64_t told = 0;                        // calls that it was told to be durable
    std::map<std::uint64_t, std::uint64_t> bytes;  // by sequence
    std::set<std::uint64_t> cancelled;             // sequences
  };

  /// The server as a peer, whatever host runs there just now.
  class HostPeer final : public client::Peer {
   public:
    HostPeer(Bank& bank, fabric::Device& device) : bank_(bank), device_(device) {}
    std::string name() const override { return "server"; }
    fabric::Device& device() override { return device_; }
    Result<std::vector<control::PoolDescription>> list(Deadline deadline) override {
      return ask([&](test::LocalPeer& local) { return local.list(deadline); });
    }
    Result<control::PoolDescription> describe(const std::string& pool, Deadline deadline) override {
      return ask([&](test::LocalPeer& local) { return local.describe(pool, deadline); });
    }
    Result<control::PoolDescription> create(const control::PoolRequest& request,
                                            Deadline deadline) override {
      return ask([&](test::LocalPeer& local) { return local.create(request, deadline); });
    }
    Result<client::Session> open_session(const control::SessionRequest& request,
                                         Deadline deadline) override {
      return ask([&](test::LocalPeer& local) { return local.open_session(request, deadline); });
    }
    Result<void> close_session(std::uint64_t id, control::Left left, Deadline deadline) override {
      return ask([&](test::LocalPeer& local) { return local.close_session(id, left, deadline); });
    }
    Result<void> fence(const std::string& pool, Epoch epoch, Deadline deadline) override {
      return ask([&](test::LocalPeer& local) { return local.fence(pool, epoch, deadline); });
    }

   private:
    template <typename Request>
    auto ask(Request request) -> decltype(request(std::declval<test::LocalPeer&>())) {
      if (!bank_.serving()) return Error{ErrorCode::Disconnected, "no power"};
      test::LocalPeer local("server", bank_.host_->service(), device_);
      auto answer = request(local);
      if (!bank_.serving()) return Error{ErrorCode::Disconnected, "no power"};
      return answer;
    }
    Bank& bank_;
    fabric::Device& device_;
  };

  bool serving() const { return machine_->powered() && host_ != nullptr; }

  /// False: the power failed in recovery, and it is to be started again.
  bool start() {
    auto pool = pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_));
    if (!pool.ok()) return false;
    RpcHostOptions options;
    options.executor.handlers[kPay] = pay;
    options.executor.queries[kBalance] = balance;
    options.executor.clock = &world_.clock();
    options.executor.threads = threads_;
    options.quick_handlers = quick_;
    options.slow_from_percent = 50;
    options.service.threads = false;
    options.service.clock = &world_.clock();
    options.service.queue = kQueue;
    options.service.secrets = [this] { return world_.random().next() | 1; };
    options.service.settings.ddio = profile_.ddio;
    options.service.settings.write_order = profile_.write_order;
    options.service.settings.dma_dirties = profile_.dma_dirties;
    options.service.settings.receive_buffers = profile_.receive_buffers;
    server::DataPlane plane;
    plane.device = machine_;
    auto host = RpcHost::open(std::move(*pool), bank_shape(), std::move(options), {plane});
    if (!host.ok()) {
      EXPECT_FALSE(machine_->powered()) << host.error().message;
      return false;
    }
    host_ = std::move(*host);
    machine_->add_actor([this, host = host_.get()] {
      if (host != host_.get()) return false;
      return held_up_ ? host->service().pump() : host->pump();
    });
    return machine_->powered();
  }

  /// The server is gone, and comes back; recovery may be cut short, twice.
  void restart(bool power) {
    world_.cancel_cut();
    if (machine_->powered()) {
      if (power) machine_->power_cut();
      if (!power) machine_->kill();
    }
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (host_ != nullptr) host_->abandon();
      host_.reset();
      machine_->power_on();
      if (attempt < 2 && random_.below(3) == 0) {
        world_.cut_after(*machine_, 1 + random_.below(60));
      }
      if (start()) break;
      world_.cancel_cut();
      if (machine_->powered()) machine_->power_cut();
    }
    world_.cancel_cut();
    ASSERT_TRUE(serving());
  }

  bool open(Person& person) {
    RpcClientOptions options;
    options.name = person.name;
    options.measure_costs = random_.below(4) == 0;
    options.reconnect = std::chrono::milliseconds(1);
    options.spin = std::chrono::microseconds(0);
    constexpr std::array<std::optional<Primary>, 3> kPrimaries = {std::nullopt, Primary::Send,
                                                                  Primary::Write};
    options.primary = kPrimaries[random_.below(kPrimaries.size())];
    auto opened = Caller::open(std::make_unique<HostPeer>(*this, *person.machine), options, clock_);
    if (!opened.ok() && opened.code() == ErrorCode::Unsupported) {
      options.primary.reset();
      opened = Caller::open(std::make_unique<HostPeer>(*this, *person.machine), options, clock_);
    }
    if (!opened.ok()) {
      EXPECT_FALSE(serving()) << opened.error().message;
      return false;
    }
    person.caller = std::move(*opened);
    const RpcClientStatus status = person.caller->status();
    if (person.id != 0) {
      EXPECT_EQ(status.client_id, person.id);
    }
    person.id = status.client_id;
    EXPECT_GE(status.earlier_durable, person.told) << "a durable call is lost";
    met_.inherited += static_cast<int>(status.earlier_durable - person.told);
    person.told = std::max(person.told, status.earlier_durable);
    // What its predecessor cancelled and never sent has no place: other calls will be there.
    person.cancelled.erase(person.cancelled.upper_bound(status.earlier_durable),
                           person.cancelled.end());
    person.bytes.clear();
    return true;
  }

  void one_life() {
    if (random_.below(4) != 0) world_.cut_after(*machine_, 1 + random_.below(4000));
    for (int step = 0; step < 80 && serving(); ++step) {
      Person& person = people_[random_.below(kClients)];
      if (person.caller == nullptr && !open(person)) break;
      one_step(person);
      if (testing::Test::HasFatalFailure()) return;
      if (random_.below(60) == 0) world_.drop_connections(*machine_, *person.machine);
      if (random_.below(60) == 0) die(person);
    }
    int in_flight = 0;
    for (Person& each : people_) in_flight += each.caller != nullptr && unapplied(each) ? 1 : 0;
    const bool power = !machine_->powered() || random_.below(2) == 0;
    (power ? met_.cuts : met_.kills) += in_flight != 0 ? 1 : 0;
    restart(power);
    if (testing::Test::HasFatalFailure()) return;
    judge();
  }

  static bool unapplied(const Person& person) {
    const RpcClientStatus status = person.caller->status();
    return status.applied < status.begun;
  }

  void one_step(Person& person) {
    if (random_.below(8) == 0) held_up_ = random_.below(2) == 0;
    switch (random_.below(6)) {
      case 0: (void)person.caller->poll(); return;
      case 1: return wait_for_one(person);
      case 2: return ask(person);
      default: call(person);
    }
  }

  void call(Person& person) {
    const RpcClientStatus status = person.caller->status();
    std::uint64_t in_flight = 0;
    for (auto each = person.bytes.upper_bound(status.applied); each != person.bytes.end(); ++each) {
      in_flight += each->second;
    }
    const std::size_t more = random_.below(8) == 0 ? random_.below(3000) : random_.below(100);
    const std::uint64_t bytes = entry_bytes(sizeof(Payment) + more);
    // Replies that it has not got need room at the server, its predecessor's too.
    const bool replies_due =
        status.begun > 5 &&
        !person.caller->reached(person.caller->handle_of(status.begun - 5), RpcLevel::Applied);
    if (in_flight + bytes > kInFlightBytes || replies_due ||
        status.applied < status.earlier_durable) {
      // It would wait for the server, which may have lost its power.
      person.caller->want(person.caller->handle_of(status.begun));
      (void)person.caller->poll();
      return;
    }
    Payment payment;
    const std::uint64_t half = random_.below(kHalves);
    const std::uint64_t first = half * (kAccounts / kHalves);
    payment.from = static_cast<std::uint32_t>(first + random_.below(kAccounts / kHalves));
    payment.to = static_cast<std::uint32_t>(first + random_.below(kAccounts / kHalves));
    payment.amount = static_cast<std::int64_t>(random_.below(100));
    std::vector<std::byte> payload(sizeof payment + more);
    std::memcpy(payload.data(), &payment, sizeof payment);
    person.bytes[status.begun + 1] = bytes;
    const auto handle = person.caller->call(kPay, payload, random_.below(8) == 0 ? 0 : 1 + half);
    ASSERT_TRUE(handle.ok()) << handle.error().message;
    ASSERT_EQ(handle->sequence, status.begun + 1);
    ++met_.calls;
    if (random_.below(4) != 0) return;
    const auto cancelled = person.caller->cancel(*handle);
    if (!cancelled.ok()) {
      ASSERT_EQ(cancelled.code(), ErrorCode::Busy) << cancelled.error().message;
      return;
    }
    person.cancelled.insert(handle->sequence);
    ++met_.cancelled;
  }

  /// Until a call has got there; false: the server has gone.
  bool drive(Person& person, const RpcHandle& handle, RpcLevel level) {
    held_up_ = held_up_ && level == RpcLevel::Durable;
    for (int round = 0; round < 300'000 && serving(); ++round) {
      if (level == RpcLevel::Applied) person.caller->want(handle);
      if (person.caller->reached(handle, level)) return true;
      const auto polled = person.caller->poll();
      if (!polled.ok()) {
        ADD_FAILURE() << polled.error().message;
        return false;
      }
      if (!person.caller->status().up) world_.pass(std::chrono::milliseconds(1));
    }
    EXPECT_FALSE(serving()) << "call " << handle.sequence << " never got there";
    return false;
  }

  void wait_for_one(Person& person) {
    const RpcClientStatus status = person.caller->status();
    if (status.begun == 0) return;
    const std::uint64_t least = status.begun - std::min<std::uint64_t>(status.begun - 1, 5);
    const RpcHandle handle =
        person.caller->handle_of(least + random_.below(status.begun - least + 1));
    const RpcLevel level = random_.below(2) == 0 ? RpcLevel::Durable : RpcLevel::Applied;
    const bool reached = drive(person, handle, level);
    note_told(person);
    if (!reached) return;
    ++(level == RpcLevel::Durable ? met_.durable : met_.applied);
    ASSERT_GE(person.told, handle.sequence);
    if (level == RpcLevel::Applied) check_reply(person, handle);
  }

  void note_told(Person& person) {
    person.told = std::max(person.told, person.caller->status().durable);
  }

  void check_reply(Person& person, const RpcHandle& handle) {
    const auto reply = person.caller->reply(handle, std::chrono::seconds(1));
    if (!reply.ok()) {  // an earlier process's, and not kept any more
      ASSERT_EQ(reply.code(), ErrorCode::NotFound) << reply.error().message;
      ASSERT_LE(handle.sequence, person.caller->status().earlier_durable);
      return;
    }
    ASSERT_EQ(reply->cancelled, person.cancelled.count(handle.sequence) != 0);
    if (reply->cancelled) return;
    ASSERT_FALSE(reply->refused);
    ASSERT_EQ(reply->bytes.size(), 8u);
    const std::uint64_t at = load<std::uint64_t>(reply->bytes.data());
    ASSERT_LT(at, bank_shape().data_bytes);
    const Line line = line_at(at);
    EXPECT_EQ(line.client, person.id);
    EXPECT_EQ(line.sequence, handle.sequence);
  }

  /// Sees all calls that were begun.
  void ask(Person& person) {
    if (!person.caller->status().up) return;
    const std::uint64_t begun = person.caller->status().begun;
    if (begun != 0 && !drive(person, person.caller->handle_of(begun), RpcLevel::Durable)) return;
    if (!serving() || !person.caller->status().up) return;
    held_up_ = false;
    const auto answer = person.caller->query(kBalance, {}, true, std::chrono::milliseconds(1));
    if (!answer.ok()) return;  // not in time, or lost: it may be asked again
    EXPECT_GE(load<std::uint64_t>(answer->data()) + person.cancelled.size(), begun);
    ++met_.queries;
  }

  /// The client's process dies.
  void die(Person& person) {
    note_told(person);
    met_.deaths += unapplied(person) ? 1 : 0;
    met_.resent += static_cast<int>(person.caller->status().resent);
    person.caller.reset();
  }

  const std::byte* data() const {
    return region_->bytes().data() + pmem::kPoolDataOffset + bank_shape().data_at();
  }
  Line line_at(std::uint64_t at) const {
    return {load<std::uint64_t>(data() + at), load<std::uint64_t>(data() + at + 8)};
  }

  /// By what is in the pool.
  void judge() {
    std::map<std::uint64_t, std::uint64_t> executed;  // by client: its last
    std::map<std::uint64_t, std::set<std::uint64_t>> sequences;
    for (std::uint64_t half = 0; half < kHalves; ++half) {
      std::map<std::uint64_t, std::uint64_t> in_this;  // by client: its last
      const auto lines = load<std::uint64_t>(data() + kCountsAt + 8 * half);
      ASSERT_LE(lines, kLines / kHalves);
      for (std::uint64_t line = 0; line < lines; ++line) {
        const Line each = line_at(line_of(half, line));
        ASSERT_GT(each.sequence, std::exchange(in_this[each.client], each.sequence))
            << "a call was executed twice, or out of order";
        ASSERT_TRUE(sequences[each.client].insert(each.sequence).second) << "twice";
      }
    }
    for (const auto& [client, all] : sequences) {
      std::uint64_t& last = executed[client];
      for (const std::uint64_t sequence : all) {
        skip_cancelled(client, last);
        ASSERT_EQ(sequence, ++last) << "a call was lost";
      }
    }
    for (Person& each : people_) {
      if (each.caller != nullptr) note_told(each);
      skip_cancelled(each.id, executed[each.id]);
      ASSERT_GE(executed[each.id], each.told) << each.name << ": a durable call was not executed";
      if (each.caller == nullptr) continue;
      ASSERT_LE(executed[each.id], each.caller->status().begun) << "a call that nobody made";
    }
    std::int64_t sum = 0;
    for (std::size_t account = 0; account < kAccounts; ++account) {
      sum += load<std::int64_t>(data() + 8 + 8 * account);
    }
    ASSERT_EQ(sum, 0) << "money was made or lost";
  }

  /// From the last call that is known of to the one before the next that is to be executed.
  void skip_cancelled(std::uint64_t client, std::uint64_t& last) const {
    for (const Person& each : people_) {
      while (each.id == client && each.cancelled.count(last + 1) != 0) ++last;
    }
  }

  /// In the end everything that living clients have begun is executed.
  void finish() {
    for (Person& each : people_) {
      if (each.caller == nullptr) continue;
      const std::uint64_t begun = each.caller->status().begun;
      if (begun != 0) {
        EXPECT_TRUE(drive(each, each.caller->handle_of(begun), RpcLevel::Applied));
      }
      EXPECT_EQ(each.caller->status().applied, begun);
      met_.resent += static_cast<int>(each.caller->status().resent);
    }
    judge();
  }

  Random random_;
  SeededSecrets secrets_;
  const ServerProfile profile_;
  const bool quick_;  // handlers
  const std::size_t threads_;
  Met& met_;
  fabric::emu::World world_{random_};
  const test::PassingClock clock_{world_.clock()};
  fabric::emu::Machine* machine_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<RpcHost> host_;
  bool held_up_ = false;  // calls are not executed, though there are any
  std::array<Person, kClients> people_;
};

TEST(RpcCrash, EachDurableCallIsExecutedOnceWhateverCrashes) {
  Met met;
  const auto profiles = rpc_profiles();
  const std::uint64_t worlds = test::rounds(40, 2000);
  for (std::uint64_t seed = 1; seed <= worlds && !testing::Test::HasFailure(); ++seed) {
    const ServerProfile& profile = profiles[seed % profiles.size()];
    SCOPED_TRACE(fmt::format("seed {}, {}", seed, describe(profile)));
    Bank(seed, profile, met).live(6);
  }
  std::printf(
      "calls %d, durable %d, applied %d, power cuts %d, kills %d, deaths %d, resent %d, inherited "
      "%d, queries %d, cancelled %d\n",
      met.calls, met.durable, met.applied, met.cuts, met.kills, met.deaths, met.resent,
      met.inherited, met.queries, met.cancelled);
  EXPECT_GT(met.calls, 500);
  EXPECT_GT(met.durable, 50);
  EXPECT_GT(met.applied, 50);
  EXPECT_GT(met.cuts, 20);
  EXPECT_GT(met.kills, 10);
  EXPECT_GT(met.deaths, 5);
  EXPECT_GT(met.resent, 5);
  EXPECT_GT(met.inherited, 5);
  EXPECT_GT(met.queries, 10);
  EXPECT_GT(met.cancelled, 5);
}

}  // namespace
}  // namespace perdure::rpc
