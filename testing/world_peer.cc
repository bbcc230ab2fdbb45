// A service of an emulated world as a peer: see world_peer.h.
#include "testing/world_peer.h"

#include <string>
#include <utility>
#include <vector>

#include "testing/local_peer.h"

namespace perdure::test {
namespace {

class WorldPeer final : public client::Peer {
 public:
  WorldPeer(fabric::emu::World& world, fabric::emu::Machine& server, RunningService service,
            fabric::Device& device)
      : world_(world), server_(server), service_(std::move(service)), device_(device) {}

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
  template <typename Request>
  auto ask(Deadline deadline, Request request) -> decltype(request(std::declval<LocalPeer&>())) {
    using Answer = decltype(request(std::declval<LocalPeer&>()));
    server::PeerService* const service = service_();
    if (service == nullptr) return Error{ErrorCode::Disconnected, "no power"};
    return ask_over_link(world_, server_, device_, deadline, [&]() -> Answer {
      LocalPeer local(name(), *service, device_);
      return request(local);
    });
  }

  fabric::emu::World& world_;
  fabric::emu::Machine& server_;
  const RunningService service_;
  fabric::Device& device_;
};

}  // namespace

std::unique_ptr<client::Peer> world_peer(fabric::emu::World& world, fabric::emu::Machine& server,
                                         RunningService service, fabric::Device& device) {
  return std::make_unique<WorldPeer>(world, server, std::move(service), device);
}

}  // namespace perdure::test
