// The parts of `perdure log`, and the options of those that write.
#pragma once

#include <perdure/log.h>

#include "commands.h"
#include "core/json.h"
#include "log/log_scan.h"
#include "log_loss.h"
#include "output.h"
#include "peer_options.h"

#include <optional>
#include <string>

namespace perdure::app {

void add_log_append(Command log);       // log_append.cc
void add_log_read(Command log);         // log_read.cc: read and follow
void add_log_verify(Command log);       // log_verify.cc
void add_log_maintenance(Command log);  // log_maintenance.cc: repair and trim
void add_log_replica(Command log);      // log_replica.cc: status, replica add|remove|replace

/// What it takes to be a log's writer.
struct WriterOptions {
  PeerOptions peers;
  LogOptions log;
  std::uint64_t replica_timeout_ms = 5000;
  std::uint64_t spin_us = 200;
};

/// --peers, --pool, --transport, --quorum, --take-over, --accept-loss, --writer-name,
/// --replica-timeout-ms. Returns --peers.
Option add_writer_options(Command command, WriterOptions& options);

/// The log's options as they were given. Call after parsing.
LogOptions log_options(const WriterOptions& options);

struct OpenedLog {
  Log log;
  std::optional<LogLoss> lost;  // what was given up, as the replicas said before it was opened
};

/// Opens it, says what the library had to tell meanwhile unless that is in the error too, and warns
/// of what was given up, if anything was.
/// Errors: those of Log::open; that a pool is missing is said once.
/// Cost: with accept_loss every replica is read once more before.
Result<OpenedLog> open_log(const LogOptions& options, const PeerOptions& peers);

/// fail(), with the status for a log that can not be opened: Damaged when records are lost; then it
/// says which. As JSON it prints the refusal as well: docs/log-repair.schema.json.
/// Cost: when records are lost every replica is read.
ExitStatus refuse_log(const Error& error, const PeerOptions& peers, Format format);

/// The same for what is not done with a log that is open. Where records were given up when it was
/// opened, it says so, and the status is LossAccepted.
ExitStatus refuse_change(const OpenedLog& opened, const Error& error, Format format);

/// Why it is no whole replica, as far as its start tells; empty when nothing is wrong.
std::string problem_of(const log::LogStart& start);

/// What opening or repairing did, in lines for a person; empty when nothing had to be done.
std::string repairs_text(const std::vector<RepairReport>& repairs);
nlohmann::ordered_json repairs_json(const std::vector<RepairReport>& repairs);

/// Why a method is right on a replica: the planner's sentence.
std::string method_reason(const ReplicaStatus& replica, LogShape shape, Level level,
                          const std::string& method);

}  // namespace perdure::app
