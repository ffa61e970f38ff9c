#include "analysis/role/booster_name.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"

namespace plumbline {
namespace {

// Names of error metrics when used alone, in lower case.
constexpr std::string_view kErrorMetrics[] = {"rmse",
                                              "mae",
                                              "mape",
                                              "rmsle",
                                              "smape",
                                              "mphe",
                                              "mse",
                                              "msle",
                                              "l1",
                                              "l2",
                                              "huber",
                                              "quantile",
                                              "fair",
                                              "poisson",
                                              "gamma",
                                              "tweedie",
                                              "medianabsoluteerror",
                                              "multiclass",
                                              "crossentropy",
                                              "logloss",
                                              "mlogloss",
                                              "binary_logloss",
                                              "multi_logloss",
                                              "cross_entropy",
                                              "softprob",
                                              "nloglik"};
// Those of the names above that no other trainer uses for another metric.
constexpr std::string_view kAlone[] = {"rmse",  "mae", "mape", "rmsle",
                                       "smape", "mse", "msle", "multiclass"};
constexpr std::string_view kShares[] = {"error", "merror", "binary_error", "multi_error"};
constexpr std::string_view kGrow[] = {"auc", "aucpr", "ndcg", "map", "average_precision",
                                      "pre", "auc_mu"};
constexpr std::string_view kTrainingSets[] = {"train", "training", "learn", "dtrain"};
constexpr std::string_view kEvaluationSets[] = {"eval", "val",   "valid",  "validation",
                                                "test", "dtest", "dvalid", "holdout"};

template <size_t size>
bool IsOne(std::string_view word, const std::string_view (&known)[size]) {
  return std::find(std::begin(known), std::end(known), word) != std::end(known);
}

// Returns the metric in "rmse", "error@0.7", "quantile:alpha=0.5", "poisson-nloglik".
std::string_view MetricIn(std::string_view text) {
  return text.substr(0, text.find_first_of("@:-"));
}

// Returns the name of the data set without its number, for "valid_0", "eval1", "test".
std::string_view SetIn(std::string_view text) {
  while (!text.empty() && (absl::ascii_isdigit(text.back()) || text.back() == '_'))
    text.remove_suffix(1);
  return text;
}

// Returns true for a metric of XGBoost or LightGBM that falls as a model improves. "gamma" alone is
// a setting of other trainers.
bool IsError(std::string_view text, bool lightgbm) {
  const std::string_view metric = MetricIn(text);
  const bool deviance = text.ends_with("-nloglik") || text.ends_with("-deviance");
  if (!lightgbm && (metric == "gamma" || metric == "fair" || metric == "poisson")) return deviance;
  return IsOne(metric, kErrorMetrics);
}

// Returns the role of a metric of a data set. If the set or the metric is not known, returns
// nullopt.
std::optional<SeriesRole> RoleOfSet(std::string_view set, std::string_view text, bool lightgbm) {
  const bool training = IsOne(set, kTrainingSets);
  if (!training && !IsOne(set, kEvaluationSets)) return std::nullopt;
  const std::string_view metric = MetricIn(text);
  if (IsOne(metric, kGrow)) return SeriesRole::kNone;
  if (IsOne(metric, kShares)) return SeriesRole::kAuxiliaryLoss;
  if (!IsError(text, lightgbm)) return std::nullopt;
  return training ? SeriesRole::kLoss : SeriesRole::kEvaluationLoss;
}

}  // namespace

std::optional<SeriesRole> BoosterRole(std::string_view name) {
  constexpr size_t kLongest = 64;
  constexpr std::string_view kOf = "'s ", kTest = "test/", kLearn = "learn/";
  if (name.size() > kLongest) return std::nullopt;
  const std::string lower = absl::AsciiStrToLower({name.data(), name.size()});
  const std::string_view text = lower;
  if (const size_t of = text.find(kOf); of != std::string_view::npos)
    return RoleOfSet(SetIn(text.substr(0, of)), text.substr(of + kOf.size()), true);
  if (const size_t at = text.find('-'); at != std::string_view::npos)
    return RoleOfSet(SetIn(text.substr(0, at)), text.substr(at + 1), false);
  // LightGBM's own program prints "training l2", "valid_1 l2".
  if (const size_t at = text.find(' '); at != std::string_view::npos) {
    const std::string_view metric = text.substr(at + 1);
    if (IsError(metric, true)) return RoleOfSet(SetIn(text.substr(0, at)), metric, true);
  }
  const bool test = text.starts_with(kTest);
  const size_t set = test ? kTest.size() : text.starts_with(kLearn) ? kLearn.size() : 0;
  if (!IsOne(text.substr(set), kAlone)) return std::nullopt;
  return test ? SeriesRole::kEvaluationLoss : SeriesRole::kLoss;
}

bool IsOfBooster(std::string_view name) { return BoosterRole(name).has_value(); }

}  // namespace plumbline
