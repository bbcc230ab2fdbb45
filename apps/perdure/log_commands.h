// The parts of `perdure log`, and the options of those that write.
#pragma once

#include <perdure/log.h>

#include "commands.h"
#include "core/json.h"
#include "log/log_scan.h"
#include "peer_options.h"

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

/// Opens it, and says what the library had to tell meanwhile unless that is in the error too.
/// Errors: those of Log::open; that a pool is missing is said once.
Result<Log> open_log(const LogOptions& options, const PeerOptions& peers);

/// Says what was given up when the log was opened, if anything was.
void warn_of_loss(const LogStatus& status);

/// fail(), with the status for a log that can not be opened: Damaged when records are lost.
ExitStatus fail_log(const Error& error);

/// Why it is no whole replica, as far as its start tells; empty when nothing is wrong.
std::string problem_of(const log::LogStart& start);

/// What opening or repairing did, in lines for a person; empty when nothing had to be done.
std::string repairs_text(const std::vector<RepairReport>& repairs);
nlohmann::ordered_json repairs_json(const std::vector<RepairReport>& repairs);

/// Why a method is right on a replica: the planner's sentence.
std::string method_reason(const ReplicaStatus& replica, LogShape shape, Level level,
                          const std::string& method);

}  // namespace perdure::app
