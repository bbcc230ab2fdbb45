// What the tests of this directory share: places to put files, and children to be killed in.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "testing/process.h"
#include "testing/temporary_directory.h"

namespace perdure::pmem {

using test::TestDirectory;

inline constexpr char kMemoryFileSystem[] = "/dev/shm";

/// Runs `body` in a forked process. Returns what it returned: empty for success, else the reason.
inline std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "pipe failed";
  auto child = test::ChildProcess::fork([&] {
    const std::string answer = body();
    const ssize_t written = ::write(ends[1], answer.data(), answer.size());
    return written == static_cast<ssize_t>(answer.size()) ? 0 : 1;
  });
  ::close(ends[1]);
  if (!child.ok()) return child.error().message;
  std::string answer;
  char buffer[512];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  child->wait();
  const test::ChildEnd end = *child->end();
  if (end.signal != 0) return answer + " (ended by signal)";
  return end.status == 0 ? answer : answer + " (exit " + std::to_string(end.status) + ")";
}

/// A forked process that runs `body` and then lives on until it is killed.
class HeldChild {
 public:
  explicit HeldChild(const std::function<bool()>& body) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    auto forked = test::ChildProcess::fork([&]() -> int {
      const char answer = body() ? 'y' : 'n';
      if (::write(ends[1], &answer, 1) != 1) return 1;
      for (;;) ::pause();
    });
    if (forked.ok()) process_ = std::move(forked).value();
    ::close(ends[1]);
    char answer = 'n';
    ready_ = ::read(ends[0], &answer, 1) == 1 && answer == 'y';
    ::close(ends[0]);
  }

  bool ready() const { return ready_; }
  pid_t pid() const { return process_.pid(); }
  void signal(int number) const { process_.signal(number); }
  /// kill -9, and waits until it is gone.
  void kill() { process_.kill(); }

 private:
  test::ChildProcess process_;
  bool ready_ = false;
};

inline std::vector<char> read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_all(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace perdure::pmem
