// The page that a browser gets from a perdured: pools and sessions, renewed every two seconds.
#pragma once

#include <string_view>

namespace perdure::server {

/// Complete in itself: it loads nothing but this daemon's JSON.
std::string_view live_page();

}  // namespace perdure::server
