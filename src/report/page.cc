// The page; its style is in style.cc.
#include "report/page.h"

#include "core/text_file.h"
#include "report/style.h"
#include "report/svg.h"

#include <fmt/format.h>

namespace perdure::report {
namespace {

/// Escaped, and `so` as code.
std::string with_code(std::string_view words) {
  std::string out;
  bool inside = false;
  for (const char c : escape_markup(words)) {
    if (c != '`') {
      out += c;
      continue;
    }
    out += inside ? "</code>" : "<code>";
    inside = !inside;
  }
  return inside ? out + "</code>" : out;
}

std::string badge(Origin origin) {
  return fmt::format("<span class=\"origin {0}\">{0}</span>", to_string(origin));
}

}  // namespace

ReportPage::ReportPage(std::string_view title, std::string_view lead) : title_(title) {
  body_ =
      fmt::format("<h1>{}</h1>\n<p class=\"lead\">{}</p>\n", escape_markup(title), with_code(lead));
}

void ReportPage::verdict(bool good, std::string_view sentence) {
  body_ +=
      fmt::format("<p class=\"verdict {}\">{}</p>\n", good ? "good" : "bad", with_code(sentence));
}

void ReportPage::tiles(const std::vector<Tile>& tiles) {
  body_ += "<div class=\"tiles\">\n";
  for (const Tile& tile : tiles) {
    body_ += fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span> {}</div>\n",
                         escape_markup(tile.value), escape_markup(tile.name), badge(tile.origin));
  }
  body_ += "</div>\n";
}

void ReportPage::heading(std::string_view words) {
  body_ += fmt::format("<h2>{}</h2>\n", escape_markup(words));
}

void ReportPage::paragraph(std::string_view words) {
  body_ += fmt::format("<p>{}</p>\n", with_code(words));
}

void ReportPage::list(const std::vector<std::string>& items) {
  body_ += "<ul>\n";
  for (const std::string& item : items) body_ += fmt::format("<li>{}</li>\n", with_code(item));
  body_ += "</ul>\n";
}

void ReportPage::drawing(std::string_view svg, Origin origin, std::string_view caption) {
  body_ += fmt::format("<figure><figcaption>{} {}</figcaption>\n{}\n</figure>\n",
                       with_code(caption), badge(origin), svg);
}

void ReportPage::table(const Table& table, Origin origin, std::string_view caption) {
  body_ +=
      fmt::format("<figure><figcaption>{} {}</figcaption>\n<div class=\"scroll\"><table>\n<tr>",
                  with_code(caption), badge(origin));
  for (const Column& column : table.columns) {
    body_ +=
        fmt::format("<th{}>{}</th>", column.number ? " class=\"n\"" : "", with_code(column.name));
  }
  body_ += "</tr>\n";
  for (const auto& row : table.rows) {
    body_ += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool number = i < table.columns.size() && table.columns[i].number;
      body_ += fmt::format("<td{}>{}</td>", number ? " class=\"n\"" : "", with_code(row[i]));
    }
    body_ += "</tr>\n";
  }
  body_ += "</table></div></figure>\n";
}

void ReportPage::preformatted(std::string_view text) {
  body_ += fmt::format("<pre>{}</pre>\n", escape_markup(text));
}

void ReportPage::begin_details(std::string_view summary) {
  body_ += fmt::format("<details><summary>{}</summary>\n", with_code(summary));
}

void ReportPage::end_details() { body_ += "</details>\n"; }

void ReportPage::setup(const Setup& setup) {
  body_ += "<h2>Setup</h2>\n<div class=\"scroll\"><table class=\"setup\">\n";
  for (const auto& [name, value] : setup.rows) {
    body_ +=
        fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escape_markup(name), with_code(value));
  }
  body_ += "</table></div>\n";
}

std::string ReportPage::html() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</"
      "html>\n",
      escape_markup(title_), page_style(), body_);
}

Result<void> ReportPage::write(const std::string& path) const { return write_file(path, html()); }

}  // namespace perdure::report
