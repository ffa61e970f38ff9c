#include <nlohmann/json.hpp>

#include "audit/diff/diff_result.h"
#include "audit/render/finding_json.h"
#include "audit/render/json_values.h"
#include "base/version/build_version.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

Json FromSide(const DiffSide& side) {
  Json runs = Json::array(), inputs = Json::array();
  for (const RecordedRun& run : side.runs) {
    runs.push_back({{"path", ValidUtf8(run.path)},
                    {"run", ValidUtf8(run.run)},
                    {"series", run.series.size()}});
  }
  for (const InputReport& input : side.audit.inputs) {
    Json problems = Json::array(), notes = Json::array();
    for (const Problem& problem : input.problems)
      problems.push_back(ValidUtf8(input.Line(problem)));
    for (const std::string& note : input.notes) notes.push_back(ValidUtf8(note));
    Json& entry = inputs.emplace_back(Json{{"path", ValidUtf8(input.path)},
                                           {"format", ValidUtf8(input.format)},
                                           {"problems", problems}});
    if (!notes.empty()) entry["notes"] = notes;
  }
  return {{"runs", runs}, {"inputs", inputs}, {"left_out", side.left_out}};
}

Json FromTexts(const std::vector<TextDifference>& differences) {
  Json list = Json::array();
  const auto text = [](const std::string& t) { return t.empty() ? Json() : Json(ValidUtf8(t)); };
  for (const TextDifference& d : differences)
    list.push_back({{"name", ValidUtf8(d.name)}, {"a", text(d.a)}, {"b", text(d.b)}});
  return list;
}

Json FromAxis(const std::optional<AlongAxis>& along) {
  if (!along) return nullptr;
  const departure::Comparison& c = along->comparison;
  Json json = {{"points", c.points}, {"judged", c.block > 0}};
  json["smallest"] = c.block > 0 ? JsonNumber(c.smallest) : Json();
  json["seeds"] = c.seeds_known ? "measured" : "assumed";
  json["end"] = nullptr;
  if (along->end.points > 0)
    json["end"] = {{"size", JsonNumber(along->end.size)}, {"points", along->end.points}};
  if (along->few) {
    json["few_points"] = {{"points", along->few->points},
                          {"above", along->few->above},
                          {"size", JsonNumber(along->few->size)},
                          {"chance", JsonNumber(along->few->chance)},
                          {"apart", along->few->apart}};
  }
  json["departure"] = nullptr;
  if (!c.departure) return json;
  json["departure"] = {{"onset", JsonNumber(*along->onset)},
                       {"size", JsonNumber(c.departure->size)},
                       {"threshold", JsonNumber(c.departure->threshold)},
                       {"block", c.departure->block}};
  return json;
}

Json FromSeries(const SeriesDiff& series) {
  Json json = {{"name", ValidUtf8(series.name)},
               {"role", series.role == DiffRole::kLoss     ? "loss"
                        : series.role == DiffRole::kTokens ? "tokens"
                                                           : "none"},
               {"common_steps", series.common},
               {"only_a", series.only_a},
               {"only_b", series.only_b}};
  if (!series.run.empty()) json["run"] = ValidUtf8(series.run);
  json["exact"] = series.exact;
  json["first_difference"] = nullptr;
  if (series.first_difference)
    json["first_difference"] = {{"step", *series.first_difference},
                                {"a", JsonNumber(series.value_a)},
                                {"b", JsonNumber(series.value_b)}};
  json["by_step"] = FromAxis(series.by_step);
  json["by_tokens"] = FromAxis(series.by_tokens);
  return json;
}

Json FromFindings(const std::vector<const v1::Finding*>& findings) {
  Json list = Json::array();
  for (const v1::Finding* finding : findings) list.push_back(FindingValue(*finding));
  return list;
}

}  // namespace

std::string DiffJson(const DiffResult& result) {
  Json json;
  json["schema"] = "plumbline.diff/1";
  json["tool_version"] = BuildVersion();
  json["a"] = FromSide(result.a);
  json["b"] = FromSide(result.b);
  json["compared"] = result.compared;
  json["settings"] = FromTexts(result.settings);
  json["series"] = Json::array();
  for (const SeriesDiff& series : result.series) json["series"].push_back(FromSeries(series));
  json["rewards"] = Json::array();
  for (const RewardDiff& reward : result.rewards) {
    json["rewards"].push_back({{"name", ValidUtf8(reward.name)},
                               {"points", reward.points},
                               {"a", JsonNumber(reward.a)},
                               {"b", JsonNumber(reward.b)},
                               {"apart", reward.apart}});
  }
  json["series_only_a"] = JsonNames(result.series_only_a);
  json["series_only_b"] = JsonNames(result.series_only_b);
  json["numerics"] = FromTexts(result.numerics);
  json["findings"] = {{"only_a", FromFindings(result.only_a)},
                      {"only_b", FromFindings(result.only_b)},
                      {"both", result.findings_in_both}};
  json["times"] = Json::array();
  for (const TimeDifference& t : result.times)
    json["times"].push_back({{"kind", t.kind}, {"a", JsonNumber(t.a)}, {"b", JsonNumber(t.b)}});
  return TerminalSafeJson(json.dump(2)) + "\n";
}

}  // namespace plumbline::audit
