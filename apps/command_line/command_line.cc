// CLI11 behind command_line.h.
#include "command_line/command_line.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>

namespace perdure::app {
namespace {

/// What `take` says against a word, as CLI11 wants to hear it.
std::function<void(const std::string&)> throwing(
    std::function<Result<void>(const std::string&)> take) {
  return [take = std::move(take)](const std::string& word) {
    const auto taken = take(word);
    if (!taken.ok()) throw CLI::ValidationError(taken.error().message);
  };
}

}  // namespace

Option Option::required(bool required) const { return Option(option_->required(required)); }

Option Option::description(const std::string& text) const {
  return Option(option_->description(text));
}

Option Option::group(const std::string& heading) const { return Option(option_->group(heading)); }

Option Option::option_text(const std::string& text) const {
  return Option(option_->option_text(text));
}

Option Option::type_name(const std::string& text) const { return Option(option_->type_name(text)); }

Option Option::capture_default() const { return Option(option_->capture_default_str()); }

Option Option::delimiter(char separator) const { return Option(option_->delimiter(separator)); }

Option Option::range(int low, int high) const {
  return Option(option_->check(CLI::Range(low, high)));
}

Option Option::range(std::uint64_t low, std::uint64_t high) const {
  return Option(option_->check(CLI::Range(low, high)));
}

Option Option::range(double low, double high) const {
  return Option(option_->check(CLI::Range(low, high)));
}

Option Option::is_member(const std::vector<std::string>& words) const {
  return Option(option_->check(CLI::IsMember(words)));
}

Option Option::each(std::function<Result<void>(const std::string&)> check) const {
  return Option(option_->each(throwing(std::move(check))));
}

Option Option::needs(Option other) const { return Option(option_->needs(other.option_)); }

Option Option::excludes(Option other) const { return Option(option_->excludes(other.option_)); }

Command Command::add_subcommand(const std::string& name, const std::string& description) const {
  return Command(command_->add_subcommand(name, description));
}

void Command::require_subcommand() const { command_->require_subcommand(1); }

Command Command::add_choice(const std::string& heading) const {
  CLI::Option_group* group = command_->add_option_group(heading, "exactly one of");
  group->require_option(1);
  return Command(group);
}

template <typename T>
Option Command::add_option(const std::string& names, T& value,
                           const std::string& description) const {
  return Option(command_->add_option(names, value, description));
}

template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, int&, const std::string&) const;
template Option Command::add_option(const std::string&, std::uint32_t&, const std::string&) const;
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::uint64_t>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::string>&,
                                    const std::string&) const;

Option Command::add_flag(const std::string& names, bool& value,
                         const std::string& description) const {
  return Option(command_->add_flag(names, value, description));
}

Option Command::add_option_function(const std::string& names,
                                    std::function<Result<void>(const std::string&)> take,
                                    const std::string& description) const {
  return Option(
      command_->add_option_function<std::string>(names, throwing(std::move(take)), description));
}

std::size_t Command::count(const std::string& name) const { return command_->count(name); }

void Command::callback(std::function<void()> work) const { command_->callback(std::move(work)); }

void Command::footer(const std::string& text) const { command_->footer(text); }

Program::Program(const std::string& description, const std::string& name)
    : Command(nullptr), app_(std::make_unique<CLI::App>(description, name)) {
  command_ = app_.get();
}

Program::~Program() = default;

void Program::set_version(const std::string& text) const {
  command_->set_version_flag("--version", text);
}

void Program::allow_options_anywhere() const { command_->fallthrough(); }

void Program::set_column_width(std::size_t width) const {
  command_->get_formatter()->column_width(width);
}

Program::Parsed Program::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
    return Parsed::Right;
  } catch (const CLI::RequiredError& error) {
    // A word that nobody knows is the likelier mistake than what is missing.
    const auto unknown = app_->remaining(true);
    if (unknown.empty()) return app_->exit(error) == 0 ? Parsed::Answered : Parsed::Wrong;
    fmt::print(stderr, "{}: there is no {} '{}'; `--help` lists them [{}]\n", app_->get_name(),
               unknown[0].rfind('-', 0) == 0 ? "option" : "command", unknown[0],
               to_string(ErrorCode::InvalidArgument));
    return Parsed::Wrong;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? Parsed::Answered : Parsed::Wrong;
  }
}

}  // namespace perdure::app
