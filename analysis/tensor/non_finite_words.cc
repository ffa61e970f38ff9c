#include "analysis/tensor/non_finite_words.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/half.h"

namespace plumbline::rules {

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

// "It was last looked at in step 32; steps 33 to 63 were not looked at. "
std::string UnseenText(const std::optional<int64_t>& last, int64_t step, const char* what) {
  if (!last || step - *last < 2) return "";
  const int64_t from = *last + 1, to = step - 1;
  return absl::StrFormat(
      "%s was last looked at, and finite, in step %d: not in %s. ", what, *last,
      from == to ? absl::StrCat("step ", from) : absl::StrFormat("steps %d to %d", from, to));
}

}  // namespace plumbline::rules
