// What a client says first to a daemon that takes ssh's place: see asked_command.h.
#include "rpmem/asked_command.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "control/json_codec.h"
#include "core/errno_error.h"
#include "core/text_file.h"
#include "core/try.h"
#include "fabric/socket_address.h"
#include "rpmem/control.h"

namespace perdure::rpmem {
namespace {

constexpr std::string_view kCredentialWord = "credential ";
constexpr std::string_view kSetWord = "set ";
constexpr std::string_view kRemoveOption = "--remove";

/// The words of a POSIX shell's line that has no other special characters; nothing: it has.
std::optional<std::vector<std::string>> shell_words(std::string_view line) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (c == ' ' || c == '\t') {
      if (word) words.push_back(std::move(*word));
      word.reset();
      continue;
    }
    if (!word) word.emplace();
    if (c == '\'') {
      const std::size_t end = line.find('\'', at + 1);
      if (end == std::string_view::npos) return std::nullopt;
      word->append(line.substr(at + 1, end - at - 1));
      at = end;
    } else if (c == '\\') {
      if (++at == line.size()) return std::nullopt;
      word->push_back(line[at]);
    } else if (std::string_view("\"`$;&|<>()\n*?[#~").find(c) != std::string_view::npos) {
      return std::nullopt;
    } else {
      word->push_back(c);
    }
  }
  if (word) words.push_back(std::move(*word));
  return words;
}

/// As rpmemd --remove ends, which clients take for an errno.
int exit_status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::PermissionDenied: return EACCES;
    case ErrorCode::NotFound: return ENOENT;
    case ErrorCode::QueueFull: return EAGAIN;
    default: return EINVAL;
  }
}

/// "address port"; an address of IPv4 as such, also at a socket of IPv6.
std::string end_of(const fabric::SocketAddress& address) {
  constexpr std::string_view kMapped = "::ffff:";
  if (address.storage.ss_family == AF_UNSPEC) return "? ?";  // it has been reset
  std::string host = fabric::host_of(address);
  if (host.starts_with(kMapped) && host.find('.') != std::string::npos) {
    host.erase(0, kMapped.size());
  }
  return fmt::format("{} {}", host, fabric::port_of(address));
}

}  // namespace

Result<std::vector<std::string>> arguments_in(std::string_view command) {
  const auto words = shell_words(command);
  const Error wrong{ErrorCode::InvalidArgument,
                    fmt::format("'{}': not a command of librpmem's", command)};
  if (!words || words->empty() || !words->front().ends_with("rpmemd")) return wrong;
  std::vector<std::string> arguments(words->begin() + 1, words->end());
  bool removes = false;
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    if (arguments[index] == kRemoveOption && !removes && index + 1 < arguments.size()) {
      removes = true;
      ++index;
    } else if (arguments[index] != "--force" && arguments[index] != "--pool-set") {
      return wrong;
    }
  }
  if (!removes && !arguments.empty()) return wrong;
  return arguments;
}

std::optional<std::string_view> credential_in(std::string_view line) {
  if (!line.starts_with(kCredentialWord)) return std::nullopt;
  return line.substr(kCredentialWord.size());
}

Result<std::string> load_credential(const std::string& file) {
  PERDURE_TRY(text, load_text(file, kCredentialBytesMax + 1));
  if (text.ends_with('\n')) text.pop_back();
  const bool visible =
      std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (text.empty() || text.size() > kCredentialBytesMax || !visible) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}': not a credential, which is one line of 1 to {} visible "
                             "characters; make one with: head -c 24 /dev/urandom | base64",
                             file, kCredentialBytesMax)};
  }
  struct stat about {};
  if (::stat(file.c_str(), &about) != 0) return errno_error(file, errno);
  if ((about.st_mode & S_IROTH) == 0) return text;
  return Error{
      ErrorCode::PermissionDenied,
      fmt::format("'{}': everybody on this machine may read this credential; chmod 600 it", file)};
}

bool same_credential(std::string_view one, std::string_view other) {
  unsigned different = one.size() == other.size() ? 0U : 1U;
  for (std::size_t at = 0; at < one.size() && !other.empty(); ++at) {
    const auto here = static_cast<unsigned char>(one[at]);
    different |= static_cast<unsigned>(here ^ static_cast<unsigned char>(other[at % other.size()]));
  }
  return different == 0;
}

std::string refusal(std::string_view command, const Error& error) {
  if (command.find(kRemoveOption) != std::string_view::npos) {
    return fmt::format("rpmemd: {}\nexit {}\n", error.message, exit_status_of(error.code));
  }
  return encode_frame({FrameKind::Refused, control::encode(error)});
}

std::string visible(std::string_view text) {
  std::string shown(text);
  const auto breaks = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  std::replace_if(shown.begin(), shown.end(), breaks, '?');
  return shown;
}

std::string reported_set(std::string_view set) {
  const std::size_t most = kReportBytesMax - kSetWord.size() - 1;
  return fmt::format("{}{}\n", kSetWord, visible(set.substr(0, most)));
}

std::optional<std::string_view> set_in_report(std::string_view line) {
  if (!line.starts_with(kSetWord)) return std::nullopt;
  return line.substr(kSetWord.size());
}

std::string ends_of(int connection) {
  fabric::SocketAddress theirs;
  theirs.length = sizeof theirs.storage;
  fabric::SocketAddress ours;
  ours.length = sizeof ours.storage;
  (void)::getpeername(connection, reinterpret_cast<sockaddr*>(&theirs.storage), &theirs.length);
  (void)::getsockname(connection, reinterpret_cast<sockaddr*>(&ours.storage), &ours.length);
  return end_of(theirs) + " " + end_of(ours);
}

}  // namespace perdure::rpmem
