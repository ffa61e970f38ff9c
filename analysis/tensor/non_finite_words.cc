#include "analysis/tensor/non_finite_words.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/half.h"

namespace plumbline::analysis {

std::string CountText(const Observation& o) {
  std::string text;
  const auto add = [&](uint64_t n, const char* what) {
    if (n > 0) absl::StrAppend(&text, text.empty() ? "" : ", ", n, " ", what);
  };
  add(o.nan, "NaN");
  add(o.pos_inf, "+Inf");
  add(o.neg_inf, "-Inf");
  add(o.unsorted, "NaN or Inf");
  return text;
}

std::string BeforeText(const Observation* before) {
  if (before == nullptr) return "Nothing was observed before it on that rank in this step.";
  const std::string name = absl::StrCat(before->layer, "/", before->op);
  if (before->non_finite() > 0)
    return absl::StrFormat("Before it, %s held %s.", name, CountText(*before));
  const double most = FormatOf(before->dtype).max_finite;
  if (!std::isfinite(before->amax) || !IsFloating(before->dtype))
    return absl::StrFormat("Before it, %s was finite.", name);
  return absl::StrFormat("Before it, %s was finite: amax %.4g, %.3g %% of the largest %s.", name,
                         before->amax, 100 * before->amax / most, DTypeName(before->dtype));
}

std::string StartText(const std::optional<int64_t>& weight, const std::optional<int64_t>& site,
                      int64_t step) {
  const std::string had = "The weight already had it at the start of this step. ";
  if (weight && *weight == step - 1)
    return absl::StrFormat(
        "%sAt the end of step %d it was finite: something wrote to it between the two steps.", had,
        *weight);
  if (!site) return had + "It was not observed in an earlier step.";
  return absl::StrFormat(
      "%sIt was last observed in step %d, and was finite: an update since then caused it, or other "
      "code that writes to it.",
      had, *site);
}

std::string MomentText(const std::vector<const Observation*>& moments) {
  std::string text;
  for (const Observation* o : moments)
    absl::StrAppend(&text, text.empty() ? " " : ", ", "its ", o->op, " holds ", CountText(*o));
  if (text.empty()) return text;
  text[1] = 'I';
  return absl::StrCat(
      text, ": the update was computed from it, or both were computed from a bad gradient.");
}

std::string InFrontText(const NonFiniteTrace::InFront& front,
                        const std::optional<int64_t>& weights) {
  const auto counted = [](size_t n, const char* one, const char* many) {
    return absl::StrCat(n, " ", n == 1 ? one : many);
  };
  std::string text;
  if (front.weights > 0) {
    text =
        absl::StrCat(" Before it ", counted(front.weights, "weight", "weights"),
                     front.weights == 1 ? " was" : " were", " observed in this step, and finite");
  } else {
    text = " No weight was observed before it in this step";
    if (weights) absl::StrAppend(&text, " (the last ones in step ", *weights, ", finite)");
  }
  if (front.activations > 0) {
    absl::StrAppend(&text, "; ", counted(front.activations, "activation", "activations"),
                    front.activations == 1 ? " was" : " were", ", finite.");
  } else {
    absl::StrAppend(&text, front.weights > 0 ? "; no activation was." : ", and no activation.");
  }
  return text;
}

// Returns "It was last observed in step 32, and was finite; it was not observed in steps 33 to 63.
// "
std::string UnseenText(const std::optional<int64_t>& last, int64_t step, const char* what) {
  if (!last || step - *last < 2) return "";
  const int64_t from = *last + 1, to = step - 1;
  return absl::StrFormat(
      "%s was last observed in step %d, and was finite; it was not observed in %s. ", what, *last,
      from == to ? absl::StrCat("step ", from) : absl::StrFormat("steps %d to %d", from, to));
}

}  // namespace plumbline::analysis
