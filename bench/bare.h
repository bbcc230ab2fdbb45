// Bare libfabric, or bare verbs, between two processes of this host, with no Perdure in between:
// what a provider or an RNIC allows. Overhead of Perdure is counted against these numbers.
//
// The caller's process asks; a forked child answers. Both spin. Nothing but libfabric or
// libibverbs, the clock and, where asked for, cache line flushes lies in the measured path.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::bench {

enum class BareProvider {
  Tcp,    // FI_EP_MSG
  Shm,    // FI_EP_RDM
  Verbs,  // libibverbs: the first RNIC of this machine, a reliable connection with itself
};

/// "libfabric 1.17", as it is loaded here: which this does, so not before a measurement that is to
/// load it. Where there is none, why.
std::string bare_libfabric();

/// What files in /dev/shm are called that a round over shm makes: this program, and processes that
/// it has forked.
std::string bare_shm_prefix();
/// Removes those that are there still, where a round was ended by a signal. Requires that none
/// runs.
void remove_bare_leftovers();

/// What one round is. A reply has 24 bytes.
enum class BareOperation {
  Message,         // message of n bytes; reply
  WriteMessage,    // write of n bytes, message of 24 bytes; reply
  WriteImmediate,  // write of n bytes with remote completion data; reply
  WriteRead,       // write of n bytes, read of 8: until the read completes
  WriteDelivery,   // write of n bytes with FI_DELIVERY_COMPLETE; verbs: its completion
  WriteCommit,     // write of n bytes with FI_COMMIT_COMPLETE: tcp only
};

std::string_view to_string(BareProvider provider);
std::string_view to_string(BareOperation operation);

struct BareOptions {
  BareProvider provider = BareProvider::Tcp;
  BareOperation operation = BareOperation::Message;
  std::size_t bytes = 64;
  /// The child makes the bytes durable before it replies, as on a machine with an ADR domain: what
  /// came in a message is copied to its place, then each line gets CLWB, then SFENCE. Only with
  /// operations that have a reply.
  bool persist = false;
  std::size_t times_persisted = 1;  // so often, one after the other, before it replies
  std::size_t rounds = 10'000;
  std::size_t warm_up = 1'000;
  int requester_cpu = -1;  // -1: wherever the scheduler puts it
  int responder_cpu = -1;
};

/// Nanoseconds of each round after the warm-up.
///
/// Errors   Unsupported: no libfabric, no RNIC, no such provider, no such flag, or no CLWB and the
///          like.
///          TimedOut: a round took more than 10 s. Corrupt: the child did not find the bytes.
/// Threads  the process must have only this one: it forks.
Result<std::vector<std::uint64_t>> bare_latencies(const BareOptions& options);

/// Writes record `number` as a program does whose records come into being where they are sent
/// from: each word is new and no other record's.
void produce(std::span<std::byte> room, std::uint64_t number);

struct BareBandwidthOptions {
  BareProvider provider = BareProvider::Tcp;
  std::size_t bytes = 65'536;  // of one write
  std::size_t window = 16;     // writes in flight, each of bytes of its own
  std::size_t places = 1;      // where the writes go: one after the other, then round again
  /// Each write carries remote completion data; the child makes its bytes durable as above and
  /// replies. Else nothing is made durable.
  bool persist = false;
  bool produce = false;     // each word of a write is stored first, as a program that makes it does
  std::size_t warm_up = 0;  // writes before those that count, at places new to the child
  std::uint64_t total_bytes = std::uint64_t{1} << 30;
  int requester_cpu = -1;
  int responder_cpu = -1;
};

/// Bytes per second of writes, until the last one is delivered, with `persist` durable, from when
/// the warm-up's have been completed. Errors and threads as above.
Result<double> bare_bandwidth(const BareBandwidthOptions& options);

}  // namespace perdure::bench
