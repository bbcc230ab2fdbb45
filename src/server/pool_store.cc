// Pools as files of a directory: see pool_store.h.
#include "server/pool_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/bytes.h"
#include "core/try.h"

namespace perdure::server {
namespace {

constexpr std::string_view kSuffix = ".pool";
constexpr std::uint64_t kUnitBytes = 4096;
// As far as it goes in PoolOptions::zeroed_within: a requester waits meanwhile.
constexpr std::uint64_t kZeroedBytesMax = 256ULL << 20;

}  // namespace

std::uint64_t data_bytes_of(const control::PoolRequest& request, const PoolSettings& settings,
                            const persist::ReceiveQueue& queue) {
  const std::uint64_t exported = round_up(request.bytes, kUnitBytes);
  if (settings.receive_buffers != ReceiveBuffers::Pm) return exported;
  return exported + persistent_buffer_bytes(queue);
}

std::string PoolDirectory::file_of(const std::string& name) const {
  return fmt::format("{}/{}{}", path_, name, kSuffix);
}

Result<std::vector<std::string>> PoolDirectory::names() {
  namespace fs = std::filesystem;
  std::error_code failed;
  std::vector<std::string> names;
  for (fs::directory_iterator each(path_, failed), end; !failed && each != end;
       each.increment(failed)) {
    if (each->path().extension() != kSuffix) continue;
    const std::string name = each->path().stem().string();
    // A link to a DAX device that holds nothing yet is a place for a pool, not a pool.
    if (pmem::Pool::is_blank_device(each->path().string())) continue;
    if (control::validate_pool_name(name).ok()) names.push_back(name);
  }
  if (failed) {
    const auto code = failed == std::errc::no_such_file_or_directory ? ErrorCode::NotFound
                      : failed == std::errc::permission_denied       ? ErrorCode::PermissionDenied
                                                                     : ErrorCode::SystemError;
    return Error{code, fmt::format("the pool directory '{}' can not be read: {}; create it, or "
                                   "name another one",
                                   path_, failed.message())};
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::unique_ptr<pmem::Pool>> PoolDirectory::create(const control::PoolRequest& request,
                                                          const PoolSettings& settings,
                                                          const persist::ReceiveQueue& queue) {
  std::error_code ignored;
  const std::string file = file_of(request.name);
  if (!settings.take_device && std::filesystem::is_character_file(file, ignored)) {
    return Error{
        ErrorCode::PermissionDenied,
        fmt::format("{} is a device, and a pool would take all that is on it: its operator "
                    "has to allow that, by take_device = true in [profile.pool.{}] of "
                    "perdured's configuration",
                    file, request.name)};
  }
  pmem::PoolOptions options;
  options.name = request.name;
  options.declared = settings.declared;
  options.data_bytes = data_bytes_of(request, settings, queue);
  options.zeroed_bytes_max = kZeroedBytesMax;
  return pmem::Pool::create(file, options);
}

std::uint64_t PoolDirectory::bytes_of(const std::string& name) {
  std::error_code failed;
  const std::uintmax_t bytes = std::filesystem::file_size(file_of(name), failed);
  return failed ? 0 : bytes;
}

Result<std::unique_ptr<pmem::Pool>> PoolDirectory::open(const std::string& name,
                                                        const PoolSettings& settings) {
  pmem::OpenOptions options;
  options.declared = settings.declared;
  options.take_over_lease = settings.take_over_lease;
  // Before it is opened: what is refused has the marks of its close still. See ServedPool::adopt.
  const auto info = pmem::Pool::inspect(file_of(name));
  if (info.ok()) {
    const auto queue = persistent_queue_of(info->state);
    options.must_be_declared = queue.ok() && queue->depth != 0;
  }
  return pmem::Pool::open(file_of(name), options);
}

Result<void> PoolDirectory::remove(const std::string& name) {
  return pmem::Pool::remove(file_of(name));
}

bool PoolDirectory::is_locked(const std::string& name) {
  return pmem::Pool::is_locked(file_of(name));
}

}  // namespace perdure::server
