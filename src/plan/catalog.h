// Every method that Perdure knows by name, for any responder, any update shape and each level. The
// papers' methods are among them; so are the ones for files (page) and the one-round-trip methods.
#pragma once

#include "core/method.h"

#include <perdure/types.h>

#include <string>
#include <vector>

namespace perdure::plan {

/// What an update asks for, apart from its sizes.
struct Request {
  UpdateShape shape;
  Level level = Level::Durable;
  bool later_small = false;      // items after the first epoch are at most 8 bytes, aligned
  bool polled = false;           // the responder polls a mailbox for messages, too
  bool responder_posts = false;  // it posts READs and WRITEs of the requester's memory, too
};

/// A known method, and in one sentence why it is right here.
struct Known {
  Method method;
  std::string reason;
};

/// The methods that are right on `server`, in a fixed order, names unique. Empty only where no
/// method can be right (level Durable or Committed, domain None; a transport that has no such queue
/// pairs).
std::vector<Known> known_methods(const ServerProfile& server, const Request& request);

}  // namespace perdure::plan
