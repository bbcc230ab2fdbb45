// Who the clients of a durable RPC server are, and what they ask beside their calls: see
// executor.h.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/assert.h"
#include "core/log_message.h"
#include "core/random.h"
#include "core/try.h"
#include "rpc/executor.h"
#include "rpc/in_handler.h"

namespace perdure::rpc {

/// What a query sees: what was committed.
class Executor::View final : public RpcData {
 public:
  View(RpcPool& pool, std::uint64_t data_offset) : pool_(pool), data_offset_(data_offset) {}

  std::uint64_t bytes() const override { return pool_.shape().data_bytes; }
  Result<void> read(std::uint64_t at, std::span<std::byte> into) const override {
    if (!pmem::inside({at, into.size()}, bytes())) {
      return Error{ErrorCode::OutOfRange, fmt::format("bytes {}+{} lie outside the handlers' {}",
                                                      at, into.size(), bytes())};
    }
    const auto from = pool_.region().bytes().subspan(data_offset_ + at, into.size());
    std::copy(from.begin(), from.end(), into.begin());
    return {};
  }

 private:
  RpcPool& pool_;
  const std::uint64_t data_offset_;
};

std::optional<std::size_t> Executor::place_of(const std::string& name) const {
  const MutexLock view(view_);
  for (std::size_t place = 0; place < places_.size(); ++place) {
    if (places_[place].client != 0 && places_[place].name == name) return place;
  }
  return std::nullopt;
}

std::vector<std::string> Executor::names() const {
  std::vector<std::string> names;
  const MutexLock view(view_);
  for (const ClientPlace& each : places_) {
    if (each.client != 0) names.push_back(each.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::size_t> Executor::find_room(const std::string& name) const {
  if (place_of(name)) {
    return Error{ErrorCode::AlreadyExists, fmt::format("there is a client '{}' already", name)};
  }
  if (name.empty() || name.size() > kClientNameMax) {
    return Error{ErrorCode::InvalidArgument, "a client's name has 1 to 64 characters"};
  }
  if (auto failed = failure()) return *failed;
  for (std::size_t place = 0; place < running_.size(); ++place) {
    if (running_[place].client == 0) return place;
  }
  return Error{
      ErrorCode::NoSpace,
      fmt::format("the server has {} clients, as many as its pool was made for", running_.size())};
}

Result<void> Executor::take_place(std::size_t place, const std::string& name) {
  running_[place] = {};
  running_[place].client = random_secret();
  running_[place].name = name;
  {
    const MutexLock view(view_);
    heard_[place] = options_.clock->now();
  }
  write_place(place);
  return commit_places();
}

Result<void> Executor::remove_client(const std::string& name) {
  if (!work_.lock_within(kPlaceWithin)) return busy();
  const WorkLock work(work_, std::adopt_lock);
  if (auto failed = failure()) return *failed;
  const auto place = place_of(name);
  if (!place) return Error{ErrorCode::NotFound, fmt::format("there is no client '{}'", name)};
  const ClientPlace& client = running_[*place];
  if (find_entry(pool_->ring(*place), next_entry(client), entry_)) {
    return Error{ErrorCode::Busy,
                 fmt::format("client '{}' has calls that are not applied yet", name)};
  }
  running_[*place] = {};
  write_place(*place);
  PERDURE_TRY_VOID(commit_places());
  const MutexLock view(view_);
  ++shown_.expired;
  return {};
}

Result<std::size_t> Executor::held_place(const std::string& name, std::uint64_t sequence) const {
  if (auto failed = failure()) return *failed;
  const auto place = place_of(name);
  if (!place) return Error{ErrorCode::NotFound, fmt::format("there is no client '{}'", name)};
  const ClientPlace& client = running_[*place];
  if (client.held && client.applied + 1 == sequence) return *place;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("call {} of client '{}' is not set aside{}", sequence, name,
                           client.held ? fmt::format(", but call {} is", client.applied + 1) : "")};
}

Result<void> Executor::retry(const std::string& name, std::uint64_t sequence) {
  PERDURE_TRY_VOID(InHandler::refuse(*this));
  if (!work_.lock_within(kPlaceWithin)) return busy();
  const WorkLock work(work_, std::adopt_lock);
  PERDURE_TRY(place, held_place(name, sequence));
  running_[place].held = false;
  running_[place].attempts = 0;
  write_place(place);
  hint(place);
  return commit_places();
}

Result<void> Executor::drop(const std::string& name, std::uint64_t sequence) {
  PERDURE_TRY_VOID(InHandler::refuse(*this));
  if (!work_.lock_within(kPlaceWithin)) return busy();
  const WorkLock work(work_, std::adopt_lock);
  PERDURE_TRY(place, held_place(name, sequence));
  const auto found = find_entry(pool_->ring(place), next_entry(running_[place]), entry_);
  if (!found) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("call {} of client '{}' is not whole in its ring any more", sequence, name)};
  }
  ++running_[place].dropped;
  ++counted_.dropped;
  finish_dropped(place, *found);
  hint(place);
  return commit_places();
}

std::vector<std::string> Executor::silent_for(Nanoseconds lease) const {
  std::vector<std::string> silent;
  const MutexLock view(view_);
  for (std::size_t place = 0; place < places_.size(); ++place) {
    if (is_silent(place, lease)) silent.push_back(places_[place].name);
  }
  return silent;
}

bool Executor::is_silent(const std::string& name, Nanoseconds lease) const {
  const auto place = place_of(name);
  const MutexLock view(view_);
  return place && is_silent(*place, lease);
}

bool Executor::is_silent(std::size_t place, Nanoseconds lease) const {
  const ClientPlace& client = places_[place];
  if (client.client == 0 || client.held) return false;
  if (options_.clock->now() - heard_[place] < lease) return false;
  std::vector<std::byte> scratch;
  return !find_entry(pool_->ring(place), next_entry(client), scratch);
}

void Executor::note_heard(std::size_t place) {
  const MutexLock view(view_);
  heard_[place] = options_.clock->now();
}

void Executor::note_all_heard() {
  const MutexLock view(view_);
  heard_.assign(heard_.size(), options_.clock->now());
}

/// The session's pool is of the place; but that may have got another client since.
Result<void> Executor::check_client(std::size_t place, std::uint64_t client) {
  PERDURE_ASSERT(place < places_.size());
  heard_[place] = options_.clock->now();
  if (client != 0 && places_[place].client == client) return {};
  return Error{ErrorCode::NotFound, "the client has expired"};
}

Result<Welcome> Executor::welcome(std::size_t place, std::uint64_t known) {
  const MutexLock view(view_);
  PERDURE_ASSERT(place < places_.size());
  const ClientPlace& client = places_[place];
  PERDURE_TRY_VOID(check_client(place, known == 0 ? client.client : known));
  Welcome welcome{client.client, client.applied, client.position, client.applied, client.position};
  // A ring has no more entries than that: each step goes on in it.
  NextEntry next = next_entry(client);
  while (const auto found = find_entry(pool_->ring(place), next, scratch_)) {
    next = found->next;
    welcome.durable = found->entry.sequence;
    welcome.end = next.position;
    if (welcome.end - welcome.position >= shape().ring_bytes) break;
  }
  return welcome;
}

void Executor::await_applied(std::size_t place, std::uint64_t sequence, Nanoseconds within) {
  // The machine's clock: this waits for a thread.
  const Deadline deadline = Deadline::after(within);
  MutexLock view(view_);
  while (places_[place].applied < sequence && !places_[place].held && !shown_.failure &&
         !deadline.passed()) {
    view.wait_for(applied_[place], deadline.left());
  }
}

Result<std::optional<Result<std::size_t>>> Executor::query(
    std::size_t place, std::uint64_t client, std::uint64_t after, std::uint32_t operation,
    std::span<const std::byte> payload, const AnswerRoom& room, Nanoseconds within) {
  using Outcome = Result<std::size_t>;
  const auto handler = options_.queries.find(operation);
  {
    const MutexLock view(view_);
    PERDURE_TRY_VOID(check_client(place, client));
    if (handler == options_.queries.end()) {
      return std::optional(Outcome(Error{ErrorCode::Unsupported, "no handler"}));
    }
    if (places_[place].applied < after) {
      if (!places_[place].held) return std::optional<Outcome>{};
      return std::optional(Outcome(Error{ErrorCode::Busy, "a call before it is set aside"}));
    }
  }
  // What is applied meanwhile it may see: not less than it was to.
  if (!data_.lock_within(within)) return std::optional<Outcome>{};
  const WorkLock data(data_, std::adopt_lock);
  {
    const MutexLock view(view_);
    ++shown_.queries;
  }
  const RunningCall query{client, 0, operation, options_.clock->now()};
  const std::size_t most = options_.answer_bytes_max;
  if (most <= room.first.size()) {
    return std::optional(answer(handler->second, query, payload, room.first.first(most)));
  }
  if (answer_ == nullptr) answer_ = std::make_unique_for_overwrite<std::byte[]>(most);
  Outcome outcome = answer(handler->second, query, payload, {answer_.get(), most});
  if (outcome.ok()) {
    const std::size_t here = std::min(*outcome, room.first.size());
    std::copy_n(answer_.get(), here, room.first.begin());
    if (here != *outcome) room.whole.assign(answer_.get(), answer_.get() + *outcome);
  }
  return std::optional(std::move(outcome));
}

Result<std::size_t> Executor::answer(const RpcQueryHandler& handler, const RunningCall& query,
                                     std::span<const std::byte> payload,
                                     std::span<std::byte> room) {
  const std::uint64_t pool_data = pool_->window(0).at - shape().window_at(0);
  const View seen(*pool_, pool_data + shape().data_at());
  const auto failed = [&](std::string_view why) {
    log_message(Severity::Warning,
                fmt::format("the query of operator {} failed: {}", query.operation, why));
    return Error{ErrorCode::SystemError, std::string(why)};
  };
  const InHandler here(*this);
  const Noted noted(executing_, kQueryRunning, query);
  try {
    auto outcome = handler(payload, seen, room);
    if (!outcome.ok() || *outcome <= room.size()) return outcome;
    return Error{ErrorCode::InvalidArgument, "the reply is larger than its room"};
  } catch (const std::exception& thrown) {
    return failed(thrown.what());
  } catch (...) {
    return failed(kUnknownException);
  }
}

Result<std::size_t> Executor::reply_piece(std::size_t place, std::uint64_t client,
                                          std::uint64_t sequence, std::uint64_t offset,
                                          std::span<std::byte> to) {
  const MutexLock view(view_);
  PERDURE_TRY_VOID(check_client(place, client));
  const auto reply = pool_->reply(place, sequence);
  const ReplyHead head = decode_reply_head(reply.data());
  if (head.sequence != sequence || sequence > places_[place].applied || offset >= head.bytes ||
      head.bytes > shape().reply_bytes_max) {
    return Error{ErrorCode::NotFound,
                 fmt::format("the reply of call {} is not kept any more", sequence)};
  }
  const std::size_t bytes = std::min<std::size_t>(to.size(), head.bytes - offset);
  const auto from = reply.subspan(kReplyHeadBytes + offset, bytes);
  std::copy(from.begin(), from.end(), to.begin());
  return bytes;
}

/// Those that are in their handlers, of these clients.
std::vector<RpcExecuting> Executor::executing(const std::vector<ClientPlace>& places) const {
  std::vector<RpcExecuting> calls;
  const Nanoseconds now = options_.clock->now();
  for (std::size_t thread = 0; thread < kRunningMax; ++thread) {
    const auto call = executing_.at(thread);
    if (!call) continue;
    const auto client = std::find_if(places.begin(), places.end(), [&](const ClientPlace& each) {
      return each.client == call->client;
    });
    if (client == places.end()) continue;
    calls.push_back({client->name, call->client, call->sequence, call->operation,
                     std::max(now - call->since, Nanoseconds{0})});
  }
  return calls;
}

/// Who came waited for a transaction to end.
Error Executor::busy() const {
  std::vector<ClientPlace> places;
  {
    const MutexLock view(view_);
    places = places_;
  }
  std::string words;
  for (const RpcExecuting& each : executing(places)) {
    const bool query = each.sequence == 0;
    words += fmt::format(
        "{}{} of client '{}', operator {}, has been {} for {} ms", words.empty() ? ": " : "; ",
        query ? "a query" : fmt::format("call {}", each.sequence), each.client, each.operation,
        query ? "answered" : "executed", each.lasted / std::chrono::milliseconds(1));
  }
  return {ErrorCode::Busy,
          fmt::format("the server is executing calls; clients come and go, and operators decide, "
                      "between two of them{}: try again",
                      words)};
}

RpcServerStatus Executor::status() const {
  RpcServerStatus status;
  std::vector<ClientPlace> places;
  {
    const MutexLock view(view_);
    status = shown_;
    places = places_;
  }
  status.executing = executing(places);
  // Reading all that waits takes a while, in which others go on.
  std::vector<std::byte> scratch;
  for (std::size_t place = 0; place < places.size(); ++place) {
    const ClientPlace& each = places[place];
    if (each.client == 0) continue;
    RpcClientPlace shown{each.name,     each.client,    each.applied, 0,
                         each.attempts, each.set_aside, each.dropped, each.held};
    NextEntry next = next_entry(each);
    while (const auto found = find_entry(pool_->ring(place), next, scratch)) {
      ++shown.waiting;
      next = found->next;
      if (next.position - each.position >= shape().ring_bytes) break;
    }
    status.clients.push_back(std::move(shown));
  }
  return status;
}

std::uint64_t Executor::applied(std::size_t place) const {
  const MutexLock view(view_);
  return places_[place].client == 0 ? 0 : places_[place].applied;
}

std::optional<Error> Executor::failure() const {
  const MutexLock view(view_);
  return shown_.failure;
}

}  // namespace perdure::rpc
