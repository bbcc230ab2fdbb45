// Durable RPC as a small machine: two clients of two calls each, their rings, a server with its
// redo log, and everything that may end at any step. What it leaves out: payloads, the table of
// clients, calls that fail, more than one call in a transaction.
//
// Lines of memory are visible or durable, and may become durable by themselves at any step. The
// power's failure leaves what is durable; the death of a process leaves what is visible.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace perdure::model {

inline constexpr std::size_t kRpcClients = 2;
inline constexpr std::uint8_t kRpcCalls = 2;  // of each client

/// Known unsafe variants.
enum class RpcMutant : std::uint8_t {
  Right,
  ReplyBeforeFlush,       // durable is said when the call is visible
  ZeroByteRead,           // a READ of no bytes as flush: it waits for nothing
  SlotReusedAfterFlush,   // a place of the ring is written again when its call is durable
  MarkBeforeEffects,      // no redo record: the mark is durable, then the effects are stored
  EffectsBeforeMark,      // no redo record: the effects are durable, then the mark is stored
  RecordStoredAtOnce,     // effects are stored before their record is durable
  StoresAreNotFlushed,    // a commit makes only its record durable, not what the last one stored
  RecoveryTrustsVisible,  // a record that is only visible is stored, in recovery
  AppliedBeforeCommit,    // applied is said before the record is durable
  OlderGenerationTaken,   // an entry of a process that died is taken behind one of a later process
};

enum class RpcLaw : std::uint8_t {
  None,
  DurableIsApplied,  // a call that was reported durable is executed, without its client
  NoneTwice,
  AppliedIsKept,  // what was reported applied is durable
  InOrder,
};

struct RpcBounds {
  std::uint8_t slots = 1;    // of each ring
  std::uint8_t crashes = 2;  // of power, server, client or connection
  bool power = true;
  bool deaths = true;  // of processes, and lost connections
};

class RpcModel {
 public:
  struct Line {
    std::uint8_t visible = 0;
    std::uint8_t durable = 0;
  };
  struct Record {
    std::uint16_t visible = 0;
    std::uint16_t durable = 0;
  };
  /// Calls are (sequence, generation of the process), as 4 * sequence + generation.
  struct Client {
    std::array<Line, kRpcCalls> body{};                  // by slot
    std::array<Line, kRpcCalls> word{};                  // by slot
    Line mark;                                           // the last call that is applied
    std::array<Line, kRpcCalls> effects{};               // by sequence: 4 * times + generation
    std::array<std::uint8_t, kRpcCalls> wire{};          // by sequence: how far it is written
    std::array<std::uint8_t, kRpcCalls> writer{};        // by sequence: the generation of who does
    std::array<std::uint8_t, kRpcCalls> told_durable{};  // by sequence: the generation
    std::array<std::uint8_t, kRpcCalls> told_applied{};
    std::uint8_t generation = 1;
    std::uint8_t begun = 0;
    std::uint8_t durable = 0;
    std::uint8_t applied = 0;
    std::uint8_t connected = 0;
  };
  struct State {
    std::array<Client, kRpcClients> clients{};
    std::array<Record, 2> records{};  // 256 * number + 32 * times + 16 * client + call, or torn
    std::uint16_t record = 0;         // of the transaction that runs
    std::uint8_t stage = 0;           // of the server
    std::uint8_t number = 0;          // of the last transaction
    std::uint8_t crashes = 0;
  };
  enum class Action : std::uint8_t {
    Connect,
    Begin,
    Write,
    TellDurable,
    TellApplied,
    Execute,
    Transact,
    Recover,
    Drain,
    PowerFails,
    ServerDies,
    ClientDies,
    ConnectionLost,
  };
  using Law = RpcLaw;
  struct Step {
    State state;
    Action action = Action::Connect;
    std::uint8_t client = 0;
    Law broken = Law::None;
  };

  RpcModel(const RpcBounds& bounds, RpcMutant mutant) : bounds_(bounds), mutant_(mutant) {}

  /// A server that was opened for the first time, and clients that nobody knows.
  static State first();
  static std::uint64_t key(const State& state);
  void steps(const State& state, std::vector<Step>& out);
  /// What would be left if the power failed now, or the server died, and nobody came back.
  Law check(const State& state) const;

  static std::string describe(const Step& step);
  std::uint64_t taken(Action action) const { return taken_[static_cast<std::size_t>(action)]; }

 private:
  void put(std::vector<Step>& out, const State& next, Action action, std::size_t client = 0);
  void client_steps(const State& state, std::size_t which, std::vector<Step>& out);
  void write_steps(const State& state, std::size_t which, std::vector<Step>& out);
  void server_steps(const State& state, std::vector<Step>& out);
  void drain_steps(const State& state, std::vector<Step>& out);
  void crash_steps(const State& state, std::vector<Step>& out);
  void connect(Client& client) const;
  std::uint8_t next_call(const Client& client) const;
  std::uint8_t entry_at(const Client& client, std::uint8_t sequence, std::uint8_t generation) const;
  bool may_execute(const State& state, std::size_t which) const;
  void begin_transaction(State& state, std::size_t which) const;
  void go_on(State& state) const;
  void commit(State& state) const;
  Law judge(State state) const;
  bool has_records() const {
    return mutant_ != RpcMutant::MarkBeforeEffects && mutant_ != RpcMutant::EffectsBeforeMark;
  }

  const RpcBounds bounds_;
  const RpcMutant mutant_;
  std::array<std::uint64_t, 16> taken_{};
};

}  // namespace perdure::model
