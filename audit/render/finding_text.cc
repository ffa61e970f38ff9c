#include "audit/render/finding_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rules/words/false_alarm.h"
#include "rules/words/in_short.h"

namespace plumbline::audit {
namespace {

constexpr size_t kIndent = 2;
constexpr size_t kLabelWidth = 11;
constexpr uint64_t kMostSites = 16;  // sites of an incident that are named in the long form
constexpr uint64_t kBriefSites = 2;  // in the short form
constexpr size_t kMostLines = 8;     // of the short form
constexpr size_t kHeadLines = 2;     // the level, rule and site; the title

std::string ValueText(const google::protobuf::Value& value);

// Returns the keys in sorted order, because map fields have no order, so that a finding always has
// the same text.
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

// Returns the columns for the text to the right of a label.
size_t TextWidth(const TextStyle& style) {
  const size_t margin = kIndent + kLabelWidth;
  return std::max<size_t>(static_cast<size_t>(style.width), margin + 20) - margin;
}

// Appends "label      text"; further lines are aligned with the text.
void AppendLine(const TextStyle& style, std::string_view label, std::string_view text,
                std::string* out) {
  if (text.empty()) return;
  bool first = true;
  for (const std::string& line : Wrap(Printable(text), TextWidth(style))) {
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
  if (cause.id().empty() || cause.id() == "unknown") return "";
  return cause.id() + " (confidence " + ShortNumber(cause.confidence()) + ")";
}

// If the struct has a sentence under `key`, returns that; otherwise its fields.
std::string SentenceOrFields(const google::protobuf::Struct& fields, const std::string& key) {
  const auto sentence = fields.fields().find(key);
  const bool has = sentence != fields.fields().end() &&
                   sentence->second.kind_case() == google::protobuf::Value::kStringValue;
  return has ? sentence->second.string_value() : FieldsText(fields, ", ");
}

std::string AssumedText(const v1::Finding& finding) {
  std::string out;
  for (int i = 0; i < finding.assumptions_size(); ++i)
    out += (i == 0 ? "" : "; ") + finding.assumptions(i);
  return out;
}

// Returns as many whole sentences as fit into `most` lines. If the first one does not fit, cuts it.
std::string Sentences(const std::string& text, size_t width, size_t most) {
  if (Wrap(Printable(text), width).size() <= most) return text;
  for (size_t at = text.rfind(". "); at != std::string::npos && at > 0;
       at = text.rfind(". ", at - 1)) {
    if (Wrap(Printable(text.substr(0, at + 1)), width).size() <= most)
      return text.substr(0, at + 1);
  }
  std::string cut;
  const std::vector<std::string> lines = Wrap(text, width);
  for (size_t i = 0; i < most; ++i) cut += (i == 0 ? "" : " ") + lines[i];
  while (cut.size() > 3 && Wrap(Printable(cut + "..."), width).size() > most) {
    const size_t blank = cut.rfind(' ');
    cut = cut.substr(0, blank == std::string::npos ? cut.size() - 4 : blank);
  }
  return cut + "...";
}

// Returns "in train.py:57"; empty if the trainer's line is not known.
std::string LineText(const v1::FindingSite& site) {
  return site.file().empty() ? "" : absl::StrCat("in ", site.file(), ":", site.line());
}

std::string SitesLine(const IncidentSites& sites, uint64_t most) {
  std::string text = std::to_string(sites.count) + ":";
  uint64_t named = 0;
  for (const std::string& site : sites.named) {
    if (named == most) break;
    text += (named++ == 0 ? " " : "; ") + site;
  }
  if (named < sites.count) text += "; and " + std::to_string(sites.count - named) + " more";
  return text;
}

// Returns what explains the finding, such as a learning rate that jumped; empty if nothing does.
std::string Because(const v1::Finding& finding) {
  const auto because = finding.details().fields().find("because");
  return because == finding.details().fields().end() ? "" : because->second.string_value();
}

// Returns the lines that fit into kMostLines with the two lines of the head. Each takes one line;
// the explanation takes those that are left, and the witness is shown
// if it fits.
std::vector<FindingLine> BriefLines(const v1::Finding& finding, const IncidentSites& sites,
                                    size_t width) {
  const rules::InShort in_short = rules::ShortOf(finding);
  std::vector<FindingLine> lines = {{"do first", finding.fix().empty() ? "" : in_short.act},
                                    {"command", in_short.command()},
                                    {"why", ""},
                                    {"witness", ""},
                                    {"because", Because(finding)},
                                    {"sites", sites.count < 2 ? "" : SitesLine(sites, kBriefSites)},
                                    {"how sure", rules::HowSureText(finding)},
                                    {sites.count < 2 ? "finding" : "incident",
                                     sites.count < 2 ? finding.fingerprint() : sites.fingerprint}};
  size_t used = kHeadLines;
  for (FindingLine& line : lines) {
    if (line.text.empty()) continue;
    const bool act = line.label == std::string_view("do first");
    const bool because = line.label == std::string_view("because");
    line.text = Sentences(line.text, width, act || because ? 2 : 1);
    used += Wrap(Printable(line.text), width).size();
  }
  std::string& why = lines[2].text;
  why = Sentences(finding.explanation(), width, kMostLines > used ? kMostLines - used : 1);
  used += why.empty() ? 0 : Wrap(Printable(why), width).size();
  const std::string witness = WitnessText(finding.witness());
  if (used + Wrap(Printable(witness), width).size() <= kMostLines) lines[3].text = witness;
  return lines;
}

std::string Head(const v1::Finding& finding, const TextStyle& style) {
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

std::string SymptomText(const v1::Finding& finding) {
  v1::Finding of = finding;
  of.mutable_site()->clear_run();
  const std::string place = PlaceText(of);
  return absl::StrCat(finding.title(), ": ", finding.rule(), place.empty() ? "" : ", ", place);
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
                                    {"because", Because(finding)},
                                    {"witness", WitnessText(finding.witness())},
                                    {"cause", CauseText(finding.cause())},
                                    {"measured", MeasuredText(finding)}};
  if (finding.has_bias()) lines.push_back({"bias", BiasText(finding.bias())});
  if (finding.has_forecast())
    lines.push_back({"forecast", SentenceOrFields(finding.forecast(), "words")});
  lines.push_back({"lost", rules::LostText(finding.lost_rank_seconds(), finding.lost_on_gpus())});
  lines.push_back({"how sure", rules::HowSureText(finding)});
  lines.push_back({"assumed", AssumedText(finding)});
  // Add the whole fix if the first line does not have it.
  if (finding.fix() != in_short.act) lines.push_back({"fix", finding.fix()});
  lines.push_back({"reported", LineText(finding.site())});
  lines.push_back({"finding", finding.fingerprint()});
  return lines;
}

std::string RenderFinding(const v1::Finding& finding, const TextStyle& style) {
  return RenderIncident(finding, {}, style);
}

std::string RenderIncident(const v1::Finding& shown, const IncidentSites& sites,
                           const TextStyle& style) {
  std::vector<FindingLine> lines =
      style.verbose ? FindingLines(shown) : BriefLines(shown, sites, TextWidth(style));
  if (style.verbose && sites.count > 1) {
    lines.push_back({"sites", SitesLine(sites, kMostSites)});
    lines.push_back({"incident", sites.fingerprint});
  }
  std::string out = Head(shown, style);
  for (const FindingLine& line : lines) AppendLine(style, line.label, line.text, &out);
  for (const std::string& symptom : sites.symptoms) AppendLine(style, "also", symptom, &out);
  return out;
}

}  // namespace plumbline::audit
