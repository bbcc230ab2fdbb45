// The pools themselves: who has them and may make more, and what it takes to make a record of a
// file durable.
#include <fmt/format.h>

#include "core/byte_text.h"
#include "host/doctor_checks.h"

namespace perdure::host {
namespace {

using State = pmem::PoolHolder::State;

void find_header(const PoolThere& pool, Check& check) {
  if (pool.unreadable.empty()) {
    check.evidence.push_back(fmt::format("pool {}: its header and state are whole", pool.name));
    return check.find(Verdict::Ok, "the headers of the pools can be read");
  }
  check.evidence.push_back(fmt::format("pool {}: {}", pool.name, pool.unreadable));
  if (pool.is_blank) {
    return check.find(Verdict::Ok, fmt::format("pool {}: a device that is zero, on which a pool "
                                               "can be made",
                                               pool.name));
  }
  if (pool.forbidden) {
    check.root_tells = "what is in pools that only root may read";
    return check.find(Verdict::NotKnown, fmt::format("pool {} may not be read here", pool.name),
                      "ask as a user who may read it, or ask perdured",
                      {"sudo perdure probe --doctor", "perdure pool list"});
  }
  check.find(Verdict::Problem, fmt::format("pool {} can not be opened", pool.name),
             "bring it back from a replica or a copy; rename what is no pool",
             {"perdure pool list", "perdure pool describe --pool " + pool.name});
}

void find_owner(const PoolThere& pool, Check& check) {
  if (!pool.holder) {
    check.evidence.push_back(pool.unreadable);
    if (pool.forbidden) check.root_tells = "who has pools that only root may read";
    return check.find(Verdict::NotKnown,
                      fmt::format("who has pool {} can not be read here", pool.name),
                      "ask as a user who may read it, or ask perdured",
                      {"sudo perdure probe --doctor", "perdure pool list"});
  }
  const std::string& who = pool.holder->who;
  switch (pool.holder->state) {
    case State::Nobody:
      check.evidence.push_back(fmt::format("pool {}: nobody has its lock", pool.name));
      return check.find(Verdict::Ok, fmt::format("nobody has pool {} open", pool.name));
    case State::Ending:
      check.evidence.push_back(fmt::format("pool {}: its lock is free", pool.name));
      return check.find(Verdict::Advice,
                        fmt::format("{}, which had pool {}, has not ended: until then nobody gets "
                                    "the pool, for an RNIC may still write what it was told to",
                                    who, pool.name),
                        "wait for its end; a driver may keep it for a minute",
                        {"ps -o pid,stat,wchan,cmd -C perdured"});
    case State::Elsewhere:
      check.evidence.push_back(fmt::format("pool {}: its lease names {}", pool.name, who));
      return check.find(
          Verdict::NotKnown,
          fmt::format("pool {} was taken by {}: whether that lives shows only when the pool is "
                      "opened, which watches its counter for 3 s",
                      pool.name, who),
          "open it; if the owner can not write any more and it is refused all the same, take it "
          "over",
          {"perdured --take-over-device " + pool.name});
    case State::Held: break;
  }
  check.evidence.push_back(fmt::format("pool {}: its {} is held by {}", pool.name,
                                       pool.holder->by_lease_alone ? "lease" : "lock", who));
  check.find(Verdict::Ok,
             fmt::format("{} has pool {}{}", who, pool.name,
                         pool.holder->by_lease_alone
                             ? ", through another node of the device: file locks do not see each "
                               "other there, the lease in the pool keeps others out"
                             : ""));
}

void find_unwritten(const PoolThere& pool, Check& check) {
  if (!pool.unwritten_bytes) {
    check.evidence.push_back(
        fmt::format("pool {}: the file system does not tell which blocks were written", pool.name));
    return;
  }
  check.evidence.push_back(fmt::format("pool {}: {} of {} MiB are reserved and were never written",
                                       pool.name, mebibytes(*pool.unwritten_bytes),
                                       mebibytes(pool.bytes)));
  if (*pool.unwritten_bytes == 0) return;
  check.find(Verdict::Advice,
             fmt::format("pool {}: of {} MiB, {} were never written. The first record in each of "
                         "those blocks costs a write of the file system's journal, too",
                         pool.name, mebibytes(pool.bytes), mebibytes(*pool.unwritten_bytes)),
             "nothing, if records of a first round may be slower; else fill a log once before it "
             "counts. perdured itself writes the first 256 MiB of a new pool, as far as that goes "
             "in a second",
             {fmt::format("filefrag -v {}.pool", pool.name)});
}

}  // namespace

Check check_pool_header(const InspectedHost& inspected) {
  Check check{"pool-header"};
  for (const PoolThere& pool : inspected.place.pools) find_header(pool, check);
  if (inspected.place.has_more) {
    check.find(Verdict::NotKnown,
               fmt::format("there are more than {} pools, and the others were not looked at",
                           inspected.place.pools.size()),
               "examine each of the others by itself",
               {fmt::format("perdure probe --doctor {}/NAME.pool", inspected.place.path)});
  }
  check.find_nothing("no pool is here yet", inspected.place.path + ": has no pool");
  return check;
}

Check check_pool_owner(const InspectedHost& inspected) {
  Check check{"pool-owner"};
  for (const Storage& storage : inspected.storages()) {
    const std::string& local = storage.medium.local_locks;
    if (local.empty()) continue;
    check.evidence.push_back(storage.path + ": " + local);
    check.find(
        Verdict::Problem,
        storage.prefix() + local + ": another one could serve the same pool, so none is opened",
        "move the pools to a drive of this machine, or to a file system whose locks reach "
        "all who have it",
        {"findmnt -T " + storage.path});
  }
  for (const PoolThere& pool : inspected.place.pools) find_owner(pool, check);
  check.find_nothing("no pool is here yet", inspected.place.path + ": has no pool");
  return check;
}

Check check_pool_quota(const InspectedHost& inspected) {
  Check check{"pool-quota"};
  if (find_unread_config(inspected, check)) return check;
  const server::Config config = inspected.settings();
  const std::string limit =
      config.service.pool_bytes_max == 0 ? "no limit" : format_bytes(config.service.pool_bytes_max);
  check.evidence.push_back(fmt::format("allow_remote {}, pools_max {}, pool_bytes_max {}",
                                       config.allow_remote, config.service.pools_max, limit));
  for (const auto& [pool, settings] : config.service.settings_by_pool) {
    if (!settings.take_device) continue;
    check.evidence.push_back(fmt::format(
        "pool {}: take_device: whoever asks makes a pool of its device while that is blank", pool));
  }
  if (!config.allow_remote) {
    check.find(Verdict::Ok, "only this machine's programs can ask for pools");
  } else if (config.service.pool_bytes_max == 0) {
    check.find(Verdict::Advice,
               fmt::format("whoever reaches perdured can ask for pools until there are {} or the "
                           "file system is full",
                           config.service.pools_max),
               "say in [pools] how many bytes all of them may have: pool_bytes_max = \"SIZE\"",
               {"df -h " + inspected.place.path});
  } else {
    check.find(Verdict::Ok,
               fmt::format("{} pools at most, of {} together", config.service.pools_max, limit));
  }
  return check;
}

Check check_file_sync(const InspectedHost& inspected) {
  Check check{"file-sync"};
  if (!inspected.domains().contains(PersistenceDomain::Page)) {
    check.find_nothing("nothing here is made durable by a sync",
                       inspected.place.medium.evidence.front());
    return check;
  }
  check.evidence.push_back(inspected.place.medium.evidence.front());
  for (const PoolThere& pool : inspected.place.pools) {
    if (pool.unreadable.empty() && !pool.is_device()) find_unwritten(pool, check);
  }
  check.find(Verdict::Ok,
             "records are synced by msync, several runs of pages by one fdatasync, at any size: of "
             "the ways of Linux that is within 11 % of the best for what travels in messages");
  return check;
}

}  // namespace perdure::host
