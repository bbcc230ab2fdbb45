#include "client/certify_receive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>

#include "core/try.h"
#include "persist/page_digests.h"
#include "persist/probe_methods.h"
#include "persist/wire.h"

namespace perdure::client {
namespace {

using fabric::Completion;
using fabric::Opcode;

constexpr Nanoseconds kWatchFor = std::chrono::milliseconds(20);
constexpr Nanoseconds kAnswerPatience = std::chrono::seconds(2);
constexpr std::uint64_t kRounds = 10;
constexpr std::uint64_t kUnpolledMax = 3;  // rounds that are watched for kWatchFor in vain
/// And for so many passes, of a round trip each: a machine that is busy takes its time for both.
constexpr int kPassesMin = 16;
constexpr int kLooksAtOnce = 64;
/// What takes longer is not at once: what it finds may have arrived meanwhile.
constexpr Nanoseconds kAtOnce = kWatchFor / 10;
constexpr std::size_t kBufferBytes = 256;
constexpr std::size_t kSendAt = 2 * kBufferBytes;
constexpr std::byte kBlank{0xee};
/// So many pages have a reply of the shortest size that is replayed.
constexpr std::uint32_t kPages =
    (persist::kReplayableBytesMin - persist::kReplyHeaderBytes) / persist::kDigestBytes;
static_assert(persist::kReplyHeaderBytes + kPages * persist::kDigestBytes ==
              persist::kReplayableBytesMin);
static_assert(kPages <= persist::kDigestPagesMax);

class Answers {
 public:
  Answers(Session& session, const Clock& clock, const PassTime& pass)
      : session_(session), clock_(clock), pass_(pass) {}

  Result<void> prepare(fabric::Device& device) {
    PERDURE_TRY(memory, device.register_memory(bytes_, fabric::Access::Local));
    memory_ = std::move(memory);
    return {};
  }

  /// A first answer is polled for, so that the buffer of the second one is known to the peer.
  Result<void> round(bool replayable, AnswerPlaces& places) {
    std::fill_n(bytes_.begin(), kSendAt, kBlank);
    PERDURE_TRY_VOID(session_.endpoint->post_receive(buffer(0), kFirst));
    PERDURE_TRY_VOID(session_.endpoint->post_receive(buffer(1), kSecond));
    PERDURE_TRY_VOID(ask(false));
    PERDURE_TRY_VOID(await(kFirst));
    PERDURE_TRY_VOID(ask(replayable));
    const Deadline over(clock_, kWatchFor);
    bool whole = false;
    for (int passes = 0; !whole && (passes < kPassesMin || !over.passed()); ++passes) {
      PERDURE_TRY_VOID(pass_());
      whole = is_whole(replayable);
    }
    const Deadline at_once(clock_, kAtOnce);
    for (int look = 0; look < kLooksAtOnce && received_ != kSecond; ++look) take();
    const bool arrived = received_ == kSecond && !at_once.passed();
    PERDURE_TRY_VOID(await(kSecond));
    if (!is_whole(replayable))
      return Error{ErrorCode::Unsupported, "the peer gives no answers of these sizes"};
    if (whole) {
      ++places.in_buffer;
    } else {
      ++(arrived ? places.in_completion : places.late);
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kSent = 0;
  static constexpr std::uint64_t kFirst = 1;
  static constexpr std::uint64_t kSecond = 2;

  fabric::Segment buffer(std::size_t index) {
    return {bytes_.data() + index * kBufferBytes, kBufferBytes, memory_.get()};
  }

  bool is_whole(bool replayable) {
    const std::span<const std::byte> second(bytes_.data() + kBufferBytes, kBufferBytes);
    // A payload lies behind the header; of one that has not arrived the checksum tells.
    if (replayable) {
      const auto reply = persist::decode_reply(second.first(persist::kReplayableBytesMin));
      return reply.ok() && reply->payload_bytes == kPages * persist::kDigestBytes;
    }
    return persist::decode_ack(second.first(persist::kAckBytes)).ok();
  }

  /// An empty message, whose answer is an acknowledgement; or a question whose reply is longer.
  Result<void> ask(bool replayable) {
    std::byte* const to = bytes_.data() + kSendAt;
    const auto number = static_cast<std::uint32_t>(session_.id);
    std::size_t length = 0;
    if (replayable) {
      persist::DigestRequest wanted;
      wanted.bytes = static_cast<std::uint32_t>(kPages * persist::kDigestPageBytes);
      const auto payload = persist::encode_digest_request(wanted);
      std::copy(payload.begin(), payload.end(), to + persist::kRequestHeaderBytes);
      persist::RequestHeader header;
      header.message = static_cast<std::uint8_t>(persist::MessageKind::Digests);
      header.sequence = ++sequence_;
      header.payload_bytes = payload.size();
      header.session = number;
      header.reply_bytes = kPages * persist::kDigestBytes;
      length = persist::encode_request(header, to);
    } else {
      const std::uint8_t flags = persist::empty_message_flags(session_.pool.profile);
      persist::MessageHeader header;
      header.flags = static_cast<std::uint8_t>(flags | persist::kAckWanted);
      header.sequence = ++sequence_;
      header.session = number;
      std::fill_n(to, persist::kReplayableBytesMin, std::byte{0});
      persist::encode_message(header, {}, to);
      length = persist::kReplayableBytesMin;
    }
    fabric::WorkRequest request;
    request.opcode = Opcode::Send;
    request.segment_count = 1;
    request.segments[0] = {to, length, memory_.get()};
    request.context = kSent;
    PERDURE_TRY(taken, session_.endpoint->post({&request, 1}));
    if (taken != 1) return Error{ErrorCode::QueueFull, "the send queue is full"};
    sent_ = false;
    received_ = 0;
    return {};
  }

  void take() {
    std::array<Completion, 4> done;
    const std::size_t count = session_.endpoint->poll(done);
    for (std::size_t i = 0; i < count; ++i) {
      failed_ = failed_ || done[i].error.has_value();
      if (done[i].opcode == Opcode::Receive) {
        received_ = done[i].context;
      } else {
        sent_ = true;
      }
    }
  }

  Result<void> await(std::uint64_t receive) {
    const Deadline deadline(clock_, kAnswerPatience);
    while (received_ != receive || !sent_) {
      take();
      if (failed_ || !session_.endpoint->connected())
        return Error{ErrorCode::Disconnected, "the connection was lost"};
      if (deadline.passed()) return Error{ErrorCode::TimedOut, "the peer did not answer"};
    }
    return {};
  }

  std::array<std::byte, 4 * kBufferBytes> bytes_{};
  std::unique_ptr<fabric::Memory> memory_;
  Session& session_;
  const Clock& clock_;
  const PassTime& pass_;
  std::uint64_t sequence_ = 0;
  std::uint64_t received_ = 0;
  bool sent_ = false;
  bool failed_ = false;
};

Result<void> try_all(Answers& answers, AnswerPlaces& brief, AnswerPlaces& replayable) {
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    if (brief.in_completion + brief.late < kUnpolledMax)
      PERDURE_TRY_VOID(answers.round(false, brief));
    if (replayable.in_completion + replayable.late < kUnpolledMax)
      PERDURE_TRY_VOID(answers.round(true, replayable));
  }
  return {};
}

}  // namespace

CertifyCheck judge_places(const AnswerPlaces& brief, const AnswerPlaces& replayable,
                          const Result<void>& tried) {
  CertifyCheck check{"cqe-payload", Proof::NotProved, "", {}};
  check.numbers = {{"short_bytes", static_cast<double>(persist::kAckBytes)},
                   {"short_in_buffer", static_cast<double>(brief.in_buffer)},
                   {"short_in_completion", static_cast<double>(brief.in_completion)},
                   {"replayable_bytes", static_cast<double>(persist::kReplayableBytesMin)},
                   {"replayable_in_buffer", static_cast<double>(replayable.in_buffer)},
                   {"replayable_in_completion", static_cast<double>(replayable.in_completion)},
                   {"late", static_cast<double>(brief.late + replayable.late)}};
  if (replayable.in_completion > replayable.in_buffer) {
    check.proof = Proof::Broken;
    check.finding =
        "this side's RNIC keeps messages that Perdure would replay in the completion until they "
        "are polled: no receive_buffers = \"pm\" with it";
  } else if (!tried.ok()) {
    check.finding = "not found out: " + tried.error().message;
  } else if (replayable.in_completion > 0) {
    check.finding = fmt::format(
        "of {} messages that Perdure would replay {} waited in the completion until they were "
        "polled: try it again, and declare no receive_buffers = \"pm\" with this side's RNIC "
        "before",
        replayable.in_completion + replayable.in_buffer, replayable.in_completion);
  } else if (replayable.in_buffer == 0) {
    check.finding = "no answer came while it was watched for: try it when the peer is less busy";
  } else {
    check.proof = Proof::Held;
    check.finding = fmt::format(
        "a message that can be replayed is in its receive buffer before it is polled, on this side;"
        " {}. For the peer's RNIC run this there, towards here",
        brief.in_completion > 0 ? "shorter ones wait in the completion, and are never replayed"
                                : "so are shorter ones");
  }
  return check;
}

CertifyCheck cqe_payload(Session& session, fabric::Device& device, const Clock& clock,
                         const PassTime& pass) {
  if (placed_by_cpu(session.pool.profile.transport)) {
    return {"cqe-payload",
            Proof::NotHere,
            "no RNIC is asked here: over this transport a processor puts messages into receive "
            "buffers. Try it over the RNIC, from each of the two machines",
            {}};
  }
  AnswerPlaces brief;
  AnswerPlaces replayable;
  Answers answers(session, clock, pass);
  Result<void> tried = answers.prepare(device);
  if (tried.ok()) tried = try_all(answers, brief, replayable);
  session.endpoint->disconnect();  // before the memory goes that is posted on it
  return judge_places(brief, replayable, tried);
}

}  // namespace perdure::client
