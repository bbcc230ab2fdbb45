// Draws a SequenceDiagram twice: with characters and with SVG elements.
#include "core/sequence_diagram.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace perdure {
namespace {

constexpr std::size_t kColumnsPerLane = 20;
constexpr int kLanePixels = 190;
constexpr int kRowPixels = 34;
constexpr int kTopPixels = 84;

std::size_t column_of(std::size_t lane) { return kColumnsPerLane / 2 + lane * kColumnsPerLane; }

std::string empty_row(std::size_t lanes) {
  std::string row(lanes * kColumnsPerLane, ' ');
  for (std::size_t lane = 0; lane < lanes; ++lane) row[column_of(lane)] = '|';
  return row;
}

std::string trimmed(std::string row) {
  row.erase(row.find_last_not_of(' ') + 1);
  return row + "\n";
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

int x_of(std::size_t lane) { return kLanePixels / 2 + static_cast<int>(lane) * kLanePixels; }

int title_pixels(const std::string& title) { return static_cast<int>(title.size()) * 8 + 20; }

std::string svg_event(const SequenceEvent& event, int y, std::size_t lanes) {
  const char* color = event.bad ? "#b3261e" : "#1f4e79";
  if (event.from == event.to) {
    // Text stands beside its lane, to the left of the last one so that it stays on the page.
    const bool left = event.from + 1 == lanes && lanes > 1;
    return fmt::format(
        "<circle cx=\"{0}\" cy=\"{1}\" r=\"4\" fill=\"{2}\"/>"
        "<text x=\"{3}\" y=\"{4}\" fill=\"{2}\" text-anchor=\"{5}\">{6}</text>\n",
        x_of(event.from), y, color, x_of(event.from) + (left ? -9 : 9), y + 4,
        left ? "end" : "start", escaped(event.text));
  }
  const bool right = event.to > event.from;
  const int tip = x_of(event.to);
  const int back = right ? tip - 8 : tip + 8;
  return fmt::format(
      "<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"{3}\" stroke-width=\"1.5\"/>"
      "<path d=\"M{2} {1} L{4} {5} L{4} {6} Z\" fill=\"{3}\"/>"
      "<text x=\"{7}\" y=\"{8}\" fill=\"{3}\" text-anchor=\"middle\">{9}</text>\n",
      x_of(event.from), y, tip, color, back, y - 4, y + 4, (x_of(event.from) + tip) / 2, y - 6,
      escaped(event.text));
}

int width_of(const SequenceDiagram& diagram) {
  const std::size_t lanes = diagram.lanes.size();
  // Seven pixels per character is an upper bound for the font and size used.
  int width = std::max(static_cast<int>(lanes) * kLanePixels, title_pixels(diagram.title));
  for (const SequenceEvent& event : diagram.events) {
    if (event.from != event.to || event.from + 1 == lanes) continue;
    width = std::max(width, x_of(event.from) + 30 + static_cast<int>(event.text.size()) * 7);
  }
  return width;
}

int height_of(const SequenceDiagram& diagram) {
  return kTopPixels + static_cast<int>(diagram.events.size()) * kRowPixels + 20;
}

std::string svg_title(const std::string& title, int y) {
  return fmt::format("<text x=\"10\" y=\"{}\" font-size=\"15\" fill=\"#111111\">{}</text>\n", y,
                     escaped(title));
}

/// All of the diagram, from the top of the page.
std::string svg_elements(const SequenceDiagram& diagram) {
  const std::size_t lanes = diagram.lanes.size();
  std::string svg = svg_title(diagram.title, 24);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    svg += fmt::format(
        "<text x=\"{0}\" y=\"52\" text-anchor=\"middle\" font-weight=\"bold\">{1}</text>"
        "<line x1=\"{0}\" y1=\"60\" x2=\"{0}\" y2=\"{2}\" stroke=\"#c0c0c0\"/>\n",
        x_of(lane), escaped(diagram.lanes[lane]), height_of(diagram) - 10);
  }
  int y = kTopPixels;
  for (const SequenceEvent& event : diagram.events) {
    svg += svg_event(event, y, lanes);
    y += kRowPixels;
  }
  return svg;
}

std::string svg_page(int width, int height, const std::string& elements) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
      "{2}</svg>\n",
      width, height, elements);
}

}  // namespace

std::string to_text(const SequenceDiagram& diagram) {
  const std::size_t lanes = diagram.lanes.size();
  std::string text = diagram.title + "\n\n";
  std::string head(lanes * kColumnsPerLane, ' ');
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const std::string name = diagram.lanes[lane].substr(0, kColumnsPerLane - 1);
    head.replace(column_of(lane) - name.size() / 2, name.size(), name);
  }
  text += trimmed(head);
  for (const SequenceEvent& event : diagram.events) {
    std::string row = empty_row(lanes);
    const std::size_t from = column_of(std::min(event.from, event.to));
    const std::size_t to = column_of(std::max(event.from, event.to));
    if (event.from == event.to) {
      row[from] = event.bad ? 'X' : 'o';
    } else {
      for (std::size_t column = from + 1; column < to; ++column) row[column] = '-';
      if (event.to > event.from) row[to - 1] = '>';
      if (event.to < event.from) row[from + 1] = '<';
    }
    text += trimmed(row + "  " + event.text);
  }
  return text;
}

std::string to_svg(const SequenceDiagram& diagram) {
  return svg_page(width_of(diagram), height_of(diagram), svg_elements(diagram));
}

std::string to_text(const std::string& heading, const std::vector<SequenceDiagram>& diagrams) {
  std::string text = heading;
  for (const SequenceDiagram& each : diagrams) text += "\n" + to_text(each);
  return text;
}

std::string to_svg(const std::string& heading, const std::vector<SequenceDiagram>& diagrams) {
  constexpr int kLinePixels = 20;
  std::string elements;
  int width = 0;
  int height = 4;  // so far
  std::istringstream lines(heading);
  for (std::string line; std::getline(lines, line);) {
    height += kLinePixels;
    elements += svg_title(line, height);
    width = std::max(width, title_pixels(line));
  }
  for (const SequenceDiagram& each : diagrams) {
    elements +=
        fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", height, svg_elements(each));
    width = std::max(width, width_of(each));
    height += height_of(each);
  }
  return svg_page(width, height, elements);
}

}  // namespace perdure
