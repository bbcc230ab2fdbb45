// L5, many clients to one server: a WRITE of the data and a WRITE of one byte into a mailbox,
// posted together; the reply by one WRITE.
//
//   client memory   a slot for the reply of each call of the window
//   server memory   a slot for the request of each, then a mailbox of one byte for each
//
// A mailbox is rung by changing its byte. That the data is there when the byte is follows from the
// order of WRITEs, and from nothing else: without it the server finds a mailbox without a message.
#include "rpc/models/design.h"

namespace perdure::rpc::models {
namespace {

constexpr Step kL5Steps[]{
    {At::Client, Verb::Write, "size, request"},
    {At::Client, Verb::Write, "one byte: the mailbox"},
    {At::Server, std::nullopt, "scans mailboxes, runs the handler"},
    {At::Server, Verb::Write, "size, reply, end mark"},
    {At::Client, std::nullopt, "polls for the end mark"},
};

constexpr std::string_view kL5Sources[]{
    "P. Fent, A. van Renen, A. Kipf, V. Leis, T. Neumann, A. Kemper: Low-Latency Communication for "
    "Fast DBMS Using RDMA and Shared Memory. ICDE 2020",
    "its sources, `pfent/L5RDMA`: both WRITEs posted, then both polled; all mailboxes scanned; the "
    "reply one WRITE",
    "*durable RPC*, table 1, figure 2(e)",
};

constexpr std::string_view kL5Departures[]{
    "L5 has one message for each client; each call of a window has a slot and a mailbox of its own "
    "here, as if it were a client.",
    "The client knows the reply by its sequence and a checksum, not by an end mark: inside of one "
    "WRITE the verbs promise no order.",
    "Requests carry the checksum too. It decides nothing, but shows where a mailbox was rung "
    "before "
    "the data was there, which is an error.",
};

struct L5Layout {
  explicit L5Layout(const EndOptions& options) : slots(frame_slots(0, options.window, options)) {}

  std::size_t mailbox(std::uint64_t sequence) const { return slots.end() + slots.index(sequence); }
  /// What the byte is when that call has rung: never what it was, and not what it was at first.
  std::uint8_t rung(std::uint64_t sequence) const {
    return static_cast<std::uint8_t>(1 + sequence / slots.count % 255);
  }

  Slots slots;  // replies in the client's memory, requests in the server's
};

class L5Client final : public Client {
 public:
  explicit L5Client(const EndOptions& options)
      : Client(options, L5Layout(options).slots.end()), layout_(options) {}

 private:
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    if (options().confounders.waits_before_mailbox) {
      return write(frame, layout_.slots.offset(sequence));
    }
    ++rung_;
    const Transfer both[]{{frame, {.offset = layout_.slots.offset(sequence)}},
                          {mailbox_byte(sequence), {.offset = layout_.mailbox(sequence)}}};
    return post(both);
  }
  Result<void> advance(std::uint64_t) override {
    while (rung_ < begun() && !is_sending(rung_ + 1)) {
      ++rung_;
      PERDURE_TRY_VOID(write(mailbox_byte(rung_), layout_.mailbox(rung_)));
    }
    return {};
  }
  Source mailbox_byte(std::uint64_t sequence) {
    Source byte = word(sequence, layout_.rung(sequence));
    byte.length = 1;
    return byte;
  }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    return find_frame(slot(layout_.slots, sequence), sequence);
  }

  const L5Layout layout_;
  std::uint64_t rung_ = 0;  // whose mailbox was rung last
};

class L5Server final : public Server {
 public:
  L5Server(const EndOptions& options, Handler& handler)
      : Server(options, L5Layout(options).slots.end() + kWindowMax, handler), layout_(options) {}

 private:
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    const std::byte byte = at(layout_.mailbox(sequence), 1)[0];
    if (byte != std::byte{layout_.rung(sequence)}) return std::optional<Frame>{};
    std::optional<Frame> frame = find_frame(slot(layout_.slots, sequence), sequence);
    if (!frame) {
      return Error{ErrorCode::ProtocolError,
                   "a mailbox was rung and its request is not there: WRITEs overtook each other"};
    }
    return frame;
  }
  Result<void> post_reply(const Frame& request, const Source& frame) override {
    return write(frame, layout_.slots.offset(request.sequence));
  }

  const L5Layout layout_;
};

}  // namespace

const Design kL5{
    .name = "l5",
    .title = "L5",
    .steps = kL5Steps,
    .sources = kL5Sources,
    .departures = kL5Departures,
    .needs_write_order = true,
    .make_client = [](const EndOptions& options) { return End::open<Client, L5Client>(options); },
    .make_server = [](const EndOptions& options,
                      Handler& handler) { return End::open<Server, L5Server>(options, handler); },
};

}  // namespace perdure::rpc::models
