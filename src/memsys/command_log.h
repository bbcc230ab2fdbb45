// The commands that a device gets, for people, checkers and files.
#pragma once

#include <perdure/result.h>

#include "core/text_file.h"
#include "memsys/device.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::memsys {

enum class CommandKind : std::uint8_t { Activate, Precharge, Read, Write, Refresh };

/// "ACT", "PRE", "RD", "WR", "REF".
std::string_view to_string(CommandKind kind);

struct Command {
  Cycle cycle = 0;
  CommandKind kind = CommandKind::Activate;
  std::uint32_t channel = 0;
  std::uint32_t bank = 0;  // in the channel; for Refresh any of the rank
  std::uint32_t row = 0;
  std::uint32_t column = 0;
};

/// Gets every command, in the order of cycles within a channel.
class CommandLog {
 public:
  virtual ~CommandLog() = default;
  virtual void add(const Command& command) = 0;
  /// It takes no more: who sends commands stops, and asks what is the matter.
  virtual bool full() const { return false; }
};

inline constexpr std::uint64_t kCommandFileBytesMax = std::uint64_t{16} << 30;

/// One line a command: `CYCLE COMMAND channel rank bankgroup bank row column`, after a line that
/// names the columns and begins with `#`. What was at the path stays until close().
class CommandFile final : public CommandLog {
 public:
  static Result<std::unique_ptr<CommandFile>> create(
      const std::string& path, const Geometry& geometry,
      std::uint64_t bytes_max = kCommandFileBytesMax);

  void add(const Command& command) override;
  bool full() const override { return failed_ || bytes_ > bytes_max_; }
  /// Puts the file in its place. Errors: it is not whole, and what was there stays.
  /// InvalidArgument: there are more than `bytes_max` bytes; SystemError, NoSpace.
  Result<void> close();

 private:
  CommandFile(std::string path, const Geometry& geometry, ReplacingFile file,
              std::uint64_t bytes_max);

  std::string path_;
  Geometry geometry_;
  std::optional<ReplacingFile> file_;  // until close()
  const std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 0;
  bool failed_ = false;
  int reason_ = 0;
};

/// For tests.
class CommandList final : public CommandLog {
 public:
  void add(const Command& command) override { commands.push_back(command); }
  std::vector<Command> commands;
};

}  // namespace perdure::memsys
