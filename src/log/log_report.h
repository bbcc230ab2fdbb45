// What a daemon may say of the log in a pool of its own, without reading a record.
#pragma once

#include <perdure/result.h>

#include <optional>

#include "control/service_types.h"
#include "core/byte_source.h"
#include "log/log_scan.h"

namespace perdure::log {

/// Requires a start that has an anchor.
control::LogReport report_of(const LogStart& start);

/// Nothing: the pool holds no log. Errors: those of read_start, except for a pool that is too
/// small: that holds none. Somebody may write there meanwhile; what is then found torn is Corrupt.
/// Cost: reads two pages, a few microseconds.
Result<std::optional<control::LogReport>> report_log(ByteSource& bytes);

}  // namespace perdure::log
