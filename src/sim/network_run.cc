// Clients, stations and the loop that moves time: see network_run.h.
#include "sim/network_run.h"

#include "core/assert.h"
#include "core/random.h"
#include "core/try.h"
#include "sim/network_form.h"
#include "sim/network_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <queue>

namespace perdure::sim {
namespace {

constexpr std::uint64_t kProgressSteps = 64;         // of a run
constexpr std::uint64_t kProgressStepMax = 1 << 16;  // transactions: less than a second

constexpr std::array<std::string_view, 6> kNames{"sync",  "bsp",     "read",
                                                 "flush", "message", "transport-ack"};
constexpr std::uint64_t kAnswerBytes = 8;         // of a READ, a FLUSH or a server's CPU
constexpr std::uint64_t kAbortsInARowMax = 1000;  // of one transaction

/// What happens to a message, or to a client, in the order of its way.
enum class Step : std::uint8_t {
  Client,   // the CPU goes on
  Queue,    // posted: the queue pair
  Fetch,    // taken: the client's PCIe
  Link,     // the first byte leaves the client's RNIC
  Dma,      // the first byte has crossed the server's RNIC
  Ask,      // the READ or FLUSH behind it leaves the client's RNIC
  Asked,    // it has crossed the server's RNIC
  Handle,   // the server's CPUs notice the message
  Memory,   // the last byte is at the memory controller's door
  Answer,   // a CPU of the server has posted its answer, and is free
  Back,     // the persist ACK, or what stands in for it, leaves the server's RNIC
  Ack,      // it is in the client's hands
  Timeout,  // it should have been
};

struct Event {
  Time at = 0;
  std::uint64_t order = 0;  // of what happens at the same time, what was asked for first
  RemoteEpoch epoch;
  Time tail = 0;  // the last byte
  Step step = Step::Client;
  bool operator>(const Event& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

struct Client {
  explicit Client(std::uint64_t seed) : random(seed), losses(~seed) {}
  Random random;
  Random losses;  // apart, so that what is lost changes nothing of what is written
  bool ended = false;
  bool posting = false;           // epochs of a transaction
  std::uint64_t epochs_left = 0;  // to be posted
  std::uint64_t next_number = 0;  // of the connection's epochs
  std::uint64_t awaited = 0;      // the persist ACK of this epoch
  bool waiting = false;
  Time handled_from = 0;   // its message, by a CPU of the server
  Time asks_from = 0;      // when its READ or FLUSH is posted
  bool persisted = false;  // the epoch that is waited for
  std::optional<Time>
      read_answered_at;      // a READ has been there, and is answered then at the earliest
  std::uint64_t aborts = 0;  // of its transaction
  Time began = 0;
  Time busy_until = 0;       // with its own memory
  std::deque<Time> visible;  // of its epochs at the server, until they are persisted
  Time placed = 0;           // the last of those that have arrived
  Station queue;
};

/// What strategies without a persist ACK add to EpochParts.
struct StrategyParts {
  Time dma_read = 0;   // until one is answered
  Time written = 0;    // by a FLUSH, from the cache to the memory controller
  Time poll = 0;       // a message is noticed
  Time handle = 0;     // by a CPU, until memory has it: understood, copied, flushed
  Time back_link = 0;  // the answer on the link
  Time noticed = 0;    // by the client
};

StrategyParts strategy_parts(const Hardware& hardware, const NetworkOptions& options,
                             const EpochParts& parts) {
  const NetworkHardware& n = hardware.network;
  const ServerHardware& s = hardware.server;
  const bool from_cache = options.strategy == Strategy::Read && options.ddio;
  const auto bytes = static_cast<double>(options.shape.epoch_bytes);
  StrategyParts way;
  way.dma_read = picoseconds(from_cache ? n.dma_read_cache : n.dma_read_memory);
  way.written = picoseconds(n.cache_drain);  // as `sim method` has it, whatever DDIO is
  way.poll = picoseconds(n.poll);
  way.handle = picoseconds(s.handle + bytes * s.copy_per_byte +
                           std::ceil(bytes / s.line_bytes) * s.flush_line);
  way.back_link = parts.ack_link;
  way.noticed = parts.completion;
  switch (options.strategy) {
    case Strategy::Message: way.noticed = picoseconds(n.dma_write + n.poll); [[fallthrough]];
    case Strategy::Read:
    case Strategy::Flush:
      way.back_link = picoseconds((kAnswerBytes + n.header_bytes) * n.wire_per_byte);
      break;
    case Strategy::Sync:
    case Strategy::Bsp:
    case Strategy::TransportAck: break;
  }
  return way;
}

class NetworkRun {
 public:
  NetworkRun(const Hardware& hardware, const NetworkOptions& options, RemoteMemory& memory);
  Result<NetworkResult> run();
  static bool draws_write(Random& random, const TransactionShape& shape) {
    return random.chance(shape.writes_per_mille, 1000);
  }

 private:
  void on(const Event& event);
  // The client.
  void client(std::uint32_t number);
  void begin(std::uint32_t number);
  void post(std::uint32_t number);
  void await(std::uint32_t number, Time posted);
  void on_ack(const RemoteEpoch& epoch);
  void on_timeout(const RemoteEpoch& epoch);
  // The way.
  void on_dma(const Event& event);
  void on_asked(const RemoteEpoch& epoch);
  void on_handle(const RemoteEpoch& epoch);
  void on_answer(const RemoteEpoch& epoch);
  void on_persisted(const RemoteEpoch& epoch);
  void send_ack(const RemoteEpoch& epoch, Time ready);

  /// Whether a READ or FLUSH goes behind each epoch.
  bool asks() const {
    return options_.strategy == Strategy::Read || options_.strategy == Strategy::Flush;
  }
  void at(Time time, Step step, const RemoteEpoch& epoch, Time tail = 0) {
    events_.push({time, order_++, epoch, tail, step});
  }
  Error deadlock() const;
  bool all_ended() const {
    return std::all_of(clients_.begin(), clients_.end(), [](const Client& c) { return c.ended; });
  }

  const NetworkOptions options_;
  const EpochParts parts_;
  const StrategyParts way_;
  const Time local_persist_;
  RemoteMemory& memory_;
  NetworkLaw law_;
  std::vector<Client> clients_;
  Station client_pcie_;
  Station link_;
  Station server_pcie_;
  Station link_back_;
  std::uint32_t idle_cpus_;
  std::deque<RemoteEpoch> unhandled_;  // messages, while no CPU is idle
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<RemoteEpoch> persisted_;
  std::uint64_t order_ = 0;
  std::uint64_t begun_ = 0;        // transactions
  std::uint64_t most_aborts_ = 0;  // of one transaction
  Time now_ = 0;
  NetworkResult result_;
};

/// CLWB of each line, a fence, and the medium.
Time local_persist_of(const Hardware& hardware, std::uint64_t bytes) {
  const double lines = std::ceil(static_cast<double>(bytes) / hardware.server.line_bytes);
  return picoseconds(lines * hardware.server.flush_line + hardware.network.medium_write);
}

NetworkRun::NetworkRun(const Hardware& hardware, const NetworkOptions& options,
                       RemoteMemory& memory)
    : options_(options),
      parts_(epoch_parts(hardware.network, options.shape.epoch_bytes, options.ddio)),
      way_(strategy_parts(hardware, options, parts_)),
      local_persist_(options.client_persists ? local_persist_of(hardware, options.shape.epoch_bytes)
                                             : 0),
      memory_(memory),
      law_(options.clients),
      idle_cpus_(options.server_cpus) {
  PERDURE_ASSERT(options.clients > 0 && options.server_cpus > 0);
  PERDURE_ASSERT(options.shape.epochs > 0 && options.shape.epoch_bytes > 0);
  PERDURE_ASSERT(options.lost_ack_one_in == 0 ||
                 (!asks() && options.strategy != Strategy::Message));
  for (std::uint32_t i = 0; i < options.clients; ++i) clients_.emplace_back(options.seed + i);
}

Result<NetworkResult> NetworkRun::run() {
  for (std::uint32_t i = 0; i < clients_.size(); ++i) at(0, Step::Client, {i, 0, 0});
  while (!all_ended()) {
    const Time memory = memory_.next();
    const Time event = events_.empty() ? kTimeNever : events_.top().at;
    now_ = std::min(memory, event);
    if (now_ == kTimeNever) return deadlock();
    ++result_.events;
    if (memory < event) {
      persisted_.clear();
      memory_.step(now_, persisted_);
      for (const RemoteEpoch& epoch : persisted_) on_persisted(epoch);
    } else {
      const Event next = events_.top();
      events_.pop();
      on(next);
    }
    if (most_aborts_ > kAbortsInARowMax) {
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("a transaction was aborted {} times in a row: its persist ACK is lost "
                      "each time, or comes after the {:.3f} us that are waited for it",
                      most_aborts_, static_cast<double>(options_.ack_timeout) / 1e6)};
    }
    if (!law_.broken().empty()) {
      return Error{ErrorCode::ProtocolError,
                   fmt::format("the order of persistence is broken: {}", law_.broken())};
    }
  }
  PERDURE_TRY_VOID(memory_.verdict());
  result_.busy.client_pcie = client_pcie_.busy();
  result_.busy.link = link_.busy();
  result_.busy.server_pcie = server_pcie_.busy();
  result_.busy.link_back = link_back_.busy();
  return result_;
}

Error NetworkRun::deadlock() const {
  std::string who;
  for (std::uint32_t i = 0; i < clients_.size(); ++i) {
    if (!clients_[i].waiting) continue;
    who += fmt::format("; client {} waits for the persist ACK of epoch {}", i, clients_[i].awaited);
    const std::string blocked = memory_.blocked(i);
    if (!blocked.empty()) who += fmt::format(", and its memory for {}", blocked);
  }
  return {ErrorCode::InvalidArgument,
          fmt::format("deadlock after {} transactions: nobody has anything to do{}",
                      result_.transactions, who)};
}

void NetworkRun::on(const Event& event) {
  const RemoteEpoch& epoch = event.epoch;
  switch (event.step) {
    case Step::Client: return client(epoch.connection);
    case Step::Queue: {
      const Span taken = clients_[epoch.connection].queue.pass({now_, now_}, 0, parts_.gap);
      return at(taken.head, parts_.fetch > 0 ? Step::Fetch : Step::Link, epoch);
    }
    case Step::Fetch: {
      // The RNIC sends a payload when it has all of it.
      const Span fetched = client_pcie_.pass({now_, now_}, parts_.fetch, parts_.fetch_busy);
      return at(fetched.tail, Step::Link, epoch);
    }
    case Step::Link: {
      const Time sent = now_ + parts_.rnic;
      const Span there = link_.pass({sent, sent}, parts_.wire, parts_.link_busy);
      if (asks()) {
        const Time next = now_ + parts_.gap;
        at(std::max(next, clients_[epoch.connection].asks_from), Step::Ask, epoch);
      }
      return at(there.head + parts_.rnic, Step::Dma, epoch, there.tail + parts_.rnic);
    }
    case Step::Ask: {
      const Time sent = now_ + parts_.rnic;
      const Span there = link_.pass({sent, sent}, parts_.wire, parts_.ack_link);
      return at(there.tail + parts_.rnic, Step::Asked, epoch);
    }
    case Step::Asked: return on_asked(epoch);
    case Step::Handle: return on_handle(epoch);
    case Step::Answer: return on_answer(epoch);
    case Step::Dma: return on_dma(event);
    case Step::Memory: result_.bytes += epoch.bytes; return memory_.arrive(epoch, now_);
    case Step::Back: {
      const Time sent = now_ + parts_.rnic;
      const Span there = link_back_.pass({sent, sent}, parts_.wire, way_.back_link);
      return at(there.tail + parts_.rnic + way_.noticed, Step::Ack, epoch);
    }
    case Step::Ack: return on_ack(epoch);
    case Step::Timeout: return on_timeout(epoch);
  }
}

// --- the client --------------------------------------------------------------------------------

void NetworkRun::client(std::uint32_t number) {
  if (clients_[number].posting) {
    post(number);
  } else {
    begin(number);
  }
}

void NetworkRun::begin(std::uint32_t number) {
  Client& me = clients_[number];
  if (begun_ == options_.transactions) {
    me.ended = true;
    return;
  }
  ++begun_;
  const std::uint64_t step = std::min(options_.transactions / kProgressSteps + 1, kProgressStepMax);
  if (options_.progress && begun_ % step == 0) options_.progress(begun_);
  const Time computed = now_ + options_.shape.compute;
  if (!draws_write(me.random, options_.shape)) {
    ++result_.transactions;
    result_.elapsed = std::max(result_.elapsed, computed);
    return at(computed, Step::Client, {number, 0, 0});
  }
  ++result_.writing;
  me.posting = true;
  me.epochs_left = options_.shape.epochs;
  me.began = computed;
  at(computed, Step::Client, {number, 0, 0});
}

void NetworkRun::post(std::uint32_t number) {
  Client& me = clients_[number];
  PERDURE_ASSERT(me.epochs_left > 0);
  const RemoteEpoch epoch{number, me.next_number++, options_.shape.epoch_bytes};
  --me.epochs_left;
  ++result_.epochs;
  const Time posted = now_ + parts_.post;
  me.asks_from = asks() ? posted + parts_.post : posted;
  me.busy_until = me.asks_from + local_persist_;
  me.persisted = false;
  me.read_answered_at.reset();
  at(posted, Step::Queue, epoch);
  const bool last = me.epochs_left == 0;
  if (last || options_.strategy != Strategy::Bsp) {
    me.awaited = epoch.number;
    return await(number, me.asks_from);
  }
  at(me.busy_until, Step::Client, {number, 0, 0});
}

void NetworkRun::await(std::uint32_t number, Time posted) {
  Client& me = clients_[number];
  me.waiting = true;
  ++result_.round_trips;
  if (options_.lost_ack_one_in > 0) {
    at(posted + options_.ack_timeout, Step::Timeout, {number, me.awaited, 0});
  }
}

void NetworkRun::on_ack(const RemoteEpoch& epoch) {
  Client& me = clients_[epoch.connection];
  if (!me.waiting || epoch.number != me.awaited) return;  // of an earlier one: nobody asks
  me.waiting = false;
  const Time end = std::max(now_, me.busy_until);
  at(end, Step::Client, {epoch.connection, 0, 0});
  if (me.epochs_left > 0) return;
  me.posting = false;
  me.aborts = 0;
  ++result_.transactions;
  result_.waited += end - me.began;
  result_.persist.add(end - me.began);
  result_.elapsed = std::max(result_.elapsed, end);
}

/// No persist ACK: abort, and the transaction again.
void NetworkRun::on_timeout(const RemoteEpoch& epoch) {
  Client& me = clients_[epoch.connection];
  if (!me.waiting || epoch.number != me.awaited) return;
  me.waiting = false;
  ++result_.aborted;
  most_aborts_ = std::max(most_aborts_, ++me.aborts);
  me.epochs_left = options_.shape.epochs;
  at(std::max(now_, me.busy_until), Step::Client, {epoch.connection, 0, 0});
}

// --- the server --------------------------------------------------------------------------------

void NetworkRun::on_dma(const Event& event) {
  const Span visible = server_pcie_.pass({event.at, event.tail}, parts_.dma, parts_.pcie_busy);
  clients_[event.epoch.connection].visible.push_back(visible.tail);
  clients_[event.epoch.connection].placed = visible.tail;
  switch (options_.strategy) {
    case Strategy::Message: return at(visible.tail + way_.poll, Step::Handle, event.epoch);
    case Strategy::Flush: return;  // brings it to memory
    case Strategy::TransportAck: send_ack(event.epoch, event.tail); [[fallthrough]];
    case Strategy::Read:
      if (options_.ddio) return;  // it stays in the cache
      [[fallthrough]];
    case Strategy::Sync:
    case Strategy::Bsp: return at(visible.tail + parts_.drain, Step::Memory, event.epoch);
  }
}

/// A READ or FLUSH is at the server's RNIC, and the WRITE before it is too.
void NetworkRun::on_asked(const RemoteEpoch& epoch) {
  // It does not pass the WRITE on PCIe.
  const Time read = std::max(now_ + way_.dma_read, clients_[epoch.connection].placed);
  if (options_.strategy == Strategy::Flush) return at(read + way_.written, Step::Memory, epoch);
  // With DDIO the cache answers, whatever memory has.
  if (options_.ddio || clients_[epoch.connection].persisted) return send_ack(epoch, read);
  clients_[epoch.connection].read_answered_at = read;
}

void NetworkRun::on_handle(const RemoteEpoch& epoch) {
  if (idle_cpus_ == 0) return unhandled_.push_back(epoch);
  --idle_cpus_;
  clients_[epoch.connection].handled_from = now_;
  at(now_ + way_.handle, Step::Memory, epoch);
}

void NetworkRun::on_answer(const RemoteEpoch& epoch) {
  send_ack(epoch, now_);
  result_.busy.server_cpu += now_ - clients_[epoch.connection].handled_from;
  ++idle_cpus_;
  if (unhandled_.empty()) return;
  const RemoteEpoch next = unhandled_.front();
  unhandled_.pop_front();
  on_handle(next);
}

void NetworkRun::on_persisted(const RemoteEpoch& epoch) {
  law_.on_persisted(epoch, now_);
  Client& me = clients_[epoch.connection];
  result_.in_memory += now_ - me.visible.front();
  me.visible.pop_front();
  switch (options_.strategy) {
    case Strategy::Sync:
    case Strategy::Bsp: return send_ack(epoch, now_ + parts_.ack);
    case Strategy::Read:
      me.persisted = true;
      if (me.read_answered_at) send_ack(epoch, std::max(now_, *me.read_answered_at));
      return;
    case Strategy::Flush: return send_ack(epoch, now_);
    case Strategy::Message: return at(now_ + parts_.post, Step::Answer, epoch);
    case Strategy::TransportAck: return;
  }
}

void NetworkRun::send_ack(const RemoteEpoch& epoch, Time ready) {
  // From here on a power failure leaves the client with a promise.
  law_.on_acknowledged(epoch, now_);
  Client& me = clients_[epoch.connection];
  const bool asked_for = me.waiting && me.awaited == epoch.number;
  const std::uint64_t one_in = options_.lost_ack_one_in;
  if (one_in > 0 && asked_for && me.losses.chance(1, one_in)) return;
  at(ready, Step::Back, epoch);
}

}  // namespace

std::string_view to_string(Strategy strategy) {
  return kNames.at(static_cast<std::size_t>(strategy));
}

double NetworkResult::transactions_per_us() const {
  return elapsed == 0 ? 0
                      : static_cast<double>(transactions) / (static_cast<double>(elapsed) / 1e6);
}

double NetworkResult::network_share() const {
  if (waited == 0) return 0;
  return 1 - static_cast<double>(in_memory) / static_cast<double>(waited);
}

Result<NetworkResult> run_network(const Hardware& hardware, const NetworkOptions& options,
                                  RemoteMemory& memory) {
  return NetworkRun(hardware, options, memory).run();
}

/// Until the first one writes, clients begin in turn: all take the same time.
bool writes_anything(const NetworkOptions& options) {
  std::vector<Random> clients;
  for (std::uint32_t i = 0; i < options.clients; ++i) clients.emplace_back(options.seed + i);
  for (std::uint64_t i = 0; i < options.transactions; ++i) {
    if (NetworkRun::draws_write(clients[i % clients.size()], options.shape)) return true;
  }
  return false;
}

}  // namespace perdure::sim
