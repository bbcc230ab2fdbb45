// PoolHost: the pool of one client in the hands of rpmemd. A PeerService serves its parts, mapped
// one behind the other, as it serves any pool: one writer, keys, methods by the medium.
#pragma once

#include <perdure/result.h>

#include "control/json_codec.h"
#include "rpmem/control.h"
#include "rpmem/part_region.h"
#include "rpmem/part_set.h"
#include "server/service.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace perdure::rpmem {

/// What the pool is called in sessions.
inline constexpr const char* kPoolName = "replica";

struct PoolHostOptions {
  SetDirectories directories;
  PartRegionOptions region;
  /// What the pool is served with: the host adds what is its own. Its settings say what is known of
  /// inbound DMA (persist-apm).
  server::ServiceOptions service;
  std::string listen_host = "127.0.0.1";  // of the data plane over tcp; empty: any of the device's
  std::string rnic;
  Nanoseconds busy_within = std::chrono::seconds(3);  // how long it waits for parts that are in use
  // In an emulated world; empty: fabric::open_device, PartRegion::map.
  std::function<Result<std::shared_ptr<fabric::Device>>(Transport)> open_device;
  std::function<Result<std::unique_ptr<pmem::Region>>(const PartSet&)> map;
};

/// Threads: one caller at a time; sessions have threads of their own, unless the service has none.
class PoolHost {
 public:
  explicit PoolHost(PoolHostOptions options) : options_(std::move(options)) {}

  /// One request; the answer is Done or Refused. A refused one changed nothing, but for
  /// attributes of which the medium refused a part (PartSet::set_attributes).
  Frame handle(const Frame& request);
  /// Whether a request has closed the pool: nothing more is to be handled.
  bool closed() const { return closed_; }
  /// Whether its client has a pool.
  bool serves() const { return service_ != nullptr; }
  /// What its sessions have to do, where they have no threads: see PeerService::pump.
  bool pump() { return service_ != nullptr && service_->pump(); }
  /// The client is gone without closing the pool: what it had made and never got a session with is
  /// removed, so that it can make it again.
  void remove_unused();
  /// The process or the machine is gone: see PeerService::abandon.
  void abandon();

  // The requests. Errors besides those of PartSet and PartRegion: Busy (there is a pool already),
  // InvalidArgument (there is none yet).
  Result<PoolAnswer> create(const PoolAsk& ask);
  Result<PoolAnswer> open(const PoolAsk& ask);
  /// Errors: those of PeerService::open_session; SystemError: what the medium said, once it failed.
  Result<control::SessionGrant> open_session(const control::SessionAsk& ask);
  Result<void> end_session(std::uint64_t session);
  Result<void> set_attributes(const PoolAttributes& attributes);
  Result<void> close(bool remove_created);

 private:
  Result<std::string> answer(const Frame& request);
  Result<PoolAnswer> serve(PartSet parts, const PoolAsk& ask);
  Result<void> require_pool() const;
  Result<std::shared_ptr<fabric::Device>> open_device(Transport transport) const;
  Result<void> offer(Transport transport);

  const PoolHostOptions options_;
  bool created_ = false;
  bool granted_ = false;  // a session, at some time
  bool closed_ = false;
  // Destroyed in reverse: sessions, then the device, then the mapping, then the locks.
  std::unique_ptr<PartSet> parts_;
  std::unique_ptr<pmem::Region> region_;
  std::shared_ptr<fabric::Device> device_;
  std::unique_ptr<server::PeerService> service_;
};

}  // namespace perdure::rpmem
