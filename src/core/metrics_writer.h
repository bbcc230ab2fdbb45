// MetricsWriter: numbers in the text format of Prometheus, version 0.0.4.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace perdure {

class MetricsWriter {
 public:
  /// Before the values of a name.
  void head(std::string_view name, std::string_view help, std::string_view type) {
    fmt::format_to(out(), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  /// `labels`: name="value", with commas between, or nothing. Values of labels are names of pools,
  /// hexadecimal numbers and words of ours: there is nothing in them to be escaped.
  template <typename Number>
  void value(std::string_view name, std::string_view labels, Number number) {
    const char* const open = labels.empty() ? "" : "{";
    const char* const close = labels.empty() ? "" : "}";
    fmt::format_to(out(), "{}{}{}{} {}\n", name, open, labels, close, number);
  }
  /// A name with one value, without labels.
  template <typename Number>
  void single(std::string_view name, std::string_view help, std::string_view type, Number number) {
    head(name, help, type);
    value(name, "", number);
  }
  std::string take() { return std::move(text_); }

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }
  std::string text_;
};

}  // namespace perdure
