// A target of an emulated world, through its power failures: see world_target.h.
#include "testing/world_target.h"

#include <sys/xattr.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "control/json_codec.h"
#include "core/assert.h"
#include "core/try.h"
#include "pmem/lent_region.h"
#include "testing/world_peer.h"

namespace perdure::test {
namespace {

using rpmem::Frame;
using rpmem::FrameKind;

/// The parts of one rpmemd: once a flush has failed, nothing of them is believed any more
/// (PartRegion).
class Parts final : public pmem::LentRegion {
 public:
  Parts(pmem::Region& region, bool flushes) : LentRegion(region), flushes_(flushes) {}
  using Region::flush;
  Result<void> flush(std::span<const pmem::Range> ranges) override {
    if (failed_) return *failed_;
    if (!flushes_) return {};
    return noted(LentRegion::flush(ranges));
  }
  Result<void> deep_flush(const pmem::Range& range) override {
    if (failed_) return *failed_;
    return noted(LentRegion::deep_flush(range));
  }
  Result<void> check() override {
    if (failed_) return *failed_;
    return LentRegion::check();
  }

 private:
  Result<void> noted(Result<void> flushed) {
    if (!flushed.ok()) failed_ = flushed.error();
    return flushed;
  }

  const bool flushes_;
  std::optional<Error> failed_;
};

/// What one that comes back asks for, as one that comes for the first time would.
std::string as_if_new(const std::string& body) {
  auto ask = rpmem::decode_pool_ask(body);
  PERDURE_ASSERT(ask.ok());
  ask->again = false;
  return rpmem::encode(*ask);
}

}  // namespace

/// An rpmemd as its client has it.
class WorldTarget::Peer final : public rpmem::TargetPeer {
 public:
  Peer(WorldTarget& target, fabric::emu::Machine& client, std::shared_ptr<Process> process)
      : target_(target), client_(client), process_(std::move(process)) {}
  /// It reads the end of its input, unless nothing gets there.
  ~Peer() override {
    process_->has_a_client = false;
    const auto link = target_.world_.link(client_, target_.machine_);
    if (link != fabric::emu::LinkState::Cut) end_process();
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  std::string name() const override { return target_.machine_.name(); }
  fabric::Device& device() override { return client_; }
  bool in_step() const override { return in_step_; }

  Result<std::string> ask(FrameKind kind, std::string body, const Deadline& deadline) override {
    if (!in_step_) return with_complaint({ErrorCode::Disconnected, "it owes an answer"});
    in_step_ = false;
    if (kind == FrameKind::Open && target_.options_.forgets_clients) body = as_if_new(body);
    const auto answer =
        ask_over_link(target_.world_, target_.machine_, client_, deadline, [&]() -> Result<Frame> {
          if (process_->has_ended) return Error{ErrorCode::Disconnected, "it has ended"};
          return process_->host->handle({kind, std::move(body)});
        });
    if (!answer.ok()) return with_complaint(answer.error());
    // Killed while it answered.
    if (process_->has_ended) return with_complaint({ErrorCode::Disconnected, "it has ended"});
    in_step_ = true;
    if (answer->kind == FrameKind::Done) return answer->body;
    return with_complaint(control::decode_error(answer->body));
  }

  Result<client::Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) override {
    auto opened = open_over(client_, request, deadline, deadline.left());
    if (opened.ok()) ++target_.sessions_;
    return opened;
  }

  Result<void> end(bool remove_created, const Deadline& deadline) override {
    PERDURE_TRY_VOID(ask(FrameKind::Close, rpmem::encode_close(remove_created), deadline));
    end_process();
    return {};
  }

 private:
  Error with_complaint(const Error& error) const override {
    return {error.code, name() + ": " + error.message};
  }
  /// As rpmemd does it: at once, whatever its sessions are at. That what its RNIC has acknowledged
  /// is placed before its queue pairs end is an assumption, without a source; Machine::kill makes
  /// it, too.
  void end_process() {
    if (process_->has_ended) return;
    process_->has_ended = true;
    target_.world_.settle();
    target_.release_ended();
  }

  WorldTarget& target_;
  fabric::emu::Machine& client_;
  const std::shared_ptr<Process> process_;
  bool in_step_ = true;
};

Result<std::unique_ptr<WorldTarget>> WorldTarget::start(fabric::emu::World& world,
                                                        const std::string& name,
                                                        const ServerProfile& profile,
                                                        const Options& options) {
  auto directory = TemporaryDirectory::make_in_memory();
  if (!directory.ok()) return directory.error();
  return std::unique_ptr<WorldTarget>(
      new WorldTarget(world, name, profile, options, std::move(*directory)));
}

WorldTarget::WorldTarget(fabric::emu::World& world, const std::string& name,
                         const ServerProfile& profile, const Options& options,
                         TemporaryDirectory directory)
    : world_(world),
      profile_(profile),
      options_(options),
      directory_(std::move(directory)),
      machine_(world.add_machine(name, profile, options.switches)),
      region_(machine_.add_region(rpmem::PartRegion::kFrontBytes + kPoolBytes)) {
  const std::string set = directory_.path() + "/" + kSet;
  std::ofstream(set) << "PMEMPOOLSET\n" << kPoolBytes << " " << part() << "\n";
  const char nothing = 0;
  knows_clients_ = ::setxattr(set.c_str(), rpmem::kClientAttribute, &nothing, 1, 0) == 0;
  act();
}

WorldTarget::~WorldTarget() {
  end_all();
  release_ended();
}

void WorldTarget::act() {
  machine_.add_actor([this] {
    bool worked = false;
    for (const auto& each : processes_) {
      worked = (!each->has_ended && each->host->pump()) || worked;
    }
    return worked;
  });
}

rpmem::PoolHostOptions WorldTarget::host_options() {
  rpmem::PoolHostOptions options;
  options.directories.sets = directory_.path();
  options.busy_within = Nanoseconds{0};
  options.listen_host.clear();
  options.open_device = [this](Transport) {
    return Result<std::shared_ptr<fabric::Device>>(
        std::shared_ptr<fabric::Device>(std::shared_ptr<void>(), &machine_));
  };
  options.map = [this](const rpmem::PartSet&) -> Result<std::unique_ptr<pmem::Region>> {
    auto parts = std::make_unique<Parts>(region_, !options_.flushes_nothing);
    // What is visible is durable before anybody relies on it: see PartRegion::map.
    PERDURE_TRY_VOID(parts->flush(0, region_.bytes().size()));
    return std::unique_ptr<pmem::Region>(std::move(parts));
  };
  options.service.threads = false;
  options.service.clock = &world_.clock();
  options.service.queue = options_.queue;
  options.service.settings.ddio = profile_.ddio;
  options.service.secrets = [this] { return world_.random().next() | 1; };
  return options;
}

rpmem::StartTarget WorldTarget::reached_from(fabric::emu::Machine& client) {
  return [this, &client](const Deadline& deadline) -> Result<std::unique_ptr<rpmem::TargetPeer>> {
    if (!machine_.powered() && world_.random().chance(1, 4)) start_again();
    if (world_.random().chance(1, 2)) end_orphans();
    release_ended();
    PERDURE_TRY(process, ask_over_link(world_, machine_, client, deadline,
                                       [&]() -> Result<std::shared_ptr<Process>> {
                                         auto begun = std::make_shared<Process>();
                                         begun->host =
                                             std::make_unique<rpmem::PoolHost>(host_options());
                                         processes_.push_back(begun);
                                         ++started_;
                                         return begun;
                                       }));
    return std::unique_ptr<rpmem::TargetPeer>(
        std::make_unique<Peer>(*this, client, std::move(process)));
  };
}

/// In the midst of what one of them is at, maybe.
void WorldTarget::end_all() {
  for (const auto& each : processes_) each->has_ended = true;
}

/// What has ended is let go of only here.
void WorldTarget::release_ended() {
  for (const auto& each : processes_) {
    if (each->has_ended && each->host != nullptr) each->host->abandon();
    if (each->has_ended) each->host.reset();
  }
  std::erase_if(processes_, [](const auto& each) { return each->has_ended; });
}

void WorldTarget::end_orphans() {
  for (const auto& each : processes_) {
    each->has_ended = each->has_ended || !each->has_a_client;
  }
}

void WorldTarget::lose_power() {
  if (machine_.powered()) machine_.power_cut();
  end_all();
}

void WorldTarget::kill() {
  if (machine_.powered()) machine_.kill();
  end_all();
}

void WorldTarget::start_again() {
  lose_power();
  release_ended();
  machine_.power_on();
  act();
}

void WorldTarget::replace_medium() {
  PERDURE_ASSERT(!machine_.powered());
  release_ended();
  region_.replace({});
  (void)std::filesystem::remove(part());
}

}  // namespace perdure::test
