#include "fabric/emu/inbound_queue.h"

#include "core/assert.h"
#include "core/bytes.h"

#include <algorithm>
#include <utility>

namespace perdure::fabric::emu {

namespace {

/// Units that one operation is split into at most; larger ones are runs of lines.
constexpr std::size_t kUnitsMax = 16;
/// Writes remembered for a FLUSH to come; older ones drain by themselves.
constexpr std::size_t kUnflushedMax = 4096;

Access needed_access(Opcode opcode) {
  return only_looks(opcode) ? Access::RemoteRead : Access::RemoteReadWrite;
}

/// What is visible there enters the memory controller.
void drain_place(const Place& place) {
  pmem::CrashableRegion* region = place.range->region;
  if (region != nullptr) region->drain({place.range->region_at + place.at, place.length});
}

bool overlap(pmem::Range a, pmem::Range b) {
  return a.at < b.at + b.length && b.at < a.at + a.length;
}

}  // namespace

void InboundQueue::post_receive(Place place, std::uint64_t context) {
  receives_.push_back({std::move(place), context});
}

bool InboundQueue::can_take(Opcode opcode) const {
  if (refusing_ || slots_.size() >= kRnicOperationsMax) return false;
  if (buffered_bytes_ >= kRnicBytesMax) return false;
  return !takes_receive(opcode) || !receives_.empty();
}

std::optional<Place> InboundQueue::find_place(const Operation& operation) {
  if (operation.opcode == Opcode::SendFlush && operation.length == 0) return nowhere();
  if (operation.opcode != Opcode::Send) {
    const bool atomic = !is_posted(operation.opcode) && !only_looks(operation.opcode);
    if (atomic && operation.address % kAtomicOperandBytes != 0) return std::nullopt;
    // An atomic reaches a word, whatever length its sender names.
    const std::uint64_t length = atomic ? kAtomicOperandBytes : operation.length;
    return memory_.find_remote(operation.key, operation.address, length,
                               {connection_, needed_access(operation.opcode)});
  }
  const Place& buffer = receives_.front().place;
  if (operation.length > buffer.length) return std::nullopt;
  return Place{buffer.range, buffer.at, operation.length};
}

void InboundQueue::take(Operation operation, Random& random) {
  PERDURE_ASSERT(can_take(operation.opcode));
  ++counters_.operations;
  std::optional<Place> place = find_place(operation);
  if (!place) return refuse(operation.sequence);

  Slot slot;
  slot.operation = std::move(operation);
  slot.place = std::move(*place);
  // One whose end was lost with the connection is nothing that was received: no ACK follows.
  if (!slot.operation.truncated) last_taken_ = slot.operation.sequence;
  const Nanoseconds first_touch = behaviour_.switches.first_touch;
  if (first_touch > Nanoseconds{0}) {
    slot.operation.ready_at += first_touch * static_cast<std::int64_t>(memory_.touch(slot.place));
  }
  if (takes_receive(slot.operation.opcode)) {
    slot.receive_context = receives_.front().context;
    receives_.pop_front();
  }
  if (slot.operation.opcode == Opcode::Send) last_message_ = slot.place;
  if (slot.operation.opcode == Opcode::SendFlush) slot.looked_up = last_message_;
  const std::size_t size = is_posted(slot.operation.opcode) ? slot.operation.data.size() : 0;
  const std::size_t misaligned = slot.place.range->into_line(slot.place.at);
  const std::size_t lines = round_up(misaligned + size, kCacheLineBytes) / kCacheLineBytes;
  const std::size_t run_lines_max = lines <= kUnitsMax ? 1 : 2 * (lines / kUnitsMax) + 1;
  const Opcode opcode = slot.operation.opcode;
  const bool tears =
      behaviour_.switches.tears_words && (opcode == Opcode::Write || opcode == Opcode::WriteImm);
  for (std::size_t at = 0; at < size;) {
    const std::size_t run = (1 + random.below(run_lines_max)) * kCacheLineBytes;
    const std::size_t skewed = at == 0 ? run - misaligned : run;
    std::size_t length = std::min(skewed, size - at);
    if (tears) length = 1 + random.below(length);
    slot.units.push_back({at, length});
    at += length;
  }
  const bool posted = is_posted(slot.operation.opcode);
  if (posted && behaviour_.packets_overtake && !behaviour_.keeps_write_order) {
    const bool in_turn = !waits_for_persist(slot.operation.opcode);
    slot.arrived = slot.operation.truncated || (in_turn && random.chance(1, 2));
  }
  buffered_bytes_ += slot.operation.data.size();
  slots_.push_back(std::move(slot));
}

/// Whether it is a PWRITE behind one whose packets are not all here: they keep their order.
bool InboundQueue::waits_for_persist(Opcode opcode) const {
  return opcode == Opcode::WritePersist && std::ranges::any_of(slots_, [](const Slot& slot) {
           return slot.operation.opcode == Opcode::WritePersist && !slot.arrived;
         });
}

void InboundQueue::refuse(std::uint64_t sequence) {
  ++counters_.refused;
  refusing_ = true;
  responses_.push_back({sequence, ErrorCode::OutOfRange, {}});
}

const InboundQueue::Slot* InboundQueue::first_posted() const {
  for (const Slot& slot : slots_) {
    if (!slot.finished && is_posted(slot.operation.opcode)) return &slot;
  }
  return nullptr;
}

InboundQueue::Slot* InboundQueue::first_posted() {
  return const_cast<Slot*>(std::as_const(*this).first_posted());
}

std::optional<Nanoseconds> InboundQueue::posted_ready() const {
  if (behaviour_.keeps_write_order) {
    const Slot* slot = first_posted();
    if (slot == nullptr) return std::nullopt;
    return slot->operation.ready_at;
  }
  std::optional<Nanoseconds> ready;
  for (const Slot& slot : slots_) {
    if (slot.finished || !is_posted(slot.operation.opcode)) continue;
    ready = ready ? std::min(*ready, slot.operation.ready_at) : slot.operation.ready_at;
  }
  return ready;
}

std::uint64_t InboundQueue::acknowledged() const {
  for (const Slot& slot : slots_) {
    if (!slot.arrived) return slot.operation.sequence - 1;
  }
  return last_taken_;
}

std::optional<Nanoseconds> InboundQueue::non_posted_ready() const {
  const auto executable = first_executable();
  if (persisting_.empty()) return executable;
  const Nanoseconds persisted = persisting_.front().ready_at;
  return executable ? std::min(*executable, persisted) : persisted;
}

std::optional<Nanoseconds> InboundQueue::first_executable() const {
  // pop_finished keeps an unfinished one in front: everything before it is visible.
  if (slots_.empty() || is_posted(slots_.front().operation.opcode)) return std::nullopt;
  return slots_.front().operation.ready_at;
}

bool InboundQueue::show(Slot& slot, Unit unit) {
  const auto data = std::span(slot.operation.data).subspan(unit.at, unit.length);
  if (slot.operation.opcode == Opcode::WritePersist) {
    for (const Persisting& before : persisting_) drain_place(before.place);
  }
  return slot.place.range->place(slot.place.at + unit.at, data, behaviour_.dirties_pages);
}

bool InboundQueue::stays_in_completion(const Slot& slot) const {
  return slot.operation.opcode == Opcode::Send && !slot.operation.truncated &&
         slot.operation.length <= behaviour_.switches.cqe_payload_bytes;
}

/// The posted operation of which something happens next: the first, or without order any that is
/// ready, a PWRITE behind those before it.
InboundQueue::Slot& InboundQueue::choose_posted(Random& random, Nanoseconds now) {
  Slot* first = first_posted();
  PERDURE_ASSERT(first != nullptr);
  if (behaviour_.keeps_write_order) return *first;
  std::vector<Slot*> all;
  bool persists = false;
  for (Slot& slot : slots_) {
    if (slot.finished || !is_posted(slot.operation.opcode)) continue;
    const bool in_turn = slot.operation.opcode != Opcode::WritePersist || !persists;
    persists = persists || slot.operation.opcode == Opcode::WritePersist;
    if (in_turn && slot.operation.ready_at <= now) all.push_back(&slot);
  }
  if (all.empty()) return *first;
  return *all[random.below(all.size())];
}

void InboundQueue::step_posted(Random& random, Nanoseconds now) {
  Slot& slot = choose_posted(random, now);
  if (!slot.arrived && random.chance(1, 2)) {
    slot.arrived = true;
    return;
  }
  if (stays_in_completion(slot)) slot.units.clear();
  if (!slot.units.empty()) {
    std::swap(slot.units[random.below(slot.units.size())], slot.units.back());
    const Unit unit = slot.units.back();
    slot.units.pop_back();
    if (!show(slot, unit)) {
      // Deregistered since it arrived.
      refuse(slot.operation.sequence);
      slot.units.clear();
      slot.arrived = slot.finished = true;
      return pop_finished();
    }
  }
  if (slot.units.empty()) finish_posted(slot);
  pop_finished();
}

void InboundQueue::finish_posted(Slot& slot) {
  slot.arrived = slot.finished = true;
  note_unflushed(slot);
  note_persisting(slot);
  announce();
}

void InboundQueue::note_persisting(const Slot& slot) {
  if (slot.operation.opcode != Opcode::WritePersist) return;
  persisting_.push_back(
      {slot.operation.sequence, slot.place, slot.operation.ready_at + behaviour_.persist_time});
}

void InboundQueue::persist_next() {
  const Persisting& oldest = persisting_.front();
  drain_place(oldest.place);
  responses_.push_back({oldest.sequence, std::nullopt, {}});
  persisting_.pop_front();
}

/// What the completion of a WRITE_WITH_IMM says of its length.
std::uint64_t InboundQueue::length_told(std::uint64_t length) const {
  const RnicSwitches& switches = behaviour_.switches;
  if (switches.immediate_without_length || length == 0) return 0;
  return length - std::min(length - 1, switches.immediate_bytes_missing);
}

/// Receive completions of messages before which, and with which, everything posted is visible.
void InboundQueue::announce() {
  for (Slot& slot : slots_) {
    const Operation& operation = slot.operation;
    if (!is_posted(operation.opcode)) continue;
    if (!slot.finished) return;
    if (slot.announced || !takes_receive(operation.opcode) || operation.truncated) continue;
    slot.announced = true;
    Received received;
    received.ready_at = operation.ready_at;
    Completion& completion = received.entry.completion;
    completion.context = slot.receive_context;
    completion.opcode = Opcode::Receive;
    completion.has_immediate = operation.opcode == Opcode::WriteImm;
    completion.immediate = operation.immediate;
    completion.length = operation.length;
    if (completion.has_immediate) completion.length = length_told(operation.length);
    if (stays_in_completion(slot)) {
      received.entry.payload = operation.data;
      received.entry.buffer = slot.place;
    }
    received_.push_back(std::move(received));
  }
}

void InboundQueue::note_unflushed(const Slot& slot) {
  pmem::CrashableRegion* region = slot.place.range->region;
  if (behaviour_.ddio == Ddio::On || region == nullptr || slot.place.length == 0) return;
  if (region->domain() != PersistenceDomain::Dmp) return;
  if (unflushed_.size() == kUnflushedMax) {
    unflushed_.front().region->drain(unflushed_.front().range);
    unflushed_.pop_front();
  }
  const pmem::Range range{slot.place.range->region_at + slot.place.at, slot.place.length};
  unflushed_.push_back({slot.operation.sequence, region, range});
}

void InboundQueue::step_non_posted(Random& random, Nanoseconds now) {
  const auto executable = first_executable();
  const bool persists = !persisting_.empty();
  PERDURE_ASSERT(executable.has_value() || persists);
  if (persists) {
    const bool due = persisting_.front().ready_at <= now;
    if (!executable || (due && (*executable > now || random.chance(1, 2)))) return persist_next();
  }
  Slot& slot = slots_.front();
  slot.finished = true;
  if (auto response = execute(slot)) {
    responses_.push_back(std::move(*response));
  } else {
    refuse(slot.operation.sequence);
  }
  pop_finished();
}

/// Nothing when the memory was deregistered since the operation arrived.
std::optional<Response> InboundQueue::execute(Slot& slot) {
  const Operation& operation = slot.operation;
  RegisteredRange& range = *slot.place.range;
  Response response{operation.sequence, std::nullopt, {}};
  if (operation.opcode == Opcode::Flush) {
    if (!range.registered()) return std::nullopt;
    push_to_controller(slot);
    if (operation.operand != 0) drain_place(slot.place);
    return response;
  }
  if (operation.opcode == Opcode::SendFlush) {
    const bool gone = slot.looked_up && !slot.looked_up->range->registered();
    if (gone || !range.registered()) return std::nullopt;
    push_to_controller(slot);
    if (slot.looked_up) drain_place(*slot.looked_up);
    drain_place(slot.place);
    return response;
  }
  if (operation.opcode == Opcode::Read) {
    response.data.resize(operation.length);
    if (!range.read(slot.place.at, response.data)) return std::nullopt;
    push_to_controller(slot);
    return response;
  }

  std::uint64_t before = 0;
  const auto change = [&](std::uint64_t old_value) {
    before = old_value;
    if (operation.opcode == Opcode::AtomicWrite) return operation.operand;
    if (operation.opcode == Opcode::FetchAdd) return old_value + operation.operand;
    return old_value == operation.operand ? operation.swap : old_value;
  };
  const pmem::Range word{range.region_at + slot.place.at, kAtomicOperandBytes};
  const bool unnoticed = range.region != nullptr && !behaviour_.dirties_pages;
  if (unnoticed) range.region->begin_unnoticed(word);
  const bool registered = range.update_word(slot.place.at, change);
  if (unnoticed) range.region->end_unnoticed(word);
  if (!registered) return std::nullopt;
  if (range.region != nullptr) range.region->note_written(word);
  note_unflushed(slot);
  if (operation.opcode != Opcode::AtomicWrite) {
    const auto bytes = bytes_of(before);
    response.data.assign(bytes.begin(), bytes.end());
  }
  return response;
}

/// FLUSH, or a READ inside what was written: everything earlier reaches the memory controller.
/// With DDIO on nothing was remembered, since the answer comes from the last-level cache.
void InboundQueue::push_to_controller(const Slot& slot) {
  const RegisteredRange& range = *slot.place.range;
  const auto earlier = [&](const Unflushed& entry) {
    return entry.sequence < slot.operation.sequence;
  };
  if (slot.operation.opcode == Opcode::Read) {
    const pmem::Range read{range.region_at + slot.place.at, slot.place.length};
    const bool inside = std::ranges::any_of(unflushed_, [&](const Unflushed& entry) {
      return earlier(entry) && entry.region == range.region && overlap(entry.range, read);
    });
    if (!inside) return;
  }
  for (const Unflushed& entry : unflushed_) {
    if (earlier(entry)) entry.region->drain(entry.range);
  }
  std::erase_if(unflushed_, earlier);
}

void InboundQueue::pop_finished() {
  while (!slots_.empty() && slots_.front().finished) {
    buffered_bytes_ -= slots_.front().operation.data.size();
    slots_.pop_front();
  }
}

std::optional<Response> InboundQueue::next_response() {
  if (responses_.empty()) return std::nullopt;
  Response response = std::move(responses_.front());
  responses_.pop_front();
  return response;
}

std::optional<Nanoseconds> InboundQueue::receive_ready() const {
  if (received_.empty()) return std::nullopt;
  return received_.front().ready_at;
}

CompletionEntry InboundQueue::next_receive() {
  PERDURE_ASSERT(!received_.empty());
  CompletionEntry entry = std::move(received_.front().entry);
  received_.pop_front();
  return entry;
}

/// Lines of an operation, finer than its units: any of them may have got through.
void InboundQueue::show_some_lines(Slot& slot, Random& random) {
  const std::size_t start = slot.place.range->into_line(slot.place.at);
  for (const Unit& unit : slot.units) {
    for (std::size_t at = unit.at; at < unit.at + unit.length;) {
      const std::size_t to_line_end = kCacheLineBytes - (start + at) % kCacheLineBytes;
      const std::size_t length = std::min(to_line_end, unit.at + unit.length - at);
      if (random.chance(1, 2)) (void)show(slot, {at, length});
      at += length;
    }
  }
}

/// Forgets everything; nothing is taken from the wire any more.
void InboundQueue::drop_all() {
  slots_.clear();
  buffered_bytes_ = 0;
  receives_.clear();
  received_.clear();
  responses_.clear();
  unflushed_.clear();
  persisting_.clear();
  last_message_.reset();
  refusing_ = true;
}

void InboundQueue::close(Random& random) {
  bool torn = false;  // the last PWRITE: what is ordered behind it is not placed
  for (Slot& slot : slots_) {
    if (slot.finished || !is_posted(slot.operation.opcode) || stays_in_completion(slot)) continue;
    const bool persists = slot.operation.opcode == Opcode::WritePersist;
    if (persists && torn) continue;
    torn = torn || (persists && (slot.operation.truncated || !slot.arrived));
    if (slot.operation.truncated || !slot.arrived) {
      show_some_lines(slot, random);
    } else {
      for (const Unit& unit : slot.units) (void)show(slot, unit);
    }
    note_persisting(slot);
  }
  drop_all();
}

void InboundQueue::close_late() {
  std::erase_if(slots_, [](const Slot& slot) { return slot.operation.opcode != Opcode::Write; });
  receives_.clear();
  received_.clear();
  responses_.clear();
  refusing_ = true;
}

void InboundQueue::reset(Random& random) {
  if (Slot* slot = first_posted(); slot != nullptr && !stays_in_completion(*slot)) {
    show_some_lines(*slot, random);
  }
  drop_all();
}

void InboundQueue::power_cut(Random& random) {
  bool all_arrived = true;
  for (Slot& slot : slots_) {
    all_arrived = all_arrived && slot.arrived;
    if (!slot.arrived || stays_in_completion(slot)) continue;
    if (!is_posted(slot.operation.opcode) && !all_arrived) continue;  // it waits for all before it
    const pmem::CrashableRegion* region = slot.place.range->region;
    if (slot.finished || region == nullptr || region->domain() != PersistenceDomain::Wsp) continue;
    if (!is_posted(slot.operation.opcode)) {
      (void)execute(slot);
    } else {
      for (const Unit& unit : slot.units) (void)show(slot, unit);
      slot.units.clear();
    }
  }
  Slot* slot = first_posted();
  if (slot != nullptr && random.chance(1, 2) && !stays_in_completion(*slot)) {
    show_some_lines(*slot, random);
  }
  drop_all();
}

}  // namespace perdure::fabric::emu
