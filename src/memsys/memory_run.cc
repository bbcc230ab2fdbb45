// The loop that moves time: see memory_run.h.
#include "memsys/memory_run.h"

#include "core/assert.h"
#include "core/named.h"
#include "core/try.h"
#include "memsys/buffered_admission.h"
#include "memsys/occupancy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::memsys {
namespace {

// Of the requests that are left.
constexpr std::uint64_t kProgressMask = (1 << 14) - 1;
constexpr std::uint64_t kRoomMask = (1 << 12) - 1;
static_assert((kProgressMask & kRoomMask) == kRoomMask);

constexpr std::array<std::string_view, 3> kPointNames{"accept", "bus", "array"};

struct Persist {
  TraceEvent write;
  Cycle cycle = 0;
};

/// Tells those who must know every event before it enters.
template <typename AnAdmission>
class Listeners final : public TraceListener {
 public:
  explicit Listeners(PersistLaw& law) : law_(law) {}
  void set(AnAdmission& admission) { admission_ = &admission; }
  void on_read(const TraceEvent& event) override {
    law_.on_read(event);
    admission_->on_read(event);
  }

 private:
  PersistLaw& law_;
  AnAdmission* admission_ = nullptr;
};

template <typename AnAdmission>
AnAdmission make_admission(TraceStreams& streams, const TraceSummary& summary, const Device& device,
                           const MemoryOptions& options) {
  if constexpr (AnAdmission::kBuffered) {
    return AnAdmission(streams, summary, device, options.order, options.buffers, options.mutant);
  } else {
    return AnAdmission(streams, options.order, options.mutant);
  }
}

template <typename AnAdmission>
class MemoryRun {
 public:
  MemoryRun(const Device& device, TraceReader& reader, TraceSummary summary,
            const MemoryOptions& options);
  Result<MemoryResult> run();

 private:
  void accept_next();
  void send_commands();
  void look_how_far();
  void on_served(const Request& request);
  void add_persist(const TraceEvent& write, Cycle cycle);
  auto sink() {
    return [this](const TraceEvent& write, Cycle cycle) { add_persist(write, cycle); };
  }
  void let_persist(Cycle until);
  Cycle next_time();
  Error deadlock();
  Result<MemoryResult> result();

  TraceEvent event_of(const Request& request) const {
    return {request.line, request.accepted, request.index, request.thread,
            request.write ? EventKind::Write : EventKind::Read};
  }

  /// Else it is the read of an old value.
  static bool is_of_trace(std::uint64_t index) {
    return (index & BufferedAdmission::kOldValue) == 0;
  }

  const Device& device_;
  const MemoryOptions& options_;
  const AddressMap map_;
  MemoryResult result_;
  PersistLaw law_;
  Listeners<AnAdmission> listeners_;
  TraceStreams streams_;
  AnAdmission admission_;
  std::vector<Channel> channels_;
  OccupancyBound occupancy_;
  Ring<Persist> persists_;  // known and to come, in the order of time
  /// The request that is next in line, once it was looked at.
  struct Front {
    std::uint64_t index = ~std::uint64_t{0};
    Place place;
    Channel* channel = nullptr;
    bool write = false;
  };
  const Front& look_at(const TraceEvent& event);

  Front front_;
  Cycle now_ = 0;
  std::uint64_t waiting_ = 0;  // in the channels
  std::uint64_t left_ = 0;     // requests not yet served
  Cycle served_at_ = 0;        // the last one, or when the first began to wait
  const Cycle longest_wait_;
};

template <typename AnAdmission>
MemoryRun<AnAdmission>::MemoryRun(const Device& device, TraceReader& reader, TraceSummary summary,
                                  const MemoryOptions& options)
    : device_(device),
      options_(options),
      map_(device),
      law_(summary, {.strands = options.order == Order::Strand}),
      listeners_(law_),
      streams_(reader, summary, listeners_, options.held_max),
      admission_(make_admission<AnAdmission>(streams_, summary, device, options)),
      occupancy_(device),
      longest_wait_(device.timing.longest_wait()) {
  listeners_.set(admission_);
  for (std::uint32_t i = 0; i < device.geometry.channels; ++i) {
    channels_.emplace_back(device, i, options.commands);
  }
  left_ = summary.reads + summary.writes;
  result_.requests = left_;
  result_.trace = std::move(summary);
}

template <typename AnAdmission>
Result<MemoryResult> MemoryRun<AnAdmission>::run() {
  admission_.start();
  while (left_ > 0) {
    let_persist(now_);
    admission_.advance(now_, sink());
    if (admission_.ready_at() <= now_) accept_next();
    send_commands();
    if (left_ == 0 || (options_.commands != nullptr && options_.commands->full())) break;
    const Cycle next = next_time();
    if (next == kNever || (waiting_ > 0 && next - served_at_ > longest_wait_)) {
      PERDURE_TRY_VOID(streams_.outcome());
      return deadlock();
    }
    now_ = next;
  }
  return result();
}

template <typename AnAdmission>
const typename MemoryRun<AnAdmission>::Front& MemoryRun<AnAdmission>::look_at(
    const TraceEvent& event) {
  if (event.index != front_.index) {
    const Place place = map_.place(event.line);
    front_ = {event.index, place, &channels_[place.channel], event.kind == EventKind::Write};
  }
  return front_;
}

template <typename AnAdmission>
void MemoryRun<AnAdmission>::accept_next() {
  const TraceEvent& event = admission_.front();
  const Front& next = look_at(event);
  const bool write = next.write;
  if (!next.channel->can_accept(write)) return;
  const Request request{event.line, event.index, now_, event.thread, write};
  if (is_of_trace(event.index)) {
    result_.wait.add(now_ - admission_.front_since());
    occupancy_.add(next.place, write);
  } else {
    ++left_;
    ++result_.old_values;
  }
  admission_.take();
  next.channel->accept(request, next.place, now_);
  if (waiting_++ == 0) served_at_ = now_;
  if (!write || options_.persist_point != PersistPoint::Accept) return;
  admission_.on_device_persist(event_of(request), now_, sink());
}

template <typename AnAdmission>
void MemoryRun<AnAdmission>::send_commands() {
  for (Channel& channel : channels_) {
    if (channel.next() != now_ || !channel.step(now_)) continue;
    --waiting_;
    if ((--left_ & kRoomMask) == 0) look_how_far();
    served_at_ = now_;
    on_served(channel.served());
  }
}

template <typename AnAdmission>
void MemoryRun<AnAdmission>::look_how_far() {
  result_.room_most = std::max(
      result_.room_most, streams_.room() + law_.room() + admission_.room() + persists_.size());
  if ((left_ & kProgressMask) == 0 && options_.progress) options_.progress(left_);
}

template <typename AnAdmission>
void MemoryRun<AnAdmission>::on_served(const Request& request) {
  const Timing& t = device_.timing;
  const Cycle end = now_ + (request.write ? t.write_to_burst_end() : t.read_to_burst_end());
  result_.finish_cycle = std::max(result_.finish_cycle, end);
  if (is_of_trace(request.index)) {
    (request.write ? result_.write : result_.read).add(end - request.accepted);
  }
  admission_.on_served(event_of(request));
  if (!request.write || options_.persist_point == PersistPoint::Accept) return;
  const Cycle persists = options_.persist_point == PersistPoint::Bus ? end : end + t.tWR;
  admission_.on_device_persist(event_of(request), persists, sink());
}

/// Writes persist in the order of time, though they may become known in another.
template <typename AnAdmission>
void MemoryRun<AnAdmission>::add_persist(const TraceEvent& write, Cycle cycle) {
  result_.persist.add(cycle - std::min(cycle, write.cycle));
  result_.persisted_cycle = std::max(result_.persisted_cycle, cycle);
  persists_.push({write, cycle});
  for (std::size_t i = persists_.size() - 1; i > 0; --i) {
    if (persists_[i - 1].cycle <= persists_[i].cycle) break;
    std::swap(persists_[i - 1], persists_[i]);
  }
}

template <typename AnAdmission>
void MemoryRun<AnAdmission>::let_persist(Cycle until) {
  while (!persists_.empty() && persists_.front().cycle <= until) {
    law_.on_persist(persists_.front().write, persists_.front().cycle);
    admission_.on_persisted(persists_.front().write);
    persists_.pop();
  }
}

template <typename AnAdmission>
Cycle MemoryRun<AnAdmission>::next_time() {
  // What was served may let a policy choose anew.
  admission_.advance(now_, sink());
  const Cycle ready = admission_.ready_at();
  Cycle next = kNever;
  if (AnAdmission::kBuffered && !persists_.empty()) {
    next = std::max(now_ + 1, persists_.front().cycle);
  }
  if (waiting_ == 0) {
    // Nothing but refreshes before the next request.
    if (ready == kNever && next == kNever) return kNever;
    if (next == kNever && device_.timing.tREFI != 0 && ready > now_ + device_.timing.tREFI) {
      for (Channel& channel : channels_) channel.pass_idle_until(ready);
    }
  }
  for (const Channel& channel : channels_) next = std::min(next, channel.next());
  if (ready == kNever) return next;
  if (ready > now_) return std::min(next, ready);
  const Front& front = look_at(admission_.front());
  if (!front.channel->can_accept(front.write)) return next;
  return std::min(next, now_ + 1);
}

template <typename AnAdmission>
Error MemoryRun<AnAdmission>::deadlock() {
  if (streams_.ended_early()) {
    return {ErrorCode::InvalidArgument,
            fmt::format("the trace changed while it was read: {} of its requests are not there now",
                        left_)};
  }
  return {ErrorCode::InvalidArgument,
          fmt::format("deadlock in cycle {}: {} requests are left and none can go on: {}", now_,
                      left_, admission_.describe_blocked())};
}

template <typename AnAdmission>
Result<MemoryResult> MemoryRun<AnAdmission>::result() {
  let_persist(kNever);
  if (!law_.holds()) {
    return Error{ErrorCode::ProtocolError,
                 fmt::format("the order of persistence is broken: {}", law_.broken())};
  }
  for (const Channel& channel : channels_) result_.commands += channel.counts();
  result_.law_checked = law_.checked();
  result_.lower_bound = occupancy_.cycles();
  result_.lookahead_reached = streams_.lookahead_reached();
  result_.held_most = streams_.held_most();
  return std::move(result_);
}

}  // namespace

std::string_view to_string(PersistPoint point) {
  return kPointNames.at(static_cast<std::size_t>(point));
}

Result<PersistPoint> parse_persist_point(std::string_view word) {
  return find_named<PersistPoint>("persist point", word, kPointNames);
}

Result<MemoryResult> run_memory(const Device& device, TraceReader& reader, TraceSummary summary,
                                const MemoryOptions& options) {
  const bool buffered_sync = options.order == Order::Sync && options.sync_has_buffers;
  if (options.order < Order::Epoch && !buffered_sync) {
    MemoryRun<Admission> run(device, reader, std::move(summary), options);
    return run.run();
  }
  MemoryRun<BufferedAdmission> run(device, reader, std::move(summary), options);
  return run.run();
}

}  // namespace perdure::memsys
