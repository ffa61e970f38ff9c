#include "analysis/weights/held_moments.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "analysis/sample/sample.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr char kFirst[] = "exp_avg", kSecond[] = "exp_avg_sq";

bool IsDecay(const std::optional<double>& beta) { return beta && *beta >= 0 && *beta < 1; }

// Returns a lower bound of sqrt(v) / |m|. m = (1 - b1) sum b1^k g and v = (1 - b2) sum b2^k g^2
// over the same gradients, k steps ago. By Cauchy-Schwarz, m^2 <= (1 - b1)^2 sum (b1^2 / b2)^k *
// sum b2^k g^2, so
//   sqrt(v) >= |m| sqrt((1 - b2) (1 - b1^2 / b2)) / (1 - b1);
// 0.138 |m| at 0.9 and 0.999. If no bound is known, returns 0.
double LeastRootOverMoment(const std::optional<double>& beta1, const std::optional<double>& beta2) {
  if (!IsDecay(beta1) || !IsDecay(beta2) || !(*beta1 * *beta1 < *beta2)) return 0;
  return std::sqrt((1 - *beta2) * (1 - *beta1 * *beta1 / *beta2)) / (1 - *beta1);
}

double LeastPositive(DType dtype) {
  const FloatFormat format = FormatOf(dtype);
  return PowerOfTwo(format.min_exponent - format.precision + 1);
}

constexpr char kHeldMomentsFix[] =
    "Keep moments and the division in fp32 or bf16 (step fp32 masters; Megatron-LM "
    "--exp-avg-sq-dtype fp32), or use an eps that the dtype can represent (1e-4 in fp16).";

}  // namespace

bool HeldMoments::ReadsScalar(const v1::Site& site) {
  return site.op() == "held.beta1" || site.op() == "held.beta2" || site.op() == "held.eps";
}

// Collects a parameter's moments, its group's options, and whether its weight is finite.
void HeldMoments::Take(const SiteStep& step) {
  const std::string& op = step.site.op();
  for (const Item& item : step.items) {
    const v1::Evidence& evidence = *item.evidence;
    const auto place = std::pair(item.source->rank(), step.site.layer());
    if (evidence.has_scalar() && ReadsScalar(step.site)) {
      Open& open = open_[place];
      (op == "held.eps"     ? open.epsilon
       : op == "held.beta1" ? open.beta1
                            : open.beta2) = evidence.scalar().value();
    }
    if (evidence.has_tensor() && evidence.tensor().has_summary() &&
        (op == kFirst || op == kSecond || evidence.tensor().role() == "weight"))
      TakeTensor(op, evidence.tensor(), &open_[place]);
  }
}

void HeldMoments::TakeTensor(const std::string& op, const v1::TensorState& state, Open* open) {
  const v1::TensorSummary& s = state.summary();
  const bool finite = s.nan() + s.pos_inf() + s.neg_inf() == 0;
  if (state.role() == "weight") {
    open->weight_finite = finite && open->weight_finite.value_or(true);
    return;
  }
  open->poisoned |= !finite;
  const auto sample = DecodeTensor(state);
  // The second moment decides the dtype and the elements.
  if (op == kSecond) {
    open->square = true;
    open->dtype = static_cast<DType>(state.dtype());
    open->zeros = s.zero();
    if (sample.ok()) open->indices = sample->offsets;
  }
  if (sample.ok()) (op == kSecond ? open->second : open->first) = sample->values;
}

void HeldMoments::Close(const StepEnd& step, VerdictSink& out) {
  for (const auto& [place, open] : open_) {
    if (!open.square) continue;
    std::optional<v1::Verdict> verdict = Judge(open);
    if (!verdict) continue;
    SetPlace(*verdict, place.second, kSecond, step.step, step.step,
             std::vector<uint32_t>{place.first});
    out.Add(*std::move(verdict));
  }
  open_.clear();
}

std::optional<v1::Verdict> HeldMoments::Judge(const Open& open) {
  if (!open.epsilon || !(*open.epsilon > 0) || !std::isfinite(*open.epsilon)) return std::nullopt;
  if (!IsFloating(open.dtype) || DTypeSize(open.dtype) == 1) return std::nullopt;
  if (open.poisoned) return Inconclusive("poisoned: moments that are NaN or infinite");
  // The value of eps after rounding to the moments' dtype.
  const double added = RoundToFormat(*open.epsilon, open.dtype);
  google::protobuf::Struct details;
  Put(details, "eps", *open.epsilon);
  Put(details, "eps_dtype", DTypeName(open.dtype));
  Put(details, "eps_as_added", added);
  Put(details, "zero_moments", static_cast<double>(open.zeros));
  // If eps is 0, a step divides by 0 there, and the weight is not finite afterwards.
  const bool elsewhere = open.zeros > 0 && open.weight_finite.value_or(false);
  if (added == 0 && !elsewhere) {
    v1::Verdict found = Zero(open);
    *found.mutable_details() = std::move(details);
    return found;
  }
  // Elements whose v is 0 although m excludes that.
  const double least = LeastRootOverMoment(open.beta1, open.beta2);
  const double epsilon = added == 0 ? *open.epsilon : added;
  uint64_t bare = 0, below = 0;
  std::optional<size_t> worst;
  for (size_t i = 0; i < open.second.size() && open.second.size() == open.first.size(); ++i) {
    below += open.second[i] < epsilon * epsilon ? 1 : 0;
    if (open.second[i] != 0 || !(least * std::fabs(open.first[i]) > epsilon)) continue;
    ++bare;
    if (!worst || std::fabs(open.first[i]) > std::fabs(open.first[*worst])) worst = i;
  }
  if (!open.second.empty()) {
    Put(details, "below_eps_squared",
        static_cast<double>(below) / static_cast<double>(open.second.size()));
  }
  // There is none: eps works, or is added in another dtype.
  if (!worst) {
    if (added == 0)
      return Inconclusive(
          "eps-elsewhere: eps is 0 in the moments' dtype, but weights with a moment of 0 are "
          "finite, so eps is added in a wider dtype",
          std::move(details));
    return Pass("eps is not zero where it is added", std::move(details));
  }
  const double root = least * std::fabs(open.first[*worst]);
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
  found.Title(absl::StrFormat("the second moment underflows in %s", DTypeName(open.dtype)))
      .Explain(absl::StrFormat(
          "%d of %d sampled elements have v = 0 and a non-zero first moment. From it, sqrt(v) is "
          "at least %.3g there, but the denominator is only eps = %g, %.3g times too small.",
          bare, open.second.size(), root, epsilon, (root + epsilon) / epsilon))
      .Cause("moment-underflow", 1)
      .Measured("elements whose denominator is only eps", static_cast<double>(bare), "elements")
      .Threshold(0, "a sqrt(v) above eps must be part of the denominator")
      .Fix(kHeldMomentsFix)
      .Samples(open.second.size())
      .Witness("element", open.indices.size() > *worst ? static_cast<double>(open.indices[*worst])
                                                       : static_cast<double>(*worst))
      .Witness("first_moment", open.first[*worst])
      .Witness("least_root", root)
      .Assume("both moments are averages of the same gradients");
  *found.verdict().mutable_details() = std::move(details);
  return found.Take();
}

v1::Verdict HeldMoments::Zero(const Open& open) {
  return FindingBuilder(v1::LEVEL_ERROR, v1::STRENGTH_PROVED)
      .Title(absl::StrFormat("eps = %g is 0 in %s", *open.epsilon, DTypeName(open.dtype)))
      .Explain(
          absl::StrFormat("The smallest positive %s is %.3g, so eps rounds to 0. The denominator "
                          "sqrt(v) + eps is 0 where v is 0. %d of the second moments are 0.",
                          DTypeName(open.dtype), LeastPositive(open.dtype), open.zeros))
      .Cause("eps-rounds-to-zero", 1)
      .Measured("eps as added", 0, "")
      .Threshold(LeastPositive(open.dtype),
                 absl::StrFormat("smallest positive %s", DTypeName(open.dtype)))
      .Fix(kHeldMomentsFix)
      .Witness("eps", *open.epsilon)
      .Assume(absl::StrFormat("eps is added in the moments' dtype, %s", DTypeName(open.dtype)))
      .Take();
}

}  // namespace plumbline::analysis
