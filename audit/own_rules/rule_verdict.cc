#include "audit/own_rules/rule_verdict.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable.h"

namespace plumbline::audit {
namespace {

using nlohmann::json;

constexpr size_t kMostRules = 64, kMostReads = 256, kMostName = 64;
constexpr size_t kMostTitle = 70, kMostText = 4000, kMostPlace = 512;  // bytes
constexpr size_t kMostRanksNamed = 1024, kMostWitness = 64;

absl::Status Expected(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what));
}

bool IsRuleName(const std::string& name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  return !name.empty() && name.size() <= kMostName && name.front() != '-' && name.back() != '-' &&
         std::all_of(name.begin(), name.end(), letter);
}

// Reads fields of one JSON object, and keeps the first thing that is wrong.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {
    if (!object.is_object()) Wrong("an object");
  }

  std::string Text(const char* name, size_t most, bool needed = false) {
    const json* value = Find(name, needed);
    if (value == nullptr) return "";
    if (!value->is_string()) return Wrong(absl::StrCat(name, " to be text")), "";
    const auto& text = value->get_ref<const std::string&>();
    if (text.size() > most)
      return Wrong(absl::StrCat(name, " of at most ", most, " bytes, found ", text.size())), "";
    if (needed && text.empty()) Wrong(absl::StrCat(name, ", found an empty text"));
    return Printable(text);
  }

  // A number, or "nan", "inf", "-inf".
  double Number(const char* name) {
    const json* value = Find(name, true);
    if (value == nullptr) return 0;
    if (value->is_number()) return value->get<double>();
    const std::string text = value->is_string() ? value->get<std::string>() : "";
    if (text == "nan") return std::nan("");
    if (text == "inf") return INFINITY;
    if (text == "-inf") return -INFINITY;
    return Wrong(absl::StrCat(name, " to be a number")), 0;
  }

  int64_t Integer(const json& value, const char* name) {
    if (value.is_number_integer()) return value.get<int64_t>();
    return Wrong(absl::StrCat(name, " to hold integers")), 0;
  }

  const json* Find(const char* name, bool needed = false) {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    if (found != object_.end() && !found->is_null()) return &*found;
    if (needed) Wrong(absl::StrCat("a field ", name));
    return nullptr;
  }

  const json* List(const char* name, size_t most) {
    const json* value = Find(name);
    if (value == nullptr) return nullptr;
    if (!value->is_array()) return Wrong(absl::StrCat(name, " to be a list")), nullptr;
    if (value->size() > most)
      return Wrong(absl::StrCat(name, " of at most ", most, " entries")), nullptr;
    return value;
  }

  void Wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  const std::string& wrong() const { return wrong_; }

 private:
  const json& object_;
  std::string wrong_;
};

void ReadPlace(Fields& fields, v1::FindingSite* site) {
  site->set_layer(fields.Text("layer", kMostPlace));
  site->set_op(fields.Text("op", kMostPlace));
  if (const json* steps = fields.List("steps", 2); steps != nullptr && steps->size() == 2) {
    site->set_step_first(fields.Integer((*steps)[0], "steps"));
    site->set_step_last(fields.Integer((*steps)[1], "steps"));
    if (site->step_last() < site->step_first()) fields.Wrong("steps in ascending order");
  } else if (steps != nullptr) {
    fields.Wrong("steps to be [first, last]");
  }
  if (const json* ranks = fields.List("ranks", kMostRanksNamed)) {
    for (const json& rank : *ranks) {
      const int64_t number = fields.Integer(rank, "ranks");
      if (number < 0 || number > UINT32_MAX) return fields.Wrong("ranks of 0 and more");
      site->add_ranks(static_cast<uint32_t>(number));
    }
  }
}

void ReadLevel(Fields& fields, v1::Finding* finding) {
  const std::string level = fields.Text("level", kMostName, true);
  if (level == "note") {
    finding->set_level(v1::LEVEL_NOTE);
  } else if (level == "warning") {
    finding->set_level(v1::LEVEL_WARNING);
  } else if (level == "error") {
    finding->set_level(v1::LEVEL_ERROR);
    if (fields.Find("false_alarm") == nullptr)
      fields.Wrong("false_alarm, the share that was measured on healthy runs, with level error");
  } else {
    fields.Wrong("level to be note, warning or error");
  }
  if (fields.Find("false_alarm") == nullptr) return;
  const double share = fields.Number("false_alarm");
  if (!(share >= 0 && share <= 1)) return fields.Wrong("false_alarm between 0 and 1");
  finding->mutable_false_alarm()->set_kind("measured");
  finding->mutable_false_alarm()->set_value(share);
}

void ReadWitness(Fields& fields, v1::Finding* finding) {
  const json* witness = fields.Find("witness");
  if (witness == nullptr) return;
  if (!witness->is_object() || witness->size() > kMostWitness)
    return fields.Wrong(absl::StrCat("witness to be at most ", kMostWitness, " names and values"));
  Fields of(*witness);
  for (const auto& [key, value] : witness->items()) {
    if (key.size() > kMostName) return fields.Wrong("shorter names in witness");
    if (value.is_number()) {
      analysis::Put(*finding->mutable_witness(), Printable(key), value.get<double>());
    } else {
      analysis::Put(*finding->mutable_witness(), Printable(key), of.Text(key.c_str(), kMostText));
    }
  }
  if (!of.wrong().empty()) fields.Wrong("witness with " + of.wrong());
}

void ReadOwnFinding(Fields& fields, v1::Verdict* verdict) {
  verdict->set_kind(v1::Verdict::KIND_FINDING);
  v1::Finding* finding = verdict->mutable_finding();
  finding->set_strength(v1::STRENGTH_HEURISTIC);
  ReadLevel(fields, finding);
  finding->set_title(fields.Text("title", kMostTitle, true));
  finding->set_explanation(fields.Text("explanation", kMostText, true));
  finding->set_fix(fields.Text("fix", kMostText));
  finding->mutable_cause()->set_id(fields.Text("cause", kMostName, true));
  if (!IsRuleName(finding->cause().id())) fields.Wrong("cause of small letters, digits and -");
  finding->mutable_cause()->set_confidence(0.5);
  if (fields.Find("measured") != nullptr) {
    finding->mutable_measured()->set_name(fields.Text("measured_name", kMostPlace));
    finding->mutable_measured()->set_value(fields.Number("measured"));
    finding->mutable_measured()->set_unit(fields.Text("unit", kMostName));
  }
  if (fields.Find("threshold") != nullptr) {
    finding->mutable_threshold()->set_value(fields.Number("threshold"));
    finding->mutable_threshold()->set_source("the rule file");
  }
  ReadWitness(fields, finding);
}

}  // namespace

std::string OwnRuleId(const std::string& name) { return "user/" + name; }

absl::StatusOr<std::vector<OwnRule>> ReadOwnRules(const json& hello) {
  Fields fields(hello);
  const json* list = fields.List("rules", kMostRules);
  if (list == nullptr || list->empty())
    return Expected(absl::StrCat("a class of plumbline.rules.Rule (at most ", kMostRules,
                                 "), found ", fields.wrong().empty() ? "none" : fields.wrong()));
  std::vector<OwnRule> rules;
  std::set<std::string> names;
  for (const json& entry : *list) {
    Fields of(entry);
    OwnRule rule;
    rule.name = of.Text("name", kMostName, true);
    if (!IsRuleName(rule.name)) of.Wrong("a name of small letters, digits and -");
    if (rule.name == "invariants") of.Wrong("another name than invariants (plumb learn)");
    if (const json* reads = of.List("reads", kMostReads)) {
      for (const json& glob : *reads) {
        if (glob.is_string()) rule.reads.push_back(glob.get<std::string>());
      }
      if (rule.reads.size() != reads->size()) of.Wrong("reads to be a list of texts");
    }
    if (!of.wrong().empty()) return Expected(of.wrong());
    if (!names.insert(rule.name).second)
      return Expected(absl::StrCat("one rule named ", rule.name, ", found two"));
    rules.push_back(std::move(rule));
  }
  return rules;
}

absl::StatusOr<WatcherVerdict> ReadOwnVerdict(const json& line) {
  Fields fields(line);
  WatcherVerdict out;
  out.run = line.is_object() && line.contains("run") && line["run"].is_string()
                ? line["run"].get<std::string>()
                : "";
  out.rule = OwnRuleId(fields.Text("rule", kMostName, true));
  const std::string kind = fields.Text("verdict", kMostName, true);
  ReadPlace(fields, out.verdict.mutable_site());
  if (kind == "finding") {
    ReadOwnFinding(fields, &out.verdict);
  } else if (kind == "pass" || kind == "inconclusive") {
    const bool pass = kind == "pass";
    out.verdict.set_kind(pass ? v1::Verdict::KIND_PASS : v1::Verdict::KIND_INCONCLUSIVE);
    out.verdict.set_reason(fields.Text("reason", kMostText, true));
    if (!pass && !IsRuleName(out.verdict.reason().substr(0, out.verdict.reason().find(": "))))
      fields.Wrong("a reason of the form short-id: sentence");
  } else {
    fields.Wrong("verdict to be pass, finding or inconclusive");
  }
  if (!fields.wrong().empty()) return Expected(fields.wrong());
  return out;
}

}  // namespace plumbline::audit
