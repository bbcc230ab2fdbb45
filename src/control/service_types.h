// What a PeerService says and grants, independent of how a request reached it.
#pragma once

#include <perdure/time_counts.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/documents.h"
#include "core/clock.h"
#include "fabric/fabric.h"
#include "pmem/medium_costs.h"

namespace perdure::control {

/// Which fabric a session shall run over. Nothing, or "auto" as text: shared memory for a
/// requester on this host if it is offered, else the first transport that is.
using TransportChoice = std::optional<Transport>;

std::string_view transport_word(TransportChoice choice);
/// Errors: InvalidArgument, naming the accepted words.
Result<TransportChoice> parse_transport_choice(std::string_view word);

/// What the requester needs to connect on the data plane. Good for one connection.
struct SessionGrant {
  std::uint64_t session = 0;
  std::uint64_t token = 0;  // secret: shown as private data of the connection, see token.h
  Transport transport = Transport::Tcp;
  std::string address;  // of the data plane, as Device::connect takes it
  fabric::RemoteMemory remote;
  PoolDescription pool;
  std::size_t receive_depth = 0;
  std::size_t message_bytes_max = 0;
  /// What the pool's medium costs the responder's processor. Nothing: the responder does not say.
  std::optional<pmem::MediumCosts> medium;
  bool operator==(const SessionGrant& other) const;
};

/// What the writer who ends his session says of all that was written in it.
enum class Left { NotKnown, AllDurable };

/// What the responder has done for sessions: of one, of a pool, or of all.
struct ServiceCounters {
  std::uint64_t messages = 0;
  std::uint64_t refused_messages = 0;  // malformed, or outside the pool: never executed
  std::uint64_t copied_bytes = 0;
  std::uint64_t flush_calls = 0;
  std::uint64_t acks = 0;
  std::uint64_t sessions = 0;           // granted
  std::uint64_t writers_fenced = 0;     // sessions ended for a newer writer
  std::uint64_t replayed_messages = 0;  // applied from persistent receive buffers
  std::uint64_t medium_failures = 0;    // times it became unavailable while it was served
  /// Times the RNIC did not take a session's keys away.
  std::uint64_t revocation_failures = 0;
  bool operator==(const ServiceCounters&) const = default;
};

ServiceCounters& operator+=(ServiceCounters& sum, const ServiceCounters& more);

using perdure::TimeCounts;

/// Of the work for a pool's sessions. Where the medium is memory a sample is timed: see
/// server/times.h.
struct ServiceTimes {
  TimeCounts flush;   // of the medium, by the responder's processor
  TimeCounts answer;  // from the look that found messages until they were handled and answered
  bool operator==(const ServiceTimes&) const = default;
};

ServiceTimes& operator+=(ServiceTimes& sum, const ServiceTimes& more);

/// What the first pages of a pool say of the log that is in it.
struct LogReport {
  std::uint64_t log_id = 0;  // the same on every replica
  Epoch epoch;
  Lsn head;
  /// Everything before is durable here, as far as those pages tell: what came after the last
  /// committed or tail word is not in it.
  Lsn tail;
  Lsn committed;
  std::uint64_t ring_bytes = 0;
  std::size_t replicas = 0;  // that the log has
  std::size_t quorum = 0;
  bool whole = false;    // not being created, brought to equal, or removed
  bool removed = false;  // it was told that it is no member any more
  bool operator==(const LogReport&) const = default;
};

enum class SessionPhase {
  Granted,    // the requester has not connected yet
  Connected,  // messages are handled
  Ending,     // keys are being revoked
};

std::string_view to_string(SessionPhase phase);

struct SessionDescription {
  std::uint64_t id = 0;
  std::string pool;
  SessionPhase phase = SessionPhase::Granted;
  bool write = false;
  Epoch epoch;
  std::uint64_t writer = 0;
  std::string writer_name;
  Transport transport = Transport::Tcp;
  std::string unrevoked;  // why its keys may be alive although it has ended; empty: they are not
  ServiceCounters counters;
  bool operator==(const SessionDescription&) const = default;
};

/// The peer as a whole.
struct ServiceDescription {
  std::string version;  // of Perdure
  std::string host;     // the same for two processes that can share memory; see host_identity()
  std::vector<Transport> transports;
  std::vector<std::string> devices;  // for people, in the order of transports
  std::size_t pools = 0;
  std::size_t sessions = 0;
  bool emulated = false;  // RNIC and memory are software that loses power on demand
  std::optional<std::uint64_t> kernel_up_s;  // kernel_up_s() of it; nothing: it does not say
  bool operator==(const ServiceDescription&) const = default;
};

/// Requests refused before a pool or session was involved.
struct RefusedCounters {
  std::uint64_t tokens = 0;        // data plane: no such grant, or not a token
  std::uint64_t expired = 0;       // grants that nobody came for
  std::uint64_t displaced = 0;     // grants that nobody had come for yet when others needed room
  std::uint64_t unauthorized = 0;  // the authorizer said no
  std::uint64_t requests = 0;      // control plane: any other error of the requester
};

struct PoolReport {
  PoolDescription pool;
  ServiceCounters counters;  // ended and live sessions together
  ServiceTimes times;        // the same
  /// For how long the oldest piece of work on it has not ended: what a session found in one look, a
  /// change of the pool, or a piece of what an earlier writer left. Zero: there is none.
  Nanoseconds oldest_work{0};
  /// Nothing: there is none, or it is not known. At most half a second old while a writer is there.
  std::optional<LogReport> log;
};

/// One consistent look at everything, for metrics and the live page.
struct ServiceReport {
  ServiceDescription service;
  std::vector<PoolReport> pools;
  std::vector<SessionDescription> sessions;
  RefusedCounters refused;
};

/// Identifies this boot of this host. Containers on one host share it without sharing memory.
std::string host_identity();
/// For how many seconds this host's kernel has been running, suspended or not (/proc/uptime): no
/// step of the clock changes it. Containers see that of the host, though they may have been started
/// anew and have another host_identity(); one with a time namespace sees what that was given.
/// Nothing: it can not be told.
std::optional<std::uint64_t> kernel_up_s();

}  // namespace perdure::control
