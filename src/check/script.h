// Script: what the checker is asked about, flattened: one method, or several updates of it in
// flight on one connection. Between the public question (check.h) and the machine (model.h).
#pragma once

#include "core/method.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace perdure::check {

/// What the order of updates in flight means to whoever recovers them.
enum class Between {
  Independent,  // nothing: each update stands for itself
  ToldInOrder,  // being told of update n+1 promises update n too: what a log's prefix needs
  Ordered,      // in addition nothing of update n+1 may survive without update n
};

std::string_view to_string(Between between);

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
};

/// The script of `updates` updates posted as early as the method allows: all first posts, then the
/// first wait of each in turn, and so on.
///
/// Requires  validate(method) succeeded and updates >= 1.
Script make_script(const Method& method, std::size_t updates, Between between);

}  // namespace perdure::check
