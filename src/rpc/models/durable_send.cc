// SFlush-RPC and S-RFlush-RPC: a SEND of the request into a receive buffer in the server's
// persistent memory. It is durable when an SFLUSH behind it has completed, or when the receiver has
// flushed it and says so by a SEND (RFlush); it is executed afterwards.
//
//   client memory   receive buffers: one for each call of the window, for RFlush two
//   server memory   receive buffers, one for each call of the window: what is not executed stays
//                   there
#include "rpc/models/arrivals.h"
#include "rpc/models/design.h"
#include "rpc/models/two_sided.h"

#include <deque>

namespace perdure::rpc::models {
namespace {

/// Tag of a message that says which calls are durable.
constexpr std::uint32_t kDurableTag = 2;

constexpr Step kSflushSteps[]{
    {At::Client, Verb::Send, "request"},
    {At::Client, Verb::SendFlush, "flush: then it is durable"},
    {At::Server, Verb::Receive, "a persistent buffer holds it"},
    {At::Server, std::nullopt, "runs the handler"},
    {At::Server, Verb::Send, "reply: its buffer is free"},
    {At::Client, Verb::Receive, "a posted buffer holds it"},
};

constexpr Step kSRflushSteps[]{
    {At::Client, Verb::Send, "request"},
    {At::Server, Verb::Receive, "a persistent buffer holds it"},
    {At::Server, std::nullopt, "flushes the message"},
    {At::Server, Verb::Send, "which call is durable"},
    {At::Client, Verb::Receive, "a posted buffer holds it"},
    {At::Server, std::nullopt, "runs the handler"},
    {At::Server, Verb::Send, "reply: its buffer is free"},
    {At::Client, Verb::Receive, "a posted buffer holds it"},
};

constexpr std::string_view kSflushDepartures[]{
    "SFLUSH is a verb of the emulated fabric alone, where its looking up of the buffer takes what "
    "the text assumes (about 7 us); no RNIC has it, and a READ can not stand in for it, since the "
    "client does not know where the message is.",
    "The receive buffers are the log: nothing copies the message into another one first.",
};

constexpr std::string_view kSRflushDepartures[]{
    "The word that says what is durable is a SEND; the text leaves the verb open. The published "
    "artifact has one message for both, and moves no payload: a confounder that can be switched "
    "on.",
    "The receive buffers are the log: nothing copies the message into another one first.",
};

class SflushClient final : public SendingClient {
 public:
  using SendingClient::SendingClient;

 private:
  std::uint32_t request_tag(std::uint64_t sequence) const override {
    return log_tag(said(sequence).durable);
  }
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    PERDURE_TRY_VOID(send(frame));
    if (!said(sequence).durable) return {};
    flushing_.push_back(sequence);
    return send_flush();
  }
  void read_completed() override {
    note_durable(flushing_.front());
    flushing_.pop_front();
  }

  std::deque<std::uint64_t> flushing_;
};

class SRflushClient final : public Client {
 public:
  explicit SRflushClient(const EndOptions& options)
      : Client(options, frame_slots(0, 2 * options.window, options).end()),
        buffers_(frame_slots(0, 2 * options.window, options)) {}

 private:
  Result<void> post_receives() override {
    for (std::size_t i = 0; i < buffers_.count; ++i) {
      PERDURE_TRY_VOID(post_receive(buffers_.at + i * buffers_.stride, buffers_.stride));
    }
    return {};
  }
  std::uint32_t request_tag(std::uint64_t sequence) const override {
    return log_tag(said(sequence).durable);
  }
  Result<void> post_request(std::uint64_t, const Source& frame) override { return send(frame); }
  Result<void> received(const fabric::Completion& completion) override {
    const std::span<std::byte> buffer = at(completion.context, buffers_.stride);
    const auto sequence = load<std::uint64_t>(buffer.data());
    const std::optional<Frame> frame = find_frame(buffer, sequence);
    if (!frame || sequence == 0 || sequence > begun()) {
      return Error{ErrorCode::ProtocolError, "a message came that belongs to no call"};
    }
    if (frame->tag == kDurableTag) {
      note_durable(sequence);
      return post_receive(completion.context, buffers_.stride);
    }
    replies_.push_back({*frame, completion.context});
    return {};
  }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    if (replies_.empty()) return std::optional<Frame>{};
    if (replies_.front().frame.sequence != sequence) {
      return Error{ErrorCode::ProtocolError, "a reply came out of turn"};
    }
    return std::optional<Frame>(replies_.front().frame);
  }
  Result<void> release_reply(std::uint64_t) override {
    const std::uint64_t at = replies_.front().at;
    replies_.pop_front();
    return post_receive(at, buffers_.stride);
  }

  struct Reply {
    Frame frame;
    std::uint64_t at = 0;
  };
  const Slots buffers_;
  std::deque<Reply> replies_;  // that were not taken
};

class SRflushServer final : public SendingServer {
 public:
  SRflushServer(const EndOptions& options, Handler& handler)
      : SendingServer(options, handler), arrivals_(options) {}

 private:
  Result<void> take_arrivals(std::uint64_t executing) override {
    return arrivals_.take_all(
        executing, handler(),
        [&](std::uint64_t sequence) { return SendingServer::find_request(sequence); },
        [&](std::uint64_t sequence) { return is_sending(sequence); },
        [&](std::uint64_t sequence) { return send(note(sequence, kDurableTag)); });
  }
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    return arrivals_.find(sequence);
  }
  /// What says that it is durable may be on its way.
  bool may_answer(std::uint64_t sequence) const override { return !is_frame_sending(sequence); }

  Arrivals arrivals_;
};

}  // namespace

const Design kSflush{
    .name = "sflush",
    .title = "SFlush-RPC",
    .family = Family::Send,
    .steps = kSflushSteps,
    .sources = kDurableRpcSources,
    .departures = kSflushDepartures,
    .is_durable = true,
    .needs_send_flush = true,
    .make_client =
        [](const EndOptions& options) { return End::open<Client, SflushClient>(options); },
    .make_server =
        [](const EndOptions& options, Handler& handler) {
          return End::open<Server, SendingServer>(options, handler);
        },
};

const Design kSRflush{
    .name = "s-rflush",
    .title = "S-RFlush-RPC",
    .family = Family::Send,
    .steps = kSRflushSteps,
    .sources = kDurableRpcSources,
    .departures = kSRflushDepartures,
    .is_durable = true,
    .make_client =
        [](const EndOptions& options) { return End::open<Client, SRflushClient>(options); },
    .make_server =
        [](const EndOptions& options, Handler& handler) {
          return End::open<Server, SRflushServer>(options, handler);
        },
};

}  // namespace perdure::rpc::models
