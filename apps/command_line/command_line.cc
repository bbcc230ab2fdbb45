// CLI11 behind command_line.h.
#include "command_line/command_line.h"

#include "core/byte_text.h"
#include "core/try.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

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

/// Columns that the help may take: those of COLUMNS, else of the terminal that it goes to; 0: it
/// goes elsewhere, and whatever reads it breaks lines.
std::size_t help_columns() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): asked while there is one thread
  if (const char* columns = std::getenv("COLUMNS")) {
    if (const long wanted = std::strtol(columns, nullptr, 10); wanted > 0) {
      return static_cast<std::size_t>(wanted);
    }
  }
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// Text of lines as they stand if they fit; a paragraph that does not is broken anew. What begins
/// with a blank is an example, to be copied as it is.
std::string wrapped_lines(const std::string& text) {
  const std::size_t columns = help_columns();
  std::istringstream lines(text);
  std::string all;
  std::string paragraph;
  const auto end_paragraph = [&] {
    std::istringstream parts(paragraph);
    bool fits = true;
    for (std::string line; std::getline(parts, line);) fits = fits && line.size() <= columns;
    if (!fits && columns != 0) {
      paragraph.pop_back();
      std::replace(paragraph.begin(), paragraph.end(), '\n', ' ');
      paragraph = wrapped(paragraph, columns, 0) + "\n";
    }
    all += std::exchange(paragraph, "");
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with(' ')) {
      end_paragraph();
      all += line + "\n";
    } else {
      paragraph += line + "\n";
    }
  }
  end_paragraph();
  return all;
}

/// "--raw, --index"
std::string names_of(const std::set<CLI::Option*>& options) {
  std::string names;
  for (const CLI::Option* each : options) {
    names += (names.empty() ? "" : ", ") + each->get_name();
  }
  return names;
}

/// What an option takes, in two parts: the word that stands for it, and the bounds or words that
/// were said by range() or is_member(). CLI11 joins them: "UINT:1 to 16".
std::pair<std::string, std::string> what_it_takes(const CLI::Option* option) {
  const std::string type = option->get_type_name();
  const std::size_t end = type.find(':');
  const std::string kind = type.substr(0, end);
  const bool number = kind == "UINT" || kind == "INT" || kind == "FLOAT";
  return {number ? "N" : kind, end == std::string::npos ? "" : type.substr(end + 1)};
}

/// The text in lines that fit, each but the first with an indent.
std::string wrapped_and_indented(const std::string& text) {
  constexpr std::size_t kIndent = 6;
  return CLI::detail::find_and_replace(wrapped(text, help_columns(), kIndent), "\n",
                                       "\n" + std::string(kIndent, ' '));
}

/// CLI11's help, with descriptions that end where the terminal does and that say in words what else
/// there is to know: "How many (3; 1 to 16)".
class WrappingFormatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* command, std::string name) const override {
    std::string line = CLI::Formatter::make_usage(command, std::move(name));
    line.pop_back();
    return wrapped_and_indented(line) + "\n";
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::ostringstream out;
    CLI::detail::format_help(
        out,
        wrapped_and_indented(make_option_name(option, is_positional) + make_option_opts(option)),
        make_option_desc(option), get_column_width());
    return out.str();
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty()) return " " + option->get_option_text();
    if (option->get_type_size() == 0) return "";  // a flag
    const auto [kind, allowed] = what_it_takes(option);
    return " " + (allowed.find('|') == std::string::npos ? kind : allowed);
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_desc(option);
    if (option->get_option_text().empty() && option->get_type_size() != 0) {
      const std::string allowed = what_it_takes(option).second;
      const std::string bounds = allowed.find('|') == std::string::npos ? allowed : "";
      std::string known = option->get_default_str();
      if (option->get_required()) known = "needed";
      if (!known.empty() && !bounds.empty()) known += "; ";
      if (!known.empty() || !bounds.empty()) text += fmt::format(" ({}{})", known, bounds);
    }
    const std::string without = names_of(option->get_excludes());
    if (!without.empty()) text += "; not with " + without;
    const std::string with = names_of(option->get_needs());
    if (!with.empty()) text += "; only with " + with;
    return wrapped(text, help_columns(), get_column_width());
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    CLI::detail::format_help(
        out, command->get_name(),
        wrapped(command->get_description(), help_columns(), get_column_width()),
        get_column_width());
    return out.str();
  }
  /// A command in --help-all: by its whole name, and with the commands below, which CLI11 only
  /// lists.
  std::string make_expanded(const CLI::App* command) const override {
    if (command->get_name().empty()) {  // a choice
      return make_group(command->get_group() + ", exactly one of", false,
                        command->get_options([command](const CLI::Option* option) {
                          return option != command->get_help_ptr() &&
                                 option != command->get_help_all_ptr();
                        }));
    }
    std::string name = command->get_name();
    for (const CLI::App* above = command->get_parent();
         above != nullptr && above->get_parent() != nullptr; above = above->get_parent()) {
      name.insert(0, " ");
      name.insert(0, above->get_name());
    }
    std::string text = CLI::Formatter::make_expanded(command);
    text.replace(0, text.find('\n'), name);
    for (const CLI::App* below : command->get_subcommands([](const CLI::App*) { return true; })) {
      if (!below->get_name().empty()) text += "\n" + make_expanded(below);
    }
    return text;
  }
  std::string make_description(const CLI::App* command) const override {
    return wrapped_lines(CLI::Formatter::make_description(command));
  }
  std::string make_footer(const CLI::App* command) const override {
    return wrapped_lines(CLI::Formatter::make_footer(command));
  }
};

enum class Of { Whole, BestPart };

/// What it costs to make one word of the other, or of the part of it that is the nearest, by
/// changing, adding, dropping or exchanging letters.
std::size_t letters_apart(std::string_view one, std::string_view other, Of of = Of::Whole) {
  std::vector<std::vector<std::size_t>> cost(one.size() + 1,
                                             std::vector<std::size_t>(other.size() + 1));
  for (std::size_t i = 0; i <= one.size(); ++i) {
    for (std::size_t j = 0; j <= other.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = of == Of::BestPart ? i : i + j;
        continue;
      }
      const std::size_t differs = one[i - 1] == other[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + differs});
      const bool exchanged =
          i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
      if (exchanged) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  const std::vector<std::size_t>& whole = cost.back();
  return of == Of::BestPart ? *std::min_element(whole.begin(), whole.end()) : whole.back();
}

/// How many letters of a word may be wrong.
std::size_t slips_in(std::string_view word) { return std::max<std::size_t>(1, word.size() / 3); }

/// Whether one goes on where the other ends: behind some letters, or at a hyphen.
bool goes_on(std::string_view one, std::string_view other) {
  constexpr std::size_t kLetters = 3;
  if (one.size() > other.size()) std::swap(one, other);
  if (one.size() == other.size() || !other.starts_with(one)) return false;
  const std::size_t hyphens = std::min(one.find_first_not_of('-'), one.size());
  const std::size_t letters = one.size() - hyphens;
  return letters >= kLetters || (letters > 0 && other[one.size()] == '-');
}

/// The options of a command and of the choices in it.
void add_option_names(const CLI::App* app, std::vector<std::string>& names) {
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* group : app->get_subcommands([](const CLI::App*) { return true; })) {
    if (group->get_name().empty()) add_option_names(group, names);
  }
}

/// The names of the commands below, and not of choices.
std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!each->get_name().empty()) names.push_back(each->get_name());
  }
  return names;
}

/// What could have been written where `word` was, in the command that was named last.
std::vector<std::string> words_instead_of(const CLI::App* app, const std::string& word) {
  const bool option = word.size() > 1 && word[0] == '-';
  std::vector<std::string> names;
  for (const CLI::App* next = app; next != nullptr;) {
    if (option) add_option_names(next, names);
    const auto parsed = next->get_subcommands();
    if (parsed.empty() && !option) {
      for (const std::string& each : subcommands_of(*next)) names.push_back(each);
    }
    next = parsed.empty() ? nullptr : parsed.front();
  }
  return names;
}

std::string wrong_words(const CLI::App& app, std::string_view what) {
  return fmt::format("{}: {}{} see `--help` [{}]\n", app.get_name(), what,
                     what.ends_with('?') ? "" : ";", to_string(ErrorCode::InvalidArgument));
}

/// The first word of a command line that nobody knows: what is wrong, and what may have been meant.
/// What follows it may be unknown only because of it.
std::string unknown_words(const CLI::App& app, std::vector<std::string> unknown) {
  std::erase(unknown, "--");
  const std::string word = unknown.empty() ? "--" : unknown.front();
  const bool option = word.size() > 1 && word[0] == '-';
  const std::string name = option ? word.substr(0, word.find('=')) : word;
  const std::vector<std::string> words = words_instead_of(&app, name);
  if (words.empty()) return wrong_words(app, fmt::format("'{}' is one word too many", name));
  const auto meant = name == "help" ? "--help" : nearest_word(name, words);
  return fmt::format("{}: there is no {} '{}'; {}`--help` lists them [{}]\n", app.get_name(),
                     option ? "option" : "command", name,
                     meant ? fmt::format("did you mean '{}'? ", *meant) : "",
                     to_string(ErrorCode::InvalidArgument));
}

/// Of a mistake that CLI11 found: without its brackets and type names.
std::string plain_words(const CLI::ParseError& error) {
  std::string what = error.what();
  const std::string_view text = what;
  constexpr std::string_view kConvert = "Could not convert: ";
  if (text.starts_with(kConvert)) {  // "NAME = VALUE"
    const std::string rest = what.substr(kConvert.size());
    const std::size_t end = std::min(rest.find(" = "), rest.size());
    return fmt::format("{}: '{}' is no number that can stand there", rest.substr(0, end),
                       end + 3 <= rest.size() ? rest.substr(end + 3) : "");
  }
  const std::size_t from = text.find('[');
  const std::size_t to = text.find(']');
  if (text.starts_with("Exactly 1 option from") && from < to && to != std::string::npos) {
    std::string names;
    for (const char letter : text.substr(from + 1, to - from - 1)) {
      names += letter;
      if (letter == ',') names += ' ';
    }
    return fmt::format("exactly one of {} is needed{}", names,
                       text.ends_with("were given") ? ", not several" : "");
  }
  if (text.ends_with(" missing")) return what.substr(0, what.find(':')) + ": its value is missing";
  return what;
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t columns, std::size_t indent) {
  constexpr std::size_t kLeast = 16;  // of text in a line; a narrower terminal breaks it itself
  if (columns < indent + kLeast) return text;
  std::string lines;
  std::string gap;     // before the next word
  std::size_t at = 0;  // in the line
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.find_first_of(" |", begin), text.size());
    const bool bar = end < text.size() && text[end] == '|';
    if (bar) ++end;
    const std::size_t length = end - begin;
    if (at != 0) lines += at + gap.size() + length > columns - indent ? "\n" : gap;
    lines += text.substr(begin, length);
    const std::size_t broken = lines.rfind('\n');
    at = broken == std::string::npos ? lines.size() : lines.size() - broken - 1;
    gap = bar ? "" : " ";
    begin = bar ? end : end + 1;
  }
  return lines;
}

std::optional<std::string> nearest_word(const std::string& word,
                                        const std::vector<std::string>& words) {
  // One slip is likelier than a word that ends too early or too late, and that than two slips.
  enum Likeness { OneSlip, GoesOn, MoreSlips };
  std::optional<std::string> nearest;
  std::pair<Likeness, std::size_t> least{MoreSlips, slips_in(word) + 1};
  for (const std::string& each : words) {
    const std::size_t apart = letters_apart(word, each);
    if (apart == 0) continue;  // what was typed is no better than itself
    const Likeness likeness = apart == 1 ? OneSlip : goes_on(word, each) ? GoesOn : MoreSlips;
    if (std::pair(likeness, apart) >= least) continue;
    least = {likeness, apart};
    nearest = each;
  }
  return nearest;
}

std::vector<std::string> nearest_texts(const std::string& part,
                                       const std::vector<std::string>& texts) {
  std::vector<std::string> nearest;
  if (part.empty()) return nearest;
  std::size_t least = std::min(slips_in(part), part.size() - 1);  // something of it is there
  for (const std::string& each : texts) {
    const std::size_t apart = letters_apart(part, each, Of::BestPart);
    if (apart > least) continue;
    if (apart < least) nearest.clear();
    least = apart;
    nearest.push_back(each);
  }
  return nearest;
}

Error with_meant(Error error, const std::string& word, const std::string& choices) {
  std::vector<std::string> words;
  std::istringstream parts(choices);
  for (std::string each; std::getline(parts, each, '|');) words.push_back(each);
  if (words.size() < 2) return error;  // "HOST:PORT" says what is to be put there
  if (const auto meant = nearest_word(word, words)) {
    error.message += fmt::format("; did you mean '{}'?", *meant);
  }
  return error;
}

Option add_declared_option(Command command, std::optional<PersistenceDomain>& declared,
                           const std::string& description) {
  const auto parse = [](std::string_view word) -> Result<std::optional<PersistenceDomain>> {
    PERDURE_TRY(domain, parse_persistence_domain(word));
    return std::optional(domain);
  };
  return add_word_option<std::optional<PersistenceDomain>>(
      command, "--declare-domain", declared, parse, description, "none|page|dmp|mhp|wsp");
}

Option add_size_option(Command command, const std::string& names, std::uint64_t& value,
                       const std::string& description, std::uint64_t low, std::uint64_t high) {
  const auto take = [&value, names, low, high](const std::string& word) -> Result<void> {
    PERDURE_TRY(bytes, parse_bytes(word));
    if (bytes < low || bytes > high) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{}: {} is not between {} and {}", names, word, format_bytes(low),
                               format_bytes(high))};
    }
    value = bytes;
    return {};
  };
  const std::string shown = value == 0 ? "" : fmt::format(" ({})", format_bytes(value));
  return command.add_option_function(names, take, description + shown).option_text("SIZE");
}

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

Option Option::one_word_each() const { return Option(option_->allow_extra_args(false)); }
Option Option::delimiter(char separator) const { return Option(option_->delimiter(separator)); }
Option Option::from_environment(const std::string& variable) const {
  return Option(option_->envname(variable));
}

namespace {

/// CLI11's own would name types, and brackets.
template <typename Number>
CLI::Validator between(Number low, Number high) {
  const auto refuse = [low, high](const std::string& word) -> std::string {
    Number value{};
    if (CLI::detail::lexical_cast(word, value) && value >= low && value <= high) return "";
    return fmt::format("'{}' is no number between {} and {}", word, low, high);
  };
  return CLI::Validator(refuse, fmt::format("{} to {}", low, high));
}

}  // namespace

Option Option::range(int low, int high) const { return Option(option_->check(between(low, high))); }

Option Option::range(std::uint64_t low, std::uint64_t high) const {
  return Option(option_->check(between(low, high)));
}

Option Option::range(double low, double high) const {
  return Option(option_->check(between(low, high)));
}

Option Option::whole_number() const {
  const auto refuse = [](const std::string& word) -> std::string {
    std::uint64_t value = 0;
    const bool hexadecimal = word.starts_with("0x") || word.starts_with("0X");
    const char* const begin = word.data() + (hexadecimal ? 2 : 0);
    const char* const end = word.data() + word.size();
    const auto [last, error] = std::from_chars(begin, end, value, hexadecimal ? 16 : 10);
    if (error == std::errc{} && last == end) return "";
    return fmt::format("'{}' is no number between 0 and {}", word,
                       std::numeric_limits<std::uint64_t>::max());
  };
  return Option(option_->check(CLI::Validator(refuse, "")));
}

Option Option::is_member(const std::vector<std::string>& words) const {
  const auto refuse = [words](const std::string& word) -> std::string {
    if (std::find(words.begin(), words.end(), word) != words.end()) return "";
    const auto meant = nearest_word(word, words);
    return fmt::format("there is no '{}'; use one of: {}{}", word, fmt::join(words, ", "),
                       meant ? fmt::format("; did you mean '{}'?", *meant) : "");
  };
  return Option(option_->check(refuse, fmt::format("{}", fmt::join(words, "|"))));
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

bool Command::is_written(const std::string& name) const {
  const std::vector<CLI::Option*>& written = command_->parse_order();
  return std::find(written.begin(), written.end(), command_->get_option(name)) != written.end();
}

void Command::callback(std::function<void()> work) const { command_->callback(std::move(work)); }

void Command::footer(const std::string& text) const { command_->footer(text); }

Program::Program(const std::string& description, const std::string& name)
    : Command(nullptr), app_(std::make_unique<CLI::App>(description, name)) {
  command_ = app_.get();
  command_->formatter(std::make_shared<WrappingFormatter>());
  command_->set_help_all_flag("--help-all", "Print this help and that of all commands below");
}

Program::~Program() = default;

void Program::set_version(const std::string& text, const std::string& names) const {
  command_->set_version_flag(names, text);
}

void Program::allow_options_anywhere() const { command_->fallthrough(); }

void Program::set_column_width(std::size_t width) const {
  constexpr std::size_t kUsual = 80;
  const std::size_t columns = help_columns();
  const bool narrow = columns != 0 && columns < kUsual;
  command_->get_formatter()->column_width(narrow ? std::min(width, columns * 2 / 5) : width);
}

void Program::when_missing(const std::string& option, const std::string& text,
                           const std::string& in_words) {
  missing_[option] = {text, in_words};
}

/// What CLI11 says is missing, and what could be there instead.
std::string Program::missing_words(const std::string& what) const {
  const CLI::App* command = app_.get();
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  if (what == "A subcommand is required") {
    return fmt::format("a subcommand is required: {}", fmt::join(subcommands_of(*command), ", "));
  }
  const std::string name = what.substr(0, what.find(' '));
  const CLI::Option* option = command->get_option_no_throw(name);
  const auto advice = missing_.find(name);
  if (option == nullptr || advice == missing_.end()) return what;
  const bool in_words = option->get_envname().empty();
  return fmt::format("{}: {}", what, in_words ? advice->second.in_words : advice->second.text);
}

Program::Parsed Program::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
    return Parsed::Right;
  } catch (const CLI::RequiredError& error) {
    // A word that nobody knows is the likelier mistake than what is missing.
    auto unknown = app_->remaining(true);
    std::erase(unknown, "--");  // known everywhere
    fmt::print(stderr, "{}",
               unknown.empty() ? wrong_words(*app_, missing_words(plain_words(error)))
                               : unknown_words(*app_, unknown));
    return Parsed::Wrong;
  } catch (const CLI::ExtrasError&) {
    fmt::print(stderr, "{}", unknown_words(*app_, app_->remaining(true)));
    return Parsed::Wrong;
  } catch (const CLI::Success& answer) {
    (void)app_->exit(answer);
    return Parsed::Answered;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{}", wrong_words(*app_, plain_words(error)));
    return Parsed::Wrong;
  }
}

}  // namespace perdure::app
