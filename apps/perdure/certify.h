// `perdure probe --certify PEER`: what an RNIC does beside the verbs, found out by using it.
#pragma once

#include "commands.h"
#include "output.h"

#include <string>

namespace perdure::app {

struct CertifyCommand {
  std::string peer;
  std::string pool;
  std::string transport = "auto";
  bool overwrite = false;
};

/// Prints the report. Failed if something does not hold.
ExitStatus run_certify(const CertifyCommand& command, Format format);

}  // namespace perdure::app
