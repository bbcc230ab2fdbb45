// sps: swaps two random entries of a vector; entries of one line.
#include "workload/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace perdure::workload {
namespace {

constexpr std::uint64_t kEntryBytes = 64;

class Sps final : public Structure {
 public:
  explicit Sps(StructureOptions options)
      : entries_each_(
            static_cast<std::uint32_t>(options.footprint / options.partitions / kEntryBytes)),
        entries_(std::size_t{options.partitions} * entries_each_) {
    for (std::uint32_t i = 0; i < entries_.size(); ++i) entries_[i] = i;
  }
  std::unique_ptr<Structure> clone() const override { return std::make_unique<Sps>(*this); }
  std::uint64_t footprint() const override { return entries_.size() * kEntryBytes; }
  bool live(Range /*range*/) const override { return true; }

  void transact(std::uint32_t partition, Random& random, Recorder& recorder) override {
    const std::uint32_t base = partition * entries_each_;
    const auto a = base + static_cast<std::uint32_t>(random.below(entries_each_));
    const auto b = base + static_cast<std::uint32_t>(random.below(entries_each_));
    recorder.compute(kTransactionInstructions);
    for (const std::uint32_t each : {a, b}) recorder.load(entry(each));
    for (const std::uint32_t each : {a, b}) recorder.write(entry(each));
    std::swap(entries_[a], entries_[b]);
  }

  std::string check() const override {
    std::vector<std::uint32_t> sorted = entries_;
    std::sort(sorted.begin(), sorted.end());
    for (std::uint32_t i = 0; i < sorted.size(); ++i) {
      if (sorted[i] != i) return fmt::format("value {} is not there once", i);
      if (entries_[i] / entries_each_ != i / entries_each_) return "a value left its partition";
    }
    return "";
  }

 private:
  Range entry(std::uint32_t index) const { return {index * kEntryBytes, kEntryBytes}; }

  std::uint32_t entries_each_;
  std::vector<std::uint32_t> entries_;
};

}  // namespace

std::unique_ptr<Structure> make_sps(StructureOptions options, Random& /*random*/) {
  return std::make_unique<Sps>(options);
}

}  // namespace perdure::workload
