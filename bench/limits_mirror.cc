// Mirrored memory under test: see limits_mirror.h.
#include "bench/limits_mirror.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <librpmem.h>
#include <perdure/mirror.h>
#include <perdure/pool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "control/service_types.h"
#include "core/clock.h"
#include "core/errno_error.h"
#include "core/text_file.h"
#include "core/try.h"
#include "testing/process.h"

namespace perdure::bench {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPoolBytes = kMirroredBytes + (std::uint64_t{1} << 20);
constexpr std::uint64_t kSmall = 64;
constexpr std::uint64_t kStride = 4 * kSmall;  // from one range of a batch to the next
constexpr std::chrono::milliseconds kInSyncWithin{30'000};
constexpr unsigned kLanes = 2;

/// Where range `number` of so many bytes lies: behind the header that librpmem's pools have.
std::uint64_t place_of(std::uint64_t number, std::uint64_t length) {
  return kPage + number % ((kMirroredBytes - kPage) / length) * length;
}

class MirrorThere final : public MirrorUnderTest {
 public:
  MirrorThere(std::vector<std::byte> memory, Mirror mirror)
      : memory_(std::move(memory)), mirror_(std::move(mirror)) {}

  Result<void> persist(std::uint64_t at, std::uint64_t length) override {
    return mirror_.persist(at, length);
  }
  Result<void> flush(std::uint64_t at, std::uint64_t length) override {
    PERDURE_TRY_VOID(mirror_.flush(at, length));
    return {};
  }
  Result<void> drain() override { return mirror_.drain(); }
  Result<void> persist_ordered(std::uint64_t epochs, std::uint64_t length) override {
    ranges_.resize(epochs);
    views_.clear();
    for (std::uint64_t index = 0; index < epochs; ++index) {
      ranges_[index] = {kPage + index * kStride, length};
      views_.emplace_back(&ranges_[index], 1);
    }
    return mirror_.persist_ordered(views_);
  }
  Result<void> stream(std::uint64_t count, std::uint64_t length, std::uint64_t window) override {
    std::vector<MirrorTicket> tickets(window);
    for (std::uint64_t number = 0; number < count; ++number) {
      MirrorTicket& ticket = tickets[number % window];
      PERDURE_TRY_VOID(mirror_.wait(ticket));
      PERDURE_TRY(begun, mirror_.flush(place_of(number, length), length));
      ticket = begun;
    }
    return mirror_.drain();
  }

 private:
  std::vector<std::byte> memory_;
  Mirror mirror_;  // goes before what it mirrors
  std::vector<MirrorRange> ranges_;
  std::vector<MirrorEpoch> views_;
};

/// librpmem's functions, as libpmemobj has them: by their names.
struct Functions {
  decltype(&rpmem_create) create = nullptr;
  decltype(&rpmem_open) open = nullptr;
  decltype(&rpmem_close) close = nullptr;
  decltype(&rpmem_persist) persist = nullptr;
  decltype(&rpmem_flush) flush = nullptr;
  decltype(&rpmem_drain) drain = nullptr;
  decltype(&rpmem_errormsg) errormsg = nullptr;
};

/// Where the build puts it, or where the loader finds it.
Result<Functions> load_librpmem() {
  const std::string built = test::program_directory() + "/../../src/librpmem/librpmem.so.1";
  void* library = ::dlopen(built.c_str(), RTLD_NOW);
  if (library == nullptr) library = ::dlopen("librpmem.so.1", RTLD_NOW);
  Functions all;
  const bool found =
      library != nullptr && look_up(library, "rpmem_create", all.create) &&
      look_up(library, "rpmem_open", all.open) && look_up(library, "rpmem_close", all.close) &&
      look_up(library, "rpmem_persist", all.persist) &&
      look_up(library, "rpmem_flush", all.flush) && look_up(library, "rpmem_drain", all.drain) &&
      look_up(library, "rpmem_errormsg", all.errormsg);
  if (found) return all;
  return Error{ErrorCode::NotFound,
               "there is no librpmem.so.1 to be loaded: build the target "
               "rpmem, or install Perdure"};
}

/// A program of this build, or one that is installed beside this one.
Result<std::string> find_program(const std::string& name) {
  const std::string here = test::program_directory();
  for (const std::string& path :
       {fmt::format("{}/{}", here, name), fmt::format("{}/../{}/{}", here, name, name)}) {
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return Error{ErrorCode::NotFound,
               fmt::format("there is no {} beside this program: build the target {}, or install "
                           "Perdure",
                           name, name)};
}

/// What an rpmemd is told, and a set "r.set" of one part.
Result<void> write_target(const std::string& directory) {
  PERDURE_TRY_VOID(write_file(
      directory + "/r.set", fmt::format("PMEMPOOLSET\n{} {}/r.part\n", kMirroredBytes, directory)));
  return write_file(
      directory + "/conf",
      fmt::format("poolset-dir = {}\nuse-syslog = no\ndeclare-domain = dmp\n", directory));
}

/// What librpmem reads when it is opened; no other thread looks at the environment meanwhile.
void tell_librpmem(const std::string& ssh, const std::string& transport) {
  ::setenv("RPMEM_SSH", ssh.c_str(), 1);                      // NOLINT(concurrency-mt-unsafe)
  ::setenv("PERDURE_RPMEM_TRANSPORT", transport.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
}

/// A target in `directory`, and what stands in for ssh; librpmem is told by the environment.
Result<void> make_target(const std::string& directory, const std::string& transport) {
  PERDURE_TRY(rpmemd, find_program("rpmemd"));
  PERDURE_TRY_VOID(write_target(directory));
  const std::string ssh = directory + "/ssh";
  PERDURE_TRY_VOID(write_file(
      ssh, fmt::format("#!/bin/sh\nexport SSH_CONNECTION='127.0.0.1 50000 127.0.0.1 22'\n"
                       "exec '{}' --config '{}/conf'\n",
                       rpmemd, directory)));
  if (::chmod(ssh.c_str(), 0755) != 0) return errno_error(ssh, errno);
  tell_librpmem(ssh, transport);
  return {};
}

class LibrpmemThere final : public MirrorUnderTest {
 public:
  explicit LibrpmemThere(const Functions& functions) : functions_(functions) {}
  ~LibrpmemThere() override {
    if (pool_ != nullptr) (void)functions_.close(pool_);
    if (memory_ != MAP_FAILED) ::munmap(memory_, kMirroredBytes);
  }
  LibrpmemThere(const LibrpmemThere&) = delete;
  LibrpmemThere& operator=(const LibrpmemThere&) = delete;

  Result<void> make_memory() {
    memory_ =
        ::mmap(nullptr, kMirroredBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) return errno_error("mmap", errno);
    std::memset(memory_, 0x5a, kMirroredBytes);
    return {};
  }
  /// The pool is made there. Requires memory.
  Result<void> create(const std::string& target) {
    rpmem_pool_attr attributes{};
    std::memcpy(attributes.signature, "LIMITS", 6);
    attributes.major = 1;
    attributes.incompat_features = 2;
    unsigned lanes = kLanes;
    pool_ =
        functions_.create(target.c_str(), "r.set", memory_, kMirroredBytes, &lanes, &attributes);
    return outcome(pool_ != nullptr);
  }
  /// It is there. Requires memory.
  Result<void> open(const std::string& target) {
    rpmem_pool_attr attributes{};
    unsigned lanes = kLanes;
    pool_ = functions_.open(target.c_str(), "r.set", memory_, kMirroredBytes, &lanes, &attributes);
    return outcome(pool_ != nullptr);
  }

  Result<void> persist(std::uint64_t at, std::uint64_t length) override {
    return outcome(functions_.persist(pool_, at, length, 0, 0) == 0);
  }
  Result<void> flush(std::uint64_t at, std::uint64_t length) override {
    return outcome(functions_.flush(pool_, at, length, 0, RPMEM_FLUSH_RELAXED) == 0);
  }
  Result<void> drain() override { return outcome(functions_.drain(pool_, 0, 0) == 0); }
  Result<void> persist_ordered(std::uint64_t, std::uint64_t) override {
    return Error{ErrorCode::Unsupported, "librpmem has no ordered updates"};
  }
  /// Half of the window on each lane: one is filled while the other one is drained.
  Result<void> stream(std::uint64_t count, std::uint64_t length, std::uint64_t window) override {
    const std::uint64_t half = std::max<std::uint64_t>(window / kLanes, 1);
    for (std::uint64_t number = 0; number < count; ++number) {
      const auto lane = static_cast<unsigned>(number / half % kLanes);
      if (number % half == 0) PERDURE_TRY_VOID(outcome(functions_.drain(pool_, lane, 0) == 0));
      PERDURE_TRY_VOID(outcome(functions_.flush(pool_, place_of(number, length), length, lane,
                                                RPMEM_FLUSH_RELAXED) == 0));
    }
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      PERDURE_TRY_VOID(outcome(functions_.drain(pool_, lane, 0) == 0));
    }
    return {};
  }

 private:
  Result<void> outcome(bool good) const {
    if (good) return {};
    return Error{ErrorCode::SystemError, functions_.errormsg()};
  }

  const Functions functions_;
  void* memory_ = MAP_FAILED;
  RPMEMpool* pool_ = nullptr;
};

}  // namespace

Result<report::Histogram> timed(std::uint64_t count,
                                const std::function<Result<void>(std::uint64_t)>& one) {
  report::Histogram latencies;
  const Clock& clock = Clock::monotonic();
  for (std::uint64_t number = 0; number < count; ++number) {
    const Nanoseconds begun = clock.now();
    PERDURE_TRY_VOID(one(number));
    latencies.add(clock.now() - begun);
  }
  return latencies;
}

Result<std::unique_ptr<MirrorUnderTest>> open_mirror(const MirrorUnderTestOptions& options) {
  PERDURE_TRY(transport, control::parse_transport_choice(options.transport));
  const auto made = perdure::create_pool(options.peer, {.name = options.pool, .bytes = kPoolBytes});
  if (!made.ok() && made.code() != ErrorCode::AlreadyExists) return made.error();
  std::vector<std::byte> memory(kMirroredBytes, std::byte{0x5a});
  MirrorOptions mirror;
  mirror.peers = {options.peer};
  mirror.pool = options.pool;
  mirror.transport = transport;
  PERDURE_TRY(opened, Mirror::open(MirrorMemory::bytes(memory), mirror));
  PERDURE_TRY_VOID(opened.wait_in_sync(kInSyncWithin));
  return std::unique_ptr<MirrorUnderTest>(
      std::make_unique<MirrorThere>(std::move(memory), std::move(opened)));
}

Result<std::unique_ptr<MirrorUnderTest>> open_librpmem(const std::string& directory,
                                                       const std::string& transport) {
  PERDURE_TRY_VOID(make_target(directory, transport));
  PERDURE_TRY(functions, load_librpmem());
  auto memory = std::make_unique<LibrpmemThere>(functions);
  PERDURE_TRY_VOID(memory->make_memory());
  PERDURE_TRY_VOID(memory->create("localhost"));
  return std::unique_ptr<MirrorUnderTest>(std::move(memory));
}

Result<ListeningRpmemd> ListeningRpmemd::start(const std::string& directory) {
  PERDURE_TRY(rpmemd, find_program("rpmemd"));
  PERDURE_TRY_VOID(write_target(directory));
  const std::string said = directory + "/said";
  ListeningRpmemd listening;
  PERDURE_TRY(process,
              test::ChildProcess::start(
                  {rpmemd, "--listen", "127.0.0.1:0", "--config", directory + "/conf"}, said));
  listening.process_ = std::move(process);
  constexpr std::string_view kSays = "listening at ";
  const Deadline within = Deadline::after(std::chrono::seconds(20));
  for (;;) {
    const std::string text = read_text(said);
    const auto at = text.find(kSays);
    if (at != std::string::npos && text.back() == '\n') {
      listening.address_ = text.substr(at + kSays.size(), text.find('\n', at) - at - kSays.size());
      return listening;
    }
    if (!listening.process_.running() || within.passed()) {
      return Error{ErrorCode::SystemError, "rpmemd does not listen: " + text};
    }
    test::pause_for(std::chrono::milliseconds(5));
  }
}

Result<Nanoseconds> opened_by_librpmem(const std::string& address, const std::string& transport,
                                       bool make) {
  PERDURE_TRY(connect, find_program("perdure-rpmem-connect"));
  tell_librpmem(connect, transport);
  PERDURE_TRY(functions, load_librpmem());
  LibrpmemThere memory(functions);
  PERDURE_TRY_VOID(memory.make_memory());
  const Nanoseconds begun = Clock::monotonic().now();
  PERDURE_TRY_VOID(make ? memory.create(address) : memory.open(address));
  return Clock::monotonic().now() - begun;
}

Result<void> prepare_librpmem(const std::string& directory, const std::string& transport) {
  PERDURE_TRY_VOID(make_target(directory, transport));
  const auto loaded = load_librpmem();
  return loaded.ok() ? Result<void>{} : loaded.error();
}

Result<report::Histogram> persisted(MirrorUnderTest& memory, std::uint64_t count,
                                    std::uint64_t length) {
  return timed(count,
               [&](std::uint64_t each) { return memory.persist(place_of(each, length), length); });
}

Result<report::Histogram> drained(MirrorUnderTest& memory, std::uint64_t count,
                                  std::uint64_t ranges) {
  return timed(count, [&](std::uint64_t) -> Result<void> {
    for (std::uint64_t index = 0; index < ranges; ++index) {
      PERDURE_TRY_VOID(memory.flush(kPage + index * kStride, kSmall));
    }
    return memory.drain();
  });
}

Result<report::Histogram> ordered(MirrorUnderTest& memory, std::uint64_t count,
                                  std::uint64_t epochs) {
  return timed(count, [&](std::uint64_t) { return memory.persist_ordered(epochs, kSmall); });
}

Result<double> mirrored_per_second(MirrorUnderTest& memory, std::uint64_t total_bytes,
                                   std::uint64_t length, std::uint64_t window) {
  const std::uint64_t count = std::max<std::uint64_t>(total_bytes / length, 1);
  const Nanoseconds begun = Clock::monotonic().now();
  PERDURE_TRY_VOID(memory.stream(count, length, window));
  const Nanoseconds took = Clock::monotonic().now() - begun;
  return static_cast<double>(count * length) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(took.count(), 1));
}

}  // namespace perdure::bench
