// The text and its lines.
#include "demo/text.h"

#include "core/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/random.h"

namespace perdure::demo {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::array<std::string_view, 6> kUnits = {"crates", "pallets", "barrels",
                                                    "bags",   "rolls",   "boxes"};
constexpr std::array<std::string_view, 12> kGoods = {
    "coffee",    "copper wire", "olive oil", "printing paper", "tea",   "rope",
    "porcelain", "linen",       "cinnamon",  "window glass",   "steel", "clocks"};
constexpr std::array<std::string_view, 12> kPlaces = {"Antwerp", "Lisbon",   "Trieste",   "Gdansk",
                                                      "Bergen",  "Valencia", "Piraeus",   "Hull",
                                                      "Rouen",   "Genoa",    "Rotterdam", "Riga"};

template <std::size_t kCount>
std::string_view one_of(const std::array<std::string_view, kCount>& words, Random& random) {
  return words[random.below(kCount)];
}

}  // namespace

RecordText::RecordText(std::string text, std::string origin)
    : text_(text.begin(), text.end()), origin_(std::move(origin)) {
  std::string_view rest(text_.data(), text_.size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1);
    lines_.push_back(rest.substr(0, end + 1));
    rest.remove_prefix(end + 1);
  }
}

RecordText RecordText::orders() {
  constexpr std::uint64_t kOrders = 8192;
  Random random(kSeed);
  std::string text;
  for (std::uint64_t number = 1; number <= kOrders; ++number) {
    text += fmt::format("order {}: {} {} of {} from {} to {}", number, 1 + random.below(400),
                        one_of(kUnits, random), one_of(kGoods, random), one_of(kPlaces, random),
                        one_of(kPlaces, random));
    for (std::uint64_t more = random.below(4); more > 0; --more) {
      text += fmt::format(", {} {} of {}", 1 + random.below(40), one_of(kUnits, random),
                          one_of(kGoods, random));
    }
    text += fmt::format("; paid {}.{:02} EUR\n", random.below(100'000), random.below(100));
  }
  return RecordText(std::move(text), "orders of a made-up trading house");
}

Result<RecordText> RecordText::from_directory(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const auto extension = entry.path().extension();
    if (extension == ".txt" || extension == ".md") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const std::string& path : paths) text += read_text(path);
  if (text.empty()) {
    return Error{ErrorCode::NotFound,
                 fmt::format("there is no text in '{}': its .txt and .md files are what would be "
                             "appended",
                             directory)};
  }
  return RecordText(std::move(text), fmt::format("{} files of {}", paths.size(), directory));
}

std::span<const std::byte> RecordText::record(std::uint64_t index) const {
  const std::string_view line = lines_[index % lines_.size()];
  return std::as_bytes(std::span(line.data(), line.size()));
}

std::uint64_t RecordText::bytes(std::uint64_t records) const {
  std::uint64_t rest = 0;
  for (std::uint64_t i = 0; i < records % lines_.size(); ++i) rest += lines_[i].size();
  return records / lines_.size() * text_.size() + rest;
}

}  // namespace perdure::demo
