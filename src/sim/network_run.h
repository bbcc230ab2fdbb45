// NetworkRun: clients that make transactions durable in the memory of another machine, over its
// RNIC. The way of an epoch, each step a station (station.h) where messages wait for each other:
//
//   client CPU            post                              one epoch after the other
//   queue pair            a message every `message_gap`     of each connection
//   client PCIe           payloads that are not inline      of all connections, like all below
//   RNIC, link, RNIC      latency; a time per byte
//   server PCIe           latency; a time per byte
//   server CPU            with Message only: handles, copies, flushes, answers
//   memory                remote_memory.h: epochs of a connection are persisted in order
//   RNIC, link, RNIC      the answer on its way back
//   client CPU            completion
//
// What is lost: persist ACKs, if asked for. A client that gets none aborts and does the transaction
// again (BROI paper, section V.A).
#pragma once

#include "core/distribution.h"
#include "core/hardware.h"
#include "sim/remote_memory.h"

#include <functional>
#include <string>
#include <string_view>

namespace perdure::sim {

enum class Strategy {
  Sync,  // an epoch is posted when the persist ACK of the one before it has come
  Bsp,   // all are posted; the server keeps their order; the last one's persist ACK is waited for
  // As Sync, without an RNIC that makes persist ACKs. What is waited for:
  Read,          // a READ behind the WRITE: known unsafe with DDIO, where the cache answers it
  Flush,         // the native FLUSH behind the WRITE: it waits for it, and writes it back
  Message,       // the answer of the server's CPU to a SEND that it copied and flushed
  TransportAck,  // known unsafe: the ACK that says that the RNIC has it
};

std::string_view to_string(Strategy strategy);

/// What a client does over and over.
struct TransactionShape {
  std::uint64_t epochs = 6;
  std::uint64_t epoch_bytes = 512;
  std::uint64_t writes_per_mille =
      1000;          // of the transactions; the others ask nothing of the network
  Time compute = 0;  // of the client's CPU, before its epochs
};

struct NetworkOptions {
  Strategy strategy = Strategy::Bsp;
  TransactionShape shape;
  std::uint32_t clients = 1;          // each with a CPU and a connection; one machine
  std::uint32_t server_cpus = 1;      // that handle messages
  std::uint64_t transactions = 1000;  // of all clients
  bool ddio = true;
  /// The client has persistent memory too, and persists each epoch there once it is posted, beside
  /// the network. It posts the next epoch, and ends the transaction, when that is over as well:
  /// Sync hides it behind the persist ACK, and with Bsp it is between two posts.
  bool client_persists = false;
  std::uint64_t lost_ack_one_in = 0;  // of the persist ACKs that are waited for; 0: none
  Time ack_timeout = 100'000'000;     // 100 us
  std::uint64_t seed = 1;
  std::function<void(std::uint64_t)> progress;  // hears now and then how many have begun
};

struct NetworkResult {
  std::uint64_t transactions = 0;
  std::uint64_t writing = 0;  // of those
  std::uint64_t epochs = 0;   // posted, those of aborted transactions too
  std::uint64_t bytes = 0;
  std::uint64_t aborted = 0;  // for a lost persist ACK, and done again
  std::uint64_t round_trips = 0;
  std::uint64_t events = 0;
  Time elapsed = 0;
  Time waited = 0;          // from a transaction's first post to its last persist ACK, in all
  Time in_memory = 0;       // of epochs, from the RNIC's DMA to persisted, in all
  Distribution<6> persist;  // of each writing transaction: ps from the first post to the end
  struct Busy {
    Time client_pcie = 0;
    Time link = 0;
    Time server_pcie = 0;
    Time link_back = 0;
    Time server_cpu = 0;  // of all; flushing until memory has it is work
  } busy;

  double transactions_per_us() const;
  /// Of the time that clients waited for epochs one at a time, what the network took.
  double network_share() const;
};

/// Requires    clients > 0, server_cpus > 0, shape.epochs > 0, shape.epoch_bytes > 0; memory for so
///             many connections, with nothing in it; lost_ack_one_in is 0 where no persist ACKs are
///             waited for. With Strategy::Read its epochs are persisted when the memory controller
///             has them: a READ says no more. With Strategy::Message it has no banks: what a CPU
///             writes does not come through the RNIC's persist buffer.
/// Errors      ProtocolError: the order of persistence was broken, or something was acknowledged
///             that was not persisted. InvalidArgument: a deadlock, with who waits for what, or one
///             transaction is aborted a thousand times in a row.
Result<NetworkResult> run_network(const Hardware& hardware, const NetworkOptions& options,
                                  RemoteMemory& memory);

/// Whether any of the transactions writes, which is known before a run.
bool writes_anything(const NetworkOptions& options);

}  // namespace perdure::sim
