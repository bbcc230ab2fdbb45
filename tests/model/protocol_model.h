// The protocol of the replicated log as a model: what writers, replicas and faults can do, one step
// at a time, and the laws that must hold whatever they do. docs/log-protocol.md is what it follows,
// and log/replica_set.h, the product's own code, takes its decisions: whose history is chosen, who
// votes, which configurations are in play, and what is committed.
//
// Work on one replica is one step that may be cut short after any of its writes; work on several is
// one step, because a replica that does not get its part was lost before. Who is unreachable is
// never remembered: each step is taken with some of the replicas, and an opening with any of them.
#pragma once

#include "log/replica_set.h"
#include "model/protocol_state.h"

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace perdure::model {

enum class Law : std::uint8_t {
  None,
  CommittedIsNeverLost,
  TrimmedNeverReturns,
  OneRecordForEver,
  OnlyCommittedIsRead,
  NoSecondWriterCommits,
  DamageIsNeverReturned,
  SomethingCanBeDone,
  WholeIsWhole,  // log matching, and what a whole replica acknowledged it can return
};
const char* to_string(Law law);

/// Mutants of the protocol: each leaves out one thing. Right is the protocol.
enum class Mutant : std::uint8_t {
  Right,
  OldHeadComesBack,         // a replica that catches up keeps its head, and serves as a source
  HeadOfAnyEpoch,           // also one that a writer left which had been taken over from
  HeadOfTheChosen,          // opening takes the head of the history, not the highest
  EmptyForgets,             // a trim to the tail forgets index and checksum
  SourceIsTrusted,          // copied records are not verified
  BlankVotes,               // a blank pool counts as an answer
  DamageIsIgnored,          // what is readable is taken for all there was
  FencedTakesTheTail,       // a fenced writer takes the replica's tail for its own
  QuorumIsNotStored,        // who opens brings a quorum of its own
  AnyPeersWillDo,           // who opens brings the members
  ReadersGetAll,            // also what is not known to be committed
  CreationHasNoMark,        // the first state is written without the mark
  CreateOnSome,             // it is begun before there is a session with everybody
  CreateUnseen,             // whether there is a log is only looked at before fencing
  HolesAreNotLookedBehind,  // whole records behind a hole are no evidence
  EndsBehindDoNotCount,     // whole records behind known damage are no evidence by themselves
  ClaimOfAnyHistory,        // a configuration counts as committed by what another history claims
  ClaimUnderTheMark,        // and by what a replica claims while its content is replaced
  LongestWins,              // by length, whatever the epoch
  NoMarkBeforeCopying,      // content is replaced without saying so first
  OneCopyCommits,           // one less than the quorum commits
  OldWritersGoOn,           // fencing does not end older sessions
  FenceLeavesLoose,         // fencing does not make visible bytes durable
  BeginIsIgnored,           // records of any epoch are readable from begin on
  NewConfigurationAlone,    // a change is committed by the new members
  NewestConfigurationOnly,  // opening asks only the newest configuration of the history
  WordIsCommitted,          // the committed word is not bounded by what is durable there
  TrimByOne,                // a trim is acknowledged when one replica has the head
  PrefixByLength,           // a shorter replica is taken for a prefix
  RecordsBeforeHead,        // catching up copies records before it writes the head
  TailWordIsLeft,           // what is cut off a compound log is still promised by its tail word
  RemovedIsToldFirst,       // a removed replica is marked before enough of the others know it
  NewcomerCounts,           // a replica that is no member yet counts for a trim
  MarkBeforeSource,         // a replica is marked before it is known that the source has everything
  MarkTakesTheVote,         // an incomplete replica does not vote
  ResumeWithoutSurvey,      // a replica that comes back is sent on from where it was
  StateBeforeRecords,       // the mark goes before the last record is there
  AppendBeforeBegun,        // a new writer commits before a quorum is of its epoch
  LossHasNoNumber,          // an epoch that begins with a loss does not say so
  LossOfOneCounts,          // a loss that one replica alone knows makes its configuration newer
  LossOfOneIsLeft,          // who says that one was accepted votes, and has no part in the epoch
  VotesAreNotKept,          // who is incomplete votes, and has no part in the epoch
  OthersStayWhole,          // who comes along to accept a loss is not marked meanwhile
  ChosenFirst,              // the replica that was chosen begins before the others come along
  ChosenKeepsItsWords,      // it says as before how much was committed
  CutOffKeepsItsWord,       // so does one that is cut off
  CutOffKeepsConfiguration,  // and says of a later epoch that it began without the loss
  HeadKeepsConfiguration,    // a change that is trimmed is known to no replica that is a beginning
  ChosenIsNotMarked,         // what only its word vouched for is gone before its state says so
};
const char* to_string(Mutant mutant);

/// What is explored.
struct Bounds {
  std::string name;
  int pools = 3;
  int ring = 3;
  int writers = 2;   // at a time
  int openings = 1;  // beside the first writer
  int appends = 2;
  int trims = 0;
  int interruptions = 2;    // connections lost, and work cut short
  int losses = 0;           // places damaged, media wiped or dead
  int changes = 0;          // of the configuration
  int acceptances = 0;      // openings that may accept a loss
  bool beyond = false;      // more may be lost than the log can do without
  bool newcomers = false;   // pools that are no members are brought to equal, and not admitted
  int in_flight = 1;        // records to one replica
  bool damage = false;      // places can be damaged
  bool wipe = false;        // media can be wiped
  bool die = false;         // media can die for good
  bool power_cuts = false;  // what is visible and not durable can vanish
  bool words = false;       // committed words are set
  bool compound = false;    // every record is followed by the tail word
  bool create = false;      // begins with blank pools
  bool unheard = false;     // begins with a change of which not all have heard, and damage
  bool of_one = false;      // and with a loss that was accepted by one alone
  bool by_word = false;     // it is the change that is damaged, and only a tail word says so
  bool catch_up = true;     // a running writer brings replicas back
  bool lemma = true;        // log matching is checked too: it breaks earlier than the laws do
  bool unvouched = false;   // damage where nothing tells that there was something
  std::vector<log::Configuration> configurations;
};

/// A configuration of pools by number (0 to 3).
log::Configuration configuration_of(std::uint32_t generation, std::uint32_t quorum,
                                    const std::vector<int>& pools);

enum class Kind : std::uint8_t {
  Look,
  Fence,
  Open,
  Append,
  Acknowledge,
  Lose,
  Die,
  Trim,
  CatchUp,
  NoteCommitted,
  Change,
  Settle,
  Damage,
  Wipe,
  Kill,
  PowerCut,
  Create,
  Accept
};
inline constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::Accept) + 1;
struct Action {
  Kind kind{};
  std::uint8_t writer = 0;
  std::uint8_t replica = 0;
  std::uint8_t a = 0;
  std::uint8_t b = 0;
  // Open, Accept: 0 all, else one more than the writes made.
  std::array<std::uint8_t, kReplicas> cut{};
};

struct ModelStep {
  State state;
  Action action;
  Law broken = Law::None;
};

/// What reading one replica gives: docs/log-protocol.md, "Reading a replica".
struct Found {
  bool log = false;
  int tail = 0;
  Id last = kNothing;
  int claimed = 0;
  int extent = 0;
  int read_claim = 0;  // what readers believe
  std::vector<log::ConfigurationAt> configurations;
  bool damaged() const { return extent > tail; }
};

/// Where a replica is brought.
struct Target {
  std::uint8_t log = 0;
  std::uint8_t epoch = 0;
  std::uint8_t begin = 0;
  std::uint8_t head = 0;
  std::uint8_t tail = 0;
  std::uint8_t committed = 0;
  std::uint8_t configuration = 0;
  std::uint8_t loss = 0;
  bool accepted = false;          // what is behind the tail is given up
  bool chosen = false;            // of that: the replica whose history is taken
  bool undecided = false;         // and the others, before that one begins
  std::uint8_t source_epoch = 0;  // of the state that the source is read by
  std::uint8_t source_begin = 0;
  Id head_id = kNothing;
  Id last = kNothing;
};

class Protocol {
 public:
  using State = model::State;
  using Step = ModelStep;
  using Law = model::Law;

  Protocol(Bounds bounds, Mutant mutant);

  State first();
  State first_unheard();
  std::uint64_t key(const State& state) const;
  void steps(const State& state, std::vector<Step>& out);
  Law check(const State& state);
  /// In a person's words.
  std::string describe(const Action& action) const;
  std::string describe(const State& state) const;
  /// Different questions of who is chosen that the product's code was asked.
  std::size_t decisions() const { return chosen_.size(); }
  /// How often a step of this kind was possible.
  std::uint64_t taken(Kind kind) const { return taken_[static_cast<std::size_t>(kind)]; }

 private:
  struct Brought {
    int writes = 0;
    bool complete = false;
    bool source_failed = false;
  };
  struct Chosen {
    int history = -1;
    std::uint8_t oldest = 0;  // configurations in play
    std::uint8_t newest = 0;
    std::uint8_t claimed = 0;
    std::uint8_t loss = 0;       // of the oldest
    std::uint8_t loss_last = 0;  // of the newest
    bool accepted = false;
    bool goes_back = false;  // one was read that may take a loss which is not in this history
  };
  struct Surveyed {
    int pool = 0;
    Found found;
    log::Candidate candidate;
  };
  using Steps = std::vector<Step>;

  // What a replica is.
  Found read(const Replica& replica) const;
  log::Candidate candidate(int pool, const Replica& replica, const Found& found,
                           std::uint8_t log) const;
  Chosen choose(const State& state, const Writer& writer);
  log::Configuration newest_known(const State& state, const Writer& writer,
                                  const std::vector<Surveyed>& surveyed,
                                  std::optional<std::size_t> history) const;
  log::Configurations in_play_by(const State& state, const log::Configuration& known,
                                 const std::vector<Surveyed>& surveyed,
                                 std::optional<std::size_t> history, Lsn claimed) const;
  bool all_read(const Writer& writer, const Chosen& chosen) const;
  bool votes_kept(const Judge& judge, const Writer& writer, const Chosen& chosen) const;
  bool session(const State& state, const Writer& writer, int replica) const;
  Brought bring(State& state, const Target& target, int source, int replica, int limit) const;
  bool holds(const State& state, const Target& target, int source) const;
  bool goes_on(const State& state, const Target& target, int source, int lsn, Id id) const;
  int common_part(const State& state, const Target& target, const Found& found, int source,
                  const Replica& replica) const;
  void begin_on(Replica& replica, const Target& target, const Found& found) const;
  void write_words(Replica& replica, const Target& target) const;
  void prepare(Replica& replica, const Target& target, const Found& found, int kept) const;
  Target target_of(const Writer& writer) const;

  // Decisions of the product's code, asked once each.
  bool enough(std::uint8_t one, std::uint8_t other, Mask counts);
  int committed_by(const Writer& writer);
  const log::Configuration& configuration(std::uint8_t number) const {
    return bounds_.configurations[number - 1U];
  }
  log::Configuration configuration(std::uint8_t number, std::uint8_t loss) const;
  std::uint8_t number_of(const log::Configuration& configuration) const;
  Mask members(std::uint8_t number) const { return members_[number]; }

  // Steps, by who takes them.
  struct Looked {
    std::uint8_t log = 0;            // 0: none was begun
    std::uint8_t configuration = 0;  // by the states; 0: refused
    std::uint8_t loss = 0;
  };
  Looked look_at(const State& state, Mask answer, std::uint8_t named) const;
  void look(const State& state, int writer, Steps& out);
  void fence(const State& state, int writer, Steps& out);
  void open(const State& state, int writer, Steps& out);
  void open_rest(const State& state, int writer, const Target& target, const Chosen& chosen,
                 int replica, Action action, Steps& out);
  void open_with_loss(const State& state, int writer, const Target& target, const Chosen& chosen,
                      int turn, Action action, Steps& out);
  void come_along(const State& state, int writer, const Target& target, const Chosen& chosen,
                  int turn, Action action, Steps& out);
  void decide(const State& state, int writer, const Target& target, const Chosen& chosen,
              Action action, Steps& out);
  void follow(const State& state, int writer, const Target& target, const Chosen& chosen, int turn,
              Action action, Steps& out);
  std::optional<Target> choose_target(const State& state, const Writer& writer, Chosen& chosen);
  bool begin(State& state, int writer, const Target& target, const Chosen& chosen, Law& broken);
  void create(const State& state, int writer, Steps& out);
  void create_on(const State& state, int writer, int made, Mask lost, Steps& out);
  void run(const State& state, int writer, Steps& out);
  void append(const State& state, int writer, std::uint8_t configuration, Steps& out);
  void acknowledge(const State& state, int writer, int replica, Steps& out);
  void lose(const State& state, int writer, int replica, Steps& out);
  void trim(const State& state, int writer, Steps& out);
  Law trim_to(State& state, Writer& writer, int head, Id head_id);
  void catch_up(const State& state, int writer, int replica, Steps& out);
  void catch_up_from(const State& state, int writer, int replica, int source, Steps& out);
  void go_on_from_staging(const State& state, int writer, int replica, Steps& out);
  void change(const State& state, int writer, Steps& out);
  void settle(const State& state, int writer, Steps& out);
  void faults(const State& state, Steps& out);
  void lose_medium(const State& state, int replica, Medium medium, int place, Steps& out);
  bool may_be_lost(const State& state, int replica) const;

  // Laws.
  Law note_committed(State& state, Writer& writer, int committed);
  Law check_replica(const State& state, int replica, const Found& found) const;
  Law check_pairs(const State& state, const std::array<Found, kReplicas>& found) const;
  bool can_open(const State& state);
  bool opens(State state, Mask reachable, std::uint8_t named, bool accepting);
  void take_loss(State& state, const Writer& writer) const;
  bool may_be_given_up(const Judge& judge, int lsn) const;
  bool is(Mutant mutant) const { return mutant_ == mutant; }
  Mask pools() const { return static_cast<Mask>((1 << bounds_.pools) - 1); }

  const Bounds bounds_;
  const Mutant mutant_;
  mutable Records records_;
  std::vector<Mask> members_;                     // by number of the configuration
  std::vector<std::array<int, kReplicas>> same_;  // ways to name the pools that change nothing
  std::unordered_map<std::uint64_t, Chosen> chosen_;
  std::unordered_map<std::uint32_t, bool> enough_;
  std::unordered_map<std::uint32_t, log::CommitRule> rules_;
  std::unordered_map<std::uint64_t, bool> can_open_;
  std::array<std::uint64_t, kKinds> taken_{};
};

}  // namespace perdure::model
