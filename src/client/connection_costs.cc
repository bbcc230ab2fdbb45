#include "client/connection_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/try.h"

namespace perdure::client {
namespace {

using persist::Probe;

constexpr int kTurnsMax = 16;
constexpr Nanoseconds kTurnsWithin = std::chrono::milliseconds(3);
// One turn alone may have met a cold cache or another program.
constexpr int kTurnsMin = 4;
constexpr Nanoseconds kTurnsMinWithin = std::chrono::milliseconds(30);
constexpr int kWakeRounds = 3;
// Twice as long as a responder polls for its next message (ServiceOptions::spin_budget).
constexpr Nanoseconds kUntilAsleep = std::chrono::microseconds(100);
// Less than that is noise between two round trips.
constexpr double kWakeNsMin = 1000;
// What costs too little to be told from noise is not free.
constexpr double kLeastShare = 1.0 / 16;
constexpr Nanoseconds kSleepSlice = std::chrono::milliseconds(1);

double ns(Nanoseconds time) { return static_cast<double>(time.count()); }

/// Times one probe at a time.
class Stopwatch {
 public:
  Stopwatch(persist::Requester& requester, const Session& session, const MeasureOptions& options)
      : requester_(requester), session_(session), options_(options) {
    best_.fill(Nanoseconds::max());
  }

  Result<Nanoseconds> time(Probe probe) const {
    const Nanoseconds within = std::min(options_.answer_within, left());
    if (within == Nanoseconds{0}) return no_answer();
    const Nanoseconds start = options_.clock->now();
    PERDURE_TRY(number, requester_.begin_probe(probe));
    PERDURE_TRY_VOID(await(number, start + within));
    return options_.clock->now() - start;
  }

  Result<void> note(Probe probe) {
    PERDURE_TRY(took, time(probe));
    Nanoseconds& best = best_[static_cast<std::size_t>(probe)];
    best = std::min(best, took);
    return {};
  }

  double best(Probe probe) const { return ns(best_[static_cast<std::size_t>(probe)]); }

  /// Lets the responder find nothing to do for this long.
  Result<void> pause(Nanoseconds length) const {
    const Deadline over(*options_.clock, std::min(length, left()));
    while (!over.passed()) PERDURE_TRY_VOID(requester_.poll());
    return {};
  }

 private:
  Nanoseconds left() const { return options_.until ? options_.until->left() : Nanoseconds::max(); }
  static Error no_answer() {
    return {ErrorCode::TimedOut, "the peer did not answer while the connection was timed"};
  }

  Result<void> await(std::uint64_t number, Nanoseconds until) const {
    constexpr std::uint64_t kRoundsPerLook = 8;
    constexpr std::uint64_t kSpinRounds = 1024;
    for (std::uint64_t round = 1;; ++round) {
      PERDURE_TRY_VOID(requester_.poll());
      if (requester_.resolved() >= number) return {};
      if (round % kRoundsPerLook != 0) continue;
      if (options_.clock->now() >= until) return no_answer();
      if (options_.until && options_.until->passed()) return no_answer();  // it may be cut short
      fabric::Endpoint* endpoint = session_.endpoint.get();
      if (round > kSpinRounds) fabric::wait_any(std::span(&endpoint, 1), kSleepSlice);
    }
  }

  persist::Requester& requester_;
  const Session& session_;
  const MeasureOptions& options_;
  std::array<Nanoseconds, 6> best_{};
};

/// What the responder says of its own work, where it says something.
void take_medium(const Session& session, plan::CostModel& costs) {
  if (!session.medium) return;
  const auto take = [](std::uint64_t said, double unit, double& cost) {
    if (said != 0) cost = static_cast<double>(said) * unit;
  };
  take(session.medium->copy_byte_ps, 1e-3, costs.copy_byte_ns);
  take(session.medium->flush_line_ps, 1e-3, costs.flush_line_ns);
  if (session.medium->flush_line_ps != 0) costs.flush_ns = 0;  // the lines were timed with it
  take(session.medium->sync_ns, 1, costs.sync_ns);
}

/// How much longer a message takes when the responder has gone to sleep.
Result<double> wake_ns(Stopwatch& watch) {
  Nanoseconds woken = Nanoseconds::max();
  for (int round = 0; round < kWakeRounds; ++round) {
    PERDURE_TRY_VOID(watch.pause(kUntilAsleep));
    PERDURE_TRY(took, watch.time(Probe::Message));
    woken = std::min(woken, took);
  }
  const double more = ns(woken) - watch.best(Probe::Message);
  return more < kWakeNsMin ? 0 : more;
}

/// What a WRITE takes where it can not be timed. On a longer way or to a slower responder both take
/// longer by the same time; on a shorter one both shrink.
double inferred_write(double read_ns, const plan::CostModel& usual) {
  const double less = usual.read_round_trip_ns - usual.write_round_trip_ns;
  return std::max(read_ns - less, read_ns * usual.write_round_trip_ns / usual.read_round_trip_ns);
}

/// Where one-sided requests are served by the responder's processor, which polls or sleeps.
bool served_by_cpu(Transport transport) {
  return transport == Transport::Tcp || transport == Transport::Shm;
}

}  // namespace

Result<plan::CostModel> measure_costs(persist::Requester& requester, const Session& session,
                                      const MeasureOptions& options) {
  const Transport transport = session.pool.profile.transport;
  const plan::CostModel usual = plan::default_costs(transport);
  // A completion that comes early times nothing, and no method rests on it.
  const bool write_completes = options.writes && !completes_early(transport);
  Stopwatch watch(requester, session, options);
  const Probe two = options.writes ? Probe::WriteMessage : Probe::TwoMessages;
  const Nanoseconds start = options.clock->now();
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    const Nanoseconds within = turn < kTurnsMin ? kTurnsMinWithin : kTurnsWithin;
    if (turn > 0 && options.clock->now() - start > within) break;
    for (const Probe probe : {Probe::Message, Probe::LongMessage, Probe::Read, two}) {
      PERDURE_TRY_VOID(watch.note(probe));
    }
    if (write_completes) PERDURE_TRY_VOID(watch.note(Probe::Write));
  }
  PERDURE_TRY(wake, wake_ns(watch));
  plan::CostModel costs = usual;
  const double message = watch.best(Probe::Message);
  costs.message_round_trip_ns = message;
  costs.read_round_trip_ns = watch.best(Probe::Read);
  costs.persist_round_trip_ns =
      costs.read_round_trip_ns + usual.persist_round_trip_ns - usual.read_round_trip_ns;
  costs.write_round_trip_ns =
      write_completes ? watch.best(Probe::Write) : inferred_write(costs.read_round_trip_ns, usual);
  costs.extra_post_ns = std::max(watch.best(two) - message, usual.extra_post_ns * kLeastShare);
  costs.wire_byte_ns = std::max(
      (watch.best(Probe::LongMessage) - message) / static_cast<double>(requester.probe_padding()),
      usual.wire_byte_ns * kLeastShare);
  costs.fetch = {};  // the probe's bytes were fetched
  costs.responder_wake_ns = wake;
  costs.one_sided_wake_ns = served_by_cpu(transport) ? wake : 0;
  take_medium(session, costs);
  costs.measured = true;
  costs.hardware.clear();
  return costs;
}

Result<MeasuredPool> measure_pool(Peer& peer, const std::string& pool, Nanoseconds timeout,
                                  const Clock& clock) {
  PERDURE_TRY(described, peer.describe(pool, Deadline(clock, timeout)));
  control::SessionRequest request;
  request.pool = pool;
  PERDURE_TRY(session, peer.open_session(request, Deadline(clock, timeout)));
  persist::Requester::Options options;
  options.remote = session.remote;
  options.queue.depth = session.receive_depth;
  options.queue.message_bytes_max = session.message_bytes_max;
  options.session = static_cast<std::uint32_t>(session.id);
  options.probes = true;
  PERDURE_TRY(requester, persist::Requester::open(*session.endpoint, peer.device(),
                                                  session.pool.profile, {}, options));
  const Session connection = std::move(session);  // goes before the memory of the requester
  MeasureOptions measure;
  measure.clock = &clock;
  measure.answer_within = timeout;
  MeasuredPool measured;
  PERDURE_TRY(costs, measure_costs(*requester, connection, measure));
  measured.costs = costs;
  measured.message_bytes_max = connection.message_bytes_max;
  measured.profile = connection.pool.profile;
  measured.profile.receive_buffers = described.profile.receive_buffers;  // those of a writer
  return measured;
}

}  // namespace perdure::client
