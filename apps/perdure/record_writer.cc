// Lines, frames, raw bytes and JSON.
#include "record_writer.h"

#include "core/bytes.h"
#include "core/json.h"

#include <fmt/format.h>

#include <array>

namespace perdure::app {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// RFC 4648, section 4.
std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t index = 0; index < 3; ++index) {
      group = group << 8 | (index < have ? std::to_integer<std::uint32_t>(bytes[at + index]) : 0);
    }
    for (std::size_t index = 0; index < 4; ++index) {
      text += index <= have ? kLetters[group >> (18 - 6 * index) & 63] : '=';
    }
  }
  return text;
}

std::string json_line(const Record& record) {
  nlohmann::ordered_json json{{"lsn", record.lsn.value},
                              {"index", record.index},
                              {"epoch", record.epoch.value},
                              {"bytes", record.bytes.size()}};
  if (const std::string_view payload = text_of(record.bytes); is_utf8(payload)) {
    json["payload"] = payload;
  } else {
    json["payload_base64"] = base64(record.bytes);
  }
  return json_text(json) + "\n";
}

}  // namespace

void write_record(const Record& record, const RecordWriterOptions& options) {
  if (options.format == Format::Json) {
    print(json_line(record));
    return;
  }
  if (options.framed) {
    const auto length = static_cast<std::uint32_t>(record.bytes.size());
    print(text_of(bytes_of(length)));
  }
  const bool line = !options.framed && !options.raw;
  if (line && options.index) print(fmt::format("{}\t", record.index));
  if (line && options.lsn) print(fmt::format("{}\t", record.lsn.value));
  print(text_of(record.bytes));
  if (line) print("\n");
}

}  // namespace perdure::app
