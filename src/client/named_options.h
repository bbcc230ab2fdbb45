// Options as words: one by one, all in a connection string, or all in a TOML file. What options
// there are is a table of the thing that is opened.
#pragma once

#include <perdure/result.h>
#include <perdure/rnic.h>
#include <perdure/types.h>

#include "control/service_types.h"
#include "core/named.h"
#include "core/toml_file.h"
#include "core/try.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perdure::client {

// What an option's word says. Errors: InvalidArgument, naming what it may say.
/// "planned" is nothing: it is chosen.
Result<std::optional<Primary>> parse_primary_choice(std::string_view word);
Result<std::uint64_t> option_number(std::string_view word);
/// What is too large for it is too large for any such option.
Result<std::uint32_t> option_small_number(std::string_view word);
Result<bool> option_flag(std::string_view word);
Result<std::string> option_text(std::string_view word);
/// Up to a year, in whatever unit.
template <typename Duration>
Result<Duration> option_time(std::string_view word) {
  PERDURE_TRY(number, option_number(word));
  const auto longest = std::chrono::duration_cast<Duration>(std::chrono::hours(24 * 365));
  return Duration(std::min<std::uint64_t>(number, static_cast<std::uint64_t>(longest.count())));
}

/// One of the enumerators that are named.
template <auto first, auto... others>
Result<decltype(first)> option_one_of(std::string_view word) {
  return find_named("word", word, std::array{first, others...});
}

/// Sets the member to what `parse` makes of the word.
template <auto member, auto parse, typename Options>
Result<void> set_member(Options& options, std::string_view word) {
  PERDURE_TRY(value, parse(word));
  options.*member = std::move(value);
  return {};
}
/// The same of the RNIC's options, which must make sense then.
Result<void> set_rnic_name(RnicOptions& rnic, std::string_view word);
Result<void> set_rnic_ack_timeout(RnicOptions& rnic, std::string_view word);
Result<void> set_rnic_traffic_class(RnicOptions& rnic, std::string_view word);
template <auto set, typename Options>
Result<void> set_rnic(Options& options, std::string_view word) {
  return set(options.rnic, word);
}

/// What a connection string says before its options, and the key in a file of the name that is last
/// there.
struct AddressWords {
  std::string_view form;
  std::string_view name;
};
/// Where an Options has it. One that is opened on a single server has that, `server`, for `peers`,
/// here and in a file.
template <typename Options>
struct Address {
  static constexpr AddressWords kWords{"HOST:PORT[,HOST:PORT...]/POOL", "pool"};
  static std::vector<std::string>& peers(Options& options) { return options.peers; }
  static std::string& name(Options& options) { return options.pool; }
};

/// One option of Options, which has an Address besides.
template <typename Options>
struct NamedOption {
  std::string_view name;
  Result<void> (*set)(Options&, std::string_view);
};

/// The options of whatever is written on peers.
template <typename Options>
constexpr auto kWriterOptions = std::to_array<NamedOption<Options>>({
    {"quorum", set_member<&Options::quorum, option_number>},
    {"transport", set_member<&Options::transport, control::parse_transport_choice>},
    {"rnic", set_rnic<set_rnic_name>},
    {"rnic_ack_timeout", set_rnic<set_rnic_ack_timeout>},
    {"rnic_traffic_class", set_rnic<set_rnic_traffic_class>},
    {"primary", set_member<&Options::primary, parse_primary_choice>},
    {"measure_costs", set_member<&Options::measure_costs, option_flag>},
    {"take_over", set_member<&Options::take_over, option_flag>},
    {"writer_name", set_member<&Options::writer_name, option_text>},
    {"reconnect_ms", set_member<&Options::reconnect, option_time<std::chrono::milliseconds>>},
    {"spin_us", set_member<&Options::spin, option_time<std::chrono::microseconds>>},
});

/// A connection string taken apart; the words are part of it.
struct ConnectionWords {
  std::vector<std::string> peers;
  std::string name;
  std::vector<std::pair<std::string_view, std::string_view>> options;
};
/// Errors: InvalidArgument.
Result<ConnectionWords> take_apart(std::string_view connection, const AddressWords& address);
Error bad_connection(std::string_view connection, std::string_view why,
                     const AddressWords& address);

/// What a file has of peers; what is wrong with it the file notes.
std::vector<std::string> peers_in(TomlFile& file);
/// A value as an option takes it; nothing: it is none of text, whole number, true and false.
std::optional<std::string> word_of(const TomlFile::Value& value);
/// Errors: NotFound, PermissionDenied, SystemError (the file); InvalidArgument, with the line.
Result<TomlFile> load_options(const std::string& path);

/// The options of a `thing`, "a log" for example: its own, and those of whatever is written unless
/// it has others in common. See set_option, parse_log_options and read_log_options of log.h.
template <typename Options>
class NamedOptions {
 public:
  constexpr NamedOptions(std::string_view thing, std::span<const NamedOption<Options>> own,
                         std::span<const NamedOption<Options>> common = kWriterOptions<Options>)
      : thing_(thing), own_(own), common_(common) {}

  Result<void> set(Options& options, std::string_view name, std::string_view value) const {
    std::string names;
    for (const NamedOption<Options>& option : all()) {
      if (option.name == name) {
        auto set = option.set(options, value);
        if (set.ok()) return set;
        return Error{set.code(), std::string(name) + ": " + set.error().message};
      }
      names.append(names.empty() ? "" : ", ").append(option.name);
    }
    return Error{ErrorCode::InvalidArgument, std::string(thing_) + " has no option '" +
                                                 std::string(name) + "'; there are: " + names};
  }

  Result<Options> parse(std::string_view connection) const {
    const AddressWords& address = Address<Options>::kWords;
    PERDURE_TRY(words, take_apart(connection, address));
    Options options;
    if constexpr (kOneServer) {
      if (words.peers.size() > 1) return bad_connection(connection, "it is one server", address);
      Address<Options>::server(options) = std::move(words.peers.front());
    } else {
      Address<Options>::peers(options) = std::move(words.peers);
    }
    Address<Options>::name(options) = std::move(words.name);
    for (const auto& [name, value] : words.options) {
      if (auto taken = set(options, name, value); !taken) {
        return bad_connection(connection, taken.error().message, address);
      }
    }
    return options;
  }

  Result<Options> read(const std::string& path) const {
    PERDURE_TRY(file, load_options(path));
    Options options;
    if constexpr (kOneServer) {
      file.text("", "server", TomlFile::Need::Required, Address<Options>::server(options));
    } else {
      Address<Options>::peers(options) = peers_in(file);
    }
    file.text("", Address<Options>::kWords.name, TomlFile::Need::Required,
              Address<Options>::name(options));
    for (const NamedOption<Options>& option : all()) {
      const TomlFile::Value* value = file.value("", option.name, TomlFile::Need::Optional);
      if (value == nullptr) continue;
      const auto word = word_of(*value);
      if (!word) {
        file.problem("", option.name, "is neither a text nor a whole number, true or false");
      } else if (auto taken = option.set(options, *word); !taken) {
        file.problem("", option.name, taken.error().message);
      }
    }
    PERDURE_TRY_VOID(file.outcome());
    return options;
  }

 private:
  static constexpr bool kOneServer = requires(Options & options) {
    Address<Options>::server(options);
  };

  std::vector<NamedOption<Options>> all() const {
    std::vector<NamedOption<Options>> options(common_.begin(), common_.end());
    options.insert(options.end(), own_.begin(), own_.end());
    return options;
  }

  std::string_view thing_;
  std::span<const NamedOption<Options>> own_;
  std::span<const NamedOption<Options>> common_;
};

}  // namespace perdure::client
