// Wrong methods and the right ones on the emulated fabric: updates by one method, a power cut of
// the responder at a random event, and how many of those that were acknowledged are lost. The
// responder keeps what reaches its memory controller (ADR), and DDIO is on. Prints a JSON object
// for each method, on a line of its own.
#include "core/random.h"
#include "fabric/emu/world.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "plan/plan.h"
#include "plan/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace {

using namespace perdure;
namespace emu = fabric::emu;

constexpr std::uint64_t kUpdates = 64;
constexpr std::uint64_t kSlotBytes = 256;  // four lines, so that tearing shows
constexpr std::uint64_t kExportedBytes = kUpdates * kSlotBytes;
constexpr std::uint64_t kEventsMax = 1'000'000;
constexpr std::uint32_t kSession = 7;
constexpr persist::ReceiveQueue kQueue{32, 1024};

struct Outcome {
  std::uint64_t events = 0;
  std::uint64_t acknowledged = 0;
  std::uint64_t lost = 0;
};

/// A requester and a responder, and updates by one method from the one to the other.
class Run {
 public:
  Run(const ServerProfile& profile, std::uint64_t seed)
      : profile_(profile),
        random_(seed),
        world_(random_),
        server_(world_.add_machine("responder", profile)),
        client_(world_.add_machine("requester", profile)),
        region_(server_.add_region(kExportedBytes)),
        source_(kExportedBytes) {}

  Result<Outcome> run(const Method& method, std::uint64_t cut_after) {
    if (auto connected = connect(method); !connected.ok()) return connected.error();
    if (cut_after != 0) world_.cut_after(server_, cut_after);
    Outcome outcome;
    const std::uint64_t start = world_.events();
    while (requester_->resolved() < kUpdates && world_.events() - start < kEventsMax) {
      if (requester_->begun() < kUpdates) (void)begin(requester_->begun());
      if (!requester_->poll().ok()) break;
    }
    outcome.events = world_.events() - start;
    outcome.acknowledged = requester_->resolved();
    world_.cancel_cut();
    if (server_.powered()) server_.power_cut();
    responder_.reset();
    server_.power_on();
    for (std::uint64_t number = 0; number < outcome.acknowledged; ++number) {
      outcome.lost += is_whole(number) ? 0 : 1;
    }
    return outcome;
  }

 private:
  Result<void> connect(const Method& method) {
    auto ends = world_.connect(client_, server_);
    near_ = std::move(ends.first);
    far_ = std::move(ends.second);
    auto exported = server_.register_memory(region_.bytes(), fabric::Access::RemoteReadWrite);
    if (!exported.ok()) return exported.error();
    exported_ = std::move(*exported);
    auto source = client_.register_memory(source_, fabric::Access::Local);
    if (!source.ok()) return source.error();
    source_memory_ = std::move(*source);

    persist::Responder::Options serving;
    serving.exported = {0, kExportedBytes};
    serving.queue = kQueue;
    serving.session = kSession;
    auto responder = persist::Responder::open(*far_, server_, region_, serving);
    if (!responder.ok()) return responder.error();
    responder_ = std::move(*responder);
    server_.add_actor([this] {
      const auto handled = responder_->pump();
      return handled.ok() && *handled != 0;
    });
    persist::Requester::Options options;
    options.remote = {exported_->key(), exported_->base(), kExportedBytes};
    options.queue = kQueue;
    options.session = kSession;
    auto requester = persist::Requester::open(*near_, client_, profile_, {method}, options);
    if (!requester.ok()) return requester.error();
    requester_ = std::move(*requester);
    return {};
  }

  /// Queue full: the next poll makes room.
  Result<std::uint64_t> begin(std::uint64_t number) {
    std::byte* data = source_.data() + number * kSlotBytes;
    std::memset(data, value_of(number), kSlotBytes);
    const persist::UpdateItem item{number * kSlotBytes, {data, kSlotBytes, source_memory_.get()}};
    return requester_->begin(0, {&item, 1});
  }

  static int value_of(std::uint64_t number) { return static_cast<int>(number % 255) + 1; }

  bool is_whole(std::uint64_t number) {
    const auto slot = region_.bytes().subspan(number * kSlotBytes, kSlotBytes);
    return std::ranges::all_of(
        slot, [&](std::byte each) { return std::to_integer<int>(each) == value_of(number); });
  }

  const ServerProfile profile_;
  Random random_;
  emu::World world_;
  emu::Machine& server_;
  emu::Machine& client_;
  pmem::CrashableRegion& region_;
  std::vector<std::byte> source_;
  std::unique_ptr<fabric::Endpoint> near_;
  std::unique_ptr<fabric::Endpoint> far_;
  std::unique_ptr<fabric::Memory> exported_;
  std::unique_ptr<fabric::Memory> source_memory_;
  std::unique_ptr<persist::Responder> responder_;
  std::unique_ptr<persist::Requester> requester_;
};

struct Candidate {
  std::string_view words;
  Method method;
  bool wrong = true;
};

Method one_sided(std::string name, std::vector<RequesterStep> steps) {
  Method method;
  method.name = std::move(name);
  method.shape = singleton();
  method.requester = std::move(steps);
  return method;
}

Result<std::vector<Candidate>> candidates(const ServerProfile& profile) {
  using namespace plan;
  std::vector<Candidate> all;
  all.push_back({"WRITE completion taken as durable",
                 one_sided("write-completion", {write({0}), wait_completion(0)})});
  all.push_back({"flush to visibility taken as durable",
                 one_sided("write-flush", {write({0}), flush({0}), wait_completion(1)})});
  Update update;
  update.shape = singleton();
  update.bytes = kSlotBytes;
  auto right = plan::plan(profile, update);
  if (!right.ok()) return right.error();
  all.push_back({"as planned", std::move(*right), false});
  return all;
}

Result<void> show(const ServerProfile& profile, const Candidate& candidate, std::uint64_t cuts,
                  std::uint64_t seed) {
  auto whole = Run(profile, seed).run(candidate.method, 0);
  if (!whole.ok()) return whole.error();
  Random prng(seed);
  Outcome total;
  for (std::uint64_t cut = 0; cut < cuts; ++cut) {
    const std::uint64_t after = 1 + prng.below(whole->events);
    auto outcome = Run(profile, prng.next()).run(candidate.method, after);
    if (!outcome.ok()) return outcome.error();
    total.acknowledged += outcome->acknowledged;
    total.lost += outcome->lost;
  }
  fmt::print(
      "{{\"transport\": \"{}\", \"method\": \"{} ({})\", \"wrong\": {}, \"cuts\": {}, "
      "\"acknowledged\": {}, \"lost\": {}}}\n",
      to_string(profile.transport), candidate.words, candidate.method.name, candidate.wrong, cuts,
      total.acknowledged, total.lost);
  return {};
}

Result<void> show_all(std::uint64_t cuts, std::uint64_t seed) {
  for (const Transport transport : {Transport::Roce, Transport::Iwarp, Transport::Tcp}) {
    ServerProfile profile{PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram, transport, {}};
    profile.capabilities.native_flush = transport == Transport::Roce;
    auto all = candidates(profile);
    if (!all.ok()) return all.error();
    for (const Candidate& each : *all) {
      if (auto shown = show(profile, each, cuts, seed); !shown.ok()) return shown.error();
    }
  }
  return {};
}

std::optional<std::uint64_t> number_after(std::string_view name, int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (name != argv[i]) continue;
    std::uint64_t value = 0;
    const char* end = argv[i + 1] + std::strlen(argv[i + 1]);
    const auto parsed = std::from_chars(argv[i + 1], end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end) return value;
  }
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  const auto cuts = number_after("--cuts", argc, argv);
  const auto seed = number_after("--seed", argc, argv);
  if (!cuts || !seed || argc != 5) {
    std::fprintf(stderr, "usage: perdure_lab_emulated_methods --cuts N --seed N\n");
    return 2;
  }
  if (const auto shown = show_all(*cuts, *seed); !shown.ok()) {
    std::fprintf(stderr, "perdure_lab_emulated_methods: %s\n", shown.error().message.c_str());
    return 1;
  }
  return 0;
}
