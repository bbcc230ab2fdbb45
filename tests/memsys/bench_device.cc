// Devices and runs: see bench_device.h.
#include "tests/memsys/bench_device.h"

#include "core/assert.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace perdure::memsys {

DeviceKeys small_device() {
  return {{"clock_ns", "1.0"},
          {"bank_groups", "2"},
          {"banks", "2"},
          {"rows", "16"},
          {"row_bytes", "512"},
          {"line_bytes", "64"},
          {"mapping", "\"row:bankgroup:bank:column\""},
          {"CL", "11"},
          {"CWL", "9"},
          {"BL", "4"},
          {"tRCD", "12"},
          {"tRP", "13"},
          {"tRAS", "30"},
          {"tRTP", "7"},
          {"tWR", "14"},
          {"tCCD", "4"},
          {"tCCD_L", "6"},
          {"tRRD", "5"},
          {"tRRD_L", "8"},
          {"tFAW", "29"},
          {"tWTR", "3"},
          {"tWTR_L", "10"},
          {"tRTRS", "2"}};
}

DeviceKeys random_device(Random& random) {
  const auto number = [&](std::uint64_t from, std::uint64_t to) {
    return from + random.below(to - from + 1);
  };
  DeviceKeys keys{{"clock_ns", "1.0"}, {"line_bytes", "64"}};
  const auto set = [&](const char* key, std::uint64_t value) { keys[key] = std::to_string(value); };
  set("channels", std::uint64_t{1} << random.below(2));
  set("ranks", std::uint64_t{1} << random.below(2));
  set("bank_groups", std::uint64_t{1} << random.below(3));
  set("banks", std::uint64_t{1} << random.below(3));
  set("rows", std::uint64_t{1} << number(1, 5));
  set("row_bytes", std::uint64_t{64} << random.below(5));
  const std::uint64_t cl = number(1, 20);
  const std::uint64_t bl = number(1, 8);
  const std::uint64_t rcd = number(1, 20);
  set("CL", cl);
  set("CWL", number(1, cl));
  set("BL", bl);
  set("tRCD", rcd);
  set("tRP", number(1, 20));
  set("tRAS", number(rcd, 50));
  set("tRTP", number(1, 20));
  set("tWR", number(0, 60));
  const std::uint64_t ccd = number(1, 8);
  set("tCCD", ccd);
  set("tCCD_L", number(ccd, 12));
  const std::uint64_t rrd = number(1, 6);
  set("tRRD", rrd);
  set("tRRD_L", number(rrd, 9));
  set("tFAW", random.chance(1, 3) ? 0 : number(rrd, 40));
  const std::uint64_t wtr = number(0, 8);
  set("tWTR", wtr);
  set("tWTR_L", number(wtr, 12));
  set("tRTRS", number(0, 4));
  if (random.chance(1, 2)) {
    set("tREFI", number(400, 900));
    set("tRFC", number(10, 90));
  }
  std::vector<std::string> fields{"channel", "rank", "bankgroup", "bank", "row", "column"};
  for (std::size_t i = fields.size(); i > 1; --i) std::swap(fields[i - 1], fields[random.below(i)]);
  std::string mapping;
  for (const std::string& field : fields) mapping += (mapping.empty() ? "" : ":") + field;
  keys["mapping"] = "\"" + mapping + "\"";
  return keys;
}

Device device_of(const DeviceKeys& keys, const std::string& controller) {
  std::string text = "[device]\n";
  for (const auto& [key, value] : keys) text += key + " = " + value + "\n";
  text += "[controller]\n" + controller + "\n";
  auto device = parse_device(text, "device");
  EXPECT_TRUE(device.ok()) << device.error().message << "\n" << text;
  return std::move(device).value();
}

Device nvm() {
  auto device = read_device(CONFIGS "/nvm-a.toml");
  EXPECT_TRUE(device.ok()) << device.error().message;
  return std::move(device).value();
}

RunOutcome run_trace(const Device& device, const std::string& trace, MemoryOptions options) {
  const AddressMap map(device);
  const auto bytes = trace_of(trace);
  TraceReader reader(*bytes, "trace", {map.lines(), map.line_bytes()});
  auto summary = reader.survey(TraceFormat::Perdure);
  if (!summary.ok()) return {summary.error(), {}};
  CommandList log;
  options.commands = &log;
  auto result = run_memory(device, reader, std::move(summary).value(), options);
  return {std::move(result), std::move(log.commands)};
}

}  // namespace perdure::memsys
