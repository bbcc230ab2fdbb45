// Pools as files of a directory: see pool_store.h.
#include "server/pool_store.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "core/bytes.h"
#include "core/try.h"
#include "pmem/file.h"

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

pmem::PoolOptions pool_options_of(const control::PoolRequest& request, const PoolSettings& settings,
                                  const persist::ReceiveQueue& queue) {
  pmem::PoolOptions options;
  options.name = request.name;
  options.required = request.required_domain;
  options.data_bytes = data_bytes_of(request, settings, queue);
  options.opaque = first_state(settings, queue);
  return options;
}

std::string PoolDirectory::file_of(const std::string& name) const {
  return fmt::format("{}/{}{}", path_, name, kSuffix);
}

Result<std::vector<std::string>> PoolDirectory::names() {
  namespace fs = std::filesystem;
  std::error_code failed;
  std::set<std::string> names;
  for (fs::directory_iterator each(path_, failed), end; !failed && each != end;
       each.increment(failed)) {
    fs::path file = each->path();
    if (file.extension() == pmem::kCreatingSuffix) file = file.stem();
    const std::string name = file.stem().string();
    if (file.extension() == kSuffix && control::validate_pool_name(name).ok()) names.insert(name);
  }
  if (failed) {
    const auto code = failed == std::errc::no_such_file_or_directory ? ErrorCode::NotFound
                      : failed == std::errc::permission_denied       ? ErrorCode::PermissionDenied
                                                                     : ErrorCode::SystemError;
    return Error{code, fmt::format("the pool directory '{}' can not be read: {}; create it, or "
                                   "name another one",
                                   path_, failed.message())};
  }
  return std::vector<std::string>(names.begin(), names.end());
}

bool PoolDirectory::has_pool(const std::string& name) {
  const std::string file = file_of(name);
  pmem::remove_unfinished(file);
  std::error_code failed;
  const auto status = std::filesystem::symlink_status(file, failed);
  return status.type() != std::filesystem::file_type::not_found &&
         !pmem::Pool::is_blank_device(file);
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
  pmem::PoolOptions options = pool_options_of(request, settings, queue);
  options.declared = settings.declared;
  options.zeroed_bytes_max = kZeroedBytesMax;
  return pmem::Pool::create(file, options);
}

PoolStore::Stored PoolDirectory::look(const std::string& name) {
  const std::string file = file_of(name);
  std::error_code failed;
  const std::uintmax_t bytes = std::filesystem::file_size(file, failed);
  const auto uuid = pmem::Pool::uuid_of(file);
  return {failed ? 0 : bytes, uuid.ok() ? pmem::to_string(*uuid) : ""};
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

Result<void> PoolDirectory::remove(const std::string& name, const std::string& uuid) {
  return pmem::Pool::remove(file_of(name), uuid);
}

Result<void> PoolDirectory::check_removable(const std::string& name) {
  return pmem::Pool::check_removable(file_of(name));
}

bool PoolDirectory::is_locked(const std::string& name) {
  return pmem::Pool::is_locked(file_of(name));
}

}  // namespace perdure::server
