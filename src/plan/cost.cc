// Adds up what a method costs, wait by wait.
#include "plan/cost.h"

#include <algorithm>

namespace perdure::plan {
namespace {

constexpr double kLineBytes = 64;

double lines(std::uint64_t bytes) {
  return std::max(1.0, (static_cast<double>(bytes) + kLineBytes - 1) / kLineBytes);
}

}  // namespace

std::string_view source_of(const CostModel& costs) {
  return costs.measured ? "measured on this connection"
                        : "usual ones, not measured on this connection";
}

CostModel default_costs(Transport transport) {
  CostModel costs;
  costs.copy_byte_ns = 0.09;
  costs.flush_line_ns = 5.3;
  costs.sync_ns = 100'000;
  switch (transport) {
    case Transport::Tcp:
      costs.message_round_trip_ns = 10'200;
      costs.write_round_trip_ns = 8'900;
      costs.read_round_trip_ns = 9'200;
      costs.extra_post_ns = 6'900;
      costs.wire_byte_ns = 0.25;
      break;
    case Transport::Shm:
      costs.message_round_trip_ns = 640;
      costs.write_round_trip_ns = 500;
      costs.read_round_trip_ns = 1'680;
      costs.extra_post_ns = 60;
      costs.wire_byte_ns = 0.09;
      break;
    case Transport::InfiniBand:
    case Transport::Roce:
    case Transport::Iwarp:
      costs.message_round_trip_ns = 3'200;
      costs.write_round_trip_ns = 1'600;
      costs.read_round_trip_ns = 2'000;
      costs.extra_post_ns = 100;
      costs.wire_byte_ns = 0.08;
      break;
  }
  return costs;
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
      for (const Item item : step.items) {
        if (brings_items(step.verb))
          total += static_cast<double>(size_of(item)) * costs.wire_byte_ns;
      }
      continue;
    }
    if (step.kind == RequesterStep::Kind::WaitAck) {
      total += costs.message_round_trip_ns + costs.responder_wake_ns;
    } else {
      const Verb verb = method.requester[step.of].verb;
      const bool answered = !is_posted(verb) || verb == Verb::WritePersist;
      total += answered ? costs.read_round_trip_ns : costs.write_round_trip_ns;
      total += costs.one_sided_wake_ns;
    }
    if (posts > 1) total += static_cast<double>(posts - 1) * costs.extra_post_ns;
    posts = 0;
  }
  for (const auto& reaction : method.responder) {
    for (const ResponderAction& action : reaction) {
      if (action.kind == ResponderAction::Kind::Copy) {
        total += static_cast<double>(size_of(action.item)) * costs.copy_byte_ns;
      } else if (action.kind == ResponderAction::Kind::Flush) {
        total += domain == PersistenceDomain::Page
                     ? costs.sync_ns
                     : lines(size_of(action.item)) * costs.flush_line_ns;
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
