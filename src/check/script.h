// Script: what the checker is asked about, flattened: one method, or several updates of it in
// flight, on one connection or two. Between the public question (check.h) and the machine
// (model.h).
#pragma once

#include "core/method.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace perdure::check {

/// What the order of updates in flight means to whoever recovers them.
enum class Between {
  Independent,          // nothing: each update stands for itself
  AcknowledgedInOrder,  // the acknowledgement of update n+1 promises update n too: what a log's
                        // prefix needs
  Ordered,              // in addition nothing of update n+1 may survive without update n
};

std::string_view to_string(Between between);

/// What goes over which connection, where there are two.
enum class Spread {
  Epochs,   // successive epochs alternate, counted through all updates
  Updates,  // successive updates alternate
};

std::string_view to_string(Spread spread);

/// A promise: once the requester has passed step `step`, `items` must be recoverable.
struct Promise {
  std::size_t step = 0;
  std::vector<Item> items;
};

struct Script {
  std::vector<RequesterStep> steps;
  std::vector<std::vector<ResponderAction>> reactions;  // one per message, in posting order
  std::vector<std::uint8_t> epoch_of_item;              // counted through all updates
  std::vector<std::size_t> chain_end;  // by epoch: the epochs before this end depend on it
  std::vector<bool> small_item;        // at most 8 aligned bytes: never torn
  std::vector<Promise> promises;
  std::size_t connections = 1;
  std::vector<std::uint8_t> connection_of_step;  // of posts
};

struct InFlight {
  std::size_t updates = 1;
  Between between = Between::Ordered;
  std::size_t connections = 1;
  Spread spread = Spread::Epochs;
};

/// The script of several updates posted as early as the method allows: all first posts, then the
/// first wait of each in turn, and so on. With Spread::Epochs a step goes over the connection of
/// the latest item that it names, and one that names none stays where the step before it went.
///
/// Requires  validate(method) succeeded, updates >= 1, connections 1 or 2.
Script make_script(const Method& method, const InFlight& in_flight);

}  // namespace perdure::check
