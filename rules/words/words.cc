#include "rules/words/words.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace plumbline::rules {
namespace {

// Returns the code before the colon: lower-case letters, digits and hyphens. If there is none,
// returns an empty view.
std::string_view ReasonCode(std::string_view reason) {
  const std::string_view code = reason.substr(0, reason.find(':'));
  const bool coded =
      code.size() < reason.size() && std::all_of(code.begin(), code.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
      });
  return coded ? code : std::string_view();
}

}  // namespace

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

std::string ReasonSentence(std::string_view reason) {
  const std::string_view code = ReasonCode(reason);
  if (code.empty()) return std::string(reason);
  const size_t at = reason.find_first_not_of(' ', code.size() + 1);
  return std::string(at == std::string_view::npos ? code : reason.substr(at));
}

std::string ReasonName(std::string_view reason) {
  std::string name(ReasonCode(reason));
  if (name.empty()) return std::string(reason);
  if (name == "poisoned" || name == "no-number") return "NaN or infinite values";
  std::replace(name.begin(), name.end(), '-', ' ');
  return name;
}

std::string LostText(double rank_seconds, bool on_gpus) {
  if (!(rank_seconds > 0)) return "";
  const char* const what = on_gpus ? "GPU" : "rank";
  return rank_seconds < 3600 ? absl::StrFormat("%.3g %s seconds", rank_seconds, what)
                             : absl::StrFormat("%.3g %s hours", rank_seconds / 3600, what);
}

bool IsPicture(std::string_view key) {
  return key == "queue" || key == "scatter" || key == "lanes" || key == "waits";
}

}  // namespace plumbline::rules
