// PoolStore: where a service's pools live when nobody has them open. Files of a directory, or the
// memory of an emulated machine (emulated_machine.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "control/documents.h"
#include "persist/responder.h"
#include "pmem/pool.h"
#include "server/served_pool.h"

namespace perdure::server {

/// Threads: any, but one caller at a time per pool.
class PoolStore {
 public:
  virtual ~PoolStore() = default;

  /// The pools that are there, sorted. Errors: NotFound, PermissionDenied, SystemError.
  virtual Result<std::vector<std::string>> names() = 0;
  /// Makes a pool whose exported part will have at least the bytes asked for, beside what `queue`
  /// takes if receive buffers are to be persistent. Errors: those of pmem::Pool::create.
  virtual Result<std::unique_ptr<pmem::Pool>> create(const control::PoolRequest& request,
                                                     const PoolSettings& settings,
                                                     const persist::ReceiveQueue& queue) = 0;
  /// What a pool takes of its medium, in bytes; 0: not known. Also of one that can not be opened.
  virtual std::uint64_t bytes_of(const std::string& name) {
    (void)name;
    return 0;
  }
  /// Errors: those of pmem::Pool::open.
  virtual Result<std::unique_ptr<pmem::Pool>> open(const std::string& name,
                                                   const PoolSettings& settings) = 0;
  /// Deletes a pool that is not open, with all that is in it. Errors: those of pmem::Pool::remove.
  virtual Result<void> remove(const std::string& name) {
    return Error{ErrorCode::Unsupported, "pools are not deleted here: " + name};
  }
  /// Whether somebody has the pool's lock just now: an answer at once, which may be asked for again
  /// and again. Opening a device that nobody has locked may take seconds (pmem/owner_lease.h).
  virtual bool is_locked(const std::string& name) {
    (void)name;
    return false;
  }
};

/// One file NAME.pool for each pool.
class PoolDirectory final : public PoolStore {
 public:
  explicit PoolDirectory(std::string path) : path_(std::move(path)) {}

  Result<std::vector<std::string>> names() override;
  std::uint64_t bytes_of(const std::string& name) override;
  /// Errors: also PermissionDenied: the name links to a device, and the settings do not allow it.
  Result<std::unique_ptr<pmem::Pool>> create(const control::PoolRequest& request,
                                             const PoolSettings& settings,
                                             const persist::ReceiveQueue& queue) override;
  Result<std::unique_ptr<pmem::Pool>> open(const std::string& name,
                                           const PoolSettings& settings) override;
  Result<void> remove(const std::string& name) override;
  bool is_locked(const std::string& name) override;

 private:
  std::string file_of(const std::string& name) const;

  const std::string path_;
};

/// Bytes that a pool of this request needs, receive buffers included.
std::uint64_t data_bytes_of(const control::PoolRequest& request, const PoolSettings& settings,
                            const persist::ReceiveQueue& queue);

}  // namespace perdure::server
