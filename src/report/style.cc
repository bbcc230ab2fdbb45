#include "report/style.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace perdure::report {
namespace {

struct Color {
  std::string_view name;
  std::string_view light;
  std::string_view dark;
};

constexpr std::array kColors = std::to_array<Color>({
    {"--paper", "#ffffff", "#12161f"},
    {"--ink", "#1d2330", "#e4e8f0"},
    {"--quiet", "#667085", "#97a2b6"},
    {"--rule", "#e3e7ee", "#2a3140"},
    {"--panel", "#f6f8fb", "#1a202c"},
    {"--good", "#12805c", "#4cc79a"},
    {"--bad", "#c2303a", "#f0767e"},
    {"--good-faint", "#e6f5ef", "#14302a"},
    {"--bad-faint", "#fdecec", "#3a1d21"},
    {"--c1", "#2f6bd8", "#6d9df5"},
    {"--c2", "#e07b22", "#f0a050"},
    {"--c3", "#23977a", "#4fc3a1"},
    {"--c4", "#8d55c9", "#b58ae6"},
    {"--c5", "#64748b", "#94a3b8"},
    {"--c6", "#c9486f", "#ea7d9d"},
    {"--c7", "#8a6a1f", "#cdb164"},
    {"--c8", "#14808c", "#5cc3cf"},
});

constexpr std::string_view kPageRules = R"css(
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
.origin.calculated { color: var(--c3); border-color: var(--c3); }
figure { margin: 18px 0 26px; } figcaption { font-size: 14px; color: var(--quiet); margin: 0 0 8px; }
figcaption b { color: var(--ink); }
figure svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; border-bottom: 2px solid var(--rule); padding: 6px 10px 6px 0;
  vertical-align: bottom; }
td { border-bottom: 1px solid var(--rule); padding: 5px 10px 5px 0; vertical-align: top; }
th.n, td.n { text-align: right; } td.n { white-space: nowrap; }
.n + :not(.n) { padding-left: 14px; }
td:last-child, th:last-child { padding-right: 0; }
details { margin: 12px 0; } summary { cursor: pointer; color: var(--c1); }
.setup td:first-child { color: var(--quiet); white-space: nowrap; width: 1%; padding-right: 22px; }
)css";

constexpr std::string_view kDrawingRules = R"css(
svg text { font-family: system-ui, "DejaVu Sans", sans-serif; font-size: 12.5px; fill: var(--ink); }
svg text.label { fill: var(--quiet); } svg text.value { font-size: 11px; fill: var(--quiet); }
svg text.inside { font-size: 11px; fill: var(--paper); }
svg text.panel { font-size: 14px; font-weight: 600; }
svg text.label.good { fill: var(--good); } svg text.label.bad { fill: var(--bad); }
.grid { stroke: var(--rule); stroke-width: 1; } .grid.minor { opacity: .45; }
.curve { stroke-width: 2; stroke-linejoin: round; }
.over1 { stroke-dasharray: 9 9; } .over2 { stroke-dasharray: 6 12; }
.over3 { stroke-dasharray: 4 14; }
.break { stroke: var(--paper); stroke-width: 3; } .cut { stroke: var(--quiet); stroke-width: 1.2; }
.whisker { stroke: var(--ink); stroke-width: 1.2; opacity: .6; }
.mark { stroke-width: 1.3; stroke-dasharray: 4 3; }
.mark.plain { stroke: var(--quiet); }
.mark.good { stroke: var(--good); } .mark.bad { stroke: var(--bad); }
.span { opacity: .12; } .span.good { fill: var(--good); } .span.bad { fill: var(--bad); }
.faint { opacity: .14; }
.stroke1 { stroke: var(--c1); } .stroke2 { stroke: var(--c2); } .stroke3 { stroke: var(--c3); }
.stroke4 { stroke: var(--c4); } .stroke5 { stroke: var(--c5); } .stroke6 { stroke: var(--c6); }
.stroke7 { stroke: var(--c7); } .stroke8 { stroke: var(--c8); }
.fill1 { fill: var(--c1); } .fill2 { fill: var(--c2); } .fill3 { fill: var(--c3); }
.fill4 { fill: var(--c4); } .fill5 { fill: var(--c5); } .fill6 { fill: var(--c6); }
.fill7 { fill: var(--c7); } .fill8 { fill: var(--c8); }
)css";

constexpr std::string_view kPrintRules = R"css(
@media print { main { padding: 0; max-width: none; } h2 { break-after: avoid; }
  figure { break-inside: avoid; } }
)css";

std::string colors(std::string_view Color::*shade) {
  std::string out;
  for (const Color& color : kColors) out += fmt::format(" {}: {};", color.name, color.*shade);
  return out;
}

}  // namespace

std::string page_style() {
  return fmt::format(
      "\n:root {{ color-scheme: light dark;{} }}\n"
      "@media (prefers-color-scheme: dark) {{ :root {{{} }} }}\n{}{}{}",
      colors(&Color::light), colors(&Color::dark), kPageRules, kDrawingRules, kPrintRules);
}

std::string light_drawing_style() {
  std::string rules(kDrawingRules);
  for (const Color& color : kColors) {
    const std::string variable = fmt::format("var({})", color.name);
    for (auto at = rules.find(variable); at != std::string::npos; at = rules.find(variable, at)) {
      rules.replace(at, variable.size(), color.light);
    }
  }
  return rules;
}

}  // namespace perdure::report
