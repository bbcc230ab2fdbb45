// RpcWorld: durable RPC in a box. The real server (rpc/rpc_host.h) and clients (rpc/caller.h) on
// the emulated fabric, under one seed; a bank in the server's pool, what goes wrong with the
// server, its medium, its handlers, its clients and the links between them, and the judge beside
// them.
//
// The server has no threads of its own: a machine's actor pumps it. Worlds with several handler
// threads use them for what the contract says is independent, so the seed still says what happens.
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/caller.h"
#include "rpc/rpc_host.h"
#include "testing/torture/program_clock.h"
#include "testing/torture/rpc_judge.h"
#include "testing/torture/strike.h"

namespace perdure::test {

struct RpcMachines {
  /// To show that the judge would notice: in the end the pool lacks its last line, as if a call
  /// that was applied had never been.
  bool a_line_is_lost = false;
  /// The same: entries that are put into rings from outside lack nothing.
  bool an_entry_is_forged = false;
  /// The same: every call takes a second more.
  bool calls_are_late = false;
  bool operator==(const RpcMachines&) const = default;
};

/// The scenario of durable RPC: operations, faults and judge.
Scenario rpc_scenario(const RpcMachines& machines = {});

/// Threads: one.
class RpcWorld final : public World {
 public:
  RpcWorld(const WorldOptions& options, const RpcMachines& machines);
  ~RpcWorld() override;

  const std::vector<Operation>& operations() const override { return operations_; }
  const std::vector<Fault>& faults() const override { return faults_; }
  std::vector<Trait> traits() const override { return traits_; }
  const Judge& judge() const override { return judge_; }
  void reseed(std::uint64_t seed) override { random_ = Random(seed); }
  void finish() override;
  std::vector<Counter> counters() const override;

 private:
  /// Who has one name: the process that has it now, and maybe an older one that goes on.
  struct Person {
    fabric::emu::Machine* machine = nullptr;
    std::string name;
    std::uint32_t number = 0;
    std::unique_ptr<rpc::Caller> caller;
    std::unique_ptr<rpc::Caller> older;
    std::uint64_t older_id = 0;
    std::uint64_t older_knows = 0;  // calls that its successor has heard of
    std::uint64_t id = 0;
    /// Somebody may have opened the name and was not heard of again: so it may be fenced.
    bool contended = false;
  };
  enum class Ends { Cleanly, Killed, PowerCut };

  void add_operations();
  void add_calls();
  void add_waits();
  void add_lives();
  void add_operators();
  void add_malformed();
  void add_faults();
  void add_crashes();
  void add_handlers();
  void add_links();
  void add_media();
  void add(std::string name, std::uint32_t weight, std::function<void(Random&)> run);
  void add_strike(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                  std::function<void(Random&)> strike, std::function<void()> end);
  void add_lasting(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                   std::function<bool(Random&)> begin, std::function<bool()> met,
                   std::function<void()> end);

  // Clients: each opens if need be.
  using WithPerson = std::function<void(Person&, Random&)>;
  std::function<void(Random&)> with_person(WithPerson run);
  bool ensure_open(Person& person);
  bool open(Person& person);
  void note_told(Person& person);
  void note_error(Person& person, const Error& error, const char* what);
  RpcJudge::Made make_call(Random& choices, BankOperator operation, std::uint64_t bytes,
                           std::vector<std::byte>& payload);
  bool call(Person& person, Random& choices, BankOperator operation, std::uint64_t bytes);
  bool call_something(Person& person, Random& choices);
  void cancel_one(Person& person, Random& choices);
  void wait(Person& person, Random& choices, RpcLevel level, std::chrono::milliseconds timeout);
  void ask_reply(Person& person, std::uint64_t sequence, std::chrono::milliseconds timeout);
  void query(Person& person, Random& choices, bool own_calls, std::uint32_t answer_bytes);
  void end_process(Person& person);
  void come_twice(Person& person);
  void older_goes_on(Person& person, Random& choices);
  void bury_the_dead();
  std::unique_ptr<client::Peer> peer_of(const Person& person);
  void put_malformed_entry(Person& person, Random& choices);
  void send_malformed_requests(Person& person, Random& choices);
  Result<void> send_malformed(Person& person, Random& choices);

  // The server and its operator.
  void end_server(bool power);
  void kill_client(Random& choices);
  bool serving() const { return machine_->powered() && host_ != nullptr; }
  rpc::RpcHostOptions host_options();
  void stop(Ends how);
  Result<std::unique_ptr<rpc::RpcHost>> open_host(bool serves);
  void start();
  void restart(Ends how);
  void drain();
  void expire(Random& choices);
  void look_at_status(const RpcServerStatus& status);
  std::vector<RpcClientPlace> held() const;
  void decide(Random& choices, bool retry);
  Result<void> decide_offline(const std::string& name, std::uint64_t sequence, bool retry);
  void before_handler(const RpcCall& call);
  BankBytes bank() const;
  void look(bool recovered);
  void heal();
  bool finish_person(Person& person);
  /// Calls, and has the judge know if it took longer than `limit` and what coming back may take.
  template <typename Call>
  auto in_time(const char* what, Nanoseconds limit, const Call& call) {
    const Nanoseconds before = world_.clock().now();
    const bool was_slow = slow_;
    auto result = call();
    if (options_.calls_are_late) world_.tick(std::chrono::seconds(1));
    note_time(what, limit, world_.clock().now() - before, was_slow);
    return result;
  }
  void note_time(const char* what, Nanoseconds limit, Nanoseconds took, bool was_slow);
  template <typename... Arguments>
  void tell(fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    if (tell_) tell_(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  static constexpr std::chrono::milliseconds kServerTimeout{100};
  static constexpr std::size_t kPersons = 5;  // one more than the server has places

  const RpcMachines options_;
  const std::function<void(const std::string&)> tell_;
  Random random_;
  SeededSecrets secrets_{random_};
  fabric::emu::World world_{random_};
  ProgramClock clock_{world_};
  std::vector<Operation> operations_;
  std::vector<Fault> faults_;
  std::vector<Trait> traits_;
  RpcJudge judge_;
  ServerProfile profile_;
  rpc::PoolShape shape_;
  RpcJudge::Rules rules_;
  std::size_t handler_threads_ = 1;
  std::uint32_t slow_from_percent_ = 100;
  bool quick_ = false;
  bool newer_ = true;  // the server has a handler for BankOperator::Newer
  fabric::emu::Machine* machine_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<rpc::RpcHost> host_;
  std::array<Person, kPersons> persons_;
  std::uint64_t last_ticket_ = 0;
  std::uint64_t life_ = 0;  // of the server
  bool expiring_ = false;   // clients may lose their places, since the server was asked to

  // What goes wrong just now.
  bool armed_ = false;  // a strike waits for its instant
  bool stuck_ = false;  // a handler does not return
  bool slow_ = false;
  std::optional<std::uint32_t> throws_for_;  // handlers, of this person's calls
  std::optional<std::uint32_t> dies_for_;    // and the server, of those without an order key
  std::uint64_t recovery_cuts_ = 0;          // that are to come
  std::mutex handlers_;                      // guards what follows, and the judge, in a handler
  std::uint64_t thrown_ = 0;
  std::uint64_t died_ = 0;
  std::uint64_t slowed_ = 0;

  std::map<std::string, std::uint64_t> counts_;
};

}  // namespace perdure::test
