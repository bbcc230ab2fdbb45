// What a test expects of one replica of the log "log" that it has written to.
#pragma once

#include <gtest/gtest.h>
#include <perdure/log.h>

#include <cstdint>
#include <string>

#include "core/bytes.h"

namespace perdure::server {

/// Reads the replica of the peer at `address`: so many records of `bytes` bytes are there, and each
/// begins with its own index.
inline void expect_whole_log(const std::string& address, Transport transport, std::uint64_t records,
                             std::size_t bytes) {
  LogReaderOptions options;
  options.peers = {address};
  options.pool = "log";
  options.transport = transport;
  auto reader = LogReader::open(std::move(options));
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  for (std::uint64_t number = 0; number < records; ++number) {
    const auto record = reader->next();
    ASSERT_TRUE(record.ok() && *record) << address << ": " << number;
    EXPECT_EQ((*record)->index, number);
    ASSERT_EQ((*record)->bytes.size(), bytes);
    EXPECT_EQ(load<std::uint64_t>((*record)->bytes.data()), number);
  }
}

}  // namespace perdure::server
