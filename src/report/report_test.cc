// What reports rest on: counting latencies, writing numbers, and pages that need nothing else.
#include "core/random.h"
#include "report/charts.h"
#include "report/histogram.h"
#include "report/page.h"
#include "report/progress.h"
#include "report/svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

namespace perdure::report {
namespace {

/// What was written to a file that is no terminal.
std::string written(std::FILE* file) {
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(Progress, ALongRunIsNotSilentWithoutATerminal) {
  ManualClock clock;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  ASSERT_NE(file, nullptr);
  ProgressBar bar(10, file.get(), clock);
  for (int second = 1; second < 10; ++second) {
    clock.advance(std::chrono::seconds(1));
    bar.show(1, "the first");
  }
  EXPECT_EQ(written(file.get()), "") << "a short run is";
  clock.advance(std::chrono::seconds(1));
  bar.show(2, "the second");
  bar.show(2, "the second");
  clock.advance(std::chrono::seconds(15));
  bar.show(5, "the third");
  bar.clear();
  EXPECT_EQ(written(file.get()), "20 %: the second, 40 s left\n50 %: the third, 25 s left\n");
}

TEST(Histogram, QuantilesAreWithinOnePercentOfTheSortedValues) {
  Random random(0x5eed);
  Histogram histogram;
  std::vector<std::int64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    // Spread over nine decades.
    const auto value = static_cast<std::int64_t>(random.next() >> (24 + random.below(32)));
    values.push_back(value);
    histogram.add(Nanoseconds(value));
  }
  std::sort(values.begin(), values.end());
  for (const double fraction : {0.0001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999}) {
    const auto rank = static_cast<std::size_t>(std::ceil(fraction * 20'000)) - 1;
    const auto exact = static_cast<double>(values[rank]);
    const auto found = static_cast<double>(histogram.quantile(fraction).count());
    EXPECT_GE(found, exact) << fraction;
    EXPECT_LE(found, exact * 1.0079 + 1) << fraction;
  }
  EXPECT_EQ(histogram.quantile(1).count(), values.back());
  EXPECT_EQ(histogram.min().count(), values.front());
  EXPECT_EQ(histogram.count(), 20'000u);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (int value = 1; value <= 100; ++value) histogram.add(Nanoseconds(value));
  EXPECT_EQ(histogram.quantile(0.5).count(), 50);
  EXPECT_EQ(histogram.quantile(0.99).count(), 99);
  EXPECT_EQ(histogram.mean().count(), 51);  // 50.5 rounded
}

TEST(Histogram, BeyondTheLastBucketOnlyTheMaximumIsExact) {
  Histogram histogram;
  const Nanoseconds longest(std::int64_t{1} << 50);
  histogram.add(longest);
  histogram.add(Nanoseconds(-5));
  EXPECT_EQ(histogram.max(), longest);
  EXPECT_EQ(histogram.quantile(0.5).count(), 0);
}

TEST(Histogram, AddingTwoIsLikeAddingAllValues) {
  Histogram low;
  Histogram high;
  Histogram all;
  for (int i = 0; i < 1000; ++i) {
    low.add(Nanoseconds(i));
    high.add(Nanoseconds(1'000'000 + i));
    all.add(Nanoseconds(i));
    all.add(Nanoseconds(1'000'000 + i));
  }
  low.add(high);
  low.add(Histogram{});  // nothing changes nothing
  for (const double fraction : {0.001, 0.5, 0.75, 1.0}) {
    EXPECT_EQ(low.quantile(fraction), all.quantile(fraction));
  }
  EXPECT_EQ(low.min(), all.min());
  EXPECT_EQ(low.mean(), all.mean());
}

TEST(Numbers, HaveThreeDigitsAndUnitsThatSuit) {
  EXPECT_EQ(figure(0.01234), "0.0123");
  EXPECT_EQ(figure(8.9), "8.90");
  EXPECT_EQ(figure(123.4), "123");
  EXPECT_EQ(figure(-1234567), "-1,234,567");
  EXPECT_EQ(microseconds(Nanoseconds(512)), "0.512");
  EXPECT_EQ(duration_text(Nanoseconds(870)), "870 ns");
  EXPECT_EQ(duration_text(Nanoseconds(8'900)), "8.90 us");
  EXPECT_EQ(duration_text(Nanoseconds(12'300'000)), "12.3 ms");
  EXPECT_EQ(grouped(1'234'567), "1,234,567");
  EXPECT_EQ(grouped(999), "999");
}

TEST(SizeChart, FileStandsAloneWithoutVariables) {
  SizeChart chart;
  chart.title = "cost & size";
  chart.unit = "us";
  chart.series = {{"one", {{1, 10}, {1 << 20, 2000}}}, {"two", {{1, 20}, {1 << 20, 1000}}}};
  chart.marks = {{4096, "from 4096 bytes: two"}};
  const std::string svg = to_svg_file(chart);
  for (const char* expected :
       {"width=\"1100\"", "cost &amp; size", "class=\"curve stroke2\"", ">64 KiB</text>",
        ">1 MiB</text>", ">1000</text>", "from 4096 bytes: two", ".stroke2 { stroke: #e07b22; }"}) {
    EXPECT_NE(svg.find(expected), std::string::npos) << expected;
  }
  EXPECT_EQ(svg.find("var("), std::string::npos);
  EXPECT_EQ(svg.rfind("</svg>\n"), svg.size() - 7);
}

TEST(Table, IsAlignedAsTextAndQuotedAsCsv) {
  const Table table{{{"method", false}, {"p50, us", true}},
                    {{"send \"a\"", "8.90"}, {"w,f", "10"}}};
  EXPECT_EQ(table.text(),
            "method    p50, us\n"
            "--------  -------\n"
            "send \"a\"     8.90\n"
            "w,f            10\n");
  EXPECT_EQ(table.csv(),
            "method,\"p50, us\"\n"
            "\"send \"\"a\"\"\",8.90\n"
            "\"w,f\",10\n");
}

TEST(Axis, EndsOnRoundNumbersThatHoldAllValues) {
  const Axis linear = Axis::linear(47, 0, 100);
  EXPECT_EQ(linear.high(), 50);
  EXPECT_EQ(linear.ticks().size(), 6u);
  EXPECT_DOUBLE_EQ(linear.at(25), 50);
  const Axis logarithmic = Axis::logarithmic(3, 2000, 0, 100);
  EXPECT_DOUBLE_EQ(logarithmic.low(), 1);
  EXPECT_DOUBLE_EQ(logarithmic.high(), 10'000);
  EXPECT_NEAR(logarithmic.at(100), 50, 1e-9);
}

/// Whether every element that is opened is closed, in order: enough of XML for what we write.
bool balanced(const std::string& markup) {
  std::vector<std::string> open;
  for (std::size_t at = markup.find('<'); at != std::string::npos; at = markup.find('<', at + 1)) {
    const std::size_t end = markup.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = markup.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /"));
    if (tag[0] == '!' || name == "meta" || tag.back() == '/') continue;
    if (tag[0] != '/') {
      open.push_back(name);
    } else if (open.empty() || tag.substr(1) != open.back()) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

Histogram some_latencies() {
  Histogram histogram;
  Random random(7);
  for (int i = 0; i < 5000; ++i) {
    histogram.add(Nanoseconds(8'000 + static_cast<std::int64_t>(random.below(3'000))));
  }
  return histogram;
}

TEST(Charts, AreWellFormedWhateverTheyAreGiven) {
  const Histogram latencies = some_latencies();
  EXPECT_TRUE(balanced(to_svg(PercentileChart{"a < b", {{"x & \"y\"", &latencies}}})));
  TimeChart time{"t", "records/s", {{"one", {{0, 1}, {1, 2}}, true}}, {{0.5, 0.5, "<kill>", true}}};
  EXPECT_TRUE(balanced(to_svg(time)));
  EXPECT_TRUE(balanced(to_svg(TimeChart{})));
  BarChart bars;
  bars.bar_names = {"write"};
  bars.panels = {{"dmp", {{"on\ndram", {{3.5, "h>", 3, 4}}}}}};
  EXPECT_TRUE(balanced(to_svg(bars)));
  EXPECT_TRUE(balanced(to_svg(BarChart{})));
}

TEST(ReportPage, NeedsNothingFromOutsideAndIsWellFormed) {
  const Histogram latencies = some_latencies();
  ReportPage page("A <title>", "A `lead` & more");
  page.verdict(true, "nothing was lost");
  page.tiles({{"8.90 us", "p50", Origin::Measured}});
  page.heading("Latency");
  page.list({"one", "two `three"});
  page.drawing(to_svg(PercentileChart{"latency", {{"durable", &latencies}}}), Origin::Emulated,
               "x");
  page.table({{{"a", false}}, {{"<b>"}}}, Origin::Simulated, "y");
  page.begin_details("more");
  page.preformatted("<script>");
  page.end_details();
  page.setup(machine_setup());
  const std::string html = page.html();
  EXPECT_TRUE(balanced(html.substr(html.find("<html"))));
  for (const char* outside : {"<script", "src=", "href=", "url(", "@import", "<link", "<img"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  for (const char* label : {"measured", "emulated", "simulated"}) {
    EXPECT_NE(html.find(std::string("class=\"origin ") + label), std::string::npos) << label;
  }
}

TEST(Setup, NamesTheCommitAndHashesConfigurations) {
  const std::string text = machine_setup().text();
  for (const char* name : {"Commit: ", "Build: ", "Processor: ", "Kernel: "}) {
    EXPECT_NE(text.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(configuration_hash(""), "cbf29ce484222325");
  EXPECT_EQ(configuration_hash("a"), "af63dc4c8601ec8c");  // published test vector of FNV-1a
  EXPECT_NE(configuration_hash("window 1"), configuration_hash("window 2"));
}

}  // namespace
}  // namespace perdure::report
