// A service of an emulated world as a peer: see world_peer.h.
#include "testing/world_peer.h"

#include <string>
#include <utility>
#include <vector>

#include "testing/local_peer.h"

namespace perdure::test {
namespace {

using fabric::emu::LinkState;

/// One request in so many is lost on a lossy link, and as many answers.
constexpr std::uint64_t kOneInLost = 8;

class WorldPeer final : public client::Peer {
 public:
  WorldPeer(fabric::emu::World& world, fabric::emu::Machine& server, RunningService service,
            fabric::Device& device)
      : world_(world),
        server_(server),
        service_(std::move(service)),
        device_(device),
        machine_(dynamic_cast<fabric::emu::Machine*>(&device)) {}

  std::string name() const override { return server_.name(); }
  fabric::Device& device() override { return device_; }
  Result<std::vector<control::PoolDescription>> list(Deadline deadline) override {
    return ask(deadline, [&](LocalPeer& local) { return local.list(deadline); });
  }
  Result<control::PoolDescription> describe(const std::string& pool, Deadline deadline) override {
    return ask(deadline, [&](LocalPeer& local) { return local.describe(pool, deadline); });
  }
  Result<control::PoolDescription> create(const control::PoolRequest& request,
                                          Deadline deadline) override {
    return ask(deadline, [&](LocalPeer& local) { return local.create(request, deadline); });
  }
  Result<client::Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) override {
    return ask(deadline, [&](LocalPeer& local) { return local.open_session(request, deadline); });
  }
  Result<void> close_session(std::uint64_t id, control::Left left, Deadline deadline) override {
    return ask(deadline, [&](LocalPeer& local) { return local.close_session(id, left, deadline); });
  }
  Result<void> fence(const std::string& pool, Epoch epoch, Deadline deadline) override {
    return ask(deadline, [&](LocalPeer& local) { return local.fence(pool, epoch, deadline); });
  }

 private:
  Error no_answer(Deadline deadline) {
    world_.pass(deadline.left());
    return {ErrorCode::TimedOut, name() + " does not answer"};
  }

  /// One request, over whatever link there is.
  template <typename Request>
  auto ask(Deadline deadline, Request request) -> decltype(request(std::declval<LocalPeer&>())) {
    const bool off = machine_ != nullptr && !machine_->powered();
    server::PeerService* const service = service_();
    if (off || !server_.powered() || service == nullptr) {
      return Error{ErrorCode::Disconnected, "no power"};
    }
    const LinkState link = machine_ != nullptr ? world_.link(*machine_, server_) : LinkState::Up;
    const bool lossy = link == LinkState::Lossy;
    if (link == LinkState::Cut || (lossy && world_.random().chance(1, kOneInLost))) {
      return no_answer(deadline);
    }
    const bool starved = server_.starved();
    if (starved && world_.random().chance(1, 2)) return no_answer(deadline);
    LocalPeer local(name(), *service, device_);
    auto answer = request(local);
    if (!server_.powered()) return Error{ErrorCode::Disconnected, "no power"};
    if (starved || (lossy && world_.random().chance(1, kOneInLost))) return no_answer(deadline);
    return answer;
  }

  fabric::emu::World& world_;
  fabric::emu::Machine& server_;
  const RunningService service_;
  fabric::Device& device_;
  fabric::emu::Machine* const machine_;
};

}  // namespace

std::unique_ptr<client::Peer> world_peer(fabric::emu::World& world, fabric::emu::Machine& server,
                                         RunningService service, fabric::Device& device) {
  return std::make_unique<WorldPeer>(world, server, std::move(service), device);
}

}  // namespace perdure::test
