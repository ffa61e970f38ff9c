#include "analysis/role/name_words.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace plumbline {
namespace {

// Two words that are written together.
struct Together {
  std::string_view written, first, second;
};
constexpr Together kTogether[] = {
    {"trainloss", "train", "loss"}, {"trainingloss", "train", "loss"},
    {"valloss", "val", "loss"},     {"evalloss", "eval", "loss"},
    {"testloss", "test", "loss"},   {"lmloss", "lm", "loss"},
    {"celoss", "ce", "loss"},       {"nllloss", "nll", "loss"},
    {"mseloss", "mse", "loss"},     {"bceloss", "bce", "loss"},
    {"totalloss", "total", "loss"}, {"auxloss", "aux", "loss"},
    {"zloss", "z", "loss"},         {"lossscale", "loss", "scale"},
    {"gradnorm", "grad", "norm"},   {"learningrate", "learning", "rate"},
    {"losses", "", "loss"},         {"xent", "cross", "loss"},
    {"cost", "", "loss"},           {"logloss", "log", "loss"},
    {"mlogloss", "log", "loss"},    {"nll", "nll", "loss"},
    {"rmse", "metric", "loss"},     {"mse", "metric", "loss"},
    {"mae", "metric", "loss"},      {"mape", "metric", "loss"},
    {"rmsle", "metric", "loss"},
};

// Next to these words, "cost" is the minimised value. "batch_cost" is a time, and "cost_usd" is
// money.
constexpr std::string_view kNextToCost[] = {"cost", "train", "training",   "val",  "valid",
                                            "test", "eval",  "validation", "mean", "avg"};

// "ce" is the cross-entropy, if no other word names the loss ("ce_loss").
bool IsCrossEntropy(std::string_view part, const NameWords& parts) {
  return part == "ce" && !Has(parts, "loss") && !Has(parts, "losses");
}

}  // namespace

bool Has(const NameWords& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool HasAny(const NameWords& words, std::span<const std::string_view> any) {
  return std::any_of(any.begin(), any.end(), [&](std::string_view w) { return Has(words, w); });
}

bool InARow(const NameWords& words, std::string_view first, std::string_view second) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i - 1] == first && words[i] == second) return true;
  }
  return false;
}

NameWords WordsOfName(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i > 0 && absl::ascii_isupper(name[i]) && absl::ascii_islower(name[i - 1])) text += ' ';
    text += absl::ascii_tolower(name[i]);
  }
  const NameWords parts = absl::StrSplit(text, absl::ByAnyChar("/_-.: \t()[]"), absl::SkipEmpty());
  NameWords words;
  for (const std::string& part : parts) {
    const auto* together = std::find_if(std::begin(kTogether), std::end(kTogether),
                                        [&](const auto& known) { return known.written == part; });
    const bool other_cost =
        part == "cost" && !std::all_of(parts.begin(), parts.end(), [](const auto& p) {
          return std::find(std::begin(kNextToCost), std::end(kNextToCost), p) !=
                 std::end(kNextToCost);
        });
    if (IsCrossEntropy(part, parts)) {
      words.insert(words.end(), {"ce", "loss"});
      continue;
    }
    if (together == std::end(kTogether) || other_cost) {
      words.push_back(part);
      continue;
    }
    if (!together->first.empty()) words.emplace_back(together->first);
    words.emplace_back(together->second);
  }
  return words;
}

}  // namespace plumbline
