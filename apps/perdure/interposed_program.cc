// Starting a program behind the interposer: see interposed_program.h.
#include "interposed_program.h"

#include "core/try.h"
#include "interpose/choice.h"
#include "signals.h"

#include <fmt/format.h>

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace perdure::app {
namespace {

constexpr int kScriptsMax = 4;  // of interpreters that are scripts; the kernel's limit too
constexpr std::size_t kProgramHeadersMax = 1024;

/// What the environment says; empty: nothing.
std::string environment_of(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT: before any thread
  return value == nullptr ? "" : value;
}

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), X_OK) == 0) return name;
    return Error{ErrorCode::NotFound,
                 fmt::format("'{}': {}", name, std::generic_category().message(errno))};
  }
  const std::string path = environment_of("PATH");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    std::string found = path.substr(begin, end - begin);
    found += (found.empty() ? "./" : "/") + name;
    if (::access(found.c_str(), X_OK) == 0) return found;
    begin = end + 1;
  }
  return Error{ErrorCode::NotFound, fmt::format("no program '{}' in PATH", name)};
}

Error unseen(const std::string& program, std::string_view why) {
  return {ErrorCode::Unsupported,
          fmt::format("'{}' {}: none of its calls would be seen", program, why)};
}

/// Whether the dynamic loader starts it, since nothing else preloads.
Result<void> check_elf(const std::string& program, std::ifstream& file) {
  Elf64_Ehdr header = {};
  file.seekg(0);
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!file || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return unseen(program, "is no program for this architecture (x86-64)");
  }
  const std::size_t count = std::min<std::size_t>(header.e_phnum, kProgramHeadersMax);
  for (std::size_t i = 0; i < count; ++i) {
    Elf64_Phdr part = {};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + i * header.e_phentsize));
    file.read(reinterpret_cast<char*>(&part), sizeof part);
    if (file && part.p_type == PT_INTERP) return {};
  }
  return unseen(program, "is linked statically");
}

/// A script's interpreter, or "": it is none.
std::string interpreter_of(std::ifstream& file) {
  std::string line;
  std::getline(file, line);
  file.clear();
  if (!line.starts_with("#!")) return "";
  const std::size_t begin = line.find_first_not_of(" \t", 2);
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

Result<void> check_interposable(std::string program) {
  for (int depth = 0; depth <= kScriptsMax; ++depth) {
    struct ::stat status = {};
    if (::stat(program.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      return Error{ErrorCode::NotFound, fmt::format("'{}' is no program", program)};
    }
    if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) {
      return unseen(program, "changes its user or group (setuid, setgid)");
    }
    std::ifstream file(program, std::ios::binary);
    std::array<char, SELFMAG> magic = {};
    file.read(magic.data(), magic.size());
    if (file && std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0) return check_elf(program, file);
    file.clear();
    file.seekg(0);
    const std::string interpreter = interpreter_of(file);
    if (interpreter.empty()) return unseen(program, "is neither a program nor a script");
    program = interpreter;
  }
  return unseen(program, "is a script of scripts");
}

/// Beside this program, where the build puts it, or where it is installed.
Result<std::string> find_interposer() {
  const std::string name = "libperdure-interpose.so";
  const std::string here = test::program_directory();
  for (const std::string& directory :
       {here, here + "/../../src/interpose", here + "/../" PERDURE_LIBRARY_DIRECTORY}) {
    std::string path = fmt::format("{}/{}", directory, name);
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return Error{ErrorCode::NotFound,
               fmt::format("there is no {} in '{}' or '{}/../{}': build the target "
                           "perdure_interpose, or install Perdure",
                           name, here, here, PERDURE_LIBRARY_DIRECTORY)};
}

}  // namespace

Result<std::string> find_interposable(const std::string& program) {
  PERDURE_TRY(found, find_program(program));
  PERDURE_TRY_VOID(check_interposable(found));
  return found;
}

Result<test::ChildEnd> run_interposed(const InterposedRun& run) {
  PERDURE_TRY(library, find_interposer());
  const std::string others = environment_of("LD_PRELOAD");
  if (!others.empty()) library = others + ":" + library;
  std::vector<std::string> command{"/usr/bin/env", "LD_PRELOAD=" + library,
                                   std::string(interpose::kVariable) + "=" + run.backend};
  command.insert(command.end(), run.command.begin(), run.command.end());
  const int output = run.output_to_error ? STDERR_FILENO : STDOUT_FILENO;
  pass_on_signals();
  PERDURE_TRY(program, test::ChildProcess::start(
                           command, test::ChildStreams{STDIN_FILENO, output, STDERR_FILENO},
                           test::ChildGroup::Shared));
  while (!program.wait(Deadline::after(std::chrono::milliseconds(100)))) {
    for (int number = next_signal(); number != 0; number = next_signal()) {
      program.signal(number);
      program.signal(SIGCONT);  // one that is stopped takes it then
    }
    if (run.meanwhile && !run.meanwhile()) program.kill();
  }
  return *program.end();
}

std::string describe(const test::ChildEnd& end) {
  if (end.status >= 0) return fmt::format("with status {}", end.status);
  return fmt::format("by signal {} ({})", end.signal, ::strsignal(end.signal));  // NOLINT
}

}  // namespace perdure::app
