// Who listens is told, one message at a time, until somebody else listens.
#include <gtest/gtest.h>
#include <perdure/messages.h>
#include <perdure/time_counts.h>

#include <string>
#include <thread>
#include <vector>

#include "core/log_message.h"

namespace perdure {
namespace {

TEST(Messages, AreToldOneAtATimeUntilNobodyListens) {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  // Neither is atomic: the library calls once at a time, and not any more when it says so.
  int told = 0;
  std::string last;
  set_message_callback([&](Severity severity, const std::string& message) {
    ++told;
    last = message;
    EXPECT_EQ(severity, Severity::Info);
  });
  std::vector<std::thread> threads;
  for (int index = 0; index < kThreads; ++index) {
    threads.emplace_back([] {
      for (int count = 0; count < kEach; ++count) log_message(Severity::Info, "a message");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, kThreads * kEach);
  EXPECT_EQ(last, "a message");

  std::thread more([] {
    for (int count = 0; count < kEach; ++count) log_message(Severity::Info, "another");
  });
  set_message_callback({});
  const int then = told;
  more.join();
  EXPECT_EQ(told, then);
}

TEST(Messages, WhatACallbackWouldSayItselfIsDiscarded) {
  std::vector<std::string> told;
  set_message_callback([&](Severity, const std::string& message) {
    told.push_back(message);
    log_message(Severity::Warning, "inside");
  });
  log_message(Severity::Warning, "first");
  log_message(Severity::Warning, "second");
  set_message_callback({});
  EXPECT_EQ(told, (std::vector<std::string>{"first", "second"}));
}

TEST(TimeCounts, QuantilesAreTheEndsOfTheirClasses) {
  using std::chrono::microseconds;
  using std::chrono::nanoseconds;
  TimeCounts counts;
  EXPECT_EQ(counts.quantile(0.5), nanoseconds{0});
  for (int i = 0; i < 98; ++i) counts.add(microseconds(30));
  counts.add(microseconds(50));
  counts.add(std::chrono::seconds(11));
  EXPECT_EQ(counts.count(), 100u);
  EXPECT_EQ(counts.quantile(0.01), microseconds(50));
  EXPECT_EQ(counts.quantile(0.5), microseconds(50));
  EXPECT_EQ(counts.quantile(0.99), microseconds(50));
  EXPECT_EQ(counts.quantile(1.0), nanoseconds::max());
  TimeCounts twice = counts;
  twice += counts;
  EXPECT_EQ(twice.count(), 200u);
  EXPECT_EQ(twice.sum_ns, 2 * counts.sum_ns);
}

}  // namespace
}  // namespace perdure
