// Starting and losing peers.
#include "tests/cli/cluster.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>

#include "core/clock.h"
#include "pmem/probe.h"

namespace perdure::cli {

Cluster::Cluster(const std::string& bytes) {
  // Where temporary files are in memory, it is declared to have a battery.
  const auto place = pmem::probe(pools_[0].path());
  if (place.ok() && place->domain == PersistenceDomain::None) {
    declared_ = {"--declare-domain", "wsp"};
  }
  for (std::size_t index = 0; index < kPeers; ++index) {
    daemons_[index].reset(server::DaemonProcess::serving(pools_[index].path(), declared_));
    addresses_[index] = daemons_[index]->address("control");
    data_addresses_[index] = daemons_[index]->address("tcp");
  }
  const auto created =
      run({"pool", "create", "--peers", all(), "--pool", "orders", "--bytes", bytes});
  EXPECT_EQ(created.status, 0) << created.err;
}

void Cluster::kill(std::size_t index) {
  daemons_[index]->send(SIGKILL);
  EXPECT_EQ(daemons_[index]->wait().signal, SIGKILL);
  daemons_[index].reset();
}

void Cluster::pause(std::size_t index) const { daemons_[index]->send(SIGSTOP); }

std::string Cluster::stop(std::size_t index) {
  daemons_[index]->send(SIGTERM);
  const server::Ended ended = daemons_[index]->wait();
  EXPECT_EQ(ended.status, 0) << ended.said;
  daemons_[index].reset();
  return ended.said;
}

void Cluster::start(std::size_t index) {
  std::vector<std::string> arguments{"--pools",       pools_[index].path(),
                                     "--listen",      addresses_[index],
                                     "--data-listen", data_addresses_[index]};
  arguments.insert(arguments.end(), declared_.begin(), declared_.end());
  daemons_[index] = std::make_unique<server::DaemonProcess>(std::move(arguments));
  if (!daemons_[index]->await()) ADD_FAILURE() << daemons_[index]->wait().said;
}

std::unique_ptr<server::DaemonProcess> Cluster::another(const std::string& pools) const {
  return std::unique_ptr<server::DaemonProcess>(server::DaemonProcess::serving(pools, declared_));
}

void Cluster::damage(std::size_t index, const std::string& what) const {
  std::string bytes = read_file(pool_file(index));
  const std::size_t at = bytes.find(what);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  write_file(pool_file(index), bytes);
}

std::string Cluster::all() const {
  return addresses_[0] + "," + addresses_[1] + "," + addresses_[2];
}

std::vector<std::string> Cluster::log(const std::string& what,
                                      std::vector<std::string> more) const {
  more.insert(more.begin(), {"log", what, "--peers", all(), "--pool", "orders"});
  return more;
}

std::vector<std::string> Cluster::log_of(std::size_t index, const std::string& what,
                                         std::vector<std::string> more) const {
  more.insert(more.begin(), {"log", what, "--peers", addresses_[index], "--pool", "orders"});
  return more;
}

void Cluster::await_content(std::size_t index, const std::string& wanted) const {
  const Deadline deadline = Deadline::after(std::chrono::seconds{60});
  Outcome last;
  while (!deadline.passed()) {
    last = run(log_of(index, "read", {"--raw"}));
    if (last.status == 0 && last.out == wanted) return;
  }
  ADD_FAILURE() << "replica " << index << " never held what was expected; last: " << last.status
                << ' ' << last.err << " with " << last.out.size() << " bytes";
}

}  // namespace perdure::cli
