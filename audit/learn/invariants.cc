#include "audit/learn/invariants.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "audit/own_rules/json_text.h"
#include "base/version/build_version.h"

namespace plumbline::audit {
namespace {

constexpr char kInvariantsSchema[] = "plumbline.invariants/1";
constexpr size_t kMostInvariants = 200'000;
constexpr Measure kMeasures[] = {Measure::kRange, Measure::kRatio, Measure::kNonFinite,
                                 Measure::kStill, Measure::kFall,  Measure::kSpread,
                                 Measure::kAlike, Measure::kOrder};

// A decimal that reads back exactly, as TOML requires it: with a point or an exponent.
std::string TomlNumber(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text;
  AppendJsonNumber(&text, value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// JSON's escapes of a string are those of TOML's basic strings.
std::string TomlText(const std::string& text) {
  std::string out;
  AppendJsonString(&out, text);
  return out;
}

absl::Status WrongAt(const std::string& name, const toml::node& node, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ":", node.source().begin.line, ": expected ", std::string(expected)));
}

std::optional<Measure> MeasureNamed(const std::string& name) {
  for (const Measure measure : kMeasures) {
    if (name == NameOfMeasure(measure)) return measure;
  }
  return std::nullopt;
}

absl::StatusOr<Invariant> ReadInvariant(const toml::node& node, const std::string& name) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return WrongAt(name, node, "[[invariant]]");
  const auto kind = (*table)["kind"].value<std::string>();
  const auto measure = kind ? MeasureNamed(*kind) : std::nullopt;
  if (!measure) return WrongAt(name, node, "kind to be range, ratio, finite, ...");
  Invariant of;
  of.subject.measure = *measure;
  const auto series = (*table)["series"].value<std::string>();
  if (!series || series->empty()) return WrongAt(name, node, "series, the name of a series");
  of.subject.of = *series;
  of.subject.by = (*table)["by"].value_or(std::string());
  const bool two = *measure == Measure::kRatio || *measure == Measure::kOrder;
  if (two == of.subject.by.empty())
    return WrongAt(name, node, "by, a second series, only for ratio and order");
  const bool phased = *measure == Measure::kRatio || *measure == Measure::kRange;
  const auto from = (*table)["from_step"].value<int64_t>();
  if (phased != from.has_value() || (from && *from < 0))
    return WrongAt(name, node, "from_step, a step, only for range and ratio");
  if (phased) of.subject.phase = PhaseOf(*from);
  const auto low = (*table)["low"].value<double>(), high = (*table)["high"].value<double>();
  if (!low || !high || !(*low <= *high))
    return WrongAt(name, node, "low and high, two numbers in order");
  of.low = *low;
  of.high = *high;
  of.support =
      static_cast<uint64_t>(std::max<int64_t>(0, (*table)["support"].value_or<int64_t>(0)));
  return of;
}

absl::StatusOr<Invariants> ReadInvariants(const toml::table& table, const std::string& name) {
  if (table["schema"].value_or(std::string()) != kInvariantsSchema)
    return WrongAt(name, table,
                   absl::StrCat("schema = \"", kInvariantsSchema, "\", as plumb learn writes it"));
  Invariants out;
  const auto count = [&](const char* key) {
    return static_cast<uint64_t>(std::max<int64_t>(0, table[key].value_or<int64_t>(0)));
  };
  out.runs = count("runs");
  out.held_back = count("held_back");
  out.alarms = count("alarms");
  out.dropped = count("dropped");
  const toml::array* list = table["invariant"].as_array();
  if (list == nullptr || list->empty()) return WrongAt(name, table, "at least one [[invariant]]");
  if (list->size() > kMostInvariants) return WrongAt(name, *list, "at most 200,000 invariants");
  if (out.held_back == 0 || out.alarms > out.held_back)
    return WrongAt(name, table, "held_back, and at most as many alarms");
  for (const toml::node& node : *list) {
    absl::StatusOr<Invariant> invariant = ReadInvariant(node, name);
    if (!invariant.ok()) return invariant.status();
    out.list.push_back(*std::move(invariant));
  }
  return out;
}

}  // namespace

// P(no more than `alarms` of `held_back`) at the limit is 5 %: found by halving.
double Invariants::false_alarm_limit() const {
  if (held_back == 0 || alarms >= held_back) return 1;
  const auto n = static_cast<double>(held_back);
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double p = (low + high) / 2;
    double term = std::pow(1 - p, n), sum = 0;
    for (uint64_t k = 0; k <= alarms; ++k) {
      sum += term;
      term *= (n - static_cast<double>(k)) / static_cast<double>(k + 1) * p / (1 - p);
    }
    (sum > 0.05 ? low : high) = p;
  }
  return high;
}

std::string InvariantsText(const Invariants& of) {
  std::string out = absl::StrFormat(
      "# Written by plumb learn %s from %d healthy runs; see docs/invariants.md.\n"
      "# %d of %d held-back runs violated an invariant that the other runs taught (%.3g %%; at "
      "most\n"
      "# %.3g %% at 95 %% confidence). A new run violates a given one with probability at most "
      "1/%d.\n"
      "schema = \"%s\"\nruns = %d\nheld_back = %d\nalarms = %d\ndropped = %d\n",
      BuildVersion(), of.runs, of.alarms, of.held_back, 100 * of.false_alarms(),
      100 * of.false_alarm_limit(), of.runs + 1, kInvariantsSchema, of.runs, of.held_back,
      of.alarms, of.dropped);
  for (const Invariant& invariant : of.list) {
    const Subject& subject = invariant.subject;
    absl::StrAppend(&out, "\n[[invariant]]\nkind = \"", NameOfMeasure(subject.measure),
                    "\"\nseries = ", TomlText(subject.of), "\n");
    if (!subject.by.empty()) absl::StrAppend(&out, "by = ", TomlText(subject.by), "\n");
    if (subject.phase >= 0)
      absl::StrAppend(&out, "from_step = ", StepsOfPhase(subject.phase).first, "\n");
    absl::StrAppend(&out, "low = ", TomlNumber(invariant.low),
                    "\nhigh = ", TomlNumber(invariant.high), "\nsupport = ", invariant.support,
                    "\n");
  }
  return out;
}

absl::StatusOr<Invariants> ParseInvariants(std::string_view text, const std::string& name) {
  try {
    return ReadInvariants(toml::parse(text), name);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ":", error.source().begin.line,
                     ": expected TOML: ", std::string(error.description())));
  }
}

}  // namespace plumbline::audit
