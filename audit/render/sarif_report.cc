#include "audit/render/sarif_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "audit/render/bottleneck.h"
#include "audit/render/file_uri.h"
#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"
#include "audit/render/rule_text.h"
#include "audit/render/text_util.h"
#include "base/version/build_version.h"
#include "rules/catalogue.h"

namespace plumbline::audit {
namespace {

using Sarif = nlohmann::ordered_json;

constexpr const char* kSarifSchema = "https://json.schemastore.org/sarif-2.1.0.json";
constexpr size_t kMostLocations = 16;  // per result

// Escapes text as a message. In SARIF "{0}" is a placeholder (3.11.5) and "[a](b)" a link (3.11.6),
// which foreign text must not create.
std::string MessageText(std::string_view text) {
  std::string out;
  for (const char c : ValidUtf8(text)) {
    if (c == '(' && out.ends_with(']')) out += ' ';
    out += c;
    if (c == '{' || c == '}') out += c;
  }
  return out;
}

Sarif Message(std::string_view text) { return {{"text", MessageText(text)}}; }

std::string SarifLevel(v1::Level level) {
  return level == v1::LEVEL_ERROR ? "error" : level == v1::LEVEL_WARNING ? "warning" : "note";
}

// Returns the version in the form of Semantic Versioning: "0.2.0+git20261128.143005.abc1234".
std::string SemanticVersion() {
  std::string version = BuildVersion();
  std::replace(version.begin(), version.end(), '~', '+');
  return version;
}

class SarifRun {
 public:
  SarifRun(const AuditResult& result, int exit_status, const std::string& folder)
      : result_(result),
        exit_status_(exit_status),
        folder_(folder),
        chosen_(result.selection.Of(result.report.findings())) {}

  Sarif Render() {
    Sarif rules = Rules();
    Sarif run;
    run["tool"] = {{"driver",
                    {{"name", "Plumbline"},
                     {"version", BuildVersion()},
                     {"semanticVersion", SemanticVersion()},
                     {"rules", std::move(rules)}}}};
    run["invocations"] = Sarif::array({Invocation()});
    run["artifacts"] = Artifacts();
    run["results"] = Results();
    run["columnKind"] = "unicodeCodePoints";
    run["properties"] = Properties();
    return run;
  }

 private:
  // Returns the rules with a finding or a verdict, in the order of their ids.
  Sarif Rules() {
    std::set<std::string> ids;
    for (const v1::Finding* finding : chosen_.shown) ids.insert(finding->rule());
    for (const v1::Verdict* verdict : result_.report.verdicts()) ids.insert(verdict->rule());
    Sarif rules = Sarif::array();
    for (const std::string& id : ids) {
      rule_index_[id] = rules.size();
      rules.push_back(Rule(id));
    }
    return rules;
  }

  static Sarif Rule(const std::string& id) {
    Sarif rule = {{"id", ValidUtf8(id)}};
    const rules::CatalogueEntry* entry = rules::FindRule(id);
    if (entry == nullptr) return rule;  // a newer server has this rule, but this plumb does not
    const rules::RuleInfo& info = *entry->info;
    const std::string page = RulePage(info);
    rule["shortDescription"] = {{"text", info.title}};
    rule["fullDescription"] = {{"text", FirstParagraph(page, info.title)}};
    rule["help"] = {{"text", page}, {"markdown", page}};
    rule["defaultConfiguration"] = {{"level", SarifLevel(info.level)}};
    rule["properties"] = {{"tags", Sarif::array({std::string(info.group())})},
                          {"since", info.since}};
    return rule;
  }

  // Returns the first paragraph of a page that is not a heading.
  static std::string FirstParagraph(const std::string& page, const char* otherwise) {
    size_t begin = 0;
    while (begin < page.size()) {
      const size_t end = std::min(page.find("\n\n", begin), page.size());
      const std::string_view paragraph = std::string_view(page).substr(begin, end - begin);
      if (!paragraph.empty() && paragraph.front() != '#') return std::string(paragraph);
      begin = end + 2;
    }
    return otherwise;
  }

  Sarif Results() const {
    Sarif results = Sarif::array();
    for (const v1::Finding* finding : chosen_.shown) results.push_back(Result(*finding));
    return results;
  }

  Sarif Result(const v1::Finding& finding) const {
    Sarif result;
    result["ruleId"] = ValidUtf8(finding.rule());
    result["ruleIndex"] = rule_index_.at(finding.rule());
    result["kind"] = "fail";
    result["level"] = SarifLevel(finding.level());
    result["message"] = Message(Words(finding));
    result["locations"] = Sarif::array({Location(finding)});
    if (Sarif related = RelatedLocations(finding.site()); !related.empty())
      result["relatedLocations"] = std::move(related);
    result["partialFingerprints"] = {{"plumbline/v1", ValidUtf8(finding.fingerprint())}};
    if (result_.selection.baseline) result["baselineState"] = "new";
    if (SuppressionsKnown()) result["suppressions"] = Suppressions(finding);
    result["properties"] = FindingProperties(finding);
    return result;
  }

  static std::string Words(const v1::Finding& finding) {
    std::string text = finding.title() + ".";
    const std::string site = PlaceText(finding);
    if (!site.empty()) text += " At " + site + ".";
    const auto add = [&text](const std::string& part) {
      if (!part.empty()) text += "\n\n" + part;
    };
    add(finding.explanation());
    add(WitnessText(finding.witness()));
    if (!finding.fix().empty()) add("Fix: " + finding.fix());
    return text;
  }

  // Returns the finding's properties without those that the result has elsewhere.
  static Sarif FindingProperties(const v1::Finding& finding) {
    Sarif properties = FindingValue(finding);
    for (const char* elsewhere : {"rule", "level", "fingerprint", "suppressed"})
      properties.erase(elsewhere);
    return properties;
  }

  // Returns the location of a finding. The engine joins ranks, so a finding belongs to all inputs
  // of its run: the first is the location, the others are related.
  Sarif Location(const v1::Finding& finding) const {
    Sarif location = Sarif::object();
    const std::vector<size_t> inputs = InputsOf(finding.site());
    if (!inputs.empty()) location["physicalLocation"] = Physical(inputs.front());
    const v1::FindingSite& site = finding.site();
    Sarif logical = Sarif::array();
    const std::string run = ValidUtf8(site.run()), layer = ValidUtf8(site.layer());
    const std::string op = ValidUtf8(site.op());
    if (!layer.empty())
      logical.push_back({{"name", layer}, {"fullyQualifiedName", layer}, {"kind", "module"}});
    if (!op.empty()) {
      logical.push_back({{"name", op},
                         {"fullyQualifiedName", layer.empty() ? op : layer + "/" + op},
                         {"kind", "function"}});
    }
    if (logical.empty() && !run.empty())
      logical.push_back({{"name", run}, {"fullyQualifiedName", run}, {"kind", "namespace"}});
    if (!logical.empty()) location["logicalLocations"] = std::move(logical);
    location["message"] = Message(SiteText(site).empty() ? "the audit" : SiteText(site));
    return location;
  }

  Sarif RelatedLocations(const v1::FindingSite& site) const {
    Sarif related = Sarif::array();
    const std::vector<size_t> inputs = InputsOf(site);
    for (size_t i = 1; i < inputs.size() && related.size() < kMostLocations; ++i)
      related.push_back({{"id", i}, {"physicalLocation", Physical(inputs[i])}});
    return related;
  }

  // Returns the inputs of a finding: those of its run, narrowed to those that hold its series or
  // its first step. A filter that would leave none is not applied.
  std::vector<size_t> InputsOf(const v1::FindingSite& site) const {
    std::vector<size_t> inputs = ReadInputs();
    const auto narrow = [&](const auto& fits) {
      std::vector<size_t> fitting;
      for (const size_t i : inputs) {
        if (fits(result_.inputs[i])) fitting.push_back(i);
      }
      if (!fitting.empty()) inputs = std::move(fitting);
    };
    narrow([&](const InputReport& input) {
      return input.runs.contains(site.run()) || (site.run().empty() && input.runs.empty());
    });
    narrow([&](const InputReport& input) {
      return std::any_of(input.series.begin(), input.series.end(), [&](const SeriesSeen& series) {
        return series.name == site.op() || series.name == site.layer() + "/" + site.op();
      });
    });
    narrow([&](const InputReport& input) { return input.only_step == site.step_first(); });
    return inputs;
  }

  // Returns the indices in `inputs` of those with a recognised format. If there are none, returns
  // all.
  std::vector<size_t> ReadInputs() const {
    std::vector<size_t> read, all;
    for (size_t i = 0; i < result_.inputs.size(); ++i) {
      all.push_back(i);
      if (result_.inputs[i].format != "unknown") read.push_back(i);
    }
    return read.empty() ? all : read;
  }

  Sarif Physical(size_t input) const {
    return {{"artifactLocation", {{"uri", Uri(result_.inputs[input])}, {"index", input}}}};
  }

  std::string Uri(const InputReport& input) const {
    if (input.format == "server") return "plumbd://" + FileUri(input.path, "/");
    return FileUri(input.path, folder_);
  }

  Sarif Artifacts() const {
    Sarif artifacts = Sarif::array();
    for (const InputReport& input : result_.inputs) {
      artifacts.push_back(
          {{"location", {{"uri", Uri(input)}}},
           {"length", input.bytes},
           {"roles", Sarif::array({"analysisTarget"})},
           {"properties", {{"format", ValidUtf8(input.format)}, {"records", input.records}}}});
    }
    return artifacts;
  }

  Sarif Invocation() const {
    Sarif notifications = Sarif::array();
    for (size_t i = 0; i < result_.inputs.size(); ++i) {
      const InputReport& input = result_.inputs[i];
      const auto emit = [&](const char* level, const std::string& text) {
        notifications.push_back(
            {{"descriptor", {{"id", "input-problem"}}},
             {"level", level},
             {"message", Message(text)},
             {"locations", Sarif::array({{{"physicalLocation", Physical(i)}}})}});
      };
      for (const Problem& problem : input.problems)
        emit(problem.error ? "error" : "warning", input.Line(problem));
      for (const std::string& note : input.notes) emit("note", input.path + ": " + note);
    }
    return {{"executionSuccessful", !result_.inputs_failed()},
            {"exitCode", exit_status_},
            {"toolExecutionNotifications", std::move(notifications)}};
  }

  Sarif Properties() const {
    const rules::Coverage& coverage = result_.coverage;
    Sarif properties = {{"judged", coverage.judged},
                        {"inconclusive", coverage.inconclusive},
                        {"dropped", coverage.dropped}};
    if (const auto bottlenecks = BottlenecksOf(result_); !bottlenecks.empty()) {
      properties["bottleneck"] = {{"line", BottleneckLineOf(result_)},
                                  {"paid", std::string(bottlenecks[0].id)},
                                  {"share", bottlenecks[0].share}};
      if (bottlenecks.size() > 1) {
        properties["bottleneck"]["next"] = std::string(bottlenecks[1].id);
        properties["bottleneck"]["nextShare"] = bottlenecks[1].share;
      }
      properties["toll"] = properties["bottleneck"];  // former name, for one version
    }
    if (result_.selection.baseline) properties["leftOutByBaseline"] = chosen_.known;
    if (result_.selection.since) properties["leftOutBySince"] = chosen_.before;
    return properties;
  }

  // Returns true if any result can state whether it is suppressed. Then all results must state it
  // (3.27.23).
  bool SuppressionsKnown() const {
    return !result_.suppressions.empty() ||
           std::any_of(chosen_.shown.begin(), chosen_.shown.end(),
                       [](const v1::Finding* finding) { return finding->suppressed(); });
  }

  Sarif Suppressions(const v1::Finding& finding) const {
    if (!finding.suppressed()) return Sarif::array();
    Sarif suppression = {{"kind", "external"}, {"status", "accepted"}};
    for (const rules::Suppression& entry : result_.suppressions) {
      if (!entry.Matches(finding)) continue;
      suppression["justification"] = ValidUtf8(entry.reason);
      suppression["properties"] = {{"expires", rules::DateText(entry.expires)}};
      break;
    }
    return Sarif::array({suppression});
  }

  const AuditResult& result_;
  const int exit_status_;
  const std::string& folder_;
  const Selection::Result chosen_;
  std::map<std::string, size_t> rule_index_;
};

}  // namespace

std::string RenderSarif(const AuditResult& result, int exit_status, const std::string& folder) {
  Sarif log = {{"$schema", kSarifSchema}, {"version", "2.1.0"}};
  log["runs"] = Sarif::array({SarifRun(result, exit_status, folder).Render()});
  return TerminalSafeJson(log.dump(2)) + "\n";
}

}  // namespace plumbline::audit
