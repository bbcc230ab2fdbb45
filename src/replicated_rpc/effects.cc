// Executing a call and applying a record come to the same: the first makes the second.
#include "replicated_rpc/effects.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/bytes.h"
#include "core/log_message.h"
#include "core/try.h"

namespace perdure::replicated_rpc {
namespace {

/// In the sequence of Sizes: "effects" and the version of the format. In version 1 nothing was said
/// of openings.
constexpr std::uint64_t kMagic = 0x0273746365666665;
constexpr std::uint64_t kMagicOfVersion1 = 0x0173746365666665;
constexpr std::size_t kSizesBytes = 32;
constexpr std::uint64_t kNameBytesMax = 32;
constexpr std::uint32_t kDroppedStatus =
    kDropped | (1 + static_cast<std::uint32_t>(ErrorCode::SystemError));

std::vector<std::byte> encode(const Sizes& sizes) {
  std::vector<std::byte> bytes(kSizesBytes);
  store(bytes.data(), sizes.data_bytes);
  store(bytes.data() + 8, sizes.transaction_bytes);
  store(bytes.data() + 16, sizes.clients_max);
  store(bytes.data() + 20, sizes.replies);
  store(bytes.data() + 24, sizes.reply_bytes_max);
  store(bytes.data() + 28, sizes.application);
  return bytes;
}

std::uint64_t place_bytes(const Sizes& sizes) {
  return item_bytes(kNameBytesMax, 0) +
         sizes.replies * item_bytes(kNameBytesMax, sizes.reply_bytes_max);
}

bool is_same(const Tried& one, const Tried& other) {
  return one.client_id == other.client_id && one.sequence == other.sequence &&
         one.generation == other.generation;
}

RecordItem mark_of(const RpcCall& call) {
  RecordItem mark;
  mark.type = ItemType::Applied;
  mark.number = call.client_id;
  mark.sequence = call.sequence;
  mark.generation = call.generation;
  mark.name = call.client;
  return mark;
}

RecordItem item_of(ItemType type, const std::string& name, const Tried& tried) {
  RecordItem item;
  item.type = type;
  item.number = tried.client_id;
  item.sequence = tried.sequence;
  item.generation = tried.generation;
  item.status = tried.ends | (tried.held ? kHeld : 0);
  item.name = name;
  return item;
}

Tried decode_tried(const RecordItem& item) {
  return {item.number, item.sequence, item.generation, item.status & ~kHeld,
          (item.status & kHeld) != 0};
}

Tried name_tried(const RpcCall& call) {
  return {call.client_id, call.sequence, call.generation, 0, false};
}

Error wrong(const char* what) {
  return {ErrorCode::Corrupt, fmt::format("the log of effects {}", what)};
}

}  // namespace

std::uint64_t Sizes::ring_bytes() const {
  const std::uint64_t pages = round_up(data_bytes, kPageBytes);
  // A quarter more for the heads of pages and records, and the pads at the ring's end.
  const std::uint64_t round = pages + pages / 4 + 2 * clients_max * place_bytes(*this);
  return 4 * round + 8 * (transaction_bytes + kFullBytes + kPageBytes + place_bytes(*this));
}

Result<void> check_sizes(const Sizes& sizes) {
  const auto refuse = [](const char* what) {
    return Error{ErrorCode::InvalidArgument, fmt::format("a service needs {}", what)};
  };
  if (sizes.data_bytes == 0 || sizes.data_bytes > (std::uint64_t{1} << 40)) {
    return refuse("1 B to 1 TiB for its handlers");
  }
  if (sizes.clients_max == 0 || sizes.clients_max > 4096) return refuse("1 to 4096 clients");
  if (sizes.replies == 0 || sizes.replies > 1024) return refuse("1 to 1024 replies");
  if (sizes.reply_bytes_max > 64 * 1024) return refuse("replies of at most 64 KiB");
  if (place_bytes(sizes) > kPlaceBytesMax) return refuse("at most 2 MiB for a client's replies");
  if (sizes.transaction_bytes == 0 || sizes.transaction_bytes > kTransactionBytesMax) {
    return refuse("transactions of at most 4 MiB");
  }
  return {};
}

/// What one handler does: stored at once, and taken back if the call is refused.
class Effects::Transaction final : public RpcTransaction {
 public:
  explicit Transaction(Effects& effects) : effects_(effects), begun_(effects.record_.size()) {}

  std::uint64_t bytes() const override { return effects_.bytes_.size(); }

  Result<void> read(std::uint64_t at, std::span<std::byte> into) const override {
    PERDURE_TRY_VOID(check(at, into.size()));
    std::copy_n(effects_.bytes_.begin() + static_cast<std::ptrdiff_t>(at), into.size(),
                into.begin());
    return {};
  }

  Result<void> write(std::uint64_t at, std::span<const std::byte> bytes) override {
    auto written = check(at, bytes.size());
    const std::uint64_t used = effects_.record_.size() - begun_;
    if (written.ok() && used + item_bytes(0, bytes.size()) > effects_.sizes_->transaction_bytes) {
      written = Error{ErrorCode::NoSpace, "the transaction would be too large"};
    }
    if (!written.ok()) {
      if (!failure_) failure_ = written.error();
      return written;
    }
    if (bytes.empty()) return {};
    const auto place = effects_.bytes_.begin() + static_cast<std::ptrdiff_t>(at);
    before_.push_back({at, {place, place + static_cast<std::ptrdiff_t>(bytes.size())}});
    RecordItem change;
    change.number = at;
    change.bytes = bytes;
    append_item(effects_.record_, change);
    return effects_.apply_item(change, {});
  }

  /// The first write that failed.
  const std::optional<Error>& failure() const { return failure_; }

  void roll_back() {
    for (auto each = before_.rbegin(); each != before_.rend(); ++each) {
      std::copy(each->bytes.begin(), each->bytes.end(),
                effects_.bytes_.begin() + static_cast<std::ptrdiff_t>(each->at));
    }
    effects_.record_.resize(begun_);
  }

 private:
  struct Before {
    std::uint64_t at = 0;
    std::vector<std::byte> bytes;
  };

  Result<void> check(std::uint64_t at, std::uint64_t length) const {
    if (at <= bytes() && length <= bytes() - at) return {};
    return Error{ErrorCode::OutOfRange,
                 fmt::format("bytes {}+{} lie outside the handlers' {}", at, length, bytes())};
  }

  Effects& effects_;
  const std::size_t begun_;
  std::vector<Before> before_;
  std::optional<Error> failure_;
};

std::vector<std::byte> Effects::first_record(const Sizes& sizes) {
  const auto encoded = encode(sizes);
  RecordItem item;
  item.type = ItemType::Sizes;
  item.sequence = kMagic;
  item.bytes = encoded;
  std::vector<std::byte> record;
  append_item(record, item);
  return record;
}

Result<void> Effects::check_application(std::uint32_t application,
                                        const std::string& service) const {
  if (sizes_->application == application) return {};
  return Error{ErrorCode::InvalidArgument, fmt::format("service '{}' is of application {}, not {}",
                                                       service, sizes_->application, application)};
}

std::optional<ErrorCode> Effects::execute(const RpcCall& call, const RpcHandler* handler) {
  Transaction transaction(*this);
  reply_.assign(sizes_->reply_bytes_max, std::byte{});
  Result<std::size_t> outcome = Error{ErrorCode::Unsupported, "no handler"};
  try {
    if (handler != nullptr) outcome = (*handler)(call, transaction, reply_);
  } catch (const std::exception& thrown) {
    outcome = Error{ErrorCode::SystemError, thrown.what()};
  } catch (...) {
    outcome = Error{ErrorCode::SystemError, "an unknown exception"};
  }
  if (outcome.ok() && transaction.failure()) outcome = *transaction.failure();
  if (outcome.ok() && *outcome > reply_.size()) {
    outcome = Error{ErrorCode::SystemError, "a reply that is too long"};
  }
  RecordItem mark = mark_of(call);
  if (outcome.ok()) {
    mark.bytes = std::span(reply_).first(*outcome);
  } else {
    transaction.roll_back();
    mark.status = 1 + static_cast<std::uint32_t>(outcome.code());
    if (outcome.code() == ErrorCode::SystemError) {
      log_message(Severity::Warning, fmt::format("call {} of {} was refused: {}", call.sequence,
                                                 call.client, outcome.error().message));
    }
  }
  add_mark(mark);
  if (outcome.ok()) return std::nullopt;
  return outcome.code();
}

void Effects::drop(const RpcCall& call) {
  RecordItem mark = mark_of(call);
  mark.status = kDroppedStatus;
  add_mark(mark);
}

void Effects::add_mark(const RecordItem& mark) {
  append_item(record_, mark);
  note_applied(mark);
}

std::vector<std::byte> Effects::take_record() { return std::exchange(record_, {}); }

Result<void> Effects::apply(std::span<const std::byte> record, Lsn lsn) {
  if (!sizes_) {
    PERDURE_TRY_VOID(for_each_item(record, [&](const RecordItem& item) -> Result<void> {
      begun_whole_ = begun_whole_ && item.type != ItemType::RoundBegin;
      return {};
    }));
  }
  return for_each_item(record, [&](const RecordItem& item) { return apply_item(item, lsn); });
}

Result<void> Effects::apply_item(const RecordItem& item, Lsn lsn) {
  if (!sizes_ && item.type != ItemType::Sizes) return wrong("does not begin with its sizes");
  if (item.name.size() > kNameBytesMax) return wrong("has a name that is too long");
  switch (item.type) {
    case ItemType::Sizes: return apply_sizes(item);
    case ItemType::Change: {
      const std::uint64_t length = item.bytes.size();
      if (length == 0 || item.number > bytes_.size() || length > bytes_.size() - item.number) {
        return wrong("changes bytes that there are not");
      }
      std::copy(item.bytes.begin(), item.bytes.end(),
                bytes_.begin() + static_cast<std::ptrdiff_t>(item.number));
      const std::uint64_t last = (item.number + length - 1) / kPageBytes;
      for (std::uint64_t page = item.number / kPageBytes; page <= last; ++page) {
        touched_[page] = true;
      }
      return {};
    }
    case ItemType::Applied: note_applied(item); return {};
    case ItemType::Place:
      places_.insert_or_assign(std::string(item.name),
                               Place{item.number, item.sequence, item.generation, {}});
      return {};
    case ItemType::Kept:
      if (const auto place = places_.find(item.name); place != places_.end()) {
        keep(place->second, item);
      }
      return {};
    case ItemType::RoundBegin: round_ = Round{.begun = lsn, .last_name = {}}; return {};
    case ItemType::RoundStep:
      if (!round_) return {};
      round_->last_name = item.name;
      round_->places_copied = item.sequence != 0;
      round_->pages = item.number;
      return {};
    case ItemType::RoundEnd:
      if (round_) complete_from_ = round_->begun;
      round_.reset();
      return {};
    case ItemType::Opened: note_opened(item.number); return {};
    case ItemType::Ended:
      knows_of_openings_ = true;
      open_ = careful_ = false;
      trying_.reset();
      return {};
    case ItemType::Trying:
      trying_name_ = item.name;
      trying_ = decode_tried(item);
      return {};
    case ItemType::Tried: tried_[std::string(item.name)] = decode_tried(item); return {};
  }
  return wrong("has an item that nobody knows");
}

Result<void> Effects::apply_sizes(const RecordItem& item) {
  const bool known = item.sequence == kMagic || item.sequence == kMagicOfVersion1;
  if (!known || item.bytes.size() != kSizesBytes) {
    return Error{ErrorCode::VersionMismatch,
                 "the log of effects is of another version of this library, or no such log"};
  }
  Sizes sizes;
  sizes.data_bytes = load<std::uint64_t>(item.bytes.data());
  sizes.transaction_bytes = load<std::uint64_t>(item.bytes.data() + 8);
  sizes.clients_max = load<std::uint32_t>(item.bytes.data() + 16);
  sizes.replies = load<std::uint32_t>(item.bytes.data() + 20);
  sizes.reply_bytes_max = load<std::uint32_t>(item.bytes.data() + 24);
  sizes.application = load<std::uint32_t>(item.bytes.data() + 28);
  if (const auto valid = check_sizes(sizes); !valid.ok()) return wrong("has senseless sizes");
  if (sizes_) return {};
  sizes_ = sizes;
  bytes_.resize(sizes.data_bytes);
  touched_.resize(round_up(sizes.data_bytes, kPageBytes) / kPageBytes);
  return {};
}

/// Another id of the same name is another client: the pools of the one before are gone.
void Effects::note_applied(const RecordItem& item) {
  Place& place = places_[std::string(item.name)];
  if (place.client_id != item.number) place = Place{item.number, 0, 0, {}};
  place.applied = item.sequence;
  place.generation = item.generation;
  keep(place, item);
  if (const auto tried = tried_.find(item.name); tried != tried_.end()) tried_.erase(tried);
  if (trying_ && trying_name_ == item.name) trying_.reset();
}

void Effects::note_opened(std::uint64_t flags) {
  if ((flags & kDied) != 0 && trying_) {
    Tried& tried = tried_[trying_name_];
    if (!is_same(tried, *trying_)) tried = *trying_;
    ++tried.ends;
  }
  trying_.reset();
  open_ = knows_of_openings_ = true;
  careful_ = (flags & kCareful) != 0;
}

std::vector<std::byte> Effects::note(const RecordItem& item) {
  std::vector<std::byte> record;
  append_item(record, item);
  (void)apply_item(item, {});  // is none of those that can fail
  return record;
}

std::vector<std::byte> Effects::note_opened(bool died, bool careful) {
  RecordItem item;
  item.type = ItemType::Opened;
  item.number = (died ? kDied : 0) | (careful ? kCareful : 0);
  return note(item);
}

std::vector<std::byte> Effects::note_ended() {
  RecordItem item;
  item.type = ItemType::Ended;
  return note(item);
}

std::vector<std::byte> Effects::note_trying(const RpcCall& call) {
  return note(item_of(ItemType::Trying, std::string(call.client), name_tried(call)));
}

std::vector<std::byte> Effects::note_held(const RpcCall& call) {
  Tried held = name_tried(call);
  held.ends = ends_in(call);
  held.held = true;
  return note(item_of(ItemType::Tried, std::string(call.client), held));
}

const Tried* Effects::tried_of(const RpcCall& call) const {
  const auto tried = tried_.find(call.client);
  if (tried == tried_.end() || !is_same(tried->second, name_tried(call))) return nullptr;
  return &tried->second;
}

std::uint32_t Effects::ends_in(const RpcCall& call) const {
  const Tried* const tried = tried_of(call);
  return tried != nullptr ? tried->ends : 0;
}

bool Effects::is_suspect(const RpcCall& call) const { return tried_of(call) != nullptr; }

bool Effects::is_held(const RpcCall& call) const {
  const Tried* const tried = tried_of(call);
  return tried != nullptr && tried->held;
}

bool Effects::is_held(std::string_view client) const {
  const auto tried = tried_.find(client);
  return tried != tried_.end() && tried->second.held;
}

Result<std::vector<std::byte>> Effects::decide(const std::string& client, std::uint64_t sequence,
                                               Decision decision) const {
  const auto tried = tried_.find(client);
  if (tried == tried_.end() && places_.count(client) == 0) {
    return Error{ErrorCode::NotFound,
                 fmt::format("there is no client '{}' of which a call was executed", client)};
  }
  const bool held = tried != tried_.end() && tried->second.held;
  if (!held || tried->second.sequence != sequence) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("call {} of client '{}' is not set aside{}", sequence, client,
                             held ? fmt::format(", but call {} is", tried->second.sequence)
                                  : "; calls are while a server is opened with `hold_failed`")};
  }
  Tried decided = tried->second;
  decided.ends = 0;
  decided.held = false;
  RecordItem item = item_of(ItemType::Tried, client, decided);
  if (decision == Decision::Drop) {
    item.type = ItemType::Applied;
    item.status = kDroppedStatus;
  }
  std::vector<std::byte> record;
  append_item(record, item);
  return record;
}

void Effects::keep(Place& place, const RecordItem& item) {
  place.replies.push_back({item.sequence, item.status, {item.bytes.begin(), item.bytes.end()}});
  if (place.replies.size() > sizes_->replies) place.replies.pop_front();
}

std::vector<std::byte> Effects::begin_round() const {
  std::vector<std::byte> record = first_record(*sizes_);
  append_tried(record);
  RecordItem begin;
  begin.type = ItemType::RoundBegin;
  append_item(record, begin);
  return record;
}

std::vector<std::byte> Effects::next_piece() const {
  std::vector<std::byte> record;
  RecordItem step;
  step.type = ItemType::RoundStep;
  step.name = round_->last_name;
  step.sequence = 1;
  step.number = round_->pages;
  if (!round_->places_copied) {
    append_places(record, step);
    append_item(record, step);
    return record;
  }
  while (step.number < touched_.size() && !touched_[step.number]) ++step.number;
  if (step.number == touched_.size()) {
    step = RecordItem{};
    step.type = ItemType::RoundEnd;
    append_item(record, step);
    return record;
  }
  RecordItem page;
  page.number = step.number * kPageBytes;
  page.bytes = std::span(bytes_).subspan(page.number);
  page.bytes = page.bytes.first(std::min(page.bytes.size(), std::size_t{kPageBytes}));
  append_item(record, page);
  ++step.number;
  append_item(record, step);
  return record;
}

/// Of openings and calls that were tried all that is known. It changes nothing for who knows it.
void Effects::append_tried(std::vector<std::byte>& record) const {
  if (open_) {
    RecordItem opened;
    opened.type = ItemType::Opened;
    opened.number = careful_ ? kCareful : 0;
    append_item(record, opened);
  }
  if (trying_) append_item(record, item_of(ItemType::Trying, trying_name_, *trying_));
  for (const auto& [name, tried] : tried_) {
    append_item(record, item_of(ItemType::Tried, name, tried));
  }
}

/// As many as go into a page, but one at least. `step` says how far it got.
void Effects::append_places(std::vector<std::byte>& record, RecordItem& step) const {
  auto place = step.name.empty() ? places_.begin() : places_.upper_bound(step.name);
  for (; place != places_.end() && record.size() < kPageBytes; ++place) {
    RecordItem item;
    item.type = ItemType::Place;
    item.name = place->first;
    item.number = place->second.client_id;
    item.sequence = place->second.applied;
    item.generation = place->second.generation;
    append_item(record, item);
    for (const KeptReply& kept : place->second.replies) {
      item.type = ItemType::Kept;
      item.generation = 0;
      item.sequence = kept.sequence;
      item.status = kept.status;
      item.bytes = kept.bytes;
      append_item(record, item);
    }
    step.name = place->first;
  }
  step.sequence = place == places_.end() ? 1 : 0;
}

}  // namespace perdure::replicated_rpc
