// The handles that more than one part of the C interface uses.
#pragma once

#include <perdure/log.h>

#include <optional>
#include <utility>

#include "capi/failure.h"

struct perdure_log {
  explicit perdure_log(perdure::Log log_opened) : opened(std::move(log_opened)), log(*opened) {}
  explicit perdure_log(perdure::Log* lent) : log(*lent) {}
  perdure_log(const perdure_log&) = delete;
  perdure_log& operator=(const perdure_log&) = delete;

  std::optional<perdure::Log> opened;  // nothing: it is lent, and somebody else's to close
  perdure::Log& log;
  perdure::capi::Origin origin = {};
};
