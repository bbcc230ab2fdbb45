// A forked piece of work and its answer, as one JSON text over a pipe.
#include "bench/child.h"

#include "core/json.h"
#include "core/try.h"
#include "testing/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

namespace perdure::bench {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  ~Pipe() {
    close_read();
    close_write();
  }
  void close_read() {
    if (read_end >= 0) ::close(read_end);
    read_end = -1;
  }
  void close_write() {
    if (write_end >= 0) ::close(write_end);
    write_end = -1;
  }
};

bool open_pipe(Pipe& pipe) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  pipe.read_end = ends[0];
  pipe.write_end = ends[1];
  return true;
}

void write_all(int file, const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t put = ::write(file, text.data() + at, text.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    at += static_cast<std::size_t>(put);
  }
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR && !test::InterruptGuard::interrupted()) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

int live(const ChildWork& work, const ChildPipes& pipes, int answer) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_IGN);  // the parent's
  const auto found = work(pipes);
  const nlohmann::json out = found.ok() ? nlohmann::json{{"ok", *found}}
                                        : nlohmann::json{{"code", static_cast<int>(found.code())},
                                                         {"message", found.error().message}};
  write_all(answer, json_text(out));
  return 0;
}

}  // namespace

Result<nlohmann::json> run_in_child(const ChildWork& work, const ParentWork& beside) {
  Pipe answer;
  Pipe up;
  Pipe down;
  if (!open_pipe(answer) || !open_pipe(up) || !open_pipe(down)) {
    return Error{ErrorCode::SystemError,
                 fmt::format("pipe: {}", std::generic_category().message(errno))};
  }
  PERDURE_TRY(child, test::ChildProcess::fork([&] {
                up.close_read();
                down.close_write();
                return live(work, {up.write_end, down.read_end}, answer.write_end);
              }));
  answer.close_write();
  up.close_write();
  down.close_read();
  const Result<void> done =
      beside ? beside({child.pid(), up.read_end, down.write_end}) : Result<void>();
  if (!done.ok()) child.kill();
  const std::string text = read_all(answer.read_end);
  if (test::InterruptGuard::interrupted()) child.kill();
  child.wait();
  PERDURE_TRY_VOID(test::InterruptGuard::check());
  const auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (parsed.is_object() && parsed.contains("ok")) {
    if (!done.ok()) return done.error();
    return parsed["ok"];
  }
  if (parsed.is_object() && parsed.contains("message")) {
    return Error{static_cast<ErrorCode>(parsed["code"].get<int>()),
                 parsed["message"].get<std::string>()};
  }
  if (!done.ok()) return done.error();
  return Error{ErrorCode::SystemError, "a process of the measurement died"};
}

Result<void> tell(int pipe) {
  if (::write(pipe, ".", 1) == 1) return {};
  return Error{ErrorCode::Disconnected, "the other process of the measurement has ended"};
}

Result<void> await_word(int pipe) {
  char word = 0;
  ssize_t got = 0;
  do {
    got = ::read(pipe, &word, 1);
  } while (got < 0 && errno == EINTR && !test::InterruptGuard::interrupted());
  if (got == 1) return {};
  return Error{ErrorCode::Disconnected, "the other process of the measurement has ended"};
}

}  // namespace perdure::bench
