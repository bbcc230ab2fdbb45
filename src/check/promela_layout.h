// Where everything is in a Promela model: which cells, slots and requests there are. For
// promela.cc, which prints what happens, and promela_layout.cc, which prints what must be true.
#pragma once

#include "check/check.h"
#include "check/script.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::check::promela {

/// One unit of data on its way: index into the arrays `vis` (visible) and `dom` (in the domain).
struct Unit {
  std::size_t cell = 0;
  std::size_t slot = 0;
};

/// One posted request and where its parts are.
struct Request {
  const RequesterStep* step = nullptr;  // in Layout::script
  std::size_t connection = 0;
  std::vector<Unit> units;
  std::size_t slot_first = 0;
  std::size_t slot_last = 0;
};

struct Layout {
  Layout(Script asked, const ServerProfile& profile, const CheckOptions& options);
  Layout(const Layout&) = delete;  // the requests point into its script
  Layout& operator=(const Layout&) = delete;

  /// One of several items of a place: `now[place]` is the version that is visible there and
  /// `med[place]` the one in the domain, counted from 1; 0 is what was there before.
  struct Shared {
    std::size_t place = 0;
    std::size_t version = 0;
  };

  std::size_t units_of(Item item) const;
  std::optional<Shared> shared(std::size_t cell) const;
  bool shares_place(std::size_t item) const;
  /// The statements by which a cell becomes visible.
  std::string show(std::size_t cell) const;
  /// That what is visible of a cell's place is in the domain.
  std::string drained(std::size_t cell) const;
  /// Whether a request is a message that survives and that recovery may apply.
  bool survives(std::size_t request) const;

  ServerProfile profile;
  bool durable;  // whether that is the level asked about
  CheckOptions options;
  Script script;
  std::vector<Request> requests;
  std::vector<std::size_t> request_of_step;
  std::vector<std::size_t> item_cell;
  std::vector<std::size_t> places;  // the script's numbers of those that items share
  std::size_t cells = 0;
  std::size_t slots = 0;
};

/// "(x && y)", or `empty` without terms.
std::string joined(const std::vector<std::string>& terms, std::string_view by,
                   std::string_view empty);

/// The process that fails if power failing now would break a property.
std::string power_process(const Layout& layout);

}  // namespace perdure::check::promela
