// RFP: a WRITE of the request; the server leaves the result in its own memory, and the client READs
// until it has it.
//
//   client memory   where a READ puts the result
//   server memory   a slot for the request of each call of the window, then one for the result of
//                   each
#include "rpc/models/design.h"

#include <algorithm>

namespace perdure::rpc::models {
namespace {

constexpr Step kRfpSteps[]{
    {At::Client, Verb::Write, "request"},
    {At::Server, std::nullopt, "polls its slots, runs the handler"},
    {At::Server, std::nullopt, "leaves the reply in its memory"},
    {At::Client, Verb::Read, "all a reply may be", {1, 1, true}},
};

constexpr std::string_view kRfpSources[]{
    "M. Su, M. Zhang, K. Chen, Z. Guo, Y. Wu: RFP: When RPC is Faster than Server-Bypass with "
    "RDMA. "
    "EuroSys 2017: the client fetches the result by READs",
    "*durable RPC*, table 1 (Jakiro), figure 2(f)",
};

constexpr std::string_view kRfpDepartures[]{
    "A READ is as long as the caller says the reply may be. RFP fetches a size that is chosen by "
    "experiment; the published artifact of *durable RPC* always the longest, a confounder that can "
    "be switched on.",
    "The server does not go over to WRITEs of replies after a number of READs in vain.",
    "The client knows the result by its sequence and a checksum.",
};

class RfpClient final : public Client {
 public:
  explicit RfpClient(const EndOptions& options)
      : Client(options, frame_slots(0, 1, options).end()),
        landing_(frame_slots(0, 1, options)),
        requests_(frame_slots(0, options.window, options)),
        results_(frame_slots(requests_.end(), options.window, options)) {}

 private:
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    return write(frame, requests_.offset(sequence));
  }
  Result<void> advance(std::uint64_t oldest) override {
    if (is_reading_ || find_frame(slot(landing_, oldest), oldest)) return {};
    is_reading_ = true;
    const std::size_t most = kFrameHeaderBytes + said(oldest).reply_bytes_max;
    const std::size_t length = options().confounders.reads_whole_replies
                                   ? results_.stride
                                   : std::min(most, results_.stride);
    return read(landing_.offset(oldest), results_.offset(oldest), length);
  }
  void read_completed() override { is_reading_ = false; }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    // What a READ brings may be what the server is just writing, or of a call before: then another.
    if (is_reading_) return std::optional<Frame>{};
    return find_frame(slot(landing_, sequence), sequence);
  }

  const Slots landing_;
  const Slots requests_;
  const Slots results_;
  bool is_reading_ = false;
};

class RfpServer final : public Server {
 public:
  RfpServer(const EndOptions& options, Handler& handler)
      : Server(options, frame_slots(0, 2 * options.window, options).end(), handler),
        requests_(frame_slots(0, options.window, options)),
        results_(frame_slots(requests_.end(), options.window, options)) {}

 private:
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    return find_frame(slot(requests_, sequence), sequence);
  }
  Result<void> post_reply(const Frame& request, const Source& frame) override {
    const std::span<std::byte> from = at(frame.offset, frame.length);
    std::copy(from.begin(), from.end(), slot(results_, request.sequence).begin());
    return {};
  }

  const Slots requests_;
  const Slots results_;
};

}  // namespace

const Design kRfp{
    .name = "rfp",
    .title = "RFP",
    .steps = kRfpSteps,
    .sources = kRfpSources,
    .departures = kRfpDepartures,
    .make_client = [](const EndOptions& options) { return End::open<Client, RfpClient>(options); },
    .make_server = [](const EndOptions& options,
                      Handler& handler) { return End::open<Server, RfpServer>(options, handler); },
};

}  // namespace perdure::rpc::models
