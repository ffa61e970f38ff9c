#include "analysis/completeness/gradient_judge.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "analysis/completeness/reference.h"

namespace plumbline::analysis {
namespace {

constexpr double kNone = 0.1;        // a share of the reference that may be 0
constexpr double kSameShare = 0.02;  // shares that are equal
constexpr double kShareErrors = 5;   // standard errors of a share
constexpr double kMostError = 0.2;   // of a share that is compared
constexpr double kNoSum = 0.1;       // residual of a gradient that is no sum of these own gradients
constexpr double kOwnOnly = 0.02;    // residual and other weights of a rank's own gradient
constexpr double kMostTimes = 2;     // of another parameter's gradient
constexpr size_t kMostOthers = 64;   // parameters of the same size that are tried
constexpr double kBeyond = 4;        // slacks that the reference must be violated by

constexpr char kTooFew[] =
    "few-elements: fewer elements than distinct own gradients + 2, or own gradients that depend on "
    "each other";

class GradientJudge {
 public:
  explicit GradientJudge(const std::vector<AppliedGradient>& parameters) {
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (!parameters[p].problem.empty()) {
        Unknown(p, parameters[p].problem);
        continue;
      }
      std::vector<HeldGradient> held = HeldGradientsOf(parameters[p], p);
      if (held.empty()) Unknown(p, "not-applied: no rank reported an applied gradient");
      std::move(held.begin(), held.end(), std::back_inserter(held_));
    }
  }

  GradientJudgement Run() {
    if (held_.empty()) {
      out_.reason =
          out_.unknown.empty() ? "no-gradients: nothing was recorded" : out_.unknown[0].second;
      return std::move(out_);
    }
    if (std::none_of(held_.begin(), held_.end(), [](const auto& held) { return held.fit; })) {
      out_.reason = kTooFew;
      return std::move(out_);
    }
    if (JudgeOwnOnly()) return std::move(out_);
    const ReferenceWeights reference(held_);
    reference_ = &reference;
    if (reference.agreeing() == 0) {
      out_.reason =
          "no-majority: fewer than 3 parameters, or fewer than 60 % of them, have the same "
          "weights of the ranks";
      return std::move(out_);
    }
    for (const HeldGradient& held : held_) Judge(held);
    return std::move(out_);
  }

 private:
  void Unknown(size_t parameter, std::string why) {
    out_.unknown.emplace_back(parameter, std::move(why));
  }

  // ---- every rank applies its own gradient ----

  // Returns the weight of the holder's own gradient if the applied one is that alone.
  static std::optional<double> OwnWeight(const HeldGradient& held) {
    if (!held.fit || held.columns.size() < 2 || held.fit->residual > kOwnOnly) return std::nullopt;
    std::optional<double> own;
    double others = 0;
    for (size_t k = 0; k < held.columns.size(); ++k) {
      const RankSet& ranks = held.columns[k];
      const bool mine = std::find(ranks.begin(), ranks.end(), held.holders[0]) != ranks.end();
      if (mine) own = held.fit->weight[k];
      if (!mine) others = std::max(others, std::fabs(held.fit->weight[k]));
    }
    return own && others <= kOwnOnly * std::fabs(*own) ? own : std::nullopt;
  }

  // Judges gradients of which most are a rank's own alone. Returns false if they are not.
  bool JudgeOwnOnly() {
    size_t own = 0, parameters = 0;
    const HeldGradient *first = nullptr, *last = nullptr;
    for (const HeldGradient& held : held_) {
      if (last != nullptr && last->number == held.number) continue;  // each parameter counts once
      last = &held;
      ++parameters;
      if (!OwnWeight(held)) continue;
      ++own;
      if (first == nullptr) first = &held;
    }
    const double share = static_cast<double>(own) / static_cast<double>(parameters);
    if (own < ReferenceWeights::kFewest || !(share >= ReferenceWeights::kMajority)) return false;
    if (!first->parameter->declared) {
      out_.reason =
          "not-declared: each rank applies its own gradient, and nothing states that they are "
          "summed";
      return true;
    }
    GradientFault fault;
    fault.kind = GradientFault::Kind::kNotSummed;
    fault.parameter = first->number;
    fault.holders = first->parameter->ranks;
    std::vector<double> alone(first->columns.size(), 0), all;
    for (size_t k = 0; k < alone.size(); ++k) {
      const RankSet& ranks = first->columns[k];
      if (std::find(ranks.begin(), ranks.end(), first->holders[0]) != ranks.end())
        alone[k] = *OwnWeight(*first);
      all.push_back(*OwnWeight(*first) * static_cast<double>(ranks.size()) /
                    static_cast<double>(first->parameter->ranks.size()));
    }
    Compare(*first, alone, all, 8 * first->parameter->unit, &fault);
    out_.faults.push_back(std::move(fault));
    return true;
  }

  // ---- one parameter against the reference ----

  void Judge(const HeldGradient& held) {
    if (!held.fit) {
      return Unknown(held.number, kTooFew);
    }
    const std::vector<double> reference = reference_->Of(held);
    if (reference.empty())
      return Unknown(held.number, "other-ranks: no other parameters are summed over these ranks");
    const bool agrees = ReferenceWeights::Agrees(*held.fit, reference);
    if (agrees && LargestError(held, reference) <= kBeyond * reference_->slack()) {
      ++out_.complete;
      return;
    }
    if (std::all_of(held.applied->begin(), held.applied->end(), [](double x) { return x == 0; }))
      return Unknown(held.number, "masked: the applied gradient is zero");
    if (agrees || held.fit->residual > kNoSum) return JudgeOther(held, reference);
    JudgeShares(held, reference);
  }

  // Explains the weights by a factor, by ranks that are left out or by ranks that count twice.
  void JudgeShares(const HeldGradient& held, const std::vector<double>& reference) {
    GradientFault fault;
    fault.parameter = held.number;
    fault.holders = held.holders;
    std::vector<double> rest;
    std::vector<size_t> none;
    double same = kSameShare;  // and what the fit's own errors allow
    for (size_t k = 0; k < reference.size(); ++k) {
      const double share = held.fit->weight[k] / reference[k];
      same = std::max(same, kShareErrors * held.fit->error[k] / std::fabs(reference[k]));
      if (std::fabs(share) < kNone) {
        none.push_back(k);
      } else {
        rest.push_back(share);
      }
    }
    if (rest.empty()) return Unknown(held.number, "unexplained: no own gradient has its weight");
    const auto [least, most] = std::minmax_element(rest.begin(), rest.end());
    const double low = *least, high = *most;
    const bool one_factor = high - low <= 2 * same * high;
    if (!(same <= kMostError)) return JudgeOther(held, reference);
    if (one_factor && none.empty())
      return JudgeScaled(held, reference, (low + high) / 2, std::move(fault));
    if (one_factor) return JudgeLeftOut(held, reference, none, (low + high) / 2, std::move(fault));
    if (!none.empty()) return JudgeOther(held, reference);
    fault.kind = GradientFault::Kind::kDoubled;
    std::vector<double> weights = reference;
    for (size_t k = 0; k < reference.size(); ++k) {
      const double share = held.fit->weight[k] / reference[k];
      const bool twice = std::fabs(share - 2) <= 2 * same;
      if (!twice && std::fabs(share - 1) > same) return JudgeOther(held, reference);
      if (!twice) continue;
      weights[k] *= 2;
      fault.ranks.insert(fault.ranks.end(), held.columns[k].begin(), held.columns[k].end());
    }
    Report(held, weights, reference, std::move(fault));
  }

  void JudgeLeftOut(const HeldGradient& held, const std::vector<double>& reference,
                    const std::vector<size_t>& none, double factor, GradientFault fault) {
    fault.kind = GradientFault::Kind::kLeftOut;
    std::vector<double> weights = reference;
    double all = 0, kept = 0;
    for (const double w : reference) all += w;
    for (const size_t k : none) {
      weights[k] = 0;
      fault.ranks.insert(fault.ranks.end(), held.columns[k].begin(), held.columns[k].end());
    }
    for (const double w : weights) kept += w;
    // The others keep their weights, or share those of the ones left out.
    fault.factor = std::fabs(factor - 1) <= kSameShare ? 1 : all / kept;
    if (std::fabs(factor - fault.factor) > 2 * kSameShare * fault.factor)
      return Unknown(held.number, "unexplained: its weights have no simple relation");
    for (double& w : weights) w *= fault.factor;
    const bool own = held.holders.size() == 1 && OwnWeight(held);
    if (own && !held.parameter->declared) {
      return Unknown(held.number,
                     "not-declared: this rank applies its own gradient, and nothing states that "
                     "this parameter's are summed");
    }
    if (own) fault.kind = GradientFault::Kind::kNotSummed;
    std::sort(fault.ranks.begin(), fault.ranks.end());
    Report(held, weights, reference, std::move(fault));
  }

  // Trainers scale gradients on purpose (a smaller rate of an embedding, a clip per parameter), so
  // only the number of ranks is a fault: a sum in place of a mean, or a division twice.
  void JudgeScaled(const HeldGradient& held, const std::vector<double>& reference, double factor,
                   GradientFault fault) {
    const auto ranks = static_cast<double>(held.parameter->ranks.size());
    fault.kind = GradientFault::Kind::kScaled;
    fault.factor = factor > 1 ? ranks : 1 / ranks;
    if (std::fabs(factor / fault.factor - 1) > kSameShare)
      return Unknown(held.number, "scaled: all of its weights have another factor");
    std::vector<double> weights = reference;
    for (double& w : weights) w *= fault.factor;
    Report(held, weights, reference, std::move(fault));
  }

  // Explains a gradient that is no sum of its own parts by those of another parameter.
  void JudgeOther(const HeldGradient& held, const std::vector<double>& reference) {
    size_t tried = 0;
    for (const HeldGradient& other : held_) {
      if (other.number == held.number || other.applied->size() != held.applied->size() ||
          other.parameter->count != held.parameter->count || reference_->Of(other).empty())
        continue;
      if (++tried > kMostOthers) break;
      if (TakeOther(held, reference, other)) return;
    }
    Unknown(held.number,
            "not-a-sum: it is no weighted sum of these ranks' gradients (another term, "
            "a mask or a clip by element)");
  }

  bool TakeOther(const HeldGradient& held, const std::vector<double>& reference,
                 const HeldGradient& other) {
    HeldGradient both = held;
    both.own.insert(both.own.end(), other.own.begin(), other.own.end());
    const std::optional<WeightsFit> fit = FitWeights(both.own, *held.applied);
    if (!fit || fit->residual > kOwnOnly) return false;
    std::vector<double> expected = reference, of_other = reference_->Of(other), weights;
    GradientFault fault;
    fault.kind = GradientFault::Kind::kOtherParameter;
    fault.parameter = held.number;
    fault.holders = held.holders;
    fault.other = other.parameter->layer.empty() ? other.parameter->op : other.parameter->layer;
    expected.resize(both.own.size(), 0);
    for (size_t k = 0; k < both.own.size(); ++k) {
      const size_t of = k - std::min(k, reference.size());
      const double unit = k < reference.size() ? reference[k] : of_other[of];
      const double share = fit->weight[k] / unit, whole = std::round(share);
      const double error = kShareErrors * fit->error[k] / std::fabs(unit);
      if (!(error <= kMostError) || std::fabs(share - whole) > std::max(kSameShare, error) ||
          whole < 0 || whole > kMostTimes)
        return false;
      weights.push_back(whole * unit);
      if (k < reference.size() || whole == 0) continue;
      fault.weights.push_back(whole);
      fault.of_ranks.push_back(other.columns[of][0]);
    }
    if (fault.weights.empty()) return false;
    Compare(both, weights, expected, reference_->slack(), &fault);
    if (!fault.proved) return false;
    out_.faults.push_back(std::move(fault));
    return true;
  }

  void Report(const HeldGradient& held, const std::vector<double>& weights,
              const std::vector<double>& reference, GradientFault fault) {
    Compare(held, weights, reference, reference_->slack(), &fault);
    if (!fault.proved)
      return Unknown(held.number,
                     "unexplained: single elements contradict the simplest explanation");
    out_.faults.push_back(std::move(fault));
  }

  // Tests `weights` and the reference at each element. Elements that are exactly zero may be
  // masked.
  static void Compare(const HeldGradient& held, const std::vector<double>& weights,
                      const std::vector<double>& reference, double slack, GradientFault* fault) {
    size_t violated = 0;
    double furthest = 0;
    bool agrees = true;
    for (size_t i = 0; i < held.applied->size(); ++i) {
      const double value = (*held.applied)[i];
      if (value == 0) continue;
      ++fault->compared;
      const WeightedElement explained = SumAt(held, weights, i), other = SumAt(held, reference, i);
      agrees &= std::fabs(value - explained.sum) <= kBeyond * slack * explained.mass;
      const double off = std::fabs(value - other.sum);
      violated += off > 2 * kBeyond * slack * std::max(other.mass, explained.mass) ? 1 : 0;
      if (!(off > furthest)) continue;
      furthest = off;
      fault->element = held.parameter->elements[i];
      fault->applied = value;
      fault->expected = other.sum;
    }
    fault->proved = agrees && fault->compared >= GradientJudgement::kFewElements &&
                    4 * violated >= fault->compared;
  }

  std::vector<HeldGradient> held_;
  const ReferenceWeights* reference_ = nullptr;
  GradientJudgement out_;
};

}  // namespace

GradientJudgement JudgeGradients(const std::vector<AppliedGradient>& parameters) {
  return GradientJudge(parameters).Run();
}

}  // namespace plumbline::analysis
