// The page and its style.
#include "report/page.h"

#include "report/svg.h"
#include "report/text_file.h"

#include <fmt/format.h>

namespace perdure::report {
namespace {

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark;
  --paper: #ffffff; --ink: #1d2330; --quiet: #667085; --rule: #e3e7ee; --panel: #f6f8fb;
  --good: #12805c; --bad: #c2303a; --good-faint: #e6f5ef; --bad-faint: #fdecec;
  --c1: #2f6bd8; --c2: #e07b22; --c3: #23977a; --c4: #8d55c9; --c5: #64748b; --c6: #c9486f; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #12161f; --ink: #e4e8f0; --quiet: #97a2b6; --rule: #2a3140; --panel: #1a202c;
  --good: #4cc79a; --bad: #f0767e; --good-faint: #14302a; --bad-faint: #3a1d21;
  --c1: #6d9df5; --c2: #f0a050; --c3: #4fc3a1; --c4: #b58ae6; --c5: #94a3b8; --c6: #ea7d9d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 900px; margin: 0 auto; padding: 40px 24px 72px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 21px; margin: 44px 0 8px; padding-top: 14px; border-top: 1px solid var(--rule); }
.lead { font-size: 17px; color: var(--quiet); margin: 0 0 22px; max-width: 44em; }
p { max-width: 46em; margin: 8px 0 12px; }
ul { max-width: 46em; padding-left: 22px; margin: 8px 0 12px; } li { margin: 3px 0; }
code, pre { font: 13.5px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; }
code { background: var(--panel); padding: 1px 5px; border-radius: 4px; }
pre { background: var(--panel); padding: 12px 14px; border-radius: 8px; overflow-x: auto; }
.verdict { padding: 13px 16px; border-radius: 8px; font-weight: 600; margin: 0 0 20px; }
.verdict.good { background: var(--good-faint); color: var(--good); }
.verdict.bad { background: var(--bad-faint); color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(152px, 1fr)); gap: 12px; }
.tile { background: var(--panel); border-radius: 10px; padding: 14px 16px 12px; }
.tile b { display: block; font-size: 24px; line-height: 1.2; font-weight: 650; }
.tile span { font-size: 13.5px; color: var(--quiet); }
.origin { display: inline-block; font-size: 11.5px; letter-spacing: .03em; padding: 1px 8px;
  border-radius: 9px; border: 1px solid var(--rule); color: var(--quiet); vertical-align: 1px; }
.origin.measured { color: var(--c1); border-color: var(--c1); }
.origin.emulated { color: var(--c4); border-color: var(--c4); }
.origin.simulated { color: var(--c2); border-color: var(--c2); }
figure { margin: 18px 0 26px; } figcaption { font-size: 14px; color: var(--quiet); margin: 0 0 8px; }
figcaption b { color: var(--ink); }
figure svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; border-bottom: 2px solid var(--rule); padding: 6px 10px 6px 0;
  vertical-align: bottom; }
td { border-bottom: 1px solid var(--rule); padding: 5px 10px 5px 0; vertical-align: top; }
th.n, td.n { text-align: right; white-space: nowrap; }
td:last-child, th:last-child { padding-right: 0; }
details { margin: 12px 0; } summary { cursor: pointer; color: var(--c1); }
.setup td:first-child { color: var(--quiet); white-space: nowrap; width: 1%; padding-right: 22px; }
svg text { font: 12.5px system-ui, "DejaVu Sans", sans-serif; fill: var(--ink); }
svg text.label { fill: var(--quiet); } svg text.value { font-size: 11px; fill: var(--quiet); }
svg text.inside { font-size: 11px; fill: var(--paper); }
svg text.panel { font-size: 14px; font-weight: 600; }
svg text.label.good { fill: var(--good); } svg text.label.bad { fill: var(--bad); }
.grid { stroke: var(--rule); stroke-width: 1; } .grid.minor { opacity: .45; }
.curve { stroke-width: 2; stroke-linejoin: round; }
.whisker { stroke: var(--ink); stroke-width: 1.2; opacity: .6; }
.mark { stroke-width: 1.3; stroke-dasharray: 4 3; }
.mark.good { stroke: var(--good); } .mark.bad { stroke: var(--bad); }
.span { opacity: .12; } .span.good { fill: var(--good); } .span.bad { fill: var(--bad); }
.faint { opacity: .14; }
.stroke1 { stroke: var(--c1); } .stroke2 { stroke: var(--c2); } .stroke3 { stroke: var(--c3); }
.stroke4 { stroke: var(--c4); } .stroke5 { stroke: var(--c5); } .stroke6 { stroke: var(--c6); }
.fill1 { fill: var(--c1); } .fill2 { fill: var(--c2); } .fill3 { fill: var(--c3); }
.fill4 { fill: var(--c4); } .fill5 { fill: var(--c5); } .fill6 { fill: var(--c6); }
@media print { main { padding: 0; max-width: none; } h2 { break-after: avoid; }
  figure { break-inside: avoid; } }
)css";

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
      escape_markup(title_), kStyle, body_);
}

Result<void> ReportPage::write(const std::string& path) const { return write_file(path, html()); }

}  // namespace perdure::report
