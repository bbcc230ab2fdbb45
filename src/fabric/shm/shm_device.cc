// Devices, registered memory and listeners over shared memory; see shm.h for what they promise.
#include <fmt/format.h>
#include <unistd.h>

#include "core/try.h"
#include "fabric/shm/shm.h"
#include "fabric/shm/shm_endpoint.h"

namespace perdure::fabric::shm {
namespace {

class ShmMemory final : public Memory {
 public:
  ShmMemory(std::shared_ptr<KeyTable> keys, std::span<std::byte> range, std::uint64_t key)
      : keys_(std::move(keys)), range_(range), key_(key) {}
  ~ShmMemory() override { (void)ShmMemory::deregister(); }

  std::span<std::byte> bytes() const override { return range_; }
  std::uint64_t key() const override { return key_; }
  std::uint64_t base() const override { return 0; }
  Result<void> deregister() override {
    if (key_ != 0) keys_->remove(key_);
    return {};
  }

 private:
  std::shared_ptr<KeyTable> keys_;
  std::span<std::byte> range_;
  std::uint64_t key_;  // 0: for this side only, no key
};

class ShmDevice;

class ShmIncoming final : public Incoming {
 public:
  ShmIncoming(Asking asking, Mapping memory, std::shared_ptr<KeyTable> keys,
              const EndpointOptions& options)
      : asking_(std::move(asking)),
        memory_(std::move(memory)),
        keys_(std::move(keys)),
        options_(options) {}

  std::span<const std::byte> private_data() const override {
    return std::span(asking_.hello.private_data).first(asking_.hello.private_length);
  }
  Result<std::unique_ptr<Endpoint>> accept(Deadline) override { return accept(keys_); }
  Result<std::unique_ptr<Endpoint>> accept_into(Device& device, Deadline deadline) override;

 private:
  Result<std::unique_ptr<Endpoint>> accept(std::shared_ptr<KeyTable> keys) {
    if (!memory_) return Error{ErrorCode::InvalidArgument, "accept: already accepted"};
    if (!accept_asking(asking_.socket)) {
      return Error{ErrorCode::Disconnected, "accept: the peer has gone"};
    }
    return std::unique_ptr<Endpoint>(std::make_unique<ShmEndpoint>(
        1, std::move(asking_.socket), std::move(memory_), std::move(keys), options_));
  }

  Asking asking_;
  Mapping memory_;  // empty once accepted
  std::shared_ptr<KeyTable> keys_;
  EndpointOptions options_;
};

class ShmListener final : public Listener {
 public:
  ShmListener(Descriptor socket, std::string address, std::shared_ptr<KeyTable> keys,
              const EndpointOptions& options)
      : socket_(std::move(socket)),
        address_(std::move(address)),
        keys_(std::move(keys)),
        options_(options) {}
  ~ShmListener() override {
    if (address_[0] != '@') ::unlink(address_.c_str());
  }

  std::string address() const override { return address_; }
  Result<std::unique_ptr<Incoming>> next(Deadline deadline) override {
    do {
      auto asking = askers_.next(socket_, deadline);
      if (!asking.ok()) return asking.error();
      auto memory = map_rings(asking->memory);
      if (!memory.ok()) continue;
      return std::unique_ptr<Incoming>(std::make_unique<ShmIncoming>(
          std::move(asking).value(), std::move(memory).value(), keys_, options_));
    } while (!deadline.passed());
    return Error{ErrorCode::TimedOut, "no peer asked to connect in time"};
  }

 private:
  Descriptor socket_;
  Askers askers_;
  std::string address_;
  std::shared_ptr<KeyTable> keys_;
  EndpointOptions options_;
};

class ShmDevice final : public Device {
 public:
  Result<std::unique_ptr<Memory>> register_memory(std::span<std::byte> range,
                                                  Access access) override {
    if (range.empty()) return Error{ErrorCode::InvalidArgument, "register_memory: empty range"};
    const std::uint64_t key =
        access <= Access::Windows ? 0 : keys_->add(range, access == Access::RemoteReadWrite);
    return std::unique_ptr<Memory>(std::make_unique<ShmMemory>(keys_, range, key));
  }

  Result<std::unique_ptr<Listener>> listen(const std::string& address,
                                           const EndpointOptions& options) override {
    std::string opened = address;
    PERDURE_TRY(socket, listen_at(opened));
    return std::unique_ptr<Listener>(
        std::make_unique<ShmListener>(std::move(socket), std::move(opened), keys_, options));
  }

  Result<std::unique_ptr<Endpoint>> connect(const std::string& address,
                                            std::span<const std::byte> private_data,
                                            const EndpointOptions& options,
                                            Deadline deadline) override {
    if (private_data.size() > kPrivateBytesMax) {
      return Error{ErrorCode::InvalidArgument, "connect: more private data than kPrivateBytesMax"};
    }
    PERDURE_TRY(rings, create_rings());
    PERDURE_TRY(socket, ask(address, private_data, rings.descriptor, deadline));
    return std::unique_ptr<Endpoint>(std::make_unique<ShmEndpoint>(
        0, std::move(socket), std::move(rings.mapping), keys_, options));
  }

  WindowKind window_kind(std::uint64_t) const override { return WindowKind::Key; }
  Transport transport() const override { return Transport::Shm; }
  Capabilities capabilities() const override { return Capabilities{.atomic_write = true}; }
  std::string describe() const override { return "shared memory of this host"; }

  const std::shared_ptr<KeyTable>& keys() const { return keys_; }

 private:
  std::shared_ptr<KeyTable> keys_ = std::make_shared<KeyTable>();
};

Result<std::unique_ptr<Endpoint>> ShmIncoming::accept_into(Device& device, Deadline) {
  const auto* own = dynamic_cast<ShmDevice*>(&device);
  if (own == nullptr) {
    return Error{ErrorCode::InvalidArgument, "accept_into: the device is not of this provider"};
  }
  return accept(own->keys());
}

}  // namespace

Result<std::unique_ptr<Device>> open_device() {
  return std::unique_ptr<Device>(std::make_unique<ShmDevice>());
}

}  // namespace perdure::fabric::shm
