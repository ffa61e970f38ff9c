// One finding as a person reads it in a terminal: plumb audit and plumb watch print the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/frame/frame.h"
#include "audit/render/text_util.h"
#include "plumbline/v1/finding.pb.h"
#include "rules/words/words.h"

namespace plumbline::audit {

using rules::LevelName;
using rules::StrengthName;
using rules::VerdictName;
Ink LevelInk(v1::Level level);

// "layers.3 routing, steps 10-40, ranks 0-3, run demo"; parts that are unknown are left out.
// `unit`: what its steps are.
std::string SiteText(const v1::FindingSite& site, std::string_view unit = "step");
// The same of a finding's site: "loss, logged rows 151-200" if its run's rows were counted.
std::string PlaceText(const v1::Finding& finding);

// The witness in words. A rule that can say it in a sentence puts it under the key "text";
// otherwise each field follows as "key value".
std::string WitnessText(const google::protobuf::Struct& witness);

// What a finding says below its title, in that order: do first, command, why, witness, cause, ...
// Foreign text as it came; the text of a line that does not apply is empty.
struct FindingLine {
  const char* label;
  std::string text;
};
std::vector<FindingLine> FindingLines(const v1::Finding& finding);

// Several lines, each ended by a newline; the first says level, rule and site, the others are
// indented. Nothing in the finding can steer the terminal. Thread-safe.
std::string RenderFinding(const v1::Finding& finding, const TextStyle& style);

// A finding as one incident with others of the same rule, run and cause: below it the sites (those
// that are named, and how many there are) and the incident's fingerprint. Of one site alone it is
// the finding. Thread-safe.
struct IncidentSites {
  uint64_t count = 1;
  std::vector<std::string> named;  // the first of them; may be fewer than there are
  std::string fingerprint;
};
std::string RenderIncident(const v1::Finding& shown, const IncidentSites& sites,
                           const TextStyle& style);

}  // namespace plumbline::audit
