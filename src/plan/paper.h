// Tables 2 and 3 of the taxonomy (taxonomy paper) as data: 12 responders x 3 operations x 2 update
// shapes. What Perdure runs instead is in catalog.h; that both are right is for check to say.
#pragma once

#include "core/method.h"

#include <string>
#include <vector>

namespace perdure::plan {

/// One cell of a table: who the responder is, what is to be made durable by which operation, how.
struct Scenario {
  ServerProfile profile;
  Primary primary = Primary::Write;
  UpdateShape shape;
  Method method;
};

/// For example "dmp, ddio on, receive buffers dram, infiniband: write, compound".
std::string describe(const Scenario& scenario);

/// The 12 responders of table 1 in its order, with what the paper assumes: native FLUSH and ATOMIC
/// WRITE, and that WRITEs are placed in order.
std::vector<ServerProfile> paper_profiles(Transport transport);

/// All 72 scenarios: table 2, then table 3, each by responder, then Write, WriteImm, Send. Steps
/// are as published, "As above" resolved, table 3's stray FLUSH (MHP, DDIO off, DRAM, Send)
/// included; plain misprints ("Rq Send(ack)" for the responder's) are read as meant.
/// On iWARP and TCP the one-sided WSP methods become those of MHP (section 3.2, last paragraph).
std::vector<Scenario> paper_methods(Transport transport = Transport::InfiniBand);

}  // namespace perdure::plan
