// Stores a record and then a tail word into its own memory, makes both durable on peers in that
// order, and reads the record back from a replica.
//   mirror POOL HOST:PORT [HOST:PORT ...]
#include <perdure/mirror.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

int fail(const perdure::Error& error) {
  std::fprintf(stderr, "mirror: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: mirror POOL HOST:PORT [HOST:PORT ...]\n");
    return 2;
  }
  const std::string record = "a record that survives";
  const std::uint64_t tail = record.size();
  std::vector<std::byte> memory(64 * 1024);  // outlives the mirror
  std::memcpy(memory.data() + 64, record.data(), record.size());
  std::memcpy(memory.data(), &tail, sizeof tail);

  perdure::MirrorOptions options;
  options.pool = argv[1];
  options.peers.assign(argv + 2, argv + argc);
  auto mirror = perdure::Mirror::open(perdure::MirrorMemory::bytes(memory), options);
  if (!mirror.ok()) return fail(mirror.error());

  // Two epochs in one message: the tail word is nowhere before the record is.
  const perdure::MirrorRange body{64, record.size()};
  const perdure::MirrorRange word{0, sizeof tail};
  const std::array<perdure::MirrorEpoch, 2> epochs = {perdure::MirrorEpoch(&body, 1),
                                                      perdure::MirrorEpoch(&word, 1)};
  if (auto done = mirror->persist_ordered(epochs); !done) return fail(done.error());

  std::string back(record.size(), ' ');
  if (auto done = mirror->read(64, std::as_writable_bytes(std::span(back))); !done) {
    return fail(done.error());
  }
  if (auto closed = mirror->close(); !closed) return fail(closed.error());
  std::printf("%s\n", back.c_str());
  return 0;
}
