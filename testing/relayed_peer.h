// A peer that passes everything on to another one: for tests that do something besides.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/peer.h"

namespace perdure::test {

class RelayedPeer : public client::Peer {
 public:
  explicit RelayedPeer(std::unique_ptr<client::Peer> real) : real_(std::move(real)) {}
  std::string name() const override { return real_->name(); }
  fabric::Device& device() override { return real_->device(); }
  Result<std::vector<control::PoolDescription>> list(Deadline d) override { return real_->list(d); }
  Result<control::PoolDescription> describe(const std::string& pool, Deadline d) override {
    return real_->describe(pool, d);
  }
  Result<control::PoolDescription> create(const control::PoolRequest& r, Deadline d) override {
    return real_->create(r, d);
  }
  Result<client::Session> open_session(const control::SessionRequest& r, Deadline d) override {
    return real_->open_session(r, d);
  }
  Result<void> close_session(std::uint64_t id, control::Left left, Deadline d) override {
    return real_->close_session(id, left, d);
  }
  Result<void> fence(const std::string& p, Epoch e, Deadline d) override {
    return real_->fence(p, e, d);
  }

 private:
  std::unique_ptr<client::Peer> real_;
};

}  // namespace perdure::test
