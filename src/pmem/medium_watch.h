// MediumWatch: whether a file's medium still promises what it did when the file was mapped. It may
// have been mounted again with other options, or have got another drive: what is acknowledged rests
// on it.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include <atomic>
#include <chrono>
#include <functional>

#include "core/clock.h"
#include "pmem/file.h"
#include "pmem/medium.h"

namespace perdure::pmem {

struct MediumWatchOptions {
  /// What the medium is. Tests tell of another one here.
  std::function<Result<Medium>(const File&)> examine = examine_medium;
  Nanoseconds every = std::chrono::seconds{1};
};

/// Threads: any.
class MediumWatch {
 public:
  /// What a medium keeps of a file as that is mapped and declared.
  using Decide = std::function<Result<PersistenceDomain>(Medium&)>;

  explicit MediumWatch(MediumWatchOptions options) : options_(std::move(options)) {}

  Result<Medium> examine(const File& file) const { return options_.examine(file); }
  /// Examines it again, at most once in `every`. What can merely not be seen any more has to be so
  /// at two examinations, and for want of descriptors says nothing. Errors: those of examining;
  /// SystemError: it keeps less than `promised`.
  Result<void> look(const File& file, PersistenceDomain promised, const Decide& decide);

 private:
  const MediumWatchOptions options_;
  std::atomic<Nanoseconds::rep> examined_ns_{0};  // when, by the machine's clock
  std::atomic<int> doubts_{0};                    // examinations in a row that saw too little
};

}  // namespace perdure::pmem
