// Adds up what a method costs, wait by wait.
#include "plan/cost.h"

#include <algorithm>

namespace perdure::plan {
namespace {

constexpr double kLineBytes = 64;

double lines(std::uint64_t bytes) {
  return std::max(1.0, (static_cast<double>(bytes) + kLineBytes - 1) / kLineBytes);
}

/// From the post to the completion.
double completion_ns(Verb verb, const CostModel& costs) {
  if (verb == Verb::WritePersist) return costs.persist_round_trip_ns;
  if (is_posted(verb)) return costs.write_round_trip_ns;
  return costs.read_round_trip_ns + (verb == Verb::SendFlush ? costs.send_flush_ns : 0);
}

double fetch_ns(double payload, const PayloadFetch& fetch) {
  if (payload <= fetch.inline_bytes) return 0;
  return fetch.fixed_ns + std::min(payload, fetch.bytes) * fetch.byte_ns;
}

}  // namespace

std::string source_of(const CostModel& costs) {
  if (costs.measured) return "measured on this connection";
  return "usual ones (" + costs.hardware + "), not measured on this connection";
}

CostModel usual_costs(const Hardware& hardware, Transport transport) {
  const NetworkHardware& n = hardware.network;
  const ServerHardware& s = hardware.server;
  const double way = 2 * n.rnic + n.wire + n.header_bytes * n.wire_per_byte;
  const double noticed = n.dma_write + n.poll;  // a message that has arrived
  CostModel costs;
  costs.message_round_trip_ns = n.post + way + noticed + s.handle + n.post + way + noticed;
  costs.write_round_trip_ns =
      completes_early(transport) ? n.post + n.completion : n.post + 2 * way + n.completion;
  costs.read_round_trip_ns = n.post + 2 * way + n.dma_read_memory + n.completion;
  costs.persist_round_trip_ns = n.post + 2 * way + n.dma_write + n.cache_drain + n.medium_write +
                                n.persist_ack + n.completion;
  costs.extra_post_ns = std::max(n.post, n.message_gap);
  costs.copy_byte_ns = s.copy_per_byte;
  costs.flush_ns = n.medium_write;
  costs.flush_line_ns = s.flush_line * kLineBytes / s.line_bytes;
  costs.sync_ns = s.flush_page;
  costs.send_flush_ns = n.send_flush_lookup - n.dma_read_memory;
  costs.wire_byte_ns = n.wire_per_byte * (1 + n.header_bytes / n.packet_bytes);
  costs.fetch = {n.inline_bytes, n.fetch, n.fetch_per_byte, n.fetch_bytes};
  costs.hardware = n.name;
  return costs;
}

CostModel default_costs(Transport transport) {
  return usual_costs(default_hardware(transport), transport);
}

double cost_ns(const Method& method, PersistenceDomain domain, std::uint64_t bytes,
               std::uint64_t later_bytes, const CostModel& costs) {
  const auto size_of = [&](Item item) {
    return method.shape.epoch_of(item) == 0 ? bytes : later_bytes;
  };
  double total = 0;
  std::size_t posts = 0;  // since the last wait
  for (const RequesterStep& step : method.requester) {
    if (step.kind == RequesterStep::Kind::Post) {
      ++posts;
      double payload = 0;
      for (const Item item : step.items) {
        payload += brings_items(step.verb) ? static_cast<double>(size_of(item)) : 0;
      }
      total += payload * costs.wire_byte_ns + fetch_ns(payload, costs.fetch);
      continue;
    }
    if (step.kind == RequesterStep::Kind::WaitAck) {
      total += costs.message_round_trip_ns + costs.responder_wake_ns;
    } else {
      total += completion_ns(method.requester[step.of].verb, costs) + costs.one_sided_wake_ns;
    }
    if (posts > 1) total += static_cast<double>(posts - 1) * costs.extra_post_ns;
    posts = 0;
  }
  for (const auto& reaction : method.responder) {
    for (const ResponderAction& action : reaction) {
      if (action.kind == ResponderAction::Kind::Copy) {
        total += static_cast<double>(size_of(action.item)) * costs.copy_byte_ns;
      } else if (action.kind == ResponderAction::Kind::Read) {
        total += costs.read_round_trip_ns +
                 static_cast<double>(size_of(action.item)) * costs.wire_byte_ns;
      } else if (action.kind == ResponderAction::Kind::Flush) {
        total += domain == PersistenceDomain::Page
                     ? costs.sync_ns
                     : costs.flush_ns + lines(size_of(action.item)) * costs.flush_line_ns;
      }
    }
  }
  return total;
}

Usage usage(const Method& method) {
  Usage usage;
  usage.round_trips = round_trips(method);
  for (const RequesterStep& step : method.requester) {
    if (takes_receive_buffer(step)) ++usage.receive_buffers;
    if (step.fenced) ++usage.round_trips;  // held back until an answer has come
  }
  for (const auto& reaction : method.responder) {
    if (!reaction.empty()) ++usage.responder_wakes;
    for (const ResponderAction& action : reaction) {
      if (action.kind == ResponderAction::Kind::Copy) ++usage.copied_items;
    }
  }
  return usage;
}

bool beats(const Usage& one, const Usage& other) {
  const bool no_worse =
      one.round_trips <= other.round_trips && one.copied_items <= other.copied_items &&
      one.responder_wakes <= other.responder_wakes && one.receive_buffers <= other.receive_buffers;
  return no_worse && !(one == other);
}

}  // namespace perdure::plan
