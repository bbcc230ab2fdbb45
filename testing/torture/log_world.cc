// The log's world: what it is made of, how it is opened, read and judged, and its end. See
// log_world.h.
#include "testing/torture/log_world.h"

#include <algorithm>
#include <array>

#include "core/assert.h"
#include "core/try.h"
#include "pmem/pool_format.h"

namespace perdure::test {
namespace {

const std::string kPool = "log";
/// A ring of 64 KiB, the smallest, and room for persistent receive buffers and for what a log keeps
/// beside its records.
constexpr std::uint64_t kPoolBytes = 96 * 1024;
/// Machines with a blank pool beside those of the first replicas.
constexpr std::size_t kSparesMax = 2;
constexpr persist::ReceiveQueue kQueue{32, 512};
constexpr Nanoseconds kStall = std::chrono::milliseconds(50);
constexpr Nanoseconds kReadWithin = std::chrono::milliseconds(50);
constexpr std::size_t kPrograms = 3;
constexpr std::uint64_t kBeyondOneIn = 32;
/// A call that takes a deadline may be late by one look at each replica, of which each may take a
/// step of the emulated clock.
constexpr Nanoseconds kLate = std::chrono::milliseconds(20);

ServerProfile draw_profile(Random& random) {
  constexpr std::array kDomains = {PersistenceDomain::Page, PersistenceDomain::Dmp,
                                   PersistenceDomain::Mhp, PersistenceDomain::Wsp};
  constexpr std::array kTransports = {Transport::InfiniBand, Transport::Tcp, Transport::Iwarp};
  ServerProfile profile;
  profile.domain = kDomains[random.below(kDomains.size())];
  profile.ddio = random.chance(1, 2) ? Ddio::On : Ddio::Off;
  profile.receive_buffers = random.chance(1, 3) ? ReceiveBuffers::Pm : ReceiveBuffers::Dram;
  profile.transport = kTransports[random.below(kTransports.size())];
  profile.capabilities.native_flush = profile.ddio == Ddio::Off;
  profile.capabilities.atomic_write = true;
  return profile;
}

std::size_t draw_replicas(Random& random) {
  constexpr std::array<std::size_t, 12> kReplicas = {3, 3, 3, 3, 3, 3, 3, 3, 1, 2, 4, 5};
  return kReplicas[random.below(kReplicas.size())];
}

/// Whether an error is about the way to a replica rather than about what it holds.
bool is_about_the_way(ErrorCode code) {
  return code == ErrorCode::Disconnected || code == ErrorCode::TimedOut ||
         code == ErrorCode::OutcomeUnknown || code == ErrorCode::SystemError ||
         code == ErrorCode::NoSpace || code == ErrorCode::QueueFull;
}

}  // namespace

Nanoseconds ProgramClock::now() const {
  constexpr std::uint64_t kLooksPerJump = 500;
  constexpr Nanoseconds kLookTakes{25};
  constexpr Nanoseconds kLookTakesMax = std::chrono::microseconds(50);
  if (jumps && ++looks_ % kLooksPerJump == 0) ahead_ += std::chrono::hours(1);
  const bool idle = std::exchange(events_, world_.events()) == world_.events();
  look_takes_ = idle ? std::min(2 * look_takes_, kLookTakesMax) : kLookTakes;
  world_.tick(look_takes_);
  return world_.clock().now() + ahead_;
}

Result<std::unique_ptr<WorldReader>> WorldReader::open(std::unique_ptr<client::Peer> peer,
                                                       const Clock& clock) {
  auto reader = std::make_unique<WorldReader>();
  PERDURE_TRY(bytes, client::RemoteBytes::open(*peer, kPool, kReadWithin, clock));
  log::CommittedReader::Options options;
  options.name = peer->name();
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
    : options_(options), random_(options.seed), world_(random_) {
  judge_.leave_out(options.laws_left_out);
  Random choices(options.seed + 1);
  const ServerProfile profile = draw_profile(choices);
  const bool alike = choices.chance(3, 4);
  const std::size_t count = draw_replicas(choices);
  const std::size_t spares = choices.below(kSparesMax + 1);
  Members first;
  first.quorum = choices.chance(7, 8) ? count / 2 + 1 : 1 + choices.below(count);
  shape_ = choices.chance(1, 2) ? log::LogShape::Singleton : log::LogShape::Compound;
  beyond_ = choices.chance(1, kBeyondOneIn);
  if (beyond_) judge_.bear_loss();
  for (std::size_t i = 0; i < kPrograms; ++i) {
    programs_.emplace_back();
    programs_.back().machine = &world_.add_machine(fmt::format("writer{}", i), profile);
  }
  reader_machine_ = &world_.add_machine("reader", profile);
  for (std::size_t i = 0; i < count + spares; ++i) {
    ServerProfile own = alike ? profile : draw_profile(choices);
    own.transport = profile.transport;
    auto server = test::WorldServer::start(world_, fmt::format("replica{}", i), own,
                                           {kPool, kPoolBytes, kQueue});
    PERDURE_ASSERT(server.ok());
    replicas_.push_back({std::move(server).value(), false, false, false});
    if (i < count) first.pools.push_back(replicas_.back().pool());
  }
  tell("{} replicas, quorum {}, {} spare, {}, {}{}", count, first.quorum, spares, describe(profile),
       shape_ == log::LogShape::Singleton ? "singleton" : "compound",
       beyond_ ? ", beyond what is borne" : "");
  known_.push_back(std::move(first));
  add_operations();
  add_faults();
}

LogWorld::~LogWorld() {
  world_.cancel_after();
  follower_.reset();
  programs_.clear();
}

void LogWorld::reseed(std::uint64_t seed) { random_ = Random(seed); }

std::vector<Counter> LogWorld::counters() const {
  return {{"events", world_.events()},
          {"openings", opened_},
          {"records", appended_},
          {"acknowledged", acknowledged_},
          {"verified_reads", verified_},
          {"power_cuts", cuts_},
          {"power_cuts_counted", cuts_counted_},
          {"changes", changes_},
          {"beyond_later", beyond_later_ ? 1u : 0u}};
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
    if (has(members, replicas_[i].pool())) choices.replicas.push_back(i);
  }
  choices.quorum = members.quorum;
  choices.partial = choices.replicas.size() < members.pools.size();
  choices.create = opened_ == 0 && !choices.partial;
  return choices;
}

log::WriterOptions LogWorld::writer_options(const OpenChoices& choices, Random& random) {
  log::WriterOptions options;
  options.pool = kPool;
  options.quorum = choices.quorum;
  if (opened_ == 0) options.shape = shape_;
  options.record_bytes_max = 16'000;
  options.batches_in_flight = 1 + random.below(4);
  options.measure_costs = random.chance(1, 16);
  options.take_over = choices.take_over;
  options.accept_loss = choices.accept_loss;
  options.partial = choices.partial;
  options.create = choices.create;
  options.writer_name = "torture";
  options.writer = random.next() | 1;
  options.stall = kStall;
  // Who spins looks at the clock seldom, and here a look at a replica that says nothing takes long.
  options.spin = Nanoseconds{0};
  options.pause = [this](Nanoseconds time) { world_.pass(time); };
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
  return false;
}

/// Opens the log by `program`; what it holds is judged.
bool LogWorld::open(Program& program, const OpenChoices& choices, Random& random) {
  program.log.reset();
  program.pending.clear();
  if (!program.machine->powered()) program.machine->power_on();
  note_beyond();
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const std::size_t index : choices.replicas) {
    peers.push_back(replicas_[index].server->peer(*program.machine));
  }
  const log::WriterOptions options = writer_options(choices, random);
  in_call_ = true;
  auto log = log::ReplicatedLog::open(std::move(peers), options, clock_);
  in_call_ = false;
  if (!log.ok()) {
    refusal_ = fmt::format("[{}] {}", to_string(log.code()), log.error().message);
    refusal_code_ = log.code();
    tell("open by {}: {}", program.machine->name(), refusal_);
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
  tell("open by {}: epoch {}, head {}, tail {}, {} records, quorum {} of{}{}",
       program.machine->name(), status.epoch.value, status.head.value, status.tail.value,
       status.next_index, status.quorum, up,
       status.accepted_loss.empty() ? "" : "; accepted: " + status.accepted_loss);
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
    const std::string& name = replicas_[index].server->machine().name();
    std::vector<ReadRecord> records;
    auto reader = WorldReader::open(replicas_[index].server->peer(*reader_machine_), clock_);
    Result<void> outcome = reader.ok() ? Result<void>{} : Result<void>{reader.error()};
    while (outcome.ok()) {
      auto record = (*reader)->next();
      if (!record.ok()) outcome = record.error();
      if (!record.ok() || !*record) break;
      records.push_back(**record);
    }
    if (!outcome.ok()) {
      tell_outcome("reading " + name, outcome);
      if (!is_about_the_way(outcome.code())) judge_.read_refused(name, outcome.error());
      continue;
    }
    ++verified_;
    judge_.read_whole(name, records);
    if (judge_.breach()) return;
  }
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
  tell("append {} bytes by {}: record {} at {}", bytes, program.machine->name(), ticket->index,
       ticket->lsn.value);
  note_committed(program);
  return *ticket;
}

/// Takes note of what the writer knows by now.
void LogWorld::note_committed(Program& program) {
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
  tell("record {} is committed, says {}", last.ticket.index, program.machine->name());
  if (!judge_.breach()) check_durable(program, last, program.log->configuration().quorum);
}

bool LogWorld::wait_on(Program& program, Pending pending, Level level, Nanoseconds timeout) {
  const Nanoseconds before = world_.clock().now();
  in_call_ = true;
  const auto waited = program.log->wait(pending.ticket, level, timeout);
  in_call_ = false;
  const Nanoseconds took = world_.clock().now() - before;
  tell_outcome(fmt::format("wait for {} of record {} by {}", to_string(level), pending.ticket.index,
                           program.machine->name()),
               waited);
  if (took > timeout + kLate && !clock_.jumps) {
    judge_.late(fmt::format("wait returned after {} us; its time-out was {} us",
                            took.count() / 1000, timeout.count() / 1000));
  }
  note_committed(program);
  if (waited.ok() && level == Level::Durable && !judge_.breach()) {
    check_durable(program, pending, 1);
  }
  return waited.ok();
}

/// Whether a replica's durable bytes hold the record: where records usually are, or anywhere (in a
/// persistent receive buffer, for example).
bool LogWorld::holds_durably(const Replica& replica, const Ticket& ticket, std::uint64_t ring,
                             std::span<const std::byte> bytes) const {
  pmem::CrashableRegion& region = replica.server->region();
  const std::uint64_t at =
      pmem::kPoolDataOffset + log::kRingAt + ticket.lsn.value % ring + log::kRecordHeaderBytes;
  if (at + bytes.size() <= region.bytes().size() && region.durable_at(at, bytes)) return true;
  const std::vector<std::byte> all = region.durable();
  return std::search(all.begin(), all.end(), bytes.begin(), bytes.end()) != all.end();
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
  std::size_t found = 0;
  for (const log::Member& member : program.log->configuration().members) {
    const auto index = server_of(member.pool);
    const bool believed = !index || replicas_[*index].bad ||
                          replicas_[*index].server->region().domain() == PersistenceDomain::Wsp;
    if (believed || holds_durably(replicas_[*index], ticket, status.ring_bytes, bytes)) ++found;
    if (found >= copies) return;
  }
  judge_.not_durable(
      fmt::format("record {} at {} was acknowledged to {}; it is durable on {} "
                  "replicas, and that takes {}",
                  ticket.index, ticket.lsn.value, program.machine->name(), found, copies));
}

void LogWorld::trim_to(Program& program, Lsn lsn) {
  judge_.trim_begins(program.writer, lsn);
  in_call_ = true;
  const auto trimmed = program.log->trim(lsn);
  in_call_ = false;
  tell_outcome(fmt::format("trim to {} by {}", lsn.value, program.machine->name()), trimmed);
  note_committed(program);
  if (trimmed.ok()) judge_.trimmed(program.writer, lsn);
}

void LogWorld::note_repairs(const std::vector<RepairReport>& reports) {
  for (const RepairReport& report : reports) {
    tell("repair of {}: {}", report.peer, report.repaired ? "done, " + report.found : report.error);
    const auto server = server_named(report.peer);
    if (report.repaired && server) replicas_[*server].bad = replicas_[*server].foreign = false;
  }
}

/// Starts a machine that is off. A medium that is no pool any more gets a blank one.
void LogWorld::start(std::size_t replica) {
  Replica& each = replicas_[replica];
  each.server->region().refuse_flushes(ErrorCode::SystemError, 0, random_);
  const auto started = each.server->start_again();
  // A strike may have come in the middle of it.
  each.off = !each.server->machine().powered();
  if (started.ok() || each.off) return;
  tell_outcome("start of " + each.server->machine().name(), started);
  if (!each.bad && !beyond_) {
    judge_.nothing_can_be_done(fmt::format("the pool of {} can not be opened after a failure: {}",
                                           each.server->machine().name(), started.error().message));
  }
  start_blank(each);
}

/// A new medium, and a new pool on it: of another UUID, and so no replica.
void LogWorld::start_blank(Replica& replica) {
  replica.bad = replica.foreign = false;
  replica.server->region().refuse_flushes(ErrorCode::SystemError, 0, random_);
  const auto started = replica.server->start_with({});
  replica.bad = !started.ok();  // the power failed before there was a pool
  replica.off = !replica.server->machine().powered();
  PERDURE_ASSERT(started.ok() || replica.off);
}

bool LogWorld::unacknowledged() const {
  return in_call_ || std::ranges::any_of(programs_, [](const Program& program) {
           return !program.pending.empty();
         });
}

/// Programs whose machine died are gone with all they knew.
void LogWorld::bury_dead_programs() {
  for (Program& program : programs_) {
    if (program.machine->powered()) continue;
    program.log.reset();
    program.pending.clear();
  }
  if (!reader_machine_->powered()) {
    follower_.reset();
    reader_machine_->power_on();
  }
}

void LogWorld::finish() {
  world_.cancel_after();
  clock_.jumps = false;
  follower_.reset();
  for (Program& program : programs_) {
    program.log.reset();
    program.pending.clear();
  }
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    fabric::emu::Machine& machine = replicas_[index].server->machine();
    machine.starve(false);
    for (const Program& program : programs_) {
      world_.set_link(*program.machine, machine, fabric::emu::LinkState::Up);
    }
    world_.set_link(*reader_machine_, machine, fabric::emu::LinkState::Up);
    // Every daemon is started anew: none keeps sessions or distrusts its medium.
    if (machine.powered()) replicas_[index].server->kill();
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
    world_.pass(std::chrono::seconds(1));
  }
  if (newest().log != nullptr || beyond_) return;
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
    newest().log.reset();
    finish_open();
    if (newest().log == nullptr || judge_.breach()) return;
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
      ticket && (program.pending.empty() || wait_on(program, program.pending.back(),
                                                    Level::Committed, std::chrono::seconds(1)));
  if (!committed && !beyond_) {
    judge_.nothing_can_be_done("all machines run, and no record can be appended and committed");
  }
}

Scenario log_scenario() {
  return scenario_of("log", [](const WorldOptions& options) {
    return std::unique_ptr<World>(std::make_unique<LogWorld>(options));
  });
}

}  // namespace perdure::test
