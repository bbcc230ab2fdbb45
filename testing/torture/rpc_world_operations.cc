// What clients and operators of durable RPC do: see rpc_world.h.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/crc32c.h"
#include "testing/torture/rpc_world.h"
#include "testing/world_peer.h"

namespace perdure::test {
namespace {

using rpc::Caller;

/// The journals have room for no more.
constexpr std::uint64_t kTicketsMax = kBankLines - 100;
constexpr std::uint64_t kRecent = 8;  // calls that somebody still asks for

bool is_over(ErrorCode code) {
  return code == ErrorCode::Fenced || code == ErrorCode::NotFound ||
         code == ErrorCode::OutcomeUnknown;
}

}  // namespace

void RpcWorld::add(std::string name, std::uint32_t weight, std::function<void(Random&)> run) {
  operations_.push_back({std::move(name), weight, [this, run = std::move(run)](Random& choices) {
                           run(choices);
                           bury_the_dead();
                         }});
}

/// By one whose process is there, or comes now.
std::function<void(Random&)> RpcWorld::with_person(WithPerson run) {
  return [this, run = std::move(run)](Random& choices) {
    Person* person = &persons_[choices.below(kPersons)];
    if (person->id == 0) person = &persons_[choices.below(3)];
    if (!ensure_open(*person)) return;
    run(*person, choices);
    if (person->caller != nullptr) note_told(*person);
    if (choices.chance(1, 8)) look(false);
  };
}

void RpcWorld::add_operations() {
  add_calls();
  add_waits();
  add_lives();
  add_operators();
  add_malformed();
}

void RpcWorld::add_calls() {
  using enum BankOperator;
  add("call", 8, with_person([this](Person& person, Random& choices) {
        call(person, choices, Transfer, choices.below(choices.chance(1, 8) ? 3000 : 100));
      }));
  add("call-empty", 3,
      with_person([this](Person& person, Random& choices) { call(person, choices, Touch, 0); }));
  add("call-largest", 2, with_person([this](Person& person, Random& choices) {
        call(person, choices, Transfer, person.caller->payload_bytes_max() - sizeof(BankOrder));
      }));
  add("call-statement", 3, with_person([this](Person& person, Random& choices) {
        call(person, choices, Statement, 0);
      }));
  add("call-refused", 2, with_person([this](Person& person, Random& choices) {
        call(person, choices, Refuse, choices.below(100));
      }));
  add("call-newer", 2, with_person([this](Person& person, Random& choices) {
        call(person, choices, Newer, choices.below(100));
      }));
  add("call-many", 5, with_person([this](Person& person, Random& choices) {
        for (std::uint64_t calls = 2 + choices.below(6); calls > 0; --calls) {
          if (!call_something(person, choices)) return;
        }
      }));
  add("fill-ring", 2, with_person([this](Person& person, Random& choices) {
        for (std::uint64_t calls = 2 * shape_.replies; calls > 0; --calls) {
          if (!call(person, choices, Transfer, choices.below(4000))) return;
        }
      }));
  add("cancel", 4,
      with_person([this](Person& person, Random& choices) { cancel_one(person, choices); }));
}

void RpcWorld::add_waits() {
  using std::chrono::milliseconds;
  add("wait-durable", 6, with_person([this](Person& person, Random& choices) {
        wait(person, choices, RpcLevel::Durable, milliseconds(200));
      }));
  add("wait-applied", 6, with_person([this](Person& person, Random& choices) {
        wait(person, choices, RpcLevel::Applied, milliseconds(200));
      }));
  add("deadline", 3, with_person([this](Person& person, Random& choices) {
        wait(person, choices, choices.chance(1, 2) ? RpcLevel::Durable : RpcLevel::Applied,
             milliseconds(choices.below(2)));
      }));
  add("reply", 6, with_person([this](Person& person, Random& choices) {
        const std::uint64_t begun = person.caller->status().begun;
        if (begun == 0) return;
        const std::uint64_t back = std::min(begun - 1, choices.below(2 * kRecent));
        ask_reply(person, begun - back, milliseconds(200));
      }));
  add("query", 4, with_person([this](Person& person, Random& choices) {
        query(person, choices, choices.chance(2, 3), 0);
      }));
  add("query-large", 2, with_person([this](Person& person, Random& choices) {
        query(person, choices, choices.chance(2, 3), 10'000);
      }));
  add("poll", 4, with_person([this](Person& person, Random&) {
        const auto polled =
            in_time("a poll", Nanoseconds{0}, [&] { return person.caller->poll(); });
        if (!polled.ok()) note_error(person, polled.error(), "a poll");
      }));
}

void RpcWorld::add_lives() {
  add("close", 2, with_person([this](Person& person, Random&) { end_process(person); }));
  add("come-back", 4, with_person([this](Person& person, Random&) {
        end_process(person);
        ensure_open(person);
      }));
  add("second-process", 2, with_person([this](Person& person, Random&) { come_twice(person); }));
  add("older-goes-on", 3,
      with_person([this](Person& person, Random& choices) { older_goes_on(person, choices); }));
  add("new-client", 2, [this](Random& choices) {
    Person& person = persons_[choices.below(kPersons)];
    if (person.id == 0) ensure_open(person);
  });
  add("expire", 1, [this](Random& choices) { expire(choices); });
}

void RpcWorld::add_operators() {
  add("list", 2, [this](Random&) { look(false); });
  add("retry", 4, [this](Random& choices) { decide(choices, true); });
  add("drop", 3, [this](Random& choices) { decide(choices, false); });
  add("drain", 1, [this](Random&) {
    if (serving()) drain();
  });
  add("restart", 2, [this](Random&) {
    if (serving()) restart(Ends::Cleanly);
  });
  add("upgrade", 2, [this](Random&) {
    if (!serving()) return;
    newer_ = !newer_;
    tell("     a server {} operator {}", newer_ ? "with" : "without",
         static_cast<std::uint32_t>(BankOperator::Newer));
    restart(Ends::Cleanly);
  });
}

bool RpcWorld::ensure_open(Person& person) {
  bury_the_dead();
  return person.caller != nullptr || open(person);
}

std::unique_ptr<client::Peer> RpcWorld::peer_of(const Person& person) {
  return world_peer(
      world_, *machine_, [this] { return host_ == nullptr ? nullptr : &host_->service(); },
      *person.machine);
}

bool RpcWorld::open(Person& person) {
  RpcClientOptions options;
  options.name = person.name;
  options.measure_costs = random_.below(4) == 0;
  options.server_timeout = kServerTimeout;
  options.reconnect = std::chrono::milliseconds(1);
  options.spin = std::chrono::hours(24);  // nothing here sleeps
  constexpr std::array<std::optional<Primary>, 3> kPrimaries = {std::nullopt, Primary::Send,
                                                                Primary::Write};
  options.primary = kPrimaries[random_.below(kPrimaries.size())];
  auto opened = Caller::open(peer_of(person), options, clock_);
  if (!opened.ok() && opened.code() == ErrorCode::Unsupported) {
    options.primary.reset();
    opened = Caller::open(peer_of(person), options, clock_);
  }
  if (!opened.ok()) {
    tell("     {} is not opened: {}", person.name, opened.error().message);
    person.contended = true;
    const ErrorCode code = opened.code();
    if (code == ErrorCode::Corrupt || code == ErrorCode::ProtocolError ||
        code == ErrorCode::InvalidArgument || code == ErrorCode::Unsupported) {
      judge_.wrong_error("a client is not opened: " + opened.error().message);
    }
    return false;
  }
  person.contended = false;
  person.caller = std::move(*opened);
  const RpcClientStatus status = person.caller->status();
  if (person.id != 0 && person.id != status.client_id && !judge_.is_expired(person.id)) {
    judge_.lost(person.name + " has lost its place");
  }
  person.id = status.client_id;
  counts_["inherited"] +=
      status.earlier_durable - std::min(status.earlier_durable, judge_.durable_of(person.id));
  tell("     {} has {} durable calls of earlier processes", person.name, status.earlier_durable);
  judge_.resumed(person.id, status.earlier_durable);
  return true;
}

/// Machines of clients whose programs have died: they are started again, without them.
void RpcWorld::bury_the_dead() {
  for (Person& each : persons_) {
    if (each.machine->powered()) continue;
    each.caller.reset();
    each.older.reset();
    each.machine->power_on();
  }
}

void RpcWorld::note_told(Person& person) {
  const RpcClientStatus status = person.caller->status();
  judge_.durable(person.id, status.durable);
  judge_.applied(person.id, status.applied);
}

/// A handler that is slow takes the world's time, of whoever waits meanwhile.
void RpcWorld::note_time(const char* what, Nanoseconds limit, Nanoseconds took, bool was_slow) {
  constexpr Nanoseconds kLate = std::chrono::milliseconds(20);  // looks take time
  if (was_slow || took <= limit + kServerTimeout + kLate) return;
  judge_.late(fmt::format("{} took {} us; its time-out was {} us, and coming back may take {} us",
                          what, took.count() / 1000, limit.count() / 1000,
                          Nanoseconds(kServerTimeout).count() / 1000));
}

/// What a client may be told: see rpc.h.
void RpcWorld::note_error(Person& person, const Error& error, const char* what) {
  using enum ErrorCode;
  tell("     {} of {}: {}", what, person.name, error.message);
  const ErrorCode code = error.code;
  if (code == TimedOut || code == QueueFull || code == Busy) return;
  const bool expired = judge_.is_expired(person.id) || expiring_;
  const bool may_be_over = person.contended || expired || !person.machine->powered();
  if (!is_over(code) || !may_be_over) {
    judge_.wrong_error(
        fmt::format("{} of {}: {}, {}", what, person.name, to_string(code), error.message));
  }
  ++counts_["fenced"];
  note_told(person);
  person.caller.reset();
}

RpcJudge::Made RpcWorld::make_call(Random& choices, BankOperator operation, std::uint64_t bytes,
                                   std::vector<std::byte>& payload) {
  RpcJudge::Made made;
  made.operation = operation;
  if (operation != BankOperator::Touch) {
    BankOrder& order = made.order;
    order.ticket = ++last_ticket_;
    order.half = static_cast<std::uint32_t>(choices.below(kBankHalves));
    order.from = static_cast<std::uint32_t>(choices.below(kBankAccounts));
    order.to = static_cast<std::uint32_t>(choices.below(kBankAccounts));
    order.amount = static_cast<std::int64_t>(choices.below(1000));
    if (operation == BankOperator::Statement) {
      order.reply_bytes = static_cast<std::uint32_t>(shape_.reply_bytes_max - sizeof(BankReply) -
                                                     choices.below(16));
    }
    payload.resize(sizeof order + bytes);
    std::memcpy(payload.data(), &order, sizeof order);
    for (std::size_t at = sizeof order; at < payload.size(); ++at) {
      payload[at] = bank_filler(order.ticket, at);
    }
  } else {
    ++last_ticket_;  // a line of the journal
  }
  made.digest = crc32c(payload);
  return made;
}

/// False: it was not begun.
bool RpcWorld::call(Person& person, Random& choices, BankOperator operation, std::uint64_t bytes) {
  if (person.caller == nullptr || last_ticket_ >= kTicketsMax) return false;
  std::vector<std::byte> payload;
  const RpcJudge::Made made = make_call(choices, operation, bytes, payload);
  const std::uint64_t key = choices.chance(1, 4) ? 0 : 1 + made.order.half;
  const std::uint64_t sequence = person.caller->status().begun + 1;
  judge_.began(person.id, sequence, made);
  const auto handle = in_time("a call", kServerTimeout, [&] {
    return person.caller->call(static_cast<std::uint32_t>(operation), payload, key);
  });
  if (!handle.ok()) {
    judge_.not_begun(person.id);
    if (handle.code() == ErrorCode::QueueFull) ++counts_["queue_full"];
    note_error(person, handle.error(), "a call");
    return false;
  }
  if (handle->sequence == sequence) return true;
  judge_.order_is_broken(fmt::format("call {} has sequence {}", sequence, handle->sequence));
  return false;
}

bool RpcWorld::call_something(Person& person, Random& choices) {
  using enum BankOperator;
  constexpr std::array kOperators = {Transfer, Transfer, Transfer, Touch, Statement, Refuse};
  return call(person, choices, kOperators[choices.below(kOperators.size())], choices.below(200));
}

void RpcWorld::cancel_one(Person& person, Random& choices) {
  for (std::uint64_t calls = 1 + choices.below(4); calls > 0; --calls) {
    if (!call_something(person, choices)) break;
  }
  if (person.caller == nullptr || person.caller->status().begun == 0) return;
  const std::uint64_t begun = person.caller->status().begun;
  const std::uint64_t sequence = begun - std::min(begun - 1, choices.below(2));
  const auto cancelled = person.caller->cancel(person.caller->handle_of(sequence));
  if (cancelled.ok()) {
    ++counts_["cancelled"];
    judge_.cancelled(person.id, sequence);
  } else {
    note_error(person, cancelled.error(), "a cancellation");
  }
}

void RpcWorld::wait(Person& person, Random& choices, RpcLevel level,
                    std::chrono::milliseconds timeout) {
  const std::uint64_t begun = person.caller->status().begun;
  if (begun == 0) return;
  const std::uint64_t sequence = begun - std::min(begun - 1, choices.below(5));
  const auto waited = in_time("a wait", timeout, [&] {
    return person.caller->wait(person.caller->handle_of(sequence), level, timeout);
  });
  if (waited.ok()) {
    ++counts_[level == RpcLevel::Durable ? "durable" : "applied"];
    if (level == RpcLevel::Durable) judge_.durable(person.id, sequence);
    if (level == RpcLevel::Applied) judge_.applied(person.id, sequence);
    return;
  }
  if (waited.code() == ErrorCode::InvalidArgument && judge_.is_cancelled(person.id, sequence)) {
    return;
  }
  if (waited.code() == ErrorCode::Busy) judge_.waits_for_operator(person.id, sequence);
  note_error(person, waited.error(), "a wait");
}

void RpcWorld::ask_reply(Person& person, std::uint64_t sequence,
                         std::chrono::milliseconds timeout) {
  const auto reply = in_time("a reply", timeout, [&] {
    return person.caller->reply(person.caller->handle_of(sequence), timeout);
  });
  if (reply.ok()) {
    ++counts_["replies"];
    if (!reply->cancelled) judge_.applied(person.id, sequence);
    judge_.replied(person.id, sequence, *reply);
    return look(false);
  }
  const bool earlier = sequence <= person.caller->status().earlier_durable;
  if (reply.code() == ErrorCode::NotFound && earlier && !judge_.is_expired(person.id)) return;
  if (reply.code() == ErrorCode::Busy) judge_.waits_for_operator(person.id, sequence);
  note_error(person, reply.error(), "a reply");
}

void RpcWorld::query(Person& person, Random& choices, bool own_calls, std::uint32_t answer_bytes) {
  const RpcClientStatus before = person.caller->status();
  const BankQuestion question{person.number, answer_bytes};
  const auto timeout = std::chrono::milliseconds(50 + choices.below(100));
  const auto answer = in_time("a query", timeout, [&] {
    return person.caller->query(kBankQuery, std::as_bytes(std::span(&question, 1)), own_calls,
                                timeout);
  });
  if (!answer.ok()) {
    if (answer.code() == ErrorCode::Busy) judge_.waits_for_operator(person.id, before.begun);
    return note_error(person, answer.error(), "a query");
  }
  ++counts_["queries"];
  BankRow row;
  bool whole = answer->size() == sizeof row + answer_bytes;
  if (whole) std::memcpy(&row, answer->data(), sizeof row);
  for (std::size_t at = 0; whole && at < answer_bytes; ++at) {
    whole = (*answer)[sizeof row + at] == bank_filler(question.row, at);
  }
  if (!whole) return judge_.wrong_error("an answer is not what the handler said");
  judge_.saw(person.id, own_calls ? before.begun : before.applied, row);
}

void RpcWorld::end_process(Person& person) {
  if (person.caller == nullptr) return;
  note_told(person);
  person.caller.reset();
}

/// A newer process opens the name while there is one.
void RpcWorld::come_twice(Person& person) {
  person.older = std::move(person.caller);
  person.older_id = person.id;
  if (open(person)) {
    person.older_knows = person.caller->status().earlier_durable;
    return;
  }
  person.caller = std::move(person.older);
}

/// What it calls from now on is nobody's, and it is told nothing of it.
void RpcWorld::older_goes_on(Person& person, Random& choices) {
  if (person.older == nullptr) return;
  std::vector<std::byte> payload;
  (void)make_call(choices, BankOperator::Transfer, choices.below(100), payload);
  (void)person.older->call(static_cast<std::uint32_t>(BankOperator::Transfer), payload, 0);
  const std::uint64_t begun = person.older->status().begun;
  if (begun != 0) {
    (void)person.older->wait(person.older->handle_of(begun), RpcLevel::Durable,
                             std::chrono::milliseconds(50));
  }
  const bool of_one_client = person.older_id == person.id;
  if (of_one_client && person.older->status().durable > person.older_knows) {
    judge_.lost(
        fmt::format("an older process of {} hears that call {} is durable, and a newer one "
                    "heard of {}",
                    person.name, person.older->status().durable, person.older_knows));
  }
  const auto polled = person.older->poll();
  if (!polled.ok()) person.older.reset();
}

}  // namespace perdure::test
