#include "rules/bases/non_finite_words.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/collective/case/case.h"

namespace plumbline::rules {
namespace {

constexpr char kBack[] =
    "Go back to the last checkpoint with finite weights and moments, and skip the batch; "
    "precision/non-finite names the first non-finite tensor.";

// Returns "the loss", "the gradient norm" or "the evaluation loss".
const char* Noun(SeriesRole role) {
  switch (role) {
    case SeriesRole::kGradientNorm:
      return "the gradient norm";
    case SeriesRole::kEvaluationLoss:
      return "the evaluation loss";
    case SeriesRole::kPerplexity:
      return "the perplexity";
    case SeriesRole::kLikelihood:
      return "the likelihood";
    default:
      return IsPolicyMetric(role) ? "a metric of the policy" : "the loss";
  }
}

std::string ValueWord(const NonFiniteCourse& course) {
  return std::string(course.what()) == "nan" ? "NaN" : "infinite";
}

// Returns a text such as "number of nan iterations counts NaN from step 50 to step 90: 5 rows."
std::string CountedSentence(const NonFiniteCourse& course, const NonFinitePlace& place) {
  if (course.onset() == course.newest())
    return absl::StrFormat("%s counts NaN in step %d.", place.op, course.onset());
  return absl::StrFormat("%s counts NaN from step %d to step %d, in %d rows.", place.op,
                         course.onset(), course.newest(), course.not_finite());
}

// Returns a text such as "train/loss is NaN in step 30, on rank 0; it was 5.87 before."
std::string Sentence(const NonFiniteCourse& course, const NonFinitePlace& place) {
  if (place.role == SeriesRole::kNanCount) return CountedSentence(course, place);
  std::string text =
      absl::StrFormat("%s is %s in step %d", place.op, ValueWord(course), course.onset());
  const bool one = course.onset() == course.newest();
  if (one) absl::StrAppend(&text, ", on ", RankWords(place.bad_ranks));
  if (std::isfinite(course.before()))
    absl::StrAppendFormat(&text, "; it was %.6g before", course.before());
  if (!one)
    absl::StrAppendFormat(&text, ". Up to step %d, %d values were NaN or infinite", course.newest(),
                          course.not_finite());
  return text + ".";
}

void PutKind(const NonFinitePlace& place, int64_t step, const std::string& kind,
             FindingBuilder* found) {
  google::protobuf::Struct& details = *found->verdict().mutable_details();
  Put(details, "series", place.op);
  Put(details, "step", static_cast<double>(step));
  Put(details, "kind", kind);
}

FindingBuilder Lasting(const NonFiniteCourse& course, const NonFinitePlace& place) {
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
  const bool evaluation = place.role == SeriesRole::kEvaluationLoss && place.training_finite;
  const bool norm = place.role == SeriesRole::kGradientNorm;
  const bool counted = place.role == SeriesRole::kNanCount;
  const bool measure =
      place.role == SeriesRole::kPerplexity || place.role == SeriesRole::kLikelihood;
  const bool metric = IsPolicyMetric(place.role);
  const char* const noun =
      Noun(evaluation || norm || measure || metric ? place.role : SeriesRole::kLoss);
  std::string text = Sentence(course, place);
  if (evaluation) {
    absl::StrAppend(&text, " The training loss is finite, so the fault is in the evaluation.");
  } else if (metric && place.training_finite) {
    absl::StrAppend(&text, " The training loss is finite.");
  } else if (course.never_finite() && norm) {
    absl::StrAppend(&text, " It is ", ValueWord(course),
                    " since the first logged step: no optimizer step was useful.");
  }
  found
      .Title(counted ? "iterations with a NaN are counted"
                     : absl::StrCat(noun, " is ", ValueWord(course)))
      .Explain(text)
      // If a loss and a norm fail in one step, the loss is shown first.
      .Cause(evaluation ? "evaluation" : place.cause, norm ? 0.9 : 1)
      .Measured("NaN or infinite values", static_cast<double>(course.not_finite()), "values")
      .Threshold(0, norm                ? "a gradient norm is finite"
                    : counted           ? "no iteration has a NaN"
                    : measure || metric ? "its value is finite"
                                        : "a loss is finite")
      .Samples(place.values)
      .Fix(
          evaluation
              ? "Check the evaluation: labels that are all masked (ignore index), an empty split, "
                "a batch of padding, fp16 in evaluation. The weights are not damaged."
          : metric && place.training_finite
              ? "Check what it is computed from: log-probabilities of -inf, a mask without tokens, "
                "a division by a count of 0."
          : norm && course.never_finite()
              ? "Stop the run. Check the labels (all masked?), the inputs and the dtype. Train in "
                "bf16 or fp32, and start again from the initial weights."
              : kBack)
      .Witness("step", static_cast<double>(course.onset()))
      .Witness("value", course.what());
  if (std::isfinite(course.before())) found.Witness("value_before", course.before());
  PutKind(place, course.onset(), course.what(), &found);
  return found;
}

FindingBuilder Passing(NonFiniteEvent states, const NonFiniteCourse& course,
                       const NonFinitePlace& place) {
  const bool came = states == NonFiniteEvent::kCame, filler = states == NonFiniteEvent::kFiller;
  const bool counted = place.role == SeriesRole::kNanCount;
  FindingBuilder found(came || counted ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_PROVED);
  std::string text = Sentence(course, place);
  if (filler) {
    absl::StrAppend(&text,
                    " It is finite again after that: probably no value was due in that row.");
  } else if (states == NonFiniteEvent::kBegan) {
    absl::StrAppend(&text,
                    " It is finite since then: probably a loss scaler searched for its scale.");
  } else if (!counted) {
    absl::StrAppend(&text, " It is finite after that: probably a loss scaler skipped steps.");
  }
  if (course.single_rows() > 1)
    absl::StrAppendFormat(&text, " %d of %d logged rows are affected.", course.single_rows(),
                          course.rows());
  found
      .Title(counted ? "single iterations with a NaN are counted"
                     : absl::StrCat(Noun(place.role),
                                    came     ? " was NaN or infinite for several rows"
                                    : filler ? " is NaN or infinite in rows without a value"
                                             : " is NaN or infinite in single steps"))
      .Explain(text)
      .Cause(filler    ? "not-due"
             : counted ? "nan-iteration"
                       : "skipped-step",
             came ? 0.5 : 0.8)
      .Measured("NaN or infinite values", static_cast<double>(course.not_finite()), "values")
      .Threshold(0, counted ? "no iteration has a NaN" : "a step that a loss scaler skips has none")
      .Samples(place.values)
      .Fix(counted
               ? "Find the batch: a check of the loss in each step, which stops the run, shows it."
           : filler ? "Do nothing, or log the series only in steps with a value."
           : came ? "Check the loss scale (log it), or train in bf16. Without a loss scaler, find "
                    "the batch."
                  : "Do nothing while it is rare (health/loss-scale counts a logged scale).")
      .Witness("step", static_cast<double>(course.onset()))
      .Witness("value", course.what());
  PutKind(place, course.onset(), filler ? "not-due" : "skipped", &found);
  return found;
}

}  // namespace

FindingBuilder NonFiniteFinding(NonFiniteEvent states, const NonFiniteCourse& course,
                                const NonFinitePlace& place) {
  FindingBuilder found =
      states == NonFiniteEvent::kLasts ? Lasting(course, place) : Passing(states, course, place);
  found.At(place.layer, place.op, course.onset(), std::max(course.onset(), course.newest()),
           place.bad_ranks);
  return found;
}

FindingBuilder ZeroLossFinding(const ZeroLoss& zero, const NonFinitePlace& place, bool came_back) {
  const bool lost = zero.norm == ZeroLoss::Norm::kLost;
  const bool nothing = zero.norm == ZeroLoss::Norm::kZero;
  const v1::Level level = came_back ? v1::LEVEL_NOTE
                          : nothing ? v1::LEVEL_WARNING
                                    : v1::LEVEL_ERROR;
  FindingBuilder found(level, lost ? v1::STRENGTH_PROVED : v1::STRENGTH_BOUNDED);
  std::string text = absl::StrFormat("%s is exactly 0 in %d logged rows, steps %d to %d", place.op,
                                     zero.rows, zero.first, zero.last);
  if (std::isfinite(zero.before)) absl::StrAppendFormat(&text, "; it was %.4g before", zero.before);
  absl::StrAppend(&text,
                  lost ? ". The gradient norm is NaN or infinite there: a NaN loss is logged as 0 "
                         "(transformers, logging_nan_inf_filter)."
                  : nothing
                      ? ". The gradient norm is 0 too: the model learns nothing from these batches."
                      : ". No gradient norm is logged. A NaN loss may be logged as 0 "
                        "(transformers, logging_nan_inf_filter).",
                  came_back ? " It is above 0 again." : "");
  found
      .Title(nothing ? "the loss and the gradient norm are exactly 0"
                     : "the loss is exactly 0: a NaN that the log hides")
      .Explain(text)
      .Cause(nothing ? "no-labels"
             : lost  ? place.cause
                     : "masked-nan",
             lost ? 0.95 : 0.8)
      .Measured("rows with a loss of exactly 0", static_cast<double>(zero.rows), "rows")
      .Threshold(0, "a training loss is above 0")
      .Samples(zero.rows)
      .Fix(nothing ? "Check the labels: all masked (ignore index), or a prompt that fills the "
                     "whole sequence."
                   : "Set logging_nan_inf_filter=False to see the NaN. Go back to the last good "
                     "checkpoint, use bf16 or fp32, and check labels and inputs.")
      .Witness("step", static_cast<double>(zero.first))
      .Witness("rows", static_cast<double>(zero.rows))
      .At(place.layer, place.op, zero.first, std::max(zero.first, zero.last), place.bad_ranks);
  if (!lost && !nothing)
    found.Assume("the loss cannot reach exactly 0 (no hinge loss, no memorised data)");
  PutKind(place, zero.first, came_back ? "recovered" : "zero", &found);
  return found;
}

}  // namespace plumbline::rules
