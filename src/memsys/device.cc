// Reading and refusing devices: see device.h.
#include "memsys/device.h"

#include "core/parameter_file.h"
#include "core/printable.h"
#include "core/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

namespace perdure::memsys {
namespace {

using Need = ParameterFile::Need;

constexpr std::uint64_t kTimingMax = 1'000'000;  // cycles
constexpr std::uint64_t kQueueMax = 4096;
constexpr std::uint64_t kBanksInChannelMax = 1024;
constexpr double kBytesMax = 1e18;

constexpr std::array<std::string_view, 6> kFieldNames{"channel", "rank", "bankgroup",
                                                      "bank",    "row",  "column"};

void read_geometry(ParameterFile& file, Geometry& g) {
  const auto count = [&](std::string_view key, Need need, std::uint64_t max,
                         std::uint64_t& target) {
    file.number("device", key, need, 1, max, target);
    if (target != 0 && !std::has_single_bit(target)) {
      file.problem("device", key, fmt::format("{} is not a power of two", target));
    }
  };
  count("channels", Need::Optional, 64, g.channels);
  count("ranks", Need::Optional, 64, g.ranks);
  count("bank_groups", Need::Optional, 64, g.bank_groups);
  count("banks", Need::Required, 1024, g.banks);
  count("rows", Need::Required, std::uint64_t{1} << 31, g.rows);
  count("row_bytes", Need::Required, std::uint64_t{1} << 20, g.row_bytes);
  count("line_bytes", Need::Required, 4096, g.line_bytes);
  if (g.line_bytes > g.row_bytes) {
    file.problem("device", "line_bytes", "a line is longer than a row (row_bytes)");
  }
  if (g.banks_in_channel() > kBanksInChannelMax) {
    file.problem("device", "banks",
                 fmt::format("a channel has {} banks, more than {}", g.banks_in_channel(),
                             kBanksInChannelMax));
  }
}

void read_timing(ParameterFile& file, Timing& t) {
  const auto cycles = [&](std::string_view key, Need need, std::uint64_t min,
                          std::uint64_t& target) {
    file.number("device", key, need, min, kTimingMax, target);
  };
  cycles("CL", Need::Required, 1, t.CL);
  cycles("CWL", Need::Required, 1, t.CWL);
  cycles("BL", Need::Required, 1, t.BL);
  cycles("tRCD", Need::Required, 1, t.tRCD);
  cycles("tRP", Need::Required, 1, t.tRP);
  cycles("tRAS", Need::Required, 1, t.tRAS);
  cycles("tRTP", Need::Required, 1, t.tRTP);
  cycles("tWR", Need::Required, 0, t.tWR);
  cycles("tCCD", Need::Required, 1, t.tCCD);
  t.tCCD_L = t.tCCD;
  cycles("tCCD_L", Need::Optional, 1, t.tCCD_L);
  cycles("tRRD", Need::Optional, 1, t.tRRD);
  t.tRRD_L = t.tRRD;
  cycles("tRRD_L", Need::Optional, 1, t.tRRD_L);
  cycles("tFAW", Need::Optional, 0, t.tFAW);
  cycles("tWTR", Need::Optional, 0, t.tWTR);
  t.tWTR_L = t.tWTR;
  cycles("tWTR_L", Need::Optional, 0, t.tWTR_L);
  cycles("tRTRS", Need::Optional, 0, t.tRTRS);
  file.number("device", "tREFI", Need::Optional, 0, 100 * kTimingMax, t.tREFI);
  cycles("tRFC", Need::Optional, 0, t.tRFC);
}

/// Each is a contradiction: no device can keep both numbers.
void refuse_impossible(ParameterFile& file, const Device& device) {
  const Timing& t = device.timing;
  const Geometry& g = device.geometry;
  const auto refuse_if = [&](bool impossible, std::string_view key, const std::string& why) {
    if (impossible) file.problem("device", key, why);
  };
  const double bytes = static_cast<double>(g.channels * g.banks_in_channel()) *
                       static_cast<double>(g.rows) * static_cast<double>(g.row_bytes);
  refuse_if(bytes > kBytesMax, "rows", "more than an address can name");
  refuse_if(t.tRAS < t.tRCD, "tRAS",
            fmt::format("impossible: a row open for {} cycles is not yet there for a column "
                        "command, which takes tRCD = {}",
                        t.tRAS, t.tRCD));
  refuse_if(t.tCCD_L < t.tCCD, "tCCD_L", fmt::format("impossible: shorter than tCCD = {}", t.tCCD));
  refuse_if(t.tRRD_L < t.tRRD, "tRRD_L", fmt::format("impossible: shorter than tRRD = {}", t.tRRD));
  refuse_if(t.tWTR_L < t.tWTR, "tWTR_L", fmt::format("impossible: shorter than tWTR = {}", t.tWTR));
  refuse_if(t.tFAW != 0 && t.tFAW < t.tRRD, "tFAW",
            fmt::format("impossible: four activates take longer than one pair, tRRD = {}", t.tRRD));
  refuse_if(t.tREFI != 0 && t.tRFC == 0, "tRFC", "impossible: a refresh takes no time");
  // tREFI = 0 switches refreshes off, and tRFC may stand beside it.
  refuse_if(t.tRFC != 0 && !file.has("device", "tREFI"), "tRFC",
            "is of refreshes, of which there are none: tREFI is missing");
  // Between two refreshes there must be time to open a row, use it and close it.
  const std::uint64_t access = t.tRCD + std::max({t.tRAS, t.tRTP, t.write_to_precharge()}) + t.tRP;
  refuse_if(
      t.tREFI != 0 && t.tREFI <= t.tRFC + access, "tREFI",
      fmt::format("impossible: no time for an access between refreshes of tRFC = {}", t.tRFC));
  refuse_if(t.CL + t.BL + t.tRTRS < t.CWL, "CWL",
            "impossible: a read's burst would end before that of a write just sent begins");
}

void read_mapping(ParameterFile& file, const Geometry& g, std::string_view text,
                  std::vector<Field>& mapping) {
  const std::array<std::uint64_t, 6> sizes{g.channels, g.ranks, g.bank_groups,
                                           g.banks,    g.rows,  g.lines_in_row()};
  std::array<bool, 6> there{};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const auto* const found = std::find(kFieldNames.begin(), kFieldNames.end(), word);
    if (found == kFieldNames.end()) {
      return file.problem("device", "mapping",
                          fmt::format("'{}' is none of: {}", word, fmt::join(kFieldNames, ", ")));
    }
    const auto index = static_cast<std::size_t>(found - kFieldNames.begin());
    if (there.at(index)) {
      return file.problem("device", "mapping", fmt::format("names {} twice", word));
    }
    there.at(index) = true;
    mapping.push_back(static_cast<Field>(index));
    begin = end + 1;
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (there.at(i) || sizes.at(i) == 1) continue;
    file.problem("device", "mapping",
                 fmt::format("does not cover the device: {} is missing, and "
                             "there are {}",
                             kFieldNames.at(i), sizes.at(i)));
  }
}

/// Entries, or a share of the queue when it is written with a point.
void read_watermark(ParameterFile& file, std::string_view key, std::uint64_t queue,
                    std::uint64_t& target) {
  double value = static_cast<double>(target);
  file.real("controller", key, Need::Optional, 0, static_cast<double>(kQueueMax), value);
  if (value > 1 && value != std::floor(value)) {
    file.problem("controller", key,
                 fmt::format("{} is neither a number of entries nor a share below 1", value));
  }
  target = static_cast<std::uint64_t>(value < 1 ? std::floor(value * static_cast<double>(queue))
                                                : value);
}

void read_queues(ParameterFile& file, ControllerOptions& c) {
  const auto size = [&](std::string_view key, std::uint64_t& target) {
    file.number("controller", key, Need::Optional, 1, kQueueMax, target);
  };
  const bool window = file.has("controller", "window");
  const bool split = file.has("controller", "read_queue") || file.has("controller", "write_queue");
  if (window && split) {
    file.problem("controller", "window", "one queue, or a read_queue and a write_queue: not both");
  }
  size("window", c.window);
  size("read_queue", c.read_queue);
  size("write_queue", c.write_queue);
  c.one_queue = !split;
  for (const std::string_view key : {"high_watermark", "low_watermark"}) {
    if (split || !file.has("controller", key)) continue;
    file.problem("controller", key, "is of two queues: use it with read_queue or write_queue");
  }
  c.high_watermark = std::max<std::uint64_t>(1, c.write_queue * 4 / 5);
  read_watermark(file, "high_watermark", c.write_queue, c.high_watermark);
  c.low_watermark = std::min(c.write_queue / 5, std::max<std::uint64_t>(1, c.high_watermark) - 1);
  read_watermark(file, "low_watermark", c.write_queue, c.low_watermark);
  if (c.high_watermark > c.write_queue || c.high_watermark == 0) {
    file.problem(
        "controller", "high_watermark",
        fmt::format("{} is not between 1 and write_queue = {}", c.high_watermark, c.write_queue));
  }
  if (c.low_watermark >= c.high_watermark) {
    file.problem(
        "controller", "low_watermark",
        fmt::format("{} is not below the high one, {}", c.low_watermark, c.high_watermark));
  }
}

void read_controller(ParameterFile& file, ControllerOptions& c) {
  std::string scheduler = "fr-fcfs";
  std::string page = "open";
  file.text("controller", "scheduler", Need::Optional, scheduler);
  file.text("controller", "page", Need::Optional, page);
  file.flag("controller", "hits_pipeline", Need::Optional, c.hits_pipeline);
  if (scheduler != "fr-fcfs") {
    file.problem("controller", "scheduler", fmt::format("'{}' is none of: fr-fcfs", scheduler));
  }
  if (page != "open" && page != "closed") {
    file.problem("controller", "page", fmt::format("'{}' is none of: open, closed", page));
  }
  c.page = page == "closed" ? Page::Closed : Page::Open;
  read_queues(file, c);
}

Result<Device> device_of(ParameterFile& file) {
  Device device;
  device.name = file.name();
  file.text("device", "name", Need::Optional, device.name);
  device.name = printable_name(device.name);
  std::string mapping;
  file.text("device", "mapping", Need::Required, mapping);
  file.real("device", "clock_ns", Need::Required, 0.001, 1000, device.clock_ns);
  read_geometry(file, device.geometry);
  read_timing(file, device.timing);
  read_controller(file, device.controller);
  PERDURE_TRY_VOID(file.outcome());
  refuse_impossible(file, device);
  read_mapping(file, device.geometry, mapping, device.mapping);
  PERDURE_TRY_VOID(file.outcome());
  return device;
}

}  // namespace

std::uint64_t Timing::read_to_write() const {
  return std::max<std::uint64_t>(1, CL + BL + tRTRS - CWL);
}

std::uint64_t Timing::longest_wait(std::uint64_t requests) const {
  constexpr std::uint64_t kOfAController = 1'000'000;
  constexpr std::uint64_t kCommands = 16;  // until one serves
  const std::uint64_t timings = CL + CWL + BL + tRCD + tRP + tRAS + tRTP + tWR + tCCD_L + tRRD_L +
                                tFAW + tWTR_L + tRTRS + tREFI + tRFC;
  return kOfAController + kCommands * requests * timings;
}

Result<Device> read_device(const std::string& path) {
  PERDURE_TRY(file, ParameterFile::read(path));
  return device_of(file);
}

Result<Device> parse_device(std::string_view text, std::string name) {
  PERDURE_TRY(file, ParameterFile::parse(text, std::move(name)));
  return device_of(file);
}

}  // namespace perdure::memsys
