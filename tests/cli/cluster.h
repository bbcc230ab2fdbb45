// Three perdured processes with a pool each, for tests of the command.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "testing/temporary_directory.h"
#include "tests/cli/command_process.h"
#include "tests/server/daemon_process.h"

namespace perdure::cli {

inline constexpr std::size_t kPeers = 3;

class Cluster {
 public:
  /// All peers serve, and a pool "orders" of `bytes` is on each.
  explicit Cluster(const std::string& bytes = "4MiB");

  /// kill -9.
  void kill(std::size_t index);
  /// SIGSTOP: its machine takes connections all the same, and nobody answers.
  void pause(std::size_t index) const;
  /// SIGTERM, and waits for the clean end. Returns what the daemon has said.
  std::string stop(std::size_t index);
  /// Starts the peer again where it was.
  void start(std::size_t index);

  /// One more peer like these, on `pools`, without a pool.
  std::unique_ptr<server::DaemonProcess> another(const std::string& pools) const;

  /// Flips one bit of the first place of `what` in the pool's file. The peer must be stopped.
  void damage(std::size_t index, const std::string& what) const;

  const std::string& address(std::size_t index) const { return addresses_[index]; }
  std::string all() const;
  std::string pool_file(std::size_t index) const { return pools_[index].path() + "/orders.pool"; }

  /// `perdure log WHAT --peers ALL --pool orders MORE...`
  std::vector<std::string> log(const std::string& what, std::vector<std::string> more = {}) const;
  /// The same for one peer.
  std::vector<std::string> log_of(std::size_t index, const std::string& what,
                                  std::vector<std::string> more = {}) const;

  /// Reads one replica until it prints `wanted`; fails the test if it never does.
  void await_content(std::size_t index, const std::string& wanted) const;

 private:
  std::vector<std::string> declared_;  // options that every daemon gets
  std::array<test::TestDirectory, kPeers> pools_;
  std::array<std::unique_ptr<server::DaemonProcess>, kPeers> daemons_;
  std::array<std::string, kPeers> addresses_;
  std::array<std::string, kPeers> data_addresses_;
};

}  // namespace perdure::cli
