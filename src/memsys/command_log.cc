// Commands as text: see command_log.h.
#include "memsys/command_log.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <utility>

#include "core/errno_error.h"
#include "core/try.h"

namespace perdure::memsys {

std::string_view to_string(CommandKind kind) {
  constexpr std::array<std::string_view, 5> kNames{"ACT", "PRE", "RD", "WR", "REF"};
  return kNames.at(static_cast<std::size_t>(kind));
}

CommandFile::CommandFile(std::string path, const Geometry& geometry, ReplacingFile file,
                         std::uint64_t bytes_max)
    : path_(std::move(path)), geometry_(geometry), file_(std::move(file)), bytes_max_(bytes_max) {}

Result<std::unique_ptr<CommandFile>> CommandFile::create(const std::string& path,
                                                         const Geometry& geometry,
                                                         std::uint64_t bytes_max) {
  PERDURE_TRY(file, ReplacingFile::create(path));
  std::unique_ptr<CommandFile> log(new CommandFile(path, geometry, std::move(file), bytes_max));
  constexpr std::string_view kHead = "# cycle command channel rank bankgroup bank row column\n";
  std::FILE* const stream = log->file_->stream();
  log->failed_ = std::fwrite(kHead.data(), 1, kHead.size(), stream) != kHead.size();
  return log;
}

void CommandFile::add(const Command& command) {
  if (full()) return;
  const auto banks = static_cast<std::uint32_t>(geometry_.banks);
  const auto in_rank = static_cast<std::uint32_t>(geometry_.banks_in_rank());
  char line[160];
  const auto written = fmt::format_to_n(line, sizeof line, "{} {} {} {} {} {} {} {}\n",
                                        command.cycle, to_string(command.kind), command.channel,
                                        command.bank / in_rank, command.bank % in_rank / banks,
                                        command.bank % banks, command.row, command.column);
  bytes_ += written.size;
  if (std::fwrite(line, 1, written.size, file_->stream()) == written.size) return;
  failed_ = true;
  reason_ = errno;
}

Result<void> CommandFile::close() {
  if (!file_) return {};
  auto file = std::exchange(file_, std::nullopt);
  if (failed_) return errno_error(fmt::format("{} can not be written whole", path_), reason_);
  if (bytes_ <= bytes_max_) return file->replace();
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("{}: there are more commands than fit into {} bytes; use a shorter trace, "
                  "or one without long gaps if the device is refreshed (tREFI)",
                  path_, bytes_max_)};
}

}  // namespace perdure::memsys
