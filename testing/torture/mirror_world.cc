// Mirrored memory in a box: see mirror_world.h.
#include "testing/torture/mirror_world.h"

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/bytes.h"
#include "pmem/pool_format.h"
#include "testing/torture/draw_responder.h"

namespace perdure::test {
namespace {

using mirror::kDataAt;
using mirror::kPageBytes;
using mirror::ReplicatedMirror;

const std::string kMirrorPool = "mirrored";
constexpr std::uint64_t kPoolBytes = 256 * 1024;
constexpr std::uint64_t kWordBytes = 8;
constexpr int kOpenings = 3;

}  // namespace

MirrorWorld::MirrorWorld(const WorldOptions& options, const MirrorMachines& machines)
    : options_(machines), tell_(options.tell), random_(options.seed) {
  judge_.leave_out(options.laws_left_out);
  Random choices(options.seed + 1);
  const ServerProfile profile = draw_responder(choices);
  const std::size_t replicas = 1 + choices.below(3);
  quorum_ = 1 + choices.below(replicas);
  measures_ = choices.chance(1, 4);
  // Messages. Where they are kept in the pool it has no room for large ones.
  const bool small = choices.chance(1, 2) || profile.receive_buffers == ReceiveBuffers::Pm;
  for (std::size_t index = 0; index < replicas; ++index) {
    auto server = WorldServer::start(world_, fmt::format("replica{}", index), profile,
                                     {kMirrorPool, kPoolBytes, {32, small ? 2048U : 32768U}});
    PERDURE_ASSERT(server.ok());
    servers_.push_back(std::move(server).value());
  }
  in_sync_.assign(replicas, false);
  client_ = &world_.add_machine("client", profile);
  auto place = TemporaryDirectory::make_in_memory();
  PERDURE_ASSERT(place.ok());
  place_.emplace(std::move(*place));
  for (here_ = memories_.size(); here_-- > 0;) {
    if (!options_.memories_keep_nothing) {
      memories_[here_].state =
          mirror::LocalStateFile(fmt::format("{}/memory{}", place_->path(), here_));
    }
    new_local();
  }
  here_ = 0;
  traits_ = {{"page-cache", profile.domain == PersistenceDomain::Page},
             {"unordered-writes", profile.write_order == WriteOrder::Unknown},
             {"messages-only", profile.transport == Transport::Tcp},
             {"short-messages", small},
             {"one-replica", replicas == 1},
             {"all-needed", quorum_ == replicas}};
  tell("{} replicas, quorum {}, {}", replicas, quorum_, describe(profile));
  add_operations();
  add_faults();
}

MirrorWorld::~MirrorWorld() {
  world_.cancel_cut();
  earlier_.reset();
  mirror_.reset();
}

/// As MirrorMemory::create_file() does it.
void MirrorWorld::new_local() {
  Memory& here = memories_[here_];
  here.region = *pmem::CrashableRegion::open({kWords * kWordBytes, PersistenceDomain::Dmp});
  here.known = MirrorJudge(kWords).known();
  here.is_superseded = ever_acknowledged_;
  const auto removed = here.state.remove();
  PERDURE_ASSERT(removed.ok());
}

void MirrorWorld::add_operations() {
  const auto add = [this](std::string name, std::uint32_t weight,
                          std::function<void(Random&)> run) {
    operations_.push_back({std::move(name), weight, std::move(run)});
  };
  add("persist", 8, [this](Random& choices) { persist(choices, 12, false); });
  add("persist-large", 2, [this](Random& choices) { persist(choices, 3000, false); });
  add("persist-deep", 2, [this](Random& choices) { persist(choices, 12, true); });
  add("flush", 4, [this](Random& choices) { flush_some(choices); });
  add("write-ordered", 4, [this](Random& choices) { write_ordered(choices, true); });
  add("persist-ordered", 4, [this](Random& choices) { write_ordered(choices, false); });
  add("write-atomic", 3, [this](Random& choices) { write_word(choices); });
  add("store", 3, [this](Random& choices) {
    if (!ensure_open()) return;
    const std::size_t word = choices.below(kWords);
    judge_.wrote(word, {MirrorJudge::kNever, 0, false, store(word)});
  });
  add("wait", 6, [this](Random& choices) { wait_for_some(choices); });
  add("read", 4, [this](Random& choices) { read_some(choices); });
  add("get-on", 8, [this](Random&) { get_on(); });
  add("close", 1, [this](Random& choices) { end_life(choices, {.closes = true}); });
  add("die", 1, [this](Random& choices) { end_life(choices, {}); });
  add("lose-memory", 1, [this](Random& choices) { end_life(choices, {.loses_memory = true}); });
  add("go-on-elsewhere", 1, [this](Random& choices) {
    end_life(choices, {.closes = choices.chance(1, 2), .elsewhere = true});
  });
  add("be-taken-over", 1,
      [this](Random& choices) { end_life(choices, {.elsewhere = true, .lives_on = true}); });
  add("write-as-before", 2, [this](Random&) { write_as_before(); });
  add("start-where-it-was", 2, [this](Random& choices) { start_where_it_was(choices); });
  add("copy-only", 1, [this](Random& choices) { copy_only(choices); });
}

void MirrorWorld::add_fault(std::string name, std::uint32_t lasts_max,
                            std::function<bool(Random&)> begin, std::function<bool()> met,
                            std::function<void()> end) {
  Fault fault;
  fault.name = std::move(name);
  fault.lasts_max = lasts_max;
  fault.begin = std::move(begin);
  fault.met = std::move(met);
  fault.end = std::move(end);
  faults_.push_back(std::move(fault));
}

void MirrorWorld::add_faults() {
  add_crashes();
  add_links_and_media();
}

void MirrorWorld::add_crashes() {
  const auto restart = [this] {
    world_.cancel_cut();
    struck_ = nullptr;
    for (const auto& server : servers_) {
      if (is_down(*server)) start(*server);
    }
  };
  add_fault(
      "power-cut", 8,
      [this](Random& choices) {
        WorldServer& server = any_server(choices);
        if (struck_ != nullptr || is_down(server)) return false;
        struck_ = &server;
        world_.cut_after(server.machine(), 1 + choices.below(1500));
        return true;
      },
      [this] {
        const bool cut = struck_ != nullptr && !struck_->machine().powered();
        cuts_counted_ += cut ? 1 : 0;
        return cut;
      },
      restart);
  add_fault(
      "server-kill", 8,
      [this](Random& choices) {
        WorldServer& server = any_server(choices);
        if (struck_ != nullptr || is_down(server)) return false;
        server.kill();
        return true;
      },
      [this] {
        return std::ranges::any_of(servers_, [](const auto& each) { return is_down(*each); });
      },
      restart);
  add_fault(
      "program-kill", 1,
      [this](Random& choices) {
        if (mirror_ == nullptr) return false;
        end_life(choices, {.loses_memory = choices.chance(1, 4)});
        return true;
      },
      [] { return true; }, [] {});
}

void MirrorWorld::add_links_and_media() {
  add_fault(
      "connection-lost", 1,
      [this](Random& choices) {
        world_.drop_connections(any_server(choices).machine(), *client_);
        return true;
      },
      [] { return true; }, [] {});
  add_fault(
      "starved", 8,
      [this](Random& choices) {
        any_server(choices).machine().starve(true);
        return true;
      },
      [] { return true; },
      [this] {
        for (const auto& server : servers_) server->machine().starve(false);
      });
  add_fault(
      "full-disk", 8,
      [this](Random& choices) {
        any_server(choices).region().refuse_flushes(ErrorCode::NoSpace, 1, random_);
        return true;
      },
      [] { return true; },
      [this] {
        // A pool whose medium refused is not served again before its daemon starts anew.
        for (const auto& server : servers_) {
          server->region().refuse_flushes(ErrorCode::NoSpace, 0, random_);
          if (server->serving() && !server->usable()) start(*server);
        }
      });
  add_fault(
      "medium-replaced", 1, [this](Random& choices) { return replace_medium(choices); },
      [] { return true; }, [] {});
}

WorldServer& MirrorWorld::any_server(Random& choices) {
  return *servers_[choices.below(servers_.size())];
}

bool MirrorWorld::is_down(WorldServer& server) {
  return !server.machine().powered() || !server.usable();
}

/// Anew, whether it runs or not, with what it kept.
void MirrorWorld::start(WorldServer& server) {
  world_.cancel_cut();
  struck_ = nullptr;
  server.region().refuse_flushes(ErrorCode::NoSpace, 0, random_);
  const auto again = server.start_again();
  if (!again.ok()) judge_.nothing_can_be_done("a daemon does not start: " + again.error().message);
}

void MirrorWorld::all_back(bool all_again) {
  for (const auto& server : servers_) {
    server->machine().starve(false);
    server->region().refuse_flushes(ErrorCode::NoSpace, 0, random_);
    if (all_again || is_down(*server)) start(*server);
  }
}

/// By a blank one, where that is the only failure: the others have everything.
bool MirrorWorld::replace_medium(Random& choices) {
  if (mirror_ == nullptr || servers_.size() == 1 || replaced_ || struck_ != nullptr) return false;
  const MirrorStatus status = mirror_->status();
  if (status.in_sync < servers_.size()) return false;
  const std::size_t index = choices.below(servers_.size());
  WorldServer& server = *servers_[index];
  replaced_ = true;
  blank_ = {index, status.replicas[index].returned};
  server.lose_power();
  server.region().refuse_flushes(ErrorCode::NoSpace, 0, random_);
  const auto again = server.start_with({});
  if (!again.ok()) judge_.nothing_can_be_done("a blank medium: " + again.error().message);
  return true;
}

MirrorOptions MirrorWorld::mirror_options() const {
  MirrorOptions options;
  options.pool = kMirrorPool;
  options.quorum = quorum_;
  options.staging_bytes = 32 * 1024;
  options.measure_costs = measures_;
  options.take_over = true;
  // A medium that was replaced remembers nothing: its operator knows that the others, which are all
  // there, have everything.
  options.without_missing = was_replaced_;
  options.spin = std::chrono::microseconds(0);
  options.peer_timeout = std::chrono::milliseconds(500);
  options.reconnect = std::chrono::milliseconds(1);
  return options;
}

Result<std::unique_ptr<ReplicatedMirror>> MirrorWorld::open_with(std::size_t memory,
                                                                 const MirrorOptions& options) {
  std::vector<std::shared_ptr<client::Peer>> peers;
  for (const auto& server : servers_) peers.push_back(server->peer(*client_));
  const Memory& with = memories_[memory];
  auto opened =
      ReplicatedMirror::open(*with.region, std::move(peers), options, world_.clock(), with.state);
  if (!opened.ok()) tell("     not opened: {}", opened.error().message);
  return opened;
}

/// The first time the power may fail on the way. Memory over which a replica may have been copied
/// in part is taken at its word now and then, which must be refused.
bool MirrorWorld::try_open(bool first) {
  MirrorOptions options = mirror_options();
  options.start = lost_ ? MirrorStart::Replicas : MirrorStart::Local;
  options.without_missing = was_replaced_ && !first;
  WorldServer& server = any_server(random_);
  const bool cuts = first && struck_ == nullptr && !is_down(server) && random_.chance(1, 3);
  if (cuts) world_.cut_after(server.machine(), 1 + random_.below(4000));
  auto opened = open_with(here_, options);
  if (cuts) world_.cancel_cut();
  if (!opened.ok() && lost_ && random_.chance(1, 3)) {
    options.start = MirrorStart::Local;
    opened = open_with(here_, options);
    half_refused_ += opened.ok() ? 0 : 1;
  }
  if (!opened.ok()) return false;
  mirror_ = std::move(*opened);
  return true;
}

/// With all replicas there it must be possible, wherever it was interrupted before.
bool MirrorWorld::open_newest() {
  bool opened = try_open(true);
  for (int again = 0; !opened && again < kOpenings; ++again) {
    ++opened_late_;
    if (lost_ && random_.chance(1, 2)) new_local();
    all_back(random_.chance(1, 2));
    world_.pass(std::chrono::seconds(1));
    opened = try_open(false);
  }
  return opened;
}

bool MirrorWorld::ensure_open() {
  if (mirror_ != nullptr) return true;
  if (!open_newest()) {
    judge_.nothing_can_be_done("the mirror does not open with all its replicas");
    return false;
  }
  ++opened_;
  const auto memory = words_of(local());
  judge_.holds(memory, lost_ ? "what was restored" : "the memory that it was opened with");
  if (lost_) judge_restored(memory);
  judge_.begin_life(memory);
  lost_ = false;
  write_as_before();
  return true;
}

void MirrorWorld::judge_restored(const std::vector<std::uint64_t>& memory) {
  ++restored_;
  const MirrorStatus status = mirror_->status();
  for (std::size_t index = 0; index < servers_.size(); ++index) {
    if (status.replicas[index].state != MirrorReplicaState::InSync) continue;
    const auto there = servers_[index]->region().bytes().subspan(pmem::kPoolDataOffset + kDataAt,
                                                                 kWords * kWordBytes);
    if (words_of(there) != memory) judge_.unequal(servers_[index]->machine().name());
  }
}

/// The program ended; somebody starts it with the memory of its other machine, as if nothing had
/// been done since. Where nothing was acknowledged since it may be that, and counts from then on.
void MirrorWorld::start_where_it_was(Random& choices) {
  end_life(choices, {.closes = choices.chance(1, 2)});
  end_earlier();
  if (lost_ || mirror_ != nullptr) return;
  auto opened = open_with(1 - here_, mirror_options());
  if (!opened.ok()) {
    ++older_refused_;
    return;
  }
  ++older_taken_;
  if (other().is_superseded) return judge_.superseded("an older memory was taken for what counts");
  here_ = 1 - here_;
  mirror_ = std::move(*opened);
  judge_.recall(std::move(memories_[here_].known));
  const auto memory = words_of(local());
  judge_.holds(memory, "the memory of before");
  judge_.begin_life(memory);
}

/// The program ended; an operator brings the replicas to equal without its memory, which goes on
/// counting.
void MirrorWorld::copy_only(Random& choices) {
  end_life(choices, {.closes = choices.chance(1, 2)});
  if (lost_ || mirror_ != nullptr) return;
  const auto scratch = *pmem::CrashableRegion::open({kWords * kWordBytes, PersistenceDomain::Dmp});
  MirrorOptions options = mirror_options();
  options.start = MirrorStart::Replicas;
  options.only_copies = true;
  std::vector<std::shared_ptr<client::Peer>> peers;
  for (const auto& server : servers_) peers.push_back(server->peer(*client_));
  WorldServer& server = any_server(choices);
  const bool cuts = !was_replaced_ && choices.chance(1, 3);
  if (cuts) world_.cut_after(server.machine(), 1 + choices.below(4000));
  const auto copies = ReplicatedMirror::open(*scratch, std::move(peers), options, world_.clock());
  for (int rounds = 0; copies.ok() && rounds < 1000 && !(*copies)->all_in_sync(); ++rounds) {
    (*copies)->bring_back();
    if (!(*copies)->progress()) world_.pass(std::chrono::milliseconds(1));
  }
  if (copies.ok()) (void)(*copies)->close(std::chrono::milliseconds(100));
  world_.cancel_cut();
  world_.settle();
  all_back(false);
}

/// Of a program that another one has taken over from: it goes on, and is told so.
void MirrorWorld::write_as_before() {
  if (earlier_ == nullptr || mirror_ == nullptr) return;
  const std::span<std::byte> memory = other().region->bytes();
  perdure::store(memory.data(), UINT64_MAX);  // nobody stores that
  const auto ticket = earlier_->flush({0, kWordBytes});
  const auto waited = ticket.ok() ? earlier_->wait(*ticket, std::chrono::milliseconds(50))
                                  : Result<void>(ticket.error());
  if (waited.ok()) judge_.superseded("an update was acknowledged to an earlier program");
  fenced_ += !waited.ok() && waited.code() == ErrorCode::Fenced ? 1 : 0;
}

/// It ends, and the power of its machine with it.
void MirrorWorld::end_earlier() {
  if (earlier_ == nullptr) return;
  earlier_.reset();
  other().region->power_cut(random_);
  other().region->power_on();
}

std::vector<std::uint64_t> MirrorWorld::words_of(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> words(bytes.size() / kWordBytes);
  std::memcpy(words.data(), bytes.data(), words.size() * kWordBytes);
  return words;
}

/// A value of its own for a word of the memory.
std::uint64_t MirrorWorld::store(std::size_t word) {
  perdure::store(local().data() + word * kWordBytes, ++last_value_);
  return last_value_;
}

void MirrorWorld::took(const Result<MirrorTicket>& ticket) {
  if (!ticket.ok()) judge_.nothing_can_be_done("an update is refused: " + ticket.error().message);
}

void MirrorWorld::persist(Random& choices, std::size_t words_max, bool deep) {
  if (!ensure_open()) return;
  const std::size_t count = 1 + choices.below(words_max);
  const std::size_t at = choices.below(kWords - count);
  const std::uint64_t number = mirror_->begun() + 1;
  for (std::size_t word = at; word < at + count; ++word) {
    judge_.wrote(word, {number, 0, false, store(word)});
  }
  const MirrorRange range{at * kWordBytes, count * kWordBytes};
  const MirrorEpoch epoch(&range, 1);
  took(deep ? mirror_->begin_deep(range) : mirror_->begin({&epoch, 1}));
}

/// Ranges one by one, which go together with what is begun or waited for next.
void MirrorWorld::flush_some(Random& choices) {
  if (!ensure_open()) return;
  const std::uint64_t ranges = 1 + choices.below(choices.chance(1, 8) ? 300 : 12);
  for (std::uint64_t range = 0; range < ranges; ++range) {
    const std::size_t count = 1 + choices.below(12);
    const std::size_t at = choices.below(kWords - count);
    const std::uint64_t first = last_value_ + 1;
    for (std::size_t word = at; word < at + count; ++word) store(word);
    const auto ticket = mirror_->flush({at * kWordBytes, count * kWordBytes});
    took(ticket);
    if (!ticket.ok()) return;
    for (std::size_t index = 0; index < count; ++index) {
      judge_.wrote(at + index, {ticket->number, 0, false, first + index});
    }
  }
}

void MirrorWorld::write_word(Random& choices) {
  if (!ensure_open()) return;
  const std::size_t word = choices.below(kWords);
  judge_.wrote(word, {mirror_->begun() + 1, 0, true, ++last_value_});
  took(mirror_->store_word(word * kWordBytes, last_value_));
}

/// Epochs of ranges that do not overlap: brought along, or stored beforehand.
void MirrorWorld::write_ordered(Random& choices, bool brings) {
  if (!ensure_open()) return;
  const std::uint64_t number = mirror_->begun() + 1;
  std::vector<std::vector<MirrorWrite>> epochs(1 + choices.below(4));
  std::vector<std::vector<MirrorRange>> ranges(epochs.size());
  std::vector<std::unique_ptr<std::uint64_t[]>> values;
  std::size_t at = choices.below(kWords / 2);
  for (std::uint32_t index = 0; index < epochs.size(); ++index) {
    for (std::uint64_t range = 0; range <= choices.below(3); ++range) {
      const std::size_t count = 1 + choices.below(choices.chance(1, 8) ? 200 : 8);
      if (at + count >= kWords) at = 0;
      values.push_back(std::make_unique<std::uint64_t[]>(count));
      for (std::size_t word = 0; word < count; ++word) {
        values.back()[word] = brings ? ++last_value_ : store(at + word);
        judge_.wrote(at + word, {number, index, brings, values.back()[word]});
      }
      epochs[index].push_back(
          {at * kWordBytes, std::as_bytes(std::span(values.back().get(), count))});
      ranges[index].push_back({at * kWordBytes, count * kWordBytes});
      at += count + choices.below(600);
      if (at >= kWords - 256) at = choices.below(16);
    }
  }
  if (brings) {
    const std::vector<MirrorWriteEpoch> spans(epochs.begin(), epochs.end());
    took(mirror_->write(spans));
  } else {
    const std::vector<MirrorEpoch> spans(ranges.begin(), ranges.end());
    took(mirror_->begin(spans));
  }
}

void MirrorWorld::note_acknowledged() {
  judge_.acknowledged(mirror_->committed());
  const MirrorStatus status = mirror_->status();
  for (std::size_t index = 0; index < servers_.size(); ++index) {
    // Of a medium that was replaced a moment ago the mirror does not know yet.
    const bool blank =
        replaced_ && blank_.first == index && blank_.second == status.replicas[index].returned;
    in_sync_[index] = status.replicas[index].state == MirrorReplicaState::InSync && !blank;
  }
}

void MirrorWorld::wait_for_some(Random& choices) {
  if (!ensure_open() || mirror_->begun() == 0) return;
  const MirrorTicket ticket{1 + choices.below(mirror_->begun())};
  const auto waited = mirror_->wait(ticket, std::chrono::milliseconds(choices.below(200)));
  if (waited.ok()) ++acknowledged_;
  const ErrorCode code = waited.ok() ? ErrorCode::TimedOut : waited.code();
  if (code == ErrorCode::QuorumLost) ++quorums_lost_;
  if (code != ErrorCode::QuorumLost && code != ErrorCode::TimedOut && code != ErrorCode::NoSpace) {
    judge_.nothing_can_be_done("a wait: " + waited.error().message);
  }
  note_acknowledged();
}

/// What a replica in sync returns has everything that was acknowledged.
void MirrorWorld::read_some(Random& choices) {
  if (!ensure_open()) return;
  const std::size_t count = 1 + choices.below(64);
  const std::size_t at = choices.below(kWords - count);
  std::vector<std::uint64_t> words(count);
  note_acknowledged();
  const std::uint64_t known = judge_.acknowledged();
  const auto read =
      mirror_->read(at * kWordBytes, std::as_writable_bytes(std::span(words)), Mirror::kAny);
  if (read.ok()) return judge_.read(at, words, known);
  if (read.code() == ErrorCode::Disconnected) return;
  judge_.nothing_can_be_done("a read: " + read.error().message);
}

void MirrorWorld::get_on() {
  if (!ensure_open()) return;
  (void)mirror_->progress();
  mirror_->bring_back();
  (void)mirror_->progress();
}

/// The program ends, the power fails here and there, and all that is left is judged.
void MirrorWorld::end_life(Random& choices, const Ending& ending) {
  if (!ensure_open()) return;
  if (ending.closes) (void)mirror_->wait({mirror_->begun()}, std::chrono::seconds(2));
  note_acknowledged();
  const MirrorStatus status = mirror_->status();
  for (const auto& each : status.replicas) {
    returned_ += each.returned;
    copied_pages_ += each.copied_bytes / kPageBytes;
  }
  // Without its replicas and without its memory nothing is left to come back from.
  const bool others = servers_.size() > 1 || in_sync_[0];
  lost_ = (ending.loses_memory || ending.elsewhere) && others && status.in_sync >= quorum_ &&
          !replaced_;
  if (ending.closes) (void)mirror_->close(std::chrono::seconds(2));
  const bool all_have_it = std::ranges::all_of(in_sync_, [](bool each) { return each; });
  was_replaced_ = (std::exchange(replaced_, false) || was_replaced_) && !all_have_it;
  end_earlier();
  Memory& here = memories_[here_];
  here.known = judge_.known();
  here.is_superseded = false;
  if (judge_.acknowledged() > 0) other().is_superseded = ever_acknowledged_ = true;
  const bool elsewhere = lost_ && ending.elsewhere;
  if (elsewhere && ending.lives_on) earlier_ = std::move(mirror_);
  mirror_.reset();
  if (lost_ && !elsewhere) {
    new_local();
  } else if (earlier_ == nullptr) {
    here.region->power_cut(random_);
    here.region->power_on();
  }
  world_.cancel_cut();
  struck_ = nullptr;
  world_.settle();
  for (const auto& server : servers_) {
    server->machine().starve(false);
    if (choices.chance(1, 2)) server->lose_power();
  }
  all_back(false);
  judge_replicas();
  if (!elsewhere) return;
  ++elsewhere_;
  here_ = 1 - here_;
}

void MirrorWorld::judge_replicas() {
  for (std::size_t index = 0; index < servers_.size(); ++index) {
    if (!in_sync_[index]) continue;
    judge_.holds(words_of(servers_[index]->region().bytes().subspan(pmem::kPoolDataOffset + kDataAt,
                                                                    kWords * kWordBytes)),
                 servers_[index]->machine().name());
  }
  if (!lost_) judge_.holds(words_of(local()), "the local memory");
}

void MirrorWorld::finish() {
  Random choices(random_.next());
  all_back(false);
  if (!ensure_open()) return;
  all_back(false);  // the power may have failed on the way
  for (int rounds = 0; rounds < 200'000 && !mirror_->all_in_sync(); ++rounds) {
    mirror_->bring_back();
    if (!mirror_->progress()) world_.pass(std::chrono::milliseconds(1));
  }
  if (!mirror_->all_in_sync()) {
    std::string where;
    for (const MirrorReplicaStatus& each : mirror_->status().replicas) {
      where += fmt::format("; {} is {}{}{}, {} bytes compared, {} left to copy, {} copied",
                           each.peer, to_string(each.state), each.down_reason.empty() ? "" : ": ",
                           each.down_reason, each.compared, each.dirty_bytes, each.copied_bytes);
    }
    return judge_.nothing_can_be_done("replicas that are there do not come in sync" + where);
  }
  persist(choices, 12, false);
  auto waited = mirror_->wait({mirror_->begun()}, std::chrono::seconds(10));
  for (int again = 0; again < 10 && !waited.ok(); ++again) {
    world_.pass(std::chrono::milliseconds(100));
    mirror_->bring_back();
    waited = mirror_->wait({mirror_->begun()}, std::chrono::seconds(10));
  }
  if (!waited.ok()) judge_.nothing_can_be_done("a last persist: " + waited.error().message);
  if (options_.a_bit_flips) {
    for (const auto& server : servers_) {
      server->region().flip_bit(pmem::kPoolDataOffset + kDataAt + 8, 3);
    }
  }
  end_life(choices, {.closes = choices.chance(1, 2)});
}

std::vector<Counter> MirrorWorld::counters() const {
  return {{"acknowledged", acknowledged_}, {"copied_pages", copied_pages_},
          {"elsewhere", elsewhere_},       {"fenced", fenced_},
          {"half_refused", half_refused_}, {"older_refused", older_refused_},
          {"older_taken", older_taken_},   {"opened", opened_},
          {"opened_late", opened_late_},   {"power_cuts_counted", cuts_counted_},
          {"quorums_lost", quorums_lost_}, {"restored", restored_},
          {"returned", returned_}};
}

Scenario mirror_scenario(const MirrorMachines& machines) {
  return scenario_of("mirror", [machines](const WorldOptions& options) {
    return std::unique_ptr<World>(std::make_unique<MirrorWorld>(options, machines));
  });
}

}  // namespace perdure::test
