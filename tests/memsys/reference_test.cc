// The judge itself: it must refuse what is one cycle too early.
#include "tests/memsys/reference.h"

#include <gtest/gtest.h>

#include "tests/memsys/bench_device.h"

namespace perdure::memsys {
namespace {

using enum CommandKind;

TEST(CommandJudge, RefusesEachCommandOneCycleTooEarly) {
  DeviceKeys keys = small_device();
  keys["ranks"] = "2";
  keys["mapping"] = "\"row:rank:bankgroup:bank:column\"";
  const Device device = device_of(keys);
  struct Case {
    Command first;
    Command second;
    Cycle gap;
  };
  const auto at = [](CommandKind kind, std::uint32_t bank) {
    return Command{0, kind, 0, bank, 0, 0};
  };
  // Banks 0 and 1 are one group, 2 and 3 the other of the rank; 4 is of the other rank.
  const Case cases[] = {
      {at(Activate, 0), at(Read, 0), 12},    {at(Activate, 0), at(Precharge, 0), 30},
      {at(Activate, 0), at(Activate, 1), 8}, {at(Activate, 0), at(Activate, 2), 5},
      {at(Activate, 0), at(Activate, 4), 1}, {at(Precharge, 0), at(Activate, 0), 13},
      {at(Read, 0), at(Read, 1), 6},         {at(Read, 0), at(Read, 2), 4},
      {at(Read, 0), at(Read, 4), 6},         {at(Read, 0), at(Write, 0), 8},
      {at(Read, 0), at(Precharge, 0), 7},    {at(Write, 0), at(Precharge, 0), 27},
      {at(Write, 0), at(Read, 0), 23},       {at(Write, 0), at(Read, 2), 16},
      {at(Write, 0), at(Read, 4), 4},        {at(Write, 0), at(Write, 1), 6},
      {at(Write, 0), at(Write, 4), 6},       {at(Precharge, 0), at(Refresh, 0), 13},
  };
  for (const Case& each : cases) {
    // All rows are open long before, except those that are to be opened.
    History history(device);
    for (std::uint32_t bank = 0; bank < 8; ++bank) {
      const bool closed = (bank == each.first.bank && (each.first.kind == Activate)) ||
                          (bank == each.second.bank && each.second.kind == Activate &&
                           each.first.kind != Precharge) ||
                          (each.second.kind == Refresh && bank != each.first.bank);
      if (!closed) history.add({bank * 100, Activate, 0, bank, 0, 0});
    }
    Command first = each.first;
    first.cycle = 5000;
    ASSERT_EQ(history.why_not(first).why, "");
    history.add(first);
    Command second = each.second;
    second.cycle = 5000 + each.gap;
    EXPECT_EQ(history.why_not(second).why, "") << to_string(second.kind) << " " << each.gap;
    --second.cycle;
    EXPECT_NE(history.why_not(second).why, "") << to_string(second.kind) << " " << each.gap;
  }
}

TEST(CommandJudge, RefusesAFifthActivateWithinTheWindow) {
  DeviceKeys keys = small_device();
  keys["banks"] = "4";
  keys["tFAW"] = "60";
  const Device device = device_of(keys);
  History history(device);
  for (std::uint32_t bank = 0; bank < 4; ++bank) history.add({bank * 8, Activate, 0, bank, 0, 0});
  EXPECT_NE(history.why_not({59, Activate, 0, 4, 0, 0}).why, "");
  EXPECT_EQ(history.why_not({60, Activate, 0, 4, 0, 0}).why, "");
}

}  // namespace
}  // namespace perdure::memsys
