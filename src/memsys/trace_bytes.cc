// Where the bytes of a trace come from: files, copies of pipes, text of tests.
#include "core/try.h"
#include "memsys/trace.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

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

constexpr std::size_t kCopyBlockBytes = 1 << 16;
constexpr std::uint64_t kSpaceAskedEvery = std::uint64_t{64} << 20;  // bytes
constexpr std::uint64_t kSpaceLeft = std::uint64_t{256} << 20;       // bytes of the file system

/// What is copied block by block, and whether to go on.
class Copied {
 public:
  Copied(const std::string& path, int to, std::uint64_t bytes_max)
      : path_(path), to_(to), bytes_max_(bytes_max) {}

  Result<void> add(std::string_view block) {
    for (std::size_t begin = 0; begin < block.size();) {
      const std::size_t newline = block.find('\n', begin);
      const std::size_t end = std::min(newline, block.size());
      line_bytes_ += end - begin;
      if (line_bytes_ > kTraceLineBytesMax) {
        return refuse(
            fmt::format("{}:{}: a line of more than {} bytes", path_, line_, kTraceLineBytesMax));
      }
      if (newline == block.npos) break;
      line_bytes_ = 0;
      ++line_;
      begin = end + 1;
    }
    bytes_ += block.size();
    if (bytes_ > bytes_max_) {
      return refuse(
          fmt::format("{}: more than {} bytes come out of it, which is no file and would "
                      "have to be copied; write them to a file and name that",
                      path_, bytes_max_));
    }
    return leave_room(block.size());
  }

 private:
  static Error refuse(std::string what) { return {ErrorCode::InvalidArgument, std::move(what)}; }

  Result<void> leave_room(std::size_t more) {
    unasked_ += more;
    if (unasked_ < kSpaceAskedEvery) return {};
    unasked_ = 0;
    struct statvfs about {};
    if (::fstatvfs(to_, &about) != 0) return unreadable(path_);
    if (std::uint64_t{about.f_bavail} * about.f_frsize >= kSpaceLeft) return {};
    return Error{ErrorCode::NoSpace,
                 fmt::format("{}: it is no file, and its copy of {} bytes so far leaves less than "
                             "{} bytes where temporary files are; write it to a file and name that",
                             path_, bytes_, kSpaceLeft)};
  }

  const std::string& path_;
  const int to_;
  const std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 0;
  std::uint64_t unasked_ = 0;
  std::uint64_t line_ = 1;
  std::uint64_t line_bytes_ = 0;
};

/// The rest of `from`, in a file that nobody else sees.
Result<File> copy_of(std::FILE* from, const std::string& path, std::uint64_t bytes_max) {
  const auto not_copied = [&] {
    return errno_error(fmt::format("{} is no file, and can not be copied to one", path), errno);
  };
  File copy(std::tmpfile());
  if (!copy) return not_copied();
  Copied copied(path, ::fileno(copy.get()), bytes_max);
  std::vector<char> block(kCopyBlockBytes);
  for (;;) {
    const std::size_t got = std::fread(block.data(), 1, block.size(), from);
    if (got == 0) break;
    PERDURE_TRY_VOID(copied.add({block.data(), got}));
    if (std::fwrite(block.data(), 1, got, copy.get()) != got) return not_copied();
  }
  if (std::ferror(from) != 0) return unreadable(path);
  if (std::fflush(copy.get()) != 0) return not_copied();
  if (::lseek(::fileno(copy.get()), 0, SEEK_SET) != 0) return unreadable(path);
  return copy;
}

}  // namespace

Result<std::unique_ptr<TraceBytes>> open_trace(const std::string& path, std::uint64_t copied_max) {
  File file(std::fopen(path == "-" ? "/dev/stdin" : path.c_str(), "rb"));
  if (!file) return unreadable(path);
  struct stat about {};
  if (::fstat(::fileno(file.get()), &about) != 0) return unreadable(path);
  if (S_ISDIR(about.st_mode)) {
    errno = EISDIR;
    return unreadable(path);
  }
  if (!S_ISREG(about.st_mode)) {
    PERDURE_TRY(copy, copy_of(file.get(), path, copied_max));
    file = std::move(copy);
  }
  return std::unique_ptr<TraceBytes>(new FileBytes(std::move(file), path));
}

std::unique_ptr<TraceBytes> trace_of(std::string_view text) {
  return std::make_unique<TextBytes>(text);
}

}  // namespace perdure::memsys
