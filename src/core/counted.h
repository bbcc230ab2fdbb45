// Numbers of things in English: "1 record", "2 records".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace perdure {

/// `noun` is the singular; its plural takes an s.
inline std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

}  // namespace perdure
