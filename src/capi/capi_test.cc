// The C interface refuses what C lets through, and says what was wrong.
#include <gtest/gtest.h>
#include <perdure/perdure.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "testing/temporary_directory.h"

namespace {

TEST(CInterface, EveryCodeHasAName) {
  for (int code = PERDURE_OK; code <= PERDURE_SYSTEM_ERROR; ++code) {
    EXPECT_STRNE(perdure_code_name(static_cast<perdure_code>(code)), "unknown") << code;
  }
  EXPECT_STREQ(perdure_code_name(PERDURE_LOG_FULL), "log-full");
}

// A later field may be made of them: then it asks for something that this library does not have.
TEST(CInterface, ReservedBytesThatAreSetAreRefused) {
  perdure_log* log = nullptr;
  perdure_log_options options{};
  options.size = sizeof options;
  options.pool = "p";
  options.reserved = 7;  // was padding, and has always been passed over
  EXPECT_EQ(perdure_log_open(&options, &log), PERDURE_INVALID_ARGUMENT);
  const std::string otherwise = perdure_last_error();
  EXPECT_EQ(otherwise.find("does not know"), std::string::npos) << otherwise;
  options.reserved_too[6] = 1;
  EXPECT_EQ(perdure_log_open(&options, &log), PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(perdure_last_error()).find("does not know"), std::string::npos);
  perdure_rpc_client* client = nullptr;
  perdure_rpc_client_options calls{};
  calls.size = sizeof calls;
  calls.server = "127.0.0.1:1";
  calls.reserved = 1;
  EXPECT_EQ(perdure_rpc_client_open(&calls, &client), PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(perdure_last_error()).find("does not know"), std::string::npos);
}

// A thread's variables are gone when handlers of exit() run.
TEST(CInterface, FailsWithWordsInHandlersOfExit) {
  const auto fails = [] {
    EXPECT_EQ(perdure_log_open_file("/nowhere/log.toml", nullptr), PERDURE_INVALID_ARGUMENT);
    perdure_log* log = nullptr;
    EXPECT_EQ(perdure_log_open_file("/nowhere/log.toml", &log), PERDURE_NOT_FOUND);
  };
  const auto fail_at_exit = [] {
    perdure_log* log = nullptr;
    const bool failed = perdure_log_open_file("/nowhere/else.toml", &log) == PERDURE_NOT_FOUND;
    const bool said = std::strstr(perdure_last_error(), "else.toml") != nullptr;
    if (!failed || !said || std::strlen(perdure_finished_message(0)) != 0) ::_exit(1);
  };
  EXPECT_EXIT(
      {
        fails();
        std::atexit(fail_at_exit);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(CInterface, AReaderIsOpenedByItsOwnWordsOnly) {
  perdure_reader* reader = nullptr;
  const char* const words = "perdure://a:1/p";
  EXPECT_EQ(perdure_reader_open_file(nullptr, &reader), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_open_file("/nowhere/reader.toml", nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_open_file("/nowhere/reader.toml", &reader), PERDURE_NOT_FOUND);
  EXPECT_EQ(perdure_reader_open_string(nullptr, &reader), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_open_string(words, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_open_string("perdure://a:1/p?take_over=true", &reader),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(perdure_last_error(), "a reader has no option"), nullptr);
  EXPECT_EQ(reader, nullptr);
}

TEST(CInterface, NullIsRefusedEverywhere) {
  perdure_log* log = nullptr;
  perdure_reader* reader = nullptr;
  perdure_ticket ticket{};
  bool found = false;
  perdure_record record{};
  perdure_log_options options{};
  options.size = sizeof options;
  EXPECT_EQ(perdure_log_open(nullptr, &log), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_open(&options, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_open(&options, &log), PERDURE_INVALID_ARGUMENT);  // no pool
  EXPECT_EQ(perdure_log_append(nullptr, "x", 1, &ticket), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_wait(nullptr, &ticket, PERDURE_DURABLE, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_poll(nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_trim(nullptr, 0), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_repair(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_get_status(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  void* room = nullptr;
  std::size_t there = 0;
  perdure_log_end end{};
  EXPECT_EQ(perdure_log_append_pieces(nullptr, nullptr, 0, &ticket), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_claim(nullptr, 1, &room), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_append_claimed(nullptr, 1, &ticket), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_reached(nullptr, &ticket, PERDURE_DURABLE, &found),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_poll_within(nullptr, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_close_within(nullptr, 1), PERDURE_OK);
  EXPECT_EQ(perdure_log_repair_within(nullptr, 1, nullptr, 0, &there), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_take_repairs(nullptr, nullptr, 0, &there), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_get_replicas(nullptr, nullptr, 0, &there), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_add_replica(nullptr, "a:1", 0), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_remove_replica(nullptr, "a:1", 0), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_replace_replica(nullptr, "a:1", "b:1"), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_change_quorum(nullptr, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_get_end(nullptr, &end), PERDURE_INVALID_ARGUMENT);
  EXPECT_STREQ(perdure_reader_peer(nullptr), "");
  EXPECT_EQ(perdure_region_get_replicas(nullptr, nullptr, 0, &there), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_region_get_times(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_pool_close("p", nullptr, 0), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_pool_open(nullptr, "p", 0, nullptr), PERDURE_INVALID_ARGUMENT);
  perdure_reader_options reading{};
  EXPECT_EQ(perdure_reader_open(nullptr, &reader), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_open(&reading, &reader), PERDURE_INVALID_ARGUMENT);  // no size
  reading.size = sizeof reading;
  EXPECT_EQ(perdure_reader_open(&reading, &reader), PERDURE_INVALID_ARGUMENT);  // no peers
  EXPECT_EQ(perdure_log_reader(nullptr, &reading, &reader), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_get_position(nullptr, nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  perdure_log_times times{};
  EXPECT_EQ(perdure_log_get_times(nullptr, &times), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_time_quantile_ns(nullptr, 0.5), 0u);
  EXPECT_EQ(perdure_log_open_file(nullptr, &log), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_open_file("/nowhere/log.toml", &log), PERDURE_NOT_FOUND);
  EXPECT_EQ(perdure_pool_create(nullptr, "p", 1, true, 0, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_pool_describe("p", nullptr, 0, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_pool_delete("p", "p", nullptr, 0), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_reader_next(nullptr, &record, &found), PERDURE_INVALID_ARGUMENT);
  perdure_log_close(nullptr);
  perdure_reader_close(nullptr);
}

TEST(CInterface, APoolIsNotAskedForInOptionsThatMakeNoSense) {
  struct Newer {
    perdure_pool_create_options options;
    std::uint64_t unknown;
  } newer{};
  perdure_pool_create_options& options = newer.options;
  const auto made = [&options] { return perdure_pool_create_with(&options, nullptr); };
  const auto said = [](const char* part) {
    return std::strstr(perdure_last_error(), part) != nullptr;
  };
  EXPECT_EQ(perdure_pool_create_with(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  options.peer = "127.0.0.1:1";
  options.name = "p";
  options.bytes = 4096;
  options.small = true;
  EXPECT_EQ(made(), PERDURE_INVALID_ARGUMENT);  // no size
  options.size = sizeof options;
  EXPECT_EQ(made(), PERDURE_DISCONNECTED);
  for (const char* const wrong : {"none", "moon", ""}) {
    options.required_domain = wrong;
    EXPECT_EQ(made(), PERDURE_INVALID_ARGUMENT) << wrong;
    EXPECT_TRUE(said("use one of: page, dmp, mhp, wsp")) << perdure_last_error();
  }
  options.required_domain = nullptr;
  options.receive_buffers = "disk";
  EXPECT_EQ(made(), PERDURE_INVALID_ARGUMENT);
  EXPECT_TRUE(said("use one of: dram, pm")) << perdure_last_error();
  // Of a header that ends before them, they are none of the library's business.
  options.required_domain = "moon";
  options.size = offsetof(perdure_pool_create_options, required_domain);
  options.timeout_ms = 30'000;
  EXPECT_EQ(made(), PERDURE_INVALID_ARGUMENT);  // without `small`
  EXPECT_TRUE(said("a log takes")) << perdure_last_error();
  options.required_domain = options.receive_buffers = nullptr;
  options.size = sizeof newer;
  EXPECT_EQ(made(), PERDURE_DISCONNECTED);
  newer.unknown = 1;
  EXPECT_EQ(made(), PERDURE_INVALID_ARGUMENT);
  options.name = nullptr;
  options.size = sizeof options;
  EXPECT_EQ(made(), PERDURE_INVALID_ARGUMENT);
  EXPECT_TRUE(said("peer and name")) << perdure_last_error();
}

TEST(CInterface, AMirrorThatIsNotThereOrMakesNoSenseIsRefused) {
  perdure_mirror* mirror = nullptr;
  std::uint64_t ticket = 0;
  std::size_t there = 0;
  bool yes = false;
  EXPECT_EQ(perdure_mirror_persist(nullptr, 0, 1, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_deep_persist(nullptr, 0, 1, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_flush(nullptr, 0, 1, &ticket), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_wait(nullptr, 1, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_drain(nullptr, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_reached(nullptr, 1, &yes), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_flush_ordered(nullptr, nullptr, 0, &ticket), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_write(nullptr, nullptr, 0, &ticket), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_write_atomic(nullptr, 0, 1, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_read(nullptr, 0, &ticket, 8, 0), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_wait_in_sync(nullptr, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_get_status(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_get_times(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_get_replicas(nullptr, nullptr, 0, &there), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_memory(nullptr, &there), nullptr);
  EXPECT_EQ(perdure_mirror_close(nullptr, 1), PERDURE_OK);

  const char* const peers[] = {"127.0.0.1:1"};
  char memory[4096] = {};
  perdure_mirror_options options{};
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_INVALID_ARGUMENT);  // no size
  options.size = sizeof options;
  options.peers = peers;
  options.peer_count = 1;
  options.pool = "p";
  options.transport = "tcp";
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_INVALID_ARGUMENT);  // no memory
  options.memory = memory;
  options.memory_bytes = sizeof memory;
  options.start = "somewhere";
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(perdure_last_error(), "replicas"), nullptr) << perdure_last_error();
  options.start = nullptr;
  options.memory_domain = "moon";
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_INVALID_ARGUMENT);
  options.memory_domain = nullptr;
  options.create_bytes = 1;
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_INVALID_ARGUMENT);
  options.create_bytes = 0;
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_QUORUM_LOST) << perdure_last_error();
  // What is kept beside the file that the memory is of says that only a part was copied into it.
  const perdure::test::TestDirectory place;
  const std::string mapped = place.file("tree");
  std::ofstream(mapped + ".mirror")
      << "perdure mirror 1\nid 0000000000000001\nepoch 00000001\nwhole 0\n";
  options.memory_file = mapped.c_str();
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(perdure_last_error(), "not whole"), nullptr) << perdure_last_error();
  options.file = "/nowhere/tree";
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_INVALID_ARGUMENT);  // both
  options.memory = nullptr;
  options.memory_bytes = 0;
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_INVALID_ARGUMENT);  // memory_file
  options.memory_file = nullptr;
  EXPECT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_NOT_FOUND) << perdure_last_error();
  EXPECT_EQ(mirror, nullptr);
}

TEST(CInterface, AnUnreachablePeerIsAnErrorWithItsName) {
  const char* const peers[] = {"127.0.0.1:1"};
  perdure_log_options options{};
  options.size = sizeof options;
  options.peers = peers;
  options.peer_count = 1;
  options.pool = "p";
  options.transport = "tcp";
  perdure_log* log = nullptr;
  EXPECT_EQ(perdure_log_open(&options, &log), PERDURE_QUORUM_LOST);
  EXPECT_EQ(log, nullptr);
  EXPECT_NE(std::strstr(perdure_last_error(), "127.0.0.1:1"), nullptr) << perdure_last_error();
}

// A program that was compiled with an older header: its struct ends earlier, and what lies behind
// it is none of the library's business.
TEST(CInterface, OptionsOfAnOlderHeaderAreTaken) {
  constexpr std::size_t kOlder = offsetof(perdure_log_options, rnic);
  const char* const peers[] = {"127.0.0.1:1"};
  perdure_log_options options;
  std::memset(&options, 0x5a, sizeof options);
  std::memset(&options, 0, kOlder);
  options.size = kOlder;
  options.peers = peers;
  options.peer_count = 1;
  options.pool = "p";
  perdure_log* log = nullptr;
  EXPECT_EQ(perdure_log_open(&options, &log), PERDURE_QUORUM_LOST) << perdure_last_error();
  options.size = 0;
  EXPECT_EQ(perdure_log_open(&options, &log), PERDURE_INVALID_ARGUMENT);
}

// And one with a newer header: what it does not set is no matter, what it sets would be ignored.
TEST(CInterface, OptionsOfANewerHeaderAreTakenUnlessTheyAreSet) {
  struct Newer {
    perdure_log_options options;
    std::uint64_t unknown;
  } newer{};
  const char* const peers[] = {"127.0.0.1:1"};
  newer.options.size = sizeof newer;
  newer.options.peers = peers;
  newer.options.peer_count = 1;
  newer.options.pool = "p";
  perdure_log* log = nullptr;
  EXPECT_EQ(perdure_log_open(&newer.options, &log), PERDURE_QUORUM_LOST) << perdure_last_error();
  newer.unknown = 1;
  EXPECT_EQ(perdure_log_open(&newer.options, &log), PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(perdure_last_error(), "does not know"), nullptr);
}

TEST(CInterface, AConnectionStringSaysWhatIsWrong) {
  perdure_log* log = nullptr;
  EXPECT_EQ(perdure_log_open_string("perdure://127.0.0.1:1/p?colour=red", &log),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(perdure_last_error(), "colour"), nullptr);
  EXPECT_EQ(perdure_log_open_string("perdure://127.0.0.1:1/p", &log), PERDURE_QUORUM_LOST);
  EXPECT_EQ(perdure_log_open_string(nullptr, &log), PERDURE_INVALID_ARGUMENT);
}

TEST(CInterface, AWriterThatIsNotThereIsRefused) {
  perdure_log_writer* writer = nullptr;
  perdure_ticket ticket{};
  perdure_finished finished{};
  perdure_log_status status{};
  std::size_t taken = 0;
  EXPECT_EQ(perdure_log_writer_open(nullptr, false, &writer), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_commit(nullptr, "x", 1, PERDURE_COMMITTED, 1, &ticket),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_submit(nullptr, "x", 1, 7, PERDURE_COMMITTED, 1),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_poll(nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_poll_within(nullptr, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_take(nullptr, &finished, 1, &taken), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_trim(nullptr, 64), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_get_status(nullptr, &status), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_completion_fd(nullptr), -1);
  EXPECT_EQ(perdure_log_writer_open_with(nullptr, nullptr, &writer), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_open_string(nullptr, nullptr, &writer), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_open_file(nullptr, nullptr, &writer), PERDURE_INVALID_ARGUMENT);
  perdure_log_writer_options how{};  // no size
  EXPECT_EQ(perdure_log_writer_open_string("perdure://a:1/p", &how, &writer),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_commit_pieces(nullptr, nullptr, 0, PERDURE_COMMITTED, 1, &ticket),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_submit_pieces(nullptr, nullptr, 0, 7, PERDURE_COMMITTED, 1),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_submit_calling(nullptr, nullptr, 0, 7, PERDURE_COMMITTED, 1, nullptr,
                                              nullptr),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_STREQ(perdure_finished_message(0), "");
  EXPECT_EQ(perdure_log_writer_close(nullptr, 1), PERDURE_OK);
}

TEST(CInterface, ClassesOfTimesEndWhereTheySay) {
  EXPECT_EQ(perdure_time_class_end_ns(0), 1'000u);
  EXPECT_EQ(perdure_time_class_end_ns(PERDURE_TIME_CLASSES - 2), 10'000'000'000u);
  EXPECT_EQ(perdure_time_class_end_ns(PERDURE_TIME_CLASSES - 1), UINT64_MAX);
  perdure_time_counts counts{};
  EXPECT_EQ(perdure_time_quantile_ns(&counts, 0.5), 0u);
  counts.classes[5] = 3;
  EXPECT_EQ(perdure_time_quantile_ns(&counts, 0.5), perdure_time_class_end_ns(5));
  counts.classes[PERDURE_TIME_CLASSES - 1] = 9;
  EXPECT_EQ(perdure_time_quantile_ns(&counts, 0.5), UINT64_MAX);
}

TEST(CInterface, SaysItsVersion) {
  EXPECT_STREQ(perdure_version(), PERDURE_VERSION_STRING);
  EXPECT_EQ(perdure::version(), PERDURE_VERSION_STRING) << "in C++";
  const std::string numbers = std::to_string(PERDURE_VERSION_MAJOR) + "." +
                              std::to_string(PERDURE_VERSION_MINOR) + "." +
                              std::to_string(PERDURE_VERSION_PATCH);
  EXPECT_EQ(numbers, PERDURE_VERSION_STRING);
}

}  // namespace
