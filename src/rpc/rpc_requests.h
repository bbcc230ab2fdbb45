// What a client asks its server beside its calls: requests that handlers in the session's thread
// answer (persist/request_handler.h). The calls themselves need none: they are written.
//
// Welcome, asked first on each connection. Request: client u64, 0 if it was never told. Reply:
//
//   0     8   client
//   8     8   applied        sequence of the last call that is
//   16    8   position       behind its entry
//   24    8   durable        sequence of the last whole entry behind that, or `applied`
//   32    8   end            position behind it
//   40    8   ring bytes
//   48    4   replies        that are kept
//   52    4   reply bytes max
//   56    4   version        kRpcVersion
//   60    4   zero
//
// Collect. Request: client u64, sequence u64 of the first reply that is wanted. Reply:
//
//   0     8   applied
//   8     8   position       behind its entry
//   16    4   count          of replies that follow
//   20    4   held           1: the call behind `applied` is set aside
//   24    ..  replies, in order: sequence u64, status u32, bytes u32, the bytes, and zeros up to a
//             multiple of 8
//
// Query. Request: client u64; sequence u64 of the call that must be applied before; operator u32;
// zero u32; the payload. Reply: status u32 (0: answered; 1 + ErrorCode: what the handler said;
// kNotYet), bytes u32, the bytes.
#pragma once

#include <perdure/result.h>

#include "persist/request_handler.h"
#include "rpc/executor.h"
#include "rpc/rpc_format.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace perdure::rpc {

inline constexpr auto kWelcomeKind = static_cast<persist::MessageKind>(8);
inline constexpr auto kCollectKind = static_cast<persist::MessageKind>(9);
inline constexpr auto kQueryKind = static_cast<persist::MessageKind>(10);
inline constexpr std::size_t kWelcomeBytes = 64;
inline constexpr std::size_t kCollectRequestBytes = 16;
inline constexpr std::size_t kCollectHeadBytes = 24;
inline constexpr std::size_t kQueryHeadBytes = 24;
inline constexpr std::size_t kQueryReplyHeadBytes = 8;
inline constexpr std::uint32_t kNotYet = UINT32_MAX;

/// The largest payloads of requests and of their replies.
inline constexpr std::size_t kRequestBytesMax = 1024;
inline constexpr std::size_t kRequestReplyBytesMax = 8192;
static_assert(kCollectHeadBytes + kReplyHeadBytes + kReplyBytesMax + 8 <= kRequestReplyBytesMax);

struct WelcomeReply {
  Welcome welcome;
  std::uint64_t ring_bytes = 0;
  std::uint32_t replies = 0;
  std::uint32_t reply_bytes_max = 0;
};
std::array<std::byte, kWelcomeBytes> encode_welcome(const WelcomeReply& reply);
/// Errors: ProtocolError, VersionMismatch.
Result<WelcomeReply> decode_welcome(std::span<const std::byte> bytes);

struct CollectedReply {
  ReplyHead head;
  std::span<const std::byte> bytes;
};
struct Collected {
  AppliedUpTo applied;
  std::vector<CollectedReply> replies;
};
/// Trusts nothing of the bytes. Errors: ProtocolError.
Result<Collected> decode_collected(std::span<const std::byte> bytes);

/// Answers the sessions of one client's pool.
class ClientRequests {
 public:
  /// `wake` has calls looked for; whoever collects waits for up to `wait` for a call that is not
  /// applied yet. Executor and `wake` outlive it.
  ClientRequests(Executor& executor, std::size_t place, Nanoseconds wait,
                 const std::function<void()>& wake);
  /// Those, beside the built-in ones.
  persist::RequestHandlers handlers();

 private:
  /// One kind of request, by a member function.
  class Handler final : public persist::RequestHandler {
   public:
    using Answer = Result<std::size_t> (ClientRequests::*)(persist::Request&);
    Handler(ClientRequests& requests, Answer answer) : requests_(requests), answer_(answer) {}
    bool writes() const override { return true; }  // they are the client's alone
    Result<std::size_t> handle(persist::Request& request) override {
      return (requests_.*answer_)(request);
    }

   private:
    ClientRequests& requests_;
    const Answer answer_;
  };

  Result<std::size_t> welcome(persist::Request& request);
  Result<std::size_t> collect(persist::Request& request);
  Result<std::size_t> query(persist::Request& request);

  Executor& executor_;
  const std::size_t place_;
  const Nanoseconds wait_;
  const std::function<void()>& wake_;
  Handler welcome_{*this, &ClientRequests::welcome};
  Handler collect_{*this, &ClientRequests::collect};
  Handler query_{*this, &ClientRequests::query};
};

}  // namespace perdure::rpc
