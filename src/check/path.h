// Path: the events that lead to a state, in the words of the people and machines taking part.
#pragma once

#include "check/model.h"

#include <string>
#include <vector>

namespace perdure::check {

/// Who or what something happens at, from left to right in a diagram.
enum class Place { Requester, Rnic, Visible, Domain, ResponderCpu };

std::string_view to_string(Place place);

/// One event: something moves from one place to another, or happens at one.
struct PathStep {
  Place from = Place::Requester;
  Place to = Place::Requester;
  std::string text;
};

/// What happens when the actions are taken in turn, the requester's own steps included.
std::vector<PathStep> make_path(const Program& program, const std::vector<Action>& actions);

/// What a power failure after the actions would leave of each item: "a: whole, b: torn".
std::string after_power_loss(const Program& program, const std::vector<Action>& actions);

}  // namespace perdure::check
