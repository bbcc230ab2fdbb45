// Script: what the checker is asked about, flattened: one method, or several updates of it in
// flight, on one connection or two. Between the public question (check.h) and the machine
// (model.h).
#pragma once

#include "core/method.h"

#include <cstdint>
#include <optional>
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

/// A promise: once the requester has passed step `step`, `items` must be recoverable. If steps are
/// given to wait for, it is made when they are over as well, which holds no later step back.
struct Promise {
  std::size_t step = 0;
  std::vector<Item> items;
  std::vector<RequesterStep> waits;
};

struct Script {
  std::vector<RequesterStep> steps;
  std::vector<std::vector<ResponderAction>> reactions;  // one per message, in posting order
  std::vector<std::uint8_t> epoch_of_item;              // counted through all updates
  std::vector<std::vector<std::size_t>> dependents;     // by epoch: those that depend on it
  std::vector<bool> small_item;                         // at most 8 aligned bytes: never torn
  std::vector<Promise> promises;
  std::size_t connections = 1;
  std::vector<std::uint8_t> connection_of_step;  // of posts

  // Of scripts of mixed updates:
  bool mixed = false;
  /// Items with equal numbers are written to one place, an older one first. Empty: to different
  /// ones.
  std::vector<std::size_t> place_of_item;
};

/// One update among others of one connection.
struct MixedUpdate {
  Method method;
  /// By item: see Script::place_of_item.
  std::vector<std::size_t> places;
  /// It is begun when this update, counted from 1, has resolved, and with it all before; 0: at
  /// once.
  std::size_t after = 0;
  bool has_word = false;  // its last epoch vouches for what was posted before it
  bool vouched = true;    // by the words of later updates
};

/// The script of updates by different methods, over one connection, as the requester and the
/// responder of src/persist run them:
///   - an update posts when all before it have posted everything, waits inside of them included;
///   - it resolves when what it ends with is over, and all before it have resolved;
///   - the responder also applies messages that recovery could replay, and releases the buffer of
///     every message once what it carried is durable.
/// The order of updates means Between::AcknowledgedInOrder, and what words vouch for.
///
/// Requires  the methods are valid (see check_set), no more than 240 items.
Script make_script(const std::vector<MixedUpdate>& updates);

struct InFlight {
  std::size_t updates = 1;
  Between between = Between::Ordered;
  std::size_t connections = 1;
  Spread spread = Spread::Epochs;
  /// The responder has received together all messages between which the requester waits for
  /// nothing, so it flushes what each ends with, and answers, when it has stored them all.
  bool gathered = false;
};

/// The script of several updates posted as early as the method allows: all first posts, then the
/// first wait of each in turn, and so on. With Spread::Epochs a step goes over the connection of
/// the latest item that it names, and one that names none stays where the step before it went.
///
/// Requires  validate(method) succeeded, updates >= 1, connections 1 or 2.
Script make_script(const Method& method, const InFlight& in_flight);

}  // namespace perdure::check
