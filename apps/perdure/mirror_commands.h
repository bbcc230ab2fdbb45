// The parts of `perdure mirror`, and what they share.
#pragma once

#include <perdure/mirror.h>

#include "client/dial.h"
#include "commands.h"
#include "mirror/mirror_survey.h"
#include "output.h"
#include "peer_options.h"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <vector>

namespace perdure::app {

void add_mirror_survey(Command mirror);  // mirror_survey_command.cc: status and verify
void add_mirror_resync(Command mirror);  // mirror_resync_command.cc: resync and restore

/// The replicas of a mirror as they are read by the commands, with what they are reached by.
struct HeardMirror {
  client::Dialer dialer;
  std::vector<std::unique_ptr<client::Peer>> peers;
  mirror::MirrorSurvey survey;  // goes before the peers that it reads
};

/// Asks every peer what its pool says; changes nothing there.
/// Errors: InvalidArgument (addresses); those of the peers if none of them has a mirror in this
/// pool: NotFound with the pools that there are, or why the first could not be heard.
Result<std::unique_ptr<HeardMirror>> hear_mirror(const PeerOptions& options);

/// How the replicas of an open mirror stand, for a JSON document.
nlohmann::ordered_json replicas_json(const MirrorStatus& status);
/// Says on standard error, and in `format` on standard output, why nothing was done.
ExitStatus refuse(const Error& error, Format format);

}  // namespace perdure::app
