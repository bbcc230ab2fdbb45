// One update by one method, played step by step on the emulated fabric straight from the method's
// description, until the power fails; then recovery, and what of the promises is broken.
#pragma once

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/method.h"
#include "fabric/emu/world.h"
#include "persist/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perdure::crash {

using fabric::Completion;
using fabric::Opcode;
using fabric::Segment;
using fabric::WorkRequest;

inline constexpr std::uint64_t kItemStride = 4096;  // each in a page of its own
inline constexpr std::uint64_t kItemBytes = 200;    // four lines, the last one in part
inline constexpr std::uint64_t kSmallBytes = 8;
inline constexpr std::uint64_t kBuffersAt = 32 * 1024;
inline constexpr std::uint64_t kMailboxAt = 48 * 1024;  // in DRAM, of slots like the buffers
inline constexpr std::uint64_t kBufferBytes = 2048;
inline constexpr std::size_t kBuffers = 8;
inline constexpr std::uint64_t kAckWordsAt = 56 * 1024;  // in the requester: acks that are written
inline constexpr std::uint64_t kAckWordAt = 24 * 1024;   // in DRAM: what is written there
inline constexpr std::uint64_t kFetchContext = 1 << 16;
inline constexpr std::uint64_t kIdlePollsMax = 20;  // then nothing more happens by itself
inline constexpr std::uint64_t kEventsAfterResetMax = 10'000;

/// What a message says of itself, so that recovery can tell a whole one from a torn one.
struct MessageHead {
  std::uint32_t crc = 0;  // of all that follows
  std::uint32_t replay = 0;
  std::uint64_t items = 0;
  std::uint64_t addresses = 0;  // one bit for each item that is to be flushed
  std::uint64_t readable = 0;   // the same for items that the responder finds in the requester
  std::uint64_t bytes = 0;      // of the whole message
};

/// What the server's RNIC does beside the verbs, how long items are, and messages that recovery
/// looks for at least.
struct PlayedRnic {
  fabric::emu::RnicSwitches switches{};
  std::uint64_t item_bytes = kItemBytes;
  std::uint64_t replayable_bytes_min = persist::kReplayableBytesMin;
};

/// One update by one method, on a world of its own.
class PlayedMethod {
 public:
  PlayedMethod(std::uint64_t seed, const ServerProfile& profile, const Method& method,
               const PlayedRnic& rnic = {})
      : random_(seed),
        world_(random_),
        method_(method),
        rnic_(rnic),
        client_(world_.add_machine("client", profile)),
        server_(world_.add_machine("server", profile, rnic.switches)),
        region_(server_.add_region(64 * 1024)),
        source_(64 * 1024),
        dram_(64 * 1024) {
    std::tie(end_, server_end_) = world_.connect(client_, server_);
    pool_ = *server_.register_memory(region_.bytes(), fabric::Access::RemoteReadWrite);
    own_dram_ = *server_.register_memory(dram_, fabric::Access::Local);
    mailbox_ = *server_.register_memory(std::span(dram_).subspan(kMailboxAt),
                                        fabric::Access::RemoteReadWrite);
    local_ = *client_.register_memory(source_, fabric::Access::RemoteReadWrite);
    const bool pm = profile.receive_buffers == ReceiveBuffers::Pm;
    for (std::size_t i = 0; i < kBuffers; ++i) {
      std::byte* const at = (pm ? region_.bytes().data() : dram_.data()) + kBuffersAt;
      buffers_.push_back({at + i * kBufferBytes, kBufferBytes, pm ? pool_.get() : own_dram_.get()});
      EXPECT_TRUE(server_end_->post_receive(buffers_.back(), i).ok());
      const Segment answer{source_.data() + 60 * 1024 + i * 8, 8, local_.get()};
      EXPECT_TRUE(end_->post_receive(answer, 0).ok());
    }
    server_.add_actor([this] { return respond(); });
  }

  /// Plays until the acknowledgement, or the power has failed after `cut_after` events
  /// (0: not before that). Then the power fails in any case, and recovery runs.
  void play(std::uint64_t cut_after) {
    if (cut_after > 0) world_.cut_after(server_, cut_after);
    acknowledged_ = request();
    events_ = world_.events();
    if (server_.powered()) server_.power_cut();
    server_.power_on();
    recover();
  }

  /// The same, but the server's RNIC is reset after so many events; its processor goes on with what
  /// it has of messages, and power fails only then.
  void play_with_reset(std::uint64_t reset_after) {
    world_.after(reset_after, [this] { server_.reset_rnic(); });
    acknowledged_ = request();
    for (std::uint64_t event = 0; event < kEventsAfterResetMax && world_.step(); ++event) {
    }
    server_.power_cut();
    server_.power_on();
    recover();
  }

  std::uint64_t events() const { return events_; }
  bool acknowledged() const { return acknowledged_; }

  /// What of the two promises is broken, if any.
  std::optional<std::string> broken_promise() {
    const std::size_t items = method_.shape.items();
    for (Item later = 0; later < items; ++later) {
      if (acknowledged_ && !holds(later))
        return "acknowledged, but " + item_name(later) + " is lost";
      for (Item earlier = 0; earlier < items; ++earlier) {
        if (method_.shape.epoch_of(earlier) >= method_.shape.epoch_of(later)) continue;
        if (holds(later) && !holds(earlier)) {
          return item_name(later) + " without " + item_name(earlier);
        }
      }
    }
    return std::nullopt;
  }

 private:
  std::uint64_t length_of(Item item) const {
    const bool small = !method_.later_any_size && method_.shape.epoch_of(item) > 0;
    return small ? kSmallBytes : rnic_.item_bytes;
  }
  static std::uint64_t place_of(Item item) { return item * kItemStride; }
  static std::byte value_of(Item item) { return static_cast<std::byte>(item + 1); }

  bool holds(Item item) {
    const auto bytes = region_.bytes().subspan(place_of(item), length_of(item));
    return std::ranges::all_of(bytes, [&](std::byte b) { return b == value_of(item); });
  }

  // The requester.

  Segment staged(std::uint64_t length) {
    const Segment segment{source_.data() + staged_, length, local_.get()};
    staged_ += round_up(length, 64);
    return segment;
  }

  Segment staged_item(Item item) {
    const Segment segment = staged(length_of(item));
    std::memset(segment.data, static_cast<int>(value_of(item)), segment.length);
    return segment;
  }

  Segment staged_message(const RequesterStep& step) {
    for (Item item : step.readable) offered_[item] = staged_item(item);
    std::uint64_t bytes = sizeof(MessageHead);
    for (Item item : step.items) bytes += sizeof item + length_of(item);
    if (step.replay) bytes = std::max(bytes, rnic_.replayable_bytes_min);
    if (step.verb == Verb::WritePolled) bytes += sizeof(std::uint64_t);
    const Segment segment = staged(bytes);
    std::byte* to = segment.data + sizeof(MessageHead);
    for (Item item : step.items) {
      store(to++, item);
      std::memset(to, static_cast<int>(value_of(item)), length_of(item));
      to += length_of(item);
    }
    MessageHead head{0, step.replay ? 1u : 0u, step.items.size(), 0, 0, bytes};
    for (Item item : step.flush) head.addresses |= std::uint64_t{1} << item;
    for (Item item : step.readable) head.readable |= std::uint64_t{1} << item;
    store(segment.data, head);
    if (step.verb == Verb::WritePolled) store(segment.data + bytes - sizeof bytes, bytes);
    head.crc = crc32c({segment.data + 4, bytes - 4});
    store(segment.data, head);
    return segment;
  }

  WorkRequest request_for(const RequesterStep& step, Item item) {
    WorkRequest work;
    work.remote = {pool_->key(), pool_->base(), region_.bytes().size()};
    work.remote_offset = place_of(item);
    work.fenced = step.fenced;
    work.segment_count = 1;
    switch (step.verb) {
      case Verb::Write:
      case Verb::WriteImm:
      case Verb::WritePersist:
        work.opcode = opcode_of(step.verb);
        work.segments[0] = staged_item(item);
        work.immediate = item;
        break;
      case Verb::Read:
        work.opcode = Opcode::Read;
        work.segments[0] = staged(1);
        break;
      case Verb::Flush:
        work.opcode = Opcode::Flush;
        work.segment_count = 0;
        work.flush_length = length_of(item);
        break;
      case Verb::WriteAtomic:
        work.opcode = Opcode::AtomicWrite;
        work.segment_count = 0;
        std::memset(&work.operand, static_cast<int>(value_of(item)), sizeof work.operand);
        break;
      case Verb::SendFlush:
        work.opcode = Opcode::SendFlush;
        work.segment_count = 0;
        work.flush_length = (written_ >> item & 1) != 0 ? length_of(item) : 0;
        break;
      case Verb::Send:
      case Verb::WritePolled: ADD_FAILURE(); break;
    }
    return work;
  }

  static Opcode opcode_of(Verb verb) {
    if (verb == Verb::WritePersist) return Opcode::WritePersist;
    return verb == Verb::Write ? Opcode::Write : Opcode::WriteImm;
  }

  /// Its last bytes, the mark, are where its slot ends: the responder knows where to look.
  void address_to_mailbox(WorkRequest& message) const {
    message.opcode = Opcode::Write;
    message.remote = {mailbox_->key(), mailbox_->base(), mailbox_->bytes().size()};
    message.remote_offset = (messages_posted_ + 1) * kBufferBytes - message.segments[0].length;
  }

  bool post(const RequesterStep& step, std::size_t index) {
    std::vector<WorkRequest> work;
    if (sends_items(step.verb)) {
      WorkRequest message;
      message.fenced = step.fenced;
      message.segments[0] = staged_message(step);
      message.segment_count = 1;
      if (step.verb == Verb::WritePolled) address_to_mailbox(message);
      work.push_back(message);
    } else {
      for (Item item : step.items) work.push_back(request_for(step, item));
    }
    if (writes_items(step.verb)) {
      for (Item item : step.items) written_ |= std::uint64_t{1} << item;
    }
    messages_posted_ += is_message(step) ? 1 : 0;
    for (WorkRequest& each : work) each.context = index;
    pending_[index] = work.size();
    const auto taken = end_->post(work);
    return taken.ok() && *taken == work.size();
  }

  /// Whether the requester got to the end: it has been acknowledged.
  bool request() {
    std::size_t acks_awaited = 0;
    for (std::size_t i = 0; i < method_.requester.size(); ++i) {
      const RequesterStep& step = method_.requester[i];
      if (step.kind == RequesterStep::Kind::Post) {
        if (!post(step, i)) return false;
        continue;
      }
      const bool for_ack = step.kind == RequesterStep::Kind::WaitAck;
      if (for_ack) ++acks_awaited;
      std::uint64_t last_event = world_.events();
      std::uint64_t idle_polls = 0;
      const auto reached = [&] { return for_ack ? acks_ >= acks_awaited : pending_[step.of] == 0; };
      while (!reached()) {
        Completion completion;
        acks_ += take_written_ack();
        // Who polls memory looks more often than a poll of completions comes back.
        if (writes_acks(method_) && world_.step() && !random_.chance(1, 8)) continue;
        idle_polls = world_.events() == last_event ? idle_polls + 1 : 0;
        last_event = world_.events();
        if (idle_polls == kIdlePollsMax || !end_->connected()) return false;
        if (end_->poll({&completion, 1}) == 0) continue;
        if (completion.error) return false;
        if (completion.opcode == Opcode::Receive) {
          ++acks_;
        } else {
          --pending_[completion.context];
        }
      }
    }
    return true;
  }

  // The responder's CPU: one action, or one line of a copy, at a time.

  bool respond() {
    if (actions_.empty() && next_is_polled()) {
      std::byte* const message = find_in_mailbox();
      if (message == nullptr) return false;
      begin_reaction(message);
      readable_ |= load<MessageHead>(message).readable;
      addresses_ |= addresses_in(message);
      ++received_;
      return true;
    }
    if (actions_.empty()) {
      Completion completion;
      if (!next_completion(completion)) return false;
      if (completion.opcode != Opcode::Receive || completion.error) {
        note(completion);
        return true;
      }
      begin_reaction(buffers_[completion.context].data);
      if (!completion.has_immediate) readable_ |= load<MessageHead>(buffer_).readable;
      // What a message before this one has named is still known.
      addresses_ |= completion.has_immediate ? std::uint64_t{1} << completion.immediate
                                             : addresses_in(buffer_);
      ++received_;
      return true;
    }
    const ResponderAction action = actions_.front();
    if (action.kind == ResponderAction::Kind::Copy && !copy_line(action.item)) return true;
    const bool known = (addresses_ >> action.item & 1) != 0;
    if (action.kind == ResponderAction::Kind::Read && (readable_ >> action.item & 1) != 0 &&
        !fetch(action.item)) {
      return false;
    }
    if (action.kind == ResponderAction::Kind::Await && !fetched(action.item)) return false;
    if (action.kind == ResponderAction::Kind::Flush && known &&
        !region_.flush(place_of(action.item), length_of(action.item)).ok()) {
      return false;
    }
    if (action.kind == ResponderAction::Kind::Ack) {
      const WorkRequest answer = acknowledgement(action);
      if (!server_end_->post({&answer, 1}).ok()) return false;
    }
    actions_.erase(actions_.begin());
    if (actions_.empty() && reacts_) release_buffer();
    return true;
  }

  /// READs the item from where the requester has it. Its context says which.
  bool fetch(Item item) {
    const Segment& there = offered_.at(item);
    WorkRequest read;
    read.opcode = Opcode::Read;
    read.context = kFetchContext | item;
    read.remote = {local_->key(), local_->base(), source_.size()};
    read.remote_offset = static_cast<std::uint64_t>(there.data - source_.data());
    read.segments[0] = {region_.bytes().data() + place_of(item), there.length, pool_.get()};
    read.segment_count = 1;
    return server_end_->post({&read, 1}).ok();
  }

  /// Whether the completion of that READ has come.
  bool fetched(Item item) {
    Completion completion;
    while ((fetched_ >> item & 1) == 0 && server_end_->poll({&completion, 1}) != 0) {
      note(completion);
    }
    return (fetched_ >> item & 1) != 0;
  }

  void note(const Completion& completion) {
    if (completion.error) return;
    if (completion.opcode == Opcode::Read)
      fetched_ |= std::uint64_t{1} << (completion.context & 63);
    if (completion.opcode == Opcode::Receive) received_early_.push_back(completion);
  }

  bool next_completion(Completion& completion) {
    if (!received_early_.empty()) {
      completion = received_early_.front();
      received_early_.erase(received_early_.begin());
      return true;
    }
    return server_end_->poll({&completion, 1}) != 0;
  }

  WorkRequest acknowledgement(const ResponderAction& action) {
    WorkRequest answer;
    answer.segments[0] = {dram_.data(), 8, own_dram_.get()};
    answer.segment_count = 1;
    if (!action.written) return answer;
    // The requester finds that the word which is written there is not zero any more.
    answer.opcode = Opcode::Write;
    store(dram_.data() + kAckWordAt, std::uint64_t{1});
    answer.segments[0].data = dram_.data() + kAckWordAt;
    answer.remote = {local_->key(), local_->base(), source_.size()};
    answer.remote_offset = kAckWordsAt + 8 * acks_written_++;
    return answer;
  }

  std::size_t take_written_ack() {
    std::byte* const next = source_.data() + kAckWordsAt + 8 * written_acks_taken_;
    if (load<std::uint64_t>(next) == 0) return 0;
    ++written_acks_taken_;
    return 1;
  }

  void begin_reaction(std::byte* message) {
    buffer_ = message;
    if (received_ >= method_.responder.size()) return;
    actions_.assign(method_.responder[received_].begin(), method_.responder[received_].end());
    reacts_ = !actions_.empty();
  }

  const RequesterStep* next_message() const {
    std::size_t messages = 0;
    for (const RequesterStep& step : method_.requester) {
      if (is_message(step) && messages++ == received_) return &step;
    }
    return nullptr;
  }

  bool next_is_polled() const {
    const RequesterStep* step = next_message();
    return step != nullptr && step->verb == Verb::WritePolled;
  }

  /// The next message, if its mark is there and, where it is checked, all of it.
  std::byte* find_in_mailbox() {
    std::byte* const end = dram_.data() + kMailboxAt + (received_ + 1) * kBufferBytes;
    const auto bytes = load<std::uint64_t>(end - sizeof(std::uint64_t));
    if (bytes < sizeof(MessageHead) || bytes > kBufferBytes) return nullptr;
    std::byte* const message = end - bytes;
    if (!next_message()->checked) return message;
    const bool whole = crc32c({message + 4, bytes - 4}) == load<MessageHead>(message).crc;
    return whole ? message : nullptr;
  }

  /// The items that a message carries or names: all that the responder can find in the pool.
  std::uint64_t addresses_in(const std::byte* message) const {
    const auto head = load<MessageHead>(message);
    std::uint64_t found = head.addresses | head.readable;
    for (Item item = 0; item < method_.shape.items(); ++item) {
      if (find_in_message(message, item) != nullptr) found |= std::uint64_t{1} << item;
    }
    return found;
  }

  /// True when the item has been copied whole.
  bool copy_line(Item item) {
    const std::byte* from = find_in_message(buffer_, item);
    if (from == nullptr) return true;  // it is not in this message: nothing to copy
    const std::uint64_t left = length_of(item) - copied_;
    const std::uint64_t length = std::min<std::uint64_t>(left, kCacheLineBytes);
    std::memcpy(region_.bytes().data() + place_of(item) + copied_, from + copied_, length);
    copied_ = left == length ? 0 : copied_ + length;
    return copied_ == 0;
  }

  const std::byte* find_in_message(const std::byte* message, Item wanted) const {
    const auto head = load<MessageHead>(message);
    const std::byte* at = message + sizeof head;
    for (std::uint64_t i = 0; i < head.items; ++i) {
      const Item item = load<Item>(at++);
      if (item == wanted) return at;
      at += length_of(item);
    }
    return nullptr;
  }

  /// Another message may be in the buffer from now on, and may be durable already.
  void release_buffer() {
    const bool polled =
        buffer_ >= dram_.data() + kMailboxAt && buffer_ < dram_.data() + dram_.size();
    if (polled) return;  // a slot is used once
    std::memset(buffer_, 0, kBufferBytes);
    const auto pool = region_.bytes();
    if (buffer_ < pool.data() || buffer_ >= pool.data() + pool.size()) return;
    if (!random_.chance(1, 2)) return;
    region_.drain({static_cast<std::uint64_t>(buffer_ - pool.data()), kBufferBytes});
  }

  // Recovery.

  void recover() {
    for (const Segment& buffer : buffers_) {
      if (buffer.memory != pool_.get()) continue;
      const auto head = load<MessageHead>(buffer.data);
      if (head.replay == 0 || head.bytes <= sizeof head || head.bytes > kBufferBytes) continue;
      if (crc32c({buffer.data + 4, head.bytes - 4}) != head.crc) continue;
      const std::byte* at = buffer.data + sizeof head;
      for (std::uint64_t i = 0; i < head.items; ++i) {
        const Item item = load<Item>(at++);
        std::memcpy(region_.bytes().data() + place_of(item), at, length_of(item));
        at += length_of(item);
      }
    }
  }

  Random random_;
  fabric::emu::World world_;
  const Method& method_;
  const PlayedRnic rnic_;
  fabric::emu::Machine& client_;
  fabric::emu::Machine& server_;
  pmem::CrashableRegion& region_;
  std::vector<std::byte> source_;
  std::vector<std::byte> dram_;
  std::unique_ptr<fabric::Memory> pool_;
  std::unique_ptr<fabric::Memory> own_dram_;
  std::unique_ptr<fabric::Memory> mailbox_;
  std::unique_ptr<fabric::Memory> local_;
  std::vector<Segment> buffers_;
  std::unique_ptr<fabric::Endpoint> end_;
  std::unique_ptr<fabric::Endpoint> server_end_;
  std::uint64_t staged_ = 0;
  std::uint64_t written_ = 0;                     // items that were posted to their places
  std::map<std::uint64_t, std::size_t> pending_;  // requests of a step without completion
  std::size_t acks_ = 0;
  std::size_t received_ = 0;
  std::size_t messages_posted_ = 0;
  std::vector<ResponderAction> actions_;
  bool reacts_ = false;
  std::byte* buffer_ = nullptr;
  std::uint64_t addresses_ = 0;
  std::uint64_t readable_ = 0;
  std::uint64_t fetched_ = 0;               // items whose READ has completed
  std::vector<Completion> received_early_;  // while a READ was waited for
  std::map<Item, Segment> offered_;         // where the requester has what is to be READ
  std::size_t acks_written_ = 0;
  std::size_t written_acks_taken_ = 0;
  std::uint64_t copied_ = 0;
  std::uint64_t events_ = 0;
  bool acknowledged_ = false;
};

}  // namespace perdure::crash
