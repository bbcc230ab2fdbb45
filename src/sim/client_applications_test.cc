// What a file of applications may say of their epochs.
#include "sim/client_applications.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>

namespace perdure::sim {
namespace {

/// One application of 42 epochs, with `more` lines.
std::string file_with(const std::string& more) {
  const auto key = [](const char* name, int value, const char* unit) {
    return fmt::format("{} = {{value = {}, unit = \"{}\", source = \"here\"}}\n", name, value,
                       unit);
  };
  return "[one]\n" + key("epochs", 42, "epochs") + key("epoch_bytes", 64, "bytes") +
         key("writes", 80, "%") + key("clients", 4, "clients") + key("published", 2, "times") +
         more;
}

std::string bound(const std::string& which, const std::string& value) {
  return fmt::format("epochs_{} = {{value = {}, unit = \"epochs\", source = \"here\"}}\n", which,
                     value);
}

TEST(ClientApplications, KnownEpochsComeBesideRecalledOnesOrNotAtAll) {
  const auto without = parse_client_applications(file_with(""), "a.toml");
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_EQ(without->front().epochs_least, 0U);
  EXPECT_EQ(without->front().epochs_most, 0U);
  const auto with =
      parse_client_applications(file_with(bound("least", "5") + bound("most", "50")), "a.toml");
  ASSERT_TRUE(with.ok()) << with.error().message;
  EXPECT_EQ(with->front().shape.epochs, 42U);
  EXPECT_EQ(with->front().epochs_least, 5U);
  EXPECT_EQ(with->front().epochs_most, 50U);
}

TEST(ClientApplications, BoundsOfEpochsThatSayNothingAreRefused) {
  for (const std::string& more :
       {bound("least", "5"), bound("most", "50"), bound("least", "50") + bound("most", "5"),
        bound("least", "1.5") + bound("most", "2"), bound("least", "0") + bound("most", "2"),
        bound("least", "1") + bound("most", "5000")}) {
    const auto refused = parse_client_applications(file_with(more), "a.toml");
    ASSERT_FALSE(refused.ok()) << more;
    EXPECT_NE(refused.error().message.find("a.toml:"), std::string::npos);
    EXPECT_NE(refused.error().message.find("epochs_"), std::string::npos);
  }
}

}  // namespace
}  // namespace perdure::sim
