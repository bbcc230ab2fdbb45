// Transactions of libpmemobj: see limits_objects.h. It is loaded while running, since its headers
// are not needed for anything else; what is called of it is declared here (libpmemobj(7)).
#include "bench/limits_objects.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "bench/limits_mirror.h"
#include "core/clock.h"
#include "core/text_file.h"
#include "core/try.h"

namespace perdure::bench {
namespace {

struct ObjectId {
  std::uint64_t pool;
  std::uint64_t offset;
};

struct Libpmemobj {
  void* (*create)(const char* path, const char* layout, std::size_t bytes, unsigned mode) = nullptr;
  void (*close)(void* pool) = nullptr;
  ObjectId (*root)(void* pool, std::size_t bytes) = nullptr;
  void* (*direct)(ObjectId object) = nullptr;
  int (*begin)(void* pool, void* on_abort, ...) = nullptr;  // what is behind ends with 0
  int (*add_range)(ObjectId object, std::uint64_t offset, std::size_t bytes) = nullptr;
  void (*commit)() = nullptr;
  int (*end)() = nullptr;
  const char* (*errormsg)() = nullptr;
};

Result<Libpmemobj> load_libpmemobj() {
  // No other thread is there yet.
  ::setenv("PMEM_IS_PMEM_FORCE", "1", 1);  // NOLINT(concurrency-mt-unsafe)
  void* const library = ::dlopen("libpmemobj.so.1", RTLD_NOW);
  Libpmemobj all;
  const bool found = library != nullptr && look_up(library, "pmemobj_create", all.create) &&
                     look_up(library, "pmemobj_close", all.close) &&
                     look_up(library, "pmemobj_root", all.root) &&
                     look_up(library, "pmemobj_direct", all.direct) &&
                     look_up(library, "pmemobj_tx_begin", all.begin) &&
                     look_up(library, "pmemobj_tx_add_range", all.add_range) &&
                     look_up(library, "pmemobj_tx_commit", all.commit) &&
                     look_up(library, "pmemobj_tx_end", all.end) &&
                     look_up(library, "pmemobj_errormsg", all.errormsg);
  if (found) return all;
  return Error{ErrorCode::NotFound, "there is no libpmemobj.so.1: install libpmemobj1"};
}

/// Of one thread, in a cache line of its own.
struct alignas(64) Fields {
  std::uint64_t up;
  std::uint64_t down;
};

class Objects {
 public:
  explicit Objects(const Libpmemobj& library) : library_(library) {}
  ~Objects() {
    if (pool_ != nullptr) library_.close(pool_);
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;

  Result<void> create(const ObjectsUnderTestOptions& options, std::size_t threads) {
    const std::string set = options.directory + "/objects.set";
    const bool replicated = !options.transport.empty();
    PERDURE_TRY_VOID(write_file(
        set, fmt::format("PMEMPOOLSET\n{} {}/objects.part\n{}", kMirroredBytes, options.directory,
                         replicated ? "REPLICA localhost r.set\n" : "")));
    pool_ = library_.create(set.c_str(), "limits", 0, 0600);
    if (pool_ == nullptr) return failed();
    root_ = library_.root(pool_, threads * sizeof(Fields));
    if (root_.offset == 0) return failed();
    fields_ = static_cast<Fields*>(library_.direct(root_));
    return {};
  }

  /// An abort ends the process: there is nowhere to jump to.
  Result<void> transact(std::size_t thread) {
    if (library_.begin(pool_, nullptr, 0, 0) != 0) return failed();
    Fields& fields = fields_[thread];
    const std::uint64_t at = thread * sizeof(Fields);
    const bool added = library_.add_range(root_, at, sizeof fields.up) == 0 &&
                       library_.add_range(root_, at + sizeof fields.up, sizeof fields.down) == 0;
    if (added) {
      ++fields.up;
      --fields.down;
      library_.commit();
    }
    return library_.end() == 0 && added ? Result<void>{} : failed();
  }

 private:
  Error failed() const { return Error{ErrorCode::SystemError, library_.errormsg()}; }

  const Libpmemobj library_;
  void* pool_ = nullptr;
  ObjectId root_{};
  Fields* fields_ = nullptr;
};

Result<std::unique_ptr<Objects>> open_objects(const ObjectsUnderTestOptions& options,
                                              std::size_t threads) {
  if (!options.transport.empty()) {
    PERDURE_TRY_VOID(prepare_librpmem(options.directory, options.transport));
  }
  PERDURE_TRY(library, load_libpmemobj());
  auto objects = std::make_unique<Objects>(library);
  PERDURE_TRY_VOID(objects->create(options, threads));
  return objects;
}

}  // namespace

Result<report::Histogram> transactions(const ObjectsUnderTestOptions& options,
                                       std::uint64_t count) {
  PERDURE_TRY(objects, open_objects(options, 1));
  for (std::uint64_t number = 0; number < count / 5; ++number) {
    PERDURE_TRY_VOID(objects->transact(0));
  }
  return timed(count, [&](std::uint64_t) { return objects->transact(0); });
}

Result<double> transactions_per_second(const ObjectsUnderTestOptions& options, std::uint64_t count,
                                       std::size_t threads) {
  PERDURE_TRY(objects, open_objects(options, threads));
  const std::uint64_t each = std::max<std::uint64_t>(count / threads, 1);
  std::vector<Result<void>> outcomes(threads);
  std::vector<std::thread> workers;
  const Nanoseconds begun = Clock::monotonic().now();
  for (std::size_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      for (std::uint64_t number = 0; outcomes[thread].ok() && number < each; ++number) {
        outcomes[thread] = objects->transact(thread);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  const Nanoseconds took = Clock::monotonic().now() - begun;
  for (const Result<void>& outcome : outcomes) PERDURE_TRY_VOID(outcome);
  return static_cast<double>(each * threads) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(took.count(), 1));
}

}  // namespace perdure::bench
