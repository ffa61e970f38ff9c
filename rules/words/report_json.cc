#include "rules/words/report_json.h"

#include "analysis/frame/frame.h"
#include "base/printable.h"
#include "rules/words/false_alarm.h"
#include "rules/words/in_short.h"
#include "rules/words/words.h"

namespace plumbline::rules {
namespace {

Json Valid(std::string_view text) { return ValidUtf8(text); }

Json FromSite(const v1::FindingSite& site) {
  Json ranks = Json::array();
  for (const uint32_t rank : site.ranks()) ranks.push_back(rank);
  Json json = {{"run", Valid(site.run())},      {"step_first", site.step_first()},
               {"step_last", site.step_last()}, {"ranks", ranks},
               {"layer", Valid(site.layer())},  {"op", Valid(site.op())}};
  if (!site.file().empty()) {
    json["file"] = Valid(site.file());
    json["line"] = site.line();
  }
  return json;
}

}  // namespace

Json FindingValue(const v1::Finding& finding) {
  Json json;
  json["rule"] = Valid(finding.rule());
  json["level"] = analysis::LevelName(finding.level());
  json["strength"] = StrengthName(finding.strength());
  json["title"] = Valid(finding.title());
  const InShort in_short = ShortOf(finding);
  json["title_short"] = Valid(in_short.title);
  json["act"] = Valid(in_short.act);
  json["act_short"] = Valid(in_short.act_short);
  json["command"] = Valid(in_short.command());
  json["explanation"] = Valid(finding.explanation());
  json["cause"] = {{"id", Valid(finding.cause().id())},
                   {"confidence", NumberJson(finding.cause().confidence())}};
  json["site"] = FromSite(finding.site());
  json["measured"] = {{"name", Valid(finding.measured().name())},
                      {"value", NumberJson(finding.measured().value())},
                      {"unit", Valid(finding.measured().unit())}};
  json["threshold"] = {{"value", NumberJson(finding.threshold().value())},
                       {"source", Valid(finding.threshold().source())}};
  if (finding.has_bias()) {
    json["bias"] = {{"mean", NumberJson(finding.bias().mean())},
                    {"low", NumberJson(finding.bias().low())},
                    {"high", NumberJson(finding.bias().high())},
                    {"unit", Valid(finding.bias().unit())}};
  }
  if (finding.has_forecast()) json["forecast"] = StructJson(finding.forecast());
  json["sample_size"] = finding.sample_size();
  if (finding.has_false_alarm()) {
    json["false_alarm"] = {{"kind", Valid(finding.false_alarm().kind())},
                           {"value", NumberJson(finding.false_alarm().value())},
                           {"text", FalseAlarmText(finding)}};
  }
  json["assumptions"] = Json::array();
  for (const std::string& assumption : finding.assumptions())
    json["assumptions"].push_back(Valid(assumption));
  json["witness"] = StructJson(finding.witness());
  json["fix"] = Valid(finding.fix());
  json["fixes"] = FixesJson(finding);
  json["details"] = StructJson(finding.details());
  json["fingerprint"] = Valid(finding.fingerprint());
  json["suppressed"] = finding.suppressed();
  if (finding.lost_rank_seconds() > 0) {
    json["lost"] = {{"rank_seconds", NumberJson(finding.lost_rank_seconds())},
                    {"on_gpus", finding.lost_on_gpus()}};
  }
  return json;
}

Json VerdictValue(const v1::Verdict& verdict) {
  Json json = {{"rule", Valid(verdict.rule())},
               {"site", FromSite(verdict.site())},
               {"verdict", VerdictName(verdict.kind())},
               {"reason", Valid(verdict.reason())},
               {"details", StructJson(verdict.details())}};
  if (verdict.looks() > 0) json["looks"] = verdict.looks();
  if (verdict.run_steps() > 0) json["run_steps"] = verdict.run_steps();
  return json;
}

}  // namespace plumbline::rules
