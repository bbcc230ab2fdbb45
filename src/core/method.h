// Method: how one update is made durable, as data. plan chooses it, check proves it, persist runs
// it, sim prices it and `perdure plan` prints it; all of them read this one description.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perdure {

/// Index of one piece of an update: 0 is a, 1 is b, and so on.
using Item = std::uint8_t;
inline constexpr std::size_t kItemsMax = 64;

/// What is written: ordered epochs, each with some items that have no order among themselves.
/// A singleton is {1}; the taxonomy's compound update (a, then b) is {1, 1}.
struct UpdateShape {
  std::vector<std::uint8_t> items_per_epoch{1};

  std::size_t items() const;
  /// The epoch an item belongs to.
  std::size_t epoch_of(Item item) const;
  bool operator==(const UpdateShape&) const = default;
};

UpdateShape singleton();
UpdateShape compound();
/// "singleton", "compound", or for example "epochs 1+2+1".
std::string to_string(const UpdateShape& shape);

/// The verbs a requester can post. Write, WriteImm, Send and WritePersist are posted operations in
/// the sense of the InfiniBand ordering rules; Read, Flush, WriteAtomic and SendFlush are
/// non-posted. Two that no RNIC has, and the emulated one has where its machine says so:
///   - WritePersist (PWRITE) is the rdma_pwrite of the BROI paper, V: what it writes becomes
///     durable after all that earlier ones of the connection wrote, and its completion is the
///     persist ACK;
///   - SendFlush (SFLUSH) is the SFlush of the durable RPC paper, 4.1.1: the responder's RNIC looks
///     up where the SEND before it has gone, and makes that receive buffer durable, and what it
///     names that was written, whatever DDIO does.
/// WritePolled is a WRITE of a message to a place that the responder's processor polls. It takes no
/// receive buffer, and nothing comes with it but its mark, the last bytes of it: what is visible of
/// the rest when the mark is, the fabric's order says.
enum class Verb {
  Write,
  WriteImm,
  Send,
  Read,
  Flush,
  WriteAtomic,
  WritePersist,
  SendFlush,
  WritePolled,
};
inline constexpr std::array kVerbs = {Verb::Write,        Verb::WriteImm,  Verb::Send,
                                      Verb::Read,         Verb::Flush,     Verb::WriteAtomic,
                                      Verb::WritePersist, Verb::SendFlush, Verb::WritePolled};

std::string_view to_string(Verb verb);

/// Whether it may be overtaken by nothing that is posted later, and completes on arrival, but for
/// WritePersist.
constexpr bool is_posted(Verb verb) {
  return verb == Verb::Write || verb == Verb::WriteImm || verb == Verb::Send ||
         verb == Verb::WritePersist || verb == Verb::WritePolled;
}

/// Whether it brings the bytes of its items; the others name them.
constexpr bool brings_items(Verb verb) { return is_posted(verb) || verb == Verb::WriteAtomic; }

/// Whether it brings them in a message, which may carry addresses, too.
constexpr bool sends_items(Verb verb) { return verb == Verb::Send || verb == Verb::WritePolled; }

/// Whether it brings them to their places.
constexpr bool writes_items(Verb verb) { return brings_items(verb) && !sends_items(verb); }

/// One thing the requester does. Steps run in order; a Wait holds back all that follows.
struct RequesterStep {
  enum class Kind {
    Post,            // post `verb`
    WaitCompletion,  // wait for the completion of requester[of]
    WaitAck,         // wait for the next acknowledgement the responder sends
  };
  Kind kind = Kind::Post;
  Verb verb = Verb::Write;  // Post only
  std::vector<Item> items;  // Post: the items it carries (Send, Write) or covers (Read, flushes)
  std::vector<Item> flush;  // Post of a message: items whose addresses it carries, to be flushed
  /// Post of a message: items of which it says where the requester has them, to be READ there.
  std::vector<Item> readable;
  bool replay = false;  // Post of Send: recovery may apply the message from its PM buffer
  /// Post of WritePolled: the responder acts when the checksum of all of it holds, else on its
  /// mark.
  bool checked = false;
  bool fenced = false;  // Post: held back until all earlier non-posted operations complete
  std::size_t of = 0;   // WaitCompletion: index of the posting step
  bool operator==(const RequesterStep&) const = default;
};

/// Whether the responder may react to it.
inline bool is_message(const RequesterStep& step) {
  return step.kind == RequesterStep::Kind::Post &&
         (sends_items(step.verb) || step.verb == Verb::WriteImm);
}

/// Whether it takes a receive buffer of the responder.
inline bool takes_receive_buffer(const RequesterStep& step) {
  return is_message(step) && step.verb != Verb::WritePolled;
}

/// One thing the responder's CPU does when it gets a receive completion, or finds a message by
/// polling.
struct ResponderAction {
  enum class Kind {
    Copy,   // from the receive buffer to the item's place: visible at once, in program order
    Read,   // post a READ of the item in the requester's memory, into its place
    Await,  // wait for the completion of that READ: all of the item is visible
    Flush,  // make the item durable by what the medium needs (cache line flush, msync); waits for
            // it
    Ack,    // acknowledge
  };
  Kind kind = Kind::Ack;
  Item item = 0;         // all but Ack
  bool written = false;  // Ack: by a WRITE to where the requester polls, not by a SEND
  bool operator==(const ResponderAction&) const = default;
};

struct Method {
  std::string name;  // unique, lower-case, words joined by '-', for example "write-flush"
  Primary primary = Primary::Write;
  UpdateShape shape;
  std::vector<RequesterStep> requester;
  /// responder[k] is what the responder does on the k-th message of one update. Empty: one-sided.
  std::vector<std::vector<ResponderAction>> responder;
  bool later_any_size = true;  // false: items after the first epoch are at most 8 bytes, aligned

  bool operator==(const Method&) const = default;
};

/// Waits of the requester, one round trip each.
std::size_t round_trips(const Method& method);

/// Whether the responder's CPU takes part.
bool two_sided(const Method& method);

/// Whether the responder answers a message with this reaction.
bool acknowledges(const std::vector<ResponderAction>& reaction);

/// Whether the responder READs an item where the requester has it.
bool fetches(const Method& method);

/// Whether the responder writes its acknowledgements to where the requester polls.
bool writes_acks(const Method& method);

/// Whether some message is replayed from its receive buffer by recovery.
bool replays(const Method& method);

/// The item whose last byte a READ or the range a FLUSH names: the last one it covers, or, where
/// the method names none, the last one written before it.
Item covered_item(const Method& method, std::size_t flush);

/// Those of the items named by a flush that were written before it.
std::vector<Item> written_items(const Method& method, std::size_t flush);

/// Whether only a flush of receive buffers will do: it says that a message before it survives in
/// its own, and names nothing written, inside of which a READ could push that out.
bool speaks_for_messages(const Method& method, std::size_t flush);

/// Whether one of its flushes does.
bool rests_on_flushed_messages(const Method& method);

/// Whether there is a FLUSH, and it leaves what is in a receive buffer on its way: to visibility it
/// says nothing of the memory controllers (InfiniBand Specification A19.4.1).
constexpr bool flushes_no_messages(const ServerProfile& server) {
  return server.domain == PersistenceDomain::Dmp && server.capabilities.native_flush &&
         !server.capabilities.persistent_flush;
}

/// Whether the responder answers a WRITE_WITH_IMM: only the immediate says then what was written.
bool acts_on_immediate(const Method& method);

/// Whether a responder flushes what WRITEs brought when it is asked to. Not where they leave the
/// pages of a file clean: a sync of those writes nothing and succeeds, so it refuses (persist).
constexpr bool flushes_writes(const ServerProfile& server) {
  return server.domain != PersistenceDomain::Page || syncs_peer_writes(server);
}

/// Whether the responder is asked to flush anything that the same message does not bring for it to
/// copy first. An immediate that it answers asks for a flush at any level: it has no other meaning
/// (persist/wire.h).
bool asks_to_flush_writes(const Method& method);

/// Why `server` refuses what the method asks for, or its RNIC promises less than that, right or
/// not; empty: neither. Plan offers no such method, check calls none right, persist compiles none.
std::string_view why_refused(const Method& method, const ServerProfile& server);
inline bool is_refused(const Method& method, const ServerProfile& server) {
  return !why_refused(method, server).empty();
}

/// What is malformed in the description (an index out of range, an item never written, a wait for
/// a step that posts nothing), or nothing. Errors: InvalidArgument with the step named.
Result<void> validate(const Method& method);

/// One step in a person's words: "WRITE a", "SEND b (+flush a)", "wait for the ack".
std::string describe(const RequesterStep& step);
std::string describe(const ResponderAction& action);
/// 'a', 'b', ... 'z', then "i26" and so on.
std::string item_name(Item item);

}  // namespace perdure
