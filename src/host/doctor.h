// The doctor: `perdure probe --doctor`, a checklist of the machine as a peer of Perdure. Each check
// has a name, which is also its section in docs/hardware.md, a verdict, the evidence, and, unless
// all is well, what to do. It reads, changes nothing, and needs no privileges.
#pragma once

#include <perdure/result.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/system_tree.h"
#include "pmem/medium.h"
#include "pmem/pool.h"
#include "server/config.h"

namespace perdure::host {

/// The order is that of weight: of several findings a check tells the heaviest.
enum class Verdict {
  NotApplicable,  // there is nothing here that the question is about
  Ok,
  Advice,    // works and keeps what it promises; could be faster or better known
  NotKnown,  // could not be read, or made no sense; Perdure assumes the worse
  Problem,   // data can be lost, or something can not work at all
};

std::string_view to_string(Verdict verdict);

struct Check {
  explicit Check(std::string called) : name(std::move(called)) {}

  std::string name;
  Verdict verdict = Verdict::NotApplicable;
  std::string finding;                // one sentence
  std::vector<std::string> evidence;  // "FILE: what it said"
  std::string advice;                 // empty when there is nothing to do
  std::vector<std::string> commands;  // that do it, or that tell more
  std::string root_tells;             // what a run as root would tell beyond this; empty: nothing

  /// Takes this finding if it weighs more than what was found so far.
  void find(Verdict found, std::string sentence, std::string what_to_do = {},
            std::vector<std::string> by_commands = {});
  /// That nothing here is of that kind: not applicable, unless something was found before.
  void find_nothing(std::string sentence, std::string evidence_for_it);
  /// Takes over what was found of a part, which `prefix` names.
  void take(const Check& part, const std::string& prefix);
  /// Keeps what a file said as evidence, and gives it back.
  Reading keep(Reading reading);
};

/// What a pool's header says, and what can be seen of its file.
struct PoolThere {
  std::string name;                           // of the pool: of its file, without ".pool"
  std::optional<PersistenceDomain> declared;  // when it was made
  std::string unreadable;                     // why nothing is known of it; empty: it is
  bool forbidden = false;                     // that is for want of rights
  std::uint64_t bytes = 0;                    // of the whole file or device; 0: not known
  std::uint64_t data_bytes = 0;               // exported, as its header says
  /// Its receive buffers are in it, whatever the configuration says now (server/served_pool.h).
  bool has_receive_buffers = false;
  std::optional<pmem::PoolHolder> holder = std::nullopt;  // not set: not known
  /// Blocks that are reserved and were never written (pmem::unwritten_bytes).
  std::optional<std::uint64_t> unwritten_bytes = std::nullopt;
  /// What it lies on, where that is other than what the place does: its name is a link, or bound.
  std::optional<pmem::Medium> medium = std::nullopt;
  dev_t device = 0;        // as of the place
  bool is_unseen = false;  // it lies elsewhere, and on what can not be examined
  bool is_blank = false;   // no pool yet: a device that is zero
  std::optional<PersistenceDomain> relied_on = std::nullopt;  // see pmem::relied_on

  bool is_device() const { return medium && medium->is_device; }
};

/// Where the pools are or would be.
struct Place {
  std::string path;
  pmem::Medium medium;
  dev_t device = 0;              // of the file system; of the device itself for device DAX
  std::uint64_t pool_bytes = 0;  // of all pools there; 0 when there is none yet
  std::vector<PoolThere> pools;
  bool has_more = false;  // pools that are not looked at
};

/// What pools lie on, and what is declared of them: once for all in the place that are alike.
struct Storage {
  std::string pool;  // that lies elsewhere, or has a section of its own; empty: the others
  std::string path;
  pmem::Medium medium;
  dev_t device = 0;
  std::optional<PersistenceDomain> declared;           // see pmem::still_declared
  PersistenceDomain domain = PersistenceDomain::None;  // that perdured would work with

  /// For findings: "pool orders: ".
  std::string prefix() const { return pool.empty() ? "" : "pool " + pool + ": "; }
};

/// What the doctor looks at.
struct InspectedHost {
  SystemTree tree;
  Place place;
  std::string config_file = "/etc/perdure/perdured.toml";
  /// What the operator declares to perdured; NotFound where there is no such file.
  Result<server::Config> config = Error{ErrorCode::NotFound, "no configuration was read"};
  bool is_root = false;

  /// There is a configuration, and it can not be read: its defaults say nothing then.
  bool has_unread_config() const;
  /// Where the pools lie; without any, the place itself. At least one, unless none can be seen.
  std::vector<Storage> storages() const;
  /// The persistence domains that perdured would work with there.
  std::set<PersistenceDomain> domains() const;
  /// The configuration, or the one that perdured has without a file.
  server::Config settings() const;
  /// What it says of one pool.
  server::PoolSettings settings_of(const std::string& pool) const;
};

/// Looks at a place of this machine. `config_file` is that of perdured.
/// Errors  as pmem::probe(). A configuration that can not be read is a finding, not an error.
Result<InspectedHost> inspect_host(const std::string& path, const std::string& config_file);

/// Why a kernel of that release pins no pages of a pool on such a medium for an RNIC, so that only
/// one that pages on demand serves it; empty: it pins them. What is not known is not pinned. Pure.
std::string why_not_pinned(const pmem::Medium& medium, const std::string& kernel_release);

/// All checks, always the same ones in the same order.
std::vector<Check> check_host(const InspectedHost& inspected);

/// For a person, and as one JSON document.
std::string doctor_text(const InspectedHost& inspected, const std::vector<Check>& checks);
std::string doctor_json(const InspectedHost& inspected, const std::vector<Check>& checks);

}  // namespace perdure::host
