// The log's world: what it is made of, how it is opened, read and judged, and its end. See
// log_world.h.
#include "testing/torture/log_world.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/assert.h"
#include "core/try.h"
#include "pmem/pool_format.h"

namespace perdure::test {
namespace {

/// A call that takes a deadline may be late by one look at each replica, of which each may take a
/// step of the emulated clock.
constexpr Nanoseconds kLate = std::chrono::milliseconds(20);

/// Whether an error is about the way to a replica rather than about what it holds.
bool is_about_the_way(ErrorCode code) {
  return code == ErrorCode::Disconnected || code == ErrorCode::TimedOut ||
         code == ErrorCode::OutcomeUnknown || code == ErrorCode::SystemError ||
         code == ErrorCode::NoSpace || code == ErrorCode::QueueFull;
}

}  // namespace

Result<std::unique_ptr<WorldReader>> WorldReader::open(std::unique_ptr<client::Peer> peer,
                                                       Nanoseconds within, const Clock& clock,
                                                       bool uncommitted) {
  auto reader = std::make_unique<WorldReader>();
  PERDURE_TRY(bytes, client::RemoteBytes::open(*peer, kLogPool, within, clock));
  log::CommittedReader::Options options;
  options.name = peer->name();
  options.uncommitted = uncommitted;
  PERDURE_TRY(opened, log::CommittedReader::open(*bytes, options));
  reader->peer_ = std::move(peer);
  reader->bytes_ = std::move(bytes);
  reader->reader_.emplace(std::move(opened));
  return reader;
}

Result<std::optional<ReadRecord>> WorldReader::next() {
  PERDURE_TRY(record, reader_->next());
  if (!record) return std::optional<ReadRecord>{};
  return std::optional<ReadRecord>{
      ReadRecord{record->lsn, record->index, record->epoch, content_of(record->bytes)}};
}

LogWorld::LogWorld(const WorldOptions& options)
    : options_(options), random_(options.seed), programs_(kPrograms) {
  judge_.leave_out(options.laws_left_out);
}

void LogWorld::begin(std::size_t machines, std::size_t replicas, std::size_t quorum, LogShape shape,
                     bool beyond) {
  replicas_.resize(machines);
  shape_ = shape;
  beyond_ = beyond;
  if (beyond_) judge_.bear_loss();
  Members first;
  for (std::size_t index = 0; index < replicas; ++index) first.pools.push_back(pool_of(index));
  first.quorum = quorum;
  known_.push_back(std::move(first));
}

void LogWorld::end() {
  follower_.reset();
  programs_.clear();
}

void LogWorld::reseed(std::uint64_t seed) { random_ = Random(seed); }

std::vector<Counter> LogWorld::counters() const {
  return {{"openings", opened_},
          {"records", appended_},
          {"acknowledged", acknowledged_},
          {"verified_reads", verified_},
          {"changes", changes_},
          {"beyond_later", beyond_later_ ? 1u : 0u},
          {"looked_damaged", looked_damaged_}};
}

void LogWorld::tell_outcome(std::string_view what, const Result<void>& outcome) {
  if (!options_.tell) return;
  tell("{}: {}", what,
       outcome.ok() ? "ok"
                    : fmt::format("[{}] {}", to_string(outcome.code()), outcome.error().message));
}

std::vector<std::byte> LogWorld::content(std::uint64_t salt, std::size_t bytes) const {
  std::vector<std::byte> made(round_up(bytes, 8));
  Random words(salt);
  for (std::size_t at = 0; at < made.size(); at += 8) store(made.data() + at, words.next());
  made.resize(bytes);
  return made;
}

/// The machines that have a replica, as far as they still have it.
LogWorld::OpenChoices LogWorld::open_choices(const Members& members) const {
  OpenChoices choices;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (has(members, pool_of(i))) choices.replicas.push_back(i);
  }
  choices.quorum = members.quorum;
  choices.partial = choices.replicas.size() < members.pools.size();
  choices.create = opened_ == 0 && !choices.partial;
  return choices;
}

log::WriterOptions LogWorld::writer_options(const OpenChoices& choices, Random& random) {
  log::WriterOptions options;
  options.pool = kLogPool;
  options.quorum = choices.quorum;
  if (opened_ == 0) options.shape = shape_;
  options.record_bytes_max = 16'000;
  options.batches_in_flight = 1 + random.below(4);
  options.primary = primary_;
  options.measure_costs = random.chance(1, 16);
  options.take_over = choices.take_over;
  options.accept_loss = choices.accept_loss;
  options.partial = choices.partial;
  options.create = choices.create;
  options.writer_name = "torture";
  options.writer = random.next() | 1;
  options.replica_timeout = patience().replica_timeout;
  // Who spins looks at the clock seldom, and here a look at a replica that says nothing takes long.
  options.spin = Nanoseconds{0};
  options.pause = [this](Nanoseconds time) { pass(time); };
  if (random.chance(1, 2)) options.reconnect = std::chrono::milliseconds(1 + random.below(20));
  return options;
}

/// As the operator knows the log: with what it may have by now, one after another.
bool LogWorld::open_as_known(Program& program, Random& random, bool accept_loss) {
  const std::vector<Members> known = known_;
  for (const Members& members : known) {
    OpenChoices choices = open_choices(members);
    choices.accept_loss = accept_loss;
    if (choices.replicas.empty()) continue;
    if (open(program, choices, random)) return true;
    if (judge_.breach()) return false;
  }
  // Where a change is not decided, it may take the replicas of two of them, and no others.
  for (std::size_t one = 0; one < known.size(); ++one) {
    for (std::size_t other = one + 1; other < known.size(); ++other) {
      Members both = known[one];
      for (const pmem::Uuid& pool : known[other].pools) {
        if (!has(both, pool)) both.pools.push_back(pool);
      }
      OpenChoices choices = open_choices(both);
      choices.quorum = 0;
      choices.accept_loss = accept_loss;
      if (!choices.replicas.empty() && open(program, choices, random)) return true;
      if (judge_.breach()) return false;
    }
  }
  return false;
}

/// Opens the log by `program`; what it holds is judged.
bool LogWorld::open(Program& program, const OpenChoices& choices, Random& random) {
  program.log.reset();
  program.pending.clear();
  if (!program_runs(index_of(program))) start_program(index_of(program));
  note_beyond();
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const std::size_t index : choices.replicas) {
    peers.push_back(peer_for(index_of(program), index));
  }
  const log::WriterOptions options = writer_options(choices, random);
  in_call_ = true;
  auto log = log::ReplicatedLog::open(std::move(peers), options, clock());
  in_call_ = false;
  if (!log.ok()) {
    refusal_ = fmt::format("[{}] {}", to_string(log.code()), log.error().message);
    refusal_code_ = log.code();
    tell("open by {}: {}", name(program), refusal_);
    const bool unknown =
        log.code() == ErrorCode::OutcomeUnknown || !program_runs(index_of(program));
    if (choices.accept_loss && unknown) judge_.loss_may_be_accepted();
    return false;
  }
  ++opened_;
  program.log = std::move(log).value();
  known_ = {members_of(program)};
  const LogStatus status = program.log->status();
  heal(program);
  std::string up;
  for (const ReplicaStatus& each : status.replicas) {
    up += fmt::format(" {}{}", each.peer, each.up ? "" : " (down)");
  }
  tell("open by {}: epoch {}, head {}, tail {}, {} records, quorum {} of{}{}", name(program),
       status.epoch.value, status.head.value, status.tail.value, status.next_index, status.quorum,
       up, status.accepted_loss.empty() ? "" : "; accepted: " + status.accepted_loss);
  (void)program.log->take_repairs();
  program.writer = judge_.opened(status);
  newest_ = static_cast<std::size_t>(&program - programs_.data());
  if (!judge_.breach()) verify(program, random.chance(1, 4));
  return true;
}

/// Reads a replica that the newest writer calls up, or all of them, right after it has opened.
void LogWorld::verify(Program& program, bool all) {
  const LogStatus status = program.log->status();
  std::vector<std::size_t> up;
  for (const ReplicaStatus& each : status.replicas) {
    const auto server = server_named(each.peer);
    if (each.up && server) up.push_back(*server);
  }
  if (up.empty()) return;
  if (!all) up = {up[random_.below(up.size())]};
  for (const std::size_t index : up) {
    if (const auto records = read_all_of(index, false)) {
      judge_.read_whole(name_of(index), *records);
    }
    if (judge_.breach()) return;
  }
}

/// The writer says that it has just brought a replica to equal: all that is committed is there.
void LogWorld::verify_brought(std::size_t replica) {
  if (judge_.breach() || replicas_[replica].bad || !runs(replica)) return;
  if (const auto records = read_all_of(replica, true)) {
    judge_.read_brought(name_of(replica), *records);
  }
}

/// Nothing when it can not be reached, or is refused, which is judged.
std::optional<std::vector<ReadRecord>> LogWorld::read_all_of(std::size_t replica,
                                                             bool uncommitted) {
  std::vector<ReadRecord> records;
  auto reader = WorldReader::open(peer_for_reader(replica), patience().read, clock(), uncommitted);
  Result<void> outcome = reader.ok() ? Result<void>{} : Result<void>{reader.error()};
  while (outcome.ok()) {
    auto record = (*reader)->next();
    if (!record.ok()) outcome = record.error();
    if (!record.ok() || !*record) break;
    records.push_back(**record);
  }
  if (outcome.ok()) {
    ++verified_;
    return records;
  }
  tell_outcome("reading " + name_of(replica), outcome);
  if (!is_about_the_way(outcome.code())) judge_.read_refused(name_of(replica), outcome.error());
  return std::nullopt;
}

LogWorld::Program& LogWorld::newest() { return programs_[newest_]; }

LogWorld::Program& LogWorld::other_program() {
  return programs_[(newest_ + 1 + random_.below(kPrograms - 1)) % kPrograms];
}

bool LogWorld::ensure_open(Random& random) {
  return newest().log != nullptr || open_as_known(newest(), random);
}

std::optional<Ticket> LogWorld::append_to(Program& program, std::size_t bytes, Random& choices) {
  Pending pending;
  pending.salt = choices.next() ^ ++salt_;
  pending.bytes = bytes;
  pending.superseded = &program != &newest();
  const std::vector<std::byte> record = content(pending.salt, bytes);
  in_call_ = true;
  const auto ticket = program.log->append(record);
  in_call_ = false;
  if (!ticket.ok()) {
    tell_outcome(fmt::format("append {} bytes", bytes), ticket.error());
    return std::nullopt;
  }
  ++appended_;
  pending.ticket = *ticket;
  program.pending.push_back(pending);
  judge_.appended(program.writer, *ticket, content_of(record));
  tell("append {} bytes by {}: record {} at {}", bytes, name(program), ticket->index,
       ticket->lsn.value);
  note_committed(program);
  return *ticket;
}

/// Takes note of what the writer knows by now, and of whom it has brought back meanwhile.
void LogWorld::note_committed(Program& program) {
  const auto repairs = program.log->take_repairs();
  if (&program == &newest()) note_repairs(repairs);
  std::size_t count = 0;
  while (count < program.pending.size() &&
         program.log->reached(program.pending[count].ticket, Level::Committed)) {
    ++count;
  }
  if (count == 0) return;
  const Pending last = program.pending[count - 1];
  program.pending.erase(program.pending.begin(),
                        program.pending.begin() + static_cast<std::ptrdiff_t>(count));
  acknowledged_ += count;
  judge_.committed(program.writer, last.ticket);
  tell("record {} is committed, says {}", last.ticket.index, name(program));
  if (!judge_.breach()) check_durable(program, last, program.log->configuration().quorum);
}

bool LogWorld::wait_on(Program& program, Pending pending, Level level, Nanoseconds timeout) {
  const Nanoseconds before = now();
  in_call_ = true;
  const auto waited = program.log->wait(pending.ticket, level, timeout);
  in_call_ = false;
  const Nanoseconds took = now() - before;
  tell_outcome(fmt::format("wait for {} of record {} by {}", to_string(level), pending.ticket.index,
                           name(program)),
               waited);
  if (took > timeout + kLate && patience().judged) {
    judge_.late(fmt::format("wait returned after {} us; its time-out was {} us",
                            took.count() / 1000, timeout.count() / 1000));
  }
  note_committed(program);
  if (waited.ok() && level == Level::Durable && !judge_.breach()) {
    check_durable(program, pending, 1);
  }
  return waited.ok();
}

/// What was just acknowledged is durable on so many replicas. Battery-backed machines are believed:
/// there the bytes may still be in the RNIC.
void LogWorld::check_durable(const Program& program, const Pending& pending, std::size_t copies) {
  const Ticket& ticket = pending.ticket;
  const bool stale = &program != &newest();
  // What was there may be overwritten by now: after a trim, or by the writer that came later.
  if (beyond_ || ticket.index < judge_.trimmed_below() || (stale && !pending.superseded)) return;
  const LogStatus status = program.log->status();
  if (ticket.lsn < status.head) return;
  const std::vector<std::byte> bytes = content(pending.salt, pending.bytes);
  const std::uint64_t place =
      log::kRingAt + ticket.lsn.value % status.ring_bytes + log::kRecordHeaderBytes;
  std::size_t found = 0;
  for (const log::Member& member : program.log->configuration().members) {
    const auto index = server_of(member.pool);
    const bool believed = !index || replicas_[*index].bad;
    if (believed || keeps(*index, place, bytes)) ++found;
    if (found >= copies) return;
  }
  judge_.not_durable(
      fmt::format("record {} at {} was acknowledged to {}; it is durable on {} "
                  "replicas, and that takes {}",
                  ticket.index, ticket.lsn.value, name(program), found, copies));
}

void LogWorld::trim_to(Program& program, Lsn lsn) {
  judge_.trim_begins(program.writer, lsn);
  in_call_ = true;
  const auto trimmed = program.log->trim(lsn);
  in_call_ = false;
  tell_outcome(fmt::format("trim to {} by {}", lsn.value, name(program)), trimmed);
  note_committed(program);
  if (trimmed.ok()) judge_.trimmed(program.writer, lsn);
}

void LogWorld::note_repairs(const std::vector<RepairReport>& reports) {
  for (const RepairReport& report : reports) {
    tell("repair of {}: {}", report.peer, report.repaired ? "done, " + report.found : report.error);
    const auto server = server_named(report.peer);
    if (!report.repaired || !server) continue;
    note_equal(*server, Struck::Down);
    verify_brought(*server);
  }
}

/// What of it was read by then is not read again when it is brought to equal
/// (docs/log-protocol.md, in several calls).
void LogWorld::spoil(std::size_t replica) {
  Replica& each = replicas_[replica];
  each.bad = true;
  each.struck = in_call_ ? Struck::InCall : Struck::No;
  if (in_call_ || opened_ == 0 || newest().log == nullptr) return;
  const auto known = newest().log->status().replicas;
  const bool up = std::ranges::any_of(known, [&](const ReplicaStatus& status) {
    return status.up && status.peer == name_of(replica);
  });
  if (!up) each.struck = Struck::Down;
}

/// A writer has brought it to equal: it is whole, unless by then it was struck as it says, or
/// worse.
void LogWorld::note_equal(std::size_t replica, Struck unless) {
  Replica& each = replicas_[replica];
  if (std::exchange(each.struck, Struck::No) < unless) each.bad = false;
  each.foreign = false;
}

/// Starts a machine that is off. A medium that is no pool any more gets a blank one.
void LogWorld::start(std::size_t replica) {
  Replica& each = replicas_[replica];
  const auto started = start_again(replica);
  // A strike may have come in the middle of it.
  each.off = !runs(replica);
  // A pool that was made while the power failed, and is there all the same, has lost nothing.
  if (started.ok() && (opened_ == 0 || !is_named(replica))) each.bad = false;
  if (started.ok() || each.off) return;
  tell_outcome("start of " + name_of(replica), started);
  if (!each.bad && !beyond_) {
    judge_.nothing_can_be_done(fmt::format("the pool of {} can not be opened after a failure: {}",
                                           name_of(replica), started.error().message));
  }
  start_blank(replica);
}

/// A new medium, and a new pool on it: of another UUID, and so no replica.
void LogWorld::start_blank(std::size_t replica) {
  Replica& each = replicas_[replica];
  each.bad = each.foreign = false;
  each.struck = Struck::No;
  const pmem::Uuid before = pool_of(replica);
  const auto started = start_with_blank(replica);
  each.bad = !started.ok();  // the power failed before there was a pool
  each.off = !runs(replica);
  PERDURE_ASSERT(started.ok() || each.off);
  if (opened_ > 0 || !has(known_.front(), before)) return;
  // There is no log yet, or nobody knows of it: the operator names what is there now.
  Members renamed = known_.front();
  std::ranges::replace(renamed.pools, before, pool_of(replica));
  known_.insert(known_.begin(), std::move(renamed));
}

void LogWorld::start_what_is_off() {
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (replicas_[index].off) start(index);
  }
}

/// A fault that is there from the beginning of an operation on.
void LogWorld::add_lasting(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                           std::function<bool(Random&)> begin, std::function<void()> end) {
  faults_.push_back(
      {std::move(name), weight, lasts_max, std::move(begin), [] { return true; }, std::move(end)});
}

/// A bit of what a replica keeps, and of which something says that it was committed: of the last
/// records nobody can say whether they were ever whole, when the other replicas do not answer.
bool LogWorld::flip_somewhere(Random& choices) {
  const std::size_t index = choices.below(replicas_.size());
  if (!is_named(index) || !may_spoil(index)) return false;
  const std::uint64_t last = judge_.committed_below();
  if (last <= judge_.trimmed_below() + 1) return false;
  const std::optional<Lsn> place = judge_.place_of(std::min(judge_.vouched_below(), last - 1));
  if (!place) return false;
  const std::optional<Lsn> first = judge_.place_of(judge_.trimmed_below());
  if (!first || *first >= *place) return false;
  const std::uint64_t ring = ring_bytes();
  if (ring == 0) return false;
  std::uint64_t at = 0;
  if (choices.chance(1, 6)) {
    // Where a log says what it is: anchor, words, and the two copies of its state.
    constexpr std::array<std::uint64_t, 5> kWhere = {0, log::kCommittedWordAt, log::kTailWordAt,
                                                     log::kStateAt,
                                                     log::kStateAt + log::kStateEvery};
    const std::uint64_t where = kWhere[choices.below(kWhere.size())];
    at += where + choices.below(where < log::kStateAt ? 8 : 200);
  } else {
    at += log::kRingAt + (first->value + choices.below(place->value - first->value)) % ring;
  }
  tell("a bit flips on replica{} at {}", index, at);
  spoil(index);
  flip_bit(index, at, static_cast<unsigned>(choices.below(8)));
  return true;
}

bool LogWorld::unacknowledged() const {
  return in_call_ || std::ranges::any_of(programs_, [](const Program& program) {
           return !program.pending.empty();
         });
}

/// Programs whose machine died are gone with all they knew.
void LogWorld::bury_dead_programs() {
  for (std::size_t index = 0; index < programs_.size(); ++index) {
    if (program_runs(index)) continue;
    programs_[index].log.reset();
    programs_[index].pending.clear();
  }
  if (!reader_runs()) {
    follower_.reset();
    start_reader();
  }
}

void LogWorld::finish() {
  calm();
  follower_.reset();
  for (Program& program : programs_) {
    program.log.reset();
    program.pending.clear();
  }
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    // Every daemon is started anew: none keeps sessions or distrusts its medium.
    if (runs(index)) stop(index);
    start(index);
  }
  tell("all is repaired");
  for (int round = 0; round < 2 && !judge_.breach(); ++round) {
    finish_open();
    if (newest().log == nullptr || judge_.breach()) return;
    finish_use();
    newest().log.reset();
  }
}

/// With all machines there, the log opens, and everything on it can be read.
void LogWorld::finish_open() {
  constexpr int kTries = 3;
  for (int attempt = 0; attempt < kTries && newest().log == nullptr; ++attempt) {
    if (open_as_known(newest(), random_, beyond_ && attempt > 0) || judge_.breach()) return;
    pass(std::chrono::seconds(1));
  }
  if (newest().log != nullptr || beyond_) return;
  if (refusal_code_ == ErrorCode::Corrupt && too_many_look_damaged()) {
    ++looked_damaged_;
    tell("replicas look damaged that nothing has damaged; the operator accepts a loss, of nothing");
    if (open_as_known(newest(), random_, true) || judge_.breach()) return;
  }
  judge_.nothing_can_be_done(
      fmt::format("all machines run, {} of {} replicas are damaged or blank, and the log does not "
                  "open: {}",
                  lost_of(known_.front()), known_.front().pools.size(), refusal_));
}

/// Pools that are gone are replaced by others.
void LogWorld::finish_members() {
  constexpr int kTries = 3;
  std::vector<std::size_t> small;  // pools that can not hold the ring
  for (int attempt = 0; attempt < kTries * static_cast<int>(replicas_.size()); ++attempt) {
    const auto dead = dead_member(members_of(newest()));
    std::vector<std::size_t> others = strangers();
    std::erase_if(others, [&](std::size_t index) { return std::ranges::count(small, index) != 0; });
    if (!dead || others.empty() || judge_.breach()) return;
    const std::size_t by = others[random_.below(others.size())];
    if (replace_member(*dead, by)) continue;
    if (refusal_code_ == ErrorCode::InvalidArgument) small.push_back(by);
    // What is kept free is for opening and trimming; a change of the replicas wants room like any
    // other record, and says so.
    const bool full = refusal_code_ == ErrorCode::LogFull;
    newest().log.reset();
    finish_open();
    if (newest().log == nullptr || judge_.breach()) return;
    if (full) trim_to(newest(), newest().log->status().tail);
  }
  if (beyond_) return;
  judge_.nothing_can_be_done("all machines run, and a replica that is gone can not be replaced");
}

void LogWorld::finish_use() {
  finish_members();
  if (newest().log == nullptr || judge_.breach()) return;
  Program& program = newest();
  for (int attempt = 0; attempt < 2; ++attempt) note_repairs(program.log->repair());
  for (const ReplicaStatus& each : program.log->status().replicas) {
    if (each.up || beyond_) continue;
    judge_.nothing_can_be_done(
        fmt::format("all machines run, and {} stays down: {}", each.peer, each.down_reason));
  }
  if (judge_.breach()) return;
  verify(program, true);
  if (judge_.breach()) return;
  auto ticket = append_to(program, 100, random_);
  if (!ticket) {
    trim_to(program, program.log->status().tail);
    ticket = append_to(program, 100, random_);
  }
  const bool committed =
      ticket && (program.pending.empty() ||
                 wait_on(program, program.pending.back(), Level::Committed, patience().commit));
  if (!committed && !beyond_) {
    judge_.nothing_can_be_done("all machines run, and no record can be appended and committed");
  }
}

}  // namespace perdure::test
