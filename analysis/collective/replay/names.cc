#include "analysis/collective/replay/names.h"

#include "absl/strings/str_cat.h"

namespace plumbline::analysis {
namespace {

std::string Get(const Parameters& p, const std::string& key) {
  const auto found = p.find(key);
  return found == p.end() ? "" : found->second;
}

std::string Noun(const std::string& family) {
  if (family == "fp32") return "fp32 accumulation, rounded once";
  if (family == "exact") return "exact sum, rounded once";
  if (family == "premultiplied") return "fp32 accumulation of inputs times a rounded 1/N";
  if (family == "halving") return "recursive halving";
  if (family == "grouped") return "sum in groups";
  if (family == "unexplained") return "none of the candidates";
  if (family == "indistinguishable") return "candidates that these samples do not distinguish";
  return family;
}

bool NamesDType(const std::string& family) {
  return family == "ring" || family == "tree" || family == "halving" || family == "grouped";
}

}  // namespace

std::string ModelWords(const std::string& family, const Parameters& p) {
  std::string text;
  if (NamesDType(family) && !Get(p, "dtype").empty()) text = Get(p, "dtype") + " ";
  text += Noun(family);
  if (family == "grouped" && !Get(p, "group").empty()) {
    absl::StrAppend(&text, " of ", Get(p, "group"));
    if (!Get(p, "group_dtype").empty()) absl::StrAppend(&text, " in ", Get(p, "group_dtype"));
  }
  if (!Get(p, "variant").empty()) absl::StrAppend(&text, " (", Get(p, "variant"), ")");
  if (!Get(p, "start").empty()) {
    absl::StrAppend(&text, " starting at rank ", Get(p, "start"));
    const std::string segments = Get(p, "segments");
    if (!segments.empty() && segments != "constant") text += " in the first segment";
  }
  if (!Get(p, "direction").empty()) absl::StrAppend(&text, ", ", Get(p, "direction"));
  if (!Get(p, "ring_order").empty()) absl::StrAppend(&text, " in the order ", Get(p, "ring_order"));
  if (Get(p, "rounding") == "toward-zero") text += ", toward zero";
  if (Get(p, "rounding") == "away-from-zero") text += ", away from zero";
  const std::string averaging = Get(p, "averaging");
  if (!averaging.empty() && averaging != "none") absl::StrAppend(&text, ", ", averaging);
  if (!Get(p, "flush").empty() && Get(p, "flush") != "none")
    absl::StrAppend(&text, ", subnormal ", Get(p, "flush"), " flushed");
  return text;
}

bool IsDefault(const std::string& key, const std::string& value) {
  return (key == "averaging" && value == "none") || (key == "flush" && value == "none") ||
         (key == "group" && value == "1");
}

bool IsNumber(const std::string& key) {
  return key == "start" || key == "group" || key == "segment_step";
}

}  // namespace plumbline::analysis
