// Fuzz target: what a peer of the emulated fabric sends, from the stream to the memory it names.
// Nothing outside of what is exported may be read or written, whatever the bytes say.
//
//   offset  size  meaning of the input
//   0       ...   a stream of frames, see fabric/emu/live_frame.h
//
// So that the input can name memory at all, an operation's key 0 is replaced by the key of the
// exported range, and addresses below its length by what they would be there.
#include "core/assert.h"
#include "fabric/emu/inbound_queue.h"
#include "fabric/emu/live_frame.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace perdure::fabric::emu {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kExportedBytes = 4096;
constexpr std::size_t kReceives = 4;
constexpr std::byte kGuard{0x5a};

/// A machine with one exported range between two guards.
class ExportedMachine {
 public:
  ExportedMachine()
      : bytes_(2 * kGuardBytes + kExportedBytes + kReceives * 64, kGuard),
        exported_(table_.register_memory({bytes_.data() + kGuardBytes, kExportedBytes},
                                         Access::RemoteReadWrite)),
        buffers_(table_.register_memory(
            {bytes_.data() + 2 * kGuardBytes + kExportedBytes, kReceives * 64}, Access::Local)) {
    for (std::size_t i = 0; i < kReceives; ++i) {
      const Segment segment{buffers_->bytes().data() + i * 64, 64, buffers_.get()};
      inbound_.post_receive(*table_.find_local(segment), i);
    }
  }

  /// False: the stream can not go on.
  bool take(Frame frame) {
    if (frame.header.kind != FrameKind::Operation) return true;
    if (frame.header.key == 0) frame.header.key = exported_->key();
    if (frame.header.address <= kExportedBytes) frame.header.address += exported_->base();
    Operation operation = operation_of(std::move(frame));
    if (!inbound_.can_take(operation.opcode)) return false;
    inbound_.take(std::move(operation), random_);
    while (inbound_.posted_ready() || inbound_.non_posted_ready()) {
      if (inbound_.posted_ready()) inbound_.step_posted(random_);
      if (inbound_.non_posted_ready()) inbound_.step_non_posted(random_);
    }
    while (const auto response = inbound_.next_response()) {
      PERDURE_ASSERT(response->data.size() <= kExportedBytes);
    }
    return true;
  }

  bool guards_stand() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto first = bytes_.begin();
    const auto second = first + kGuardBytes + kExportedBytes;
    return std::all_of(first, first + kGuardBytes, is_guard) &&
           std::all_of(second, second + kGuardBytes, is_guard);
  }

 private:
  static RnicBehaviour without_ddio() {
    ServerProfile profile;
    profile.ddio = Ddio::Off;
    return {profile, Transport::InfiniBand, {}};
  }

  Random random_{1};
  RnicCounters counters_;
  MemoryTable table_{1};
  const RnicBehaviour behaviour_ = without_ddio();
  InboundQueue inbound_{table_, behaviour_, counters_};
  std::vector<std::byte> bytes_;
  std::unique_ptr<Memory> exported_;
  std::unique_ptr<Memory> buffers_;
};

void check(const std::uint8_t* data, std::size_t size) {
  // More than the socket holds is not looked at; the reader's own buffer is smaller than that.
  constexpr std::size_t kBytesMax = 100'000;
  std::array<int, 2> ends;
  PERDURE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  const auto written = ::write(ends[0], data, std::min(size, kBytesMax));
  PERDURE_ASSERT(written >= 0);
  ::close(ends[0]);

  ExportedMachine machine;
  FrameReader reader(ends[1]);
  while (true) {
    const auto ready = reader.ready();
    if (!ready.ok()) {
      const bool known =
          ready.code() == ErrorCode::Disconnected || ready.code() == ErrorCode::ProtocolError;
      PERDURE_ASSERT(known);
      break;
    }
    if (!*ready || !machine.take(reader.take())) break;
  }
  if (auto part = reader.take_part()) (void)machine.take(std::move(*part));
  PERDURE_ASSERT(machine.guards_stand());
  ::close(ends[1]);
}

}  // namespace
}  // namespace perdure::fabric::emu

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perdure::fabric::emu::check(data, size);
  return 0;
}
