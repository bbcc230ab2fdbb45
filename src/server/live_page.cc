// The live page: see live_page.h. All text from the daemon is set as text, never as markup.
#include "server/live_page.h"

namespace perdure::server {
namespace {

constexpr std::string_view kHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>perdured</title>
<meta name="viewport" content="width=device-width">
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
       color: #222; background: #fff; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.unavailable { color: #b00020; } .quiet { color: #777; }
.curve path { fill: none; stroke: #2a6fdb; stroke-width: 1.5; stroke-linecap: round; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818; } th, td { border-color: #444; }
  .unavailable { color: #ff8a80; } .curve path { stroke: #7fb0ff; } }
</style></head><body>
<h1>perdured</h1><p id="service" class="quiet">asking ...</p>
<h2>Pools</h2><table><thead><tr><th>name<th>state<th class="number">bytes<th>profile
<th class="number">epoch<th>writer</tr></thead><tbody id="pools"></tbody></table>
<h2>Sessions</h2><table><thead><tr><th>id<th>pool<th>phase<th>rights<th>transport
<th class="number">messages<th class="number">bytes<th class="number">flushes</tr></thead>
<tbody id="sessions"></tbody></table>
<h2>Over time</h2><table><thead><tr><th>pool<th>log, % full<th>appended, KiB a second
<th>trimmed, KiB a second<th>messages a second<th>flush, p99 in ms<th>answer, p99 in ms</tr></thead>
<tbody id="curves"></tbody></table>
<table><thead><tr><th>process<th>resident, MiB<th>processor, % of a core</tr></thead>
<tbody id="process"></tbody></table>
<p class="quiet">Ten minutes at most, while this page is open. For machines:
<a href="/metrics">/metrics</a></p>
<script>
"use strict";
)html";

constexpr std::string_view kNumbers = R"js(
// What stands in /metrics: lists of {labels, value} by name.
const numbers = text => {
  const all = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, word] of (match[2] ?? "").matchAll(/([a-z]+)="([^"]*)"/g))
      labels[name] = word;
    if (!all.has(match[1])) all.set(match[1], []);
    all.get(match[1]).push({labels, value: Number(match[3])});
  }
  return all;
};
const of_pool = (all, name, pool) =>
  (all.get(name) ?? []).filter(each => each.labels.pool === pool);
const one = (all, name, pool) => of_pool(all, name, pool)[0]?.value;
// The upper end of the class that holds the 99th of a hundred that were counted between two looks,
// in ms; null: nothing was counted.
const p99 = (before, now, name, pool) => {
  const counted = all => of_pool(all, name + "_bucket", pool);
  const earlier = counted(before);
  const ends = counted(now).map((each, i) => (
    {end: each.labels.le === "+Inf" ? Infinity : Number(each.labels.le),
     count: each.value - (earlier[i]?.value ?? 0)}));
  const count = ends.at(-1)?.count ?? 0;
  return count > 0 ? 1e3 * ends.find(each => each.count >= 0.99 * count).end : null;
};
// What the curves show of a pool, from two looks so many seconds apart.
const point = (before, now, seconds, pool) => {
  const ring = one(now, "perdure_log_ring_bytes", pool);
  const messages = all => one(all, "perdure_messages_total", pool) ?? 0;
  const moved = end => {  // of the log's head or tail, in KiB a second
    const [was, is] = [before, now].map(all => one(all, `perdure_log_${end}_lsn`, pool));
    return is === undefined ? null : Math.max(0, is - (was ?? is)) / 1024 / seconds; };
  return [ring ? 100 * one(now, "perdure_log_used_bytes", pool) / ring : null,
          moved("tail"), moved("head"),
          Math.max(0, messages(now) - messages(before)) / seconds,
          p99(before, now, "perdure_flush_duration_seconds", pool),
          p99(before, now, "perdure_answer_duration_seconds", pool)];
};
// The same of the daemon's process.
const process_point = (before, now, seconds) => {
  const value = (all, name) => all.get(name)?.[0].value;
  const [was, is] = [before, now].map(all => value(all, "process_cpu_seconds_total"));
  const resident = value(now, "process_resident_memory_bytes");
  return [resident === undefined ? null : resident / 1048576,
          was === undefined || is === undefined ? null : 100 * Math.max(0, is - was) / seconds];
};
// A path through values, the last one at the right; a hole where there is none.
const curve = (values, kept, width, height, high) => {
  let path = "", pen = "M";
  values.forEach((value, i) => {
    if (value === null) { pen = "M"; return; }
    const x = width * (kept - values.length + i + 1) / kept;
    const y = height * (1 - Math.min(value, high) / high);
    path += `${pen}${x.toFixed(1)},${y.toFixed(1)}`;
    if (pen === "M") path += "h0.1";  // a value between two holes is seen too
    pen = "L"; });
  return path;
};
)js";

constexpr std::string_view kTail = R"html(
const at = id => document.getElementById(id);
const cell = (row, text, kind) => {
  const td = row.insertCell(); td.textContent = text; if (kind) td.className = kind; };
const count = n => n.toLocaleString("en");
const profile = p => `${p.domain}, ddio ${p.ddio}, receive buffers ${p.receive_buffers}`;
function fill(id, list, write) {
  const body = document.createElement("tbody"); body.id = id;
  list.forEach(each => write(body.insertRow(), each));
  if (!list.length) cell(body.insertRow(), "none", "quiet");
  at(id).replaceWith(body);
}
const kept = 300;  // looks
const points = new Map();  // by pool: of each curve its values
const process_points = [[], []];
let last = null;  // look at the metrics: {at, all}
const keep = (lists, found) => found.forEach((value, i) => {
  lists[i].push(value);
  if (lists[i].length > kept) lists[i].shift(); });
// `least`: of the highest value of each curve.
function draw(row, lists, least) {
  lists.forEach((values, i) => {
    const td = row.insertCell();
    const known = values.filter(value => value !== null);
    if (!known.length) { td.textContent = "none"; td.className = "quiet"; return; }
    const high = Math.max(least[i] ?? 1e-3, ...known.filter(Number.isFinite));
    const short = value => value === null ? "-" : Number(value.toPrecision(3)).toLocaleString("en");
    td.innerHTML = '<svg viewBox="0 0 160 40" width="160" height="40" class="curve"><path/></svg>';
    td.querySelector("path").setAttribute("d", curve(values, kept, 160, 40, high));
    const words = document.createElement("div");
    words.className = "quiet";
    words.textContent = `${short(values.at(-1))} (up to ${short(Math.max(...known))})`;
    td.append(words); });
}
function show_curves(pools, all) {
  const at_ms = performance.now();
  const shown = pools.filter(p => p.state === "open").map(p => p.name);
  for (const name of [...points.keys()]) if (!shown.includes(name)) points.delete(name);
  for (const name of shown) if (!points.has(name)) points.set(name, [[], [], [], [], [], []]);
  if (last !== null) {
    const seconds = (at_ms - last.at) / 1000;
    for (const name of shown) keep(points.get(name), point(last.all, all, seconds, name));
    keep(process_points, process_point(last.all, all, seconds));
  }
  last = {at: at_ms, all};
  fill("curves", shown, (row, name) => { cell(row, name); draw(row, points.get(name), [100]); });
  fill("process", ["perdured"], (row, name) => {
    cell(row, name); draw(row, process_points, [undefined, 100]); });
}
async function renew() {
  try {
    const ask = async path => (await fetch(path)).json();
    const [service, pools, sessions] = await Promise.all(
      ["/v1/profile", "/v1/pools", "/v1/sessions"].map(ask));
    show_curves(pools.pools, numbers(await (await fetch("/metrics")).text()));
    at("service").textContent =
      `version ${service.version}, transports ${service.transports.join(", ")}`;
    fill("pools", pools.pools, (row, p) => {
      cell(row, p.name);
      cell(row, p.reason ? `${p.state}: ${p.reason}` : p.state, p.state);
      cell(row, count(p.bytes), "number"); cell(row, profile(p.profile));
      cell(row, p.epoch, "number");
      cell(row, p.epoch ? p.writer_name + (p.writer_present ? "" : " (gone)") : ""); });
    fill("sessions", sessions.sessions, (row, s) => {
      cell(row, s.id); cell(row, s.pool);
      cell(row, s.unrevoked ? `${s.phase}, keys kept: ${s.unrevoked}` : s.phase,
           s.unrevoked ? "unavailable" : "");
      cell(row, s.write ? `write, epoch ${s.epoch}, ${s.writer_name}` : "read");
      cell(row, s.transport); cell(row, count(s.counters.messages), "number");
      cell(row, count(s.counters.copied_bytes), "number");
      cell(row, count(s.counters.flush_calls), "number"); });
  } catch (error) { at("service").textContent = "no answer: " + error.message; }
  setTimeout(renew, 2000);
}
renew();
</script></body></html>
)html";

}  // namespace

std::string live_page() {
  std::string page(kHead);
  return page.append(kNumbers).append(kTail);
}

std::string_view live_page_numbers() { return kNumbers; }

}  // namespace perdure::server
