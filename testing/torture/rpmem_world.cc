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
  auto target = WorldTarget::start(
      world_, "target", profile,
      {.flushes_nothing = options_.flushes_nothing, .forgets_clients = options_.forgets_clients});
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
             {"rides-out", rides_out_}};
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
  if (here().pool != nullptr && !gone_) return true;
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
  gone_ = false;
  refused_ = lasting_ > 0 && refused_;
  troubled_ = lasting_ > 0;
  taken_over_ = false;
  ++counts_[creates ? "made" : "opened"];
  return both_hold_the_same();
}

/// What libpmemobj's recovery and pmempool sync are for: from here on both sides hold the same.
bool RpmemWorld::both_hold_the_same() {
  if (!blank_ && (lost_ || random_.chance(1, 2)) && !judge_target(lost_)) return false;
  const Range all{0, kWords};
  keep_locally(all);
  const auto persisted = here().pool->persist(offset_of(0), kWords * kWordBytes, 0);
  if (!persisted.ok()) {
    tell("     not made equal: {}", persisted.error().message);
    return false;
  }
  judge_.begin_life(words(memory(here_)));
  counts_["restored"] += lost_ ? 1 : 0;
  lost_ = false;
  blank_ = false;
  return true;
}

/// `restores`: into the program's memory.
bool RpmemWorld::judge_target(bool restores) {
  std::vector<std::uint64_t> found(kWords);
  const auto got =
      here().pool->read(offset_of(0), std::as_writable_bytes(std::span(found)), kLanes - 1);
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

/// What a call that makes something durable has said. A pool that was lost is opened again next.
bool RpmemWorld::took(const Result<void>& outcome, const Stored& what, const char* call) {
  calls_ = false;
  if (outcome.ok()) {
    judge_.durable(what);
    ++counts_["acknowledged"];
    return true;
  }
  const ErrorCode code = outcome.code();
  tell("     {}: {}", call, outcome.error().message);
  const bool known = (code == ErrorCode::Disconnected && troubled_) ||
                     (code == ErrorCode::InvalidArgument && taken_over_) ||
                     ((code == ErrorCode::SystemError || code == ErrorCode::NoSpace) && refused_);
  if (!known) {
    judge_.nothing_can_be_done(fmt::format("{}: {}", call, outcome.error().message));
  }
  ++counts_[refused_ && code != ErrorCode::Disconnected ? "medium_refused" : "lost"];
  gone_ = true;
  // It is lost for good: the target may lack what comes between.
  if (code == ErrorCode::Disconnected && here().pool->drain(kLanes - 1).ok()) {
    judge_.nothing_can_be_done("a pool that was lost takes more");
  }
  return false;
}

void RpmemWorld::persist(Random& choices, std::size_t words_max, bool deep) {
  if (!ensure_open()) return;
  const Range range = some_words(choices, words_max);
  const std::size_t lane = choices.below(kLanes);
  const Stored what = store(range);
  keep_locally(range);
  calls_ = true;
  RemotePool& pool = *here().pool;
  const std::uint64_t at = offset_of(range.first);
  const std::uint64_t length = range.count * kWordBytes;
  took(deep ? pool.deep_persist(at, length, lane) : pool.persist(at, length, lane), what,
       deep ? "a deep persist" : "a persist");
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
    const auto flushed = here().pool->flush(offset_of(range.first), range.count * kWordBytes, lane);
    if (!flushed.ok()) {
      took(flushed, {}, "a flush");
      return;
    }
    Stored& pending = here().flushed[lane];
    pending.insert(pending.end(), what.begin(), what.end());
  }
}

void RpmemWorld::drain(Random& choices) {
  if (!ensure_open()) return;
  const std::size_t lane = choices.below(kLanes);
  calls_ = !here().flushed[lane].empty();
  if (took(here().pool->drain(lane), here().flushed[lane], "a drain")) {
    here().flushed[lane].clear();
  }
}

void RpmemWorld::read(Random& choices) {
  if (!ensure_open()) return;
  const Range range = some_words(choices, choices.chance(1, 8) ? kWords - 1 : 64);
  std::vector<std::uint64_t> found(range.count);
  const auto got =
      here().pool->read(offset_of(range.first), std::as_writable_bytes(std::span(found)), 0);
  if (!got.ok()) {
    took(got, {}, "a read");
    return;
  }
  ++counts_["reads"];
  judge_.holds(range.first, found, "a read");
}

void RpmemWorld::set_attributes(Random&) {
  if (!ensure_open()) return;
  rpmem::PoolAttributes attributes = may_have_.back();
  ++last_mark_;
  std::memcpy(attributes.poolset_uuid.data(), &last_mark_, sizeof last_mark_);
  may_have_.push_back(attributes);
  const auto set = here().pool->set_attributes(attributes);
  if (set.ok()) {
    may_have_ = {attributes};
    ++counts_["attributes_set"];
    return;
  }
  tell("     attributes: {}", set.error().message);
  if (!troubled_) judge_.nothing_can_be_done("attributes: " + set.error().message);
  gone_ =
      true;  // it may have been lost or not; which attributes there are it is told when it opens
}

void RpmemWorld::close_and_end(Random& choices) {
  if (!ensure_open()) return;
  calls_ = true;
  Stored all;
  for (const Stored& lane : here().flushed) all.insert(all.end(), lane.begin(), lane.end());
  const auto closed = here().pool->close();
  calls_ = false;
  if (closed.ok()) judge_.durable(all);
  if (!closed.ok()) {
    tell("     closing: {}", closed.error().message);
    if (!troubled_ && !refused_) judge_.nothing_can_be_done("closing: " + closed.error().message);
  }
  end_life(choices, false);
}

/// The program ends, the power fails here and there, and what is left is judged.
void RpmemWorld::end_life(Random& choices, bool loses_memory) {
  here().pool.reset();
  here().flushed = {};
  gone_ = false;
  lost_ = loses_memory;
  if (lost_) {
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
  if (!lost_) judge_.holds(0, words(memory(here_)), "the program's memory");
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
    if (!troubled_ && beside.code() != ErrorCode::Busy) {
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
  lost_ = true;
  gone_ = false;
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
  const auto persisted = other().pool->persist(offset_of(0), kWordBytes, 0);
  if (persisted.ok()) return judge_.superseded("a program that was taken over from persisted");
  ++counts_[persisted.code() == ErrorCode::InvalidArgument ? "older_refused" : "older_lost"];
  tell("     as before: {}", persisted.error().message);
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
    Stored all;
    bool drained = true;
    for (std::size_t lane = 0; lane < kLanes && drained; ++lane) {
      drained = took(here().pool->drain(lane), here().flushed[lane], "a drain");
      here().flushed[lane].clear();
    }
    if (!drained) continue;
    const Range range = some_words(choices, 12);
    const Stored what = store(range);
    keep_locally(range);
    if (!took(here().pool->persist(offset_of(range.first), range.count * kWordBytes, 0), what,
              "a last persist")) {
      continue;
    }
    if (options_.a_bit_flips) {
      target_->region().flip_bit(rpmem::PartRegion::kFrontBytes + kFirstByte + 1, 3);
    }
    return end_life(choices, choices.chance(1, 2));
  }
  judge_.nothing_can_be_done("with everything repaired nothing is taken");
}

std::vector<Counter> RpmemWorld::counters() const {
  auto counts = counts_;
  for (const char* name : {"acknowledged", "attributes_set", "beside_opened", "beside_refused",
                           "elsewhere", "kills", "lost", "made", "medium_refused", "older_lost",
                           "older_refused", "opened", "power_cuts_counted", "reads", "restored"}) {
    counts.try_emplace(name, 0);
  }
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
