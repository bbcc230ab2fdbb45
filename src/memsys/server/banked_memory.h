// BankedMemory: the persistent memory of a server as the network sees it. Epochs that arrive from
// RNICs go line by line through the RNIC's persist buffer, the ordering controller, the memory
// controller and the banks (BROI paper, section IV.C); nothing local runs beside them.
#pragma once

#include "memsys/server/memory_side.h"
#include "memsys/server/server_law.h"
#include "sim/remote_memory.h"

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

namespace perdure::memsys {

struct BankedMemoryOptions {
  Ordering ordering = Ordering::Broi;
  PersistPoint persist_point = PersistPoint::Array;
  std::uint32_t connections = 1;
  std::uint64_t log_bytes = std::uint64_t{64} << 20;  // of each: its epochs follow each other there
  ControllerMutant mutant;                            // for the tests of the law
};

class BankedMemory final : public sim::RemoteMemory {
 public:
  /// Requires  a device with lines of 64 bytes that holds the logs of all connections; `device`
  ///           outlives this, and one of kRemoteOrderings.
  BankedMemory(const Device& device, const Processor& processor,
               const BankedMemoryOptions& options);

  void arrive(const sim::RemoteEpoch& epoch, Time now) override;
  Time next() const override;
  void step(Time now, std::vector<sim::RemoteEpoch>& persisted) override;
  Result<void> verdict() const override;
  std::string blocked(std::uint32_t connection) const override;

  ChannelCounts counts() const { return memory_.counts(); }

 private:
  struct Arrived {
    sim::RemoteEpoch epoch;
    std::uint64_t to_enter = 0;  // lines that are not in the persist buffer yet
    std::uint64_t open = 0;      // lines that are not persisted
  };
  struct Connection {
    std::uint64_t first_line = 0;
    std::uint64_t cursor = 0;    // of its log, in lines
    std::deque<Arrived> epochs;  // oldest first
    std::size_t fenced = 0;      // of those, how many are in the persist buffer with their fence
    struct Write {
      std::uint64_t epoch = 0;
      std::uint64_t law_index = 0;
    };
    std::unordered_map<std::uint64_t, Write> writes;  // in the buffer, by number of the entry
  };

  std::uint32_t thread_of(std::uint32_t connection) const { return first_thread_ + connection; }
  void enter(std::uint32_t connection, Time now);
  bool enter_lines(std::uint32_t connection, Arrived& arrived, Time now);
  void on_persisted(PersistId id, Time now, std::vector<sim::RemoteEpoch>& persisted);

  const Processor processor_;
  const std::uint32_t first_thread_;
  const std::uint64_t log_lines_;
  PersistBuffers buffers_;
  OrderingController ordering_;
  MemorySide memory_;
  ServerLaw law_;
  std::vector<Connection> connections_;
  std::uint64_t open_lines_ = 0;  // of all connections, not persisted
  Time progress_ = 0;             // the last one was persisted, or the first of them came
  const Time longest_wait_;       // from there to the next one, unless they are a deadlock
  MemorySide::Outcome outcome_;
};

}  // namespace perdure::memsys
