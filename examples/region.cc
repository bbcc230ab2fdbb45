// Writes a record and then a tail word to ranges on peers, waits until both are durable, reads
// back.
//   region POOL HOST:PORT [HOST:PORT ...]
#include <perdure/region.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

int fail(const perdure::Error& error) {
  std::fprintf(stderr, "region: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: region POOL HOST:PORT [HOST:PORT ...]\n");
    return 2;
  }
  perdure::RegionOptions options;
  options.pool = argv[1];
  options.peers.assign(argv + 2, argv + argc);
  auto region = perdure::Region::open(options);
  if (!region.ok()) return fail(region.error());
  if (region->status().may_differ) std::printf("the replicas may differ\n");

  // Two epochs: the tail word is nowhere before the record is.
  const std::string record = "a record that survives";
  const std::uint64_t tail = record.size();
  const perdure::RangeWrite body{64, std::as_bytes(std::span(record))};
  const perdure::RangeWrite word{0, std::as_bytes(std::span(&tail, 1))};
  const std::array<perdure::RangeEpoch, 2> epochs = {perdure::RangeEpoch(&body, 1),
                                                     perdure::RangeEpoch(&word, 1)};
  const auto ticket = region->write(epochs);
  if (!ticket.ok()) return fail(ticket.error());
  if (auto done = region->wait(*ticket, perdure::Level::Committed); !done)
    return fail(done.error());

  std::string back(record.size(), ' ');
  if (auto done = region->read(64, std::as_writable_bytes(std::span(back))); !done) {
    return fail(done.error());
  }
  if (auto closed = region->close(); !closed) return fail(closed.error());
  std::printf("%s\n", back.c_str());
  return 0;
}
