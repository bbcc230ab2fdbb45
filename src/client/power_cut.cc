// Writing until the power goes, and looking afterwards. The state's text is in power_cut_state.cc.
#include "client/power_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "client/dial.h"
#include "client/durable_session.h"
#include "client/remote_bytes.h"
#include "core/bytes.h"
#include "core/counted.h"
#include "core/siphash.h"
#include "core/try.h"

namespace perdure::client {
namespace {

constexpr std::string_view kNoBootId = "unknown";  // what host_identity() is then
constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);
constexpr Nanoseconds kSaveEvery = std::chrono::milliseconds(200);
constexpr Nanoseconds kSlice = std::chrono::milliseconds(1);
constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(100);
constexpr std::size_t kLossesNamed = 8;
constexpr std::array<std::uint64_t, 3> kLengths{64, 1024, kPowerCutSlotBytes};
static_assert(kPowerCutSlotsMin > kUpdatesMax, "a slot has at most one update in flight");

/// The words of one update.
class Pattern {
 public:
  Pattern(std::uint64_t seed, std::uint64_t number) {
    std::array<std::byte, kWordBytes> bytes{};
    store(bytes.data(), number);
    key_ = siphash({seed, 0}, bytes);
  }
  /// The finalizer of splitmix64 (Steele, Lea, Flood, 2014).
  std::uint64_t word(std::uint64_t index) const {
    std::uint64_t mixed = key_ + (index + 1) * 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }
  bool is(std::span<const std::byte> bytes, std::uint64_t index) const {
    return load<std::uint64_t>(bytes.data() + index * kWordBytes) == word(index);
  }

 private:
  std::uint64_t key_;
};

std::uint64_t length_of(const PowerCutRun& run, std::uint64_t slot) {
  return run.lengths[slot % run.lengths.size()];
}

class Arming {
 public:
  Arming(std::unique_ptr<Peer> peer, const PowerCutOptions& options)
      : options_(options),
        bytes_(kUpdatesMax * kPowerCutSlotBytes),
        session_(std::move(peer), session_options(options)) {}
  /// First what its requests are posted on, then the memory that they name, last the device.
  ~Arming() {
    session_.close();
    memory_.reset();
  }
  Arming(const Arming&) = delete;
  Arming& operator=(const Arming&) = delete;

  Result<PowerCutRun> run() {
    PERDURE_TRY_VOID(begin());
    PERDURE_TRY_VOID(options_.save(run_));
    const Deadline over(*options_.clock, options_.write_for);
    Nanoseconds saved = options_.clock->now();
    last_answer_ = saved;
    while (session_.up() && !over.passed() && !options_.stop()) {
      PERDURE_TRY_VOID(step());
      if (options_.clock->now() - saved < kSaveEvery) continue;
      saved = options_.clock->now();
      PERDURE_TRY_VOID(options_.save(run_));
    }
    await_the_rest();
    note_loss();
    run_.ended = true;
    PERDURE_TRY_VOID(options_.save(run_));
    if (!run_.gone || !options_.boot_now) return run_;
    watch_until_it_is_back();
    PERDURE_TRY_VOID(options_.save(run_));
    return run_;
  }

 private:
  static DurableSessionOptions session_options(const PowerCutOptions& options) {
    DurableSessionOptions of_session;
    of_session.primary = options.primary;
    of_session.timeout = options.silent_within;
    of_session.clock = options.clock;
    return of_session;
  }

  /// Errors: those of arm_power_cut.
  Result<void> begin() {
    session_.set_deadline(Deadline(*options_.clock, options_.timeout));
    Peer& peer = session_.peer();
    PERDURE_TRY(pool, peer.describe(options_.pool, session_.deadline()));
    if (pool.bytes < kPowerCutSlotsMin * kPowerCutSlotBytes) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("pool {} has {} bytes, the pattern needs {}: make another one",
                               options_.pool, pool.bytes, kPowerCutSlotsMin * kPowerCutSlotBytes)};
    }
    control::SessionRequest request;
    request.pool = options_.pool;
    request.write = true;
    request.epoch = Epoch{pool.epoch.value + 1};
    request.writer = options_.writer;
    request.writer_name = "perdure probe --power-cut";
    PERDURE_TRY_VOID(session_.open(request));
    PERDURE_TRY(memory, session_.register_memory(bytes_));
    memory_ = std::move(memory);
    PERDURE_TRY_VOID(session_.prepare(false));
    session_.set_deadline(std::nullopt);
    run_.peer = peer.name();
    run_.pool = options_.pool;
    run_.uuid = pool.uuid;
    run_.start = options_.start;
    run_.epoch = request.epoch.value;
    run_.seed = options_.seed;
    run_.slots = std::min(pool.bytes / kPowerCutSlotBytes, kPowerCutSlotsMax);
    const std::uint64_t most = session_.range_bytes_max() / kWordBytes * kWordBytes;
    std::transform(kLengths.begin(), kLengths.end(), run_.lengths.begin(),
                   [most](std::uint64_t length) { return std::min(length, most); });
    run_.methods = session_.small_place_method().name;
    if (session_.large_place_method().name != run_.methods)
      run_.methods += ", " + session_.large_place_method().name;
    const std::optional<PowerCutRun>& before = options_.before;
    if (before && before->uuid == run_.uuid && before->methods == run_.methods)
      run_.cuts_checked = before->cuts_checked;
    return {};
  }

  /// Begins an update if there is room, and takes answers. Errors: those of a mistake of ours.
  Result<void> step() {
    if (session_.in_flight() < kUpdatesMax) {
      PERDURE_TRY_VOID(write_next());
    } else if (fabric::Endpoint* endpoint = session_.endpoint()) {
      fabric::wait_any(std::span(&endpoint, 1), kSlice);
    }
    take_answers();
    return {};
  }

  Result<void> write_next() {
    const std::uint64_t number = session_.begun() + 1;
    const std::uint64_t slot = (number - 1) % run_.slots;
    std::byte* const from = bytes_.data() + number % kUpdatesMax * kPowerCutSlotBytes;
    const std::uint64_t length = length_of(run_, slot);
    const Pattern pattern(run_.seed, number);
    for (std::uint64_t i = 0; i < length / kWordBytes; ++i)
      store(from + i * kWordBytes, pattern.word(i));
    const persist::UpdateItem item{slot * kPowerCutSlotBytes, {from, length, memory_.get()}};
    const auto begun = session_.begin_place(item);
    const bool full = !begun.ok() && begun.code() == ErrorCode::QueueFull;
    const bool lost = !begun.ok() && (begun.code() == ErrorCode::Disconnected ||
                                      begun.code() == ErrorCode::OutcomeUnknown);
    if (!begun.ok() && !full && !lost) return begun.error();
    if (!full) run_.begun = number;  // of one that was lost some may be there: it is counted in
    return {};
  }

  void take_answers() {
    if (!session_.up()) return;
    session_.poll();
    const std::uint64_t acknowledged = session_.begun() - session_.in_flight();
    if (acknowledged > run_.acknowledged) {
      run_.acknowledged = acknowledged;
      last_answer_ = options_.clock->now();
    }
    note_loss();
  }

  /// Once. Silence is no loss that was noticed, and may be one all the same.
  void note_loss() {
    if (run_.gone || (session_.up() && (!rest_awaited_ || session_.idle()))) return;
    run_.gone = true;
    if (session_.up()) {
      run_.lost_reason = "it did not answer any more";
      return;
    }
    run_.noticed_ns = static_cast<std::uint64_t>((options_.clock->now() - last_answer_).count());
    run_.lost_reason = session_.down_reason() ? session_.down_reason()->message : "nobody knows";
  }

  /// The session may have ended alone: its daemon, or what lies between. Then the kernel of before
  /// answers first.
  void watch_until_it_is_back() {
    const Deadline patience(*options_.clock, options_.watch_for);
    std::optional<PeerStart> now = options_.boot_now();  // once, whoever wants it to end
    while (!now && !patience.passed() && !options_.stop()) {
      fabric::wait_any({}, kLookEvery);
      now = options_.boot_now();
    }
    if (!now) return;
    const StartedAnew found = started_anew(run_.start, *now);
    run_.watched = found.answer == StartedAnew::Answer::Yes;
    if (run_.watched) return;
    if (found.answer == StartedAnew::Answer::NotKnown) {
      run_.lost_reason += "; it answers again, and whether anew is not known, for " + found.why;
      return;
    }
    const char* const what = run_.noticed_ns ? "the session ended" : "it was silent for a while";
    run_.lost_reason = fmt::format("{}, and the machine is there: {}", what, run_.lost_reason);
    run_.gone = false;
    run_.noticed_ns.reset();
  }

  /// What is in flight when writing ends is acknowledged, unless the peer goes away just then.
  void await_the_rest() {
    const Deadline patience(*options_.clock, options_.timeout);
    while (session_.up() && !session_.idle() && !patience.passed()) {
      fabric::Endpoint* endpoint = session_.endpoint();
      if (endpoint != nullptr) fabric::wait_any(std::span(&endpoint, 1), kSlice);
      take_answers();
    }
    rest_awaited_ = true;
  }

  const PowerCutOptions& options_;
  std::vector<std::byte> bytes_;  // an update in flight each
  std::unique_ptr<fabric::Memory> memory_;
  DurableSession session_;  // has the peer, and that the device
  PowerCutRun run_;
  Nanoseconds last_answer_{0};
  bool rest_awaited_ = false;
};

/// What one slot has, and should have.
struct SlotFound {
  std::uint64_t wanted = 0;  // its last acknowledged update
  std::uint64_t words = 0;   // that are of no update which may be there
  std::uint64_t older = 0;   // of those, of the update before
};

/// The last update of this slot that was acknowledged; 0: none was.
std::uint64_t last_acknowledged(const PowerCutRun& run, std::uint64_t slot) {
  if (run.acknowledged <= slot) return 0;
  return slot + 1 + (run.acknowledged - slot - 1) / run.slots * run.slots;
}

/// Newer updates that may be there too, whole or in part. Of a run that was cut off itself it is
/// not known how far it came: then the slot's own first word is asked.
std::vector<Pattern> newer_updates(const PowerCutRun& run, std::uint64_t wanted,
                                   std::span<const std::byte> bytes) {
  std::vector<Pattern> newer;
  if (run.ended) {
    if (wanted + run.slots <= run.begun) newer.emplace_back(run.seed, wanted + run.slots);
    return newer;
  }
  constexpr std::uint64_t kAheadMax = 4096;  // rounds through the slots between two saves
  for (std::uint64_t round = 1; round <= kAheadMax; ++round) {
    const std::uint64_t number = wanted + round * run.slots;
    const Pattern pattern(run.seed, number);
    const std::uint64_t last = bytes.size() / kWordBytes - 1;
    if (!pattern.is(bytes, 0) && !pattern.is(bytes, last) && round > 1) continue;
    newer.push_back(pattern);
    newer.emplace_back(run.seed, number + run.slots);
  }
  return newer;
}

SlotFound look_at(const PowerCutRun& run, std::uint64_t slot, std::span<const std::byte> bytes) {
  SlotFound found{last_acknowledged(run, slot), 0, 0};
  const Pattern wanted(run.seed, found.wanted);
  const bool has_older = found.wanted > run.slots;
  const Pattern older(run.seed, has_older ? found.wanted - run.slots : found.wanted);
  std::vector<Pattern> newer;
  for (std::uint64_t i = 0; i < bytes.size() / kWordBytes; ++i) {
    if (wanted.is(bytes, i)) continue;
    if (newer.empty()) newer = newer_updates(run, found.wanted, bytes);
    const bool is_newer = std::any_of(newer.begin(), newer.end(),
                                      [&](const Pattern& each) { return each.is(bytes, i); });
    if (is_newer) continue;
    ++found.words;
    found.older += has_older && older.is(bytes, i) ? 1 : 0;
  }
  return found;
}

struct Losses {
  std::uint64_t slots_checked = 0;
  std::uint64_t slots_lost = 0;
  std::uint64_t bytes_lost = 0;
  std::string named;

  void note(std::uint64_t slot, std::uint64_t length, const SlotFound& found) {
    ++slots_checked;
    if (found.words == 0) return;
    ++slots_lost;
    bytes_lost += found.words * kWordBytes;
    if (slots_lost > kLossesNamed) return;
    named += fmt::format("{}update {} ({} bytes at offset {}): {} of them are {}",
                         named.empty() ? "" : "; ", found.wanted, length, slot * kPowerCutSlotBytes,
                         found.words * kWordBytes,
                         found.older == found.words ? "still those of the update before it"
                                                    : "of no update that was written");
  }
};

Result<Losses> look_at_all(RemoteBytes& bytes, const PowerCutRun& run) {
  Losses losses;
  std::vector<std::byte> read(kPowerCutSlotBytes);
  for (std::uint64_t slot = 0; slot < std::min(run.slots, run.acknowledged); ++slot) {
    const std::span<std::byte> to(read.data(), length_of(run, slot));
    PERDURE_TRY_VOID(bytes.read(slot * kPowerCutSlotBytes, to));
    losses.note(slot, to.size(), look_at(run, slot, to));
  }
  return losses;
}

/// Why no power failed under the writes, or may not have, to come after "for"; empty: it did. What
/// was written before the last of them has lasted may have been written back by itself.
std::string not_cut_while_writing(const PowerCutRun& run, const PowerCutOptions& options,
                                  const control::PoolDescription& pool) {
  if (const auto found = started_anew(run.start, options.start); !found.why.empty())
    return found.why;
  if (!run.ended)
    return "the run that wrote was cut off itself, so until when it wrote is not known";
  if (!run.gone)
    return "it did not go away while it was written: arm again, and cut its power meanwhile";
  if (!run.watched)
    return "nobody was there from its loss until it answered again, so it may have lost its power "
           "later: arm again, and let arm run until the peer is back";
  if (pool.was_closed)
    return "its daemon had closed the pool before, as where it is stopped or its machine shut down";
  return "";
}

CertifyCheck judge(PowerCutRun& run, const Losses& losses, const PowerCutOptions& options,
                   const control::PoolDescription& pool) {
  const std::uint64_t epoch = pool.epoch.value;
  const std::string not_cut = not_cut_while_writing(run, options, pool);
  CertifyCheck check{"power-cut", Proof::NotProved, "", {}};
  if (epoch > run.epoch) {
    check.finding = fmt::format(
        "the pool was granted to another writer since (epoch {}, here it was {}), whose bytes can "
        "not be told from a loss, nor its coming from a cut: arm again, and let nobody write "
        "before the check",
        epoch, run.epoch);
  } else if (losses.slots_lost > 0) {
    check.proof = Proof::Broken;
    run.cuts_checked = 0;
    check.finding = fmt::format(
        "{} acknowledged as durable {} lost (by {}): {}{}. Declare less of that machine (docs/"
        "hardware.md, \"How to verify a domain\")",
        counted(losses.slots_lost, "update"), losses.slots_lost == 1 ? "is" : "are", run.methods,
        losses.named, losses.slots_lost > kLossesNamed ? "; and more" : "");
  } else if (epoch < run.epoch) {
    check.proof = Proof::Broken;
    check.finding = fmt::format(
        "the pool was granted at epoch {} and is at epoch {} now: a writer that was fenced could "
        "come back",
        run.epoch, epoch);
  } else if (losses.slots_checked == 0) {
    check.finding =
        "nothing was acknowledged before the cut, so nothing was tried: arm again, and cut the "
        "power later";
  } else if (!not_cut.empty()) {
    check.finding = fmt::format(
        "all that was acknowledged is there, but it is not proved that the peer's power was cut "
        "under the writes, for {}",
        not_cut);
  } else {
    check.proof = Proof::Held;
    run.cuts_checked += run.counted ? 0 : 1;
    run.counted = true;
    check.finding = fmt::format(
        "after {} in a row, of this pool and by {}, all that was acknowledged was there; a test is "
        "twenty",
        counted(run.cuts_checked, "power cut"), run.methods);
  }
  check.numbers = {{"updates_acknowledged", static_cast<double>(run.acknowledged)},
                   {"updates_in_flight", static_cast<double>(run.begun - run.acknowledged)},
                   {"slots_checked", static_cast<double>(losses.slots_checked)},
                   {"slots_lost", static_cast<double>(losses.slots_lost)},
                   {"bytes_lost", static_cast<double>(losses.bytes_lost)},
                   {"cut_while_writing", not_cut.empty() ? 1.0 : 0.0},
                   {"cuts_checked", static_cast<double>(run.cuts_checked)}};
  return check;
}

}  // namespace

PeerStart peer_start(const control::ServiceDescription& service,
                     std::optional<std::uint64_t> asked_s) {
  return {service.host, service.kernel_up_s, control::host_identity(), asked_s};
}

StartedAnew started_anew(const PeerStart& before, const PeerStart& now) {
  using enum StartedAnew::Answer;
  // A kernel that was running before is up for as much longer as passed here, or more: asking takes
  // time. Two clocks that are steered differ by less than a thousandth (adjtimex(2): 500 ppm each).
  constexpr std::uint64_t kAskingS = 10;
  // Where that can not be read, the word for it is the same everywhere.
  const bool has_id = before.boot != kNoBootId && now.boot != kNoBootId;
  if (before.boot == now.boot && has_id)
    return {No, "its kernel has not been started anew since (the same boot id)"};
  if (!before.up_s || !now.up_s)
    return {NotKnown, "it was not said for how long its kernel has been running"};
  if (*now.up_s < *before.up_s) return {};
  if (before.asked_on != now.asked_on || !before.asked_s || now.asked_s < before.asked_s) {
    return {NotKnown,
            "its kernel has been running for longer than before, and for how long nothing was "
            "heard of it is not known, as this machine was started anew too, or is another one: "
            "check sooner after the cut, or from the machine that armed"};
  }
  const std::uint64_t between = *now.asked_s - *before.asked_s;
  const bool too_short = *now.up_s + kAskingS + between / 1000 < between;
  if (too_short && has_id) return {};
  if (too_short)
    return {NotKnown,
            "its kernel has been running for shorter than has passed, and has no boot id: it may "
            "have stood still"};
  if (between <= kAskingS) return {NotKnown, "too little time has passed to tell by its age"};
  return {No,
          "its kernel has been running since before, and only its boot id is another one, as in a "
          "container that is started anew"};
}

Result<PowerCutRun> arm_power_cut(std::unique_ptr<Peer> peer, const PowerCutOptions& options) {
  return Arming(std::move(peer), options).run();
}

Result<Certificate> check_power_cut(Peer& peer, PowerCutRun& run, const PowerCutOptions& options) {
  PERDURE_TRY(bytes, RemoteBytes::open(peer, run.pool, options.timeout, *options.clock));
  const control::PoolDescription& pool = bytes->session().pool;
  if (pool.uuid != run.uuid || pool.bytes < run.slots * kPowerCutSlotBytes) {
    return Error{ErrorCode::NotFound,
                 fmt::format("pool {} of {} is another one ({}) than was written before the cut "
                             "({}): find that one, or arm anew with another state file",
                             run.pool, run.peer, pool.uuid, run.uuid)};
  }
  PERDURE_TRY(losses, look_at_all(*bytes, run));
  Certificate certificate{pool, peer.device().describe(), {}};
  certificate.checks.push_back(judge(run, losses, options, pool));
  const bool restarted = started_anew(run.start, options.start).why.empty();
  CertifyCheck dead =
      dead_peer_time(pool.profile.transport, default_endpoints(), run.noticed_ns, restarted);
  if (run.noticed_ns && restarted && !run.watched) {
    dead.proof = Proof::NotProved;
    dead.finding +=
        "; nobody watched until it answered again, so whether its machine or only the session had "
        "ended is not known";
  }
  certificate.checks.push_back(std::move(dead));
  run.checked = true;
  return certificate;
}

}  // namespace perdure::client
