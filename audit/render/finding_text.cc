#include "audit/render/finding_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rules/words/in_short.h"

namespace plumbline::audit {
namespace {

constexpr size_t kIndent = 2;
constexpr size_t kLabelWidth = 11;
constexpr uint64_t kMostSites = 16;  // sites of an incident that are named

std::string ValueText(const google::protobuf::Value& value);

// Returns the keys in sorted order, because map fields have none, so that a finding always has the
// same text.
std::vector<std::string> SortedKeys(const google::protobuf::Struct& fields) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : fields.fields()) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::string FieldsText(const google::protobuf::Struct& fields, std::string_view separator) {
  std::string out;
  for (const std::string& key : SortedKeys(fields)) {
    if (rules::IsPicture(key)) continue;
    if (!out.empty()) out += separator;
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', ' ');
    out += name + " " + ValueText(fields.fields().at(key));
  }
  return out;
}

std::string ValueText(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      return ShortNumber(value.number_value());
    case google::protobuf::Value::kStringValue:
      return value.string_value();
    case google::protobuf::Value::kBoolValue:
      return value.bool_value() ? "yes" : "no";
    case google::protobuf::Value::kStructValue:
      return "(" + FieldsText(value.struct_value(), ", ") + ")";
    case google::protobuf::Value::kListValue: {
      std::string out = "[";
      for (const auto& element : value.list_value().values()) {
        if (out.size() > 1) out += ", ";
        out += ValueText(element);
      }
      return out + "]";
    }
    case google::protobuf::Value::kNullValue:
    case google::protobuf::Value::KIND_NOT_SET:
      break;
  }
  return "none";
}

// Appends "label      text"; further lines are aligned with the text.
void AppendLine(const TextStyle& style, std::string_view label, std::string_view text,
                std::string* out) {
  if (text.empty()) return;
  const size_t margin = kIndent + kLabelWidth;
  const size_t width = std::max<size_t>(static_cast<size_t>(style.width), margin + 20) - margin;
  bool first = true;
  for (const std::string& line : Wrap(Printable(text), width)) {
    std::string head(first ? label : "");
    head.resize(kLabelWidth, ' ');
    *out += std::string(kIndent, ' ') + Inked(style, Ink::kDim, head) + line + "\n";
    first = false;
  }
}

std::string QuantityText(double value, const std::string& unit) {
  return ShortNumber(value) + (unit.empty() ? "" : " " + unit);
}

std::string MeasuredText(const v1::Finding& finding) {
  std::string out;
  if (finding.has_measured()) {
    const v1::Quantity& measured = finding.measured();
    out = (measured.name().empty() ? "" : measured.name() + " ") +
          QuantityText(measured.value(), measured.unit());
  }
  if (finding.has_threshold()) {
    out += (out.empty() ? "" : "; ") + std::string("threshold ") +
           ShortNumber(finding.threshold().value());
    if (!finding.threshold().source().empty()) out += " (" + finding.threshold().source() + ")";
  }
  if (finding.sample_size() > 0) {
    out += (out.empty() ? "" : "; ") + std::string("sample size ") +
           std::to_string(finding.sample_size());
  }
  return out;
}

std::string BiasText(const v1::Bias& bias) {
  return QuantityText(bias.mean(), bias.unit()) + ", interval " + ShortNumber(bias.low()) + " to " +
         ShortNumber(bias.high());
}

std::string CauseText(const v1::Cause& cause) {
  if (cause.id().empty()) return "";
  return cause.id() + " (confidence " + ShortNumber(cause.confidence()) + ")";
}

// If the struct has a sentence under `key`, returns that; otherwise its fields.
std::string SentenceOrFields(const google::protobuf::Struct& fields, const std::string& key) {
  const auto sentence = fields.fields().find(key);
  const bool has = sentence != fields.fields().end() &&
                   sentence->second.kind_case() == google::protobuf::Value::kStringValue;
  return has ? sentence->second.string_value() : FieldsText(fields, ", ");
}

std::string StrengthText(const v1::Finding& finding) {
  std::string out(StrengthName(finding.strength()));
  if (finding.has_false_alarm()) {
    out += ", false alarm " + finding.false_alarm().kind() + " " +
           ShortNumber(finding.false_alarm().value());
  }
  for (int i = 0; i < finding.assumptions_size(); ++i) {
    out += (i == 0 ? ", assuming " : "; ") + finding.assumptions(i);
  }
  return out;
}

}  // namespace

Ink LevelInk(v1::Level level) {
  if (level == v1::LEVEL_ERROR) return Ink::kRed;
  return level == v1::LEVEL_WARNING ? Ink::kYellow : Ink::kCyan;
}

std::string SiteText(const v1::FindingSite& site, std::string_view unit) {
  std::string out = site.layer();
  if (!site.op().empty()) out += (out.empty() ? "" : " ") + site.op();
  const auto add = [&out](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  if (site.step_last() > site.step_first()) {
    add(absl::StrCat(std::string(unit), "s ", site.step_first(), "-", site.step_last()));
  } else if (!site.layer().empty() || !site.op().empty() || site.step_first() > 0) {
    add(absl::StrCat(std::string(unit), " ", site.step_first()));
  }
  if (site.ranks_size() > 0) {
    add((site.ranks_size() == 1 ? "rank " : "ranks ") +
        Ranges({site.ranks().begin(), site.ranks().end()}));
  }
  if (!site.run().empty()) add("run " + site.run());
  return Printable(out);
}

std::string PlaceText(const v1::Finding& finding) {
  const auto& fields = finding.details().fields();
  const auto unit = fields.find("step_unit");
  if (unit == fields.end()) return SiteText(finding.site());
  return SiteText(finding.site(), unit->second.string_value());
}

std::string WitnessText(const google::protobuf::Struct& witness) {
  return SentenceOrFields(witness, "text");
}

std::vector<FindingLine> FindingLines(const v1::Finding& finding) {
  const rules::InShort in_short = rules::ShortOf(finding);
  std::vector<FindingLine> lines = {{"do first", finding.fix().empty() ? "" : in_short.act},
                                    {"command", in_short.command()},
                                    {"with", rules::PlaceholdersIn(in_short.command())},
                                    {"why", finding.explanation()},
                                    {"witness", WitnessText(finding.witness())},
                                    {"cause", CauseText(finding.cause())},
                                    {"measured", MeasuredText(finding)}};
  if (finding.has_bias()) lines.push_back({"bias", BiasText(finding.bias())});
  if (finding.has_forecast())
    lines.push_back({"forecast", SentenceOrFields(finding.forecast(), "words")});
  lines.push_back({"strength", StrengthText(finding)});
  // Add the whole fix if the first line does not have it.
  if (finding.fix() != in_short.act) lines.push_back({"fix", finding.fix()});
  lines.push_back({"finding", finding.fingerprint()});
  return lines;
}

std::string RenderFinding(const v1::Finding& finding, const TextStyle& style) {
  std::string out = Inked(style, LevelInk(finding.level()), LevelName(finding.level())) + "  " +
                    Inked(style, Ink::kBold, Printable(finding.rule()));
  const std::string site = PlaceText(finding);
  if (!site.empty()) out += "  " + site;
  if (finding.suppressed()) out += "  (suppressed)";
  out += "\n";
  for (const std::string& line :
       Wrap(Printable(finding.title()), static_cast<size_t>(style.width) - kIndent)) {
    out += std::string(kIndent, ' ') + Inked(style, Ink::kBold, line) + "\n";
  }
  for (const FindingLine& line : FindingLines(finding))
    AppendLine(style, line.label, line.text, &out);
  return out;
}

std::string RenderIncident(const v1::Finding& shown, const IncidentSites& sites,
                           const TextStyle& style) {
  std::string out = RenderFinding(shown, style);
  if (sites.count < 2) return out;
  std::string text = std::to_string(sites.count) + ":";
  uint64_t named = 0;
  for (const std::string& site : sites.named) {
    if (named == kMostSites) break;
    text += (named++ == 0 ? " " : "; ") + site;
  }
  if (named < sites.count) text += "; and " + std::to_string(sites.count - named) + " more";
  AppendLine(style, "sites", text, &out);
  AppendLine(style, "incident", sites.fingerprint, &out);
  return out;
}

}  // namespace plumbline::audit
