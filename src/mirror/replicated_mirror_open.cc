// Opening a mirror: whose pools they are, which replica is the newest, and bringing enough of them
// to equal.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "client/writer_name.h"
#include "core/epoch.h"
#include "core/random.h"
#include "core/try.h"
#include "mirror/replicated_mirror.h"
#include "pmem/page_sync.h"

namespace perdure::mirror {
namespace {

bool is_silence(ErrorCode code) {
  return code == ErrorCode::Disconnected || code == ErrorCode::TimedOut ||
         code == ErrorCode::OutcomeUnknown;
}

bool is_zeros(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte each) { return each == std::byte{}; });
}

/// Of what a pool holds.
bool is_no_mirror(ErrorCode code) {
  return code == ErrorCode::Corrupt || code == ErrorCode::VersionMismatch;
}

}  // namespace

Result<std::unique_ptr<ReplicatedMirror>> ReplicatedMirror::open(
    pmem::Region& local, std::vector<std::shared_ptr<client::Peer>> peers,
    const MirrorOptions& options, const Clock& clock, const LocalStateFile& local_state) {
  MirrorOptions own = options;
  if (own.writer_name.empty()) own.writer_name = client::this_writer();
  constexpr std::uint64_t kStagingMax = std::uint64_t{1} << 40;
  if (own.staging_bytes < kDirectBytes || own.staging_bytes > kStagingMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("staging_bytes is {}; it takes {} to {}", own.staging_bytes,
                             kDirectBytes, kStagingMax)};
  }
  std::unique_ptr<ReplicatedMirror> mirror(new ReplicatedMirror(local, own, clock, local_state));
  PERDURE_TRY_VOID(mirror->read_local_state());
  PERDURE_TRY_VOID(mirror->validate(peers.size()));
  mirror->replicas_.reserve(peers.size());
  for (auto& peer : peers) {
    mirror->replicas_.emplace_back(mirror->bytes_, own, random_secret());
    mirror->replicas_.back().peer = std::move(peer);
  }
  PERDURE_TRY_VOID(mirror->ask_pools());
  PERDURE_TRY_VOID(mirror->look_before_fencing());
  PERDURE_TRY_VOID(local_state.check_writable());
  PERDURE_TRY_VOID(mirror->connect_all());
  PERDURE_TRY_VOID(mirror->read_local_state());  // nobody but this writer changes it from here on
  PERDURE_TRY_VOID(mirror->find_mirror());
  PERDURE_TRY_VOID(mirror->come_in_sync());
  return mirror;
}

Result<void> ReplicatedMirror::validate(std::size_t peers) const {
  if (peers == 0 || peers > kReplicasMax || options_.quorum > peers) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("a quorum of {} with {} peers; there must be 1 to {} peers and no more "
                    "needed than there are",
                    options_.quorum, peers, kReplicasMax)};
  }
  if (bytes_ == 0 || bytes_ > kMirrorBytesMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} bytes of memory; a mirror has 1 to {}", bytes_, kMirrorBytesMax)};
  }
  return {};
}

/// Too few replicas came along: the first reason that is not only silence, and all of them in
/// words.
Error ReplicatedMirror::too_few(const std::string& doing) const {
  ErrorCode code = ErrorCode::QuorumLost;
  std::string reasons;
  for (const Replica& replica : replicas_) {
    const auto& reason = replica.down_reason;
    if (!reason || replica.connection) continue;
    reasons += fmt::format("; {}: {}", replica.peer->name(), reason->message);
    if (code == ErrorCode::QuorumLost && !is_silence(reason->code)) code = reason->code;
  }
  return Error{code, fmt::format("{}: fewer than {} of {} replicas can be used{}", doing, quorum_,
                                 replicas_.size(), reasons)};
}

Error ReplicatedMirror::of_pool(const Replica& replica, const Error& why) const {
  return {why.code,
          fmt::format("pool '{}' on {}: {}", options_.pool, replica.peer->name(), why.message)};
}

/// Which pools the peers have. Changes nothing there.
Result<void> ReplicatedMirror::ask_pools() {
  for (Replica& replica : replicas_) {
    const auto pool =
        replica.peer->describe(options_.pool, Deadline(clock_, options_.peer_timeout));
    if (!pool.ok()) {
      replica.down_reason = pool.error();
      replica.backoff.failed(clock_.now());
      continue;
    }
    for (const Replica& other : replicas_) {
      if (pool->uuid.empty() || other.uuid != pool->uuid) continue;
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} and {} are one pool ({}); a replica counts once",
                               other.peer->name(), replica.peer->name(), pool->uuid)};
    }
    replica.uuid = pool->uuid;
    epoch_ = std::max(epoch_, pool->epoch);
    writer_seen_ = writer_seen_ || pool->writer_present;
    if (!pool->writer_present || options_.take_over) continue;
    return Error{
        ErrorCode::Busy,
        fmt::format("pool '{}' on {} is being written by '{}' of epoch {}; wait for it to "
                    "end, or ask to take over",
                    options_.pool, replica.peer->name(), pool->writer_name, pool->epoch.value)};
  }
  if (epoch_ >= kEpochMax) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{} has come to epoch {}, and they end there", name(), epoch_.value)};
  }
  // Far from any that a writer may have had whom nobody tells of.
  constexpr std::uint32_t kFarAway = 1024;
  epoch_.value += options_.without_missing ? kFarAway : 1;
  return {};
}

/// Whoever can not succeed fences nobody: where another writer is, what each pool says is read
/// before.
Result<void> ReplicatedMirror::look_before_fencing() {
  if (!writer_seen_) return {};
  Starts starts(replicas_.size());
  Contents contents(replicas_.size());
  std::size_t unread = 0;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    Replica& replica = replicas_[index];
    if (replica.down_reason) continue;
    auto found = Connection::look(replica.peer, options_, clock_);
    if (found.ok()) {
      starts[index] = found->start;
      contents[index] = std::move(found->pool);
      continue;
    }
    if (is_no_mirror(found.code())) return of_pool(replica, found.error());
    if (!is_silence(found.code()) && found.code() != ErrorCode::Unsupported) {
      ++unread;  // it is there, as far as can be seen
      continue;
    }
    replica.down_reason = found.error();
    replica.backoff.failed(clock_.now());
  }
  PERDURE_TRY(there, find_header(starts, unread));
  if (there) {
    const auto sources = find_newest(starts, unread);
    if (!sources.ok()) return who_came_meanwhile().value_or(sources.error());
    found_ = sources->newest;
    written_in_ = last_written(starts);
    return found_ == Generation{} ? Result<void>() : check_local_before(contents);
  }
  PERDURE_TRY_VOID(check_created());
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!contents[index]) continue;
    const std::uint64_t bytes = contents[index]->size();
    PERDURE_TRY_VOID(check_room(replicas_[index], bytes - std::min(bytes, kDataAt)));
  }
  return {};
}

/// In the order of UUIDs, so that two who open at once meet at the first. From then on no earlier
/// writer changes anything where this one is.
Result<void> ReplicatedMirror::connect_all() {
  std::vector<std::size_t> order(replicas_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return replicas_[one].uuid < replicas_[other].uuid;
  });
  const StoppableClock steps(clock_);
  for (const std::size_t index : order) {
    Replica& replica = replicas_[index];
    if (replica.down_reason) continue;
    auto connection = connect(index, steps);
    if (connection.ok()) {
      replica.connection = std::move(*connection);
      continue;
    }
    const ErrorCode code = connection.code();
    // Another writer is there, or the pool is no mirror's: do not go on to disturb others.
    if (code == ErrorCode::Busy || code == ErrorCode::Fenced || is_no_mirror(code)) {
      return of_pool(replica, connection.error());
    }
    replica.down_reason = connection.error();
    replica.backoff.failed(clock_.now());
  }
  return {};
}

/// Of a mirror that is there: also who opens it without those that are missing needs its quorum.
Error ReplicatedMirror::below_quorum() const {
  Error error = too_few(fmt::format("opening {}", name()));
  error.message +=
      "; bring them back, or, for one that is lost for good, create a blank pool at its address, "
      "or at another one in its place, and open it with all of them and without_missing";
  return error;
}

/// Whether there is a mirror, by what the pools say that were read, and that it is this one and can
/// be opened; `unread`: others that may be there.
Result<bool> ReplicatedMirror::find_header(const Starts& starts, std::size_t unread) {
  std::size_t read = 0;
  std::size_t legible = 0;
  bool opened = false;
  header_.reset();
  for (const auto& start : starts) {
    if (!start) continue;
    ++read;
    if (start->header) header_ = start->header;
    legible += start->header && start->state ? 1 : 0;
    opened = opened || start->state != ReplicaState{};
  }
  quorum_ = options_.quorum == 0 ? replicas_.size() : options_.quorum;
  const bool never_opened = read == replicas_.size() && !opened;
  if (!header_ || never_opened) {
    if (read + unread == replicas_.size()) return false;
    return too_few(
        fmt::format("{} was not found, and to create one all its peers are needed", name()));
  }
  if (options_.start == MirrorStart::New) {
    return Error{ErrorCode::AlreadyExists,
                 fmt::format("{} is there already: open it with what is here (local), or with what "
                             "is there (replicas)",
                             name())};
  }
  PERDURE_TRY_VOID(check_members(starts));
  if (read + unread < quorum_) return below_quorum();
  const std::size_t enough = needed(replicas_.size(), quorum_);
  if (legible + unread < enough && !options_.without_missing) {
    Error few =
        too_few(fmt::format("opening {}: {} of its replicas are needed to be sure which is the "
                            "newest, and {} are there",
                            name(), enough, legible + unread));
    few.message +=
        "; bring back those that are away, or, if you know that they have nothing newer, open it "
        "without them (without_missing)";
    return few;
  }
  return true;
}

/// What is read without a session may be another writer's, who came after the pools were asked.
std::optional<Error> ReplicatedMirror::who_came_meanwhile() {
  for (Replica& replica : replicas_) {
    if (replica.down_reason) continue;
    const auto pool =
        replica.peer->describe(options_.pool, Deadline(clock_, options_.peer_timeout));
    if (!pool.ok() || pool->epoch < epoch_) continue;
    return Error{ErrorCode::Fenced,
                 fmt::format("{}: writer '{}' has opened it meanwhile, with epoch {}; open it "
                             "again if it is to be taken from that one",
                             name(), pool->writer_name, pool->epoch.value)};
  }
  return std::nullopt;
}

/// Which replicas of a mirror that is there are the newest, and that it can be opened with them.
Result<Sources> ReplicatedMirror::find_newest(const Starts& starts, std::size_t unread) const {
  std::vector<std::optional<ReplicaState>> heard(starts.size());
  for (std::size_t index = 0; index < starts.size(); ++index) {
    if (starts[index] && starts[index]->header) heard[index] = starts[index]->state;
  }
  Sources sources = find_sources(heard);
  if (sources.newest.epoch >= epoch_.value) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: a replica says that it is of epoch {}, and no pool has had a "
                             "writer after epoch {}: one of the pools is not what it was",
                             name(), sources.newest.epoch, epoch_.value - 1)};
  }
  const bool blank = sources.newest == Generation{} && unread == 0;
  if (options_.start == MirrorStart::Replicas && blank) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{} was created, and never had anything", name())};
  }
  return sources;
}

/// The last epoch in which an update could begin, by what the pools say.
std::uint32_t ReplicatedMirror::last_written(const Starts& starts) {
  std::uint32_t last = 0;
  for (const auto& start : starts) {
    if (start && start->header && start->state) last = std::max(last, start->state->last_written());
  }
  return last;
}

Result<void> ReplicatedMirror::find_mirror() {
  Starts starts(replicas_.size());
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (replicas_[index].connection) starts[index] = replicas_[index].connection->start();
  }
  PERDURE_TRY(there, find_header(starts, 0));
  if (!there) return create();
  PERDURE_TRY(sources, find_newest(starts, 0));
  found_ = sources.newest;
  written_in_ = last_written(starts);
  for (const std::size_t index : sources.replicas) replicas_[index].is_source = true;
  if (!sources.replicas.empty()) file_bytes_ = starts[sources.replicas.front()]->state->file_bytes;
  if (options_.start == MirrorStart::Replicas) PERDURE_TRY_VOID(restore());
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!replicas_[index].connection) continue;
    adopt(index, std::move(replicas_[index].connection));
    replicas_[index].returned = 0;
  }
  return {};
}

/// In pools that hold nothing, or what somebody began to create and never came to an end with. All
/// are there.
Result<void> ReplicatedMirror::create() {
  PERDURE_TRY_VOID(check_created());
  header_ = MirrorHeader{static_cast<std::uint32_t>(replicas_.size()),
                         static_cast<std::uint32_t>(quorum_), random_secret(), bytes_};
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    PERDURE_TRY_VOID(check_room(replicas_[index], replicas_[index].connection->room()));
  }
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!claim(replicas_[index])) return *replicas_[index].down_reason;
    adopt(index, std::move(replicas_[index].connection));
    replicas_[index].returned = 0;
  }
  return {};
}

/// Where there is no mirror: whether one was asked for that is there.
Result<void> ReplicatedMirror::check_created() const {
  if (options_.start != MirrorStart::Replicas) return {};
  return Error{
      ErrorCode::NotFound,
      fmt::format("no mirror was ever created in pool '{}' on any of the peers", options_.pool)};
}

Result<void> ReplicatedMirror::check_room(const Replica& replica, std::uint64_t room) const {
  if (room >= bytes_) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("pool '{}' on {} has room for {} bytes of a mirror of {}; use one "
                           "of at least {} bytes",
                           options_.pool, replica.peer->name(), room, bytes_, bytes_ + kDataAt)};
}

/// All that answer must be of one mirror, and this. What it is does not depend on who answers.
Result<void> ReplicatedMirror::check_members(const Starts& starts) {
  const MirrorHeader& header = *header_;
  quorum_ = header.quorum;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    const auto& start = starts[index];
    if (!start || !start->header || *start->header == header) continue;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("pool '{}' on {} holds another mirror than on the other peers; name "
                             "the peers of one mirror",
                             options_.pool, replicas_[index].peer->name())};
  }
  if (header.replicas != replicas_.size() ||
      (options_.quorum != 0 && options_.quorum != header.quorum)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has {} replicas and a quorum of {}, not {} and {}: name "
                             "all of its peers, also those that are away",
                             name(), header.replicas, header.quorum, replicas_.size(),
                             options_.quorum == 0 ? quorum_ : options_.quorum)};
  }
  if (header.bytes == bytes_) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} has {} bytes, and the local memory {}: open it with memory of its "
                           "own size",
                           name(), header.bytes, bytes_)};
}

/// Copies the newest replica over the local memory, before anything of a replica is changed: then
/// there are two of what was acknowledged, whatever happens while the others are brought to equal.
Result<void> ReplicatedMirror::restore() {
  const auto found = std::find_if(replicas_.begin(), replicas_.end(), [&](const Replica& each) {
    return each.is_source && each.connection && each.connection->session().up();
  });
  if (found == replicas_.end()) {
    return Error{ErrorCode::QuorumLost,
                 fmt::format("{}: no replica is there that has everything: each was being brought "
                             "up to date, or has missed something; bring back those that are away",
                             name())};
  }
  Connection& connection = *found->connection;
  client::DurableSession& session = connection.session();
  for (std::uint64_t at = 0; at < bytes_;) {
    const std::uint64_t length = std::min<std::uint64_t>(kLandingBytes, bytes_ - at);
    PERDURE_TRY(number,
                session.read(kDataAt + at, {landing_.data(), length, connection.landing()}));
    PERDURE_TRY_VOID(connection.await(number));
    if (at == 0) PERDURE_TRY_VOID(note_local(false));
    std::memcpy(local_.bytes().data() + at, landing_.data(), length);
    at += length;
  }
  PERDURE_TRY_VOID(local_.flush(0, bytes_));
  // Of memory with a file, which its caller makes durable: these bytes the caller did not write.
  if (local_.domain() != PersistenceDomain::None || local_state_.path().empty()) return {};
  return pmem::sync_pages(local_.bytes(), {0, bytes_}, "the mirrored memory");
}

/// Until as many replicas are in sync as are needed: all that are there are compared before the
/// first of them is changed.
Result<void> ReplicatedMirror::come_in_sync() {
  const Nanoseconds since = clock_.now();
  for (;;) {
    const bool came = progress();
    const auto is = [&](MirrorReplicaState state) {
      return std::any_of(replicas_.begin(), replicas_.end(),
                         [&](const Replica& each) { return each.state == state; });
    };
    if (!may_copy_ && !is(MirrorReplicaState::Comparing)) {
      PERDURE_TRY_VOID(check_local());
      PERDURE_TRY_VOID(check_local_counts());
      PERDURE_TRY_VOID(note_local(true));
      may_copy_ = true;
    }
    if (may_copy_ && in_sync() >= quorum_ && !generation_over_) return {};
    const auto there = static_cast<std::size_t>(
        std::count_if(replicas_.begin(), replicas_.end(),
                      [](const Replica& each) { return each.connection != nullptr; }));
    if (there < quorum_) return too_few(fmt::format("opening {}", name()));
    if (!came) rest(since, std::chrono::milliseconds(10));
  }
}

/// Memory of zeros over replicas that hold something is what a lost file looks like.
bool ReplicatedMirror::is_local_lost() const {
  return options_.start == MirrorStart::Local && is_zeros(local_.bytes());
}

Error ReplicatedMirror::local_is_lost() const {
  return {ErrorCode::InvalidArgument,
          fmt::format("the local memory holds only zeros, and the replicas of {} do not: to "
                      "bring them back open it with what is there (replicas)",
                      name())};
}

Result<void> ReplicatedMirror::read_local_state() {
  if (options_.start == MirrorStart::Replicas) return {};
  PERDURE_TRY_VOID(local_state_.check_whole());
  PERDURE_TRY(was, local_state_.read());
  local_was_ = was;
  return {};
}

/// Another memory was the mirror's since, or this one never was.
bool ReplicatedMirror::is_local_older() const {
  return options_.start == MirrorStart::Local && local_was_ &&
         (local_was_->id != header_->id || local_was_->epoch < written_in_);
}

Error ReplicatedMirror::local_is_older() const {
  const std::string was =
      local_was_->id != header_->id
          ? "is the memory of another mirror"
          : fmt::format(
                "is what its writer of epoch {} had, and another memory has been this "
                "mirror's since, in epoch {}",
                local_was_->epoch, written_in_);
  return {ErrorCode::InvalidArgument,
          fmt::format("the local memory of {} {} ('{}' says so): open it with what is there "
                      "(replicas), or remove that file if the local memory is what counts",
                      name(), was, local_state_.path())};
}

Result<void> ReplicatedMirror::check_local_counts() const {
  if (found_ == Generation{}) return {};
  bool differs = false;         // from any
  bool newest_differs = false;  // from one that has everything
  bool is_newest = false;       // equal to one that has
  for (const Replica& each : replicas_) {
    const bool equal = each.dirty.empty();
    differs = differs || !equal;
    newest_differs = newest_differs || (each.is_source && !equal);
    is_newest = is_newest || (each.is_source && equal && each.knows_dirty);
  }
  if ((newest_differs || !is_newest) && is_local_older()) return local_is_older();
  return differs && is_local_lost() ? Result<void>(local_is_lost()) : Result<void>();
}

/// From here on the local file is this writer's: said before a replica says that it is. How long it
/// was is what the replica tells that is copied, and else stays there where this writer does not
/// know.
Result<void> ReplicatedMirror::note_local(bool whole) const {
  const bool copied = options_.start == MirrorStart::Replicas;
  std::uint64_t bytes = copied ? file_bytes_ : local_state_.file_bytes();
  const auto before = local_state_.read();
  if (bytes == 0 && !copied && before.ok() && *before && (*before)->id == header_->id) {
    bytes = (*before)->bytes;
  }
  return local_state_.write({header_->id, epoch_.value, whole, bytes});
}

/// The same by what the pools hold that can be read, up to the first byte that tells.
Result<void> ReplicatedMirror::check_local_before(const Contents& contents) const {
  if (is_local_older()) return local_is_older();  // there is one that writes
  if (!is_local_lost()) return {};
  std::vector<std::byte> piece(kLandingBytes);
  for (const auto& pool : contents) {
    for (std::uint64_t at = 0; pool != nullptr && at < bytes_; at += piece.size()) {
      const std::span<std::byte> read =
          std::span(piece).first(std::min<std::uint64_t>(piece.size(), bytes_ - at));
      if (!pool->read(kDataAt + at, read).ok()) break;  // who opens it will hear why
      if (!is_zeros(read)) return local_is_lost();
    }
  }
  return {};
}

}  // namespace perdure::mirror
