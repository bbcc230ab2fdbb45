// The laws of what two ends tell each other when they connect.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/connection_events.h"

#include <gtest/gtest.h>

namespace perdure::fabric::verbs {
namespace {

std::span<const std::byte> sent(const PrivateData& data) {
  return std::span(data.bytes).first(data.length);
}

TEST(Hello, ReadsBackAsItWasSent) {
  for (const unsigned bits : {0u, 1u, 2u, 4u, 8u, 15u}) {
    for (const unsigned log2 : {0u, 1u, 12u}) {
      Hello hello;
      hello.capabilities.native_flush = (bits & 1) != 0;
      hello.capabilities.atomic_write = (bits & 2) != 0;
      hello.capabilities.persistent_flush = (bits & 4) != 0;
      hello.solicits = (bits & 8) != 0;
      hello.immediates_log2 = log2;
      hello.binds_window = (bits & 8) != 0;
      hello.credit_key = 0x01020304;
      hello.credit_address = 0x0506070809;
      const auto read = decode_hello(sent(encode(hello, {})));
      ASSERT_TRUE(read.has_value());
      EXPECT_EQ(read->hello.capabilities, hello.capabilities);
      EXPECT_EQ(read->hello.solicits, hello.solicits);
      EXPECT_EQ(read->hello.immediates_log2, log2);
      EXPECT_EQ(read->hello.binds_window, hello.binds_window);
      const std::array<std::byte, 3> own{std::byte{1}, std::byte{2}, std::byte{3}};
      const auto more = decode_hello(sent(encode(hello, own)));
      ASSERT_TRUE(more.has_value());
      EXPECT_EQ(more->own.size(), own.size());
      EXPECT_EQ(read->hello.credit_key, hello.credit_key);
      EXPECT_EQ(read->hello.credit_address, hello.credit_address);
    }
  }
}

TEST(Hello, OneOfAnOlderPeerSolicitsNothing) {
  Hello hello;
  hello.capabilities.native_flush = true;
  PrivateData data = encode(hello, {});
  EXPECT_EQ(std::to_integer<int>(data.bytes[2]), 1);  // byte for byte what it was before
  EXPECT_FALSE(decode_hello(sent(data))->hello.solicits);
}

}  // namespace
}  // namespace perdure::fabric::verbs
#endif
