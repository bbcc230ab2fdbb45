// A design with a bug to order: what shows that the suite would have noticed.
#pragma once

#include "rpc/models/design.h"

namespace perdure::rpc::models {

enum class Bug {
  None,                  // passes: so what is caught below is the bug
  ReplyOfTheCallBefore,  // the client hands out what it handed out before
  RequestSlotReused,     // the next request goes where the last one lies
  ReplySlotReused,       // the next reply goes where the last one lies
  ChecksumIgnored,       // a frame counts as there when its header is
  ExecutedTwice,         // now and then a request is executed again
  WriteNotDeclared,      // one more WRITE for each reply than is declared
};

/// WRITEs into slots both ways, with the bug. Lives as long as the program.
const Design& broken_design(Bug bug);

}  // namespace perdure::rpc::models
