// Commands as text: see command_log.h.
#include "memsys/command_log.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>

#include "core/errno_error.h"

namespace perdure::memsys {

std::string_view to_string(CommandKind kind) {
  constexpr std::array<std::string_view, 5> kNames{"ACT", "PRE", "RD", "WR", "REF"};
  return kNames.at(static_cast<std::size_t>(kind));
}

CommandFile::CommandFile(std::string path, const Geometry& geometry, std::FILE* file)
    : path_(std::move(path)), geometry_(geometry), file_(file) {}

CommandFile::~CommandFile() {
  if (file_ != nullptr) std::fclose(file_);
}

Result<std::unique_ptr<CommandFile>> CommandFile::create(const std::string& path,
                                                         const Geometry& geometry) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return errno_error(fmt::format("{} can not be written", path), errno);
  std::unique_ptr<CommandFile> log(new CommandFile(path, geometry, file));
  constexpr std::string_view kHead = "# cycle command channel rank bankgroup bank row column\n";
  log->failed_ = std::fwrite(kHead.data(), 1, kHead.size(), file) != kHead.size();
  return log;
}

void CommandFile::add(const Command& command) {
  const auto banks = static_cast<std::uint32_t>(geometry_.banks);
  const auto in_rank = static_cast<std::uint32_t>(geometry_.banks_in_rank());
  char line[160];
  const auto written = fmt::format_to_n(line, sizeof line, "{} {} {} {} {} {} {} {}\n",
                                        command.cycle, to_string(command.kind), command.channel,
                                        command.bank / in_rank, command.bank % in_rank / banks,
                                        command.bank % banks, command.row, command.column);
  if (std::fwrite(line, 1, written.size, file_) != written.size) failed_ = true;
}

Result<void> CommandFile::close() {
  if (file_ == nullptr) return {};
  if (std::fclose(file_) != 0) failed_ = true;
  file_ = nullptr;
  if (!failed_) return {};
  return Error{ErrorCode::SystemError, fmt::format("{} can not be written whole", path_)};
}

}  // namespace perdure::memsys
