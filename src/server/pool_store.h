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

  /// The names under which there may be pools, sorted; see has_pool(). Looks at no pool: one whose
  /// medium does not answer holds nobody up. Errors: NotFound, PermissionDenied, SystemError.
  virtual Result<std::vector<std::string>> names() = 0;
  /// Whether there is a pool by one of names(), or what may be one.
  virtual bool has_pool(const std::string& name) {
    (void)name;
    return true;
  }
  /// Makes a pool whose exported part will have at least the bytes asked for, beside what `queue`
  /// takes if receive buffers are to be persistent: `settings` say so, and not the request, whose
  /// domain is required. Errors: those of pmem::Pool::create.
  virtual Result<std::unique_ptr<pmem::Pool>> create(const control::PoolRequest& request,
                                                     const PoolSettings& settings,
                                                     const persist::ReceiveQueue& queue) = 0;
  /// What is stored of a pool that this process has not open, also of one that can not be opened.
  struct Stored {
    std::uint64_t bytes = 0;  // that it takes of its medium; 0: not known
    std::string uuid{};       // empty: not known
  };
  virtual Stored look(const std::string& name) {
    (void)name;
    return {};
  }
  /// Errors: those of pmem::Pool::open.
  virtual Result<std::unique_ptr<pmem::Pool>> open(const std::string& name,
                                                   const PoolSettings& settings) = 0;
  /// Deletes the pool of this UUID (empty: what has none that can be read), which is not open, with
  /// all that is in it. Errors: those of pmem::Pool::remove; NotFound: another pool is there.
  virtual Result<void> remove(const std::string& name, const std::string& uuid) {
    (void)uuid;
    return Error{ErrorCode::Unsupported, "pools are not deleted here: " + name};
  }
  /// Whether remove() would refuse a pool that nobody has open for what it lies on. Errors: its.
  virtual Result<void> check_removable(const std::string& name) {
    (void)name;
    return {};
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
  /// Not where there is only a link to a DAX device that holds nothing yet, which is a place for a
  /// pool; nor where only a creation was cut off: what that left is removed.
  bool has_pool(const std::string& name) override;
  Stored look(const std::string& name) override;
  /// Errors: also PermissionDenied: the name links to a device, and the settings do not allow it.
  Result<std::unique_ptr<pmem::Pool>> create(const control::PoolRequest& request,
                                             const PoolSettings& settings,
                                             const persist::ReceiveQueue& queue) override;
  Result<std::unique_ptr<pmem::Pool>> open(const std::string& name,
                                           const PoolSettings& settings) override;
  Result<void> remove(const std::string& name, const std::string& uuid) override;
  Result<void> check_removable(const std::string& name) override;
  bool is_locked(const std::string& name) override;

 private:
  std::string file_of(const std::string& name) const;

  const std::string path_;
};

/// What a store makes of a request, however the pool is kept.
pmem::PoolOptions pool_options_of(const control::PoolRequest& request, const PoolSettings& settings,
                                  const persist::ReceiveQueue& queue);

/// Bytes that a pool of this request needs, receive buffers included.
std::uint64_t data_bytes_of(const control::PoolRequest& request, const PoolSettings& settings,
                            const persist::ReceiveQueue& queue);

}  // namespace perdure::server
