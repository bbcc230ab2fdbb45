// Fuzz target: what librpmem and rpmemd read of others. The input is taken for a set file, for
// rpmemd's configuration, for the name of a target, for the header of a part, and for the frames
// that one end sends to the other, which an rpmemd without a set answers.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/assert.h"
#include "rpmem/channel.h"
#include "rpmem/control.h"
#include "rpmem/daemon_config.h"
#include "rpmem/part_header.h"
#include "rpmem/pool_host.h"
#include "rpmem/remote_command.h"
#include "rpmem/set_file.h"

namespace perdure::rpmem {
namespace {

constexpr std::size_t kFramesMax = 16;

/// What is read lies within the limits; every refusal names the file.
void read_set_file(std::string_view text) {
  const auto set = parse_set_file(text, "x.set");
  if (!set.ok()) {
    PERDURE_ASSERT(set.code() == ErrorCode::InvalidArgument ||
                   set.code() == ErrorCode::Unsupported);
    PERDURE_ASSERT(set.error().message.find("x.set") != std::string::npos);
    return;
  }
  PERDURE_ASSERT(!set->parts.empty() && set->parts.size() <= kPartsMax);
  std::uint64_t bytes = 0;
  for (std::size_t part = 0; part < set->parts.size(); ++part) {
    const SetPart& each = set->parts[part];
    PERDURE_ASSERT(each.bytes >= kPartBytesMin && each.bytes <= kPartBytesMax);
    PERDURE_ASSERT(!each.path.empty() && each.path.front() == '/');
    PERDURE_ASSERT(set->data_at(part) + set->data_bytes(part) <= each.bytes);
    bytes += set->data_bytes(part);
  }
  PERDURE_ASSERT(bytes == set->pool_bytes());
}

void read_config_file(std::string_view text) {
  DaemonConfig config;
  const auto read = read_config(config, text, "x.conf", "/home/u");
  if (read.ok()) return;
  PERDURE_ASSERT(read.code() == ErrorCode::InvalidArgument);
  PERDURE_ASSERT(read.error().message.find("x.conf") != std::string::npos);
}

/// ssh takes neither for an option.
void read_target(std::string_view text) {
  const auto target = parse_target(text);
  if (!target.ok()) return;
  PERDURE_ASSERT(!target->host.empty() && target->host.front() != '-');
  PERDURE_ASSERT(target->user.empty() || target->user.front() != '-');
}

void read_header(std::string_view text) {
  std::vector<std::byte> bytes(kHeaderBytes);
  const auto* from = reinterpret_cast<const std::byte*>(text.data());
  std::copy_n(from, std::min<std::size_t>(text.size(), bytes.size()), bytes.begin());
  (void)decode_header(bytes);
  // With a right checksum whatever it says is looked at.
  const std::uint64_t sum = header_checksum(bytes);
  std::copy_n(reinterpret_cast<const std::byte*>(&sum), sizeof sum, bytes.end() - sizeof sum);
  const auto header = decode_header(bytes);
  if (!header.ok()) {
    PERDURE_ASSERT(header.code() == ErrorCode::Corrupt);
    return;
  }
  std::vector<std::byte> again(bytes);
  encode_header(*header, again);
  const auto twice = decode_header(again);
  PERDURE_ASSERT(twice.ok() && *twice == *header);
}

/// What is read is written so that it is read as the same.
void read_body(const std::string& body) {
  (void)decode_hello(body);
  if (const auto ask = decode_pool_ask(body); ask.ok()) {
    const auto again = decode_pool_ask(encode(*ask));
    PERDURE_ASSERT(again.ok() && again->bytes == ask->bytes && again->set == ask->set);
  }
  if (const auto answer = decode_pool_answer(body); answer.ok()) {
    const auto again = decode_pool_answer(encode(*answer));
    PERDURE_ASSERT(again.ok() && again->attributes == answer->attributes);
  }
  (void)decode_attributes(body);
  (void)decode_session_end(body);
  (void)decode_close(body);
}

void read_frames(std::string_view bytes) {
  PoolHostOptions options;
  options.directories.sets = "/nonexistent/perdure-fuzz";
  PoolHost host(std::move(options));
  for (std::size_t frames = 0; frames < kFramesMax && bytes.size() >= kFrameHeaderBytes; ++frames) {
    const auto header = decode_frame_header(bytes.substr(0, kFrameHeaderBytes));
    if (!header.ok()) {
      PERDURE_ASSERT(header.code() == ErrorCode::ProtocolError);
      return;
    }
    PERDURE_ASSERT(header->body_bytes <= kFrameBodyMax);
    const std::string body(bytes.substr(kFrameHeaderBytes, header->body_bytes));
    bytes.remove_prefix(kFrameHeaderBytes + body.size());
    read_body(body);
    if (host.closed()) return;
    const Frame answer = host.handle({header->kind, body});
    PERDURE_ASSERT(answer.kind == FrameKind::Refused ||
                   (answer.kind == FrameKind::Done && header->kind == FrameKind::Close));
    PERDURE_ASSERT(answer.body.size() <= kFrameBodyMax);
  }
}

}  // namespace
}  // namespace perdure::rpmem

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace perdure::rpmem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_set_file(text);
  read_config_file(text);
  read_target(text);
  read_header(text);
  read_frames(text);
  return 0;
}
