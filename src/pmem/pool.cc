// Pool: a region with a name, an identity and a writer's epoch, of which the rest is exported.
#include "pmem/pool.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/errno_error.h"
#include "core/try.h"
#include "pmem/medium.h"
#include "pmem/owner_process.h"
#include "pmem/pool_head.h"

namespace perdure::pmem {
namespace {

Error at_path(const std::string& path, const Error& error) {
  if (path.empty()) return error;
  return Error{error.code, fmt::format("{}: {}", path, error.message)};
}

// Reading without a lock while the state is being changed may meet the first copy half-written and,
// a moment later, the second. The writer pauses between changes, so a few more looks suffice.
constexpr int kInspectTries = 8;

Result<void> check_size(const PoolHeader& header, std::uint64_t bytes) {
  if (header.region_bytes == bytes) return {};
  return Error{ErrorCode::Corrupt,
               fmt::format("the pool was made with {} bytes and now has {}: it was {}; restore it "
                           "from a replica",
                           header.region_bytes, bytes,
                           bytes < header.region_bytes ? "truncated" : "extended")};
}

// Header of the pool in an open file, with everything checked that needs no mapping.
Result<PoolHeader> header_of(const File& file, std::span<const std::byte> front) {
  if (front.empty())
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: is empty: a pool that was never made or was truncated to 0 "
                             "bytes; create it anew or restore it from a replica",
                             file.path())};
  auto header = decode_header_or_copy(front);
  if (!header.ok()) return at_path(file.path(), header.error());
  PERDURE_TRY(bytes, size_of(file));
  auto whole = check_size(*header, bytes);
  if (!whole.ok()) return at_path(file.path(), whole.error());
  return header;
}

Result<std::unique_ptr<OwnerLease>> take_lease(Region& region, const std::string& path,
                                               std::uint64_t place, bool take_over) {
  OwnerLease::Options options;
  options.place = place;
  options.take_over = take_over;
  auto lease = OwnerLease::take(region, kOwnerLeaseOffset, options);
  if (!lease.ok()) return at_path(path, lease.error());
  return lease;
}

// But for the lease, which whoever gave up making a pool has left there.
bool is_blank(std::span<const std::byte> head) {
  const auto bytes = head.first(std::min<std::size_t>(head.size(), kOwnerLeaseOffset));
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

Result<void> require_blank(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.size() < kPoolHeadBytes || is_blank(bytes.first(kPoolHeadBytes))) return {};
  return Error{ErrorCode::AlreadyExists,
               fmt::format("{}: holds {}; open it, or clear the device's first {} bytes (`daxio "
                           "--zero`) to give it up",
                           path, decode_header(bytes).ok() ? "a pool already" : "something else",
                           kPoolHeadBytes)};
}

Result<void> require_domain(const Region& region, const PoolOptions& options) {
  if (region.domain() >= options.required) return {};
  return Error{ErrorCode::Unsupported,
               fmt::format("pool '{}' would be of domain {} here, and {} at least is required: {}; "
                           "make it elsewhere, require less, or have the operator declare what "
                           "survives here",
                           options.name, to_string(region.domain()), to_string(options.required),
                           region.evidence())};
}

// What is known of where a pool lies, which was relied on to be more.
std::string with_what_was_relied_on(std::string evidence, std::optional<PersistenceDomain> once,
                                    PersistenceDomain now) {
  if (!once || *once <= now) return evidence;
  return fmt::format(
      "{}; what is in it relies on domain {}, which is not declared here: "
      "what nobody vouches for today does not count",
      evidence, to_string(*once));
}

// A copy lies elsewhere. Numbers that change with a restart cost no more than a flush.
std::uint64_t place_of(const File& file) {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) return 0;
  constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15;
  if (file.is_device()) return static_cast<std::uint64_t>(status.st_rdev) * kMix;
  return static_cast<std::uint64_t>(status.st_dev) * kMix ^
         static_cast<std::uint64_t>(status.st_ino);
}

// Its lock is free, and it may write all the same: see owner_process.h.
std::optional<int> ending_owner(const File& file, std::span<const std::byte> head) {
  if (head.size() < kPoolHeadBytes) return std::nullopt;
  return owner_still_ending(head.subspan(kOwnerProcessOffset, kOwnerProcessBytes), place_of(file));
}

Result<void> require_ended_owner(const File& file, std::span<const std::byte> head) {
  const auto process = ending_owner(file, head);
  if (!process) return {};
  return Error{
      ErrorCode::Busy,
      fmt::format("{}: process {}, which had it, has not ended yet: the kernel may still be "
                  "taking back what it had of an RNIC; ask again",
                  file.path(), *process)};
}

Result<Uuid> uuid_in(const File& file) {
  PERDURE_TRY(head, read_head(file));
  PERDURE_TRY(header, decode_header_or_copy(head));
  return header.uuid;
}

PoolState without_marks(PoolState state) {
  state.clean_shutdown = false;
  state.settled.reset();
  state.settled_place = 0;
  return state;
}

// The header of a pool that is about to be made in `region_bytes` bytes.
Result<PoolHeader> new_header(const PoolOptions& options, std::uint64_t region_bytes) {
  PoolHeader header;
  header.uuid = options.uuid.value_or(Uuid::random());
  header.region_bytes = region_bytes;
  header.data_bytes = options.data_bytes;
  if (options.data_bytes == 0 && region_bytes > kPoolDataOffset)
    header.data_bytes = region_bytes - kPoolDataOffset;
  header.declared = options.declared;
  header.kind = options.kind;
  header.name = options.name;
  PERDURE_TRY_VOID(validate(header));
  return header;
}

}  // namespace

Result<std::unique_ptr<Pool>> Pool::create(const std::string& path, const PoolOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_character_file(path, ignored)) return create_on_device(path, options);
  if (options.data_bytes == 0 || options.data_bytes > kPoolDataBytesMax)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: a pool of {} bytes; 1 to {} are possible", path,
                             options.data_bytes, kPoolDataBytesMax)};
  auto fits = new_header(options, kPoolDataOffset + options.data_bytes);
  if (!fits.ok()) return at_path(path, fits.error());

  const std::string directory = std::filesystem::path(path).parent_path().string();
  PERDURE_TRY(unit, mapping_unit(directory.empty() ? "." : directory));
  PERDURE_TRY(made, NewFile::begin(path, round_up(kPoolDataOffset + options.data_bytes, unit)));
  if (options.zeroed_bytes_max != 0) {
    PERDURE_TRY_VOID(
        made.write_zeros(options.zeroed_bytes_max, Deadline::after(options.zeroed_within)));
  }
  PERDURE_TRY(region, MappedRegion::map(made.take_file(), MapOptions{options.declared, nullptr}));
  const int descriptor = region->file().descriptor();
  const std::uint64_t place = place_of(region->file());
  PERDURE_TRY(pool, format_at({std::move(region), nullptr}, options, path, place));
  pool->own(place);
  PERDURE_TRY_VOID(made.publish(descriptor));
  return pool;
}

Result<std::unique_ptr<Pool>> Pool::create_on_device(const std::string& path,
                                                     const PoolOptions& options) {
  PERDURE_TRY(region, MappedRegion::open(path, MapOptions{options.declared, nullptr}));
  const std::uint64_t place = place_of(region->file());
  PERDURE_TRY(pool, format_device(std::move(region), options, path, place));
  pool->own(place);
  return pool;
}

// The lease is written to the device, so not before it is known to hold nothing else. And in
// between somebody in another container may have made a pool there, and even have ended.
Result<std::unique_ptr<Pool>> Pool::format_device(std::unique_ptr<Region> region,
                                                  const PoolOptions& options,
                                                  const std::string& path, std::uint64_t place) {
  auto fits = new_header(options, region->bytes().size());
  if (!fits.ok()) return at_path(path, fits.error());
  PERDURE_TRY_VOID(require_domain(*region, options));
  PERDURE_TRY_VOID(require_blank(region->bytes(), path));
  PERDURE_TRY(lease, take_lease(*region, path, place, false));
  PERDURE_TRY_VOID(require_blank(region->bytes(), path));
  return format_at({std::move(region), std::move(lease)}, options, path, place);
}

bool Pool::is_blank_device(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_character_file(path, ignored)) return false;
  const auto file = open_file(path, OpenMode::ReadOnly);
  if (!file.ok() || !file->is_device()) return false;
  const auto head = read_head(*file);
  return head.ok() && is_blank(*head);
}

bool Pool::is_locked(const std::string& path) {
  const auto file = open_file(path, OpenMode::ReadOnly);
  if (!file.ok()) return false;
  if (pmem::is_locked(*file)) return true;
  const auto head = read_head(*file);
  return head.ok() && !require_ended_owner(*file, *head).ok();
}

Result<PoolHolder> Pool::holder(const std::string& path) {
  using enum PoolHolder::State;
  PERDURE_TRY(file, open_file(path, OpenMode::ReadOnly));
  if (pmem::is_locked(file)) return PoolHolder{Held, lock_holder(file)};
  PERDURE_TRY(head, read_head(file));
  if (const auto process = ending_owner(file, head))
    return PoolHolder{Ending, fmt::format("process {}", *process)};
  if (!file.is_device()) return PoolHolder{};
  const auto lease = std::span<const std::byte>(head).subspan(kOwnerLeaseOffset, kOwnerLeaseBytes);
  const LeaseSeen seen = look_at_lease(lease, this_boot(), place_of(file));
  const std::string owner = seen.owner.empty() ? "an owner that could not be read" : seen.owner;
  switch (seen.state) {
    case LeaseSeen::State::Free: break;
    case LeaseSeen::State::Held: return PoolHolder{Held, owner, true};
    case LeaseSeen::State::Elsewhere:
    case LeaseSeen::State::Unmarked: return PoolHolder{Elsewhere, owner, true};
  }
  return PoolHolder{};
}

Result<Uuid> Pool::uuid_of(const std::string& path) {
  PERDURE_TRY(file, open_file(path, OpenMode::ReadOnly));
  return uuid_in(file);
}

Result<void> Pool::remove(const std::string& path, const std::string& uuid) {
  PERDURE_TRY(file, open_file(path, OpenMode::ReadWrite));
  PERDURE_TRY_VOID(lock_exclusively(file));
  const auto there = uuid_in(file);
  const std::string found = there.ok() ? to_string(*there) : "";
  // One that has become unreadable is still the one that was seen, as far as anybody can tell.
  if (!found.empty() && found != uuid) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{}: is the pool {} by now, and not {}: look at it again, and see "
                             "whether it is the one that is to go",
                             path, found, uuid.empty() ? "one that can not be read" : uuid)};
  }
  return remove_file(file);
}

Result<void> Pool::check_removable(const std::string& path) { return pmem::check_removable(path); }

Result<std::unique_ptr<Pool>> Pool::open(const std::string& path, const OpenOptions& options) {
  PERDURE_TRY(file, open_file(path, OpenMode::ReadWrite));
  PERDURE_TRY_VOID(lock_exclusively(file));
  PERDURE_TRY(head, read_head(file));
  PERDURE_TRY(header, header_of(file, head));
  PERDURE_TRY_VOID(require_ended_owner(file, head));
  const MapOptions map{options.declared, options.sync_calls, header.declared};
  PERDURE_TRY(region, MappedRegion::map(std::move(file), map));
  const std::uint64_t place = place_of(region->file());
  // A file's lock suffices: all who open it have one inode.
  auto pool = region->file().is_device()
                  ? attach_device(std::move(region), path, place, options)
                  : attach_at({std::move(region), nullptr}, path, place, &options);
  if (pool.ok()) (*pool)->own(place);
  return pool;
}

Result<PoolInfo> Pool::inspect(const std::string& path) {
  PERDURE_TRY(file, open_file(path, OpenMode::ReadOnly));
  PERDURE_TRY(head, read_head(file));
  PERDURE_TRY(header, header_of(file, head));
  auto slots = decode_states(head, header.uuid);
  for (int tries = 1; !slots.ok() && tries < kInspectTries; ++tries) {
    PERDURE_TRY(again, read_head(file));
    slots = decode_states(again, header.uuid);
  }
  if (!slots.ok()) return at_path(path, slots.error());
  PERDURE_TRY(medium, examine_medium(file));

  PoolInfo info;
  info.path = path;
  info.header = header;
  info.state = slots->newest.state;
  info.state_generation = slots->newest.generation;
  info.state_copies_agree = slots->both_equal;
  const auto declared = still_declared(medium, std::nullopt, header.declared);
  auto domain = decide_domain(medium, declared);
  if (domain.ok()) {
    info.domain = *domain;
    info.evidence = with_what_was_relied_on(join_evidence(medium),
                                            pmem::relied_on(info.header, info.state), *domain);
  } else {
    info.evidence = domain.error().message;
  }
  return info;
}

Result<std::unique_ptr<Pool>> Pool::format(std::unique_ptr<Region> region,
                                           const PoolOptions& options) {
  return format_at({std::move(region), nullptr}, options, std::string(), 0);
}

Result<std::unique_ptr<Pool>> Pool::attach_device(std::unique_ptr<Region> region,
                                                  const std::string& path, std::uint64_t place,
                                                  const OpenOptions& options) {
  PERDURE_TRY(lease, take_lease(*region, path, place, options.take_over_lease));
  return attach_at({std::move(region), std::move(lease)}, path, place, &options);
}

Result<std::unique_ptr<Pool>> Pool::attach(std::unique_ptr<Region> region, std::uint64_t place) {
  return attach_at({std::move(region), nullptr}, std::string(), place, nullptr);
}

// The header is what makes a pool of a region, so an old one goes first and the new one comes
// last; in between nothing attaches.
Result<std::unique_ptr<Pool>> Pool::format_at(Held held, const PoolOptions& options,
                                              std::string path, std::uint64_t place) {
  auto header = new_header(options, held.region->bytes().size());
  if (!header.ok()) return at_path(path, header.error());
  PoolState state;
  state.opaque = options.opaque;
  PERDURE_TRY_VOID(validate(state));
  PERDURE_TRY_VOID(require_domain(*held.region, options));
  std::unique_ptr<Pool> pool(new Pool(std::move(held), *header, std::move(path)));
  PERDURE_TRY_VOID(pool->write_page(kHeaderCopyOffset, PoolPage{}));
  PERDURE_TRY_VOID(pool->write_page(0, PoolPage{}));
  if (!pool->path_.empty()) {
    state.opened_by = state.relied_on = pool->region().domain();
    state.opened_place = place;
  }
  PERDURE_TRY_VOID(pool->write_state(std::move(state)));
  PERDURE_TRY_VOID(pool->write_page(0, encode_header(pool->header_)));
  PERDURE_TRY_VOID(pool->write_page(kHeaderCopyOffset, encode_header(pool->header_)));
  return pool;
}

Result<std::unique_ptr<Pool>> Pool::attach_at(Held held, std::string path, std::uint64_t place,
                                              const OpenOptions* options) {
  const std::span<const std::byte> bytes = held.region->bytes();
  auto header = decode_header_or_copy(bytes);
  if (!header.ok()) return at_path(path, header.error());
  auto whole = check_size(*header, bytes.size());
  if (!whole.ok()) return at_path(path, whole.error());
  auto slots = decode_states(bytes.first(kPoolHeadBytes), header->uuid);
  if (!slots.ok()) return at_path(path, slots.error());

  std::unique_ptr<Pool> pool(new Pool(std::move(held), *header, std::move(path)));
  pool->slot_ = slots->newest;
  pool->newest_index_ = slots->newest_index;
  pool->place_ = place;
  pool->declared_ = options != nullptr && options->declared.has_value();
  if (options != nullptr && options->must_be_declared) PERDURE_TRY_VOID(pool->require_declared());
  const PoolState& left = slots->newest.state;
  pool->was_shut_down_ = left.clean_shutdown;
  pool->was_settled_ = left.clean_shutdown && left.settled == pool->region().domain() &&
                       left.settled == PersistenceDomain::Dmp && left.settled_place == place;
  PERDURE_TRY_VOID(pool->repair_headers());
  PoolState now = without_marks(left);
  if (options != nullptr) PERDURE_TRY_VOID(pool->take_up(now));
  if (!slots->both_equal || !slots->spare_equal || now != left)
    PERDURE_TRY_VOID(pool->write_state(std::move(now)));
  return pool;
}

// What was left by another domain, or copied here, may be visible and not durable, its header and
// state among it, and whoever opens a pool relies on all that he finds.
Result<void> Pool::take_up(PoolState& state) {
  using enum PersistenceDomain;
  const PersistenceDomain now = region_->domain();
  if (state.opened_by != now || state.opened_place != place_) {
    const Range all{0, region_->bytes().size()};
    region_->dirty_pages(all);
    PERDURE_TRY_VOID(region_->flush(all.at, all.length));
  }
  state.opened_by = now;
  state.opened_place = place_;
  if (now != None || !relied_on()) state.relied_on = now;
  return {};
}

std::optional<PersistenceDomain> Pool::relied_on() const {
  return pmem::relied_on(header_, slot_.state);
}

Result<void> Pool::require_declared() const {
  const auto once = relied_on();
  const PersistenceDomain now = region_->domain();
  if (declared_ || now != PersistenceDomain::None || !once || *once == now) return {};
  return at_path(
      path_,
      Error{ErrorCode::Unsupported,
            fmt::format("what is in it relies on domain {0}, and nothing is declared now, so "
                        "that nothing is known to last where it lies: what was durable "
                        "could be undone by a recovery that flushes nothing. Declare {0} if "
                        "that still holds, else {1}",
                        to_string(*once), to_string(now))});
}

// One of the two is whole: it was just read. It is copied as it is, whatever else may be in it. A
// pool that is older than the copy gets one.
Result<void> Pool::repair_headers() {
  const auto bytes = region_->bytes();
  const bool first_is_whole = decode_header(bytes).ok();
  const std::uint64_t from = first_is_whole ? 0 : kHeaderCopyOffset;
  const std::uint64_t to = first_is_whole ? kHeaderCopyOffset : 0;
  const PoolPage page = load<PoolPage>(bytes.data() + from);
  if (load<PoolPage>(bytes.data() + to) == page) return {};
  return write_page(to, page);
}

std::span<std::byte> Pool::owner_page() {
  return region_->bytes().subspan(kOwnerProcessOffset, kOwnerProcessBytes);
}

void Pool::own(std::uint64_t place) {
  place_ = place;
  note_owner(owner_page(), place);
  owner_noted_ = ::getpid();
}

Pool::~Pool() {
  // A child that was forked leaves the note to its parent, and who lost a device to another leaves
  // it to that one.
  if (owner_noted_ == ::getpid() && (lease_ == nullptr || lease_->check().ok()))
    forget_owner(owner_page());
}

Result<void> Pool::write_page(std::uint64_t at, const PoolPage& page) {
  // Once a flush has failed nothing is stored, either: the mark of a clean shutdown, least of all,
  // might reach the medium by itself. And what another has by now is not ours to write.
  PERDURE_TRY_VOID(region_->check());
  std::memcpy(region_->bytes().data() + at, page.data(), page.size());
  return region_->flush(at, page.size());
}

// One copy after the other, the older first: at every instant one of them is whole. And once both
// are durable, damage to either can not bring back an older state, an older epoch least of all. The
// spare comes last, so that it has the old state while the drive unit of the others is rewritten.
//
// By none nothing of this is durable, and a power failure may tear all that was written. So where
// somebody could rely on the pool before, one slot alone is written then, and his stays in the
// other.
Result<void> Pool::write_state(PoolState state) {
  using enum PersistenceDomain;
  const StateSlot next{slot_.generation + 1, std::move(state)};
  const PoolPage page = encode_state(next, header_.uuid);
  const std::size_t older = 1 - newest_index_;
  if (region_->domain() == None && relied_on().value_or(None) != None) {
    if (slot_.state.opened_by != None) newest_index_ = older;
    PERDURE_TRY_VOID(write_page((1 + newest_index_) * kPoolPageBytes, page));
  } else {
    PERDURE_TRY_VOID(write_page((1 + older) * kPoolPageBytes, page));
    PERDURE_TRY_VOID(write_page((1 + newest_index_) * kPoolPageBytes, page));
    PERDURE_TRY_VOID(write_page(kSpareStateOffset, page));
  }
  slot_ = next;
  return {};
}

Result<void> Pool::set_state(const PoolState& state) {
  PERDURE_TRY_VOID(validate(state));
  if (state.epoch < epoch())
    return Error{ErrorCode::Fenced,
                 fmt::format("{}: epoch {} is over, epoch {} of {} is now", path_,
                             state.epoch.value, epoch().value, slot_.state.holder)};
  PoolState next = without_marks(state);
  next.opened_by = slot_.state.opened_by;
  next.opened_place = slot_.state.opened_place;
  next.relied_on = slot_.state.relied_on;
  return write_state(std::move(next));
}

Result<void> Pool::close(Contents contents) {
  PoolState state = without_marks(slot_.state);
  state.clean_shutdown = true;
  if (contents == Contents::Settled) {
    state.settled = region_->domain();
    state.settled_place = place_;
  }
  return write_state(std::move(state));
}

PoolInfo Pool::info() const {
  PoolInfo info;
  info.path = path_;
  info.header = header_;
  info.state = slot_.state;
  info.state_generation = slot_.generation;
  info.state_copies_agree = true;
  info.domain = region_->domain();
  info.evidence = evidence();
  return info;
}

std::string Pool::evidence() const {
  if (declared_) return region_->evidence();
  return with_what_was_relied_on(region_->evidence(), relied_on(), region_->domain());
}

std::string to_string(const PoolInfo& info) {
  const auto text = [](const std::string& value) { return value.empty() ? "-" : value.c_str(); };
  std::string out;
  out += fmt::format("path:       {}\n", text(info.path));
  out += fmt::format("name:       {}\n", text(info.header.name));
  out += fmt::format("kind:       {}\n", text(info.header.kind));
  out += fmt::format("uuid:       {}\n", to_string(info.header.uuid));
  out += fmt::format("data:       {} bytes at {}, of {}\n", info.header.data_bytes, kPoolDataOffset,
                     info.header.region_bytes);
  out += fmt::format("declared:   {}\n",
                     info.header.declared ? to_string(*info.header.declared) : "-");
  const auto relied_on = pmem::relied_on(info.header, info.state);
  out += fmt::format("relied on:  {}\n", relied_on ? to_string(*relied_on) : "-");
  out += fmt::format("domain:     {}\n", info.domain ? to_string(*info.domain) : "refused");
  out += fmt::format("evidence:   {}\n", info.evidence);
  out +=
      fmt::format("epoch:      {}, held by {}\n", info.state.epoch.value, text(info.state.holder));
  out += fmt::format("shut down:  {}\n", info.state.clean_shutdown ? "yes" : "no");
  out += fmt::format("state:      generation {}, {}\n", info.state_generation,
                     info.state_copies_agree ? "both copies whole" : "one copy torn or damaged");
  return out;
}

}  // namespace perdure::pmem
