// What a client asks its server beside its calls: requests that handlers in the session's thread
// answer (persist/request_handler.h). The calls themselves need none: they are written. One that
// goes alone, and whose reply is waited for, may go with the question for it: one message there and
// one back.
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
//   56    4   version        kRpcProtocol
//   60    4   slow from      percent: RpcServerOptions::slow_from_percent; 0 means 100
//
// Collect. Request: client u64, sequence u64 of the first reply that is wanted. Reply:
//
//   0     8   applied
//   8     8   position       behind its entry
//   16    4   count          of replies that follow
//   20    4   flags          1: the call behind `applied` is set aside; 2: the last of the replies
//                            is larger than what is left of the message, which its first bytes fill
//   24    ..  replies, in order: sequence u64, status u32, bytes u32, the bytes, and zeros up to a
//             multiple of 8, or as many as there is room for
//
// Call. Request: client u64, sequence u64 of the first reply that is wanted, offset u64 in the ring
// of the entry that follows. The entry is durable before anything is executed; reply: that of
// Collect.
//
// Query. Request: client u64; sequence u64 of the call that must be applied before; operator u32;
// zero u32; the payload. Reply: status u32 (0: answered; 1 + ErrorCode: what the handler said;
// kNotYet), bytes u32 of the answer, number u64 of the answer, as much of it as there is room for.
//
// Piece, of a reply or an answer that one message has no room for. Request: client u64; number u64
// (sequence of the reply; of the answer); offset u64; what u32 (0: a reply, 1: an answer); zero
// u32. Reply: its bytes from there on. NotFound: it is not kept any more.
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
inline constexpr auto kPieceKind = static_cast<persist::MessageKind>(11);
inline constexpr auto kCallKind = static_cast<persist::MessageKind>(12);
inline constexpr std::uint32_t kRpcProtocol = 3;  // version of all this
inline constexpr std::size_t kWelcomeBytes = 64;
inline constexpr std::size_t kCollectRequestBytes = 16;
inline constexpr std::size_t kCollectHeadBytes = 24;
inline constexpr std::size_t kCallHeadBytes = 24;
inline constexpr std::size_t kQueryHeadBytes = 24;
inline constexpr std::size_t kQueryReplyHeadBytes = 16;
inline constexpr std::size_t kPieceRequestBytes = 32;
inline constexpr std::uint32_t kCollectHeld = 1;
inline constexpr std::uint32_t kCollectCut = 2;
inline constexpr std::uint32_t kNotYet = UINT32_MAX;

/// The largest payloads of requests and of their replies.
inline constexpr std::size_t kRequestBytesMax = 1024;
inline constexpr std::size_t kRequestReplyBytesMax = 8192;
/// The largest answer of a query; as a reply, it may be larger than a message.
inline constexpr std::size_t kAnswerBytesMax = 16 * 1024 * 1024;

struct WelcomeReply {
  Welcome welcome;
  std::uint64_t ring_bytes = 0;
  std::uint32_t replies = 0;
  std::uint32_t reply_bytes_max = 0;
  std::uint32_t slow_from_percent = 0;
};
std::array<std::byte, kWelcomeBytes> encode_welcome(const WelcomeReply& reply);
/// Errors: ProtocolError, VersionMismatch.
Result<WelcomeReply> decode_welcome(std::span<const std::byte> bytes);

struct CollectedReply {
  ReplyHead head;
  std::span<const std::byte> bytes;  // of the last one, if it is cut, the first ones
};
struct Collected {
  AppliedUpTo applied;
  std::vector<CollectedReply> replies;
  bool cut = false;
};
/// Trusts nothing of the bytes. Errors: ProtocolError. What was in `into` is lost, but for its
/// memory.
Result<void> decode_collected(std::span<const std::byte> bytes, Collected& into);

struct PieceQuestion {
  enum class Of : std::uint32_t { Reply, Answer };
  std::uint64_t client = 0;
  std::uint64_t number = 0;  // sequence of the reply; of the answer
  std::uint64_t offset = 0;
  Of of = Of::Reply;
};
std::array<std::byte, kPieceRequestBytes> encode_piece_question(const PieceQuestion& question);
/// Errors: ProtocolError.
Result<PieceQuestion> decode_piece_question(std::span<const std::byte> bytes);

struct QueryReplyHead {
  std::uint32_t status = 0;
  std::uint32_t bytes = 0;  // of the answer
  std::uint64_t number = 0;
};
/// Errors: ProtocolError.
Result<QueryReplyHead> decode_query_reply(std::span<const std::byte> bytes);

struct ClientRequestOptions {
  Nanoseconds wait{0};  // of who collects, for a call that is not applied yet; of who asks, for a
                        // query that is being answered
  std::uint32_t slow_from_percent = 0;  // RpcServerOptions; 0: never
};

/// Answers the sessions of one client's pool.
class ClientRequests {
 public:
  /// `look` has calls looked for at the place. Executor and `look` outlive it.
  ClientRequests(Executor& executor, std::size_t place, const ClientRequestOptions& options,
                 const std::function<void(std::size_t)>& look);
  /// Those, beside the built-in ones.
  persist::RequestHandlers handlers();
  /// Whose those are; nullptr: they are the built-in ones alone. Requires one of the two.
  static const ClientRequests* of(const persist::RequestHandlers& handlers);
  std::size_t place() const { return place_; }
  /// Its session has ended: nobody asks for more of an answer.
  void forget_answer();

 private:
  /// One kind of request, by a member function.
  class Handler final : public persist::RequestHandler {
   public:
    using Answer = Result<std::size_t> (ClientRequests::*)(persist::Request&);
    Handler(ClientRequests& requests, Answer answer) : requests_(requests), answer_(answer) {}
    const ClientRequests& requests() const { return requests_; }
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
  Result<std::size_t> call(persist::Request& request);
  Result<std::size_t> answer_replies(std::uint64_t client, std::uint64_t from,
                                     std::span<std::byte> to);
  Result<std::size_t> query(persist::Request& request);
  Result<std::size_t> piece(persist::Request& request);

  Executor& executor_;
  const std::size_t place_;
  const ClientRequestOptions options_;
  const std::function<void(std::size_t)>& look_;
  Handler welcome_{*this, &ClientRequests::welcome};
  Handler collect_{*this, &ClientRequests::collect};
  Handler call_{*this, &ClientRequests::call};
  Handler query_{*this, &ClientRequests::query};
  Handler piece_{*this, &ClientRequests::piece};
  Mutex answer_mutex_;  // a process that was fenced may still be asking
  std::uint64_t answer_number_ PERDURE_GUARDED_BY(answer_mutex_) = 0;
  std::vector<std::byte> answer_ PERDURE_GUARDED_BY(answer_mutex_);  // larger than a message
};

}  // namespace perdure::rpc
