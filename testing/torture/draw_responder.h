// The machines of a world without a log's members: all alike, and drawn from its seed.
#pragma once

#include <perdure/profile.h>

#include "core/random.h"

namespace perdure::test {

/// A responder of any kind that the emulated fabric has.
ServerProfile draw_responder(Random& choices);

}  // namespace perdure::test
