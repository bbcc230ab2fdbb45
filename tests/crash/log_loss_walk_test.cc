// Random walks over a replicated log of which more is lost than it can do without: openings,
// accepted losses, power failures, trims, repairs, changes of the quorum and of the replicas, an
// older writer that goes on, and a reader that follows. log_histories.h says what is asked of it;
// law 7 is asked for here: when everybody is back, the log opens, if need be with the loss
// accepted, goes on, and a reader that got nothing wrong gets to its end.
#include <chrono>
#include <optional>
#include <string>

#include "core/random.h"
#include "log/failover_reader.h"
#include "testing/soak.h"
#include "tests/crash/log_histories.h"

namespace perdure {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kSteps = 40;

enum class Kind { Plain, Quorums, Compound, Replicas };

struct Counts {
  std::uint64_t acknowledged = 0, read = 0, fenced = 0;
  std::uint64_t accepted = 0, unknown = 0, changed = 0;
};

class Walk {
 public:
  Walk(Kind kind, std::uint64_t seed, Counts& counts);
  void go();
  const std::string& violation() const { return judge_.violation(); }
  const std::string& trace() const { return trace_; }

 private:
  /// Three, now and then four or five.
  static std::size_t members_of(std::uint64_t seed) {
    const std::uint64_t of_its_kind = seed / 4;
    return of_its_kind % 2 == 0 ? 3 : of_its_kind % 4 == 1 ? 4 : 5;
  }

  void say(const std::string& line) {
    if (line != last_line_) trace_ += line + "\n";
    last_line_ = line;
  }
  template <typename R>
  static std::string outcome(const R& result) {
    return result.ok() ? "ok" : result.error().message;
  }
  std::size_t any() { return random_.below(servers_); }
  void reach_some();
  void fail_power(std::size_t server);
  void drop();

  Result<Writer> open(bool accept_loss, bool cut);
  Result<Writer> open_members(const WriterOptions& options);
  void open_or_accept();
  void begun(Writer log);
  std::optional<Content> content_of_one_up();

  void append(ReplicatedLog& log, bool current);
  void append_some();
  void damage();
  void repair_and_cut();
  void trim();
  void change();
  void change_replicas();
  void note_members();
  void step();

  bool open_reader();
  void read(std::uint64_t times);
  void end();
  void read_to_end();

  const Kind kind_;
  Random random_, secrets_;
  SeededSecrets seeded_{secrets_};
  Counts& counts_;
  const std::size_t first_members_, servers_;
  Cluster cluster_;
  Histories judge_;
  std::vector<std::string> pools_;
  Order members_, members_before_;
  Writer log_, old_;
  std::optional<log::FailoverReader> reader_;
  bool reader_fenced_ = false, reader_busy_ = false;
  bool created_ = false;
  std::uint64_t appended_ = 0;
  std::string trace_, last_line_;
};

Walk::Walk(Kind kind, std::uint64_t seed, Counts& counts)
    : kind_(kind),
      random_(seed),
      secrets_(seed),
      counts_(counts),
      first_members_(members_of(seed)),
      servers_(first_members_ + (kind == Kind::Replicas ? 1 : 0)),
      cluster_(servers_) {
  for (std::size_t server = 0; server < servers_; ++server) {
    const Deadline deadline(cluster_.world().clock(), milliseconds(50));
    const auto described = cluster_.peer(server)->describe(kPool, deadline);
    EXPECT_TRUE(described.ok());
    pools_.push_back(described.ok() ? described->uuid : "");
    if (server < first_members_) members_.push_back(server);
  }
  members_before_ = members_;
}

void Walk::reach_some() {
  std::string reached;
  for (std::size_t server = 0; server < servers_; ++server) {
    const bool up = random_.chance(2, 3);
    cluster_.cut_off(server, !up);
    if (up) reached += fmt::format(" {}", server);
  }
  say("reached:" + reached);
}

void Walk::fail_power(std::size_t server) {
  cluster_.world().cancel_cut();
  cluster_.stop(server);
  cluster_.start(server);
  say(fmt::format("power of {} failed", server));
}

void Walk::drop() {
  if (log_ && random_.chance(1, 2)) Cluster::settle(*log_);
  log_.reset();
  old_.reset();
  say("writers end");
}

/// With replicas that change, who opens may have to ask others than those it last knew.
Result<Writer> Walk::open_members(const WriterOptions& options) {
  auto opened = cluster_.open(members_, options);
  if (kind_ != Kind::Replicas) return opened;
  std::vector<Order> others{members_before_, {}};
  for (std::size_t server = 0; server < servers_; ++server) others[1].push_back(server);
  for (std::size_t without = 0; without < servers_; ++without) {
    Order order = others[1];
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(without));
    others.push_back(std::move(order));
  }
  for (const Order& order : others) {
    if (opened.ok()) break;
    if (opened.code() != ErrorCode::InvalidArgument && opened.code() != ErrorCode::QuorumLost)
      break;
    opened = cluster_.open(order, options);
  }
  return opened;
}

Result<Writer> Walk::open(bool accept_loss, bool cut) {
  WriterOptions options = cluster_.options();
  options.accept_loss = accept_loss;
  if (!created_) {
    if (kind_ == Kind::Compound) options.shape = LogShape::Compound;
    options.quorum =
        random_.chance(1, 2) ? first_members_ / 2 + 1 : 1 + random_.below(first_members_);
    say(fmt::format("{} members, quorum {}", first_members_, options.quorum));
  }
  created_ = true;
  const std::size_t victim = any();
  const std::uint64_t events =
      accept_loss ? 300 + random_.below(250 * servers_) : 100 + random_.below(400 * servers_);
  if (cut) cluster_.world().cut_after(cluster_.server(victim).machine(), events);
  auto opened = open_members(options);
  say(fmt::format("open{}{}: {}", accept_loss ? ", loss accepted" : "",
                  cut ? fmt::format(", cut after {}", events) : "", outcome(opened)));
  if (cut) fail_power(victim);
  return opened;
}

void Walk::open_or_accept() {
  if (random_.chance(1, 2)) drop();
  auto opened = open(false, random_.chance(1, 2));
  if (opened.ok()) return begun(std::move(opened).value());
  if (opened.code() != ErrorCode::Corrupt) return;
  auto accepted = open(true, random_.chance(3, 4));
  if (accepted.ok()) return begun(std::move(accepted).value());
  if (accepted.code() != ErrorCode::OutcomeUnknown) return;
  ++counts_.unknown;
  for (std::size_t server = 0; server < servers_; ++server) {
    if (const auto content = content_of(cluster_, server)) judge_.may_be(*content);
  }
}

/// Of a replica that the writer says is up and that has all that it says the log has.
std::optional<Content> Walk::content_of_one_up() {
  const LogStatus status = log_->status();
  for (const auto& replica : status.replicas) {
    if (!replica.up) continue;
    const std::size_t server = std::stoul(replica.peer.substr(std::string("server").size()));
    auto content = content_of(cluster_, server);
    if (content && content->end() == status.next_index) return content;
  }
  return std::nullopt;
}

void Walk::begun(Writer log) {
  if (log_) old_ = std::move(log_);
  log_ = std::move(log);
  const LogStatus status = log_->status();
  say(fmt::format("epoch {} with {} records, loss '{}'", status.epoch.value, status.next_index,
                  status.accepted_loss));
  if (!status.accepted_loss.empty()) ++counts_.accepted;
  const auto content = content_of_one_up();
  if (!content) return judge_.violate("no replica that is up has the history");
  judge_.begin(*content, !status.accepted_loss.empty());
  note_members();
}

void Walk::append(ReplicatedLog& log, bool current) {
  const std::string text = fmt::format("{:0>{}}", ++appended_, 100 + random_.below(300));
  const auto ticket = log.append(std::as_bytes(std::span(text)));
  if (!ticket.ok()) return say(fmt::format("append {}: {}", appended_, outcome(ticket)));
  const auto waited = log.wait(*ticket, Level::Committed, milliseconds(60));
  say(fmt::format("append {}{} at {}: {}", appended_, current ? "" : ", old writer", ticket->index,
                  outcome(waited)));
  if (!waited.ok()) return;
  ++counts_.acknowledged;
  if (current) {
    judge_.acknowledged(ticket->index, text);
  } else {
    judge_.old_writer_acknowledged(ticket->index, text);
  }
}

void Walk::append_some() {
  if (!log_) return;
  for (std::uint64_t left = 1 + random_.below(4); left > 0; --left) append(*log_, true);
  if (old_ && random_.chance(1, 2)) append(*old_, false);
}

/// Of records that the replicas say are committed: damage of others is no loss.
void Walk::damage() {
  if (random_.chance(1, 2)) drop();
  for (std::uint64_t left = 1 + random_.below(servers_); left > 0; --left) {
    const std::size_t server = any();
    const auto content = content_of(cluster_, server);
    if (!content || content->committed.empty()) continue;
    const Lsn at = content->committed[random_.below(content->committed.size())];
    cluster_.flip_record(server, at);
    say(fmt::format("damage on {} at {}", server, at.value));
  }
  reach_some();
}

void Walk::repair_and_cut() {
  const std::size_t victim = any();
  cluster_.world().cut_after(cluster_.server(victim).machine(), 50 + random_.below(600));
  (void)log_->repair(milliseconds(300));
  say("repair, cut");
  fail_power(victim);
}

void Walk::trim() {
  Lsn at = log_->status().tail;
  const auto content = content_of_one_up();
  if (content && !content->committed.empty() && random_.chance(1, 2)) {
    at = content->committed[random_.below(content->committed.size())];
  }
  say(fmt::format("trim {}: {}", at.value, outcome(log_->trim(at))));
}

void Walk::change() {
  if (!log_) return;
  if (kind_ == Kind::Replicas && random_.chance(3, 4)) return change_replicas();
  const std::size_t quorum = 1 + random_.below(servers_);
  const auto changed = log_->change_quorum(quorum);
  if (changed.ok()) ++counts_.changed;
  say(fmt::format("quorum {}: {}", quorum, outcome(changed)));
}

void Walk::change_replicas() {
  const std::size_t out = members_[random_.below(members_.size())];
  std::size_t in = 0;
  while (std::find(members_.begin(), members_.end(), in) != members_.end()) ++in;
  Result<void> changed;
  if (in == servers_) {
    changed = log_->remove_replica(pools_[out], 0);
    say(fmt::format("remove {}: {}", out, outcome(changed)));
  } else if (random_.chance(1, 4)) {
    changed = log_->add_replica(cluster_.peer(in), 0);
    say(fmt::format("add {}: {}", in, outcome(changed)));
  } else {
    changed = log_->replace_replica(pools_[out], cluster_.peer(in));
    say(fmt::format("replace {} by {}: {}", out, in, outcome(changed)));
  }
  if (changed.ok()) ++counts_.changed;
  note_members();
}

void Walk::note_members() {
  Order now;
  for (const auto& member : log_->configuration().members) {
    const auto pool = std::find(pools_.begin(), pools_.end(), pmem::to_string(member.pool));
    if (pool != pools_.end()) now.push_back(static_cast<std::size_t>(pool - pools_.begin()));
  }
  if (now == members_) return;
  members_before_ = std::exchange(members_, now);
}

void Walk::step() {
  const std::uint64_t changes = kind_ == Kind::Replicas ? 4 : kind_ == Kind::Quorums ? 2 : 0;
  const std::uint64_t what = random_.below(14 + changes);
  if (what < 2) return reach_some();
  if (what < 3) return fail_power(any());
  if (what < 4) return drop();
  if (what < 7) return open_or_accept();
  if (what < 10) return append_some();
  if (what < 13) {
    damage();
    return open_or_accept();
  }
  if (what > 13) return change();
  if (log_) random_.chance(1, 2) ? repair_and_cut() : trim();
}

bool Walk::open_reader() {
  Order order;
  for (std::size_t server = 0; server < servers_; ++server) {
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(random_.below(server + 1)), server);
  }
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const std::size_t server : order) peers.push_back(cluster_.peer(server));
  auto opened = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                          cluster_.world().clock());
  if (!opened.ok()) return false;
  reader_.emplace(std::move(opened).value());
  judge_.new_reader();
  reader_fenced_ = false;
  return true;
}

void Walk::read(std::uint64_t times) {
  if (!reader_ && !open_reader()) return;
  for (; times > 0; --times) {
    auto record = reader_->next();
    reader_busy_ = !record.ok() && record.code() == ErrorCode::Busy;
    if (record.ok() && *record) {
      ++counts_.read;
      const auto& bytes = (*record)->bytes;
      const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      say(fmt::format("read {} at {} of {}", std::stoul(text), (*record)->index, reader_->peer()));
      judge_.read((*record)->index, text);
      continue;
    }
    if (!record.ok()) say("read: " + record.error().message);
    if (!record.ok() && record.code() == ErrorCode::NotFound) return reader_.reset();  // trimmed
    if (!record.ok() && record.code() == ErrorCode::Fenced) {
      if (!std::exchange(reader_fenced_, true)) ++counts_.fenced;
      return;
    }
    cluster_.world().pass(milliseconds(120));
  }
}

void Walk::go() {
  auto created = open(false, false);
  ASSERT_TRUE(created.ok()) << created.error().message;
  begun(std::move(created).value());
  for (int count = 0; count < 6; ++count) append(*log_, true);
  for (std::uint64_t steps = 0; steps < kSteps && violation().empty(); ++steps) {
    step();
    if (violation().empty() && random_.chance(1, 2)) read(1 + random_.below(6));
  }
  if (violation().empty()) end();
}

void Walk::end() {
  drop();
  for (std::size_t server = 0; server < servers_; ++server) cluster_.cut_off(server, false);
  say("everybody is back");
  auto opened = open(false, false);
  if (!opened.ok() && opened.code() == ErrorCode::Corrupt) opened = open(true, false);
  if (!opened.ok()) return judge_.violate("does not open at the end");
  begun(std::move(opened).value());
  append(*log_, true);
  Cluster::settle(*log_);
  if (violation().empty() && reader_) read_to_end();
}

void Walk::read_to_end() {
  const bool agrees = judge_.reader_agrees();
  cluster_.world().pass(milliseconds(400));
  for (int rounds = 0; rounds < 4 && reader_; ++rounds) {
    reader_fenced_ = false;
    read(16);
  }
  if (!agrees || !reader_) return;
  if (reader_fenced_) return judge_.violate("a reader that got nothing wrong stays fenced");
  // A server of an addition that came to nothing is being created for ever; that it is Busy goes
  // before that the others have trimmed what is next.
  if (reader_busy_ && members_.size() < servers_) return;
  if (!judge_.reader_is_at_end()) judge_.violate("a reader does not get to the end");
}

TEST(LogLossWalk, KeepsTheLaws) {
  const std::uint64_t seeds = test::soak() ? 1600 : 24;
  Counts counts;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Walk walk(static_cast<Kind>(seed % 4), seed, counts);
    walk.go();
    EXPECT_EQ(walk.violation(), "") << "seed " << seed << ":\n" << walk.trace();
    if (HasFailure()) return;
  }
  fmt::print("{} acknowledged, {} read, {} fenced, {} losses accepted, {} unknown, {} changed\n",
             counts.acknowledged, counts.read, counts.fenced, counts.accepted, counts.unknown,
             counts.changed);
  // The walks came to what they are for.
  EXPECT_GT(counts.acknowledged, 0u);
  EXPECT_GT(counts.read, 0u);
  EXPECT_GT(counts.fenced, 0u);
  EXPECT_GT(counts.accepted, 0u);
  EXPECT_GT(counts.unknown, 0u);
  EXPECT_GT(counts.changed, 0u);
}

}  // namespace
}  // namespace perdure
