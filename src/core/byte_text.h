// Amounts of bytes as people write and read them.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace perdure {

/// "4096", "64KiB", "1.5GiB"; K, M, G and T may stand alone and count in 1024s too. In capital or
/// small letters.
/// Errors: InvalidArgument.
Result<std::uint64_t> parse_bytes(std::string_view word);

/// "512 B", "64 KiB", "6.40 MiB", "477.4 KiB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace perdure
