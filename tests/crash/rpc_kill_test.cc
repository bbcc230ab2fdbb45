// A bank of real processes: an RPC server and four tellers, killed with SIGKILL at random instants
// under traffic, over tcp and shm, with one handler thread and with several. The judge reads what
// the handlers have left in the pool's file: each call that a teller was told to be durable is
// there once, none twice, each teller's in order, and the accounts add up. The pool is on tmpfs,
// declared to survive: a killed process loses no memory of the machine, so what is tested is the
// protocol and the recovery, not a medium.
//
// The bank has branches, each with accounts and a journal of its own. With several handler threads
// there are several, and a transfer's order key is its branch: so transfers of two branches are
// executed at the same time, and those of one are not.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <perdure/rpc.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/text_file.h"
#include "core/try.h"
#include "rpc/rpc_pool.h"
#include "testing/process.h"
#include "testing/soak.h"
#include "testing/temporary_directory.h"

namespace perdure {
namespace {

constexpr std::uint32_t kTransfer = 1;
constexpr std::uint32_t kDie = 2;  // ends the server's process
constexpr std::size_t kTellers = 4;
constexpr std::uint64_t kAccounts = 64;
constexpr std::uint64_t kJournal = 4096;  // of a branch, behind its accounts
constexpr std::uint64_t kBranchBytes = 64 * 1024 * 1024;
constexpr std::uint64_t kLinesMax = (kBranchBytes - kJournal) / 16;
constexpr std::uint64_t kInFlight = 8;
constexpr std::uint64_t kBranchesMax = 4;
constexpr std::uint64_t kDoomedKey = kBranchesMax + 1;  // beside every branch

struct Transfer {
  std::uint64_t branch = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::int64_t amount = 0;
};

struct Booked {
  std::uint64_t teller = 0;
  std::uint64_t sequence = 0;
};

/// How the bank's processes are connected, and by how many threads calls are executed.
struct Bank {
  Transport transport = Transport::Tcp;
  std::uint32_t threads = 1;
  std::uint64_t kills = 16;  // of a short run

  std::uint64_t branches() const { return threads > 1 ? kBranchesMax : 1; }
  std::string name() const { return fmt::format("{}{}", to_string(transport), threads); }
};
constexpr std::array<Bank, 4> kBanks = {{
    {Transport::Tcp, 1, 16},
    {Transport::Tcp, 4, 8},
    {Transport::Shm, 1, 8},
    {Transport::Shm, 4, 8},
}};

/// What a process of the bank is told on its command line.
std::optional<Bank> bank_named(const std::string& name) {
  for (const Bank& bank : kBanks) {
    if (bank.name() == name) return bank;
  }
  return std::nullopt;
}

std::string teller_name(std::size_t teller) { return fmt::format("teller-{}", teller); }

Result<std::size_t> transfer(const RpcCall& call, RpcTransaction& data,
                             std::span<std::byte> reply) {
  Transfer asked;
  if (call.payload.size() != sizeof asked) return Error{ErrorCode::InvalidArgument, "size"};
  std::memcpy(&asked, call.payload.data(), sizeof asked);
  const std::uint64_t at = asked.branch * kBranchBytes;
  PERDURE_TRY(line, data.load<std::uint64_t>(at));
  if (line == kLinesMax) return Error{ErrorCode::NoSpace, "the journal is full"};
  PERDURE_TRY(from, data.load<std::int64_t>(at + 8 + 8 * asked.from));
  PERDURE_TRY_VOID(data.store(at + 8 + 8 * asked.from, from - asked.amount));
  PERDURE_TRY(to, data.load<std::int64_t>(at + 8 + 8 * asked.to));
  PERDURE_TRY_VOID(data.store(at + 8 + 8 * asked.to, to + asked.amount));
  const auto teller = static_cast<std::uint64_t>(call.client.back() - '0');
  const Booked booked{teller, call.sequence};
  PERDURE_TRY_VOID(data.store(at + kJournal + line * sizeof booked, booked));
  PERDURE_TRY_VOID(data.store(at, line + 1));
  store(reply.data(), line);
  return sizeof line;
}

/// The server process: serves until it is killed, at the address of its first life.
int serve(const Bank& bank, const std::string& directory) {
  const std::string address_file = directory + "/address";
  RpcServerOptions options;
  options.pool = directory + "/bank.pool";
  options.data_bytes = bank.branches() * kBranchBytes;
  options.clients_max = kTellers + 1;
  options.ring_bytes = 64 * 1024;
  options.replies = 32;
  options.declared = PersistenceDomain::Wsp;
  options.handlers[kTransfer] = transfer;
  options.handlers[kDie] = [](const RpcCall&, RpcTransaction&,
                              std::span<std::byte>) -> Result<std::size_t> {
    ::raise(SIGKILL);
    return std::size_t{0};
  };
  options.listen = "127.0.0.1:0";
  options.data_listen = "127.0.0.1:0";
  options.transports = {bank.transport};
  options.handler_threads = bank.threads;
  if (const std::string before = read_text(address_file); !before.empty()) options.listen = before;
  auto server = RpcServer::open(options);
  if (!server.ok()) {
    std::printf("error: %s\n", server.error().message.c_str());
    return 1;
  }
  if (std::FILE* file = std::fopen((address_file + ".part").c_str(), "w")) {
    std::fputs(server->address().c_str(), file);
    std::fclose(file);
    std::filesystem::rename(address_file + ".part", address_file);
  }
  std::printf("serving\n");
  std::fflush(stdout);
  for (;;) ::pause();
}

/// A teller: says on standard output what it was told, "durable N" or "applied N".
int tell(const Bank& bank, const std::string& address, std::size_t teller) {
  RpcClientOptions options;
  options.server = address;
  options.name = teller_name(teller);
  options.transport = bank.transport;
  options.measure_costs = false;
  options.reconnect = std::chrono::milliseconds(5);
  options.spin = std::chrono::microseconds(0);
  const Deadline end = Deadline::after(std::chrono::minutes(test::soak() ? 60 : 3));
  std::optional<RpcClient> client;
  while (!client && !end.passed()) {
    auto opened = RpcClient::open(options);
    if (opened.ok()) client.emplace(std::move(*opened));
    if (!client) test::pause_for(std::chrono::milliseconds(10));
  }
  Random random(random_secret());
  const auto say = [](const char* word, std::uint64_t sequence) {
    std::printf("%s %llu\n", word, static_cast<unsigned long long>(sequence));
    std::fflush(stdout);
  };
  say("durable", client->status().earlier_durable);
  while (!end.passed()) {
    RpcHandle last;
    for (std::uint64_t call = 0; call < 1 + random.below(kInFlight); ++call) {
      const Transfer asked{random.below(bank.branches()),
                           static_cast<std::uint32_t>(random.below(kAccounts)),
                           static_cast<std::uint32_t>(random.below(kAccounts)),
                           static_cast<std::int64_t>(random.below(1000))};
      const std::uint64_t key = bank.threads > 1 ? asked.branch + 1 : 0;
      const auto handle = client->call(kTransfer, bytes_of(asked), key);
      if (!handle.ok() && handle.code() == ErrorCode::QueueFull) break;
      if (!handle.ok()) {
        std::printf("error: %s\n", handle.error().message.c_str());
        return 1;
      }
      last = *handle;
    }
    if (last.sequence == 0) continue;
    const RpcLevel level = random.below(2) == 0 ? RpcLevel::Durable : RpcLevel::Applied;
    const auto waited = client->wait(last, level, std::chrono::seconds(20));
    if (!waited.ok()) {
      std::printf("error: %s\n", waited.error().message.c_str());
      return 1;
    }
    if (level == RpcLevel::Applied) {
      const auto reply = client->reply(last);
      if (!reply.ok() || reply->refused) {
        std::printf("error: call %llu was refused\n",
                    static_cast<unsigned long long>(last.sequence));
        return 1;
      }
    }
    say(std::string(to_string(level)).c_str(), last.sequence);
  }
  return 0;
}

class RpcKill : public testing::TestWithParam<Bank> {
 protected:
  void SetUp() override {
    auto directory = test::TemporaryDirectory::make("/dev/shm");
    ASSERT_TRUE(directory.ok()) << directory.error().message;
    directory_.emplace(std::move(*directory));
    start_server();
    if (HasFatalFailure()) return;
    address_ = read_text(directory_->path() + "/address");
    ASSERT_FALSE(address_.empty());
    for (std::size_t teller = 0; teller < kTellers; ++teller) start_teller(teller);
  }

  void start_server() {
    try_to_start_server();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(server_.running()) << read_text(output_of_server());
  }
  /// It may end before it serves.
  void try_to_start_server() {
    ++starts_;
    auto server = test::ChildProcess::start(
        {"/proc/self/exe", "--serve", GetParam().name(), directory_->path()}, output_of_server());
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    const Deadline end = Deadline::after(std::chrono::seconds(60));
    while (read_text(output_of_server()).find("serving") == std::string::npos) {
      if (!server_.running()) return;
      ASSERT_FALSE(end.passed()) << "the server does not start: " << read_text(output_of_server());
      test::pause_for(std::chrono::milliseconds(5));
    }
  }
  std::string output_of_server() const {
    return fmt::format("{}/server{}", directory_->path(), starts_);
  }

  void start_teller(std::size_t teller) {
    auto started = test::ChildProcess::start(
        {"/proc/self/exe", "--tell", GetParam().name(), address_, std::to_string(teller)},
        output_of(teller));
    ASSERT_TRUE(started.ok()) << started.error().message;
    tellers_[teller] = std::move(*started);
  }

  std::string output_of(std::size_t teller) const {
    return fmt::format("{}/teller{}", directory_->path(), teller);
  }
  /// The highest sequence that the teller, in all its lives, was told to be durable.
  std::uint64_t told(std::size_t teller) {
    const std::string text = read_text(output_of(teller));
    std::uint64_t most = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      if (end == std::string::npos) break;  // it was killed as it wrote
      const std::string line = text.substr(at, end - at);
      EXPECT_EQ(line.find("error"), std::string::npos) << line;
      const std::size_t space = line.find(' ');
      if (space != std::string::npos && line.find("error") == std::string::npos) {
        most = std::max<std::uint64_t>(most, std::stoull(line.substr(space + 1)));
      }
      at = end + 1;
    }
    return most;
  }

  /// Everything is killed; the server executes what is left, and is killed too. Then the file.
  void judge() {
    for (auto& teller : tellers_) teller.kill();
    server_.kill();
    start_server();
    if (HasFatalFailure()) return;
    server_.kill();
    auto opened = pmem::Pool::open(directory_->path() + "/bank.pool", {});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    auto recovered = rpc::RpcPool::open(std::move(*opened), {});
    ASSERT_TRUE(recovered.ok()) << recovered.error().message;
    const std::uint64_t data_at = (*recovered)->window(0).at - (*recovered)->shape().window_at(0) +
                                  (*recovered)->shape().data_at();
    const std::byte* const data = (*recovered)->region().bytes().data() + data_at;
    for (std::uint64_t branch = 0; branch < GetParam().branches(); ++branch) {
      audit(data + branch * kBranchBytes);
      if (HasFatalFailure()) return;
    }
    for (std::size_t teller = 0; teller < kTellers; ++teller) {
      auto& executed = executed_[teller];
      std::sort(executed.begin(), executed.end());
      for (std::size_t call = 0; call < executed.size(); ++call) {
        ASSERT_EQ(executed[call], call + 1) << "a call was lost or executed twice";
      }
      EXPECT_GE(executed.size(), told(teller))
          << teller_name(teller) << ": a durable call was not executed";
    }
  }

  /// What a branch's journal and accounts say.
  void audit(const std::byte* branch) {
    const auto lines = load<std::uint64_t>(branch);
    ASSERT_LE(lines, kLinesMax);
    std::array<std::uint64_t, kTellers> last{};
    for (std::uint64_t line = 0; line < lines; ++line) {
      const std::byte* const at = branch + kJournal + line * sizeof(Booked);
      const auto teller = load<std::uint64_t>(at);
      const auto sequence = load<std::uint64_t>(at + 8);
      ASSERT_LT(teller, kTellers);
      ASSERT_GT(sequence, last[teller]) << "a call was executed twice or out of order";
      last[teller] = sequence;
      executed_[teller].push_back(sequence);
    }
    std::int64_t sum = 0;
    for (std::uint64_t account = 0; account < kAccounts; ++account) {
      sum += load<std::int64_t>(branch + 8 + 8 * account);
    }
    EXPECT_EQ(sum, 0) << "money was made or lost";
  }
  std::uint64_t executed() const {
    std::uint64_t calls = 0;
    for (const auto& each : executed_) calls += each.size();
    return calls;
  }

  std::optional<test::TemporaryDirectory> directory_;
  test::ChildProcess server_;
  std::array<test::ChildProcess, kTellers> tellers_;
  std::string address_;
  int starts_ = 0;
  std::array<std::vector<std::uint64_t>, kTellers> executed_;  // sequences
};

TEST_P(RpcKill, EachDurableCallIsExecutedOnceWhoeverIsKilled) {
  Random random(20261123);
  const std::uint64_t kills = test::rounds(GetParam().kills, 500);
  for (std::uint64_t kill = 0; kill < kills; ++kill) {
    // Once there is traffic, at a random instant of it.
    const std::size_t watched = random.below(kTellers);
    const std::uint64_t before = told(watched);
    const Deadline end = Deadline::after(std::chrono::seconds(30));
    while (told(watched) < before + 3) {
      ASSERT_FALSE(end.passed()) << "no call got there: " << read_text(output_of(watched));
      ASSERT_TRUE(server_.running());
      test::pause_for(std::chrono::milliseconds(2));
    }
    test::pause_for(std::chrono::microseconds(random.below(20'000)));
    const std::uint64_t what = random.below(5);
    if (what != 0) server_.kill();
    const std::size_t victim = random.below(kTellers);
    if (what <= 1) tellers_[victim].kill();
    if (what != 0) start_server();
    if (HasFatalFailure()) return;
    if (what <= 1) start_teller(victim);
  }
  judge();
  EXPECT_GT(executed(), 100u);
  std::printf("%llu kills, %llu calls executed\n", static_cast<unsigned long long>(kills),
              static_cast<unsigned long long>(executed()));
}

// One call takes its server with it, in traffic and in each recovery. Expect: after as many ends as
// attempts, and one that cannot be told from calls beside it, it is set aside, its client is told,
// and the tellers go on.
TEST_P(RpcKill, ACallThatKillsItsServerEachTimeIsSetAsideAndOthersGoOn) {
  RpcClientOptions options;
  options.server = address_;
  options.name = "doomed";
  options.transport = GetParam().transport;
  options.measure_costs = false;
  options.reconnect = std::chrono::milliseconds(5);
  auto doomed = RpcClient::open(options);
  ASSERT_TRUE(doomed.ok()) << doomed.error().message;
  const auto call = doomed->call(kDie, {}, GetParam().threads > 1 ? kDoomedKey : 0);
  ASSERT_TRUE(call.ok()) << call.error().message;
  const Deadline end = Deadline::after(std::chrono::seconds(60));
  while (server_.running()) {
    ASSERT_FALSE(end.passed()) << "the call is not executed";
    (void)doomed->poll();
    test::pause_for(std::chrono::milliseconds(1));
  }
  int ends = 1;
  for (try_to_start_server(); !server_.running() && ends < 10; try_to_start_server()) {
    ASSERT_FALSE(HasFatalFailure());
    ++ends;
  }
  EXPECT_GE(ends, 3);
  EXPECT_LE(ends, 4);
  ASSERT_TRUE(server_.running());
  EXPECT_EQ(doomed->wait(*call, RpcLevel::Applied).code(), ErrorCode::Busy);
  EXPECT_TRUE(doomed->wait(*call, RpcLevel::Durable).ok());
  for (std::size_t teller = 0; teller < kTellers; ++teller) {
    const std::uint64_t before = told(teller);
    const Deadline until = Deadline::after(std::chrono::seconds(30));
    while (told(teller) < before + 3) {
      ASSERT_FALSE(until.passed()) << "no call got there: " << read_text(output_of(teller));
      test::pause_for(std::chrono::milliseconds(2));
    }
  }
  judge();
}

INSTANTIATE_TEST_SUITE_P(Banks, RpcKill, testing::ValuesIn(kBanks),
                         [](const auto& bank) { return bank.param.name(); });

}  // namespace
}  // namespace perdure

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto bank = arguments.size() < 2 ? std::nullopt : perdure::bank_named(arguments[1]);
  if (bank && arguments.size() == 3 && arguments[0] == "--serve") {
    return perdure::serve(*bank, arguments[2]);
  }
  if (bank && arguments.size() == 4 && arguments[0] == "--tell") {
    return perdure::tell(*bank, arguments[2], std::stoul(arguments[3]));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
