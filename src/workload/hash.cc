// hash: an open-chain hash table. Searches for a key; inserts it if absent, removes it if found.
//
// In memory: the heads of the buckets, 8 bytes each, then items of three lines: key and next, and a
// value of 128 bytes.
#include "workload/structure.h"

#include <fmt/format.h>

namespace perdure::workload {
namespace {

constexpr std::uint64_t kHeadBytes = 8;
constexpr std::uint64_t kItemBytes = 192;
constexpr std::uint64_t kLinkBytes = 16;  // key and next, at the start of an item
constexpr std::uint64_t kNextBytes = 8;
constexpr std::uint32_t kNone = ~std::uint32_t{0};

class Hash final : public Structure {
 public:
  Hash(StructureOptions options, Random& random);
  std::unique_ptr<Structure> clone() const override { return std::make_unique<Hash>(*this); }
  std::uint64_t footprint() const override { return items_at_ + items_.size() * kItemBytes; }
  bool live(Range range) const override {
    if (range.address < items_at_) return true;
    return slots_.taken(static_cast<std::uint32_t>((range.address - items_at_) / kItemBytes));
  }
  void transact(std::uint32_t partition, Random& random, Recorder& recorder) override;
  std::string check() const override;

 private:
  struct Item {
    std::uint32_t key = 0;
    std::uint32_t next = kNone;
  };

  std::uint32_t bucket_of(std::uint32_t partition, std::uint32_t key) const {
    const std::uint64_t mixed = (key + 1) * 0x9e3779b97f4a7c15U >> 32;
    return partition * buckets_each_ + static_cast<std::uint32_t>(mixed % buckets_each_);
  }
  Range head(std::uint32_t bucket) const { return {bucket * kHeadBytes, kHeadBytes}; }
  Range link(std::uint32_t item) const { return {items_at_ + item * kItemBytes, kLinkBytes}; }

  std::uint32_t items_each_;
  std::uint32_t buckets_each_;
  std::uint64_t items_at_;
  std::vector<std::uint32_t> heads_;
  std::vector<Item> items_;
  Slots slots_;
};

/// Two items, one of them used, and one bucket.
constexpr std::uint64_t kBytesOfTwo = 2 * kItemBytes + kHeadBytes;

Hash::Hash(StructureOptions options, Random& random)
    : items_each_(
          static_cast<std::uint32_t>(options.footprint / options.partitions / kBytesOfTwo * 2)),
      buckets_each_(items_each_ / 2),
      items_at_((options.partitions * buckets_each_ * kHeadBytes + kLineBytes - 1) / kLineBytes *
                kLineBytes),
      heads_(std::size_t{options.partitions} * buckets_each_, kNone),
      items_(std::size_t{options.partitions} * items_each_),
      slots_(options.partitions, items_each_, random) {
  for (std::uint32_t p = 0; p < options.partitions; ++p) {
    for (std::uint32_t key = 0; key < items_each_; ++key) {
      if (random.chance(1, 2)) continue;
      std::uint32_t& first = heads_[bucket_of(p, key)];
      const std::uint32_t item = slots_.take(p);
      items_[item] = {key, first};
      first = item;
    }
  }
}

void Hash::transact(std::uint32_t partition, Random& random, Recorder& recorder) {
  const auto key = static_cast<std::uint32_t>(random.below(items_each_));
  const std::uint32_t bucket = bucket_of(partition, key);
  recorder.compute(kTransactionInstructions);
  recorder.load(head(bucket));
  Range from = head(bucket);  // what points to `item`
  std::uint32_t* pointer = &heads_[bucket];
  std::uint32_t item = *pointer;
  for (; item != kNone && items_[item].key != key; item = *pointer) {
    recorder.load(link(item));
    recorder.compute(kVisitInstructions);
    from = {link(item).address + kLinkBytes - kNextBytes, kNextBytes};
    pointer = &items_[item].next;
  }
  if (item != kNone) {  // found: its value is read, and it is removed
    recorder.load({link(item).address, kItemBytes});
    recorder.write(from);
    *pointer = items_[item].next;
    slots_.give_back(partition, item);
    return;
  }
  item = slots_.take(partition);
  recorder.create({link(item).address, kItemBytes});
  recorder.write(head(bucket));
  items_[item] = {key, heads_[bucket]};
  heads_[bucket] = item;
}

std::string Hash::check() const {
  std::vector<bool> seen(items_.size());
  for (std::uint32_t bucket = 0; bucket < heads_.size(); ++bucket) {
    for (std::uint32_t item = heads_[bucket]; item != kNone; item = items_[item].next) {
      if (seen[item]) return fmt::format("item {} is in two chains", item);
      seen[item] = true;
      if (bucket_of(item / items_each_, items_[item].key) != bucket) {
        return fmt::format("item {} is in the wrong bucket {}", item, bucket);
      }
    }
  }
  for (std::uint32_t p = 0; p * buckets_each_ < heads_.size(); ++p) {
    std::size_t used = 0;
    for (std::uint32_t i = 0; i < items_each_; ++i) used += seen[p * items_each_ + i] ? 1 : 0;
    if (used + slots_.left(p) != items_each_) return fmt::format("partition {} lost items", p);
  }
  return "";
}

}  // namespace

std::unique_ptr<Structure> make_hash(StructureOptions options, Random& random) {
  return std::make_unique<Hash>(options, random);
}

}  // namespace perdure::workload
