// Reading and cutting the input. The buffer holds at most one record and one read beyond it.
#include "record_source.h"

#include "core/bytes.h"
#include "core/try.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace perdure::app {
namespace {

constexpr std::size_t kReadBytes = 256 * 1024;
constexpr std::size_t kFramePrefixBytes = 4;

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

RecordSource::RecordSource(RecordSourceOptions options) : options_(std::move(options)) {
  buffer_.resize(2 * kReadBytes);
}

RecordSource::~RecordSource() {
  if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
}

/// False when there is no other file.
Result<bool> RecordSource::open_next_file() {
  if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
  descriptor_ = -1;
  if (files_opened_ >= std::max<std::size_t>(options_.files.size(), 1)) return false;
  const std::string path = options_.files.empty() ? "-" : options_.files[files_opened_];
  place_ = {files_opened_, 1};  // where reading stands if it can not be opened
  descriptor_ = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    const int error = errno;
    return Error{error == ENOENT ? ErrorCode::NotFound : ErrorCode::SystemError,
                 fmt::format("can not read '{}': {}; give a file of records, or - for standard "
                             "input",
                             path, reason(error))};
  }
  place_ = {files_opened_, 0};
  ++files_opened_;
  at_end_of_file_ = false;
  return true;
}

Result<RecordSource::State> RecordSource::next() {
  while (true) {
    if (descriptor_ < 0) {
      PERDURE_TRY(opened, open_next_file());
      if (!opened) return State::End;
    }
    PERDURE_TRY(taken, options_.framed ? take_frame() : take_line());
    if (taken) return *taken;
    if (at_end_of_file_) {
      begin_ = end_ = searched_ = 0;
      PERDURE_TRY(opened, open_next_file());
      if (!opened) return State::End;
      continue;
    }
    PERDURE_TRY(state, fill());
    if (state == State::Wait) return State::Wait;
  }
}

/// Reads once, if that does not block. Record: there is more, or the file ended.
Result<RecordSource::State> RecordSource::fill() {
  pollfd ready{descriptor_, POLLIN, 0};
  const int polled = ::poll(&ready, 1, 0);
  if (polled == 0 || (polled < 0 && errno == EINTR)) return State::Wait;
  if (begin_ > 0 && buffer_.size() - end_ < kReadBytes) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    searched_ -= std::min(searched_, begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < kReadBytes) buffer_.resize(buffer_.size() * 2);
  const ssize_t got = ::read(descriptor_, buffer_.data() + end_, kReadBytes);
  if (got < 0) {
    const int error = errno;
    if (error == EINTR || error == EAGAIN) return State::Wait;
    return wrong(fmt::format("can not be read: {}", reason(error)));
  }
  if (got == 0) at_end_of_file_ = true;
  end_ += static_cast<std::size_t>(got);
  return State::Record;
}

/// The next `length` bytes after `skip` are a record; `consume` bytes of input are used up.
RecordSource::State RecordSource::give(std::size_t skip, std::size_t length, std::size_t consume) {
  record_ = {std::span<const std::byte>(buffer_).subspan(begin_ + skip, length), place_};
  begin_ += consume;
  searched_ = begin_;
  return State::Record;
}

Result<std::optional<RecordSource::State>> RecordSource::take_line() {
  using Taken = std::optional<State>;
  while (true) {
    const std::size_t from = std::max(begin_, searched_);
    const void* found =
        from < end_ ? std::memchr(buffer_.data() + from, '\n', end_ - from) : nullptr;
    searched_ = end_;
    const std::size_t stop =
        found != nullptr
            ? static_cast<std::size_t>(static_cast<const std::byte*>(found) - buffer_.data())
            : end_;
    const bool last = found == nullptr && at_end_of_file_ && end_ > begin_;
    const std::size_t newline = found != nullptr ? 1 : 0;
    const std::size_t length = stop - begin_ + (options_.keep_newline ? newline : 0);
    if (length > options_.record_bytes_max) {
      ++place_.number;
      return wrong(
          fmt::format("has more than {} bytes, the most a record may have here; give "
                      "--record-bytes-max, or cut it",
                      options_.record_bytes_max));
    }
    if (found == nullptr && !last) return Taken{};
    ++place_.number;
    const std::size_t consume = stop - begin_ + newline;
    if (length > 0) return Taken{give(0, length, consume)};
    ++empty_lines_;
    begin_ += consume;
    searched_ = begin_;
  }
}

Result<std::optional<RecordSource::State>> RecordSource::take_frame() {
  using Taken = std::optional<State>;
  const std::size_t have = end_ - begin_;
  if (have == 0) return Taken{};
  if (have >= kFramePrefixBytes) {
    const auto length = load<std::uint32_t>(buffer_.data() + begin_);
    if (length == 0 || length > options_.record_bytes_max) {
      ++place_.number;
      return wrong(
          fmt::format("says that it has {} bytes; a record has 1 to {}: is the input "
                      "framed (u32 little-endian length, then the bytes)?",
                      length, options_.record_bytes_max));
    }
    if (have - kFramePrefixBytes >= length) {
      ++place_.number;
      return Taken{give(kFramePrefixBytes, length, kFramePrefixBytes + length)};
    }
  }
  if (!at_end_of_file_) return Taken{};
  ++place_.number;
  return wrong(fmt::format("is cut off after {} bytes", have));
}

void RecordSource::wait(int milliseconds) {
  pollfd ready{descriptor_, POLLIN, 0};
  (void)::poll(&ready, 1, milliseconds);
}

std::string RecordSource::describe(const InputPlace& place) const {
  const std::string_view unit = options_.framed ? "record" : "line";
  const bool input = options_.files.empty() || options_.files[place.file] == "-";
  return fmt::format("{} {} of {}", unit, place.number,
                     input ? "standard input" : "'" + options_.files[place.file] + "'");
}

Error RecordSource::wrong(std::string what) const {
  return Error{ErrorCode::InvalidArgument, fmt::format("{} {}", describe(place_), what)};
}

}  // namespace perdure::app
