#include "analysis/rates/rate_name.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "analysis/series/series.h"

namespace plumbline::analysis {

std::optional<RateName> RateNameOf(const std::string& op) {
  if (RoleByName(op) != SeriesRole::kRate) return std::nullopt;
  const std::string lower = absl::AsciiStrToLower(op);
  const std::vector<std::string> words = absl::StrSplit(lower, absl::ByAnyChar("/_-. "));
  std::optional<RateName> name;
  size_t at = 0;  // end of the word
  for (size_t i = 0; i < words.size(); ++i) {
    at += words[i].size() + (i > 0 ? 1 : 0);
    const bool of_optimizer = i > 0 && words[i].starts_with("lr") &&  // ESPnet's "optim0_lr0"
                              words[i - 1].starts_with("optim");
    const bool rate = words[i] == "lr" || words[i] == "learningrate" || of_optimizer ||
                      (i > 0 && words[i] == "rate" && words[i - 1] == "learning");
    if (rate && !name) name = RateName{op.substr(0, at), op.substr(at)};
  }
  return name;
}

}  // namespace plumbline::analysis
