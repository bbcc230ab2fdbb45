// One trace as many threads: see trace_streams.h.
#include "memsys/trace_streams.h"

#include <algorithm>

namespace perdure::memsys {

TraceStreams::TraceStreams(TraceReader& reader, const TraceSummary& summary,
                           TraceListener& listener, std::uint64_t held_max)
    : reader_(reader), listener_(listener), held_max_(held_max), streams_(summary.threads.size()) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    streams_[i].left = summary.threads[i].events;
    streams_[i].writes_left = summary.threads[i].writes;
  }
}

bool TraceStreams::read_until(std::uint32_t thread, std::size_t k) {
  Stream& wanted = streams_[thread];
  if (wanted.left <= k) return false;
  TraceEvent event;
  while (wanted.held.size() <= k) {
    if (held_ >= held_max_) {
      lookahead_reached_ = true;
      return false;
    }
    if (ended_early_ || !reader_.next(event) || event.thread >= streams_.size()) {
      ended_early_ = true;
      return false;
    }
    held_most_ = std::max(held_most_, ++held_);
    streams_[event.thread].held.push(event);
    if (event.kind != EventKind::Read) listener_.on_read(event);
  }
  return true;
}

std::size_t TraceStreams::room() const {
  std::size_t room = 0;
  for (const Stream& stream : streams_) room += stream.held.room();
  return room;
}

}  // namespace perdure::memsys
