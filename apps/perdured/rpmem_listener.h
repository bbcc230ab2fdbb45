// RpmemListener: perdured in ssh's place for librpmem. Clients come by perdure-rpmem-connect, which
// says what they want (rpmem/asked_command.h); each gets an rpmemd of its own. One thread waits for
// all of them. A client that is slow or silent costs a place among those that wait, for some
// seconds; where all are taken the one that has been silent the longest makes room.
#pragma once

#include <perdure/result.h>

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "asking_client.h"
#include "core/clock.h"
#include "core/mutex.h"
#include "fabric/socket_address.h"
#include "rpmem_child.h"
#include "server/config.h"
#include "server/metrics.h"

namespace perdure::daemon {

/// Threads: any.
class RpmemListener {
 public:
  /// Requires a poolset_dir. Errors: NotFound (that directory, the program, a file),
  /// InvalidArgument and PermissionDenied (the credential), Busy (the port is in use), SystemError.
  static Result<std::unique_ptr<RpmemListener>> open(const server::RpmemConfig& config);
  /// Ends all rpmemd that it started. One that does not end within some seconds is killed.
  ~RpmemListener();
  RpmemListener(const RpmemListener&) = delete;
  RpmemListener& operator=(const RpmemListener&) = delete;

  /// Where it listens, with the port that was chosen.
  const std::string& address() const { return address_; }
  /// Begins what the destructor waits for.
  void begin_closing();

  server::RpmemCounters counters() const;
  /// Who has which set, as JSON: GET /v1/rpmem.
  std::string document() const;

 private:
  struct Served {
    RpmemChild child;
    std::string address;
    Nanoseconds since;
    std::optional<Deadline> soon;  // it is about to end: until then it is looked for often
  };
  /// What is shown of it to others.
  struct Shown {
    pid_t process = 0;
    std::string address;
    std::string set;
    Nanoseconds since{0};
  };

  explicit RpmemListener(const server::RpmemConfig& config) : config_(config) {}
  Result<void> prepare();
  Result<void> listen();

  void run();
  void wait();
  int wait_ms() const;
  void accept_all();
  void put_off(int why);
  void admit(int connection, const fabric::SocketAddress& from);
  void hear_all();
  void end_silent();
  void serve(AskingClient client);
  Result<std::vector<std::string>> asked_by(const AskingClient& client);
  Result<RpmemChild> start_for(AskingClient& client);
  void refuse(const AskingClient& client, const Error& why);
  void watch();
  void say_ended(const Served& served, pid_t process, int status);
  void end_all();
  void count(std::uint64_t server::RpmemCounters::*which);
  void show();

  const server::RpmemConfig config_;
  std::vector<std::string> command_;  // rpmemd, and what it is told whoever comes
  std::string credential_;            // empty: none is asked for
  std::string address_;
  Descriptor listening_, wake_;
  std::list<AskingClient> waiting_;  // who has waited the longest is first
  std::vector<Served> served_;
  std::optional<Deadline> no_accept_until_;
  bool said_lacking_ = false;
  std::optional<Deadline> quiet_until_;  // refusals are counted, and not logged
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  server::RpmemCounters counters_ PERDURE_GUARDED_BY(mutex_);
  std::vector<Shown> shown_ PERDURE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace perdure::daemon
