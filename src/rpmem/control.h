// What librpmem and rpmemd say to each other over the standard input and output of the command that
// ssh runs. The bytes of the pool go another way (client/durable_session.h).
//
// Both ends send frames, the daemon a Hello first; then the client asks and the daemon answers, one
// at a time:
//
//   offset  size  field
//   0       4     magic     "PDRM"
//   4       1     kind      FrameKind
//   5       3     zero
//   8       4     length    of the body, little-endian; at most kFrameBodyMax
//   12      n     body      a JSON object: below, or in docs/control-plane.md (sessions, errors)
//
//   kind            body
//   Hello           version, host: of Perdure, and which machine it runs on (host_identity)
//   Create, Open    set, bytes, attributes: hexadecimal, or empty; client, where one says who it
//                   is: of this opening; again, if it comes back to what it had
//   Session         a SessionAsk; answered by a SessionGrant
//   EndSession      session: its number
//   SetAttributes   attributes
//   Close           remove_created: take away what Create made
//   Done            the answer: to Create and Open bytes, attributes; else what the request asks
//   for Refused         an error
#pragma once

#include <perdure/result.h>

#include "rpmem/attributes.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace perdure::rpmem {

/// What `rpmemd --remove` writes to its standard output last, once it is done.
inline constexpr std::string_view kRemoved = "removed\n";

inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::size_t kFrameBodyMax = 64 * 1024;

enum class FrameKind : std::uint8_t {
  Hello = 1,
  Create,
  Open,
  Session,
  EndSession,
  SetAttributes,
  Close = 8,
  Done,
  Refused,
};

struct Frame {
  FrameKind kind = FrameKind::Hello;
  std::string body;
};

/// Requires a body of at most kFrameBodyMax.
std::string encode_frame(const Frame& frame);

struct FrameHeader {
  FrameKind kind = FrameKind::Hello;
  std::size_t body_bytes = 0;
};
/// Requires kFrameHeaderBytes. Errors: ProtocolError, with the bytes as text: what else speaks
/// there (a shell, a banner) is for people to read.
Result<FrameHeader> decode_frame_header(std::string_view bytes);

struct Hello {
  std::string version;
  std::string host;
};

struct PoolAsk {
  std::string set;
  std::uint64_t bytes = 0;    // the set has at least so many
  PoolAttributes attributes;  // Create: empty for a set without headers
  std::uint64_t client = 0;   // drawn for this opening; 0: it does not say
  bool again = false;         // Open: it comes back, so nobody else may have had the pool meanwhile
};

struct PoolAnswer {
  std::uint64_t bytes = 0;
  PoolAttributes attributes;
};

// Errors of reading: InvalidArgument, VersionMismatch.
std::string encode(const Hello& hello);
Result<Hello> decode_hello(std::string_view text);
std::string encode(const PoolAsk& ask);
Result<PoolAsk> decode_pool_ask(std::string_view text);
std::string encode(const PoolAnswer& answer);
Result<PoolAnswer> decode_pool_answer(std::string_view text);
std::string encode(const PoolAttributes& attributes);
Result<PoolAttributes> decode_attributes(std::string_view text);
std::string encode_session_end(std::uint64_t session);
Result<std::uint64_t> decode_session_end(std::string_view text);
std::string encode_close(bool remove_created);
Result<bool> decode_close(std::string_view text);

}  // namespace perdure::rpmem
