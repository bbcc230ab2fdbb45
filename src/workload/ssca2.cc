// ssca2: edges added to a large scale-free graph (SSCA 2.2's construction and its neighbourhood
// analysis, cut down to one vertex at a time). Mostly loads.
//
// In memory: vertices with a header of one line (how many edges were added) and the last 32 edges
// of 16 bytes, in a ring.
#include "workload/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace perdure::workload {
namespace {

constexpr std::uint32_t kEdges = 32;
constexpr std::uint64_t kEdgeBytes = 16;
constexpr std::uint64_t kGraphHeaderBytes = 64;
constexpr std::uint64_t kVertexBytes = kGraphHeaderBytes + kEdges * kEdgeBytes;
/// Of R-MAT: how often an edge falls into the first half; SSCA 2.2's a + b = 0.55 + 0.1.
constexpr std::uint64_t kFirstHalfPercent = 65;
constexpr std::uint32_t kNeighboursVisited = 4;

class Ssca2 final : public Structure {
 public:
  Ssca2(StructureOptions options, Random& random)
      : vertices_each_(static_cast<std::uint32_t>(
            std::bit_floor(options.footprint / options.partitions / kVertexBytes))),
        vertices_(std::size_t{options.partitions} * vertices_each_) {
    for (std::uint32_t v = 0; v < vertices_.size(); ++v) {
      for (std::uint32_t& edge : vertices_[v].edges) edge = any_vertex(random);
      vertices_[v].added = kEdges;
    }
  }
  std::unique_ptr<Structure> clone() const override { return std::make_unique<Ssca2>(*this); }
  std::uint64_t footprint() const override { return vertices_.size() * kVertexBytes; }
  bool live(Range /*range*/) const override { return true; }

  void transact(std::uint32_t partition, Random& random, Recorder& recorder) override {
    const std::uint32_t from = partition * vertices_each_ + skewed(random);
    Vertex& vertex = vertices_[from];
    recorder.compute(kTransactionInstructions);
    recorder.load(header(from));
    for (std::uint32_t i = 0; i < kNeighboursVisited; ++i) {
      const auto which = static_cast<std::uint32_t>(random.below(kEdges));
      recorder.load(edge(from, which));
      recorder.load(header(vertex.edges[which]));
      recorder.compute(kVisitInstructions);
    }
    const std::uint32_t slot = vertex.added % kEdges;
    // The oldest edge, which readers can still reach.
    recorder.load(edge(from, slot));
    recorder.write(edge(from, slot));
    recorder.write({header(from).address, 8});
    vertex.edges[slot] = any_vertex(random);
    ++vertex.added;
  }

  std::string check() const override {
    for (std::uint32_t v = 0; v < vertices_.size(); ++v) {
      if (vertices_[v].added < kEdges) return fmt::format("vertex {} lost edges", v);
      for (const std::uint32_t each : vertices_[v].edges) {
        if (each >= vertices_.size()) return fmt::format("vertex {} has an edge to nowhere", v);
      }
    }
    return "";
  }

 private:
  struct Vertex {
    std::uint32_t added = 0;
    std::uint32_t edges[kEdges] = {};
  };

  std::uint32_t any_vertex(Random& random) const {
    const auto partitions = vertices_.size() / vertices_each_;
    return static_cast<std::uint32_t>(random.below(partitions)) * vertices_each_ + skewed(random);
  }
  /// A vertex of a partition, by the halves that R-MAT falls into.
  std::uint32_t skewed(Random& random) const {
    std::uint32_t vertex = 0;
    for (std::uint32_t half = vertices_each_ / 2; half > 0; half /= 2) {
      if (!random.chance(kFirstHalfPercent, 100)) vertex += half;
    }
    return vertex;
  }
  Range header(std::uint32_t vertex) const { return {vertex * kVertexBytes, kGraphHeaderBytes}; }
  Range edge(std::uint32_t vertex, std::uint32_t slot) const {
    return {vertex * kVertexBytes + kGraphHeaderBytes + slot * kEdgeBytes, kEdgeBytes};
  }

  std::uint32_t vertices_each_;
  std::vector<Vertex> vertices_;
};

}  // namespace

std::unique_ptr<Structure> make_ssca2(StructureOptions options, Random& random) {
  return std::make_unique<Ssca2>(options, random);
}

}  // namespace perdure::workload
