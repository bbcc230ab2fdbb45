// One point of `perdure bench rpc`: a design of src/rpc/models in one form, under one load, over
// one fabric; and what came of it. Everything that the figures of *durable RPC* vary is a field
// here.
//
// A server keeps objects and executes reads and writes of them; a call carries one or several such
// requests. What a call waits for depends on the design:
//
//   durable designs   a write is over when it is durable, a read when its data is there
//   all others        a call is over when its reply is there: then its effects are durable, since
//                     the handler flushed them
#pragma once

#include <perdure/result.h>

#include "core/clock.h"
#include "report/table.h"
#include "rpc/models/design.h"
#include "workload/graph.h"

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::bench {

enum class RpcFabric : std::uint8_t { Emu, Shm, Tcp };

std::string_view to_string(RpcFabric fabric);
report::Origin origin_of(RpcFabric fabric);
/// Errors: InvalidArgument.
Result<RpcFabric> parse_rpc_fabric(std::string_view word);

/// Whose comparison it is.
///   Paper      as the text of *durable RPC* describes it: the designs it compares with have one
///              call in flight; its own go on as soon as a call is durable, as far as the log has
///              room. Every request is executed, every line flushed, every reply delivered.
///   Artifact   as the published code runs: all confounders
///   Equalised  the same calls in flight for all, begun and not answered; the rest as in Paper
enum class RpcForm : std::uint8_t { Paper, Artifact, Equalised };
inline constexpr std::array kRpcForms{RpcForm::Paper, RpcForm::Artifact, RpcForm::Equalised};

std::string_view to_string(RpcForm form);

/// What moves the published figures and is no property of a design. Those of rpc::models are the
/// ones that concern verbs.
struct RpcConfounders : rpc::models::Confounders {
  bool other_windows = false;     // the durable designs have 4 places, all others 1
  bool skips_processing = false;  // the injected work is left out of durable designs' writes
  bool leaves_payload = false;    // S-RFlush-RPC never moves what is written to its object
  /// A call of FaRM or W-RFlush-RPC, and a read of SFlush-RPC or WFlush-RPC, is over when its
  /// request has left; what it brings comes before the next call, or not at all.
  bool ends_when_sent = false;
  bool flushes_first_line = false;  // of an object that is written, whatever its size
};

struct RpcConfounder {
  std::string_view name;  // as a command takes it
  std::string_view what;
  bool RpcConfounders::*flag;
};
/// All of them, in the order of the struct.
std::vector<RpcConfounder> rpc_confounders();

/// A graph whose blocks are the objects of a server. A client reads all of them in each iteration,
/// and computes PageRank of what it has read.
struct RpcGraph {
  std::string name;  // of equal names, equal graphs
  workload::Graph graph;
  std::vector<std::byte> blocks;
  std::uint64_t iterations = 1;
  std::vector<double> ranks;  // that have to come out, computed here
};

/// What is asked for.
struct RpcLoad {
  std::uint64_t object_bytes = 1024;
  std::uint64_t objects = 4096;
  std::uint64_t calls = 1000;   // of each client, counted
  std::uint64_t warm_up = 100;  // before those
  unsigned read_percent = 50;
  Nanoseconds processing{0};  // of each call at the server, spun
  std::size_t batch = 1;      // requests in a call
  std::size_t clients = 1;
  char ycsb = 0;  // 'A' to 'F': which calls; 0: read_percent, zipfian
  std::shared_ptr<const RpcGraph> graph = nullptr;  // then its blocks, one behind another
  std::size_t network_clients = 0;                  // others that send small calls without a pause
  std::size_t client_spinners = 0;  // processes that compute on the client's processor
  std::size_t server_spinners = 0;  // ... on the server's
  bool pinned = false;              // client and server have a processor each
  std::uint64_t seed = 1;
};

/// What calls may say and what their replies may have, at most.
std::size_t rpc_payload_bytes(const RpcLoad& load);

struct RpcPoint {
  const rpc::models::Design* design = nullptr;
  RpcFabric fabric = RpcFabric::Shm;
  RpcForm form = RpcForm::Equalised;
  std::size_t window = 4;           // Equalised: calls in flight
  RpcConfounders confounders = {};  // Equalised: switched on by themselves
  RpcLoad load = {};

  /// Those of the form.
  RpcConfounders effective() const;
  /// Calls that a client has begun and that are not over; and not answered.
  std::size_t unfinished() const;
  std::size_t in_flight() const;
  /// Whatever decides what is found: of equal texts, equal points.
  std::string description() const;
  /// Why it can not be run; empty: it can.
  std::string impossible() const;
};

/// Latencies are those of counted calls, until they are over.
struct RpcSample {
  std::uint64_t calls = 0;  // counted
  std::uint64_t lost = 0;   // that the server never executed, of all
  double seconds = 0;       // from the first counted call until all are over
  double mean_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double client_us = 0;  // of a call: the client's software; measured alone
  double server_us = 0;  // of a call: the server's, injected work included; measured alone

  double calls_per_second() const { return seconds > 0 ? static_cast<double>(calls) / seconds : 0; }
};

nlohmann::json to_json(const RpcSample& sample);
/// Errors: Corrupt.
Result<RpcSample> rpc_sample_from_json(const nlohmann::json& json);

/// Runs it once: over shm and tcp with client and server in processes of their own, in the emulated
/// fabric in a world in time. Requires no threads in this process.
/// Errors: Unsupported: impossible(), or what the machine lacks; TimedOut: a call is never over;
/// Corrupt: a read did not bring its object, or ranks are not those of the graph.
Result<RpcSample> run_rpc_point(const RpcPoint& point);

}  // namespace perdure::bench
