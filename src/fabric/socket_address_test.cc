// Internet addresses, read and written.
#include "fabric/socket_address.h"

#include <gtest/gtest.h>

namespace perdure::fabric {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds{60}); }

TEST(SocketAddress, ReadsBackAsItWasWritten) {
  for (const char* text : {"127.0.0.1:7471", "0.0.0.0:0", "[::1]:9", "10.1.2.3:65535"}) {
    const auto address = parse_socket_address(text, soon());
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(to_string(*address), text);
  }
  EXPECT_EQ(to_string(*parse_socket_address("", soon())), "127.0.0.1:0");
  EXPECT_EQ(to_string(*parse_socket_address("localhost:80", soon())).substr(0, 4) == "[::1" ||
                to_string(*parse_socket_address("localhost:80", soon())) == "127.0.0.1:80",
            true);
}

TEST(SocketAddress, NonsenseIsRefusedWithTheText) {
  for (const char* text : {"127.0.0.1", "1.2.3.4:port", "no.such.host.invalid:1", "[::1:5"}) {
    const auto address = parse_socket_address(text, soon());
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.code(), ErrorCode::InvalidArgument);
    EXPECT_NE(address.error().message.find(text), std::string::npos);
  }
}

}  // namespace
}  // namespace perdure::fabric
