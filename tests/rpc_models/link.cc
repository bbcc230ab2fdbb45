#include "link.h"

#include "core/try.h"
#include "fabric/open_device.h"
#include "rpc/models/end.h"

#include <thread>
#include <utility>

namespace perdure::rpc::models {
namespace {

ServerProfile machine_profile(WriteOrder order) {
  ServerProfile profile;
  profile.domain = PersistenceDomain::Dmp;
  profile.transport = Transport::InfiniBand;
  profile.write_order = order;
  profile.capabilities.send_flush = true;
  return profile;
}

class WorldLink final : public Link {
 public:
  WorldLink(std::uint64_t seed, WriteOrder order)
      : random_(seed),
        world_(random_),
        client_(world_.add_machine("client", machine_profile(order))),
        server_(world_.add_machine("server", machine_profile(order))),
        ends_(world_.connect(client_, server_, kEndpointOptions)) {}

  Place client() override { return {&client_, ends_.first.get()}; }
  Place server() override { return {&server_, ends_.second.get()}; }

 private:
  Random random_;
  fabric::emu::World world_;
  fabric::emu::Machine& client_;
  fabric::emu::Machine& server_;
  std::pair<std::unique_ptr<fabric::Endpoint>, std::unique_ptr<fabric::Endpoint>> ends_;
};

class DeviceLink final : public Link {
 public:
  static Result<std::unique_ptr<Link>> connect(Transport transport) {
    auto link = std::make_unique<DeviceLink>();
    PERDURE_TRY(server_device, fabric::open_device(transport));
    link->server_device_ = std::move(server_device);
    PERDURE_TRY(client_device, fabric::open_device(transport));
    link->client_device_ = std::move(client_device);
    PERDURE_TRY(listener, link->server_device_->listen("", kEndpointOptions));
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    Result<std::unique_ptr<fabric::Endpoint>> connected = Error{};
    std::thread other([&] {
      connected =
          link->client_device_->connect(listener->address(), {}, kEndpointOptions, deadline);
    });
    auto incoming = listener->next(deadline);
    Result<std::unique_ptr<fabric::Endpoint>> accepted = Error{};
    if (incoming.ok()) accepted = (*incoming)->accept(deadline);
    other.join();
    if (!incoming.ok()) return incoming.error();
    if (!accepted.ok()) return accepted.error();
    if (!connected.ok()) return connected.error();
    link->server_ = std::move(accepted).value();
    link->client_ = std::move(connected).value();
    return std::unique_ptr<Link>(std::move(link));
  }

  Place client() override { return {client_device_.get(), client_.get()}; }
  Place server() override { return {server_device_.get(), server_.get()}; }

 private:
  std::unique_ptr<fabric::Device> server_device_;
  std::unique_ptr<fabric::Device> client_device_;
  std::unique_ptr<fabric::Endpoint> server_;
  std::unique_ptr<fabric::Endpoint> client_;
};

}  // namespace

std::unique_ptr<Link> world_link(std::uint64_t seed, WriteOrder order) {
  return std::make_unique<WorldLink>(seed, order);
}

Result<std::unique_ptr<Link>> device_link(Transport transport) {
  return DeviceLink::connect(transport);
}

}  // namespace perdure::rpc::models
