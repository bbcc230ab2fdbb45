// ReplicaSurvey: the replicas of a log, read whole, without becoming its writer: for verification,
// and to find the one that holds most.
#pragma once

#include <perdure/result.h>

#include "client/dial.h"
#include "client/remote_bytes.h"
#include "log/recovery.h"
#include "output.h"
#include "peer_options.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perdure::app {

struct SurveyedReplica {
  std::string name;                      // the peer's address, or the file's path
  std::unique_ptr<ByteSource> bytes;     // nothing: it could not be reached or opened
  std::optional<log::Survey> survey;     // nothing: it could not be read
  std::optional<Error> error;            // why not
  std::string pool_uuid;                 // empty: it could not be reached or opened
  std::optional<ServerProfile> profile;  // of a peer's; by the transport that was used
  std::size_t message_bytes_max = 0;     // the same
  Epoch epoch;                           // the same: the highest that was granted
  bool writer_present = false;           // somebody appends at this moment
  std::string writer_name;
};

class ReplicaSurvey {
 public:
  /// Opens read sessions to all peers; what does not answer carries its error.
  void open_peers(const PeerOptions& options);
  /// Why none of the peers can be read, if it is that they all lack the pool.
  std::optional<Error> missing_pool() const;
  /// The file of a pool, without locking or changing it. Nothing may write to it meanwhile.
  void open_file(const std::string& path);

  /// Reads every replica from head to tail. Shows on a terminal how far it is.
  void read_all();
  /// Reads only what every replica says of its log: no record.
  void read_starts();

  const std::vector<SurveyedReplica>& replicas() const { return replicas_; }
  /// The replica that holds the log's history: of the highest epoch, and of those the longest.
  std::optional<std::size_t> best() const;
  /// Of peers that hold different logs nobody can tell which one is meant: a log that was deleted
  /// on the others may be of a higher epoch. Errors: InvalidArgument.
  Result<void> require_one_log(const std::string& pool) const;
  /// The configurations of that log that are in play, by what was read: by the states alone after
  /// read_starts(). Empty: no log was read.
  log::Configurations configurations() const;
  /// Whether it is a replica by one of these, as far as its pool is known.
  bool is_member(const SurveyedReplica& replica) const;
  /// Whether what was read surely has all that is committed, by the log's own quorum.
  /// Requires that a log was read.
  log::Choice choice() const;
  /// The log's replicas that are none of these, by the addresses at which they were admitted.
  std::vector<std::string> not_asked() const;

 private:
  client::Dialer dialer_;
  std::vector<std::unique_ptr<client::HttpPeer>> peers_;
  std::vector<SurveyedReplica> replicas_;
};

}  // namespace perdure::app
