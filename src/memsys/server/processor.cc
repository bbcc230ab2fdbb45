// Reading processors: see processor.h.
#include "memsys/server/processor.h"

#include "core/parameter_file.h"
#include "core/printable.h"
#include "core/try.h"

#include <bit>
#include <cmath>

namespace perdure::memsys {
namespace {

using enum ParameterFile::Need;

constexpr double kPsMax = 1e9;  // a millisecond

class Reader {
 public:
  Reader(ParameterFile& file, std::string_view table) : file_(file), table_(table) {}

  std::uint64_t count(std::string_view key, std::string_view unit, double min, double max,
                      ParameterFile::Need need = Required) {
    return count_or(key, unit, min, max, min, need);
  }
  std::uint64_t count_or(std::string_view key, std::string_view unit, double min, double max,
                         double otherwise, ParameterFile::Need need = Optional) {
    double value = otherwise;
    file_.quantity(table_, key, need, unit, min, max, value);
    if (value != std::floor(value)) file_.problem(table_, key, "must be a whole number");
    return static_cast<std::uint64_t>(value);
  }
  double real(std::string_view key, std::string_view unit, double min, double max) {
    double value = min;
    file_.quantity(table_, key, Required, unit, min, max, value);
    return value;
  }
  Time time(std::string_view key, double min_ns = 0) {
    return static_cast<Time>(std::llround(real(key, "ns", min_ns, kPsMax / 1e3) * 1e3));
  }
  CacheGeometry cache(std::string_view bytes, std::string_view ways) {
    const CacheGeometry geometry{count(bytes, "bytes", kCacheLineBytes, 1 << 30),
                                 count(ways, "ways", 1, 64)};
    const std::uint64_t set = geometry.ways * kCacheLineBytes;
    if (geometry.bytes % set != 0 || !std::has_single_bit(geometry.bytes / set)) {
      file_.problem(table_, bytes, "must be a power of two of sets of lines of 64 bytes");
    }
    return geometry;
  }

 private:
  ParameterFile& file_;
  std::string_view table_;
};

Result<Processor> processor_of(ParameterFile& file) {
  Processor p;
  p.name = file.name();
  file.text("processor", "name", Optional, p.name);
  p.name = printable_name(p.name);
  Reader cores(file, "processor");
  p.cores = static_cast<std::uint32_t>(cores.count("cores", "cores", 1, kCoresMax));
  p.threads_per_core =
      static_cast<std::uint32_t>(cores.count("threads", "threads", 1, kThreadsPerCoreMax));
  p.instruction_ps = cores.time("instruction", 0.001);
  p.loads = cores.count("loads", "loads", 1, 64, Optional);
  p.store_buffer = cores.count("store_buffer", "stores", 1, 1024);

  Reader caches(file, "caches");
  p.l1 = caches.cache("l1_bytes", "l1_ways");
  p.l2 = caches.cache("l2_bytes", "l2_ways");
  p.l1_ps = caches.time("l1", 0.001);
  p.l2_ps = caches.time("l2");
  p.crossbar_ps = caches.time("crossbar");

  Reader persist(file, "persist");
  p.buffer_entries = persist.count("buffer_entries", "entries", 2, 4096);
  p.remote_entries = persist.count("remote_entries", "entries", 2, 4096);
  p.queue_entries = persist.count("queue_entries", "entries", 1, 4096);
  p.barrier_registers = persist.count("barrier_registers", "registers", 1, 4096);
  p.recovery_entries =
      persist.count_or("recovery_entries", "entries", 0, 4096, kAsapRecoveryEntries);
  p.epoch_entries = persist.count_or("epoch_entries", "entries", 2, 4096, kAsapEpochEntries);
  p.old_value_reads = persist.count_or("old_value_reads", "reads", 0, 1, 1);
  p.bank_writes = persist.count_or("bank_writes", "writes", 1, 4096, 1);
  p.schedule_ps = persist.time("schedule");
  p.sigma = persist.real("sigma", "banks/request", 0, 1e3);
  p.remote_share = persist.real("remote_share", "of the queue", 0, 1);
  p.remote_wait_ps = persist.time("remote_wait");
  PERDURE_TRY_VOID(file.outcome());
  return p;
}

}  // namespace

Result<Processor> read_processor(const std::string& path) {
  PERDURE_TRY(file, ParameterFile::read(path));
  return processor_of(file);
}

Result<Processor> parse_processor(std::string_view text, std::string name) {
  PERDURE_TRY(file, ParameterFile::parse(text, std::move(name)));
  return processor_of(file);
}

}  // namespace perdure::memsys
