// RecordWriter: records on standard output, in the form that was asked for.
#pragma once

#include <perdure/log.h>

#include "output.h"

namespace perdure::app {

struct RecordWriterOptions {
  bool framed = false;           // u32 little-endian length, then the bytes
  bool raw = false;              // the bytes and nothing between
  bool index = false;            // lines: each begins with the record's index and a tab
  bool lsn = false;              // lines: each begins with the record's LSN and a tab
  Format format = Format::Text;  // Json: one object per line
};

/// Writes one record. Ends the program when it can not: see print.
void write_record(const Record& record, const RecordWriterOptions& options);

}  // namespace perdure::app
