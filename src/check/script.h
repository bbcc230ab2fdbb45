// Script: what the checker is asked about, flattened: one method, or several updates of it in
// flight on one connection. Between the public question (check.h) and the machine (model.h).
#pragma once

#include "core/method.h"

#include <cstdint>
#include <vector>

namespace perdure::check {

/// A promise: once the requester has passed step `step`, `items` must be recoverable.
struct Promise {
  std::size_t step = 0;
  std::vector<Item> items;
};

struct Script {
  std::vector<RequesterStep> steps;
  std::vector<std::vector<ResponderAction>> reactions;  // one per message, in posting order
  std::vector<std::uint8_t> epoch_of_item;
  std::vector<bool> small_item;  // at most 8 aligned bytes: never torn
  std::vector<Promise> promises;
};

/// The script of `updates` updates posted as early as the method allows: all first posts, then the
/// first wait of each in turn, and so on. With `ordered`, update n+1 must not be recoverable
/// without update n; otherwise only the order inside each update counts.
///
/// Requires  validate(method) succeeded and updates >= 1.
Script make_script(const Method& method, std::size_t updates, bool ordered);

}  // namespace perdure::check
