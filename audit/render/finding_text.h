// Formats a finding for a terminal. plumb audit and plumb watch print the same text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/frame/frame.h"
#include "audit/render/text_util.h"
#include "plumbline/v1/finding.pb.h"
#include "rules/words/words.h"

namespace plumbline::audit {

using analysis::LevelName;
using rules::StrengthName;
using rules::VerdictName;
Ink LevelInk(v1::Level level);

// Returns "layers.3 routing, steps 10-40, ranks 0-3, run demo", without unknown parts. `unit` is
// the unit of its steps.
std::string SiteText(const v1::FindingSite& site, std::string_view unit = "step");
// Returns the text of a finding's site. If the run's rows were counted: "loss, logged rows
// 151-200".
std::string PlaceText(const v1::Finding& finding);

// Returns a symptom in one line: "the loss is NaN: health/loss-non-finite, loss, step 61".
std::string SymptomText(const v1::Finding& finding);

// Returns the witness as text. If the rule gave a sentence under the key "text", returns that;
// otherwise each field as "key value".
std::string WitnessText(const google::protobuf::Struct& witness);

// Returns all lines below a finding's title, in order: do first, command, why, witness, cause, ...
// Foreign text is not escaped. If a line does not apply, its text is empty.
struct FindingLine {
  const char* label;
  std::string text;
};
std::vector<FindingLine> FindingLines(const v1::Finding& finding);

// Returns a finding in at most 8 lines: level, rule and site; title; what to do first; the command;
// the reason; how sure it is; its fingerprint. If the style is verbose, returns all lines of
// FindingLines. Control characters of the finding are escaped, so that it cannot control the
// terminal. Thread-safe.
std::string RenderFinding(const v1::Finding& finding, const TextStyle& style);

// Renders a finding with the other findings of its incident (same rule, run and cause): adds the
// sites (the named ones, and the total), the symptoms, and the incident's fingerprint. If there is
// one site and no symptom, renders the finding alone. Thread-safe.
struct IncidentSites {
  uint64_t count = 1;
  std::vector<std::string> named;  // the first sites; there may be more
  std::string fingerprint;
  std::vector<std::string> symptoms = {};  // other symptoms of the same fault, one line each
};
std::string RenderIncident(const v1::Finding& shown, const IncidentSites& sites,
                           const TextStyle& style);

}  // namespace plumbline::audit
