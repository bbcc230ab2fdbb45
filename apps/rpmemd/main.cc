// rpmemd: serves the replica of one client, which runs it over ssh and speaks to it over its
// standard input and output (src/rpmem/control.h). Ends when its client does.
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <perdure/messages.h>

#include "command_line/command_line.h"
#include "control/version.h"
#include "core/errno_error.h"
#include "core/log_message.h"
#include "core/text_file.h"
#include "core/try.h"
#include "fabric/open_device.h"
#include "listener.h"
#include "rpmem/asked_command.h"
#include "rpmem/channel.h"
#include "rpmem/daemon_config.h"
#include "rpmem/pool_host.h"

namespace perdure::rpmem {
namespace {

constexpr int kExitUsage = 2;
constexpr std::size_t kConfigBytesMax = 64 * 1024;
constexpr const char* kSystemConfig = "/etc/rpmemd/rpmemd.conf";
constexpr Nanoseconds kSendWithin = std::chrono::seconds(30);
constexpr int kReportDescriptorMax = 1023;
constexpr Nanoseconds kFirstRequestWithin = std::chrono::seconds(5);  // of a client of perdured's

constexpr const char* kFooter = R"(
librpmem.so.1 runs it over ssh; by hand it is of use with --remove:
  rpmemd --remove mirrors/db.set
      remove the part files of a set below poolset-dir
  rpmemd --remove mirrors/db.set --force --pool-set
      also when some are gone, and the set file with them

/etc/rpmemd/rpmemd.conf and ~/.rpmemd.conf have `key = value` lines: rpmemd(8).
)";

struct Arguments {
  std::string config;
  std::string removed;
  bool removing = false;
  std::uint64_t threads = 0;
  bool force = false;
  bool pool_set = false;
  bool persist_apm = false;
  bool persist_general = false;
  bool use_syslog = false;
  std::string log_file;
  std::string log_level;
  std::string poolset_dir;
  std::vector<std::string> part_dirs;
  std::string declared;
  std::string listen;
  std::uint64_t report_to = 0;  // 0: to nobody
};

void describe(const app::Program& program, Arguments& to) {
  program.footer(kFooter);
  program.set_version("rpmemd " + std::string(control::version()) + " (Perdure)", "-V,--version");
  program.add_option("-c,--config", to.config, "read this file in place of the usual two");
  const app::Option remove =
      program.add_option("-r,--remove", to.removed, "remove the parts of a set, and end")
          .type_name("SET");
  program.add_flag("-f,--force", to.force, "what is gone is no error").needs(remove);
  program.add_flag("-s,--pool-set", to.pool_set, "remove the set file as well").needs(remove);
  program.add_option("-t,--nthreads", to.threads, "taken, and of no effect").whole_number();
  program.add_option("--poolset-dir", to.poolset_dir, "directory of the set files")
      .type_name("DIR");
  program.add_option("--part-dir", to.part_dirs, "parts may lie there, too").type_name("DIR");
  program
      .add_option("--listen", to.listen,
                  "in ssh's place: start an rpmemd for each client that perdure-rpmem-connect "
                  "brings to this address of loopback")
      .type_name("HOST:PORT");
  program
      .add_option("--report-to", to.report_to,
                  "of who starts it: write which set the client has to this open descriptor")
      .type_name("FD")
      .range(std::uint64_t{STDERR_FILENO + 1}, std::uint64_t{kReportDescriptorMax});
  program.add_option("--log-file", to.log_file, "write messages there");
  program.add_option("--log-level", to.log_level, "err, warn, notice, info or debug");
  program.add_flag("--use-syslog", to.use_syslog, "write messages to the system's log");
  program.add_flag("--persist-apm", to.persist_apm,
                   "inbound DMA bypasses the processor's caches (DDIO is off)");
  program.add_flag("--persist-general", to.persist_general, "taken, and of no effect");
  program
      .add_option("--declare-domain", to.declared,
                  "what survives a power failure: page, dmp, mhp or wsp")
      .type_name("DOMAIN");
}

/// Empty where it is not set.
std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread so far
  return value == nullptr ? "" : value;
}

std::string home_directory() {
  std::string home = variable("HOME");
  if (home.starts_with('/')) return home;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread so far
  const passwd* const user = ::getpwuid(::getuid());
  return user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "/";
}

Result<void> read_file(DaemonConfig& config, const std::string& path, bool must_be_there,
                       const std::string& home) {
  auto text = load_text(path, kConfigBytesMax);
  if (!text && !must_be_there && text.code() == ErrorCode::NotFound) return {};
  if (!text) {
    return Error{text.code(), fmt::format("{}; correct that, or name another file with --config",
                                          text.error().message)};
  }
  return read_config(config, *text, path, home);
}

/// The files, with the command line on top.
Result<DaemonConfig> assemble(const Arguments& from) {
  const std::string home = home_directory();
  DaemonConfig config;
  if (from.config.empty()) {
    PERDURE_TRY_VOID(read_file(config, kSystemConfig, false, home));
    PERDURE_TRY_VOID(read_file(config, home + "/.rpmemd.conf", false, home));
  } else {
    PERDURE_TRY_VOID(read_file(config, from.config, true, home));
  }
  const auto set = [&](const char* key, const std::string& value) -> Result<void> {
    return value.empty() ? Result<void>{} : set_config(config, key, value, home);
  };
  PERDURE_TRY_VOID(set("poolset-dir", from.poolset_dir));
  PERDURE_TRY_VOID(set("log-file", from.log_file));
  PERDURE_TRY_VOID(set("log-level", from.log_level));
  PERDURE_TRY_VOID(set("declare-domain", from.declared));
  PERDURE_TRY_VOID(set("persist-apm", from.persist_apm ? "yes" : ""));
  PERDURE_TRY_VOID(set("use-syslog", from.use_syslog ? "yes" : ""));
  for (const std::string& each : from.part_dirs) PERDURE_TRY_VOID(set("part-dir", each));
  if (config.poolset_dir.empty()) config.poolset_dir = home;
  // What PMDK's libraries take as the operator's word for the same.
  if (!config.declared && variable("PMEM_IS_PMEM_FORCE") == "1") {
    config.declared = PersistenceDomain::Dmp;
  }
  return config;
}

int severity_of(Severity severity) {
  switch (severity) {
    case Severity::Debug: return LOG_DEBUG;
    case Severity::Info: return LOG_INFO;
    case Severity::Warning: return LOG_WARNING;
    case Severity::Error: return LOG_ERR;
  }
  return LOG_INFO;
}

int least_of(LogLevel level) {
  switch (level) {
    case LogLevel::Error: return LOG_ERR;
    case LogLevel::Warning: return LOG_WARNING;
    case LogLevel::Notice: return LOG_NOTICE;
    case LogLevel::Info: return LOG_INFO;
    case LogLevel::Debug: return LOG_DEBUG;
  }
  return LOG_ERR;
}

Result<void> begin_logging(const DaemonConfig& config) {
  const int least = least_of(config.log_level);
  if (config.use_syslog) {
    ::openlog("rpmemd", LOG_PID, LOG_DAEMON);
    set_message_callback([least](Severity severity, const std::string& message) {
      if (severity_of(severity) <= least) ::syslog(severity_of(severity), "%s", message.c_str());
    });
    return {};
  }
  if (config.log_file.empty()) return {};
  std::FILE* const file = std::fopen(config.log_file.c_str(), "ae");
  if (file == nullptr) {
    const Error why =
        errno_error(fmt::format("log-file '{}' can not be written to", config.log_file), errno);
    return Error{why.code,
                 why.message + "; name another one, or none: then syslog has the messages"};
  }
  set_message_callback([least, file](Severity severity, const std::string& message) {
    if (severity_of(severity) > least) return;
    fmt::print(file, "rpmemd[{}]: {}\n", ::getpid(), message);
    std::fflush(file);
  });
  return {};
}

int errno_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::NotFound: return ENOENT;
    case ErrorCode::PermissionDenied: return EACCES;
    case ErrorCode::Busy: return EBUSY;
    case ErrorCode::InvalidArgument:
    case ErrorCode::Corrupt:
    case ErrorCode::Unsupported: return EINVAL;
    default: return EIO;
  }
}

int remove_set(const DaemonConfig& config, const Arguments& arguments) {
  const auto removed = [&]() -> Result<void> {
    PERDURE_TRY(
        set, read_set({config.poolset_dir, config.part_dirs}, arguments.removed, arguments.force));
    return PartSet::remove(set, arguments.force, arguments.pool_set);
  }();
  const bool gone = arguments.force && !removed.ok() && removed.code() == ErrorCode::NotFound;
  if (removed.ok() || gone) {
    fmt::print("{}", kRemoved);
    return std::fflush(stdout) == 0 ? 0 : EIO;
  }
  fmt::print(stderr, "rpmemd: {}\n", removed.error().message);
  return errno_of(removed.code());
}

/// The address at which the client reached sshd: the data plane listens there. On loopback where
/// nobody says so.
std::string listen_host() {
  std::istringstream words(variable("SSH_CONNECTION"));  // client, its port, server, its port
  std::string client;
  std::string port;
  std::string server;
  return words >> client >> port >> server ? server : "127.0.0.1";
}

PoolHostOptions host_options(const DaemonConfig& config) {
  PoolHostOptions options;
  options.directories = {config.poolset_dir, config.part_dirs};
  options.region.declared = config.declared;
  options.service.settings.ddio = config.persist_apm ? Ddio::Off : Ddio::On;
  options.listen_host = listen_host();
  return options;
}

/// Asked before any file is opened, which could have the number.
bool is_pipe(int descriptor) {
  struct stat about {};
  return ::fstat(descriptor, &about) == 0 && S_ISFIFO(about.st_mode);
}

/// Says to who started this rpmemd which set the client has now. A pipe takes it whole, and who has
/// gone does not miss it.
void report_set(int to, const Frame& request, const Frame& answer) {
  const bool opens = request.kind == FrameKind::Create || request.kind == FrameKind::Open;
  if (to == 0 || !opens || answer.kind != FrameKind::Done) return;
  const auto ask = decode_pool_ask(request.body);
  if (!ask.ok()) return;
  const std::string line = reported_set(ask->set);
  [[maybe_unused]] const auto written = ::write(to, line.data(), line.size());
}

/// Until the client closes the pool, or is gone.
int serve(const DaemonConfig& config, Channel& channel, int report_to) {
  const Hello hello{std::string(control::version()), control::host_identity()};
  if (!channel.send({FrameKind::Hello, encode(hello)}, Deadline::after(kSendWithin))) return 1;
  PoolHost host(host_options(config));
  // Who is started for anybody who comes has a limited number of places.
  std::optional<Deadline> within;
  if (report_to != 0) within = Deadline::after(kFirstRequestWithin);
  while (!host.closed()) {
    const auto request = channel.receive(within);
    // The client is gone, and may come again at once: the locks on the parts end with the process,
    // and all that was acknowledged is durable.
    if (!request.ok()) {
      host.remove_unused();
      if (request.code() == ErrorCode::Disconnected) ::_exit(0);
      log_message(Severity::Error, "the client is not served: " + request.error().message);
      ::_exit(EPROTO);
    }
    const Frame answer = host.handle(*request);
    report_set(report_to, *request, answer);
    if (host.serves()) within.reset();
    if (!channel.send(answer, Deadline::after(kSendWithin))) {
      host.remove_unused();
      return 0;
    }
  }
  return 0;
}

/// Frames go where standard output went, and nothing else does: a library may print. Below zero:
/// errno says why not.
int take_output() {
  const int taken = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (taken < 0) return taken;
  (void)::dup2(STDERR_FILENO, STDOUT_FILENO);
  return taken;
}

int run_as(const Arguments& arguments);

/// For each client the configuration is read again.
ListenerOptions listener_options(const Arguments& from) {
  ListenerOptions options;
  options.listen = from.listen;
  options.run = [from](const std::vector<std::string>& words) {
    Arguments own = from;
    own.listen.clear();
    for (std::size_t index = 0; index < words.size(); ++index) {
      if (words[index] == "--remove") {
        own.removing = true;
        own.removed = words[++index];
      }
      own.force = own.force || words[index] == "--force";
      own.pool_set = own.pool_set || words[index] == "--pool-set";
    }
    return run_as(own);
  };
  return options;
}

int run_as(const Arguments& arguments) {
  auto config = assemble(arguments);
  if (config.ok()) {
    const auto logs = begin_logging(*config);
    if (!logs.ok()) config = logs.error();
  }
  if (arguments.removing) {
    if (config.ok()) return remove_set(*config, arguments);
    fmt::print(stderr, "rpmemd: {}\n", config.error().message);
    return EINVAL;
  }
  if (!arguments.listen.empty()) {
    // Else each client would wait until its rpmemd has libfabric.
    if (config.ok()) fabric::prepare_to_open(Transport::Tcp);
    const auto listened =
        config.ok() ? listen_for_clients(listener_options(arguments)) : config.error();
    fmt::print(stderr, "rpmemd: {}\n", listened.error().message);
    return kExitUsage;
  }
  const int output = take_output();
  if (output < 0) {
    fmt::print(stderr, "rpmemd: a client is not served: {}\n",
               errno_error("output", errno).message);
    return kExitUsage;
  }
  Channel channel(STDIN_FILENO, output);
  if (config.ok()) return serve(*config, channel, static_cast<int>(arguments.report_to));
  (void)channel.send({FrameKind::Refused, control::encode(config.error())},
                     Deadline::after(kSendWithin));
  fmt::print(stderr, "rpmemd: {}\n", config.error().message);
  return kExitUsage;
}

int run(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  app::Program program("Serves a replica of memory to a program elsewhere, for librpmem.",
                       "rpmemd");
  Arguments arguments;
  describe(program, arguments);
  switch (program.parse(argc, argv)) {
    case app::Program::Parsed::Right:
      if (arguments.report_to != 0 && !is_pipe(static_cast<int>(arguments.report_to))) {
        fmt::print(stderr,
                   "rpmemd: --report-to {}: that is no open pipe; it is for who starts this "
                   "program, leave it out\n",
                   arguments.report_to);
        return kExitUsage;
      }
      arguments.removing = program.is_written("--remove");
      return run_as(arguments);
    case app::Program::Parsed::Answered: return 0;
    case app::Program::Parsed::Wrong: break;
  }
  return kExitUsage;
}

}  // namespace
}  // namespace perdure::rpmem

int main(int argc, char** argv) { return perdure::rpmem::run(argc, argv); }
