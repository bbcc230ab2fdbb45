// Calls that are executed at the same time: see executor.h.
#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "rpc/executor.h"
#include "rpc/executor_transaction.h"

namespace perdure::rpc {

/// The same with several threads: calls that may be executed beside each other are. The last of a
/// transaction are as many as any, so that turns are the same however long handlers take.
std::size_t Executor::execute_waves(Nanoseconds until) {
  std::size_t calls = 0;
  while (calls < kCallsPerTransaction && (calls == 0 || options_.clock->now() < until)) {
    const Wave wave = execute_wave();
    calls += wave.calls;
    if (wave.full) break;
    if (wave.calls == 0) {
      due_.clear();  // there was nothing anywhere
      break;
    }
    std::sort(due_.begin(), due_.end());
    std::rotate(due_.begin(), std::lower_bound(due_.begin(), due_.end(), next_), due_.end());
  }
  return calls;
}

/// Calls of different clients, each the next of its client, that may be executed at the same time;
/// or one that may not, alone.
Executor::Wave Executor::execute_wave() {
  Wave wave;
  const std::size_t count = gather(wave);
  if (count == 0 && !wave.left_out) return wave;
  if (count <= 1) {
    const std::size_t place = count == 1 ? lanes_.front()->place : wave.first;
    const Step step = execute_next(place);
    next_ = count == 1 && wave.left_out ? wave.first : (place + 1) % running_.size();
    if (step == Step::Full) next_ = place;  // the first of the next transaction
    wave.calls = step == Step::Applied || step == Step::Again ? 1 : 0;
    wave.full = step != Step::Applied;
    return wave;
  }
  for (std::size_t lane = 0; lane < count; ++lane) {
    const Lane& each = *lanes_[lane];
    pool_->note_executing(Executing{each.place, each.found->entry.sequence}, lane);
  }
  threads_->run(
      count, [lanes = lanes_.data(), this](std::size_t lane) { execute_lane(*lanes[lane], lane); });
  for (std::size_t lane = 0; lane < count; ++lane) pool_->note_executing(std::nullopt, lane);
  next_ = wave.left_out ? wave.first : (lanes_[count - 1]->place + 1) % running_.size();
  for (std::size_t lane = 0; lane < count; ++lane) {
    if (take_lane(*lanes_[lane], wave)) continue;
    next_ = lanes_[lane]->place;  // it, and those behind it, are executed again
    wave.full = true;
    break;
  }
  for (std::size_t lane = 0; lane < count; ++lane) lanes_[lane]->part.roll_back(kRedoHeadBytes);
  return wave;
}

/// From whose turn it is: how many lanes have a call. Stops at one that goes alone.
std::size_t Executor::gather(Wave& wave) {
  std::size_t lanes = 0;
  for (const std::size_t place : due_) {
    const ClientPlace& client = running_[place];
    if (client.client == 0 || (client.held && !options_.refuse_failed)) continue;
    const auto ring = pool_->ring(place);
    looks_.fetch_add(1, std::memory_order_relaxed);
    if (!may_hold_entry(ring, next_entry(client))) continue;
    if (lanes == lanes_.size()) {
      if (!wave.left_out) wave.first = place;
      wave.left_out = true;
      break;
    }
    Lane& lane = *lanes_[lanes];
    lane.found = find_entry(ring, next_entry(client), lane.entry);
    if (!lane.found) continue;
    lane.place = place;
    if (may_go_beside(place, lane, lanes)) {
      lane.client = client.name;
      ++lanes;
      continue;
    }
    if (!wave.left_out) wave.first = place;
    wave.left_out = true;
    const bool waits_for_its_key = lane.found->entry.order_key != 0 && lanes != 0;
    if (!waits_for_its_key) break;
  }
  return lanes;
}

/// Whether the call is an ordinary one, and its key is none of those of the lanes before it.
bool Executor::may_go_beside(std::size_t place, const Lane& lane, std::size_t lanes) const {
  const ClientPlace& client = running_[place];
  const Entry& call = lane.found->entry;
  const bool ordinary = call.order_key != 0 && client.attempts == 0 && !client.held &&
                        options_.handlers.count(call.operation) != 0;
  if (!ordinary) return false;
  const auto has_its_key = [&](const std::unique_ptr<Lane>& each) {
    return each->found->entry.order_key == call.order_key;
  };
  return std::none_of(lanes_.begin(), lanes_.begin() + static_cast<std::ptrdiff_t>(lanes),
                      has_its_key);
}

/// By any thread.
void Executor::execute_lane(Lane& lane, std::size_t thread) {
  const Entry& entry = lane.found->entry;
  const RpcCall call{entry.operation, entry.client,
                     lane.client,     entry.sequence,
                     entry.order_key, std::span(lane.entry).subspan(kEntryHeadBytes),
                     entry.generation};
  Transaction transaction(lane.part, pool_->shape(), reserved_bytes());
  lane.outcome = run(call, transaction, lane.reply, thread);
  lane.failure = transaction.failure();
}

/// What the call did becomes part of the transaction. False: there is no room for it.
bool Executor::take_lane(Lane& lane, Wave& wave) {
  if (redo_.room() < 2 * reserved_bytes()) return false;
  if (!lane.outcome) {
    note_failed_attempt(lane.place, *lane.found);
    ++wave.calls;
    wave.full = true;
    return true;
  }
  const Result<std::size_t> outcome = lane.failure ? *lane.failure : std::move(*lane.outcome);
  if (!outcome.ok()) lane.part.roll_back(kRedoHeadBytes);
  // In a transaction of its own whatever its handler could write fits.
  if (!redo_.take(lane.part, finish_bytes())) return false;
  count(lane.place, lane.found->entry, outcome.ok());
  finish(lane.place, *lane.found, outcome, lane.reply);
  ++wave.calls;
  return true;
}

}  // namespace perdure::rpc
