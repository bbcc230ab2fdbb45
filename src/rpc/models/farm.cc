// FaRM: a WRITE into a ring of the server, which polls it; the reply by WRITE into a ring of the
// client.
//
//   client memory   ring of replies, then a word: how many requests the server has consumed
//   server memory   ring of requests
//
// The server zeroes what it has consumed and writes the head back once in half a ring.
#include "rpc/models/design.h"

#include <atomic>

namespace perdure::rpc::models {
namespace {

constexpr std::uint64_t kFarmHeadEvery = kRingSlots / 2;

constexpr Step kFarmSteps[]{
    {At::Client, Verb::Write, "request, at the ring's tail"},
    {At::Server, std::nullopt, "polls the ring, runs the handler"},
    {At::Server, std::nullopt, "zeroes the entry"},
    {At::Server, Verb::Write, "head of the ring", {1, kFarmHeadEvery}},
    {At::Server, Verb::Write, "reply, into the client's ring"},
    {At::Client, std::nullopt, "polls its ring"},
};

constexpr std::string_view kFarmSources[]{
    "A. Dragojević, D. Narayanan, O. Hodson, M. Castro: FaRM: Fast Remote Memory. NSDI 2014: a "
    "ring "
    "for each sender at the receiver, polled at its head; the receiver zeroes what it consumed and "
    "writes the head back lazily (the last from memory)",
    "*durable RPC*, table 1, figure 2(b)",
};

constexpr std::string_view kFarmDepartures[]{
    "An entry takes a slot of the largest size instead of following the one before; that costs "
    "memory and no verb.",
    "The receiver asks for the awaited sequence and a checksum, not for a length in front and a "
    "byte behind: inside of one WRITE the verbs promise no order.",
    "The client does not write the head of its ring of replies back: the window bounds what is in "
    "it.",
};

Slots farm_ring(const EndOptions& options) { return frame_slots(0, kRingSlots, options); }

class FarmClient final : public Client {
 public:
  explicit FarmClient(const EndOptions& options)
      : Client(options, farm_ring(options).end() + kCacheLineBytes), ring_(farm_ring(options)) {}

 private:
  bool has_room(std::uint64_t sequence) override {
    auto& word = *reinterpret_cast<std::uint64_t*>(at(ring_.end(), sizeof(std::uint64_t)).data());
    const std::uint64_t head = std::atomic_ref(word).load(std::memory_order_acquire);
    return sequence - head <= kRingSlots;
  }
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    return write(frame, ring_.offset(sequence));
  }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    return find_frame(slot(ring_, sequence), sequence);
  }
  Result<void> release_reply(std::uint64_t sequence) override {
    clear_frame(slot(ring_, sequence));
    return {};
  }

  const Slots ring_;  // of replies here, of requests there
};

class FarmServer final : public Server {
 public:
  FarmServer(const EndOptions& options, Handler& handler)
      : Server(options, farm_ring(options).end(), handler), ring_(farm_ring(options)) {}

 private:
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    return find_frame(slot(ring_, sequence), sequence);
  }
  Result<void> release_request(std::uint64_t sequence) override {
    clear_frame(slot(ring_, sequence));
    if (sequence % kFarmHeadEvery != 0) return {};
    return write(word(sequence, sequence), ring_.end());
  }
  Result<void> post_reply(const Frame& request, const Source& frame) override {
    return write(frame, ring_.offset(request.sequence));
  }

  const Slots ring_;  // of requests here, of replies there
};

}  // namespace

const Design kFarm{
    .name = "farm",
    .title = "FaRM",
    .steps = kFarmSteps,
    .sources = kFarmSources,
    .departures = kFarmDepartures,
    .make_client = [](const EndOptions& options) { return End::open<Client, FarmClient>(options); },
    .make_server = [](const EndOptions& options,
                      Handler& handler) { return End::open<Server, FarmServer>(options, handler); },
};

}  // namespace perdure::rpc::models
