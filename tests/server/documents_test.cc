// The documents say what the daemon does: every counter, every key and every option is described.
// And the unit of systemd lets it do so.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "server/metrics.h"
#include "server/process_metrics.h"

namespace perdure::server {
namespace {

std::string contents(const std::string& file) {
  std::ifstream stream(std::string(PERDURE_SOURCE) + "/" + file);
  EXPECT_TRUE(stream.is_open()) << file;
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(Documents, EveryCounterIsInTheTable) {
  const std::string document = contents("docs/control-plane.md");
  std::istringstream text(metrics_text(control::ServiceReport{}) + metrics_text(HttpCounters{}) +
                          metrics_text(RpmemCounters{}) + process_metrics_text());
  std::set<std::string> counted;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string hash, kind, name, type;
    words >> hash >> kind >> name >> type;
    if (kind != "TYPE") continue;
    counted.insert(name);
    EXPECT_NE(document.find("| `" + name + "` | " + type + " |"), std::string::npos) << name;
  }
  EXPECT_GT(counted.size(), 10u);
  // And none that is not counted.
  for (std::size_t at = document.find("| `perdure_"); at != std::string::npos;
       at = document.find("| `perdure_", at + 1)) {
    const std::string name = document.substr(at + 3, document.find('`', at + 3) - at - 3);
    EXPECT_EQ(counted.count(name), 1u) << name;
  }
}

TEST(Documents, EveryKeyOfTheExampleIsInTheManual) {
  const std::string manual = contents("docs/man/perdured.8");
  std::istringstream example(contents("configs/perdured.toml"));
  int keys = 0;
  for (std::string line; std::getline(example, line);) {
    if (line.empty() || line[0] == '#' || line[0] == ' ') continue;
    if (line[0] == '[') {
      EXPECT_NE(manual.find(".SS " + line.substr(0, line.find(']') + 1)), std::string::npos)
          << line;
      continue;
    }
    const std::string key = line.substr(0, line.find(' '));
    const bool described = manual.find(".BR " + key + " \" = ") != std::string::npos ||
                           manual.find(" \", \" " + key + " \" = ") != std::string::npos ||
                           manual.find(", \" " + key + " \" = ") != std::string::npos;
    EXPECT_TRUE(described) << key;
    ++keys;
  }
  EXPECT_GT(keys, 15);
}

/// What perdured asks of the kernel and @system-service of systemd 252 does not have
/// (`systemd-analyze syscall-filter @system-service`).
constexpr const char* kBeyondSystemService[] = {"mincore"};

TEST(Documents, TheFilterOfTheUnitPassesWhatPerduredAsksOfTheKernel) {
  constexpr std::string_view kKey = "SystemCallFilter=";
  std::istringstream unit(contents("configs/perdured.service"));
  std::vector<std::string> passed;
  for (std::string line; std::getline(unit, line);) {
    if (line.rfind(kKey, 0) != 0) continue;
    ASSERT_NE(line[kKey.size()], '~') << "takes away from what is passed: " << line;
    std::istringstream words(line.substr(kKey.size()));
    for (std::string word; words >> word;) passed.push_back(word);
  }
  const auto passes = [&](const char* name) {
    return std::find(passed.begin(), passed.end(), name) != passed.end();
  };
  EXPECT_TRUE(passes("@system-service"));
  for (const char* name : kBeyondSystemService) EXPECT_TRUE(passes(name)) << name;
}

}  // namespace
}  // namespace perdure::server
