// The command line of `perdure` and `perdured`: CLI11 behind declarations of our own, because its
// headers take the compiler ten seconds in each file that includes them. Only command_line.cc does.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace perdure::app {

/// An option, flag or argument of a command: a handle, valid as long as its Program. What is called
/// on it in a chain is said of the same option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required(bool required = true) const;
  Option description(const std::string& text) const;
  Option group(const std::string& heading) const;
  /// What the help shows after the names, in place of the type and the default.
  Option option_text(const std::string& text) const;
  /// What the help shows in place of the type; the default stays.
  Option type_name(const std::string& text) const;
  /// The help shows the value that the variable has now.
  Option capture_default() const;
  /// One word may hold several values with this between them.
  Option delimiter(char separator) const;
  /// Of an option with several values: one word each time that it is named, so that what comes
  /// behind it, `--` for example, is not its.
  Option one_word_each() const;
  /// Where the value comes from if the command line does not name the option; "" is as unset.
  Option from_environment(const std::string& variable) const;

  /// A value outside is refused, with both bounds in the error. Signs and whole numbers as the
  /// variable has them.
  Option range(int low, int high) const;
  Option range(std::uint64_t low, std::uint64_t high) const;
  Option range(double low, double high) const;
  /// Any that the variable, unsigned, holds. CLI11 would take -1 for the most there is, and so too
  /// much, and nothing for 0.
  Option whole_number() const;
  Option is_member(const std::vector<std::string>& words) const;
  /// Each word is shown to `check`; what it says against it is the error.
  Option each(std::function<Result<void>(const std::string&)> check) const;

  Option needs(Option other) const;
  Option excludes(Option other) const;

 private:
  CLI::Option* option_;
};

/// A command, a subcommand or a group of options in one: a handle, valid as long as its Program.
class Command {
 public:
  explicit Command(CLI::App* command) : command_(command) {}

  Command add_subcommand(const std::string& name, const std::string& description) const;
  /// One subcommand must be given.
  void require_subcommand() const;
  /// Of the options of the group that is returned, exactly one must be given.
  Command add_choice(const std::string& heading) const;

  /// `value` must outlive the parse. T: std::string, std::vector<std::string>, int, std::uint32_t,
  /// std::uint64_t, double, or std::optional of std::string or of
  /// std::uint64_t.
  template <typename T>
  Option add_option(const std::string& names, T& value, const std::string& description) const;
  Option add_flag(const std::string& names, bool& value, const std::string& description) const;
  /// An option whose word `take` reads; its error is the answer to a wrong one.
  Option add_option_function(const std::string& names,
                             std::function<Result<void>(const std::string&)> take,
                             const std::string& description) const;

  /// How often the option was given, a variable of the environment included. Only after parsing.
  std::size_t count(const std::string& name) const;
  /// Whether the command line names the option: it has not only a variable of the environment.
  bool is_written(const std::string& name) const;

  /// Called when the command line names this command, after the whole of it was found to be right.
  void callback(std::function<void()> work) const;
  /// The last lines of the help.
  void footer(const std::string& text) const;

 protected:
  CLI::App* command_;
};

/// The word that was meant, if one of `words` is a slip away: at most a third of its letters, and
/// at least one, may be wrong, or one of both goes on where the other ends ("--keep" and
/// "--keep-records"); never the word itself. Nothing: none is.
std::optional<std::string> nearest_word(const std::string& word,
                                        const std::vector<std::string>& words);

/// Those of `texts` in which the part that was meant by `part` may be, by as many wrong letters as
/// for nearest_word; of several only those with the fewest.
std::vector<std::string> nearest_texts(const std::string& part,
                                       const std::vector<std::string>& texts);

/// `text` in lines that end before `columns` when each begins at `indent`, broken at blanks and
/// behind the bars between words. Unchanged where that leaves too little, as for 0 columns.
std::string wrapped(const std::string& text, std::size_t columns, std::size_t indent);

/// The error, and which of the choices ("text|json|csv") may have been meant by `word`, if any.
Error with_meant(Error error, const std::string& word, const std::string& choices);

/// Adds an option whose words are read by `parse`, so that a wrong one is answered with its error.
/// `value` must outlive the parse.
template <typename T>
Option add_word_option(Command command, const std::string& names, T& value,
                       Result<std::type_identity_t<T>> (*parse)(std::string_view),
                       const std::string& description, const std::string& words) {
  const auto take = [&value, parse, words](const std::string& word) -> Result<void> {
    auto parsed = parse(word);
    if (!parsed.ok()) return with_meant(parsed.error(), word, words);
    value = std::move(parsed).value();
    return {};
  };
  return command.add_option_function(names, take, description).option_text(words);
}

/// Adds --declare-domain, which says what survives a power failure where a pool lies.
Option add_declared_option(Command command, std::optional<PersistenceDomain>& declared,
                           const std::string& description);

/// Adds an option that takes a size as parse_bytes() reads it; what is outside is refused. The help
/// shows the present value, unless that is 0. `value` must outlive the parse.
Option add_size_option(Command command, const std::string& names, std::uint64_t& value,
                       const std::string& description, std::uint64_t low, std::uint64_t high);

/// The command line of one program.
class Program : public Command {
 public:
  Program(const std::string& description, const std::string& name);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// --version prints this, or what the names say.
  void set_version(const std::string& text, const std::string& names = "--version") const;
  /// Options of the program may stand behind the name of a subcommand too.
  void allow_options_anywhere() const;
  /// What an error says of that option where it is needed and not there: `in_words` if it must
  /// stand on the command line, else `text`.
  void when_missing(const std::string& option, const std::string& text,
                    const std::string& in_words);
  /// Of the help's left column, in characters; less where the terminal has less than 80.
  void set_column_width(std::size_t width) const;

  /// How parsing ended.
  enum class Parsed { Right, Answered, Wrong };
  /// Fills the variables. Answered: --help or --version was, on standard output. Wrong: standard
  /// error says what is wrong.
  Parsed parse(int argc, const char* const* argv);

 private:
  struct Missing {
    std::string text;
    std::string in_words;
  };
  std::string missing_words(const std::string& what) const;

  std::unique_ptr<CLI::App> app_;
  std::map<std::string, Missing> missing_;
};

}  // namespace perdure::app
