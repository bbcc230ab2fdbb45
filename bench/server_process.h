// ServerProcess: the server of a measurement, in a process of its own: a region with the domain
// that is declared, a connection, and a Responder that polls it. It is made by forking, so start
// all of them before this process opens a device.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "bench/remotelog.h"
#include "fabric/fabric.h"
#include "persist/responder.h"
#include "testing/process.h"

#include <memory>
#include <string>
#include <utility>

namespace perdure::bench {

/// Where files lie that are to be in memory.
inline constexpr const char* kMemoryDirectory = "/dev/shm";
/// The other side of a measurement answers within this, or is not there.
inline constexpr Nanoseconds kConnectsWithin = std::chrono::seconds(20);

/// Opens the device of a fabric that is not emulated. Errors: Unsupported on this machine.
Result<std::unique_ptr<fabric::Device>> open_measured_device(RemotelogFabric fabric);

/// What the server is to be for one client.
struct ServerRole {
  std::string path;  // of the region's file; does not exist yet
  std::uint64_t exported_bytes = 0;
  PersistenceDomain domain = PersistenceDomain::None;
  ReceiveBuffers receive_buffers = ReceiveBuffers::Dram;
  persist::ReceiveQueue queue;
};

/// Where a client reaches it.
struct ServerPlace {
  std::string address;
  fabric::RemoteMemory memory;
};

inline constexpr std::uint32_t kServerSession = 1;

class ServerProcess {
 public:
  /// Errors: SystemError.
  static Result<ServerProcess> start(RemotelogFabric fabric);
  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess& operator=(ServerProcess&&) = delete;
  ~ServerProcess();

  pid_t pid() const { return process_.pid(); }

  /// Prepares for one client. Errors: what the process says; Disconnected when it is gone.
  Result<ServerPlace> serve(const ServerRole& role);
  /// Waits until the client has gone and everything it sent is in the file. Errors: as serve.
  Result<void> finish();

 private:
  ServerProcess(test::ChildProcess process, int socket)
      : process_(std::move(process)), socket_(socket) {}
  test::ChildProcess process_;
  int socket_;
};

}  // namespace perdure::bench
