// Calls in which servers may have ended: they are executed alone, then set aside, and an operator
// decides about them.
#include "replicated_rpc/replicated_rpc_server.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/log_message.h"
#include "core/try.h"

namespace perdure {

using replicated_rpc::Decision;
using replicated_rpc::Trial;

namespace {

/// In which all that the server before knew to be committed is known here, too, if its peers
/// answer.
constexpr Nanoseconds kCalmAfter = std::chrono::seconds(1);
/// What an operator has decided is committed by then, or it is not known whether it is.
constexpr Nanoseconds kDecidedWithin = std::chrono::seconds(30);
constexpr std::uint32_t kAttemptsMax = 1000;

}  // namespace

/// Any call that the server before may have been at was committed when this one was opened. It is
/// among those that are known a little later; behind them nobody need be careful.
bool ReplicatedRpcServer::State::is_careful(Calls& calls) {
  if (!calls.careful) return false;
  const Nanoseconds now = Clock::monotonic().now();
  const Lsn at = calls.reader->position();
  if (calls.first_read == Nanoseconds{0}) calls.first_read = now;
  if (!calls.careful_up_to && now - calls.first_read >= kCalmAfter) {
    calls.careful_up_to = std::max(at, calls.reader->committed());
  }
  calls.careful = !calls.careful_up_to || at < *calls.careful_up_to;
  return calls.careful;
}

/// When an operator has decided about its call, what it has called is read again: from its head.
bool ReplicatedRpcServer::State::is_held(const std::string& name, Calls& calls) {
  if (!calls.held) return false;
  if (effects_.is_held(name)) return true;
  calls.held = false;
  calls.reader.reset();
  calls.read_again = Nanoseconds{0};
  return false;
}

/// Whether nothing is left that the server before may have been at. Whoever has a durable call has
/// pools on k peers: he is known once all were asked, and as many have answered that one of those
/// is among them.
bool ReplicatedRpcServer::State::is_calm() {
  const bool tried = std::all_of(calls_.begin(), calls_.end(), [](const auto& each) {
    const Calls& calls = each.second;
    return !calls.careful || calls.failure || calls.held || calls.listed_by.empty();
  });
  if (!tried || next_peer_ < options_.group.peers.size()) return false;
  const LogStatus effects = log_->status();
  return answered_.size() + effects.quorum > effects.replicas.size();
}

/// It changes nothing for a next server that finds this one open: that is careful, with this note
/// or without. So it does not matter when it is lost.
Result<void> ReplicatedRpcServer::State::note_calm() {
  if (!careful_ || !is_calm()) return {};
  careful_ = false;
  for (auto& [name, calls] : calls_) calls.careful = false;
  pending_ = effects_.note_calm();
  return append_transaction();
}

/// Nothing else is executed meanwhile: if the process ends, it is this call that has ended it.
Result<void> ReplicatedRpcServer::State::go_on_with_trial() {
  Trial& trial = *trial_;
  if (trial.stage == Trial::Stage::Note) {
    const auto attempts = std::clamp<std::uint32_t>(options_.attempts_max, 1, kAttemptsMax);
    const bool given_up = effects_.is_held(trial.call) || effects_.ends_in(trial.call) >= attempts;
    trial.stage = given_up ? Trial::Stage::Settle : Trial::Stage::Execute;
    pending_ = given_up ? set_aside(trial.call) : effects_.note_trying(trial.call);
    PERDURE_TRY_VOID(append_transaction());
  }
  if (trial.stage == Trial::Stage::Execute) {
    PERDURE_TRY_VOID(await_committed());
    execute(trial.call);
    trial.stage = Trial::Stage::Settle;
    pending_ = effects_.take_record();
    PERDURE_TRY_VOID(append_transaction());
  }
  PERDURE_TRY_VOID(await_committed());
  trial_.reset();
  return {};
}

/// Until an operator decides, or for good.
std::vector<std::byte> ReplicatedRpcServer::State::set_aside(const RpcCall& call) {
  log_message(Severity::Warning,
              fmt::format("call {} of client '{}' (operation {}) is set aside: {} servers have "
                          "ended in its handler",
                          call.sequence, call.client, call.operation, effects_.ends_in(call)));
  ++counted_.set_aside;
  if (options_.hold_failed) {
    const auto calls = calls_.find(std::string(call.client));
    if (calls != calls_.end()) calls->second.held = true;
    return effects_.note_held(call);
  }
  effects_.drop(call);
  ++counted_.executed;
  ++counted_.refused;
  return effects_.take_record();
}

/// Nothing is changed here that is not in the log.
Result<void> ReplicatedRpcServer::State::decide(const std::string& client, std::uint64_t sequence,
                                                Decision decision) {
  const Caller caller(*this);
  std::optional<Ticket> decided;
  for (const Deadline deadline = Deadline::after(kDecidedWithin);;) {
    MutexLock lock(mutex_);
    if (counted_.failure) return *counted_.failure;
    // Behind what is to be appended: that it is set aside may be part of it.
    if (!decided && pending_.empty()) {
      PERDURE_TRY(record, effects_.decide(client, sequence, decision));
      PERDURE_TRY(bytes, append_piece(record));
      decided = last_;
      counted_.executed += decision == Decision::Drop ? 1 : 0;
      counted_.refused += decision == Decision::Drop ? 1 : 0;
      (void)go_round(bytes);  // the next transaction goes on with it
    }
    if (decided && log_->wait(*decided, Level::Committed, std::chrono::milliseconds(10)).ok()) {
      return {};
    }
    if (deadline.passed()) {
      return Error{
          ErrorCode::TimedOut,
          fmt::format("of call {} of client '{}' {}: the log of effects takes nothing "
                      "now; ask for the status, and again",
                      sequence, client,
                      decided ? "it is not known what was decided" : "nothing was decided")};
    }
    lock.wait_for(idle_, replicated_rpc::kIdle);
  }
}

}  // namespace perdure
