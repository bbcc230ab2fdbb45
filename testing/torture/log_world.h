// LogWorld: the users of a replicated log, what they do, and the log's judge beside them. On which
// machines, and what goes wrong with these, others say: emulated_log_world.h (whole clusters in one
// thread, where a seed is a history) and real_log_world.h (perdured processes).
//
// Damage is kept within what the contract bears: never are more replicas destroyed or damaged at a
// time than leaves every committed record on one that is whole and enough of them to vote. (One
// world in 32 goes beyond; there only what holds without any replica is judged. So does one in
// which replicas were being replaced when their writer died, once that makes them too many: it
// counts as `beyond_later`. A world may end with a log that is refused since replicas look damaged
// that are not: then it must open with accept_loss, and nothing is lost; `looked_damaged`.)
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/remote_bytes.h"
#include "log/committed_reader.h"
#include "log/replicated_log.h"
#include "testing/torture/log_judge.h"
#include "testing/torture/torture.h"

namespace perdure::test {

/// The pool of the log, on every machine.
inline const std::string kLogPool = "log";

/// A reader of one replica, from the oldest record on.
class WorldReader {
 public:
  static Result<std::unique_ptr<WorldReader>> open(std::unique_ptr<client::Peer> peer,
                                                   Nanoseconds within, const Clock& clock,
                                                   bool uncommitted = false);
  /// The next data record, or nothing at the end for now. Errors: those of LogReader::next.
  Result<std::optional<ReadRecord>> next();

  std::uint64_t trimmed_before = 0;  // what the judge said when it was opened
  std::size_t replica = 0;
  bool current = false;  // the newest writer called that replica up then
  bool foreign = false;  // another log was there

 private:
  std::unique_ptr<client::Peer> peer_;
  std::unique_ptr<client::RemoteBytes> bytes_;
  std::optional<log::CommittedReader> reader_;
};

/// Threads: one.
class LogWorld : public World {
 public:
  const std::vector<Operation>& operations() const override { return operations_; }
  const std::vector<Fault>& faults() const override { return faults_; }
  const Judge& judge() const override { return judge_; }
  void reseed(std::uint64_t seed) override;
  void finish() override;
  std::vector<Counter> counters() const override;

 protected:
  /// How patient users are, in the time of this world.
  struct Patience {
    Nanoseconds replica_timeout;  // a replica that does not answer for this long is given up
    Nanoseconds ask;              // for one question to a peer
    Nanoseconds read;             // for one read of a replica
    Nanoseconds commit;           // in the end, when everything is repaired
    bool judged = true;  // whether calls must keep their deadlines; false: their time is not ours
  };
  static constexpr std::size_t kPrograms = 3;

  std::optional<Primary> primary_;  // that every writer asks for

  explicit LogWorld(const WorldOptions& options);
  /// To be called once, with as many machines as there are: the first replicas of the log, and
  /// whether more is damaged than the log bears.
  void begin(std::size_t machines, std::size_t replicas, std::size_t quorum, LogShape shape,
             bool beyond);
  /// To be called before the machines are gone.
  void end();

  // Machines that serve a pool each.
  virtual const std::string& name_of(std::size_t machine) const = 0;  // as their peers call them
  virtual const pmem::Uuid& pool_of(std::size_t machine) const = 0;
  virtual bool runs(std::size_t machine) const = 0;
  virtual void stop(std::size_t machine) = 0;
  /// Starts it anew, whether it runs or not, with what it kept, a blank pool, or a copy of that of
  /// another; the medium is as good as new. Errors: those of attaching and serving the pool.
  virtual Result<void> start_again(std::size_t machine) = 0;
  virtual Result<void> start_with_blank(std::size_t machine) = 0;
  virtual Result<void> start_with_copy(std::size_t machine, std::size_t from) = 0;
  /// What it holds, from the pool's data on; until the next call of any of these.
  virtual std::span<const std::byte> data_of(std::size_t machine) const = 0;
  /// Whether this is there after the worst that may happen to the machine alone; where the data are
  /// usually, or anywhere.
  virtual bool keeps(std::size_t machine, std::uint64_t at,
                     std::span<const std::byte> bytes) const = 0;
  virtual void flip_bit(std::size_t machine, std::uint64_t at, unsigned bit) = 0;

  // Programs and the reader.
  virtual std::string program_name(std::size_t program) const = 0;
  virtual bool program_runs(std::size_t program) const = 0;
  virtual void start_program(std::size_t program) = 0;
  virtual bool reader_runs() const = 0;
  virtual void start_reader() = 0;
  virtual std::unique_ptr<client::Peer> peer_for(std::size_t program, std::size_t machine) = 0;
  virtual std::unique_ptr<client::Peer> peer_for_reader(std::size_t machine) = 0;

  // Time and disturbances.
  virtual const Clock& clock() const = 0;       // as programs see it
  virtual const Clock& true_clock() const = 0;  // as it is
  Nanoseconds now() const { return true_clock().now(); }
  virtual void pass(Nanoseconds time) = 0;
  virtual Patience patience() const = 0;
  /// Whether every request of a program is answered, unless something stops in the midst of it.
  virtual bool undisturbed() const = 0;
  /// All faults are over.
  virtual void calm() = 0;
  /// Called after each operation.
  virtual void look_around() {}

  /// A record that its writer does not know to be committed.
  struct Pending {
    Ticket ticket;
    std::uint64_t salt = 0;  // of its content
    std::uint64_t bytes = 0;
    bool superseded = false;  // another writer had opened the log before it was appended
  };
  /// What may open a log, and the log while it has it open.
  struct Program {
    std::unique_ptr<log::ReplicatedLog> log;
    LogJudge::Writer writer = 0;
    std::vector<Pending> pending;
  };
  /// Whether somebody may have read a replica when it was damaged, and go on by that.
  enum class Struck : std::uint8_t {
    No,
    Down,    // a writer that is bringing it back, in calls before
    InCall,  // whoever is reading it now
  };
  struct Replica {
    bool off = false;  // killed, or without power: to be started again
    bool bad = false;  // damaged, and not brought to equal since
    Struck struck = Struck::No;
    bool foreign = false;  // it holds another log: what a reader of it alone returns is that
  };
  /// What the operator takes for the replicas of the log.
  struct Members {
    std::vector<pmem::Uuid> pools;
    std::size_t quorum = 0;
    bool operator==(const Members&) const = default;
  };
  struct OpenChoices {
    std::vector<std::size_t> replicas;
    std::size_t quorum = 0;
    bool take_over = true;
    bool accept_loss = false;
    bool partial = false;
    bool create = false;
  };

  // What users do: log_world_operations.cc.
  void add_operations();
  void append(Random& choices);
  void wait(Random& choices, Level level);
  void poll(Random& choices);
  void poll_once(Program& program);
  void trim(Random& choices);
  void trim_all(Random& choices);
  void wrap(Random& choices);
  void close(Random& choices);
  void reopen(Random& choices);
  void take_over(Random& choices);
  void second_writer(Random& choices);
  void older_writer(Random& choices);
  void repair(Random& choices);
  void reconnect(Random& choices);
  void replace_blank(Random& choices);
  void copy_pool(Random& choices);
  void foreign_pool(Random& choices);
  void add_replica(Random& choices);
  void remove_replica(Random& choices);
  void replace_replica(Random& choices);
  void change_quorum(Random& choices);
  void accept_loss(Random& choices);
  void follow(Random& choices);
  bool follow_some(Random& choices);
  void read_all(Random& choices);
  void reopen_others(Random& choices);
  void fence(Random& choices);

  // What goes wrong, as far as it is the same everywhere.
  void add_lasting(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                   std::function<bool(Random&)> begin, std::function<void()> end);
  bool flip_somewhere(Random& choices);
  void start_what_is_off();
  void bury_dead_programs();

  bool open(Program& program, const OpenChoices& choices, Random& random);
  OpenChoices open_choices(const Members& members) const;
  bool open_as_known(Program& program, Random& random, bool accept_loss = false);
  void expect_refusal(const OpenChoices& choices, Random& random, std::string_view why);
  log::WriterOptions writer_options(const OpenChoices& choices, Random& random);
  bool is_current(std::size_t index);
  std::uint64_t ring_bytes() { return newest().log ? newest().log->status().ring_bytes : 0; }
  Program& newest();
  Program& other_program();
  bool ensure_open(Random& random);
  std::optional<Ticket> append_to(Program& program, std::size_t bytes, Random& choices);
  bool wait_on(Program& program, Pending pending, Level level, Nanoseconds timeout);
  void note_committed(Program& program);
  void trim_to(Program& program, Lsn lsn);
  void note_repairs(const std::vector<RepairReport>& reports);
  void verify(Program& program, bool all);
  void verify_brought(std::size_t replica);
  std::optional<std::vector<ReadRecord>> read_all_of(std::size_t replica, bool uncommitted);
  void check_durable(const Program& program, const Pending& pending, std::size_t copies);
  void finish_open();
  void finish_members();
  void finish_use();

  // Who is a replica, and what of them may be lost: log_world_members.cc.
  static bool has(const Members& members, const pmem::Uuid& pool);
  std::optional<std::size_t> server_of(const pmem::Uuid& pool) const;
  std::optional<std::size_t> server_named(const std::string& name) const;
  bool is_marked(std::size_t replica) const;
  bool is_lost(const pmem::Uuid& pool) const;
  std::size_t lost_of(const Members& members) const;
  bool bears(const Members& members) const;
  bool looks_damaged(std::size_t replica) const;
  bool too_many_look_damaged() const;
  bool may_spoil(std::size_t replica) const;
  void note_beyond();
  bool is_named(std::size_t replica) const;
  std::vector<std::size_t> strangers() const;
  Members members_of(const Program& program) const;
  Members changed(const Members& before, std::size_t count) const;
  bool may_change(const Members& next, Random& choices);
  void note_change(const Result<void>& outcome, const Members& next, std::string_view what);
  std::optional<pmem::Uuid> dead_member(const Members& members) const;
  bool replace_member(const pmem::Uuid& which, std::size_t by);
  void heal(const Program& program);
  void spoil(std::size_t replica);
  void note_equal(std::size_t replica, Struck unless);
  void start(std::size_t replica);
  void start_blank(std::size_t replica);
  std::string name(const Program& program) const { return program_name(index_of(program)); }
  std::size_t index_of(const Program& program) const {
    return static_cast<std::size_t>(&program - programs_.data());
  }
  bool unacknowledged() const;
  std::vector<std::byte> content(std::uint64_t salt, std::size_t bytes) const;
  template <typename... Arguments>
  void tell(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (options_.tell) {
      options_.tell("       " + fmt::format(format, std::forward<Arguments>(arguments)...));
    }
  }
  void tell_outcome(std::string_view what, const Result<void>& outcome);

  const WorldOptions options_;
  Random random_;  // what a world draws by itself
  LogJudge judge_;
  std::vector<Operation> operations_;
  std::vector<Fault> faults_;

  LogShape shape_ = LogShape::Singleton;
  /// What the operator believes, the likeliest first: several while a change has no answer.
  std::vector<Members> known_;
  bool beyond_ = false;
  bool beyond_later_ = false;
  std::uint64_t looked_damaged_ = 0;  // worlds that ended with a log refused for that
  std::vector<Replica> replicas_;
  std::vector<Program> programs_;
  std::unique_ptr<WorldReader> follower_;
  std::size_t newest_ = 0;  // of programs_: the last that opened the log
  std::uint64_t salt_ = 0;
  std::string refusal_;  // of the last opening that failed
  ErrorCode refusal_code_ = ErrorCode::SystemError;

  std::atomic<bool> in_call_ = false;  // the log is working on something that changes it
  std::uint64_t opened_ = 0;
  std::uint64_t appended_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t verified_ = 0;
  std::uint64_t changes_ = 0;  // of replicas or quorum
};

}  // namespace perdure::test
