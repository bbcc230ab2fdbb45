// The C interface refuses what C lets through, and says what was wrong.
#include <gtest/gtest.h>
#include <perdure/perdure.h>

#include <cstring>

namespace {

TEST(CInterface, EveryCodeHasAName) {
  for (int code = PERDURE_OK; code <= PERDURE_SYSTEM_ERROR; ++code) {
    EXPECT_STRNE(perdure_code_name(static_cast<perdure_code>(code)), "unknown") << code;
  }
  EXPECT_STREQ(perdure_code_name(PERDURE_LOG_FULL), "log-full");
}

TEST(CInterface, NullIsRefusedEverywhere) {
  perdure_log* log = nullptr;
  perdure_reader* reader = nullptr;
  perdure_ticket ticket{};
  bool found = false;
  perdure_record record{};
  perdure_log_options options = perdure_log_options_default();
  EXPECT_TRUE(options.measure_costs);
  EXPECT_EQ(perdure_log_open(nullptr, &log), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_open(&options, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_open(&options, &log), PERDURE_INVALID_ARGUMENT);  // no pool
  EXPECT_EQ(perdure_log_append(nullptr, "x", 1, &ticket), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_wait(nullptr, &ticket, PERDURE_DURABLE, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_poll(nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_trim(nullptr, 0), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_repair(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_get_status(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_open(nullptr, "p", nullptr, 0, &reader), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_next(nullptr, &record, &found), PERDURE_INVALID_ARGUMENT);
  perdure_log_close(nullptr);
  perdure_reader_close(nullptr);
}

TEST(CInterface, AnUnreachablePeerIsAnErrorWithItsName) {
  const char* const peers[] = {"127.0.0.1:1"};
  perdure_log_options options = perdure_log_options_default();
  options.peers = peers;
  options.peer_count = 1;
  options.pool = "p";
  options.transport = "tcp";
  perdure_log* log = nullptr;
  EXPECT_EQ(perdure_log_open(&options, &log), PERDURE_QUORUM_LOST);
  EXPECT_EQ(log, nullptr);
  EXPECT_NE(std::strstr(perdure_last_error(), "127.0.0.1:1"), nullptr) << perdure_last_error();
}

}  // namespace
