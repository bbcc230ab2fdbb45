// The two programs of a point of `perdure bench rpc`, whatever fabric is between them: a server
// that executes calls on objects, and a client that makes its calls and notes when they are over.
#pragma once

#include "bench/rpc_calls.h"
#include "core/hardware.h"
#include "pmem/cache_flush.h"
#include "report/histogram.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace perdure::bench {

/// What a server's work takes where time is emulated; on a real machine it takes what it takes.
struct RpcEmulatedTimes {
  const ServerHardware* hardware = nullptr;
  std::function<void(Nanoseconds)> wake_at;  // calls everybody again at that time
};

/// A processor of the server that does one thing after another.
class RpcProcessor {
 public:
  /// Whether the piece of work `who` has done is over; it is begun when the processor is free.
  bool work(const void* who, Nanoseconds now, Nanoseconds takes, const RpcEmulatedTimes* emulated);

 private:
  const void* at_ = nullptr;
  Nanoseconds until_{0};
};

/// What all connections of a server share.
struct RpcServerState {
  RpcServerState(const RpcPoint& point, const Clock& clock);

  const RpcPoint& point;
  const Clock& clock;
  const RpcConfounders confounders;
  RpcObjects objects;
  std::optional<pmem::CacheFlush> flush;  // none: time is emulated
  std::optional<RpcEmulatedTimes> emulated;
  RpcProcessor receiver;  // takes what arrives, and flushes it where the design has that
  RpcProcessor worker;    // executes
  std::uint64_t executed = 0;
};

/// The handler of a connection.
class RpcObjectHandler final : public rpc::models::Handler {
 public:
  explicit RpcObjectHandler(RpcServerState& state) : state_(state) {}

  std::size_t handle(std::span<const std::byte> request, std::span<std::byte> reply) override;
  bool is_ready(std::uint64_t sequence, std::span<const std::byte> request) override;
  bool persist(std::uint64_t sequence, std::span<const std::byte> received) override;

 private:
  void flush(std::span<const std::byte> bytes);
  Nanoseconds time_of(std::span<const std::byte> request) const;

  RpcServerState& state_;
};

/// The client of a connection.
class RpcCaller {
 public:
  /// `end` must outlive it.
  RpcCaller(const RpcPoint& point, std::uint64_t number, rpc::models::Client& end,
            const Clock& clock);

  /// Goes on. Whether it did anything. Errors: those of the end; Corrupt.
  Result<bool> pump();
  /// All calls are over; and answered.
  bool all_over() const { return over_ == plan_.size(); }
  bool all_answered() const { return answered_ == plan_.size(); }
  /// When the first counted call began, and when the last one was over.
  Nanoseconds began() const { return began_; }
  Nanoseconds ended() const { return ended_; }

  const report::Histogram& latencies() const { return latencies_; }
  /// In the client's software: building, posting and taking of calls that were counted.
  Nanoseconds software() const { return software_; }

 private:
  struct Flight {
    std::uint64_t call = 0;
    Nanoseconds since{0};
    bool over = false;
  };
  Result<bool> begin_calls();
  bool find_over();
  Result<bool> take_replies();
  Result<void> compute(std::span<const std::byte> block);
  bool is_over(const Flight& flight) const;
  void note_over(Flight& flight);

  const RpcPoint& point_;
  const RpcConfounders confounders_;
  const std::size_t unfinished_max_;
  rpc::models::Client& end_;
  const Clock& clock_;
  const std::vector<RpcCallPlan> plan_;
  std::optional<workload::PageRank> ranks_;  // of a graph
  std::vector<std::byte> request_;
  std::vector<std::byte> reply_;
  std::deque<Flight> flights_;         // begun and not answered; the oldest first
  std::optional<Nanoseconds> wanted_;  // since when the next call is to be begun
  std::uint64_t begun_ = 0;
  std::uint64_t over_ = 0;
  std::uint64_t answered_ = 0;
  Nanoseconds began_{0};
  Nanoseconds ended_{0};
  Nanoseconds software_{0};
  report::Histogram latencies_;
};

/// What the callers of a point have found; it has no lost calls and no time of the server yet.
RpcSample sample_of(const RpcLoad& load, const std::vector<const RpcCaller*>& callers);

/// What the ends of a point are opened with; device and endpoint are to be filled in.
rpc::models::EndOptions rpc_end_options(const RpcPoint& point);

// One each; see the files of these names.
Result<RpcSample> run_rpc_emulated(const RpcPoint& point);
Result<RpcSample> run_rpc_measured(const RpcPoint& point);

}  // namespace perdure::bench
