// The live page: see live_page.h. All text from the daemon is set as text, never as markup.
#include "server/live_page.h"

namespace perdure::server {

std::string_view live_page() {
  return R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>perdured</title>
<meta name="viewport" content="width=device-width">
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
       color: #222; background: #fff; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.unavailable { color: #b00020; } .quiet { color: #777; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818; } th, td { border-color: #444; }
  .unavailable { color: #ff8a80; } }
</style></head><body>
<h1>perdured</h1><p id="service" class="quiet">asking ...</p>
<h2>Pools</h2><table><thead><tr><th>name<th>state<th class="number">bytes<th>profile
<th class="number">epoch<th>writer</tr></thead><tbody id="pools"></tbody></table>
<h2>Sessions</h2><table><thead><tr><th>id<th>pool<th>phase<th>rights<th>transport
<th class="number">messages<th class="number">bytes<th class="number">flushes</tr></thead>
<tbody id="sessions"></tbody></table>
<p class="quiet">Counters for machines: <a href="/metrics">/metrics</a></p>
<script>
"use strict";
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
async function renew() {
  try {
    const ask = async path => (await fetch(path)).json();
    const [service, pools, sessions] = await Promise.all(
      ["/v1/profile", "/v1/pools", "/v1/sessions"].map(ask));
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
}

}  // namespace perdure::server
