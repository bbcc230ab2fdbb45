#include "broken.h"

#include <algorithm>
#include <array>

namespace perdure::rpc::models {
namespace {

constexpr Step kSteps[]{
    {At::Client, Verb::Write, "request"},
    {At::Server, Verb::Write, "reply"},
};

/// The frame in a slot, by its header alone.
std::optional<Frame> believe_header(std::span<const std::byte> slot, std::uint64_t sequence) {
  if (load<std::uint64_t>(slot.data()) != sequence) return std::nullopt;
  const auto length = load<std::uint32_t>(slot.data() + 8);
  return Frame{sequence, 0,
               slot.subspan(kFrameHeaderBytes,
                            std::min<std::size_t>(length, slot.size() - kFrameHeaderBytes))};
}

template <Bug kBug>
std::optional<Frame> look(std::span<const std::byte> slot, std::uint64_t sequence) {
  return kBug == Bug::ChecksumIgnored ? believe_header(slot, sequence) : find_frame(slot, sequence);
}

template <Bug kBug>
class BrokenClient final : public Client {
 public:
  explicit BrokenClient(const EndOptions& options)
      : Client(options, frame_slots(0, options.window, options).end()),
        slots_(frame_slots(0, options.window, options)) {}

 private:
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    return write(frame, slots_.offset(kBug == Bug::RequestSlotReused ? 0 : sequence));
  }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    auto frame = look<kBug>(slot(slots_, kBug == Bug::ReplySlotReused ? 0 : sequence), sequence);
    if (kBug != Bug::ReplyOfTheCallBefore || !frame) return frame;
    before_.swap(last_);
    last_.assign(frame->payload.begin(), frame->payload.end());
    frame->payload = before_;
    return frame;
  }

  const Slots slots_;
  std::vector<std::byte> last_;
  std::vector<std::byte> before_;
};

template <Bug kBug>
class BrokenServer final : public Server {
 public:
  BrokenServer(const EndOptions& options, Handler& handler)
      : Server(options, frame_slots(0, options.window, options).end(), handler),
        slots_(frame_slots(0, options.window, options)),
        handler_(handler),
        scratch_(options.payload_bytes_max) {}

 private:
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    const auto frame =
        look<kBug>(slot(slots_, kBug == Bug::RequestSlotReused ? 0 : sequence), sequence);
    if (kBug == Bug::ExecutedTwice && frame && sequence % 100 == 0) {
      handler_.handle(frame->payload, scratch_);
    }
    return frame;
  }
  Result<void> post_reply(const Frame& request, const Source& frame) override {
    const std::size_t to = slots_.offset(kBug == Bug::ReplySlotReused ? 0 : request.sequence);
    if (kBug == Bug::WriteNotDeclared) PERDURE_TRY_VOID(write(frame, to));
    return write(frame, to);
  }

  const Slots slots_;
  Handler& handler_;
  std::vector<std::byte> scratch_;
};

template <Bug kBug>
const Design kBroken{
    .name = "broken",
    .title = "A design with a bug",
    .steps = kSteps,
    .sources = {},
    .departures = {},
    .make_client =
        [](const EndOptions& options) { return End::open<Client, BrokenClient<kBug>>(options); },
    .make_server =
        [](const EndOptions& options, Handler& handler) {
          return End::open<Server, BrokenServer<kBug>>(options, handler);
        },
};

}  // namespace

const Design& broken_design(Bug bug) {
  switch (bug) {
    case Bug::ReplyOfTheCallBefore: return kBroken<Bug::ReplyOfTheCallBefore>;
    case Bug::RequestSlotReused: return kBroken<Bug::RequestSlotReused>;
    case Bug::ReplySlotReused: return kBroken<Bug::ReplySlotReused>;
    case Bug::ChecksumIgnored: return kBroken<Bug::ChecksumIgnored>;
    case Bug::ExecutedTwice: return kBroken<Bug::ExecutedTwice>;
    case Bug::WriteNotDeclared: return kBroken<Bug::WriteNotDeclared>;
    case Bug::None: break;
  }
  return kBroken<Bug::None>;
}

}  // namespace perdure::rpc::models
