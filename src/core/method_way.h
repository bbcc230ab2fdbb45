// How an item of an update comes to its place, and what is certain by then of all that was posted
// before on the connection: what the law of method_set.h asks of a method.
#pragma once

#include "core/method.h"

namespace perdure {

/// What is certain of all that was posted before something.
struct Certain {
  bool writes_visible = false;   // WRITEs and PWRITEs
  bool atomics_visible = false;  // ATOMIC WRITEs
  bool messages_handled = false;
};

inline constexpr Certain kAllCertain{true, true, true};

/// How an item comes to its place.
struct Way {
  enum class By { Write, AtomicWrite, Persist, Copy, Replay };
  By by = By::Write;
  Certain before;           // of all before the update, when the item comes to its place
  bool received = false;    // it, or a message behind it, is handled on a receive completion
  bool ends_there = false;  // its update ends when it is there, for a load to see
};

Way way_of(const Method& method, Item item);

/// What is certain of all before an update once it has ended.
Certain certain_at_end(const Method& method);

Certain either(const Certain& one, const Certain& other);
Certain both(const Certain& one, const Certain& other);

/// Whether an RNIC places it.
constexpr bool by_rnic(const Way& way) { return way.by < Way::By::Copy; }

/// Whether the responder's processor stores it, message by message.
constexpr bool by_message(const Way& way) { return !by_rnic(way); }

}  // namespace perdure
