// The server of the model of durable RPC: its transactions, and its recovery.
#include <algorithm>

#include "model/rpc_model_words.h"

namespace perdure::model {
namespace {

using State = RpcModel::State;

void store_effects(State& state, std::uint16_t record) {
  const std::uint8_t call = call_in(record);
  state.clients[client_in(record)].effects[sequence_of(call) - 1u].visible =
      call_of(times_in(record), generation_of(call));
}

void store_mark(State& state, std::uint16_t record) {
  state.clients[client_in(record)].mark.visible = call_in(record);
}

void flush_stores(State& state) {
  for (RpcModel::Client& client : state.clients) {
    drain(client.mark);
    for (auto& each : client.effects) drain(each);
  }
}

}  // namespace

bool RpcModel::may_execute(const State& state, std::size_t which) const {
  return state.stage == kIdle && next_call(state.clients[which]) != 0;
}

void RpcModel::begin_transaction(State& state, std::size_t which) const {
  const std::uint8_t call = next_call(state.clients[which]);
  const std::uint8_t before = state.clients[which].effects[sequence_of(call) - 1u].visible;
  const unsigned times = std::min(times_of(before) + 1u, 3u);
  state.record =
      static_cast<std::uint16_t>((state.number + 1u) << 8 | times << 5 | which << 4 | call);
  if (has_records()) state.records[(state.number + 1u) % 2].visible = kTorn;
  state.stage = kRecordTorn;
}

/// One flush: the record, and what the transaction before it has stored.
void RpcModel::commit(State& state) const {
  if (mutant_ != RpcMutant::RecordStoredAtOnce) drain(state.records[number_in(state.record) % 2u]);
  if (mutant_ != RpcMutant::StoresAreNotFlushed) flush_stores(state);
}

/// The server's next stage, of recovery or of the transaction that runs.
void RpcModel::go_on(State& state) const {
  auto& records = state.records;
  const std::size_t newest = number_in(records[1].visible) > number_in(records[0].visible) ? 1 : 0;
  const std::uint16_t replayed = records[state.stage <= kOldMark ? 1 - newest : newest].visible;
  const bool has_one = number_in(replayed) != 0 && has_records();
  const bool plain = has_records();
  const bool mark_first = mutant_ == RpcMutant::MarkBeforeEffects;
  switch (state.stage) {
    case kFlushRecords:
      if (mutant_ != RpcMutant::RecoveryTrustsVisible) {
        for (auto& each : records) drain(each);
      }
      state.number = number_in(records[newest].visible);
      break;
    case kOldEffects:
    case kNewEffects:
      if (has_one) store_effects(state, replayed);
      break;
    case kOldMark:
    case kNewMark:
      if (has_one) store_mark(state, replayed);
      break;
    case kFlushStores: flush_stores(state); break;
    case kRecordTorn:
      if (plain) records[number_in(state.record) % 2u].visible = state.record;
      if (!plain) (mark_first ? store_mark : store_effects)(state, state.record);
      break;
    case kRecordWhole:
      plain ? commit(state) : flush_stores(state);
      state.number = number_in(state.record);
      break;
    case kCommitted:
      if (plain || mark_first) store_effects(state, state.record);
      if (!plain && !mark_first) store_mark(state, state.record);
      break;
    case kEffectsStored:
      plain ? store_mark(state, state.record) : flush_stores(state);
      state.stage = kIdle;
      state.record = 0;
      return;
    default: break;
  }
  ++state.stage;
}

void RpcModel::server_steps(const State& state, std::vector<Step>& out) {
  if (state.stage == kIdle) {
    for (std::size_t which = 0; which < kRpcClients; ++which) {
      if (!may_execute(state, which)) continue;
      State next = state;
      begin_transaction(next, which);
      put(out, next, Action::Execute, which);
    }
    return;
  }
  State next = state;
  go_on(next);
  put(out, next, state.stage < kIdle ? Action::Recover : Action::Transact, client_in(state.record));
}

}  // namespace perdure::model
