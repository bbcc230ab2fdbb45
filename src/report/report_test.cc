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
  EXPECT_DOUBLE_EQ(logarithmic.low(), 2);
  EXPECT_DOUBLE_EQ(logarithmic.high(), 2000);
  EXPECT_NEAR(logarithmic.at(std::sqrt(2.0 * 2000)), 50, 1e-9);
  const Axis narrow = Axis::logarithmic(3, 3, 0, 100);
  EXPECT_DOUBLE_EQ(narrow.low(), 2);
  EXPECT_DOUBLE_EQ(narrow.high(), 5);
  const Axis exact = Axis::logarithmic(0.001, 10, 0, 100);
  EXPECT_DOUBLE_EQ(exact.low(), 0.001);
  EXPECT_DOUBLE_EQ(exact.high(), 10);
  // Both ends have a label, and so have all powers of ten between.
  for (const Axis* axis : {&logarithmic, &narrow, &exact}) {
    EXPECT_TRUE(axis->ticks().front().major);
    EXPECT_TRUE(axis->ticks().back().major);
    EXPECT_DOUBLE_EQ(axis->ticks().back().value, axis->high());
  }
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

/// What stands between `begin` and `end`, wherever that is.
std::vector<std::string> parts_of(const std::string& text, const std::string& begin,
                                  const std::string& end) {
  std::vector<std::string> parts;
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    const std::size_t from = at + begin.size();
    parts.push_back(text.substr(from, text.find(end, from) - from));
  }
  return parts;
}

/// The heights of the bars of a colour.
std::vector<double> bar_heights(const std::string& svg, const std::string& css) {
  std::vector<double> heights;
  for (const std::string& rect : parts_of(svg, "<rect", ">")) {
    if (parts_of(rect, "class=\"", "\"")[0] != css) continue;
    heights.push_back(std::stod(parts_of(rect, "height=\"", "\"")[0]));
  }
  return heights;
}

TEST(Charts, AnOutlierDoesNotFlattenTheOthers) {
  BarChart chart{"t", "us", {"one"}, {{"panel", {}}}, 1};
  for (const double value : {2.0, 2.1, 1.9, 2.2, 8000.0}) {
    chart.panels[0].groups.push_back({"", {{value, "", 0, 0}}});
  }
  const std::string cut = to_svg(chart);
  auto heights = bar_heights(cut, "fill1");
  ASSERT_EQ(heights.size(), 6u) << "the legend's, and five";
  EXPECT_GT(heights[1], 100) << "of 190";
  EXPECT_GT(heights[2], heights[1]);
  EXPECT_NE(cut.find("class=\"break\""), std::string::npos);
  EXPECT_NE(cut.find(">8000<"), std::string::npos) << "what was cut off is written on it";

  // Two kinds of bars, as many of each: none of them is an outlier.
  chart.panels[0].groups.resize(4);
  chart.panels[0].groups[2].bars[0].value = chart.panels[0].groups[3].bars[0].value = 100;
  EXPECT_EQ(to_svg(chart).find("class=\"break\""), std::string::npos);

  // One round of many took much longer: its whisker is cut off, and says so.
  chart.panels[0].groups = {{"", {{2.0, "", 1.9, 8000.0}}}, {"", {{2.5, "", 2.4, 2.6}}}};
  const std::string whisker = to_svg(chart);
  EXPECT_GT(bar_heights(whisker, "fill1")[1], 80);
  EXPECT_NE(whisker.find(">to 8000<"), std::string::npos);
}

TEST(Charts, CurvesThatLieOnEachOtherAreAllSeen) {
  TimeChart chart{"t", "MiB", {}, {}};
  chart.series.push_back({"one", {{0, 0}, {1, 1}, {2, 3}}, false});
  chart.series.push_back({"apart", {{0, 3}, {1, 2}, {2, 1}}, false});
  chart.series.push_back({"on one", chart.series[0].points, false});
  chart.series.push_back({"on both", chart.series[0].points, false});
  const std::string svg = to_svg(chart);
  EXPECT_NE(svg.find("\"curve stroke1\""), std::string::npos);
  EXPECT_NE(svg.find("\"curve stroke2\""), std::string::npos) << "it crosses the first";
  EXPECT_NE(svg.find("\"curve stroke3 over1\""), std::string::npos);
  EXPECT_NE(svg.find("\"curve stroke4 over2\""), std::string::npos);
}

TEST(Charts, LongIdleTimesAreCutOutOfTheAxis) {
  TimeChart chart{"t", "records/s", {{"one", {}, false}}, {}};
  for (int i = 0; i <= 100; ++i) {
    // One second of work, eight of nothing, one of work.
    const double seconds = i / 10.0;
    chart.series[0].points.emplace_back(seconds, i > 10 && i < 90 ? 0 : 1 + i % 2);
  }
  const std::string svg = to_svg(chart);
  EXPECT_NE(svg.find("s idle<"), std::string::npos);
  EXPECT_EQ(svg.find(">5 s<"), std::string::npos) << "it is inside of what was cut out";
  EXPECT_NE(svg.find(">10 s<"), std::string::npos);
  // The first second has more than a tenth of the width now.
  const std::string path = parts_of(svg, "<path d=\"M", "\"")[0];
  const double tenth = std::stod(parts_of(path, "L", ",")[9]);
  EXPECT_GT(tenth, 250) << path;
  for (auto& point : chart.series[0].points)
    point.second = 1 + static_cast<int>(point.first * 10) % 2;
  EXPECT_EQ(to_svg(chart).find("s idle<"), std::string::npos) << "it works all the time";
  chart.series[0].points = {{0, 0}, {10, 5}};
  EXPECT_EQ(to_svg(chart).find("s idle<"), std::string::npos) << "so does what rises steadily";
}

TEST(Charts, AFewHighValuesMakeTheAxisLogarithmic) {
  TimeChart chart{"t", "records/s", {{"one", {}, true}}, {}};
  for (int i = 0; i < 50; ++i) chart.series[0].points.emplace_back(i, i == 30 ? 250'000 : 4000 + i);
  chart.series[0].points.emplace_back(50, 0);
  const std::string svg = to_svg(chart);
  EXPECT_NE(svg.find(">\u2264 2000<"), std::string::npos) << svg.substr(0, 2000);
  EXPECT_NE(svg.find(">100k<"), std::string::npos);
  for (auto& point : chart.series[0].points) point.second = std::min(point.second, 9000.0);
  EXPECT_EQ(to_svg(chart).find("\u2264"), std::string::npos);
}

TEST(Charts, LabelsOfMarksCrossNoLineAndNoLabel) {
  TimeChart chart{"t", "", {{"one", {{0, 1}, {10, 2}}, false}}, {}};
  for (const double at : {3.0, 3.1, 3.2, 3.3, 9.7, 9.9}) {
    chart.marks.push_back({at, 0, "something happens", false});
  }
  struct Label {
    double begin, end, y, line_x, line_top;
  };
  std::vector<Label> labels;
  for (const std::string& mark : parts_of(to_svg(chart), "class=\"mark good\"", "</text>")) {
    const double x = std::stod(parts_of(mark, "x=\"", "\"")[0]);
    const double y = std::stod(parts_of(mark, "y=\"", "\"")[0]);
    const bool left = mark.find("text-anchor=\"end\"") != std::string::npos;
    const double width = 6.0 * 17;
    labels.push_back({left ? x - width : x, left ? x : x + width, y, left ? x + 4 : x - 4, y - 9});
  }
  ASSERT_EQ(labels.size(), 6u);
  for (const Label& one : labels) {
    for (const Label& other : labels) {
      if (&one == &other) continue;
      const bool crossed =
          other.line_x > one.begin && other.line_x < one.end && other.line_top < one.y;
      EXPECT_FALSE(crossed) << one.begin << " by the line at " << other.line_x;
      EXPECT_FALSE(one.y == other.y && one.begin < other.end && other.begin < one.end);
    }
  }
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
