#include "rules/words/words.h"

namespace plumbline::rules {

const char* StrengthName(v1::Strength strength) {
  switch (strength) {
    case v1::STRENGTH_HEURISTIC:
      return "heuristic";
    case v1::STRENGTH_STATISTICAL:
      return "statistical";
    case v1::STRENGTH_BOUNDED:
      return "bounded";
    case v1::STRENGTH_PROVED:
      return "proved";
    default:
      return "unspecified";
  }
}

const char* VerdictName(v1::Verdict::Kind kind) {
  switch (kind) {
    case v1::Verdict::KIND_PASS:
      return "pass";
    case v1::Verdict::KIND_FINDING:
      return "finding";
    case v1::Verdict::KIND_INCONCLUSIVE:
      return "inconclusive";
    default:
      return "unspecified";
  }
}

const char* StateName(v1::Incident::State state) {
  switch (state) {
    case v1::Incident::STATE_ACKNOWLEDGED:
      return "acknowledged";
    case v1::Incident::STATE_SILENCED:
      return "silenced";
    case v1::Incident::STATE_RESOLVED:
      return "resolved";
    default:
      return "open";
  }
}

bool IsPicture(std::string_view key) {
  return key == "queue" || key == "scatter" || key == "lanes" || key == "waits";
}

}  // namespace plumbline::rules
