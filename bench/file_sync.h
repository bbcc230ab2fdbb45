// What it costs to make a range of a file durable, and what the drive is sent for it: msync of a
// mapping, as pools in files are flushed, beside the other ways that the kernel offers.
//
// They do not promise the same. A write with O_DIRECT passes the page cache by, and is coherent
// with no mapping of the same page; a pool whose bytes requesters read through its mapping can not
// use it. It is here as the bound of what could be had.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "report/setup.h"
#include "report/table.h"

namespace perdure::bench {

enum class FileSync : std::uint8_t {
  Msync,        // a store, msync(MS_SYNC) of its pages
  WriteDsync,   // a store, pwritev2(RWF_DSYNC) of the range from the mapping onto itself
  WriteOnly,    // pwritev2(RWF_DSYNC) from elsewhere: no store through the mapping, and no fault
  Direct,       // pwritev2(RWF_DSYNC) of whole blocks with O_DIRECT
  DirectQueue,  // the same through io_uring, kQueued in flight
};
inline constexpr std::size_t kQueued = 4;

std::string_view to_string(FileSync way);

struct FileSyncOptions {
  std::string directory;
  std::uint64_t file_bytes = std::uint64_t{64} << 20;
  std::size_t rounds = 5;      // ways take turns
  std::uint64_t samples = 60;  // of each way and size per round
  /// The pages come into memory as those of a pool do, one by one; not by the kernel's read-ahead,
  /// which makes large folios of them.
  bool single_pages = false;
};

/// Before each piece of work: how many are behind, of how many, and what comes.
using FileSyncProgress =
    std::function<void(std::uint64_t done, std::uint64_t of, const std::string& what)>;

/// One way and size, over all rounds.
struct FileSyncFinding {
  FileSync way = FileSync::Msync;
  std::uint64_t bytes = 0;
  std::uint64_t samples = 0;
  std::uint64_t p50_ns = 0;
  std::uint64_t p99_ns = 0;
  double each_ns = 0;  // time for all of them by their number: less than p50 with several in flight
  /// Of the drive, by the record: with whatever others wrote to it meanwhile. 0: it shows none.
  double device_bytes = 0;
  double device_requests = 0;
  std::string failure;  // empty: measured
};

/// Writes records of several sizes one after the other into new files of the directory, one for
/// each way, whose pages are in memory, and removes them.
/// Errors: SystemError, also when interrupted; NoSpace.
Result<std::vector<FileSyncFinding>> measure_file_sync(const FileSyncOptions& options,
                                                       const FileSyncProgress& progress);

std::string file_sync_text(const std::vector<FileSyncFinding>& findings);
std::string file_sync_json(const std::vector<FileSyncFinding>& findings,
                           const report::Setup& setup);

}  // namespace perdure::bench
