// Set files, headers and configuration: what is read as PMDK reads it, and refused with its line.
#include "rpmem/set_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "rpmem/daemon_config.h"
#include "rpmem/part_header.h"
#include "testing/temporary_directory.h"

namespace perdure::rpmem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::string why(const std::string& text) {
  const auto set = parse_set_file(text, "x.set");
  return set.ok() ? "" : set.error().message;
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(SetFile, SizesAreThoseOfTheStandards) {
  //        word        bytes
  struct {
    const char* word;
    std::uint64_t bytes;
  } const cases[] = {
      {"4194304", 4194304},
      {"4194304B", 4194304},
      {"2M", 2 * kMiB},
      {"2MiB", 2 * kMiB},
      {"2MB", 2000000},
      {"1G", 1024 * kMiB},
      {"3GB", 3000000000},
      {"1T", kMiB << 20},
      {"5K", 5120},
      {"5kB", 0},
      {"5m", 0},
      {"", 0},
      {"M", 0},
      {"0", 0},
      {"2MBi", 0},
      {"-1", 0},
      {"2 M", 0},
      {"99999999999P", 0},
      {"18446744073709551616", 0},
  };
  for (const auto& each : cases) {
    const auto bytes = parse_part_size(each.word);
    EXPECT_EQ(bytes.ok(), each.bytes != 0) << each.word;
    EXPECT_EQ(bytes.ok() ? *bytes : 0, each.bytes) << each.word;
  }
}

TEST(SetFile, CommentsBlankLinesAndOptionsAreRead) {
  const auto set = parse_set_file(
      "PMEMPOOLSET\n# a comment\n\n \t\n  # another\nOPTION SINGLEHDR\n4M\t/a/p0 # behind\n8M "
      "/a/p1\n",
      "x.set");
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_TRUE(set->single_header);
  EXPECT_FALSE(set->no_headers);
  ASSERT_EQ(set->parts.size(), 2U);
  EXPECT_EQ(set->parts[1].path, "/a/p1");
  EXPECT_EQ(set->parts[1].line, 8U);
}

TEST(SetFile, PoolIsThePartsWithoutTheHeadersBehindTheFirst) {
  const std::string parts = "4M /a/p0\n8388609 /a/p1\n2M /a/p2\n";
  const auto usual = parse_set_file("PMEMPOOLSET\n" + parts, "x.set");
  const auto single = parse_set_file("PMEMPOOLSET\nOPTION SINGLEHDR\n" + parts, "x.set");
  const auto none = parse_set_file("PMEMPOOLSET\nOPTION NOHDRS\n" + parts, "x.set");
  ASSERT_TRUE(usual.ok() && single.ok() && none.ok());
  EXPECT_EQ(usual->pool_bytes(), 14 * kMiB - 2 * 4096);
  EXPECT_EQ(single->pool_bytes(), 14 * kMiB);
  EXPECT_EQ(none->pool_bytes(), 14 * kMiB);
  EXPECT_EQ(usual->data_at(0), 0U);
  EXPECT_EQ(usual->data_at(1), 4096U);
  EXPECT_EQ(single->data_at(1), 0U);
}

TEST(SetFile, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_NE(why("").find("x.set:1"), std::string::npos);
  EXPECT_NE(why("PMEMPOOL\n").find("x.set:1:"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\n").find("no parts"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\n4M a/b\n").find("x.set:2: the path 'a/b' is not absolute"),
            std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\n4Q /a\n").find("x.set:2"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\n1M /a\n").find("x.set:2"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\n\n4M /a b\n").find("x.set:3"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\n4M /a\nREPLICA\n4M /b\n").find("x.set:3"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\n4M /a\nREPLICA h b.set\n").find("x.set:3"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\nOPTION\n4M /a\n").find("x.set:2"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\nOPTION FAST\n4M /a\n").find("'FAST'"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\nOPTION NOHDRS SINGLEHDR\n4M /a\n").find("exclude"),
            std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\nAUTO /dev/dax0.0\n").find("x.set:2: AUTO"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\n4M /a/\n").find("directory"), std::string::npos);
  EXPECT_NE(why("PMEMPOOLSET\n4M /a\n4M /a\n").find("x.set:3: '/a' is there twice"),
            std::string::npos);
}

TEST(SetFile, NothingOutsideItsDirectoriesIsServed) {
  const test::TestDirectory home;
  const test::TestDirectory other;
  const SetDirectories only{home.path(), {}};
  write(home.file("in.set"), "PMEMPOOLSET\n4M " + home.file("p0") + "\n");
  write(home.file("out.set"), "PMEMPOOLSET\n4M " + other.file("p0") + "\n");
  write(home.file("climbs.set"), "PMEMPOOLSET\n4M " + home.path() + "/../p0\n");
  write(other.file("other.set"), "PMEMPOOLSET\n4M " + home.file("p0") + "\n");
  ASSERT_EQ(::symlink(other.file("other.set").c_str(), home.file("link.set").c_str()), 0);
  ASSERT_EQ(::symlink(other.path().c_str(), home.file("away").c_str()), 0);
  write(home.file("away.set"), "PMEMPOOLSET\n4M " + home.file("away/p0") + "\n");

  EXPECT_TRUE(read_set(only, "in.set").ok());
  //                    name                                      errno is that of
  EXPECT_EQ(read_set(only, "out.set").code(), ErrorCode::PermissionDenied);
  EXPECT_EQ(read_set(only, "climbs.set").code(), ErrorCode::PermissionDenied);
  EXPECT_EQ(read_set(only, "away.set").code(), ErrorCode::PermissionDenied);
  EXPECT_EQ(read_set(only, "link.set").code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(read_set(only, "../x.set").code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(read_set(only, home.file("in.set")).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(read_set(only, "").code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(read_set(only, "no.set").code(), ErrorCode::NotFound);
  // The operator may allow it.
  EXPECT_TRUE(read_set({home.path(), {other.path()}}, "out.set").ok());
}

TEST(PartHeader, IsReadAsItWasWritten) {
  PartHeader header;
  header.pool.signature = {'P', 'M', 'E', 'M', 'O', 'B', 'J', 0};
  header.pool.major = 6;
  header.pool.incompat = kChecksumOver2K;
  header.pool.uuid.fill(std::byte{7});
  header.pool.user_flags = architecture_of_this_machine();
  header.created = 5;
  for (const std::uint32_t flags : {0U, kChecksumOver2K}) {
    header.pool.incompat = flags;
    std::array<std::byte, kHeaderBytes> bytes{};
    encode_header(header, bytes);
    const auto read = decode_header(bytes);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, header);
    bytes[60] ^= std::byte{1};
    EXPECT_EQ(decode_header(bytes).code(), ErrorCode::Corrupt);
    bytes[60] ^= std::byte{1};
    bytes[3000] ^= std::byte{1};  // behind the first 2 KiB
    EXPECT_EQ(decode_header(bytes).ok(), flags == kChecksumOver2K);
  }
  const std::array<std::byte, kHeaderBytes> zeros{};
  EXPECT_EQ(decode_header(zeros).code(), ErrorCode::Corrupt);
}

TEST(DaemonConfig, IsReadAsPmdkReadsIt) {
  DaemonConfig config;
  const auto read = read_config(config, "# of rpmemd\nposet = 1\n", "c", "/home/me");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("c:2: poset: there is no such key"), std::string::npos);
  ASSERT_TRUE(read_config(config,
                          "poolset-dir = $HOME/sets\n persist-apm=yes\nlog-level = debug\n"
                          "log-file = /var/log/x  # there\npart-dir = /a\npart-dir = /b\n",
                          "c", "/home/me")
                  .ok());
  EXPECT_EQ(config.poolset_dir, "/home/me/sets");
  EXPECT_TRUE(config.persist_apm);
  EXPECT_EQ(config.log_level, LogLevel::Debug);
  EXPECT_EQ(config.log_file, "/var/log/x");
  EXPECT_FALSE(config.use_syslog);
  EXPECT_EQ(config.part_dirs.size(), 2U);
  EXPECT_FALSE(read_config(config, "poolset-dir = sets\n", "c", "/home/me").ok());
  EXPECT_FALSE(read_config(config, "persist-apm = 1\n", "c", "/home/me").ok());
  EXPECT_FALSE(read_config(config, "persist-apm\n", "c", "/home/me").ok());
}

}  // namespace
}  // namespace perdure::rpmem
