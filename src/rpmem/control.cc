// What librpmem and rpmemd say to each other: see control.h.
#include "rpmem/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "control/json_fields.h"
#include "core/assert.h"
#include "core/bytes.h"
#include "core/json.h"
#include "core/try.h"

namespace perdure::rpmem {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic = "PDRM";
constexpr std::size_t kTextMax = 4096;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 56;

template <typename T, typename Read>
Result<T> read(std::string_view text, const char* what, Read read_fields) {
  PERDURE_TRY(parsed, control::parse_json_object(text, kFrameBodyMax));
  control::JsonFields fields(parsed, what);
  fields.format(true);
  T value = read_fields(fields);
  PERDURE_TRY_VOID(fields.finish());
  return value;
}

std::string hexadecimal(const PoolAttributes& attributes) {
  std::string text;
  if (attributes.empty()) return text;
  for (const std::byte byte : bytes_of(attributes)) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return text;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

PoolAttributes attributes_of(control::JsonFields& fields) {
  PoolAttributes attributes;
  const std::string text = fields.text("attributes", 2 * sizeof attributes);
  if (text.empty()) return attributes;
  std::array<std::byte, sizeof attributes> bytes{};
  bool right = text.size() == 2 * bytes.size();
  for (std::size_t at = 0; right && at < bytes.size(); ++at) {
    const int high = digit_of(text[2 * at]);
    const int low = digit_of(text[2 * at + 1]);
    right = high >= 0 && low >= 0;
    if (right) bytes[at] = static_cast<std::byte>(high * 16 + low);
  }
  if (!right) {
    fields.fail("attributes", fmt::format("{} hexadecimal digits are needed", 2 * bytes.size()));
    return attributes;
  }
  return std::bit_cast<PoolAttributes>(bytes);
}

}  // namespace

std::string encode_frame(const Frame& frame) {
  PERDURE_ASSERT(frame.body.size() <= kFrameBodyMax);
  std::string bytes(kFrameHeaderBytes, '\0');
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  bytes[4] = static_cast<char>(frame.kind);
  const auto length = static_cast<std::uint32_t>(frame.body.size());
  std::memcpy(bytes.data() + 8, &length, sizeof length);
  return bytes + frame.body;
}

Result<FrameHeader> decode_frame_header(std::string_view bytes) {
  PERDURE_ASSERT(bytes.size() >= kFrameHeaderBytes);
  FrameHeader header;
  std::uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 8, sizeof length);
  header.kind = static_cast<FrameKind>(bytes[4]);
  header.body_bytes = length;
  const bool known = header.kind >= FrameKind::Hello && header.kind <= FrameKind::Refused;
  if (bytes.substr(0, 4) == kMagic && known && length <= kFrameBodyMax) return header;
  std::string shown(bytes.substr(0, kFrameHeaderBytes));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '.');
  return Error{ErrorCode::ProtocolError,
               fmt::format("'{}' is no frame of this protocol: the other side is no rpmemd of "
                           "Perdure, or something else writes to its output, as a shell's profile "
                           "may",
                           shown)};
}

std::string encode(const Hello& hello) {
  return json_text(json{{"format", 1}, {"version", hello.version}, {"host", hello.host}});
}

Result<Hello> decode_hello(std::string_view text) {
  return read<Hello>(text, "hello", [](control::JsonFields& fields) {
    return Hello{fields.text("version", kTextMax), fields.text("host", kTextMax)};
  });
}

std::string encode(const PoolAsk& ask) {
  json fields{{"format", 1},
              {"set", ask.set},
              {"bytes", ask.bytes},
              {"attributes", hexadecimal(ask.attributes)}};
  if (ask.client != 0) fields["client"] = control::hexadecimal(ask.client);
  if (ask.again) fields["again"] = true;
  return json_text(fields);
}

Result<PoolAsk> decode_pool_ask(std::string_view text) {
  return read<PoolAsk>(text, "pool request", [](control::JsonFields& fields) {
    PoolAsk ask{fields.text("set", kTextMax), fields.number("bytes", kBytesMax),
                attributes_of(fields)};
    if (fields.has("client")) ask.client = fields.hex("client");
    if (fields.has("again")) ask.again = fields.flag("again");
    return ask;
  });
}

std::string encode(const PoolAnswer& answer) {
  return json_text(
      json{{"format", 1}, {"bytes", answer.bytes}, {"attributes", hexadecimal(answer.attributes)}});
}

Result<PoolAnswer> decode_pool_answer(std::string_view text) {
  return read<PoolAnswer>(text, "pool", [](control::JsonFields& fields) {
    return PoolAnswer{fields.number("bytes", kBytesMax), attributes_of(fields)};
  });
}

std::string encode(const PoolAttributes& attributes) {
  return json_text(json{{"format", 1}, {"attributes", hexadecimal(attributes)}});
}

Result<PoolAttributes> decode_attributes(std::string_view text) {
  return read<PoolAttributes>(text, "attributes", attributes_of);
}

std::string encode_session_end(std::uint64_t session) {
  return json_text(json{{"format", 1}, {"session", control::hexadecimal(session)}});
}

Result<std::uint64_t> decode_session_end(std::string_view text) {
  return read<std::uint64_t>(text, "end of a session",
                             [](control::JsonFields& fields) { return fields.hex("session"); });
}

std::string encode_close(bool remove_created) {
  return json_text(json{{"format", 1}, {"remove_created", remove_created}});
}

Result<bool> decode_close(std::string_view text) {
  return read<bool>(text, "close",
                    [](control::JsonFields& fields) { return fields.flag("remove_created"); });
}

}  // namespace perdure::rpmem
