// The server process and how it is told what to do: fixed-size messages over a pair of sockets.
// Both ends are the same program, so the layout is that of the compiler.
#include "bench/server_process.h"

#include "core/try.h"
#include "fabric/ofi/ofi.h"
#include "fabric/shm/shm.h"
#include "fabric/verbs/verbs.h"
#include "pmem/mapped_region.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

namespace perdure::bench {
namespace {

using Words = std::array<char, 512>;

struct RoleMessage {
  Words path{};
  std::uint64_t exported_bytes = 0;
  PersistenceDomain domain{};
  ReceiveBuffers receive_buffers{};
  std::uint64_t depth = 0;
  std::uint64_t message_bytes_max = 0;
};

struct Answer {
  bool ok = false;
  Words words{};  // the address, or what went wrong
  fabric::RemoteMemory memory;
};

void put(Words& words, const std::string& text) {
  std::memcpy(words.data(), text.data(), std::min(text.size(), words.size() - 1));
}

template <typename Message>
bool send_message(int socket, const Message& message) {
  return ::send(socket, &message, sizeof message, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof message);
}

template <typename Message>
bool receive_message(int socket, Message& message) {
  ssize_t got = 0;
  do {
    got = ::recv(socket, &message, sizeof message, 0);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof message);
}

/// The server's side of one client.
class Service {
 public:
  Service(fabric::Device& device, const RoleMessage& role) : device_(device), role_(role) {
    options_.queue.depth = role.depth;
    options_.queue.message_bytes_max = role.message_bytes_max;
    options_.exported = {0, role.exported_bytes};
    options_.session = kServerSession;
    if (role.receive_buffers == ReceiveBuffers::Pm) {
      options_.persistent_buffers = {role.exported_bytes, options_.queue.persistent_bytes()};
    }
  }

  Result<Answer> prepare() {
    const std::uint64_t bytes = role_.exported_bytes + options_.queue.persistent_bytes();
    PERDURE_TRY(region, pmem::MappedRegion::create(role_.path.data(), bytes, {role_.domain, {}}));
    region_ = std::move(region);
    PERDURE_TRY(memory, device_.register_memory(region_->bytes().first(role_.exported_bytes),
                                                fabric::Access::RemoteReadWrite));
    memory_ = std::move(memory);
    PERDURE_TRY(listener, device_.listen("", {}));
    listener_ = std::move(listener);
    Answer answer;
    answer.ok = true;
    put(answer.words, listener_->address());
    answer.memory = {memory_->key(), memory_->base(), role_.exported_bytes};
    return answer;
  }

  /// Until the client disconnects.
  Result<void> run() {
    PERDURE_TRY(incoming, listener_->next(Deadline::after(kConnectsWithin)));
    PERDURE_TRY(endpoint, incoming->accept(Deadline::after(kConnectsWithin)));
    PERDURE_TRY(responder, persist::Responder::open(*endpoint, device_, *region_, options_));
    while (true) {
      const auto handled = responder->pump();
      if (handled.ok()) continue;
      if (handled.code() != ErrorCode::Disconnected) return handled.error();
      break;
    }
    responder.reset();
    if (options_.persistent_buffers.length == 0) return {};
    PERDURE_TRY_VOID(persist::replay_messages(*region_, options_.exported,
                                              options_.persistent_buffers, options_.queue));
    return {};
  }

 private:
  fabric::Device& device_;
  const RoleMessage& role_;
  persist::Responder::Options options_;
  std::unique_ptr<pmem::MappedRegion> region_;
  std::unique_ptr<fabric::Memory> memory_;
  std::unique_ptr<fabric::Listener> listener_;
};

Answer failed(const Error& error) {
  Answer answer;
  put(answer.words, error.message);
  return answer;
}

/// The life of the process.
int live(RemotelogFabric fabric, int socket) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_IGN);  // the parent's
  auto device = open_measured_device(fabric);
  RoleMessage role;
  while (receive_message(socket, role)) {
    if (!device.ok()) {
      send_message(socket, failed(device.error()));
      continue;
    }
    Service service(**device, role);
    const auto prepared = service.prepare();
    if (!prepared.ok()) {
      send_message(socket, failed(prepared.error()));
      continue;
    }
    send_message(socket, *prepared);
    const auto ran = service.run();
    Answer done;
    done.ok = true;
    send_message(socket, ran.ok() ? done : failed(ran.error()));
  }
  return 0;
}

Result<Answer> receive_answer(int socket) {
  Answer answer;
  if (!receive_message(socket, answer)) {
    return Error{ErrorCode::Disconnected, "the server process has ended"};
  }
  answer.words.back() = '\0';
  if (!answer.ok) return Error{ErrorCode::SystemError, answer.words.data()};
  return answer;
}

}  // namespace

Result<std::unique_ptr<fabric::Device>> open_measured_device(RemotelogFabric fabric) {
  if (fabric == RemotelogFabric::Tcp) return fabric::ofi::open_device();
  if (fabric == RemotelogFabric::Shm) return fabric::shm::open_device();
  if (fabric == RemotelogFabric::Verbs) return fabric::verbs::open_device();
  return Error{ErrorCode::Unsupported,
               fmt::format("there is no device for {} here", to_string(fabric))};
}

Result<ServerProcess> ServerProcess::start(RemotelogFabric fabric) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return Error{ErrorCode::SystemError,
                 fmt::format("socketpair: {}", std::generic_category().message(errno))};
  }
  auto process = test::ChildProcess::fork([&] {
    ::close(sockets[0]);
    return live(fabric, sockets[1]);
  });
  ::close(sockets[1]);
  if (!process.ok()) {
    ::close(sockets[0]);
    return process.error();
  }
  return ServerProcess(std::move(process).value(), sockets[0]);
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept
    : process_(std::move(other.process_)), socket_(std::exchange(other.socket_, -1)) {}

ServerProcess::~ServerProcess() {
  process_.kill();
  if (socket_ >= 0) ::close(socket_);
}

Result<ServerPlace> ServerProcess::serve(const ServerRole& role) {
  RoleMessage message;
  put(message.path, role.path);
  message.exported_bytes = role.exported_bytes;
  message.domain = role.domain;
  message.receive_buffers = role.receive_buffers;
  message.depth = role.queue.depth;
  message.message_bytes_max = role.queue.message_bytes_max;
  if (!send_message(socket_, message)) {
    return Error{ErrorCode::Disconnected, "the server process has ended"};
  }
  PERDURE_TRY(answer, receive_answer(socket_));
  return ServerPlace{answer.words.data(), answer.memory};
}

Result<void> ServerProcess::finish() {
  PERDURE_TRY_VOID(receive_answer(socket_));
  return {};
}

}  // namespace perdure::bench
