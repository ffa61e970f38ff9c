#include "tests/audit/report_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace plumbline::audit::testing {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::vector<std::string>;

Keys KeysOf(const Json& object) {
  Keys keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

// Exactly `expected`, in order; keys in `optional` may be missing.
void CheckKeys(const std::string& where, const Json& object, const Keys& expected,
               const std::set<std::string>& optional = {}) {
  ASSERT_TRUE(object.is_object()) << where;
  const Keys found = KeysOf(object);
  Keys wanted;
  for (const std::string& key : expected) {
    if (optional.count(key) == 0 || object.contains(key)) wanted.push_back(key);
  }
  EXPECT_EQ(found, wanted) << where;
}

bool IsNumber(const Json& value) {
  return value.is_number() || value == "nan" || value == "inf" || value == "-inf";
}

void CheckSite(const std::string& where, const Json& site) {
  CheckKeys(where, site, {"run", "step_first", "step_last", "ranks", "layer", "op"});
  EXPECT_TRUE(site["run"].is_string() && site["layer"].is_string() && site["op"].is_string())
      << where;
  EXPECT_TRUE(site["step_first"].is_number_integer() && site["step_last"].is_number_integer())
      << where;
  EXPECT_TRUE(site["ranks"].is_array()) << where;
}

void CheckFinding(const std::string& where, const Json& finding) {
  CheckKeys(where, finding,
            {"rule",      "level",   "strength",    "title",       "title_short", "act",
             "act_short", "command", "explanation", "cause",       "site",        "measured",
             "threshold", "bias",    "forecast",    "sample_size", "false_alarm", "assumptions",
             "witness",   "fix",     "fixes",       "details",     "fingerprint", "suppressed"},
            {"command", "bias", "forecast", "false_alarm"});
  const std::set<std::string> levels = {"note", "warning", "error"};
  const std::set<std::string> strengths = {"proved", "bounded", "statistical", "heuristic"};
  EXPECT_EQ(levels.count(finding["level"]), 1u) << where;
  EXPECT_EQ(strengths.count(finding["strength"]), 1u) << where;
  CheckKeys(where + ".cause", finding["cause"], {"id", "confidence"});
  EXPECT_TRUE(IsNumber(finding["cause"]["confidence"])) << where;
  CheckSite(where + ".site", finding["site"]);
  CheckKeys(where + ".measured", finding["measured"], {"name", "value", "unit"});
  EXPECT_TRUE(IsNumber(finding["measured"]["value"])) << where;
  CheckKeys(where + ".threshold", finding["threshold"], {"value", "source"});
  EXPECT_TRUE(IsNumber(finding["threshold"]["value"])) << where;
  EXPECT_TRUE(finding["sample_size"].is_number_unsigned()) << where;
  EXPECT_TRUE(finding["assumptions"].is_array()) << where;
  EXPECT_TRUE(finding["witness"].is_object() && finding["details"].is_object()) << where;
  EXPECT_EQ(finding["fingerprint"].get<std::string>().size(), 32u) << where;
  EXPECT_TRUE(finding["suppressed"].is_boolean()) << where;
  EXPECT_FALSE(finding["title"].get<std::string>().empty()) << where;
}

// Each finding is in one incident, with the others of its rule, run and cause; the first one
// represents it.
void CheckIncidents(const Json& report) {
  std::map<std::string, Json> findings;
  for (const Json& finding : report["findings"]) findings[finding["fingerprint"]] = finding;
  for (const Json& incident : report["incidents"]) {
    CheckKeys("incidents", incident,
              {"fingerprint", "rule", "cause", "level", "title", "sites", "findings"});
    EXPECT_EQ(incident["fingerprint"].get<std::string>().size(), 32u);
    EXPECT_EQ(incident["sites"], incident["findings"].size());
    ASSERT_FALSE(incident["findings"].empty());
    EXPECT_EQ(incident["level"], findings[incident["findings"][0]]["level"]);
    EXPECT_EQ(incident["title"], findings[incident["findings"][0]]["title"]);
    const std::string run = findings[incident["findings"][0]]["site"]["run"];
    for (const Json& fingerprint : incident["findings"]) {
      const auto found = findings.find(fingerprint);
      ASSERT_NE(found, findings.end()) << "in two incidents, or in none: " << fingerprint;
      EXPECT_EQ(found->second["rule"], incident["rule"]);
      EXPECT_EQ(found->second["cause"]["id"], incident["cause"]);
      EXPECT_EQ(found->second["site"]["run"], run);
    }
    for (const Json& fingerprint : incident["findings"]) findings.erase(fingerprint);
  }
  EXPECT_TRUE(findings.empty()) << "findings in no incident";
}

void CheckVerdict(const std::string& where, const Json& verdict) {
  CheckKeys(where, verdict, {"rule", "site", "verdict", "reason", "details", "looks", "run_steps"},
            {"looks", "run_steps"});
  const std::set<std::string> kinds = {"pass", "finding", "inconclusive"};
  EXPECT_EQ(kinds.count(verdict["verdict"]), 1u) << where;
  CheckSite(where + ".site", verdict["site"]);
  if (verdict["verdict"] == "inconclusive") {
    EXPECT_FALSE(verdict["reason"].get<std::string>().empty()) << where;
  }
}

void CheckInput(const std::string& where, const Json& input) {
  CheckKeys(where, input, {"path", "format", "bytes", "records", "problems", "notes", "series"},
            {"notes", "series"});
  if (input.contains("series")) {
    for (const Json& series : input["series"]) {
      CheckKeys(where + ".series", series, {"name", "role", "points"});
      EXPECT_TRUE(series["name"].is_string() && series["role"].is_string()) << where;
      EXPECT_TRUE(series["points"].is_number_unsigned()) << where;
    }
  }
  for (const Json& problem : input["problems"]) {
    const std::string start = input["path"].get<std::string>() + ": byte ";
    EXPECT_EQ(problem.get<std::string>().rfind(start, 0), 0u) << problem;
    EXPECT_NE(problem.get<std::string>().find(": expected "), std::string::npos) << problem;
  }
}

}  // namespace

Json CheckReport(const std::string& text) {
  Json report = Json::parse(text, nullptr, false);
  EXPECT_FALSE(report.is_discarded()) << "not JSON:\n" << text.substr(0, 2000);
  if (report.is_discarded()) return report;
  CheckKeys("report", report,
            {"schema", "tool_version", "inputs", "findings", "incidents", "verdicts", "coverage"});
  EXPECT_EQ(report["schema"], "plumbline.report/1");
  for (const Json& input : report["inputs"]) CheckInput("inputs", input);
  for (const Json& finding : report["findings"]) CheckFinding("findings", finding);
  CheckIncidents(report);
  for (const Json& verdict : report["verdicts"]) CheckVerdict("verdicts", verdict);
  CheckKeys("coverage", report["coverage"], {"judged", "inconclusive", "dropped"});
  return report;
}

}  // namespace plumbline::audit::testing
