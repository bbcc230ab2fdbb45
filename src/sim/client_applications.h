// Client applications: how often they write to another machine's memory and in how many epochs,
// read from a file (configs/workloads) and refused when it can not be.
#pragma once

#include "sim/network_run.h"

#include <string>
#include <string_view>
#include <vector>

namespace perdure::sim {

struct ClientApplication {
  std::string name;
  TransactionShape shape;  // without compute
  std::uint32_t clients = 1;
  double published = 0;  // BSP over Sync, in the BROI paper
  // Where the paper's number of transactions may not be the one that it means; else 0.
  std::uint64_t stated_transactions = 0;
  std::uint64_t meant_transactions = 0;
  // Where how many epochs a transaction has is recalled and not known: what is known; else 0.
  std::uint64_t epochs_least = 0;
  std::uint64_t epochs_most = 0;
};

/// A table for each application, in the order of the file.
/// Errors  InvalidArgument with file and line; NotFound, SystemError when it can not be read.
Result<std::vector<ClientApplication>> read_client_applications(const std::string& path);
Result<std::vector<ClientApplication>> parse_client_applications(std::string_view text,
                                                                 std::string name);

}  // namespace perdure::sim
