// What a machine needs to be a target of librpmem's programs: see rpmem_doctor.h.
#include "rpmem_doctor.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "core/byte_text.h"
#include "core/try.h"
#include "host/doctor_checks.h"
#include "host/rdma_devices.h"
#include "rpmem/daemon_config.h"
#include "rpmem/set_file.h"

namespace perdure::app {
namespace {

using host::Check;
using host::InspectedHost;
using host::Reading;
using host::SystemTree;
using host::Verdict;

constexpr const char* kSystemConfig = "/etc/rpmemd/rpmemd.conf";
constexpr const char* kLimits = "/etc/security/limits.conf";
constexpr const char* kLimitsDirectory = "/etc/security/limits.d";
constexpr std::uint64_t kUnlimited = UINT64_MAX;
/// What a session has besides the pool: the receive buffers of both ends.
constexpr std::uint64_t kBesidesBytes = std::uint64_t{16} << 20;

/// What rpmemd reads, in its order.
Result<rpmem::DaemonConfig> config_of(const SystemTree& tree, const RpmemUser& user, Check* check) {
  rpmem::DaemonConfig config;
  for (const std::string& path : {std::string(kSystemConfig), user.home + "/.rpmemd.conf"}) {
    const Reading text = tree.read(path);
    if (check != nullptr) check->keep(text);
    if (!text.read()) continue;
    PERDURE_TRY_VOID(rpmem::read_config(config, text.text + "\n", path, user.home));
  }
  if (config.poolset_dir.empty()) config.poolset_dir = user.home;
  return config;
}

bool lies_in(const std::string& path, const rpmem::DaemonConfig& config) {
  std::vector<std::string> directories = config.part_dirs;
  directories.push_back(config.poolset_dir);
  return std::any_of(directories.begin(), directories.end(), [&](const std::string& each) {
    return path.starts_with(each.ends_with('/') ? each : each + "/");
  });
}

/// The set files of the user, as clients name them: in poolset-dir, and one level below.
std::vector<std::string> sets_in(const SystemTree& tree, const std::string& directory) {
  std::vector<std::string> found;
  const auto look = [&](const std::string& prefix) {
    for (const std::string& name : tree.names(fmt::format("{}/{}", directory, prefix))) {
      if (name.ends_with(".set")) found.push_back(prefix + name);
    }
  };
  look("");
  for (const std::string& name : tree.names(directory)) {
    if (!name.starts_with('.') && !name.ends_with(".set")) look(name + "/");
  }
  return found;
}

/// A set that can be served; nothing: what is wrong with it was found.
std::optional<rpmem::SetFile> find_set_of(const InspectedHost& inspected,
                                          const rpmem::DaemonConfig& config,
                                          const std::string& path, Check& check) {
  const Reading text = inspected.tree.read(path);
  const auto problem = [&](const std::string& what, const std::string& remedy) {
    check.evidence.push_back(text.evidence());
    check.find(Verdict::Problem, what, remedy, {"cat " + path});
  };
  if (!text.read()) {
    problem(path + ": can not be read", "let the user of rpmemd read it");
    return std::nullopt;
  }
  auto set = rpmem::parse_set_file(text.text + "\n", path);
  if (!set.ok()) {
    problem(set.error().message, "correct that line");
    return std::nullopt;
  }
  for (const rpmem::SetPart& part : set->parts) {
    if (lies_in(part.path, config)) continue;
    problem(fmt::format("{}:{}: the part {} lies in none of rpmemd's directories", path, part.line,
                        part.path),
            "name its directory as part-dir in rpmemd.conf, or move it");
    return std::nullopt;
  }
  check.evidence.emplace_back(
      fmt::format("{}: {}, a pool of {}", path,
                  set->parts.size() == 1 ? "1 part" : fmt::format("{} parts", set->parts.size()),
                  format_bytes(set->pool_bytes())));
  return std::move(*set);
}

std::uint64_t largest_pool(const InspectedHost& inspected, const RpmemUser& user) {
  Check unused{"unused"};
  const auto config = config_of(inspected.tree, user, nullptr);
  std::uint64_t largest = 0;
  if (!config.ok()) return largest;
  for (const std::string& name : sets_in(inspected.tree, config->poolset_dir)) {
    const auto set = find_set_of(inspected, *config, config->poolset_dir + "/" + name, unused);
    if (set) largest = std::max(largest, set->pool_bytes());
  }
  return largest;
}

/// A line of limits.conf(5) that sets how much memory may be locked, as it counts for the user.
struct Memlock {
  std::uint64_t bytes = 0;
  int weight = 0;  // of the domain: everybody, a group, the user
};

void read_limits(const std::string& text, const RpmemUser& user, std::optional<Memlock>& soft,
                 std::string& evidence) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto words = host::words_of(line.substr(0, line.find('#')));
    if (words.size() != 4 || words[2] != "memlock" || words[1] == "hard") continue;
    // limits.conf(5): of root only what names it counts.
    const int weight = words[0] == user.name                    ? 3
                       : words[0] == "@" + user.group           ? 2
                       : words[0] == "*" && user.name != "root" ? 1
                                                                : 0;
    if (weight == 0 || (soft && soft->weight > weight)) continue;
    const bool unlimited = words[3] == "unlimited" || words[3] == "infinity" || words[3] == "-1";
    const auto kibibytes = host::number_in(words[3]);
    if (!unlimited && !kibibytes) continue;
    soft = Memlock{unlimited ? kUnlimited : *kibibytes * 1024, weight};
    evidence = fmt::format("{}", fmt::join(words, " "));
  }
}

}  // namespace

Result<RpmemUser> this_user() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread so far
  const passwd* const user = ::getpwuid(::geteuid());
  if (user == nullptr) return Error{ErrorCode::NotFound, "this user has no name"};
  RpmemUser found{user->pw_name, "", user->pw_dir};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread so far
  const group* const first = ::getgrgid(user->pw_gid);
  if (first != nullptr) found.group = first->gr_name;
  return found;
}

std::string poolset_dir_of(const SystemTree& tree, const RpmemUser& user) {
  const auto config = config_of(tree, user, nullptr);
  return config.ok() ? config->poolset_dir : user.home;
}

Check check_rpmem_sets(const InspectedHost& inspected, const RpmemUser& user) {
  Check check{"rpmem-sets"};
  const auto config = config_of(inspected.tree, user, &check);
  if (!config.ok()) {
    check.find(Verdict::Problem, config.error().message, "correct that line of rpmemd.conf",
               {"man rpmemd"});
    return check;
  }
  const std::string& directory = config->poolset_dir;
  if (!inspected.tree.exists(directory)) {
    check.find(Verdict::Problem,
               fmt::format("poolset-dir {} is not there: every set is refused", directory),
               "make it, or name another one in rpmemd.conf", {"mkdir " + directory});
    return check;
  }
  const auto names = sets_in(inspected.tree, directory);
  for (const std::string& name : names) {
    (void)find_set_of(inspected, *config, fmt::format("{}/{}", directory, name), check);
  }
  if (names.empty()) {
    check.evidence.push_back(directory + ": no file there, or one level below, ends in .set");
    check.find(Verdict::Advice, fmt::format("no set in {}", directory),
               "write one for each replica, by the name that the client's set has for it",
               {fmt::format("printf 'PMEMPOOLSET\\n1G {0}/db.part0\\n' > {0}/db.set", directory)});
  }
  check.find(
      Verdict::Ok,
      fmt::format("{} to be served from {}",
                  names.size() == 1 ? "1 set" : fmt::format("{} sets", names.size()), directory));
  return check;
}

Check check_rpmem_user(const InspectedHost& inspected, const RpmemUser& user) {
  Check check{"rpmem-user"};
  const Reading passwd = inspected.tree.read("/etc/passwd");
  std::istringstream lines(passwd.text);
  std::string shell;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(user.name + ":")) shell = line.substr(line.rfind(':') + 1);
  }
  check.evidence.emplace_back(
      shell.empty() ? fmt::format("/etc/passwd: no shell of {}", user.name)
                    : fmt::format("/etc/passwd: the shell of {} is {}", user.name, shell));
  if (shell.ends_with("nologin") || shell.ends_with("/false")) {
    check.find(Verdict::Problem,
               fmt::format("{} has no shell, so that ssh can not run rpmemd as it", user.name),
               "give it one, or let clients name another user",
               {fmt::format("chsh -s /bin/sh {}", user.name)});
  }
  const std::string keys = user.home + "/.ssh/authorized_keys";
  const Reading authorized = inspected.tree.read(keys);
  check.evidence.push_back(authorized.read() ? keys + ": is there" : authorized.evidence());
  for (const std::string& path : {user.home, user.home + "/.ssh", keys}) {
    struct ::stat status = {};
    if (::stat(inspected.tree.below_root(path).c_str(), &status) != 0) continue;
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) continue;
    check.find(Verdict::Problem,
               fmt::format("{} can be written to by others: sshd takes no key from there", path),
               "take that right away", {fmt::format("chmod go-w {}", path)});
  }
  if (!authorized.read()) {
    check.find(Verdict::Advice,
               fmt::format("{} has no authorized_keys: a client needs another way in that asks "
                           "nothing (a certificate, Kerberos)",
                           user.name),
               "copy the client's key here",
               {fmt::format("ssh-copy-id {}@THIS_MACHINE   # on the client", user.name)});
  }
  const auto there = [&](const char* path) { return inspected.tree.exists(path); };
  if (!there("/usr/bin/rpmemd") && !there("/usr/local/bin/rpmemd") && !there("/bin/rpmemd")) {
    check.evidence.emplace_back("/usr/bin, /usr/local/bin, /bin: no rpmemd");
    check.find(Verdict::Advice, "rpmemd is not where ssh's commands are looked for",
               "install it there, or let clients name it", {"export RPMEM_CMD=/path/to/rpmemd"});
  }
  check.find(Verdict::Ok, fmt::format("{} can be reached, and finds rpmemd", user.name));
  return check;
}

Check check_rpmem_memlock(const InspectedHost& inspected, const RpmemUser& user) {
  Check check{"rpmem-memlock"};
  std::optional<Memlock> soft;
  std::vector<std::string> files{kLimits};
  for (const std::string& name : inspected.tree.names(kLimitsDirectory)) {
    if (name.ends_with(".conf")) files.push_back(fmt::format("{}/{}", kLimitsDirectory, name));
  }
  for (const std::string& file : files) {
    std::string line;
    const Reading text = inspected.tree.read(file);
    read_limits(text.text, user, soft, line);
    check.evidence.push_back(line.empty()
                                 ? fmt::format("{}: nothing of memlock for {}", file, user.name)
                                 : fmt::format("{}: {}", file, line));
  }
  if (host::rdma_devices(inspected.tree).empty()) {
    check.find_nothing("no RNIC: over tcp and shm nothing is locked", host::kNoRdmaDevice);
    return check;
  }
  const std::uint64_t needed = largest_pool(inspected, user) + kBesidesBytes;
  const std::string remedy = "raise it here and on the client, which locks its pool as well";
  const std::vector<std::string> commands{
      fmt::format("echo '{} - memlock unlimited' > {}/rpmem.conf", user.name, kLimitsDirectory),
      "perdure probe --doctor --rpmem   # on the client, too"};
  if (!soft) {
    check.find(Verdict::Problem,
               fmt::format("nothing lets {} lock the {} that a session takes: what the kernel "
                           "grants by itself is 8 MiB or less",
                           user.name, format_bytes(needed)),
               remedy, commands);
  } else if (soft->bytes < needed) {
    check.find(Verdict::Problem,
               fmt::format("{} may lock {}, and a session takes {}", user.name,
                           format_bytes(soft->bytes), format_bytes(needed)),
               remedy, commands);
  }
  const Reading sshd = check.keep(inspected.tree.read("/etc/ssh/sshd_config"));
  std::istringstream lines(sshd.text);
  bool pam = false;
  for (std::string line; std::getline(lines, line);) {
    const auto words = host::words_of(line);
    if (words.size() == 2 && words[0] == "UsePAM") pam = words[1] == "yes";
  }
  if (sshd.read() && !pam) {
    check.find(Verdict::Problem, "sshd does not use PAM, which is what applies limits.conf",
               "switch it on, or raise the limit of sshd itself",
               {"echo 'UsePAM yes' >> /etc/ssh/sshd_config",
                "systemctl edit ssh   # [Service] LimitMEMLOCK=infinity"});
  }
  check.find(Verdict::Ok,
             fmt::format("{} may lock what a session takes, {}", user.name, format_bytes(needed)));
  return check;
}

/// Non-allocating writes at each root port: on them rests what persist-apm declares; and on a READ
/// that pushes the writes before it out to the memory controller. The bus has that order, relaxed
/// or not (PCI Express Base 2.4.1, table of ordering rules); that the root complex keeps it up to
/// the memory controller is a matter of its firmware (rpmem document, "PCIe Read Fence of Previous
/// PCIe Writes").
Check check_rpmem_persist_apm(const InspectedHost& inspected, const RpmemUser& user) {
  Check check{"rpmem-persist-apm"};
  const auto config = config_of(inspected.tree, user, &check);
  if (!config.ok() || !config->persist_apm) {
    check.find(Verdict::Ok,
               "persist-apm is not set: the processor takes every write out of its caches");
    return check;
  }
  InspectedHost declared = inspected;
  server::Config settings = inspected.settings();
  settings.service.settings.ddio = Ddio::Off;
  declared.config = settings;
  const Check ddio = host::check_ddio(declared);
  check.evidence.insert(check.evidence.end(), ddio.evidence.begin(), ddio.evidence.end());
  if (ddio.verdict == Verdict::Problem || ddio.verdict == Verdict::NotKnown) {
    check.root_tells = ddio.root_tells;
    check.find(
        ddio.verdict,
        ddio.verdict == Verdict::Problem
            ? "persist-apm is set, but a root port allocates writes in the caches: what is "
              "reported durable can be lost"
            : "persist-apm is set, and is believed: whether the root port allocates writes "
              "in the caches can not be read",
        "take persist-apm away, or switch allocating writes off at that port; it is on again "
        "at every boot",
        ddio.commands);
  }
  check.find(Verdict::Ok, "persist-apm is set, and writes bypass the caches");
  return check;
}

std::vector<Check> check_rpmem(const InspectedHost& inspected, const RpmemUser& user) {
  return {check_rpmem_sets(inspected, user), check_rpmem_user(inspected, user),
          check_rpmem_memlock(inspected, user), check_rpmem_persist_apm(inspected, user)};
}

}  // namespace perdure::app
