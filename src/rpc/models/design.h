// Design: one of the published RPC systems over RDMA that durable RPC is compared with (durable
// RPC, table 1 and figure 2), or one of its own four, as the steps that a call takes. A design
// declares its steps once: the conformance suite counts the verbs of running calls against them,
// and the diagrams are drawn from them.
#pragma once

#include "rpc/models/end.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace perdure::rpc::models {

enum class At : std::uint8_t { Client, Server };

std::string_view to_string(At at);

/// In how many of how many calls a step is taken.
struct Often {
  std::uint32_t times = 1;
  std::uint32_t calls = 1;
  bool or_more = false;  // again, until it brings what it is for
};

struct Step {
  At at = At::Client;
  std::optional<Verb> verb;  // none: what the program does by itself
  std::string_view what;
  Often often{};
};

/// With which the paper compares it: designs whose requests are SENDs with each other, designs
/// whose requests are WRITEs (with immediate or without) with each other (durable RPC,
/// section 5.1).
enum class Family : std::uint8_t { Send, Write };

std::string_view to_string(Family family);

struct Design {
  std::string_view name;   // as a command takes it: "darpc"
  std::string_view title;  // as its authors write it
  Family family = Family::Write;
  std::span<const Step> steps;
  std::span<const std::string_view> sources;     // where what it does is described
  std::span<const std::string_view> departures;  // what is otherwise here, and why
  std::size_t payload_bytes_max = kPayloadBytesMax;
  /// It counts on WRITEs that become visible in the order of posting.
  bool needs_write_order = false;
  /// It can tell that a call is durable before it is executed: Client::is_durable.
  bool is_durable = false;
  /// It needs the verb SFLUSH, which only the emulated fabric has.
  bool needs_send_flush = false;
  Result<std::unique_ptr<Client>> (*make_client)(const EndOptions& options) = nullptr;
  Result<std::unique_ptr<Server>> (*make_server)(const EndOptions& options,
                                                 Handler& handler) = nullptr;
};

/// The ends of a connection by that design. The handler must outlive the server.
/// Errors: InvalidArgument: a window or a payload beyond what there is or the design takes; those
/// of Device::register_memory.
Result<std::unique_ptr<Client>> open_client(const Design& design, const EndOptions& options);
Result<std::unique_ptr<Server>> open_server(const Design& design, const EndOptions& options,
                                            Handler& handler);

/// After so many calls, or a multiple of it, the counts of verbs are those declared.
std::uint64_t period(const Design& design);

struct Declared {
  std::uint64_t count = 0;
  bool or_more = false;
};

/// How often that end uses the verb in so many calls, from the first on.
/// Requires calls is a multiple of period(design).
Declared declared(const Design& design, At at, Verb verb, std::uint64_t calls);

/// All designs, those whose requests are SENDs first.
std::span<const Design* const> designs();

/// Null: there is none of that name.
const Design* find_design(std::string_view name);

/// The design for a person: a diagram of a call, the verbs of each end, sources, departures.
std::string explain(const Design& design);

/// The diagram alone.
std::string diagram(const Design& design);

/// The verbs of each end in a call, for example "client: SEND, RECV; server: RECV, SEND".
std::string verbs_of(const Design& design);

// Each in a file of its name.
extern const Design kDarpc;
extern const Design kFasst;
extern const Design kFarm;
extern const Design kL5;
extern const Design kRfp;
extern const Design kHerd;
extern const Design kScalerpc;
extern const Design kOctopus;
extern const Design kLite;
// Two in each of durable_send.cc and durable_write.cc.
extern const Design kSflush;
extern const Design kSRflush;
extern const Design kWflush;
extern const Design kWRflush;

}  // namespace perdure::rpc::models
