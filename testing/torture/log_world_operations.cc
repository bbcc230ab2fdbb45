// What the users and operators of a log do: see log_world.h.
#include <algorithm>
#include <array>

#include "testing/torture/log_world.h"

namespace perdure::test {
namespace {

constexpr Nanoseconds kWaitTime = std::chrono::milliseconds(20);
/// A poll looks twice at each replica, and a look at nothing may take a step of the emulated clock.
constexpr Nanoseconds kPollLate = std::chrono::milliseconds(20);

std::size_t draw_bytes(Random& choices) {
  constexpr std::array<std::uint64_t, 8> kUpTo = {16, 64, 64, 300, 300, 1500, 5000, 16'000};
  return 1 + choices.below(kUpTo[choices.below(kUpTo.size())]);
}

}  // namespace

void LogWorld::add_operations() {
  using Work = void (LogWorld::*)(Random&);
  const auto add = [this](const char* name, std::uint32_t weight, Work work) {
    operations_.push_back({name, weight, [this, work](Random& choices) {
                             (this->*work)(choices);
                             bury_dead_programs();
                             look_around();
                           }});
  };
  const auto add_wait = [this](const char* name, std::uint32_t weight, Level level) {
    operations_.push_back({name, weight, [this, level](Random& choices) {
                             wait(choices, level);
                             bury_dead_programs();
                             look_around();
                           }});
  };
  add("append", 60, &LogWorld::append);
  add_wait("wait-received", 4, Level::Received);
  add_wait("wait-visible", 4, Level::Visible);
  add_wait("wait-durable", 10, Level::Durable);
  add_wait("wait-committed", 20, Level::Committed);
  add("poll", 8, &LogWorld::poll);
  add("trim", 8, &LogWorld::trim);
  add("trim-all", 4, &LogWorld::trim_all);
  add("wrap", 2, &LogWorld::wrap);
  add("close", 2, &LogWorld::close);
  add("reopen", 4, &LogWorld::reopen);
  add("take-over", 3, &LogWorld::take_over);
  add("second-writer", 2, &LogWorld::second_writer);
  add("older-writer", 6, &LogWorld::older_writer);
  add("repair", 6, &LogWorld::repair);
  add("reconnect", 4, &LogWorld::reconnect);
  add("replace-blank", 3, &LogWorld::replace_blank);
  add("copy-pool", 1, &LogWorld::copy_pool);
  add("foreign-pool", 1, &LogWorld::foreign_pool);
  add("follow", 6, &LogWorld::follow);
  add("read-all", 3, &LogWorld::read_all);
  add("reopen-others", 1, &LogWorld::reopen_others);
  add("fence", 1, &LogWorld::fence);
  add("replica-add", 2, &LogWorld::add_replica);
  add("replica-remove", 1, &LogWorld::remove_replica);
  add("replica-replace", 3, &LogWorld::replace_replica);
  add("change-quorum", 1, &LogWorld::change_quorum);
  add("accept-loss", 1, &LogWorld::accept_loss);
}

void LogWorld::append(Random& choices) {
  if (!ensure_open(choices)) return;
  (void)append_to(newest(), draw_bytes(choices), choices);
}

void LogWorld::wait(Random& choices, Level level) {
  if (!ensure_open(choices)) return;
  Program& program = newest();
  if (program.pending.empty() && !append_to(program, draw_bytes(choices), choices)) return;
  if (program.pending.empty()) return;
  const bool last = choices.chance(3, 4);
  const std::size_t which =
      last ? program.pending.size() - 1 : choices.below(program.pending.size());
  (void)wait_on(program, program.pending[which], level, kWaitTime);
}

void LogWorld::poll(Random& choices) {
  if (!ensure_open(choices)) return;
  Program& program = newest();
  const Nanoseconds before = now();
  poll_once(program);
  const Nanoseconds took = now() - before;
  if (took > kPollLate && patience().judged) {
    judge_.late(fmt::format("poll took {} us", took.count() / 1000));
  }
}

/// A poll works on what is pending, and on what is down; else nothing is in flight in it.
void LogWorld::poll_once(Program& program) {
  in_call_ = std::ranges::any_of(program.log->status().replicas,
                                 [](const ReplicaStatus& each) { return !each.up; });
  const auto polled = program.log->poll();
  in_call_ = false;
  tell_outcome("poll", polled);
  note_committed(program);
}

void LogWorld::trim(Random& choices) {
  if (!ensure_open(choices)) return;
  Program& program = newest();
  const std::uint64_t first = judge_.trimmed_below();
  const std::uint64_t end = judge_.committed_below();
  const std::optional<Lsn> place =
      first < end ? judge_.place_of(first + choices.below(end - first)) : std::nullopt;
  trim_to(program, place ? *place : program.log->status().committed);
}

void LogWorld::trim_all(Random& choices) {
  if (!ensure_open(choices)) return;
  Program& program = newest();
  if (!program.pending.empty()) {
    (void)wait_on(program, program.pending.back(), Level::Committed, kWaitTime);
  }
  trim_to(program, program.log->status().committed);
}

/// Appends until the next lap of the ring has begun, trimming what is in the way.
void LogWorld::wrap(Random& choices) {
  constexpr int kAppendsMax = 40;
  if (!ensure_open(choices)) return;
  Program& program = newest();
  const LogStatus before = program.log->status();
  for (int i = 0; i < kAppendsMax && !judge_.breach(); ++i) {
    const auto ticket = append_to(program, 2000 + choices.below(4000), choices);
    if (ticket && ticket->lsn.value / before.ring_bytes > before.tail.value / before.ring_bytes) {
      return;
    }
    if (ticket) continue;
    if (!program.pending.empty() &&
        !wait_on(program, program.pending.back(), Level::Committed, kWaitTime)) {
      return;
    }
    const Lsn head = program.log->status().head;
    trim_to(program, program.log->status().committed);
    if (program.log->status().head == head) return;
  }
}

/// As a program ends that ends well (src/log/log.cc): what is on its way arrives, readers hear what
/// is committed, and the sessions are given back. Some end without a word.
void LogWorld::close(Random& choices) {
  Program& program = newest();
  tell("close of {}", name(program));
  if (program.log != nullptr && choices.chance(3, 4)) {
    const Nanoseconds before = now();
    in_call_ = true;
    const auto closed = program.log->close(kWaitTime);
    in_call_ = false;
    tell_outcome("close", closed);
    note_committed(program);
    in_call_ = true;
    program.log->end_sessions(kWaitTime);
    in_call_ = false;
    const Nanoseconds took = now() - before;
    if (took > 2 * kWaitTime + kPollLate && patience().judged) {
      judge_.late(fmt::format("close and the end of its sessions took {} us", took.count() / 1000));
    }
  }
  program.log.reset();
  program.pending.clear();
}

void LogWorld::reopen(Random& choices) { (void)open_as_known(newest(), choices); }

void LogWorld::take_over(Random& choices) { (void)open_as_known(other_program(), choices); }

/// The operator would rather lose something than wait.
void LogWorld::accept_loss(Random& choices) { (void)open_as_known(other_program(), choices, true); }

/// A writer that is not to disturb another one that is there.
void LogWorld::second_writer(Random& choices) {
  OpenChoices polite = open_choices(known_.front());
  if (polite.replicas.empty()) return;
  polite.take_over = false;
  (void)open(other_program(), polite, choices);
}

/// One that was taken over from goes on as if nothing had happened.
void LogWorld::older_writer(Random& choices) {
  std::vector<Program*> older;
  for (Program& program : programs_) {
    if (program.log != nullptr && &program != &newest()) older.push_back(&program);
  }
  if (older.empty()) {
    if (newest().log == nullptr && !ensure_open(choices)) return;
    Program* before = &newest();
    if (!open_as_known(other_program(), choices) || judge_.breach()) return;
    older.push_back(before);
  }
  Program& program = *older[choices.below(older.size())];
  if (program.log == nullptr) return;
  if (choices.chance(1, 3)) {
    in_call_ = true;
    const auto reports = program.log->repair();
    in_call_ = false;
    for (const RepairReport& report : reports) {
      tell("repair of {} by {}: {}", report.peer, name(program),
           report.repaired ? "done" : report.error);
    }
  }
  if (choices.chance(1, 4)) trim_to(program, program.log->status().committed);
  const auto ticket = append_to(program, draw_bytes(choices), choices);
  if (!ticket || program.pending.empty() || judge_.breach()) return;
  const Pending pending = program.pending.back();
  if (choices.chance(1, 3)) (void)wait_on(program, pending, Level::Durable, kWaitTime);
  if (!judge_.breach()) (void)wait_on(program, pending, Level::Committed, kWaitTime);
}

void LogWorld::repair(Random& choices) {
  if (!ensure_open(choices)) return;
  in_call_ = true;
  const auto reports = newest().log->repair();
  in_call_ = false;
  note_repairs(reports);
  note_committed(newest());
}

/// What is down comes back by itself, if the log was opened so.
void LogWorld::reconnect(Random& choices) {
  if (!ensure_open(choices)) return;
  for (int i = 0; i < 3; ++i) {
    pass(std::chrono::milliseconds(20));
    poll_once(newest());
  }
}

/// The operator gives a machine a new disk.
void LogWorld::replace_blank(Random& choices) {
  const std::size_t index = choices.below(replicas_.size());
  Replica& replica = replicas_[index];
  if (replica.off || !may_spoil(index)) return;
  tell("the pool of {} is replaced by a blank one", name_of(index));
  start_blank(index);
}

/// A log with something that is none of its replicas, or not all of them, is refused.
void LogWorld::expect_refusal(const OpenChoices& choices, Random& random, std::string_view why) {
  // While nobody knows which replicas the log has, anything may be right.
  const bool sure = opened_ > 0 && known_.size() == 1 && !beyond_;
  const bool some = std::ranges::any_of(
      choices.replicas, [this](std::size_t index) { return has(known_.front(), pool_of(index)); });
  if (!sure || !some) return;
  if (open(other_program(), choices, random) && !judge_.breach()) {
    judge_.let_in(fmt::format("the log opens with {}", why));
  }
}

/// The operator copies a pool file over that of another machine.
void LogWorld::copy_pool(Random& choices) {
  const std::size_t from = choices.below(replicas_.size());
  const std::size_t to = choices.below(replicas_.size());
  if (opened_ == 0 || from == to || replicas_[to].off || !may_spoil(to)) return;
  tell("the pool of {} is copied over that of {}", name_of(from), name_of(to));
  replicas_[to].foreign = replicas_[from].foreign;
  const auto started = start_with_copy(to, from);
  replicas_[to].off = !runs(to);
  // Unless they fail, both answer, and to be the same pool.
  const bool both = started.ok() && !replicas_[from].off && undisturbed() && !beyond_ &&
                    has(known_.front(), pool_of(from));
  if (both) {
    OpenChoices twice = open_choices(known_.front());
    twice.partial = true;
    if (open(other_program(), twice, choices) && !judge_.breach() && !replicas_[from].off &&
        !replicas_[to].off) {
      judge_.let_in(fmt::format("the log opens with replica{} and a copy of it", from));
    }
  }
  start_blank(to);
}

/// The pool of another log is put there.
void LogWorld::foreign_pool(Random& choices) {
  const std::size_t index = choices.below(replicas_.size());
  Replica& replica = replicas_[index];
  if (opened_ == 0 || replica.off || !may_spoil(index)) return;
  tell("the pool of {} is replaced by that of another log", name_of(index));
  start_blank(index);
  std::vector<std::unique_ptr<client::Peer>> peers;
  peers.push_back(peer_for_reader(index));
  OpenChoices alone;
  alone.quorum = 1;
  alone.create = true;
  log::WriterOptions options = writer_options(alone, choices);
  options.shape = shape_;
  replica.foreign = true;
  auto other = log::ReplicatedLog::open(std::move(peers), options, clock());
  if (!other.ok()) return;
  for (std::uint64_t left = 1 + choices.below(20); left > 0; --left) {
    const auto ticket = (*other)->append(content(choices.next(), draw_bytes(choices)));
    if (ticket.ok()) (void)(*other)->wait(*ticket, Level::Committed, kWaitTime);
  }
  other->reset();
  OpenChoices with = open_choices(known_.front());
  with.replicas.push_back(index);
  with.partial = true;
  if (undisturbed()) expect_refusal(with, choices, "a replica of another log");
}

void LogWorld::follow(Random& choices) { (void)follow_some(choices); }

/// Whether there may be more.
bool LogWorld::follow_some(Random& choices) {
  if (follower_ == nullptr) {
    const std::size_t index = choices.below(replicas_.size());
    auto reader = WorldReader::open(peer_for_reader(index), patience().read, clock());
    if (!reader.ok()) {
      tell_outcome("follow", reader.error());
      return false;
    }
    follower_ = std::move(reader).value();
    follower_->replica = index;
    follower_->foreign = replicas_[index].foreign;
    follower_->trimmed_before = judge_.trimmed_below();
    follower_->current = is_current(index);
  }
  for (std::uint64_t left = 1 + choices.below(20); left > 0; --left) {
    const auto record = follower_->next();
    if (!record.ok()) {
      tell_outcome("follow", record.error());
      follower_.reset();
      return false;
    }
    if (!*record) return false;
    if (replicas_[follower_->replica].foreign || follower_->foreign) continue;
    judge_.read(**record, follower_->trimmed_before, follower_->current);
    if (judge_.breach()) return false;
  }
  return true;
}

void LogWorld::read_all(Random& choices) {
  const auto before = std::move(follower_);
  constexpr int kRoundsMax = 1000;
  for (int round = 0; round < kRoundsMax && follow_some(choices); ++round) {
  }
  follower_.reset();
}

/// Whether the newest writer calls a replica up, so that it has all that is committed and trimmed.
bool LogWorld::is_current(std::size_t index) {
  if (newest().log == nullptr || replicas_[index].bad) return false;
  for (const ReplicaStatus& each : newest().log->status().replicas) {
    if (each.pool_uuid == to_string(pool_of(index))) return each.up;
  }
  return false;
}

/// Somebody names some of the peers, others besides, or another quorum.
void LogWorld::reopen_others(Random& choices) {
  OpenChoices others = open_choices(known_.front());
  if (opened_ == 0 || others.replicas.empty()) return;
  const std::uint64_t which = choices.below(4);
  if (which == 0) {
    others.quorum = 1 + others.quorum % known_.front().pools.size();
    if (others.quorum != known_.front().quorum) {
      expect_refusal(others, choices, fmt::format("a quorum of {}", others.quorum));
    }
    return;
  }
  if (which == 1) {
    const std::vector<std::size_t> more = strangers();
    if (more.empty()) return;
    const std::size_t stranger = more[choices.below(more.size())];
    others.replicas.push_back(stranger);
    others.partial = choices.chance(1, 2);
    // One that does not answer may be anything.
    if (!replicas_[stranger].off && undisturbed()) {
      expect_refusal(others, choices, fmt::format("replica{}, which is none of it", stranger));
    }
    return;
  }
  if (others.replicas.size() < 2) return;
  others.replicas.erase(others.replicas.begin() +
                        static_cast<std::ptrdiff_t>(choices.below(others.replicas.size())));
  others.partial = which == 2;
  if (others.partial) {
    (void)open(other_program(), others, choices);
  } else {
    expect_refusal(others, choices, "some of its replicas");
  }
}

/// An operator fences some replicas by hand.
void LogWorld::fence(Random& choices) {
  const Deadline deadline(true_clock(), patience().ask);
  const auto first = peer_for_reader(choices.below(replicas_.size()));
  const auto pool = first->describe(kLogPool, deadline);
  if (!pool.ok()) return;
  const Epoch epoch{pool->epoch.value + 1 + static_cast<std::uint32_t>(choices.below(3))};
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!choices.chance(2, 3)) continue;
    const auto fenced = peer_for_reader(index)->fence(kLogPool, epoch, deadline);
    tell_outcome(fmt::format("fence {} at epoch {}", name_of(index), epoch.value), fenced);
  }
}

}  // namespace perdure::test
