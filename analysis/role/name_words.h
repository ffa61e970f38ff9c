// The words of a series' name, in lower case.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline {

using NameWords = std::vector<std::string>;

// Splits a name at separators and at capitals. Splits words that are written together: "trainloss"
// gives "train", "loss".
NameWords WordsOfName(std::string_view name);

bool Has(const NameWords& words, std::string_view word);
bool HasAny(const NameWords& words, std::span<const std::string_view> any);
// Returns true if `second` follows `first` directly.
bool InARow(const NameWords& words, std::string_view first, std::string_view second);

// Words that change the meaning of a loss or a gradient norm: a spread, a weight, a setting.
inline constexpr std::string_view kNotTheValue[] = {
    "std",     "stddev",      "var",       "variance",   "min",     "max",      "best",
    "lowest",  "sum",         "count",     "num",        "weight",  "weights",  "coef",
    "coeff",   "coefficient", "coefs",     "factor",     "scale",   "scaler",   "scaling",
    "lambda",  "mask",        "threshold", "target",     "ratio",   "delta",    "diff",
    "change",  "improvement", "gap",       "slope",      "grad",    "gradient", "gradients",
    "norm",    "lr",          "rate",      "time",       "seconds", "secs",     "ms",
    "tokens",  "denominator", "divisor",   "divergence", "spike",   "spikes",   "patience",
    "packet",  "data",        "percent",   "quantile",   "p50",     "p90",      "p95",
    "p99",     "histogram",   "over",      "frames",     "heat",    "kg",       "pressure",
    "dropout", "keep",        "usd",       "skipped",    "nan",     "inf",      "error",
    "errors"};
// Names of data on which the model is not trained.
inline constexpr std::string_view kEvaluations[] = {"val",        "valid",  "validation", "eval",
                                                    "evaluation", "test",   "testing",    "dev",
                                                    "heldout",    "holdout"};

}  // namespace plumbline
