// Recorder: the back-end of `perdure sim record`. What a program flushed, by lines that changed,
// and its drains go to a journal (journal.h) in a directory that the command has made:
//
//   journal      the journal
//   shadow.N     what file N holds as far as it was flushed: a line that is flushed and equals its
//                shadow is none that memory has to write. The command compares it with the file in
//                the end: what differs was changed, and its flush not seen
//
// Order: events of a thread are in the order of its calls; writes of a line by several threads in
// the order in which they were flushed.
#pragma once

#include "interpose/backend.h"

namespace perdure::interpose {

/// Of the journal in `directory`. Null: there is none, and a message says why.
/// Requires  it is called once.
Backend* record_into(const char* directory);

}  // namespace perdure::interpose
