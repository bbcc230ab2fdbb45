// Durable RPC in a box, its server and the end of each world: see rpc_world.h.
#include "testing/torture/rpc_world.h"

#include <algorithm>
#include <stdexcept>

#include "core/assert.h"
#include "core/try.h"
#include "pmem/lent_region.h"
#include "pmem/pool_format.h"
#include "testing/torture/draw_responder.h"

namespace perdure::test {
namespace {

using rpc::RpcHost;

constexpr std::uint64_t kRing = 16 * 1024;
constexpr std::uint32_t kReplyBytes = 64;
constexpr std::uint32_t kLargeReplyBytes = 12'000;  // two messages
constexpr Nanoseconds kLease = std::chrono::seconds(1);
constexpr persist::ReceiveQueue kRpcQueue{32, 2048};
/// Each call that ends its server does so a few times before it is set aside.
constexpr int kStartsMax = 100;
constexpr int kEndingsMax = 40;

rpc::PoolShape draw_shape(bool large_replies) {
  rpc::PoolShape shape;
  shape.clients = 4;
  shape.ring_bytes = kRing;
  shape.window_bytes =
      pmem::kPoolDataOffset + rpc::kRingAt + kRing + server::persistent_buffer_bytes(kRpcQueue);
  shape.replies = 8;
  shape.reply_bytes_max = large_replies ? kLargeReplyBytes : kReplyBytes;
  shape.transaction_bytes = large_replies ? 128 * 1024 : 16 * 1024;
  shape.data_bytes = kBankBytes;
  return shape;
}

}  // namespace

RpcWorld::RpcWorld(const WorldOptions& options, const RpcMachines& machines)
    : options_(machines), tell_(options.tell), random_(options.seed) {
  judge_.leave_out(options.laws_left_out);
  Random choices(options.seed + 1);
  profile_ = draw_responder(choices);
  const bool large_replies = choices.chance(1, 4);
  shape_ = draw_shape(large_replies);
  rules_.attempts_max = 1 + static_cast<std::uint32_t>(choices.below(3));
  rules_.refuse_failed = choices.chance(1, 4);
  judge_.rule(rules_);
  quick_ = choices.chance(1, 3);
  handler_threads_ = choices.chance(1, 4) ? 2 : 1;
  slow_from_percent_ = choices.chance(1, 2) ? 50 : 100;
  traits_ = {{"page-cache", profile_.domain == PersistenceDomain::Page},
             {"unordered-writes", profile_.write_order == WriteOrder::Unknown},
             {"messages-only", profile_.transport == Transport::Tcp},
             {"kept-buffers", profile_.receive_buffers == ReceiveBuffers::Pm},
             {"large-replies", large_replies},
             {"quick-handlers", quick_},
             {"several-threads", handler_threads_ > 1},
             {"refuse-failed", rules_.refuse_failed}};
  tell("{}, {} attempts{}, {} handler threads", describe(profile_), rules_.attempts_max,
       rules_.refuse_failed ? ", then refused" : "", handler_threads_);
  machine_ = &world_.add_machine("server", profile_);
  region_ = &machine_->add_region(pmem::kPoolDataOffset + shape_.bytes());
  const auto formatted =
      pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region_), pmem::PoolOptions{});
  PERDURE_ASSERT(formatted.ok());
  for (std::uint32_t number = 0; number < kPersons; ++number) {
    Person& person = persons_[number];
    person.name = fmt::format("teller{}", number);
    person.number = number;
    person.machine = &world_.add_machine(person.name, profile_);
  }
  add_operations();
  add_faults();
  start();
}

RpcWorld::~RpcWorld() {
  world_.cancel_cut();
  world_.cancel_after();
  for (Person& each : persons_) {
    each.caller.reset();
    each.older.reset();
  }
  host_.reset();
}

rpc::RpcHostOptions RpcWorld::host_options() {
  rpc::RpcHostOptions options;
  add_bank(options.executor.handlers, options.executor.queries, newer_,
           [this](const RpcCall& call) { before_handler(call); });
  options.executor.attempts_max = rules_.attempts_max;
  options.executor.refuse_failed = rules_.refuse_failed;
  options.executor.threads = handler_threads_;
  options.executor.answer_bytes_max = 2 * kLargeReplyBytes;
  options.executor.clock = &world_.clock();
  options.lease = kLease;
  options.slow_from_percent = slow_from_percent_;
  options.quick_handlers = quick_;
  options.service.threads = false;
  options.service.clock = &world_.clock();
  options.service.queue = kRpcQueue;
  options.service.secrets = [this] { return world_.random().next() | 1; };
  options.service.settings.ddio = profile_.ddio;
  options.service.settings.write_order = profile_.write_order;
  options.service.settings.dma_dirties = profile_.dma_dirties;
  options.service.settings.receive_buffers = profile_.receive_buffers;
  return options;
}

Result<std::unique_ptr<RpcHost>> RpcWorld::open_host(bool serves) {
  PERDURE_TRY(pool, pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_)));
  std::vector<server::DataPlane> planes;
  if (serves) {
    server::DataPlane plane;
    plane.device = machine_;
    planes.push_back(plane);
  }
  return RpcHost::open(std::move(pool), shape_, host_options(), std::move(planes));
}

void RpcWorld::stop(Ends how) {
  world_.cancel_cut();
  if (machine_->powered() && how == Ends::Killed) machine_->kill();
  if (machine_->powered() && how == Ends::PowerCut) machine_->power_cut();
  if (host_ != nullptr && !machine_->powered()) host_->abandon();
  host_.reset();
}

/// Anew, unless it runs; what is in the pool is executed before. The power may fail meanwhile, and
/// a handler may end it.
void RpcWorld::start() {
  for (int tries = 0; tries < kStartsMax && !serving(); ++tries) {
    stop(Ends::Cleanly);
    region_->refuse_flushes(ErrorCode::SystemError, 0, random_);
    if (!machine_->powered()) machine_->power_on();
    if (recovery_cuts_ != 0) {
      --recovery_cuts_;
      world_.cut_after(*machine_, 1 + random_.below(60));
    }
    auto opened = open_host(true);
    world_.cancel_cut();
    if (!machine_->powered()) {
      tell("     the server ends in recovery");
      ++counts_["ended_in_recovery"];
      if (opened.ok()) (*opened)->abandon();
      continue;
    }
    if (!opened.ok()) {
      return judge_.nothing_can_be_done("the server does not start: " + opened.error().message);
    }
    host_ = std::move(*opened);
    ++counts_["started"];
    machine_->add_actor([this, life = ++life_] {
      if (life != life_ || host_ == nullptr) return false;
      return stuck_ ? host_->service().pump() : host_->pump();
    });
    look(true);
    expiring_ = false;
  }
  if (!serving()) judge_.nothing_can_be_done("the server does not start, however often");
}

void RpcWorld::restart(Ends how) {
  stop(how);
  start();
}

/// All that is durable is executed, and nobody is served: before an upgrade.
void RpcWorld::drain() {
  stop(Ends::Cleanly);
  if (!machine_->powered()) return start();
  region_->refuse_flushes(ErrorCode::SystemError, 0, random_);
  auto opened = open_host(false);
  if (opened.ok() && machine_->powered()) {
    const RpcServerStatus status = (*opened)->executor().status();
    look_at_status(status);
    for (const RpcClientPlace& each : status.clients) {
      if (each.waiting == 0 || each.held) continue;
      judge_.nothing_can_be_done(fmt::format("{} calls of {} are left", each.waiting, each.name));
    }
    judge_.holds(bank(), true);
    ++counts_["drained"];
  } else if (machine_->powered()) {
    judge_.nothing_can_be_done("the pool is not drained: " + opened.error().message);
  }
  if (opened.ok() && !machine_->powered()) (*opened)->abandon();
  if (opened.ok()) opened->reset();
  start();
}

BankBytes RpcWorld::bank() const {
  const auto data = region_->bytes().subspan(pmem::kPoolDataOffset + shape_.data_at());
  return BankBytes(data.first(kBankBytes));
}

void RpcWorld::look(bool recovered) {
  if (!serving()) return;
  look_at_status(host_->executor().status());
  judge_.holds(bank(), recovered);
}

/// Who has a place, and whose calls are set aside.
void RpcWorld::look_at_status(const RpcServerStatus& status) {
  for (const Person& person : persons_) {
    if (person.id == 0 || judge_.is_expired(person.id)) continue;
    const auto place = std::ranges::find(status.clients, person.id, &RpcClientPlace::client_id);
    if (place != status.clients.end()) {
      judge_.set_aside(person.id, place->held ? place->applied + 1 : 0);
    } else if (expiring_) {
      ++counts_["expired"];
      judge_.expired(person.id);
    } else {
      judge_.lost(person.name + " has lost its place");
    }
  }
}

std::vector<RpcClientPlace> RpcWorld::held() const {
  std::vector<RpcClientPlace> held;
  for (RpcClientPlace& each : host_->executor().status().clients) {
    if (each.held) held.push_back(std::move(each));
  }
  return held;
}

/// What the operator says of one call that is set aside, to the server or to its pool.
void RpcWorld::decide(Random& choices, bool retry) {
  if (!serving()) return;
  const auto waiting = held();
  if (waiting.empty()) return;
  const RpcClientPlace& place = waiting[choices.below(waiting.size())];
  const std::uint64_t sequence = place.applied + 1;
  const bool offline = choices.chance(1, 3);
  tell("     {} {} of {}{}", retry ? "retry" : "drop", sequence, place.name,
       offline ? ", while no server runs" : "");
  if (!retry) judge_.dropping(place.client_id, sequence);
  const auto decided = offline ? decide_offline(place.name, sequence, retry)
                       : retry ? host_->retry(place.name, sequence)
                               : host_->drop(place.name, sequence);
  if (!decided.ok()) {
    const bool refused =
        decided.code() == ErrorCode::SystemError || decided.code() == ErrorCode::NoSpace;
    if (!refused && machine_->powered()) {
      judge_.wrong_error("a decision: " + decided.error().message);
    }
  } else if (retry) {
    ++counts_["retried"];
    judge_.retried(place.client_id, sequence);
  } else {
    ++counts_["dropped"];
    judge_.dropped(place.client_id, sequence);
  }
  start();
}

/// As `perdure rpc retry` and `drop` do it.
Result<void> RpcWorld::decide_offline(const std::string& name, std::uint64_t sequence, bool retry) {
  stop(Ends::Cleanly);
  PERDURE_TRY(pool, pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_)));
  PERDURE_TRY(recovered, rpc::RpcPool::open(std::move(pool), shape_));
  PERDURE_TRY(executor, rpc::Executor::open(std::move(recovered), {}));
  auto decided = retry ? executor->retry(name, sequence) : executor->drop(name, sequence);
  (void)executor->pool().close();
  return decided;
}

/// Clients that were silent for long lose their place.
void RpcWorld::expire(Random& choices) {
  Person& person = persons_[choices.below(kPersons)];
  if (choices.chance(1, 2)) end_process(person);
  world_.pass(2 * kLease);
  if (!serving()) return;
  expiring_ = true;
  host_->expire_clients();
  look(false);
}

/// What happens to a call before its handler does anything. In any thread of the server's.
void RpcWorld::before_handler(const RpcCall& call) {
  const std::lock_guard lock(handlers_);
  if (!machine_->powered()) return;  // nothing of that is ever seen
  judge_.tried(call.client_id, call.sequence);
  const auto number = static_cast<std::uint32_t>(call.client.back() - '0');
  if (slow_) {
    ++slowed_;
    world_.tick(std::chrono::milliseconds(4));
  }
  if (dies_for_ == number && call.order_key == 0) {
    ++died_;
    machine_->kill();
    throw std::runtime_error("the server ends here");
  }
  if (throws_for_ == number) {
    ++thrown_;
    throw std::runtime_error("the handler fails");
  }
}

/// Everything is repaired.
void RpcWorld::heal() {
  world_.cancel_cut();
  world_.cancel_after();
  armed_ = stuck_ = slow_ = false;
  clock_.jumps = false;
  throws_for_.reset();
  dies_for_.reset();
  recovery_cuts_ = 0;
  machine_->starve(false);
  for (Person& each : persons_) {
    world_.set_link(*each.machine, *machine_, fabric::emu::LinkState::Up);
  }
  bury_the_dead();
  start();
}

/// All that it has called comes to an end, and one more call. False: somebody is told why not.
bool RpcWorld::finish_person(Person& person) {
  person.older.reset();
  if (person.id == 0) return true;
  std::string why = "it does not end";
  for (int round = 0; round < kEndingsMax && !judge_.breach(); ++round) {
    Random choices(random_.next());
    if (!serving()) return false;
    if (!ensure_open(person)) {
      // Others have taken the place that it lost.
      if (judge_.is_expired(person.id) && host_->executor().names().size() == shape_.clients) {
        return true;
      }
      world_.pass(std::chrono::seconds(1));
      why = "it does not open";
      continue;
    }
    decide(choices, choices.chance(1, 2));
    const bool last = round + 1 < kEndingsMax && call(person, choices, BankOperator::Transfer, 0);
    if (person.caller == nullptr) continue;
    const std::uint64_t begun = person.caller->status().begun;
    if (begun == 0 && !last) return true;
    const auto reply =
        person.caller->reply(person.caller->handle_of(begun), std::chrono::seconds(5));
    if (reply.ok()) {
      note_told(person);
      judge_.replied(person.id, begun, *reply);
      return true;
    }
    why = reply.error().message;
    note_error(person, reply.error(), "a last wait");
  }
  judge_.nothing_can_be_done(fmt::format("{}: {}", person.name, why));
  return false;
}

void RpcWorld::finish() {
  heal();
  Random choices(random_.next());
  for (Person& each : persons_) {
    if (judge_.breach() || !finish_person(each)) return;
  }
  if (options_.a_line_is_lost) {
    forget_last_line(region_->bytes().subspan(pmem::kPoolDataOffset + shape_.data_at()));
  }
  judge_.holds_all(bank());
  if (judge_.breach()) return;
  constexpr std::array kEnds = {Ends::Cleanly, Ends::Killed, Ends::PowerCut};
  for (Person& each : persons_) each.caller.reset();
  restart(kEnds[choices.below(kEnds.size())]);
  judge_.holds_all(bank());
}

std::vector<Counter> RpcWorld::counters() const {
  std::vector<Counter> counters;
  for (const char* name :
       {"applied", "cancelled", "drained", "dropped", "durable", "ended_in_recovery", "expired",
        "fenced", "inherited", "kills", "malformed_entries", "malformed_requests",
        "power_cuts_counted", "queries", "queue_full", "replies", "retried", "started"}) {
    const auto found = counts_.find(name);
    counters.push_back({name, found == counts_.end() ? 0 : found->second});
  }
  counters.push_back({"handlers_died", died_});
  counters.push_back({"handlers_slow", slowed_});
  counters.push_back({"handlers_thrown", thrown_});
  return counters;
}

Scenario rpc_scenario(const RpcMachines& machines) {
  return scenario_of("rpc", [machines](const WorldOptions& options) {
    return std::unique_ptr<World>(std::make_unique<RpcWorld>(options, machines));
  });
}

}  // namespace perdure::test
