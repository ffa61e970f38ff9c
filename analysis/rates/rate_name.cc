#include "analysis/rates/rate_name.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace plumbline::rules {
namespace {

// Words that make another thing of it: a bound, a factor, a setting of the scheduler.
constexpr std::string_view kOthers[] = {
    "min",      "max",      "base",      "initial", "init",      "target", "final",  "end",
    "start",    "peak",     "warmup",    "scale",   "mult",      "ratio",  "factor", "decay",
    "weight",   "steps",    "step",      "epoch",   "find",      "finder", "range",  "gamma",
    "patience", "schedule", "scheduler", "scaler",  "multiplier"};

}  // namespace

std::optional<RateName> RateNameOf(const std::string& op) {
  const std::string lower = absl::AsciiStrToLower(op);
  const std::vector<std::string> words = absl::StrSplit(lower, absl::ByAnyChar("/_-. "));
  std::optional<RateName> name;
  size_t at = 0;  // behind the word
  for (size_t i = 0; i < words.size(); ++i) {
    if (std::find(std::begin(kOthers), std::end(kOthers), words[i]) != std::end(kOthers))
      return std::nullopt;
    at += words[i].size() + (i > 0 ? 1 : 0);
    const bool rate = words[i] == "lr" || words[i] == "learningrate" ||
                      (i > 0 && words[i] == "rate" && words[i - 1] == "learning");
    if (rate && !name) name = RateName{op.substr(0, at), op.substr(at)};
  }
  return name;
}

}  // namespace plumbline::rules
