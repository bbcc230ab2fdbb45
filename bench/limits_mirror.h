// Mirrored memory under test, for measuring its limits: through the public Mirror API on a
// perdured, and through librpmem.so.1 on an rpmemd, each as a program would use it.
#pragma once

#include <dlfcn.h>
#include <perdure/result.h>

#include "core/clock.h"
#include "report/histogram.h"
#include "testing/process.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace perdure::bench {

/// Bytes that are mirrored.
inline constexpr std::uint64_t kMirroredBytes = std::uint64_t{16} << 20;

/// Memory of this process with one replica.
class MirrorUnderTest {
 public:
  virtual ~MirrorUnderTest() = default;

  /// Bytes at `at` are durable there when it returns.
  virtual Result<void> persist(std::uint64_t at, std::uint64_t length) = 0;
  /// Begins that; drain() waits for all that was begun.
  virtual Result<void> flush(std::uint64_t at, std::uint64_t length) = 0;
  virtual Result<void> drain() = 0;
  /// One range of each epoch, in order. Errors: Unsupported.
  virtual Result<void> persist_ordered(std::uint64_t epochs, std::uint64_t length) = 0;
  /// So many ranges, at most `window` in flight and at least half of that; waits for all.
  virtual Result<void> stream(std::uint64_t count, std::uint64_t length, std::uint64_t window) = 0;
};

struct MirrorUnderTestOptions {
  std::string transport;  // "tcp" or "shm"
  std::string peer;       // control plane of a perdured
  std::string pool;       // made there, unless it is there already
};
/// Errors: those of Mirror::open.
Result<std::unique_ptr<MirrorUnderTest>> open_mirror(const MirrorUnderTestOptions& options);

/// Memory whose replica is a part file in `directory`, a place in memory that is declared as dmp.
/// Errors: NotFound (no librpmem.so.1 or rpmemd beside this program), SystemError, with what
/// rpmem_errormsg() says.
Result<std::unique_ptr<MirrorUnderTest>> open_librpmem(const std::string& directory,
                                                       const std::string& transport);

/// Whether a library that was loaded has a function of this name, which is given.
template <typename Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

/// A target for librpmem in `directory`, which has a set "r.set" of kMirroredBytes; librpmem.so.1
/// of this build is loaded, and found by who loads it by its name. Errors: as open_librpmem.
Result<void> prepare_librpmem(const std::string& directory, const std::string& transport);

/// An rpmemd that listens in ssh's place, with a set "r.set" of kMirroredBytes in `directory`.
class ListeningRpmemd {
 public:
  /// Errors: NotFound (no rpmemd beside this program), SystemError, with what it says.
  static Result<ListeningRpmemd> start(const std::string& directory);
  const std::string& address() const { return address_; }

 private:
  test::ChildProcess process_;
  std::string address_;
};

/// The time of rpmem_open of its pool, or with `make` of rpmem_create. For a process of its own:
/// librpmem is loaded there. Errors: as open_librpmem.
Result<Nanoseconds> opened_by_librpmem(const std::string& address, const std::string& transport,
                                       bool make);

/// Times of `one`, called so often.
Result<report::Histogram> timed(std::uint64_t count,
                                const std::function<Result<void>(std::uint64_t)>& one);
/// Times of persisting so many ranges one after the other, each as far from the one before as it is
/// long.
Result<report::Histogram> persisted(MirrorUnderTest& memory, std::uint64_t count,
                                    std::uint64_t length);
/// Times of flushing `ranges` of 64 B and one drain.
Result<report::Histogram> drained(MirrorUnderTest& memory, std::uint64_t count,
                                  std::uint64_t ranges);
/// Times of an update of so many epochs of 64 B.
Result<report::Histogram> ordered(MirrorUnderTest& memory, std::uint64_t count,
                                  std::uint64_t epochs);
/// Bytes per second of ranges with `window` in flight, until the last one is durable.
Result<double> mirrored_per_second(MirrorUnderTest& memory, std::uint64_t total_bytes,
                                   std::uint64_t length, std::uint64_t window);

}  // namespace perdure::bench
