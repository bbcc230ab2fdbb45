// Where the bytes of a trace come from: files, copies of pipes, text of tests.
#include "core/try.h"
#include "memsys/trace.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/errno_error.h"

namespace perdure::memsys {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Error unreadable(const std::string& path) {
  return errno_error(fmt::format("{} can not be read", path), errno);
}

class FileBytes final : public TraceBytes {
 public:
  FileBytes(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  Result<std::size_t> read(char* into, std::size_t count) override {
    for (;;) {
      const ssize_t got = ::read(::fileno(file_.get()), into, count);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) return unreadable(path_);
    }
  }

  Result<void> rewind() override {
    if (::lseek(::fileno(file_.get()), 0, SEEK_SET) != 0) return unreadable(path_);
    return {};
  }

 private:
  File file_;
  std::string path_;
};

class TextBytes final : public TraceBytes {
 public:
  explicit TextBytes(std::string_view text) : text_(text) {}

  Result<std::size_t> read(char* into, std::size_t count) override {
    const std::size_t got = std::min(count, text_.size() - at_);
    if (got > 0) std::memcpy(into, text_.data() + at_, got);
    at_ += got;
    return got;
  }

  Result<void> rewind() override {
    at_ = 0;
    return {};
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

/// The rest of `from`, in a file that nobody else sees.
Result<File> copy_of(std::FILE* from, const std::string& path) {
  File copy(std::tmpfile());
  if (!copy) return unreadable(path);
  char block[1 << 16];
  for (;;) {
    const std::size_t got = std::fread(block, 1, sizeof block, from);
    if (got == 0) break;
    if (std::fwrite(block, 1, got, copy.get()) != got) return unreadable(path);
  }
  if (std::ferror(from) != 0 || std::fflush(copy.get()) != 0) return unreadable(path);
  if (::lseek(::fileno(copy.get()), 0, SEEK_SET) != 0) return unreadable(path);
  return copy;
}

}  // namespace

Result<std::unique_ptr<TraceBytes>> open_trace(const std::string& path) {
  File file(std::fopen(path.c_str(), "rb"));
  if (!file) return unreadable(path);
  struct stat about {};
  if (::fstat(::fileno(file.get()), &about) != 0) return unreadable(path);
  if (S_ISDIR(about.st_mode)) {
    errno = EISDIR;
    return unreadable(path);
  }
  if (!S_ISREG(about.st_mode)) {
    PERDURE_TRY(copy, copy_of(file.get(), path));
    file = std::move(copy);
  }
  return std::unique_ptr<TraceBytes>(new FileBytes(std::move(file), path));
}

std::unique_ptr<TraceBytes> trace_of(std::string_view text) {
  return std::make_unique<TextBytes>(text);
}

}  // namespace perdure::memsys
