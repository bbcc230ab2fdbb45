// Durable RPC as a small machine: see rpc_model.h.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "model/rpc_model_words.h"

namespace perdure::model {
namespace {

using Client = RpcModel::Client;
using State = RpcModel::State;

template <typename Visit>
void for_each_line(State& state, const Visit& visit) {
  for (auto& record : state.records) visit(record);
  for (Client& client : state.clients) {
    for (auto* lines : {&client.body, &client.word, &client.effects}) {
      for (auto& line : *lines) visit(line);
    }
    visit(client.mark);
  }
}

/// Nothing of the server's memory is left, and no connection.
void server_dies(State& state) {
  state.stage = kDown;
  state.number = 0;
  state.record = 0;
  for (Client& client : state.clients) {
    client.connected = 0;
    for (auto& each : client.wire) each = each == kWordDurable ? each : std::uint8_t{kNowhere};
  }
}

std::uint64_t hash_of(const State& state) {
  static_assert(sizeof(State) == 2 * sizeof(Client) + 8 + 2 + 4);  // no padding
  std::array<std::uint64_t, (sizeof(State) + 7) / 8> words{};
  std::memcpy(words.data(), &state, sizeof state);
  std::uint64_t hash = 0x9e3779b97f4a7c15;
  for (const std::uint64_t word : words) {
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
    hash *= 0xc4ceb9fe1a85ec53;
    hash ^= hash >> 29;
  }
  return hash;
}

void power_fails(State& state) {
  for_each_line(state, [](auto& line) { lose(line); });
  server_dies(state);
}

}  // namespace

RpcModel::State RpcModel::first() {
  State state;
  state.stage = kIdle;
  return state;
}

/// Which client is which does not matter.
std::uint64_t RpcModel::key(const State& state) {
  State other = state;
  std::swap(other.clients[0], other.clients[1]);
  for (Record& each : other.records) {
    for (std::uint16_t* record : {&each.visible, &each.durable}) {
      if (*record != 0 && *record != kTorn) *record = static_cast<std::uint16_t>(*record ^ 16);
    }
  }
  if (other.record != 0) other.record = static_cast<std::uint16_t>(other.record ^ 16);
  return std::min(hash_of(state), hash_of(other));
}

void RpcModel::put(std::vector<Step>& out, const State& next, Action action, std::size_t client) {
  ++taken_[static_cast<std::size_t>(action)];
  out.push_back({next, action, static_cast<std::uint8_t>(client), Law::None});
}

void RpcModel::steps(const State& state, std::vector<Step>& out) {
  for (std::size_t which = 0; which < kRpcClients; ++which) {
    client_steps(state, which, out);
    write_steps(state, which, out);
  }
  server_steps(state, out);
  drain_steps(state, out);
  crash_steps(state, out);
}

/// The call at the place of `sequence`, if it is whole and no older than `generation`; 0: none.
std::uint8_t RpcModel::entry_at(const Client& client, std::uint8_t sequence,
                                std::uint8_t generation) const {
  if (sequence > kRpcCalls) return 0;
  const std::size_t slot = (sequence - 1u) % bounds_.slots;
  const std::uint8_t call = client.word[slot].visible;
  const bool whole = sequence_of(call) == sequence && client.body[slot].visible == call;
  const bool older = generation_of(call) < generation;
  return whole && (!older || mutant_ == RpcMutant::OlderGenerationTaken) ? call : std::uint8_t{0};
}

std::uint8_t RpcModel::next_call(const Client& client) const {
  const std::uint8_t mark = client.mark.visible;
  return entry_at(client, static_cast<std::uint8_t>(sequence_of(mark) + 1), generation_of(mark));
}

/// A session makes durable what is visible of the ring, and says what it has.
void RpcModel::connect(Client& client) const {
  for (auto* lines : {&client.body, &client.word}) {
    for (auto& line : *lines) drain(line);
  }
  std::uint8_t last = client.mark.visible;
  const std::uint8_t applied = sequence_of(last);
  while (const std::uint8_t call = entry_at(
             client, static_cast<std::uint8_t>(sequence_of(last) + 1), generation_of(last))) {
    client.told_durable[sequence_of(call) - 1u] = generation_of(call);
    last = call;
  }
  client.durable = sequence_of(last);
  client.applied = applied;
  client.begun = std::max(client.begun, client.durable);
  for (std::uint8_t sequence = 1; sequence <= kRpcCalls; ++sequence) {
    const bool again = sequence > client.durable && sequence <= client.begun;
    client.wire[sequence - 1u] = sequence <= client.durable ? kWordDurable
                                 : again                    ? kPosted
                                                            : kNowhere;
    client.writer[sequence - 1u] = again ? client.generation : std::uint8_t{0};
  }
  client.connected = 1;
}

void RpcModel::client_steps(const State& state, std::size_t which, std::vector<Step>& out) {
  const Client& client = state.clients[which];
  const bool serves = state.stage >= kIdle;
  if (!client.connected) {
    // Between two transactions: what it reads was committed.
    if (state.stage != kIdle) return;
    State next = state;
    connect(next.clients[which]);
    return put(out, next, Action::Connect, which);
  }
  const std::uint8_t freed =
      mutant_ == RpcMutant::SlotReusedAfterFlush ? client.durable : client.applied;
  if (client.begun < kRpcCalls && client.begun - freed < bounds_.slots) {
    State next = state;
    Client& now = next.clients[which];
    now.wire[now.begun] = kPosted;
    now.writer[now.begun] = now.generation;
    ++now.begun;
    put(out, next, Action::Begin, which);
  }
  std::uint8_t needed = kWordDurable;
  if (mutant_ == RpcMutant::ReplyBeforeFlush) needed = kWordVisible;
  if (mutant_ == RpcMutant::ZeroByteRead) needed = kPosted;
  if (client.durable < client.begun && client.wire[client.durable] >= needed) {
    State next = state;
    Client& now = next.clients[which];
    now.told_durable[now.durable] = now.generation;
    ++now.durable;
    put(out, next, Action::TellDurable, which);
  }
  std::uint8_t applied = sequence_of(client.mark.visible);
  const bool its_own = state.stage > kIdle && client_in(state.record) == which;
  if (its_own) applied = client.applied;
  if (its_own && mutant_ == RpcMutant::AppliedBeforeCommit && state.stage == kRecordWhole) {
    applied = sequence_of(call_in(state.record));
  }
  if (serves && applied > client.applied) {
    State next = state;
    Client& now = next.clients[which];
    for (std::uint8_t each = now.applied; each < applied; ++each) now.told_applied[each] = 1;
    now.applied = applied;
    now.durable = std::max(now.durable, applied);
    put(out, next, Action::TellApplied, which);
  }
}

/// What is in flight goes on; also that of a connection which is lost, until the next one.
void RpcModel::write_steps(const State& state, std::size_t which, std::vector<Step>& out) {
  for (std::uint8_t index = 0; index < kRpcCalls; ++index) {
    const std::uint8_t wire = state.clients[which].wire[index];
    if (wire == kNowhere || wire == kWordDurable) continue;
    State next = state;
    Client& now = next.clients[which];
    const std::size_t slot = index % bounds_.slots;
    const std::uint8_t call = call_of(static_cast<std::uint8_t>(index + 1), now.writer[index]);
    now.wire[index] = static_cast<std::uint8_t>(wire + 1);
    if (wire == kPosted) now.body[slot].visible = call;
    if (wire == kBodyVisible) drain(now.body[slot]);
    if (wire == kBodyDurable) now.word[slot].visible = call;
    if (wire == kWordVisible) drain(now.word[slot]);
    put(out, next, Action::Write, which);
  }
}

void RpcModel::drain_steps(const State& state, std::vector<Step>& out) {
  if (!bounds_.power) return;
  std::size_t lines = 0;
  State any = state;
  for_each_line(any, [&](auto&) { ++lines; });
  for (std::size_t chosen = 0; chosen < lines; ++chosen) {
    State next = state;
    std::size_t at = 0;
    bool changed = false;
    for_each_line(next, [&](auto& line) {
      if (at++ != chosen || line.visible == line.durable) return;
      drain(line);
      changed = true;
    });
    if (changed) put(out, next, Action::Drain);
  }
}

void RpcModel::crash_steps(const State& state, std::vector<Step>& out) {
  if (state.crashes == bounds_.crashes) return;
  State crashed = state;
  ++crashed.crashes;
  if (bounds_.power) {
    State next = crashed;
    power_fails(next);
    put(out, next, Action::PowerFails);
  }
  if (!bounds_.deaths) return;
  if (state.stage != kDown) {
    State next = crashed;
    server_dies(next);
    put(out, next, Action::ServerDies);
  }
  for (std::size_t which = 0; which < kRpcClients; ++which) {
    if (!state.clients[which].connected) continue;
    State lost = crashed;
    lost.clients[which].connected = 0;
    put(out, lost, Action::ConnectionLost, which);
    if (state.clients[which].generation == kGenerationMask) continue;
    State dead = crashed;
    Client& client = dead.clients[which];
    client.connected = 0;
    ++client.generation;
    client.begun = client.durable = client.applied = 0;
    put(out, dead, Action::ClientDies, which);
  }
}

RpcLaw RpcModel::check(const State& state) const {
  State cut = state;
  power_fails(cut);
  if (const Law broken = judge(cut); bounds_.power && broken != Law::None) return broken;
  State dead = state;
  server_dies(dead);
  return judge(dead);
}

/// Recovers and executes all that is there; nobody sends anything.
RpcLaw RpcModel::judge(State state) const {
  while (state.stage < kIdle) go_on(state);
  for (const Client& client : state.clients) {
    for (std::uint8_t index = 0; index < kRpcCalls; ++index) {
      if (client.told_applied[index] == 0) continue;
      const bool kept =
          sequence_of(client.mark.visible) > index && times_of(client.effects[index].visible) >= 1;
      if (!kept) return Law::AppliedIsKept;
    }
  }
  for (std::size_t which = 0; which < kRpcClients; ++which) {
    while (may_execute(state, which)) {
      begin_transaction(state, which);
      while (state.stage != kIdle) go_on(state);
    }
  }
  for (const Client& client : state.clients) {
    for (std::uint8_t index = 0; index < kRpcCalls; ++index) {
      const std::uint8_t effects = client.effects[index].visible;
      if (times_of(effects) > 1) return Law::NoneTwice;
      if (index != 0 && times_of(effects) == 1 &&
          times_of(client.effects[index - 1u].visible) == 0) {
        return Law::InOrder;
      }
      const std::uint8_t told = client.told_durable[index];
      if (told != 0 && effects != call_of(1, told)) return Law::DurableIsApplied;
    }
  }
  return Law::None;
}

std::string RpcModel::describe(const Step& step) {
  static constexpr std::array<const char*, 13> kWords = {"connects, and is told what is there",
                                                         "begins a call",
                                                         "writes a call's next part",
                                                         "is told: durable",
                                                         "is told: applied",
                                                         "the server begins to execute its call",
                                                         "the server goes on with its transaction",
                                                         "the server recovers",
                                                         "a line becomes durable by itself",
                                                         "the power fails",
                                                         "the server's process dies",
                                                         "dies, and another process has its name",
                                                         "loses its connection"};
  const char* const words = kWords.at(static_cast<std::size_t>(step.action));
  const bool of_client = step.action <= Action::Execute || step.action >= Action::ClientDies;
  return of_client ? fmt::format("client {}: {}", step.client + 1, words) : std::string(words);
}

}  // namespace perdure::model
