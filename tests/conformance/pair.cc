// See pair.h.
#include "pair.h"

#include "core/random.h"
#include "core/try.h"
#include "core/unordered_reads.h"

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <thread>

namespace perdure::conformance {

using fabric::Completion;
using fabric::Opcode;
using fabric::RemoteMemory;
using fabric::Segment;
using fabric::WorkRequest;

Buffer::Buffer(fabric::Device& device, std::size_t size, fabric::Access access) : size_(size) {
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(mapped, MAP_FAILED);
  data_ = static_cast<std::byte*>(mapped);
  auto memory = device.register_memory({data_, size_}, access);
  EXPECT_TRUE(memory.ok()) << memory.error().message;
  memory_ = std::move(memory).value();
}

Buffer::~Buffer() {
  memory_.reset();
  ::munmap(data_, size_);
}

namespace {
/// Eight pattern bytes; cheap enough for tens of megabytes.
std::uint64_t pattern(std::uint64_t seed, std::size_t word) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + word * 0xbf58476d1ce4e5b9u + 1;
  x ^= x >> 29;
  return x * 0x94d049bb133111ebu;
}

/// Calls `with(where, block, bytes)` for one block of the pattern after the other, until it says
/// false: a sanitizer looks at each call of memcpy and memcmp. Whether it never did.
bool for_blocks(std::uint64_t seed, std::size_t length, auto with) {
  std::array<std::uint64_t, 512> block;
  for (std::size_t done = 0; done < length; done += sizeof block) {
    const std::size_t bytes = std::min(sizeof block, length - done);
    for (std::size_t word = 0; word * 8 < bytes; ++word) {
      block[word] = pattern(seed, done / 8 + word);
    }
    if (!with(done, block.data(), bytes)) return false;
  }
  return true;
}
}  // namespace

void Buffer::fill(std::uint64_t seed, std::size_t offset, std::size_t length) {
  for_blocks(seed, length, [&](std::size_t done, const void* block, std::size_t bytes) {
    std::memcpy(data_ + offset + done, block, bytes);
    return true;
  });
}

bool Buffer::holds(std::uint64_t seed, std::size_t offset, std::size_t length) const {
  // Over shared memory both ends may be in this process, with its queues at two addresses: the
  // sanitizer does not see that a release by one is acquired by the other.
  const UnorderedReads unordered;
  return for_blocks(seed, length, [&](std::size_t done, const void* block, std::size_t bytes) {
    return std::memcmp(data_ + offset + done, block, bytes) == 0;
  });
}

void Buffer::clear() { std::memset(data_, 0, size_); }

void Side::poll() {
  std::array<Completion, 32> batch;
  const std::size_t count = endpoint->poll(batch);
  completions.insert(completions.end(), batch.begin(), batch.begin() + std::ptrdiff_t(count));
}

const Completion* Side::find(Opcode opcode, std::uint64_t context) const {
  for (const Completion& completion : completions) {
    if (completion.opcode == opcode && completion.context == context) return &completion;
  }
  return nullptr;
}

std::size_t Side::count(Opcode opcode) const {
  std::size_t found = 0;
  for (const Completion& completion : completions) found += completion.opcode == opcode;
  return found;
}

std::size_t Side::errors() const {
  std::size_t found = 0;
  for (const Completion& completion : completions) found += completion.error.has_value();
  return found;
}

bool Pair::pump(const std::function<bool()>& reached) {
  const Deadline deadline = Deadline::after(kPatience);
  while (!reached()) {
    if (deadline.passed()) return false;
    if (client.endpoint) client.poll();
    if (server.endpoint) server.poll();
  }
  return true;
}

bool Pair::post(std::span<const WorkRequest> requests) {
  bool refused = false;
  const bool reached = pump([&] {
    const auto taken = client.endpoint->post(requests);
    refused = !taken.ok();
    if (!refused) requests = requests.subspan(*taken);
    return refused || requests.empty();
  });
  return reached && !refused;
}

const Completion* Pair::run(std::span<const WorkRequest> requests) {
  if (!post(requests)) return nullptr;
  const WorkRequest& last = requests.back();
  pump([&] { return client.find(last.opcode, last.context) != nullptr; });
  return client.find(last.opcode, last.context);
}

Result<std::unique_ptr<fabric::Endpoint>> connect_to(fabric::Device& client,
                                                     fabric::Listener& listener, Side& server,
                                                     const fabric::EndpointOptions& options,
                                                     fabric::Device* into, fabric::Memory* window) {
  Result<std::unique_ptr<fabric::Endpoint>> connected = Error{};
  std::thread other([&] {
    connected = client.connect(listener.address(), {}, options, Deadline::after(kPatience));
  });
  const auto accept = [&]() -> Result<void> {
    const Deadline deadline = Deadline::after(kPatience);
    PERDURE_TRY(incoming, listener.next(deadline));
    auto accepted = into == nullptr     ? incoming->accept(deadline)
                    : window == nullptr ? incoming->accept_into(*into, deadline)
                                        : incoming->accept_through(*into, *window, deadline);
    if (!accepted.ok()) return accepted.error();
    server.endpoint = std::move(accepted).value();
    return {};
  };
  auto accepted = accept();
  other.join();
  if (!accepted.ok()) return accepted.error();
  return connected;
}

Result<std::unique_ptr<Pair>> connect_pair(const Harness& harness, const PairOptions& options) {
  auto pair = std::make_unique<Pair>();
  PERDURE_TRY(devices, harness.open());
  pair->devices = std::move(devices);
  PERDURE_TRY(listener, pair->devices.server->listen("", options.server));
  pair->listener = std::move(listener);
  PERDURE_TRY(endpoint,
              connect_to(*pair->devices.client, *pair->listener, pair->server, options.client));
  pair->client.endpoint = std::move(endpoint);
  return pair;
}

WorkRequest send(const Segment& segment, std::uint64_t context) {
  WorkRequest request;
  request.opcode = Opcode::Send;
  request.segment_count = 1;
  request.segments[0] = segment;
  request.context = context;
  return request;
}

WorkRequest write(const Segment& segment, const RemoteMemory& remote, std::uint64_t remote_offset,
                  std::uint64_t context) {
  WorkRequest request = send(segment, context);
  request.opcode = Opcode::Write;
  request.remote = remote;
  request.remote_offset = remote_offset;
  return request;
}

WorkRequest write_immediate(const Segment& segment, const RemoteMemory& remote,
                            std::uint64_t remote_offset, std::uint32_t immediate,
                            std::uint64_t context) {
  WorkRequest request = write(segment, remote, remote_offset, context);
  request.opcode = Opcode::WriteImm;
  request.immediate = immediate;
  return request;
}

WorkRequest read(const Segment& segment, const RemoteMemory& remote, std::uint64_t remote_offset,
                 std::uint64_t context) {
  WorkRequest request = write(segment, remote, remote_offset, context);
  request.opcode = Opcode::Read;
  return request;
}

}  // namespace perdure::conformance
