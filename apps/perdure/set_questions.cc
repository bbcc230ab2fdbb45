#include "set_questions.h"

#include "check/check.h"
#include "core/json.h"
#include "core/try.h"
#include "method_file.h"
#include "method_library.h"
#include "plan/plan.h"
#include "plan/render.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::app {
namespace {

using JsonValue = nlohmann::ordered_json;

JsonValue sizes_json(const SizedMethods& sizes) {
  JsonValue json{{"small", sizes.small.name}, {"large", sizes.large.name}};
  if (sizes.small != sizes.large) json["small_bytes_max"] = sizes.small_bytes_max;
  if (sizes.bytes_max != std::numeric_limits<std::uint64_t>::max()) {
    json["bytes_max"] = sizes.bytes_max;
  }
  return json;
}

std::string law_text(const std::vector<SetMember>& members, const ServerProfile& profile) {
  const auto law = may_share(members, profile);
  if (law.ok()) return "the law lets them share a connection\n";
  return fmt::format("the law refuses them: {}\n", law.error().message);
}

Result<SetQuestion> planned(const ServerProfile& profile, const std::optional<UpdateShape>& shape,
                            Level level) {
  if (shape && *shape != singleton() && *shape != compound()) {
    return Error{ErrorCode::InvalidArgument,
                 "sets are planned for singleton updates and for compound ones, which end in a "
                 "word: give --shape singleton or --shape compound"};
  }
  plan::SetOptions options;
  options.tail_word = shape == compound();
  options.level = level;
  options.message_bytes_max = kUsualMessageBytes;
  PERDURE_TRY(set, plan::choose_methods(profile, options, plan::default_costs(profile.transport)));
  return SetQuestion{members(set), set};
}

}  // namespace

Result<SetQuestion> find_set(const std::string& words, const ServerProfile& profile,
                             const std::optional<UpdateShape>& shape, Level level) {
  if (words == "planned") return planned(profile, shape, level);
  SetQuestion question;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    PERDURE_TRY(method, find_method(words.substr(begin, end - begin), profile, shape));
    const bool has_word = method.shape.items_per_epoch.size() > 1;
    question.members.push_back({std::move(method), Reuse::AfterItsEnd, has_word});
    begin = end + 1;
  }
  if (question.members.size() > kSetMethodsMax) {
    return Error{ErrorCode::InvalidArgument, fmt::format("a set has at most {} methods, not {}",
                                                         kSetMethodsMax, question.members.size())};
  }
  return question;
}

namespace {

struct WrongAlone {
  std::string name;
  check::Property breaks;
};

/// Where the set does not hold: the members that do not hold without the others either. The law
/// takes each for right, and says nothing of them.
std::vector<WrongAlone> wrong_alone(const SetQuestion& question, const ServerProfile& profile,
                                    const check::SetReport& report) {
  std::vector<WrongAlone> wrong;
  if (report.verdict != check::Verdict::Violated) return wrong;
  check::CheckOptions bounds;
  bounds.level = report.options.level;
  bounds.units_per_item = report.options.units_per_item;
  bounds.states_max = report.options.states_max;
  for (const SetMember& member : question.members) {
    const std::string& name = member.method.name;
    const bool known = std::any_of(wrong.begin(), wrong.end(),
                                   [&](const WrongAlone& each) { return each.name == name; });
    if (known) continue;
    const check::Report alone = check::check(member.method, profile, bounds);
    if (alone.property) wrong.push_back({name, *alone.property});
  }
  return wrong;
}

/// What there is to say before the story.
std::string verdict_text(const SetQuestion& question, const ServerProfile& profile,
                         const check::SetReport& report) {
  std::string text = question.planned ? plan::to_text(*question.planned) : "";
  text += law_text(question.members, profile);
  for (const WrongAlone& each : wrong_alone(question, profile, report)) {
    text += fmt::format("by itself '{}' is wrong there: it breaks {}\n", each.name,
                        to_string(each.breaks));
  }
  return text;
}

}  // namespace

std::string set_text(const SetQuestion& question, const ServerProfile& profile,
                     const check::SetReport& report) {
  return verdict_text(question, profile, report) + check::story(profile, report);
}

SetDrawing set_drawing(const SetQuestion& question, const ServerProfile& profile,
                       const check::SetReport& report) {
  return {verdict_text(question, profile, report), {check::diagram(profile, report)}};
}

std::string set_json(const SetQuestion& question, const ServerProfile& profile,
                     const check::SetReport& report) {
  JsonValue json = JsonValue::parse(check::to_json(question.members, profile, report));
  const auto law = may_share(question.members, profile);
  json["allowed"] = law.ok();
  if (!law.ok()) json["refusal"] = law.error().message;
  json["wrong_alone"] = JsonValue::array();
  for (const WrongAlone& each : wrong_alone(question, profile, report)) {
    json["wrong_alone"].push_back(each.name);
  }
  if (question.planned) {
    json["batches"] = sizes_json(question.planned->batches);
    json["places"] = sizes_json(question.planned->places);
  }
  return json_text(json, 2) + "\n";
}

std::string planned_json(const MethodSet& set, const ServerProfile& profile, Level level) {
  JsonValue json{{"format", 2},
                 {"server", describe(profile)},
                 {"level", to_string(level)},
                 {"batches", sizes_json(set.batches)},
                 {"places", sizes_json(set.places)},
                 {"members", JsonValue::array()}};
  for (const SetMember& member : members(set)) {
    json["members"].push_back(
        {{"name", member.method.name},
         {"written_again", to_string(member.reuse)},
         {"vouched", member.vouched},
         {"method", JsonValue::parse(plan::to_json(profile, member.method))}});
  }
  return json_text(json, 2) + "\n";
}

SetDrawing planned_drawing(const MethodSet& set, const ServerProfile& profile) {
  const std::vector<SetMember> all = members(set);
  SetDrawing drawing{plan::to_text(set) + law_text(all, profile), {}};
  for (const SetMember& member : all) {
    drawing.diagrams.push_back(plan::diagram(member.method, profile));
  }
  return drawing;
}

}  // namespace perdure::app
