// Journals of recorded programs: see recorded_journal.h.
#include "recorded_journal.h"

#include "core/errno_error.h"
#include "core/printable.h"
#include "core/try.h"
#include "interpose/journal.h"
#include "unflushed_lines.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <utility>

namespace perdure::app {
namespace {

using interpose::JournalEvent;
using interpose::JournalHeader;
using interpose::JournalKind;

constexpr std::uint64_t kFileAlignment = 2 * 1024 * 1024;

Error system_error(const std::string& what) { return errno_error(what, errno); }

/// The journal, mapped.
class Journal {
 public:
  Journal() = default;
  ~Journal() {
    if (bytes_ != nullptr) ::munmap(bytes_, length_);
  }
  Journal(Journal&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)), length_(other.length_) {}
  Journal& operator=(Journal&&) = delete;

  static Result<Journal> open(const std::string& directory) {
    const std::string path = directory + "/journal";
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return system_error(path);
    Journal journal;
    const off_t length = ::lseek(file, 0, SEEK_END);
    journal.length_ = static_cast<std::size_t>(std::max<off_t>(length, 0));
    void* const mapping = ::mmap(nullptr, std::max<std::size_t>(journal.length_, 1),
                                 PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    const bool mapped = mapping != MAP_FAILED;
    const Error failure = system_error(path);
    ::close(file);
    if (!mapped) return failure;
    journal.bytes_ = static_cast<char*>(mapping);
    const bool whole = journal.length_ >= interpose::kEventsAt;
    if (!whole || journal.header().magic != interpose::kJournalMagic ||
        journal.header().file_count > interpose::kFilesMax) {
      return Error{
          ErrorCode::Corrupt,
          fmt::format("'{}' is damaged: the program wrote to files that are not its own", path)};
    }
    return journal;
  }

  JournalHeader& header() const { return *reinterpret_cast<JournalHeader*>(bytes_); }
  const JournalEvent* events() const {
    return reinterpret_cast<const JournalEvent*>(bytes_ + interpose::kEventsAt);
  }
  std::uint64_t event_count() const {
    const std::uint64_t room = (length_ - interpose::kEventsAt) / sizeof(JournalEvent);
    return std::min<std::uint64_t>(room, header().event_count.load());
  }

 private:
  char* bytes_ = nullptr;
  std::size_t length_ = 0;
};

struct CloseFile {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};

void count_threads(const JournalHeader& header, Recording& recording) {
  const auto count = std::min<std::uint32_t>(header.thread_count.load(), interpose::kThreadsMax);
  std::set<std::uint64_t> processes;
  for (std::uint32_t number = 0; number < count; ++number) {
    const interpose::JournalThread& from = header.threads[number];
    const RecordedThread thread{number,
                                from.process.load(),
                                from.flushes.load(),
                                from.flushed_lines.load(),
                                from.changed_lines.load(),
                                from.drains.load(),
                                from.epochs.load()};
    recording.threads.push_back(thread);
    processes.insert(thread.process);
    recording.all.flushes += thread.flushes;
    recording.all.flushed_lines += thread.flushed_lines;
    recording.all.changed_lines += thread.changed_lines;
    recording.all.drains += thread.drains;
    recording.all.epochs += thread.epochs;
  }
  recording.processes = processes.size();
}

void lay_out_files(const JournalHeader& header, Recording& recording) {
  std::uint64_t base = 0;
  for (std::uint32_t number = 0; number < header.file_count; ++number) {
    const interpose::JournalFile& from = header.files[number];
    RecordedFile file;
    file.path.assign(from.path, ::strnlen(from.path, interpose::kPathMax));
    file.bytes = from.mapped_to.load();
    file.base = base;
    base += (file.bytes + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
    recording.files.push_back(std::move(file));
  }
}

void compare_files(const JournalHeader& header, const std::string& directory,
                   Recording& recording) {
  for (std::size_t number = 0; number < recording.files.size(); ++number) {
    const interpose::JournalFile& from = header.files[number];
    RecordedFile& file = recording.files[number];
    file.unflushed_lines =
        count_unflushed({file.path, from.device, from.inode, file.bytes,
                         fmt::format("{}/{}{}", directory, interpose::kShadowName, number)});
    recording.unflushed_lines += file.unflushed_lines.value_or(0);
  }
}

std::string line_of(const JournalEvent& event, const interpose::JournalWhat& what,
                    const Recording& recording) {
  switch (what.kind) {
    case JournalKind::Write:
      return fmt::format("T{} W {:#x}\n", what.thread,
                         recording.files[what.file].base + event.line * interpose::kLineBytes);
    case JournalKind::Ordered: return fmt::format("T{} B\n", what.thread);
    case JournalKind::Durable: return fmt::format("T{} F\n", what.thread);
  }
  return "";
}

}  // namespace

Result<void> create_journal(const std::string& directory) {
  const std::string path = directory + "/journal";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return system_error(path);
  constexpr std::uint64_t kWhole =
      interpose::kEventsAt + interpose::kEventsMax * sizeof(JournalEvent);
  void* mapping = MAP_FAILED;
  if (::posix_fallocate(file, 0, interpose::kEventsAt) == 0 && ::ftruncate(file, kWhole) == 0) {
    mapping = ::mmap(nullptr, interpose::kEventsAt, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const Error failure = system_error(path);
  ::close(file);
  if (mapping == MAP_FAILED) return failure;
  auto* const header = new (mapping) JournalHeader;
  header->magic = interpose::kJournalMagic;
  header->version = interpose::kJournalVersion;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&header->files_mutex, &kind);
  pthread_mutexattr_destroy(&kind);
  ::munmap(mapping, interpose::kEventsAt);
  return {};
}

Result<Recording> read_recording(const std::string& directory) {
  PERDURE_TRY(journal, Journal::open(directory));
  Recording recording;
  std::vector<bool> wrote(interpose::kThreadsMax);  // since its last drain
  count_threads(journal.header(), recording);
  lay_out_files(journal.header(), recording);
  compare_files(journal.header(), directory, recording);
  recording.lost_places = journal.header().lost_places.load();
  recording.lost_threads = journal.header().lost_threads.load();
  recording.refused_files = journal.header().refused_files;
  for (std::uint64_t i = 0; i < journal.event_count(); ++i) {
    const std::uint64_t word = journal.events()[i].what.load();
    if (word == 0) continue;
    const auto what = interpose::unpack(word);
    recording.ordered += what.kind == JournalKind::Ordered ? 1 : 0;
    recording.durable += what.kind == JournalKind::Durable ? 1 : 0;
    if (what.kind == JournalKind::Write && what.file >= recording.files.size()) {
      return Error{ErrorCode::Corrupt, fmt::format("event {} is of no file that was mapped", i)};
    }
    if (what.thread >= wrote.size()) {
      return Error{ErrorCode::Corrupt, fmt::format("event {} is of no thread", i)};
    }
    const bool writes = what.kind == JournalKind::Write;
    recording.lines += writes ? 1 : 0;
    recording.epochs += !writes && wrote[what.thread] ? 1 : 0;
    wrote[what.thread] = writes;
  }
  return recording;
}

Result<void> write_trace(const std::string& directory, const Recording& recording,
                         const std::string& program, const std::string& path) {
  PERDURE_TRY(journal, Journal::open(directory));
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "we"));
  if (!file) return system_error(path);
  // A line of a trace has a limit, and so has what is shown of a byte: four.
  constexpr std::size_t kProgramBytesMax = 4096;
  std::string text =
      fmt::format("# Recorded: {}\n", printable_name(program.substr(0, kProgramBytesMax)));
  for (const RecordedFile& each : recording.files) {
    text += fmt::format("# {:#x} to {:#x}: {}\n", each.base, each.base + each.bytes,
                        printable_name(each.path));
  }
  text += "# W: a line that was flushed and had changed; B: a drain; F: msync or a deep persist\n";
  constexpr std::size_t kBlock = 64 * 1024;
  for (std::uint64_t i = 0; i < journal.event_count(); ++i) {
    const JournalEvent& event = journal.events()[i];
    const std::uint64_t word = event.what.load();
    if (word != 0) text += line_of(event, interpose::unpack(word), recording);
    if (text.size() < kBlock) continue;
    if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) {
      return system_error(path);
    }
    text.clear();
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (!written || std::fflush(file.get()) != 0) return system_error(path);
  return {};
}

}  // namespace perdure::app
