// The functions of librpmem.h.
#include <fmt/format.h>
#include <librpmem.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/log_message.h"
#include "core/thread_text.h"
#include "core/try.h"
#include "librpmem/environment.h"
#include "rpmem/pool_host.h"
#include "rpmem/remote_pool.h"

using perdure::Error;
using perdure::ErrorCode;
using perdure::Result;
using perdure::rpmem::PoolAttributes;
using perdure::rpmem::RemotePool;

struct rpmem_pool {
  std::unique_ptr<RemotePool> pool;
};

namespace {

constexpr std::uint64_t kPoolBytesMin = 8192;
constexpr std::uint64_t kHeaderBytes = perdure::rpmem::kHeaderBytes;
constexpr perdure::Nanoseconds kRemoveWithin = std::chrono::seconds(60);
constexpr int kSshFailed = 255;      // ssh(1): it could not connect
constexpr int kNoSuchCommand = 127;  // of a shell
static_assert(sizeof(rpmem_pool_attr) == sizeof(PoolAttributes));

thread_local perdure::ThreadText last_error;

int errno_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
    case ErrorCode::Corrupt: return EINVAL;
    case ErrorCode::OutOfRange: return EFBIG;
    case ErrorCode::Unsupported: return ENOTSUP;
    case ErrorCode::NotFound: return ENOENT;
    case ErrorCode::AlreadyExists: return EEXIST;
    case ErrorCode::PermissionDenied: return EACCES;
    case ErrorCode::Busy: return EBUSY;
    case ErrorCode::Disconnected:
    case ErrorCode::OutcomeUnknown: return ECONNRESET;
    case ErrorCode::TimedOut: return ETIMEDOUT;
    case ErrorCode::NoSpace: return ENOSPC;
    case ErrorCode::ProtocolError: return EPROTO;
    case ErrorCode::VersionMismatch: return EPROTONOSUPPORT;
    case ErrorCode::QueueFull: return EAGAIN;
    default: return EIO;
  }
}

/// What the caller is told: the words stay until the thread's next failing call.
int fail(const Error& error, const char* call, int number) {
  const std::string words = std::string(call) + ": " + error.message;
  last_error.set(words);
  perdure::log_message(perdure::Severity::Error, words);
  errno = number;
  return -1;
}

int fail(const Error& error, const char* call) { return fail(error, call, errno_of(error.code)); }

/// A success leaves errno as it was.
class KeepErrno {
 public:
  KeepErrno() : kept_(errno) {}
  int success() const {
    errno = kept_;
    return 0;
  }

 private:
  const int kept_;
};

Error wrong(const std::string& what) { return {ErrorCode::InvalidArgument, what}; }

/// Of a set, as a path at the target: what could not travel there is refused here.
Result<void> check_set(const char* set) {
  const std::string_view name(set);
  if (name.empty()) return wrong("the name of the set is empty");
  if (name.size() >= PATH_MAX) {
    return wrong(fmt::format("the name of the set has {} bytes; paths end at {}", name.size(),
                             PATH_MAX - 1));
  }
  if (!perdure::is_utf8(name)) return wrong("the name of the set is not UTF-8; rename it");
  return {};
}

Result<perdure::rpmem::RemotePoolOptions> options_for(const char* target, const char* set,
                                                      const void* at, std::size_t bytes,
                                                      const unsigned* lanes) {
  perdure::librpmem::begin_logging();
  if (target == nullptr || set == nullptr) return wrong("no target, or no set");
  PERDURE_TRY_VOID(check_set(set));
  if (lanes == nullptr || *lanes == 0) return wrong("a pool needs at least one lane");
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const bool aligned = reinterpret_cast<std::uintptr_t>(at) % page == 0 && bytes % page == 0;
  if (at == nullptr || !aligned || bytes < kPoolBytesMin) {
    return wrong(
        fmt::format("memory of {} bytes at {}; a pool has at least {}, and begins and "
                    "ends at a multiple of {}",
                    bytes, at, kPoolBytesMin, page));
  }
  perdure::rpmem::RemotePoolOptions options;
  PERDURE_TRY(parsed, perdure::rpmem::parse_target(target));
  options.target = std::move(parsed);
  options.set = set;
  options.lanes = perdure::librpmem::lanes_for(*lanes);
  perdure::librpmem::apply_environment(options);
  return options;
}

PoolAttributes attributes_of(const rpmem_pool_attr* given) {
  std::array<std::byte, sizeof(PoolAttributes)> bytes{};
  if (given != nullptr) std::memcpy(bytes.data(), given, bytes.size());
  return std::bit_cast<PoolAttributes>(bytes);
}

std::span<std::byte> memory_of(void* at, std::size_t bytes) {
  return {static_cast<std::byte*>(at), bytes};
}

RPMEMpool* hand_out(Result<std::unique_ptr<RemotePool>> made, unsigned* lanes, const char* call) {
  if (!made.ok()) {
    fail(made.error(), call);
    return nullptr;
  }
  *lanes = static_cast<unsigned>((*made)->lanes());
  return new rpmem_pool{std::move(made).value()};
}

/// What is written must not be the header, which belongs to the target.
Result<void> check_place(const rpmem_pool* pool, std::size_t offset, bool header_too) {
  if (pool == nullptr) return wrong("no pool");
  if (header_too || offset >= kHeaderBytes) return {};
  return wrong(
      fmt::format("offset {}: the first {} bytes are the pool's header", offset, kHeaderBytes));
}

Result<void> check_flags(unsigned flags, unsigned known) {
  if ((flags & ~known) == 0) return {};
  return wrong(fmt::format("flags {:#x}; there is only {:#x}", flags, known));
}

RemotePool::Words words(unsigned flags, unsigned relaxed) {
  return (flags & relaxed) != 0 ? RemotePool::Words::MayTear : RemotePool::Words::Whole;
}

/// Of what moves bytes a place outside the pool is a wrong argument.
int answer(const Result<void>& outcome, const char* call, const KeepErrno& kept) {
  if (outcome.ok()) return kept.success();
  const ErrorCode code = outcome.code();
  return fail(outcome.error(), call, code == ErrorCode::OutOfRange ? EINVAL : errno_of(code));
}

}  // namespace

RPMEMpool* rpmem_create(const char* target, const char* pool_set_name, void* pool_addr,
                        size_t pool_size, unsigned* nlanes, const rpmem_pool_attr* create_attr) {
  const KeepErrno kept;
  const auto options = options_for(target, pool_set_name, pool_addr, pool_size, nlanes);
  if (!options) return fail(options.error(), "rpmem_create"), nullptr;
  RPMEMpool* const pool = hand_out(
      RemotePool::create(*options, memory_of(pool_addr, pool_size), attributes_of(create_attr)),
      nlanes, "rpmem_create");
  if (pool != nullptr) (void)kept.success();
  return pool;
}

RPMEMpool* rpmem_open(const char* target, const char* pool_set_name, void* pool_addr,
                      size_t pool_size, unsigned* nlanes, rpmem_pool_attr* open_attr) {
  const KeepErrno kept;
  const auto options = options_for(target, pool_set_name, pool_addr, pool_size, nlanes);
  if (!options) return fail(options.error(), "rpmem_open"), nullptr;
  RPMEMpool* const pool =
      hand_out(RemotePool::open(*options, memory_of(pool_addr, pool_size)), nlanes, "rpmem_open");
  if (pool == nullptr) return nullptr;
  if (open_attr != nullptr) {
    std::memcpy(open_attr, &pool->pool->attributes(), sizeof *open_attr);
  }
  (void)kept.success();
  return pool;
}

int rpmem_set_attr(RPMEMpool* rpp, const rpmem_pool_attr* attr) {
  const KeepErrno kept;
  if (rpp == nullptr) return fail(wrong("no pool"), "rpmem_set_attr");
  const auto changed = rpp->pool->set_attributes(attributes_of(attr));
  return answer(changed, "rpmem_set_attr", kept);
}

int rpmem_close(RPMEMpool* rpp) {
  const KeepErrno kept;
  if (rpp == nullptr) return fail(wrong("no pool"), "rpmem_close");
  const auto own = rpp->pool->require_own_process();
  if (!own.ok()) return answer(own, "rpmem_close", kept);
  const std::unique_ptr<rpmem_pool> pool(rpp);
  return answer(pool->pool->close(), "rpmem_close", kept);
}

int rpmem_persist(RPMEMpool* rpp, size_t offset, size_t length, unsigned lane, unsigned flags) {
  const KeepErrno kept;
  const auto persisted = [&]() -> Result<void> {
    PERDURE_TRY_VOID(check_flags(flags, RPMEM_PERSIST_RELAXED));
    PERDURE_TRY_VOID(check_place(rpp, offset, rpp != nullptr && !rpp->pool->has_headers()));
    return rpp->pool->persist(offset, length, lane, words(flags, RPMEM_PERSIST_RELAXED));
  };
  return answer(persisted(), "rpmem_persist", kept);
}

int rpmem_flush(RPMEMpool* rpp, size_t offset, size_t length, unsigned lane, unsigned flags) {
  const KeepErrno kept;
  const auto flushed = [&]() -> Result<void> {
    PERDURE_TRY_VOID(check_flags(flags, RPMEM_FLUSH_RELAXED));
    PERDURE_TRY_VOID(check_place(rpp, offset, rpp != nullptr && !rpp->pool->has_headers()));
    return rpp->pool->flush(offset, length, lane, words(flags, RPMEM_FLUSH_RELAXED));
  };
  return answer(flushed(), "rpmem_flush", kept);
}

int rpmem_drain(RPMEMpool* rpp, unsigned lane, unsigned flags) {
  const KeepErrno kept;
  const auto drained = [&]() -> Result<void> {
    PERDURE_TRY_VOID(check_flags(flags, 0));
    PERDURE_TRY_VOID(check_place(rpp, 0, true));
    return rpp->pool->drain(lane);
  };
  return answer(drained(), "rpmem_drain", kept);
}

int rpmem_deep_persist(RPMEMpool* rpp, size_t offset, size_t length, unsigned lane) {
  const KeepErrno kept;
  const auto persisted = [&]() -> Result<void> {
    PERDURE_TRY_VOID(check_place(rpp, offset, false));
    return rpp->pool->deep_persist(offset, length, lane);
  };
  return answer(persisted(), "rpmem_deep_persist", kept);
}

int rpmem_read(RPMEMpool* rpp, void* buff, size_t offset, size_t length, unsigned lane) {
  const KeepErrno kept;
  const auto brought = [&]() -> Result<void> {
    PERDURE_TRY_VOID(check_place(rpp, offset, true));
    if (buff == nullptr && length != 0) return wrong("no buffer");
    return rpp->pool->read(offset, memory_of(buff, length), lane);
  };
  return answer(brought(), "rpmem_read", kept);
}

int rpmem_remove(const char* target, const char* pool_set_name, int flags) {
  const KeepErrno kept;
  perdure::librpmem::begin_logging();
  const auto removed = [&]() -> Result<int> {
    if (target == nullptr || pool_set_name == nullptr) return wrong("no target, or no set");
    PERDURE_TRY_VOID(check_set(pool_set_name));
    PERDURE_TRY_VOID(
        check_flags(static_cast<unsigned>(flags), RPMEM_REMOVE_FORCE | RPMEM_REMOVE_POOL_SET));
    PERDURE_TRY(parsed, perdure::rpmem::parse_target(target));
    const auto shell = perdure::librpmem::remote_shell();
    std::string command = shell.command + " --remove " + perdure::rpmem::shell_word(pool_set_name);
    if ((flags & RPMEM_REMOVE_FORCE) != 0) command += " --force";
    if ((flags & RPMEM_REMOVE_POOL_SET) != 0) command += " --pool-set";
    PERDURE_TRY(run, perdure::rpmem::RemoteCommand::start(
                         perdure::rpmem::ssh_arguments(shell, parsed, command)));
    PERDURE_TRY(status, run->wait(perdure::Deadline::after(kRemoveWithin)));
    // Its own word counts where the system has none.
    if (!status && run->said().ends_with(perdure::rpmem::kRemoved)) status = 0;
    if (status == 0) return 0;
    const auto why = fmt::format("target {}: {}", parsed.host, run->complaint());
    if (!status) {
      return Error{
          ErrorCode::SystemError,
          fmt::format("{}{}how ssh ended is not known, for this program ignores the end of "
                      "its children: see to what is at the target",
                      why, run->complaint().empty() ? "" : "; ")};
    }
    last_error.set("rpmem_remove: " + why);
    return *status;
  }();
  if (!removed.ok()) return fail(removed.error(), "rpmem_remove");
  if (*removed == 0) return kept.success();
  // The daemon ends with an errno; ssh and shells with numbers of their own.
  const bool not_the_daemons = *removed >= kNoSuchCommand - 1;
  errno = *removed == kSshFailed ? ECONNRESET : not_the_daemons ? EREMOTEIO : *removed;
  return -1;
}

const char* rpmem_check_version(unsigned major_required, unsigned minor_required) {
  if (major_required == RPMEM_MAJOR_VERSION && minor_required <= RPMEM_MINOR_VERSION) {
    return nullptr;
  }
  last_error.set(fmt::format("librpmem {}.{} is needed, and this one is {}.{}", major_required,
                             minor_required, RPMEM_MAJOR_VERSION, RPMEM_MINOR_VERSION));
  return last_error.c_str();
}

const char* rpmem_errormsg(void) { return last_error.c_str(); }
