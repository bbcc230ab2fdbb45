// SequenceDiagram: who tells whom what, in order, as text for a terminal and as SVG for a page.
// plan draws methods with it, check draws counterexamples.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace perdure {

struct SequenceEvent {
  std::size_t from = 0;  // lane; from == to: something that happens there
  std::size_t to = 0;
  std::string text;
  bool bad = false;  // drawn in red: what must not happen
};

struct SequenceDiagram {
  std::string title;
  std::vector<std::string> lanes;  // from left to right
  std::vector<SequenceEvent> events;
};

/// At most 100 columns while the lanes and texts allow it; only ASCII.
std::string to_text(const SequenceDiagram& diagram);

/// A complete SVG document, without scripts or references to anything outside it.
std::string to_svg(const SequenceDiagram& diagram);

/// Several, one below the other, under a heading of one or more lines; as SVG one document too.
std::string to_text(const std::string& heading, const std::vector<SequenceDiagram>& diagrams);
std::string to_svg(const std::string& heading, const std::vector<SequenceDiagram>& diagrams);

}  // namespace perdure
