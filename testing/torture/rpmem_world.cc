// A program on librpmem and its target in a box: see rpmem_world.h. What goes wrong is in
// rpmem_world_faults.cc.
#include "testing/torture/rpmem_world.h"

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/bytes.h"
#include "testing/torture/draw_responder.h"

namespace perdure::test {

using rpmem::RemotePool;

RpmemWorld::RpmemWorld(const WorldOptions& options, const RpmemMachines& machines)
    : options_(machines), tell_(options.tell), random_(options.seed) {
  judge_.leave_out(options.laws_left_out);
  Random choices(options.seed + 1);
  ServerProfile profile = draw_responder(choices);
  profile.receive_buffers = ReceiveBuffers::Dram;  // rpmemd has no others
  rides_out_ = choices.chance(3, 4);
  measures_ = choices.chance(1, 4);
  const bool small = choices.chance(1, 2);  // more messages for the same ranges
  const persist::ReceiveQueue queue =
      small ? persist::ReceiveQueue{32, 2048} : persist::ReceiveQueue{};
  fabric::emu::RnicSwitches switches;
  switches.tears_words = choices.chance(1, 3);
  relaxed_percent_ = switches.tears_words ? 0 : choices.chance(1, 2) ? 100 : 50;
  auto target = WorldTarget::start(world_, "target", profile,
                                   {.queue = queue,
                                    .switches = switches,
                                    .flushes_nothing = options_.flushes_nothing,
                                    .forgets_clients = options_.forgets_clients});
  PERDURE_ASSERT(target.ok());
  target_ = std::move(*target);
  for (std::size_t place = 0; place < places_.size(); ++place) {
    places_[place].machine = &world_.add_machine(fmt::format("client{}", place), profile);
    new_memory(places_[place]);
  }
  rpmem::PoolAttributes attributes;
  attributes.signature = {'T', 'O', 'R', 'T', 'U', 'R', 'E'};
  attributes.major = 1;
  attributes.user_flags.fill(std::byte{1});
  may_have_ = {attributes};
  traits_ = {{"page-cache", profile.domain == PersistenceDomain::Page},
             {"unordered-writes", profile.write_order == WriteOrder::Unknown},
             {"messages-only", profile.transport == Transport::Tcp},
             {"persist-apm", profile.ddio == Ddio::Off},
             {"rides-out", rides_out_},
             {"small-messages", small},
             {"torn-words", switches.tears_words}};
  tell("{}, {}", describe(profile), rides_out_ ? "rides losses out" : "a loss is an error at once");
  add_operations();
  add_faults();
}

RpmemWorld::~RpmemWorld() {
  world_.cancel_after();
  for (Place& place : places_) place.pool.reset();
}

void RpmemWorld::new_memory(Place& place) {
  place.memory =
      *pmem::CrashableRegion::open({kFirstByte + kWords * kWordBytes, PersistenceDomain::Dmp});
}

std::span<std::byte> RpmemWorld::memory(std::size_t place) {
  return places_[place].memory->bytes().first(kFirstByte + kWords * kWordBytes);
}

std::uint64_t RpmemWorld::offset_of(std::size_t word) { return kFirstByte + word * kWordBytes; }

std::vector<std::uint64_t> RpmemWorld::words(std::span<const std::byte> bytes) const {
  std::vector<std::uint64_t> found(kWords);
  std::memcpy(found.data(), bytes.data() + kFirstByte, kWords * kWordBytes);
  return found;
}

void RpmemWorld::add_operations() {
  const auto add = [this](std::string name, std::uint32_t weight,
                          std::function<void(Random&)> run) {
    operations_.push_back({std::move(name), weight, std::move(run)});
  };
  add("persist", 8, [this](Random& choices) { persist(choices, 12, false); });
  add("persist-large", 3, [this](Random& choices) { persist(choices, 3000, false); });
  add("persist-deep", 3, [this](Random& choices) { persist(choices, 12, true); });
  add("flush", 8, [this](Random& choices) { flush(choices, 12); });
  add("flush-large", 2, [this](Random& choices) { flush(choices, 2500); });
  add("drain", 8, [this](Random& choices) { drain(choices); });
  add("read", 4, [this](Random& choices) { read(choices); });
  add("store", 2, [this](Random& choices) {
    if (ensure_open()) (void)store(some_words(choices, 4));
  });
  add("set-attributes", 2, [this](Random& choices) { set_attributes(choices); });
  add("close", 2, [this](Random& choices) { close_and_end(choices); });
  add("die", 2, [this](Random& choices) {
    if (ensure_open()) end_life(choices, false);
  });
  add("lose-memory", 2, [this](Random& choices) {
    if (ensure_open()) end_life(choices, true);
  });
  add("open-beside", 2, [this](Random& choices) { open_beside(choices); });
  add("go-on-elsewhere", 2, [this](Random& choices) { go_on_elsewhere(choices); });
  add("write-as-before", 3, [this](Random& choices) { write_as_before(choices); });
  add("make-anew", 1, [this](Random& choices) { make_anew(choices); });
}

rpmem::RemotePoolOptions RpmemWorld::pool_options(std::size_t place) {
  rpmem::RemotePoolOptions options;
  options.target.host = "target";
  options.set = WorldTarget::kSet;
  options.lanes = kLanes;
  options.reconnect = rides_out_ ? std::chrono::seconds(5) : std::chrono::seconds(0);
  options.connect_within = std::chrono::seconds(1);
  options.timeout = std::chrono::milliseconds(500);
  options.spin = Nanoseconds{0};
  options.measure_costs = measures_;
  options.start = target_->reached_from(*places_[place].machine);
  options.clock = &clock_;
  options.pause = [this](Nanoseconds time) { world_.pass(time); };
  return options;
}

/// With everything repaired it must be possible, wherever it was interrupted before.
bool RpmemWorld::ensure_open() {
  if (here().pool != nullptr && !pool_lost_) return true;
  here().pool.reset();
  here().flushed = {};
  for (int tries = 0; tries < kOpenings; ++tries) {
    if (tries > 1) {
      all_back();
      world_.pass(std::chrono::milliseconds(500));
    }
    if (try_open()) return true;
    here().pool.reset();
  }
  judge_.nothing_can_be_done("the pool does not open, with its target repaired");
  return false;
}

bool RpmemWorld::try_open() {
  const auto options = pool_options(here_);
  const bool creates = !made_;
  struck_ = false;
  auto opened = creates ? RemotePool::create(options, memory(here_), may_have_.back())
                        : RemotePool::open(options, memory(here_));
  if (!opened.ok()) {
    tell("     not {}: {}", creates ? "made" : "opened", opened.error().message);
    // It was made, and the answer lost.
    if (opened.code() == ErrorCode::AlreadyExists) made_ = true;
    if (opened.code() == ErrorCode::NotFound && made_) {
      judge_.nothing_can_be_done("a set that was there: " + opened.error().message);
    }
    return false;
  }
  made_ = true;
  const rpmem::PoolAttributes found = (*opened)->attributes();
  if (std::ranges::find(may_have_, found) == may_have_.end()) {
    judge_.other_headers("a pool has attributes that nobody set");
  }
  may_have_ = {found};
  here().pool = std::move(*opened);
  pool_lost_ = false;
  refused_ = lasting_ > 0 && refused_;
  note_answer();
  taken_over_ = false;
  ++counts_[creates ? "made" : "opened"];
  return both_hold_the_same();
}

/// What libpmemobj's recovery and pmempool sync are for: from here on both sides hold the same.
bool RpmemWorld::both_hold_the_same() {
  if (!blank_ && (memory_lost_ || random_.chance(1, 2)) && !judge_target(memory_lost_))
    return false;
  const Range all{0, kWords};
  keep_locally(all);
  const auto persisted = call("making equal", Asks::Session, [&] {
    return here().pool->persist(offset_of(0), kWords * kWordBytes, 0);
  });
  if (!persisted.ok()) return false;
  judge_.begin_life(words(memory(here_)));
  counts_["restored"] += memory_lost_ ? 1 : 0;
  memory_lost_ = false;
  blank_ = false;
  return true;
}

/// `restores`: into the program's memory.
bool RpmemWorld::judge_target(bool restores) {
  std::vector<std::uint64_t> found(kWords);
  const auto got = call("reading all", Asks::Session, [&] {
    return here().pool->read(offset_of(0), std::as_writable_bytes(std::span(found)), kLanes - 1);
  });
  if (!got.ok()) return false;
  judge_.holds(0, found, "what is read when the pool was opened");
  if (!restores) return true;
  std::memcpy(memory(here_).data() + kFirstByte, found.data(), kWords * kWordBytes);
  return true;
}

RpmemWorld::Range RpmemWorld::some_words(Random& choices, std::size_t most) const {
  const std::size_t count = 1 + choices.below(most);
  return {choices.below(kWords - count), count};
}

RpmemWorld::Stored RpmemWorld::store(const Range& range) {
  Stored what;
  for (std::size_t word = range.first; word < range.first + range.count; ++word) {
    perdure::store(memory(here_).data() + offset_of(word), ++last_value_);
    judge_.stored(word, last_value_);
    what.push_back(judge_.newest(word));
  }
  return what;
}

void RpmemWorld::keep_locally(const Range& range) {
  const auto kept = here().memory->flush(offset_of(range.first), range.count * kWordBytes);
  PERDURE_ASSERT(kept.ok());
}

/// The target has answered by the connection that there is: what went wrong before the call is
/// over.
void RpmemWorld::note_answer() {
  if (struck_) return;
  troubled_ = lasting_ > 0;
  dropped_ = false;
}

/// Whether remote_pool.h names the error for such a call, and it may come now.
bool RpmemWorld::known(Asks whom, ErrorCode code) const {
  switch (code) {
    case ErrorCode::Disconnected: return troubled_ || (dropped_ && !rides_out_);
    case ErrorCode::InvalidArgument: return taken_over_;
    case ErrorCode::NotFound: return taken_over_ && !made_;  // its files were removed
    case ErrorCode::SystemError:
    case ErrorCode::NoSpace: return refused_;
    case ErrorCode::TimedOut: return whom == Asks::Rpmemd && troubled_;
    default: return false;
  }
}

/// What it says is told and judged, and whether it came back for it is counted.
Result<void> RpmemWorld::call(const char* name, Asks whom,
                              const std::function<Result<void>()>& run) {
  struck_ = false;
  const std::uint64_t started = target_->started();
  const std::uint64_t sessions = target_->sessions();
  Result<void> outcome = run();
  calls_ = false;
  if (outcome.ok()) {
    const bool by_another = target_->started() != started;
    if (by_another) ++counts_["ridden_out"];
    if (!by_another && target_->sessions() != sessions) ++counts_["ridden_out_by_the_same"];
    return outcome;
  }
  tell("     {}: {}", name, outcome.error().message);
  if (!known(whom, outcome.code())) {
    judge_.nothing_can_be_done(
        fmt::format("{}: {}: {}", name, to_string(outcome.code()), outcome.error().message));
  }
  return outcome;
}

/// A call by the session. `what` it makes durable. A pool that was lost is opened again next.
bool RpmemWorld::take(const char* name, const Stored& what,
                      const std::function<Result<void>(RemotePool&)>& run) {
  calls_ = !what.empty();
  RemotePool& pool = *here().pool;
  const auto outcome = call(name, Asks::Session, [&] { return run(pool); });
  if (outcome.ok()) {
    judge_.durable(what);
    if (!what.empty()) note_answer();
    ++counts_["acknowledged"];
    return true;
  }
  const bool refused =
      outcome.code() == ErrorCode::SystemError || outcome.code() == ErrorCode::NoSpace;
  ++counts_[refused ? "medium_refused" : "lost"];
  pool_lost_ = true;
  takes_nothing_more(pool, outcome.code());
  return false;
}

/// A pool that was lost is lost for good, and says why: the target may lack what comes between.
void RpmemWorld::takes_nothing_more(RemotePool& pool, ErrorCode lost_by) {
  const std::size_t lane = random_.below(kLanes);
  std::uint64_t word = 0;
  const auto later = [&]() -> Result<void> {
    switch (random_.below(6)) {
      case 0: return pool.persist(offset_of(0), kWordBytes, lane);
      case 1: return pool.deep_persist(offset_of(0), kWordBytes, lane);
      case 2: return pool.flush(offset_of(0), kWordBytes, lane);
      case 3: return pool.read(offset_of(0), std::as_writable_bytes(std::span(&word, 1)), lane);
      case 4: return pool.set_attributes(pool.attributes());
      default: return pool.drain(lane);
    }
  }();
  if (later.ok()) return judge_.nothing_can_be_done("a pool that was lost takes more");
  if (later.code() == lost_by) return;
  judge_.nothing_can_be_done(fmt::format("a pool was lost by {}, and a later call says {}",
                                         to_string(lost_by), later.error().message));
}

RemotePool::Words RpmemWorld::draw_words(Random& choices) const {
  const bool relaxed = choices.chance(relaxed_percent_, 100);
  return relaxed ? RemotePool::Words::MayTear : RemotePool::Words::Whole;
}

void RpmemWorld::persist(Random& choices, std::size_t words_max, bool deep) {
  if (!ensure_open()) return;
  const Range range = some_words(choices, words_max);
  const std::size_t lane = choices.below(kLanes);
  const Stored what = store(range);
  keep_locally(range);
  const std::uint64_t at = offset_of(range.first);
  const std::uint64_t length = range.count * kWordBytes;
  const RemotePool::Words words = draw_words(choices);
  take(deep ? "a deep persist" : "a persist", what, [&](RemotePool& pool) {
    return deep ? pool.deep_persist(at, length, lane) : pool.persist(at, length, lane, words);
  });
}

void RpmemWorld::flush(Random& choices, std::size_t words_max) {
  if (!ensure_open()) return;
  const std::size_t lane = choices.below(kLanes);
  const std::uint64_t ranges = 1 + choices.below(words_max > 100        ? 3
                                                 : choices.chance(1, 8) ? 1200
                                                                        : 12);
  for (std::uint64_t each = 0; each < ranges; ++each) {
    const Range range = some_words(choices, words_max);
    const Stored what = store(range);
    keep_locally(range);
    const RemotePool::Words words = draw_words(choices);
    const bool flushed = take("a flush", {}, [&](RemotePool& pool) {
      return pool.flush(offset_of(range.first), range.count * kWordBytes, lane, words);
    });
    if (!flushed) return;
    Stored& pending = here().flushed[lane];
    pending.insert(pending.end(), what.begin(), what.end());
  }
}

void RpmemWorld::drain(Random& choices) {
  if (!ensure_open()) return;
  (void)drain(choices.below(kLanes));
}

bool RpmemWorld::drain(std::size_t lane) {
  const Stored what = std::exchange(here().flushed[lane], {});
  return take("a drain", what, [&](RemotePool& pool) { return pool.drain(lane); });
}

void RpmemWorld::read(Random& choices) {
  if (!ensure_open()) return;
  const Range range = some_words(choices, choices.chance(1, 8) ? kWords - 1 : 64);
  std::vector<std::uint64_t> found(range.count);
  const bool got = take("a read", {}, [&](RemotePool& pool) {
    return pool.read(offset_of(range.first), std::as_writable_bytes(std::span(found)), 0);
  });
  if (!got) return;
  note_answer();
  ++counts_["reads"];
  judge_.holds(range.first, found, "a read");
}

void RpmemWorld::set_attributes(Random&) {
  if (!ensure_open()) return;
  rpmem::PoolAttributes attributes = may_have_.back();
  ++last_mark_;
  std::memcpy(attributes.poolset_uuid.data(), &last_mark_, sizeof last_mark_);
  may_have_.push_back(attributes);
  const auto set =
      call("attributes", Asks::Rpmemd, [&] { return here().pool->set_attributes(attributes); });
  if (set.ok()) {
    may_have_ = {attributes};
    ++counts_["attributes_set"];
    return;
  }
  // Which attributes there are it is told when it opens again. After TimedOut it need not.
  pool_lost_ = true;
  if (set.code() != ErrorCode::TimedOut) takes_nothing_more(*here().pool, set.code());
}

void RpmemWorld::close_and_end(Random& choices) {
  if (!ensure_open()) return;
  calls_ = true;
  Stored all;
  for (const Stored& lane : here().flushed) all.insert(all.end(), lane.begin(), lane.end());
  const auto closed = call("closing", Asks::Rpmemd, [&] { return here().pool->close(); });
  if (closed.ok()) judge_.durable(all);
  end_life(choices, false);
}

/// The program ends, the power fails here and there, and what is left is judged.
void RpmemWorld::end_life(Random& choices, bool loses_memory) {
  here().pool.reset();
  here().flushed = {};
  pool_lost_ = false;
  memory_lost_ = loses_memory;
  if (memory_lost_) {
    new_memory(here());
  } else if (choices.chance(1, 2)) {
    here().memory->power_cut(random_);
    here().memory->power_on();
  }
  world_.settle();
  if (choices.chance(1, 2)) {
    target_->lose_power();
    target_->start_again();
    troubled_ = true;
  }
  judge_.holds(0, words(target_->pool()), "the target");
  if (!memory_lost_) judge_.holds(0, words(memory(here_)), "the program's memory");
}

void RpmemWorld::end_earlier() {
  other().pool.reset();
  other().flushed = {};
  new_memory(other());
}

/// Another program wants the pool while this one has it. Where its rpmemd has died and it does not
/// know yet, that is how it loses the pool.
void RpmemWorld::open_beside(Random& choices) {
  if (!ensure_open()) return;
  end_earlier();
  auto options = pool_options(1 - here_);
  options.reconnect = Nanoseconds{0};
  options.connect_within = std::chrono::milliseconds(1 + choices.below(200));
  auto beside = RemotePool::open(options, memory(1 - here_));
  if (!beside.ok()) {
    ++counts_["beside_refused"];
    // It may have failed after it was noted as the one that has the pool.
    taken_over_ = taken_over_ || troubled_;
    const bool dropped = dropped_ && beside.code() == ErrorCode::Disconnected;
    if (!troubled_ && !dropped && beside.code() != ErrorCode::Busy) {
      judge_.nothing_can_be_done("opening what is open: " + beside.error().message);
    }
    return;
  }
  if (!troubled_) judge_.superseded("two programs have the pool at once");
  taken_over_ = true;
  ++counts_["beside_opened"];
}

/// The rpmemd dies, and before its client notices a program on the other machine comes.
void RpmemWorld::go_on_elsewhere(Random&) {
  if (!target_->knows_clients() || !ensure_open()) return;
  end_earlier();
  target_->kill();
  target_->start_again();
  troubled_ = true;
  here_ = 1 - here_;
  memory_lost_ = true;
  pool_lost_ = false;
  taken_over_ = false;
  if (ensure_open()) ++counts_["elsewhere"];
}

/// Of a program that another one has had the pool since: it goes on, and is told so; also where the
/// other one's rpmemd has died, and it would be first.
void RpmemWorld::write_as_before(Random& choices) {
  if (other().pool == nullptr) return;
  if (choices.chance(1, 2)) {
    target_->kill();
    target_->start_again();
  }
  perdure::store(memory(1 - here_).data() + offset_of(0), kNever);
  troubled_ = true;  // it may wait for long, and the other one meanwhile
  const bool taken_over = std::exchange(taken_over_, true);
  const auto persisted = call("as before", Asks::Session,
                              [&] { return other().pool->persist(offset_of(0), kWordBytes, 0); });
  taken_over_ = taken_over;
  if (persisted.ok()) return judge_.superseded("a program that was taken over from persisted");
  takes_nothing_more(*other().pool, persisted.code());
  ++counts_[persisted.code() == ErrorCode::InvalidArgument ? "older_refused" : "older_lost"];
  end_earlier();
}

/// The replica is removed, or its medium replaced, and it is made anew from the program's memory.
void RpmemWorld::make_anew(Random& choices) {
  if (!ensure_open()) return;
  end_life(choices, false);
  target_->lose_power();
  target_->replace_medium();
  target_->start_again();
  made_ = false;
  blank_ = true;
  troubled_ = true;
}

void RpmemWorld::all_back() {
  world_.cancel_after();
  armed_ = false;
  target_->machine().starve(false);
  target_->refuse_flushes(ErrorCode::SystemError, 0, random_);
  for (const Place& place : places_) {
    world_.set_link(*place.machine, target_->machine(), fabric::emu::LinkState::Up);
  }
  clock_.jumps = false;
  target_->end_orphans();
  if (!target_->machine().powered()) target_->start_again();
}

void RpmemWorld::finish() {
  Random choices(random_.next());
  end_earlier();
  for (int tries = 0; tries < kOpenings; ++tries) {
    all_back();
    if (!ensure_open()) return;
    bool drained = true;
    for (std::size_t lane = 0; lane < kLanes && drained; ++lane) drained = drain(lane);
    if (!drained) continue;
    const Range range = some_words(choices, 12);
    const Stored what = store(range);
    keep_locally(range);
    const bool persisted = take("a last persist", what, [&](RemotePool& pool) {
      return pool.persist(offset_of(range.first), range.count * kWordBytes, 0);
    });
    if (!persisted) continue;
    if (options_.a_bit_flips) {
      target_->region().flip_bit(rpmem::PartRegion::kFrontBytes + kFirstByte + 1, 3);
    }
    return end_life(choices, choices.chance(1, 2));
  }
  judge_.nothing_can_be_done("with everything repaired nothing is taken");
}

std::vector<Counter> RpmemWorld::counters() const {
  auto counts = counts_;
  for (const char* name :
       {"acknowledged", "attributes_set", "beside_opened", "beside_refused", "elsewhere", "kills",
        "lost", "made", "medium_refused", "older_lost", "older_refused", "opened",
        "power_cuts_counted", "reads", "restored", "ridden_out", "ridden_out_by_the_same"}) {
    counts.try_emplace(name, 0);
  }
  counts["clients_known"] = target_->knows_clients() ? 1 : 0;
  counts["rpmemd_started"] = target_->started();
  std::vector<Counter> all;
  for (const auto& [name, value] : counts) all.push_back({name, value});
  return all;
}

Scenario rpmem_scenario(const RpmemMachines& machines) {
  return scenario_of("rpmem", [machines](const WorldOptions& options) {
    return std::unique_ptr<World>(std::make_unique<RpmemWorld>(options, machines));
  });
}

}  // namespace perdure::test
