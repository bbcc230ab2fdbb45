// Devices are read whole or refused, with the line or the key.
#include "memsys/device.h"

#include <gtest/gtest.h>

#include "memsys/address_map.h"

namespace perdure::memsys {
namespace {

const std::string kTiming =
    "CL = 11\nCWL = 9\nBL = 4\ntRCD = 12\ntRP = 13\ntRAS = 30\ntRTP = 7\ntWR = 14\ntCCD = 4\n";
const std::string kShape =
    "[device]\nclock_ns = 1.0\nbanks = 4\nrows = 16\nrow_bytes = 512\nline_bytes = 64\n";
const std::string kMapping = "mapping = \"row:bank:column\"\n";

TEST(Device, WhatIsOptionalHasItsNeutralValue) {
  const auto device = parse_device(kShape + kMapping + kTiming, "d.toml");
  ASSERT_TRUE(device.ok()) << device.error().message;
  EXPECT_EQ(device->geometry.ranks, 1U);
  EXPECT_EQ(device->timing.tCCD_L, 4U);
  EXPECT_EQ(device->timing.tFAW, 0U);
  EXPECT_EQ(device->timing.tREFI, 0U);
  EXPECT_TRUE(device->controller.one_queue);
  EXPECT_EQ(device->geometry.bytes(), 4U * 16 * 512);
}

TEST(Device, WhatIsWrongIsRefusedWithLineAndKey) {
  const std::string whole = kShape + kMapping + kTiming;
  struct Case {
    std::string text;
    std::string place;
    std::string what;
  };
  const Case cases[] = {
      {"[device\n", "d.toml:1", ""},
      {"[#\n", "d.toml:1", ""},
      {"", "d.toml: ", "is missing"},
      {kShape + kTiming, "", "mapping: is missing"},
      {whole + "tRDC = 4\n", "d.toml:17", "'tRDC' is not a key of [device]"},
      {whole + "[timing]\nCL = 4\n", "d.toml:17", "timing"},
      {whole + "tCCD_L = 3\n", "d.toml:17", "impossible"},
      {whole + "tREFI = 50\ntRFC = 40\n", "d.toml:17", "impossible"},
      {whole + "tREFI = 5000\n", "", "tRFC: impossible"},
      {whole + "tRFC = 40\n", "d.toml:17", "tREFI is missing"},
      {whole + "[controller]\nwindow = 8\nhigh_watermark = 5\n", "d.toml:19", "of two queues"},
      {whole + "[controller]\nlow_watermark = 5\n", "d.toml:18", "of two queues"},
      {whole + "tRRD = 9\ntFAW = 8\n", "d.toml:18", "impossible"},
      {whole + "tRRD = -1\n", "d.toml:17", "tRRD: -1"},
      {whole + "tRRD = 1.5\n", "d.toml:17", "whole number"},
      {whole + "channels = 3\n", "d.toml:17", "power of two"},
      {whole + "channels = 2\n", "d.toml:7", "does not cover"},
      {whole + "[controller]\nwindow = 0\n", "d.toml:18", "window"},
      {whole + "[controller]\nscheduler = \"fcfs\"\n", "d.toml:18", "fr-fcfs"},
      {whole + "[controller]\npage = \"ajar\"\n", "d.toml:18", "open, closed"},
      {whole + "[controller]\nwindow = 4\nread_queue = 4\n", "d.toml:18", "not both"},
      {whole + "[controller]\nwrite_queue = 4\nhigh_watermark = 5\n", "d.toml:19", "write_queue"},
      {whole + "[controller]\nwrite_queue = 4\nhigh_watermark = 1.9\n", "d.toml:19", "neither"},
      {whole + "[controller]\nwrite_queue = 4\nlow_watermark = 4\n", "d.toml:19", "below"},
      {kShape + "mapping = \"row:bank\"\n" + kTiming, "d.toml:7", "column is missing"},
      {kShape + "mapping = \"row:bank:bank:column\"\n" + kTiming, "d.toml:7", "twice"},
      {kShape + "mapping = \"row:bank:col\"\n" + kTiming, "d.toml:7", "'col'"},
      {kShape + "mapping = \"\"\n" + kTiming, "d.toml:7", "''"},
  };
  for (const Case& each : cases) {
    const auto device = parse_device(each.text, "d.toml");
    ASSERT_FALSE(device.ok()) << each.text;
    EXPECT_EQ(device.code(), ErrorCode::InvalidArgument);
    const std::string& message = device.error().message;
    EXPECT_EQ(message.rfind(each.place.empty() ? "d.toml" : each.place, 0), 0U) << message;
    EXPECT_NE(message.find(each.what), std::string::npos) << message;
  }
  for (const char* key : {"banks = 4", "rows = 16", "row_bytes = 512", "line_bytes = 64"}) {
    std::string text = whole;
    const std::string name(key, std::string_view(key).find(' '));
    text.replace(text.find(key), std::string_view(key).size(), name + " = 0");
    const auto device = parse_device(text, "d.toml");
    ASSERT_FALSE(device.ok());
    EXPECT_NE(device.error().message.find("] " + name), std::string::npos)
        << device.error().message;
  }
}

TEST(Device, TheWholeFileIsReadBeforeAnythingIsTrusted) {
  EXPECT_EQ(read_device("/nonexistent/d.toml").code(), ErrorCode::NotFound);
  EXPECT_FALSE(parse_device(std::string(3 << 20, '#'), "d.toml").ok());
}

TEST(AddressMap, EveryLineHasItsOwnPlace) {
  const auto device = parse_device(kShape +
                                       "channels = 2\nranks = 2\nbank_groups = 2\n"
                                       "mapping = \"row:rank:bankgroup:bank:channel:column\"\n" +
                                       kTiming,
                                   "d.toml");
  ASSERT_TRUE(device.ok()) << device.error().message;
  const AddressMap map(*device);
  for (std::uint64_t line = 0; line < map.lines(); ++line) {
    const Place place = map.place(line);
    EXPECT_LT(place.channel, 2U);
    EXPECT_LT(place.bank, 16U);
    EXPECT_LT(place.row, 16U);
    EXPECT_LT(place.column, 8U);
    EXPECT_EQ(map.line_at(place), line);
  }
  EXPECT_EQ(map.place(8), (Place{1, 0, 0, 0}));   // the next row's worth: the other channel
  EXPECT_EQ(map.place(16), (Place{0, 1, 0, 0}));  // then the next bank
}

}  // namespace
}  // namespace perdure::memsys
