// Who listens is told, one message at a time, until somebody else listens.
#include <gtest/gtest.h>
#include <perdure/messages.h>

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

}  // namespace
}  // namespace perdure
