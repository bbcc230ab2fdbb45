// WFlush-RPC and W-RFlush-RPC: a WRITE of the request into a redo log in the server's persistent
// memory. It is durable when a flush behind it has completed (WFlush), or when the receiver, which
// polls its log, has flushed it and says so (RFlush); it is executed afterwards.
//
//   client memory   a slot for the reply of each call of the window, then a word: which calls are
//                   durable (RFlush), or where a READ puts its byte (WFlush)
//   server memory   the log: a place for each call of the window
//
// A place is used again when its call was executed: its reply says so.
#include "rpc/models/arrivals.h"
#include "rpc/models/design.h"

#include <atomic>
#include <deque>

namespace perdure::rpc::models {
namespace {

constexpr Step kWflushSteps[]{
    {At::Client, Verb::Write, "request, into the log"},
    {At::Client, Verb::Read, "flush: the last byte; then it is durable"},
    {At::Server, std::nullopt, "polls the log, runs the handler"},
    {At::Server, Verb::Write, "reply: its place is free"},
    {At::Client, std::nullopt, "polls its buffer, when it needs the reply"},
};

constexpr Step kWRflushSteps[]{
    {At::Client, Verb::Write, "request, into the log"},
    {At::Server, std::nullopt, "polls the log, flushes what has come"},
    {At::Server, Verb::Write, "which calls are durable"},
    {At::Server, std::nullopt, "runs the handler"},
    {At::Server, Verb::Write, "reply: its place is free"},
    {At::Client, std::nullopt, "polls its buffer, when it needs the reply"},
};

constexpr std::string_view kWflushDepartures[]{
    "The flush is a READ of the request's last byte, as in section 4.1.3. The published artifact "
    "READs no byte, which need not touch the memory.",
    "The log has as many places as there are calls in flight, and no header: recovery is the "
    "product's (`src/rpc`), which this is not.",
    "The published artifact uses a place again when its call is durable, so a slow server loses "
    "calls: a confounder that can be switched on.",
};

constexpr std::string_view kWRflushDepartures[]{
    "The word that says what is durable is a WRITE of 8 bytes; the text leaves the verb open. The "
    "published artifact sends it before it flushes: a confounder that can be switched on.",
    "The log has as many places as there are calls in flight, and no header: recovery is the "
    "product's (`src/rpc`), which this is not.",
};

struct LogLayout {
  explicit LogLayout(const EndOptions& options) : slots(frame_slots(0, options.window, options)) {}
  std::size_t word() const { return slots.end(); }
  std::size_t client_bytes() const { return slots.end() + kCacheLineBytes; }

  Slots slots;  // replies in the client's memory, the log in the server's
};

class LogClient : public Client {
 public:
  explicit LogClient(const EndOptions& options)
      : Client(options, LogLayout(options).client_bytes()), layout_(options) {}

 protected:
  std::uint32_t request_tag(std::uint64_t sequence) const override {
    return log_tag(said(sequence).durable);
  }
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    return write(frame, layout_.slots.offset(sequence));
  }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    return find_frame(slot(layout_.slots, sequence), sequence);
  }

  const LogLayout layout_;
};

class WflushClient final : public LogClient {
 public:
  using LogClient::LogClient;

 private:
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    PERDURE_TRY_VOID(LogClient::post_request(sequence, frame));
    if (!said(sequence).durable) return {};
    flushing_.push_back(sequence);
    return read(layout_.word(), layout_.slots.offset(sequence) + frame.length - 1, 1);
  }
  void read_completed() override {
    note_durable(flushing_.front());
    flushing_.pop_front();
  }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    if (options().confounders.reuses_places && said(sequence).durable) {
      if (!is_durable(sequence)) return std::optional<Frame>{};
      return std::optional<Frame>{{sequence, 0, {}}};
    }
    return LogClient::find_reply(sequence);
  }

  std::deque<std::uint64_t> flushing_;
};

class WRflushClient final : public LogClient {
 public:
  using LogClient::LogClient;

 private:
  Result<void> advance(std::uint64_t) override {
    auto& word = *reinterpret_cast<std::uint64_t*>(at(layout_.word(), kCacheLineBytes).data());
    note_durable(std::atomic_ref(word).load(std::memory_order_acquire));
    return {};
  }
};

class LogServer : public Server {
 public:
  LogServer(const EndOptions& options, Handler& handler)
      : Server(options, LogLayout(options).slots.end(), handler), layout_(options) {}

 protected:
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    return find_frame(slot(layout_.slots, sequence), sequence);
  }
  Result<void> post_reply(const Frame& request, const Source& frame) override {
    return write(frame, layout_.slots.offset(request.sequence));
  }

  const LogLayout layout_;
};

class WflushServer final : public LogServer {
 public:
  using LogServer::LogServer;

 private:
  bool is_lost(std::uint64_t sequence) override {
    if (!options().confounders.reuses_places) return false;
    // Whether a later lap's call is there, whole.
    const std::span<std::byte> place = slot(layout_.slots, sequence);
    const auto there = load<std::uint64_t>(place.data());
    return there > sequence && layout_.slots.index(there) == layout_.slots.index(sequence) &&
           find_frame(place, there).has_value();
  }
  Result<void> post_reply(const Frame& request, const Source& frame) override {
    if (options().confounders.reuses_places && request.tag != kUnloggedTag) return {};
    return LogServer::post_reply(request, frame);
  }
};

class WRflushServer final : public LogServer {
 public:
  WRflushServer(const EndOptions& options, Handler& handler)
      : LogServer(options, handler), arrivals_(options) {}

 private:
  Result<void> take_arrivals(std::uint64_t executing) override {
    return arrivals_.take_all(
        executing, handler(),
        [&](std::uint64_t sequence) { return LogServer::find_request(sequence); },
        [&](std::uint64_t sequence) { return is_sending(sequence); },
        [&](std::uint64_t sequence) { return write(word(sequence, sequence), layout_.word()); });
  }
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    return arrivals_.find(sequence);
  }
  /// What says that it is durable may be on its way.
  bool may_answer(std::uint64_t sequence) const override { return !is_frame_sending(sequence); }

  Arrivals arrivals_;
};

}  // namespace

const Design kWflush{
    .name = "wflush",
    .title = "WFlush-RPC",
    .steps = kWflushSteps,
    .sources = kDurableRpcSources,
    .departures = kWflushDepartures,
    .is_durable = true,
    .make_client =
        [](const EndOptions& options) { return End::open<Client, WflushClient>(options); },
    .make_server =
        [](const EndOptions& options, Handler& handler) {
          return End::open<Server, WflushServer>(options, handler);
        },
};

const Design kWRflush{
    .name = "w-rflush",
    .title = "W-RFlush-RPC",
    .steps = kWRflushSteps,
    .sources = kDurableRpcSources,
    .departures = kWRflushDepartures,
    .is_durable = true,
    .make_client =
        [](const EndOptions& options) { return End::open<Client, WRflushClient>(options); },
    .make_server =
        [](const EndOptions& options, Handler& handler) {
          return End::open<Server, WRflushServer>(options, handler);
        },
};

}  // namespace perdure::rpc::models
