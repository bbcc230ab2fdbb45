// `perdure check`: whether a method is right on a responder, in every state that can be reached;
// and if not, the shortest way to lose data.
#include "check/check.h"
#include "check/mutate.h"
#include "check/render.h"
#include "commands.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/named.h"
#include "method_file.h"
#include "method_library.h"
#include "output.h"
#include "plan/known_unsafe.h"
#include "plan/render.h"
#include "profile_options.h"
#include "set_questions.h"

#include <fmt/format.h>
#include <time.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>

namespace perdure::app {
namespace {

enum class CheckFormat { Text, Json, Sequence, Svg };

Result<CheckFormat> parse_check_format(std::string_view word) {
  return find_named<CheckFormat>(
      "format", word, std::to_array<std::string_view>({"text", "json", "sequence", "svg"}));
}

Result<check::Between> parse_between(std::string_view word) {
  using enum check::Between;
  return find_named("order", word, std::array{Independent, AcknowledgedInOrder, Ordered});
}

Result<check::Spread> parse_spread(std::string_view word) {
  using enum check::Spread;
  for (const check::Spread each : {Epochs, Updates}) {
    if (to_string(each) == word) return each;
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}' can not be spread; use one of: epochs, updates", word)};
}

struct CheckCommandOptions {
  ServerProfile profile;
  bool profile_given = false;
  bool transport_given = false;
  bool order_given = false;
  bool domain_given = false;  // the same of these
  bool ddio_given = false;
  bool buffers_given = false;
  std::string bound_in_vain;  // an option that says nothing of a set
  std::string given_in_vain;  // an option that says what the tables' responders have not
  bool level_given = false;
  bool updates_given = false;
  bool units_given = false;
  std::optional<UpdateShape> shape;
  UpdateShape shape_word;
  std::string method;
  std::string file;
  std::string set;
  bool all = false;
  bool known_unsafe = false;
  bool list = false;
  bool mutate = false;
  plan::Source source = plan::Source::Paper;
  check::CheckOptions bounds;
  CheckFormat format = CheckFormat::Text;
};

/// A method and the responder on which it is asked about.
struct Question {
  Method method;
  ServerProfile profile;
};

Result<std::vector<Question>> table_questions(const CheckCommandOptions& options) {
  if (options.profile.qp_type != QpType::Rc) {
    return Error{ErrorCode::InvalidArgument,
                 "the tables' responders are reached over rc: leave out --all or --qp-type"};
  }
  if (!options.given_in_vain.empty()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the tables' responders have no files and nothing beside the verbs: "
                             "leave out --all or {}",
                             options.given_in_vain)};
  }
  const Transport transport =
      options.transport_given ? options.profile.transport : Transport::InfiniBand;
  const WriteOrder order = options.order_given ? options.profile.write_order : WriteOrder::Ordered;
  const ServerProfile& asked = options.profile;
  std::vector<Question> questions;
  for (auto& each : plan::all_scenarios(options.source, {transport}, order)) {
    const ServerProfile& has = each.profile;
    const bool is_meant = (!options.domain_given || has.domain == asked.domain) &&
                          (!options.ddio_given || has.ddio == asked.ddio) &&
                          (!options.buffers_given || has.receive_buffers == asked.receive_buffers);
    if (is_meant) questions.push_back({std::move(each.method), has});
  }
  if (questions.empty()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the tables have no responder like that ({}); name a method to check "
                             "it there",
                             describe(asked))};
  }
  return questions;
}

/// Where the methods of a file are asked about: on the responder that the command line describes,
/// else on the one that they are meant for.
ServerProfile profile_of(const FileMethod& method, const CheckCommandOptions& options) {
  return options.profile_given || !method.server ? options.profile : *method.server;
}

Result<std::vector<Question>> choose_questions(const CheckCommandOptions& options) {
  std::vector<Question> questions;
  if (options.all) return table_questions(options);
  if (options.known_unsafe && options.profile_given) {
    return Error{ErrorCode::InvalidArgument,
                 "each known unsafe method is checked where it is unsafe: leave out what describes "
                 "another responder"};
  }
  if (options.known_unsafe) {
    for (auto& each : plan::known_unsafe_methods()) {
      questions.push_back({std::move(each.method), each.profile});
    }
    return questions;
  }
  auto method = find_method(options.method, options.profile, options.shape);
  if (!method.ok()) return method.error();
  questions.push_back({std::move(method).value(), options.profile});
  return questions;
}

std::string one_line(const Question& question, const check::Report& report) {
  return fmt::format("{:<13} {:>8} states  {:<30} {:<10} {}\n", to_string(report.verdict),
                     report.states, question.method.name, to_string(question.method.shape),
                     describe(question.profile));
}

struct Tally {
  std::size_t asked = 0;
  std::size_t held = 0;
  std::uint64_t states = 0;
  std::size_t mutated = 0;
  std::size_t caught = 0;
  Nanoseconds busy{0};  // in the checker
};

/// Of this thread: what others do on the machine does not count.
Nanoseconds processor_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + Nanoseconds(now.tv_nsec);
}

check::Report ask(const Question& question, const check::CheckOptions& bounds, Tally& tally) {
  const Nanoseconds begun = processor_time();
  check::Report report = check::check(question.method, question.profile, bounds);
  tally.busy += processor_time() - begun;
  tally.states += report.states;
  return report;
}

/// Everything that does a little less must be wrong; what is not, the method does for nothing.
void ask_mutants(const Question& question, const CheckCommandOptions& options, Tally& tally) {
  for (check::Mutant& weaker : check::mutants(question.method)) {
    const check::Report report =
        ask({std::move(weaker.method), question.profile}, options.bounds, tally);
    ++tally.mutated;
    if (!report.holds()) ++tally.caught;
    if (!report.holds() || options.format != CheckFormat::Text) continue;
    print(fmt::format("superfluous in {} ({}) on {}: {}\n", question.method.name,
                      to_string(question.method.shape), describe(question.profile), weaker.what));
  }
}

std::string total(const Tally& tally, const CheckCommandOptions& options) {
  const double busy_ms = static_cast<double>(tally.busy.count()) / 1e6;
  std::string text = fmt::format(
      "{} of {} hold; {} states explored in {:.1f} ms of processor time ({:.1f} million a second, "
      "measured), each method within {} in flight and {} units per item\n",
      tally.held, tally.asked, tally.states, busy_ms,
      static_cast<double>(tally.states) / busy_ms / 1e3,
      counted(options.bounds.updates_in_flight, "update"), options.bounds.units_per_item);
  if (options.mutate) {
    text += fmt::format("{} of {} mutants caught\n", tally.caught, tally.mutated);
  }
  return text;
}

void print_report(const Question& question, const check::Report& report, CheckFormat format,
                  bool alone) {
  switch (format) {
    case CheckFormat::Text:
      if (!alone) print(one_line(question, report));
      if (alone || !report.holds()) {
        print(check::story(question.method, question.profile, report));
      }
      break;
    case CheckFormat::Sequence:
      print(to_text(check::diagram(question.method, question.profile, report)));
      break;
    case CheckFormat::Svg:
      print(to_svg(check::diagram(question.method, question.profile, report)));
      break;
    case CheckFormat::Json: break;  // one document, at the end
  }
}

ExitStatus refuse(const Error& error) {
  print_error(error);
  return error.code == ErrorCode::InvalidArgument ? ExitStatus::Usage : ExitStatus::Failed;
}

ExitStatus answer(const std::vector<Question>& questions, const CheckCommandOptions& options) {
  const bool alone = questions.size() == 1;
  if (options.format == CheckFormat::Svg && !alone) {
    return refuse(
        {ErrorCode::InvalidArgument,
         "one picture shows one method: name it with --method, or choose another format"});
  }
  nlohmann::ordered_json reports = nlohmann::ordered_json::array();
  Tally tally;
  for (const Question& question : questions) {
    const check::Report report = ask(question, options.bounds, tally);
    ++tally.asked;
    tally.held += report.holds() ? 1 : 0;
    print_report(question, report, options.format, alone);
    if (options.mutate && report.holds()) ask_mutants(question, options, tally);
    if (options.format == CheckFormat::Json) {
      reports.push_back(
          nlohmann::ordered_json::parse(check::to_json(question.method, question.profile, report)));
    }
  }
  if (options.format == CheckFormat::Json) {
    const nlohmann::ordered_json document{{"format", 1},
                                          {"checked", tally.asked},
                                          {"held", tally.held},
                                          {"states", tally.states},
                                          {"mutants", tally.mutated},
                                          {"mutants_caught", tally.caught},
                                          {"reports", std::move(reports)}};
    print(json_text(document, 2) + "\n");
  } else if (options.format == CheckFormat::Text && (!alone || options.mutate)) {
    print(total(tally, options));
  }
  return tally.held == tally.asked ? ExitStatus::Ok : ExitStatus::Failed;
}

void print_set(const SetQuestion& set, const ServerProfile& profile, const check::SetReport& report,
               CheckFormat format) {
  if (format == CheckFormat::Text) return print(set_text(set, profile, report));
  if (format == CheckFormat::Json) return print(set_json(set, profile, report));
  const SetDrawing drawing = set_drawing(set, profile, report);
  const bool svg = format == CheckFormat::Svg;
  print(svg ? to_svg(drawing.heading, drawing.diagrams)
            : to_text(drawing.heading, drawing.diagrams));
}

/// What of the command line no set is asked with; nothing: it is.
std::optional<ExitStatus> refuse_of_set(const CheckCommandOptions& options) {
  if (options.mutate) {
    return refuse({ErrorCode::InvalidArgument, "a set has no mutants: leave out --mutate"});
  }
  if (!options.bound_in_vain.empty()) {
    print_error({ErrorCode::InvalidArgument,
                 fmt::format("a set is of one connection, and its updates follow one another in "
                             "order: leave out {}",
                             options.bound_in_vain)});
    return ExitStatus::Usage;
  }
  constexpr std::size_t kUpdatesMin = 2;
  constexpr std::size_t kUpdatesMax = 4;
  const std::size_t updates = options.bounds.updates_in_flight;
  if (options.updates_given && (updates < kUpdatesMin || updates > kUpdatesMax)) {
    print_error(
        {ErrorCode::InvalidArgument, fmt::format("sequences of a set have {} to {} updates, not {}",
                                                 kUpdatesMin, kUpdatesMax, updates)});
    return ExitStatus::Usage;
  }
  return std::nullopt;
}

/// Methods that share a connection.
ExitStatus answer_set(const SetQuestion& set, const ServerProfile& profile, Level level,
                      const CheckCommandOptions& options) {
  check::SetOptions bounds;
  bounds.level = level;
  if (options.updates_given) bounds.updates_max = options.bounds.updates_in_flight;
  if (options.units_given) bounds.units_per_item = options.bounds.units_per_item;
  bounds.states_max = options.bounds.states_max;
  const check::SetReport report = check::check_set(set.members, profile, bounds);
  print_set(set, profile, report, options.format);
  return report.holds() ? ExitStatus::Ok : ExitStatus::Failed;
}

/// The methods of a file, each alone or as a set, for the level for which they were planned unless
/// the command line names one.
ExitStatus answer_file(CheckCommandOptions options) {
  auto file = read_methods(options.file);
  if (!file.ok()) return refuse(file.error());
  if (file->level && !options.level_given) options.bounds.level = *file->level;
  if (!file->set.empty()) {
    if (const auto refused = refuse_of_set(options)) return *refused;
    const ServerProfile profile = profile_of(file->methods.front(), options);
    return answer_set({std::move(file->set), {}}, profile, options.bounds.level, options);
  }
  std::vector<Question> questions;
  for (FileMethod& each : file->methods) {
    const ServerProfile profile = profile_of(each, options);
    questions.push_back({std::move(each.method), profile});
  }
  return answer(questions, options);
}

ExitStatus run_check(const CheckCommandOptions& options) {
  if (options.list) {
    print(list_methods());
    return ExitStatus::Ok;
  }
  if (!options.set.empty()) {
    if (const auto refused = refuse_of_set(options)) return *refused;
    const Level level = options.bounds.level;
    const auto set = find_set(options.set, options.profile, options.shape, level);
    return set.ok() ? answer_set(*set, options.profile, level, options) : refuse(set.error());
  }
  if (!options.file.empty()) return answer_file(options);
  const auto questions = choose_questions(options);
  return questions.ok() ? answer(*questions, options) : refuse(questions.error());
}

void add_bounds(Command command, check::CheckOptions& bounds) {
  const std::string group = "Bounds";
  add_word_option(command, "--level", bounds.level, parse_level,
                  "What is acknowledged to the requester (durable)",
                  "received|visible|durable|committed")
      .group(group);
  command
      .add_option("--units-per-item", bounds.units_per_item,
                  "Cache lines of each item; more tear in more ways (2; with --set 1)")
      .range(1, 8)
      .option_text("N")
      .group(group);
  command
      .add_option("--updates", bounds.updates_in_flight,
                  "Updates in flight at a time (1; with --set in a sequence, 3)")
      .range(1, 16)
      .option_text("N")
      .group(group);
  add_word_option(command, "--between", bounds.between, parse_between,
                  "What the order of updates in flight means (ordered)",
                  "independent|acknowledged-in-order|ordered")
      .group(group);
  command
      .add_option("--connections", bounds.connections,
                  "Connections to the responder, with no order between them (1)")
      .range(1, 2)
      .option_text("N")
      .group(group);
  add_word_option(command, "--spread", bounds.spread, parse_spread,
                  "With 2 connections: what alternates between them (epochs)", "epochs|updates")
      .group(group);
  command.add_option("--states-max", bounds.states_max, "Give up beyond so many states (50000000)")
      .range(std::uint64_t{1}, std::uint64_t{1} << 40)
      .option_text("N")
      .group(group);
}

void add_questions(Command command, CheckCommandOptions& options) {
  const Command what = command.add_choice("What to check");
  what.add_option("--method", options.method,
                  "A method by name: see --list. Right or wrong for the responder below")
      .option_text("NAME");
  what.add_option("--file", options.file,
                  "Methods in JSON, as `perdure plan` prints them, each alone or those of --set "
                  "together; - is standard input")
      .option_text("FILE");
  what.add_option("--set", options.set,
                  "Methods that share a connection, by name; or the set that is planned for a log")
      .option_text("NAME,NAME|planned");
  what.add_flag("--all", options.all,
                "All methods of the tables, on their responders, or on those that are named");
  what.add_flag("--known-unsafe", options.known_unsafe, "Methods that look right and are not");
  what.add_flag("--list", options.list, "Print the names of all methods");
}

}  // namespace

void add_check_command(Command app) {
  const auto options = std::make_shared<CheckCommandOptions>();
  const Command command = app.add_subcommand(
      "check", "Whether a method is right, in every state; if not, how data is lost");
  add_questions(command, *options);
  add_profile_options(command, options->profile);
  add_word_option(command, "--shape", options->shape_word, parse_shape,
                  "With --method and --set: the update it is for, if several have the name",
                  "singleton|compound|1+2+1");
  add_word_option(command, "--source", options->source, plan::parse_source,
                  "With --all: the tables as published (paper), or what Perdure runs",
                  "paper|best");
  command.add_flag(
      "--mutate", options->mutate,
      "Also check every method that does a little less; what is not caught is printed");
  add_bounds(command, options->bounds);
  add_word_option(command, "--format", options->format, parse_check_format,
                  "How to print it; sequence and svg draw the counterexample (text)",
                  "text|json|sequence|svg");
  add_examples(command,
               "  perdure check --all\n"
               "  perdure check --all --domain dmp --ddio on\n"
               "  perdure check --all --write-order unknown\n"
               "  perdure check --method wrong-read-after-write --domain dmp --transport roce\n"
               "  perdure plan --domain mhp --format json | perdure check --file -\n"
               "  perdure check --set planned --shape compound --domain dmp --transport roce\n"
               "  perdure check --set send-copy-ack,write-flush --shape compound --domain mhp\n"
               "Exit status: 0 all hold, 1 one does not hold or could not be explored whole.");
  run_with(command, [options, command] {
    options->transport_given = command.count("--transport") > 0;
    options->order_given = command.count("--write-order") > 0;
    options->domain_given = command.count("--domain") > 0;
    options->ddio_given = command.count("--ddio") > 0;
    options->buffers_given = command.count("--receive-buffers") > 0;
    options->level_given = command.count("--level") > 0;
    options->updates_given = command.count("--updates") > 0;
    options->units_given = command.count("--units-per-item") > 0;
    options->profile_given = describes_responder(command);
    for (const char* name : {"--between", "--connections", "--spread"}) {
      if (command.count(name) > 0) options->bound_in_vain = name;
    }
    for (const char* name : {"--dma-dirties", "--native-flush", "--persistent-flush",
                             "--atomic-write", "--ordered-persist", "--send-flush"}) {
      if (command.count(name) > 0) options->given_in_vain = name;
    }
    if (command.count("--shape") > 0) options->shape = options->shape_word;
    return run_check(*options);
  });
}

}  // namespace perdure::app
