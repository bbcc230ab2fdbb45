// The handles that more than one part of the C interface uses.
#pragma once

#include <perdure/log.h>

struct perdure_log {
  perdure::Log log;
};
