#include "rpc/models/end.h"

#include "core/assert.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace perdure::rpc::models {
namespace {

/// Of a READ; a request that sends has the index of its staging slot.
constexpr std::uint64_t kReadContext = ~std::uint64_t{0};

std::size_t slot_bytes(const EndOptions& options) {
  return round_up(kFrameHeaderBytes + options.payload_bytes_max, kCacheLineBytes);
}

}  // namespace

std::string_view to_string(Verb verb) {
  switch (verb) {
    case Verb::Write: return "WRITE";
    case Verb::WriteImm: return "WRITE_WITH_IMM";
    case Verb::Send: return "SEND";
    case Verb::Read: return "READ";
    case Verb::Receive: return "RECV";
    case Verb::SendFlush: return "SFLUSH";
    case Verb::SystemCall: return "system call";
  }
  return "?";
}

Slots frame_slots(std::size_t at, std::size_t count, const EndOptions& options) {
  return {at, count, slot_bytes(options)};
}

End::End(const EndOptions& options, std::size_t area_bytes)
    : options_(options),
      staging_{round_up(area_bytes, kCacheLineBytes), options.window,
               slot_bytes(options) + kCacheLineBytes},
      lines_(options.memory.empty() ? staging_.end() / kCacheLineBytes : 0),
      sending_(2 * options.window) {}

Result<void> End::register_memory() {
  if (!options_.memory.empty() && options_.memory.size() < staging_.end()) {
    return Error{ErrorCode::InvalidArgument, fmt::format("{} B of memory for an end that needs {}",
                                                         options_.memory.size(), staging_.end())};
  }
  const std::span<std::byte> all = at(0, staging_.end());
  PERDURE_TRY(memory, options_.device->register_memory(all, fabric::Access::RemoteReadWrite));
  registered_ = std::move(memory);
  return {};
}

fabric::RemoteMemory End::memory() const {
  return {registered_->key(), registered_->base(), staging_.end()};
}

Result<void> End::start(const fabric::RemoteMemory& peer) {
  const fabric::Limits& limits = options_.endpoint->limits();
  if (limits.send_depth < kEndpointOptions.send_depth ||
      limits.receive_depth < kEndpointOptions.receive_depth ||
      limits.transfer_bytes_max < slot_bytes(options_)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the endpoint carries {} requests, {} receives and {} B at a time; "
                             "an RPC design needs {}, {} and {}",
                             limits.send_depth, limits.receive_depth, limits.transfer_bytes_max,
                             kEndpointOptions.send_depth, kEndpointOptions.receive_depth,
                             slot_bytes(options_))};
  }
  peer_ = peer;
  return post_receives();
}

std::span<std::byte> End::at(std::size_t offset, std::size_t length) {
  PERDURE_ASSERT(offset + length <= staging_.end());
  if (!options_.memory.empty()) return options_.memory.subspan(offset, length);
  return {reinterpret_cast<std::byte*>(lines_.data()) + offset, length};
}

std::span<std::byte> End::slot(const Slots& slots, std::uint64_t sequence) {
  return at(slots.offset(sequence), slots.stride);
}

std::span<std::byte> End::staged(std::uint64_t sequence) {
  return at(staging_.offset(sequence), slot_bytes(options_));
}

End::Source End::source(std::uint64_t sequence, std::size_t length) const {
  return {staging_.index(sequence), staging_.offset(sequence), length};
}

End::Source End::word(std::uint64_t sequence, std::uint64_t value) {
  const Source word{staging_.index(sequence) + staging_.count,
                    staging_.offset(sequence) + slot_bytes(options_), sizeof value};
  store(at(word.offset, word.length).data(), value);
  return word;
}

End::Source End::note(std::uint64_t sequence, std::uint32_t tag) {
  static_assert(kFrameHeaderBytes <= kCacheLineBytes);
  const Source note{staging_.index(sequence) + staging_.count,
                    staging_.offset(sequence) + slot_bytes(options_), kFrameHeaderBytes};
  encode_frame(at(note.offset, note.length).data(), sequence, tag, 0);
  return note;
}

bool End::is_sending(std::uint64_t sequence) const {
  return is_frame_sending(sequence) || sending_[staging_.index(sequence) + staging_.count] > 0;
}

bool End::is_frame_sending(std::uint64_t sequence) const {
  return sending_[staging_.index(sequence)] > 0;
}

bool End::peer_has(std::uint64_t offset, std::uint64_t length) const {
  return offset <= peer_.length && length <= peer_.length - offset;
}

Result<void> End::post(std::span<const Transfer> transfers) {
  std::array<fabric::WorkRequest, 2> requests;
  PERDURE_ASSERT(transfers.size() <= requests.size());
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const auto& [from, to] = transfers[i];
    fabric::WorkRequest& request = requests[i];
    request.opcode = to.opcode;
    request.immediate = to.immediate;
    request.context = from.staging;
    request.segment_count = 1;
    request.segments[0] = {at(from.offset, from.length).data(), from.length, registered_.get()};
    request.remote = peer_;
    request.remote_offset = to.offset;
    ++sending_[from.staging];
    switch (to.opcode) {
      case fabric::Opcode::Write: ++counts_[Verb::Write]; break;
      case fabric::Opcode::WriteImm: ++counts_[Verb::WriteImm]; break;
      default: PERDURE_ASSERT(to.opcode == fabric::Opcode::Send); ++counts_[Verb::Send];
    }
  }
  return post_requests(std::span(requests).first(transfers.size()));
}

Result<void> End::post_requests(std::span<const fabric::WorkRequest> requests) {
  PERDURE_TRY(taken, options_.endpoint->post(requests));
  // Of each staging slot a design has at most two requests in the queue, and one READ beside them.
  PERDURE_ASSERT(taken == requests.size());
  return {};
}

Result<void> End::read(std::size_t to, std::size_t from, std::size_t length) {
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::Read;
  request.context = kReadContext;
  request.segment_count = 1;
  request.segments[0] = {at(to, length).data(), length, registered_.get()};
  request.remote = peer_;
  request.remote_offset = from;
  ++counts_[Verb::Read];
  return post_requests({&request, 1});
}

Result<void> End::send_flush() {
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::SendFlush;
  request.context = kReadContext;
  request.remote = peer_;
  ++counts_[Verb::SendFlush];
  return post_requests({&request, 1});
}

Result<void> End::post_receive(std::size_t offset, std::size_t length) {
  return options_.endpoint->post_receive({at(offset, length).data(), length, registered_.get()},
                                         offset);
}

void End::cross_into_kernel() {
  ++counts_[Verb::SystemCall];
  ::syscall(SYS_getppid);  // no result of it is ever kept in user space
}

Result<void> End::received(const fabric::Completion&) {
  return Error{ErrorCode::ProtocolError, "a message came that this RPC design does not have"};
}

Result<void> End::complete(const fabric::Completion& completion) {
  if (completion.error) {
    return Error{*completion.error,
                 fmt::format("a {} of an RPC design failed", fabric::to_string(completion.opcode))};
  }
  if (completion.opcode == fabric::Opcode::Receive) {
    ++counts_[Verb::Receive];
    return received(completion);
  }
  if (completion.context == kReadContext) {
    read_completed();
    return {};
  }
  PERDURE_ASSERT(completion.context < sending_.size());
  PERDURE_ASSERT(sending_[completion.context] > 0);
  --sending_[completion.context];
  return {};
}

Result<void> End::poll() {
  std::array<fabric::Completion, 16> batch;
  const std::size_t count = options_.endpoint->poll(batch);
  for (std::size_t i = 0; i < count; ++i) PERDURE_TRY_VOID(complete(batch[i]));
  if (count == 0 && !options_.endpoint->connected()) {
    return Error{ErrorCode::Disconnected, "the connection of an RPC design was lost"};
  }
  return {};
}

Result<void> Client::begin(std::span<const std::byte> request, const CallOptions& call) {
  if (request.size() > options().payload_bytes_max) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("a request of {} B; at most {}", request.size(), options().payload_bytes_max)};
  }
  if (in_flight() == options().window || is_sending(next_) || !has_room(next_)) {
    return Error{ErrorCode::QueueFull, "as many calls as there is room for are in flight"};
  }
  calls_[next_ % calls_.size()] = call;
  std::byte* frame = staged(next_).data();
  if (!request.empty()) std::memcpy(frame + kFrameHeaderBytes, request.data(), request.size());
  const std::size_t length = encode_frame(frame, next_, request_tag(next_), request.size());
  PERDURE_TRY_VOID(post_request(next_, source(next_, length)));
  ++next_;
  return {};
}

Result<void> Client::pump() {
  PERDURE_TRY_VOID(poll());
  return in_flight() == 0 ? Result<void>{} : advance(oldest_);
}

Result<bool> Client::take(std::vector<std::byte>& reply) {
  if (in_flight() == 0) return false;
  PERDURE_TRY(found, find_reply(oldest_));
  if (!found) return false;
  reply.assign(found->payload.begin(), found->payload.end());
  PERDURE_TRY_VOID(release_reply(oldest_));
  ++oldest_;
  return true;
}

Result<std::size_t> Server::pump() {
  PERDURE_TRY_VOID(poll());
  PERDURE_TRY_VOID(take_arrivals(next_));
  std::size_t executed = 0;
  while (executed < options().window && may_answer(next_)) {
    if (is_lost(next_)) {
      ++lost_;
      ++next_;
      continue;
    }
    PERDURE_TRY(found, find_request(next_));
    if (!found || !handler_.is_ready(next_, found->payload)) break;
    const Frame request = *found;
    const std::span<std::byte> staging = staged(next_);
    const std::span<std::byte> room =
        staging.subspan(kFrameHeaderBytes, options().payload_bytes_max);
    const std::size_t bytes = handler_.handle(request.payload, room);
    PERDURE_ASSERT(bytes <= room.size());
    const std::size_t length = encode_frame(staging.data(), next_, 0, bytes);
    PERDURE_TRY_VOID(release_request(next_));
    PERDURE_TRY_VOID(post_reply(request, source(next_, length)));
    ++next_;
    ++executed;
  }
  return executed;
}

}  // namespace perdure::rpc::models
