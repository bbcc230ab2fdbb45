// What a client says to a daemon that takes ssh's place: what is taken, and what is refused.
#include "rpmem/asked_command.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>

#include "control/json_codec.h"
#include "rpmem/control.h"
#include "testing/temporary_directory.h"

namespace perdure::rpmem {
namespace {

using Words = std::vector<std::string>;

TEST(AskedCommand, HasTheArgumentsThatClientsOfLibrpmemGive) {
  const struct {
    const char* command;
    Words arguments;
  } cases[] = {
      {"rpmemd", {}},
      {"/usr/bin/rpmemd", {}},
      {"rpmemd --remove 'a b.set' --force --pool-set",
       {"--remove", "a b.set", "--force", "--pool-set"}},
      {"rpmemd --remove 'it'\\''s.set'", {"--remove", "it's.set"}},
      {"rpmemd --remove --force", {"--remove", "--force"}},  // a set of that name
  };
  for (const auto& each : cases) {
    const auto arguments = arguments_in(each.command);
    ASSERT_TRUE(arguments.ok()) << each.command;
    EXPECT_EQ(*arguments, each.arguments) << each.command;
  }
}

TEST(AskedCommand, IsRefusedWhereItHasOtherWords) {
  for (const char* command :
       {"", "ls", "rpmemd x", "rpmemd --force", "rpmemd --remove", "rpmemd; ls", "$(ls) rpmemd",
        "rpmemd --config /x", "rpmemd --remove a --remove b", "rpmemd --remove 'a", "rpmemd &"}) {
    EXPECT_EQ(arguments_in(command).code(), ErrorCode::InvalidArgument) << command;
  }
}

TEST(AskedCommand, ARefusalIsWhatThatClientReads) {
  const Error full{ErrorCode::QueueFull, "too many"};
  const std::string frame = refusal("rpmemd", full);
  const auto header = decode_frame_header(std::string_view(frame).substr(0, kFrameHeaderBytes));
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->kind, FrameKind::Refused);
  const Error read = control::decode_error(frame.substr(kFrameHeaderBytes));
  EXPECT_EQ(read.code, full.code);
  EXPECT_EQ(read.message, full.message);
  EXPECT_EQ(refusal("rpmemd --remove 'x'", full),
            "rpmemd: too many\nexit " + std::to_string(EAGAIN) + "\n");
  EXPECT_TRUE(refusal("rpmemd --remove 'x'", {ErrorCode::PermissionDenied, "no"})
                  .ends_with("exit " + std::to_string(EACCES) + "\n"));
}

TEST(AskedCommand, ACredentialIsALineOfItsOwn) {
  EXPECT_EQ(credential_in("credential abc"), "abc");
  EXPECT_EQ(credential_in("credential "), "");
  EXPECT_FALSE(credential_in("rpmemd").has_value());
  EXPECT_TRUE(same_credential("abc", "abc"));
  for (const char* other : {"", "a", "ab", "abd", "abcabc", "abcd", "Abc"}) {
    EXPECT_FALSE(same_credential("abc", other)) << other;
    EXPECT_FALSE(same_credential(other, "abc")) << other;
  }
}

TEST(AskedCommand, ACredentialIsReadFromAFileOfItsOwners) {
  const test::TestDirectory directory;
  const std::string file = directory.file("credential");
  const auto read = [&](const std::string& text, mode_t mode = 0600) {
    std::ofstream(file, std::ios::trunc) << text;
    EXPECT_EQ(::chmod(file.c_str(), mode), 0);
    return load_credential(file);
  };
  const auto right = read("c2VjcmV0==\n");
  ASSERT_TRUE(right.ok()) << right.error().message;
  EXPECT_EQ(*right, "c2VjcmV0==");
  EXPECT_TRUE(read(std::string(kCredentialBytesMax, 'x')).ok());
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("a b\n"), std::string("a\nb\n"),
        std::string("a\r\n"), std::string(kCredentialBytesMax + 1, 'x')}) {
    EXPECT_EQ(read(text).code(), ErrorCode::InvalidArgument) << text;
  }
  EXPECT_EQ(read("secret", 0644).code(), ErrorCode::PermissionDenied);
  EXPECT_TRUE(read("secret", 0640).ok()) << "its group is the operator's to choose";
  EXPECT_EQ(load_credential(directory.file("none")).code(), ErrorCode::NotFound);
}

TEST(AskedCommand, AReportOfASetIsOneLine) {
  EXPECT_EQ(reported_set("a/b.set"), "set a/b.set\n");
  EXPECT_EQ(reported_set("a\nset b\x1b[m"), "set a?set b?[m\n");
  EXPECT_EQ(reported_set(std::string(5000, 'x')).size(), kReportBytesMax);
  EXPECT_EQ(set_in_report("set a/b.set"), "a/b.set");
  EXPECT_FALSE(set_in_report("removed").has_value());
}

}  // namespace
}  // namespace perdure::rpmem
