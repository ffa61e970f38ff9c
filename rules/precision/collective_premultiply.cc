#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/collective/collective.h"
#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"
#include "rules/bases/collective_span.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/collective-premultiply

An average over N ranks multiplies by 1/N rounded to the wire's dtype instead of dividing by N.

**Why.** bf16(1/N) N - 1 is +0.195 % for N = 3, 6, 12, 24, 48, 96, 384, -0.195 % for 7, 14, 28, 56, +0.34 % for 15, 30,
60; 0 for powers of two. Every element of every gradient is off by it, in one direction: pure bias, in every step. It
changes with the number of ranks, so a run that grows from 16 to 24 nodes changes its effective learning rate without notice.

| 1/N is off by | level | what it means for the run |
|---|---|---|
| 0 (powers of two), or less than 0.05 ulp of what the optimizer reads (any N in f32: 6e-8) | pass | nothing |
| more: bf16 up to 0.39 %, fp16 up to 0.05 % | warning | a learning rate that is as much off, in every step, and
another at another N; no direction is lost, so no error |

**Bad.** `bf16 ring, pre-multiplied: every average over 24 ranks is 0.195 % too large`.

**Good.** `bf16 ring, post-divided`, or N a power of two.

**How to fix it.**
- PyTorch: `ReduceOp.SUM` and a division in fp32 instead of `ReduceOp.AVG` (NCCL multiplies by a rounded 1/N).
- DeepSpeed: `"prescale_gradients": false`, with `"communication_data_type": "fp32"`.
- Megatron-LM: `--calculate-per-token-loss`, or reduce in fp32; keep `gradient_scaling_factor` out of 16 bits.
- FSDP: `MixedPrecision(reduce_dtype=torch.float32)`.
- Or a power of two of ranks.

**What it checks.** For averages (`op` avg): does the arithmetic that replay accepts (`precision/collective-sum`)
multiply by 1/N rounded to the wire's dtype, before or after the sum? Where no candidate is accepted: is
sum(y sign(s)) / sum|s| - 1 over all samples of the run nearer to the factor's error than to 0, by an interval of 4.9
standard errors that does not hold 0? For sums: does the factor that the trainer recorded (`prescale`, `postscale`) differ from 1/N by a
rounding?

**Strength.** `proved` where the accepted class multiplies and every candidate that does not differs on enough samples,
or where the trainer states the factor; `statistical` from the interval.

**Inconclusive when** no candidate is accepted and the interval is too wide, or candidates that divide and that
multiply tie.

**Reasons.** `tie`: a division and a multiplication both give the averages; `unexplained`: no candidate gives the averages, and the interval is too wide. Those of
precision/collective-sum for calls that cannot be decoded.

**What it cannot see.** A factor applied before the inputs were recorded and not stated in `prescale`.

**Cost.** None in addition to `precision/collective-sum`.

**Sources.** NCCL, `ncclAvg` (device/reduce_kernel.h: FuncPreMulSum).
)page";

constexpr RuleInfo kInfo = {"precision/collective-premultiply",
                            "a collective multiplies by a rounded 1/N",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

constexpr char kFix[] =
    "Sum, then divide in fp32 (ReduceOp.SUM instead of AVG; DeepSpeed prescale_gradients false; "
    "FSDP reduce_dtype=torch.float32), or use a power of two of ranks.";

// Returns the relative error of 1/N rounded to `t`.
double FactorError(DType t, double ranks) { return RoundToFormat(1 / ranks, t) * ranks - 1; }

// Returns the largest relative error that is too small to matter, in the unit of the bias rules.
// For f32, uses the unit of bf16.
double Concern(DType t) {
  const int precision = std::min(FormatOf(t).precision, FormatOf(DType::kF16).precision);
  const bool wide = FormatOf(t).precision > precision;
  return kBiasBudgetUlp * PowerOfTwo(wide ? -FormatOf(DType::kBF16).precision : -precision);
}

class CollectivePremultiply : public Rule {
 public:
  explicit CollectivePremultiply(const Options& /*options*/) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    TakeFactors(step, out);
    Site* noted = nullptr;  // set once per step, because Note visits all ranks
    for (const auto& a : AnalyseReductions(step)) {
      if (!a->blocked.empty() || !a->c.average()) continue;
      if (noted == nullptr) noted = &Note(step);
      Site& site = *noted;
      site.ranks_of_group = a->c.ranks;
      site.wire = a->c.wire_dtype;
      // Calls of one step sample the same indices, so one is enough. Skips steps that a restart
      // repeats.
      if (!site.measured || step.step > *site.measured) {
        site.relative.Take(a->c);
        site.measured = step.step;
      }
      if (!a->replayed) continue;
      site.last = WithoutValues(*a);
      if (site.reported || !Multiplies(a->replay) || Exact(site)) continue;
      site.reported = true;
      out.Add(Found(site, FactorError(a->c.wire_dtype, a->c.ranks), a->replay.class_proved));
    }
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (auto& [key, site] : sites_) {
      if (site.reported || site.last == nullptr) continue;
      v1::Verdict verdict = Rest(site);
      site.Place(key, &verdict);
      site.last->replay.AddDetails(*verdict.mutable_details());
      if (verdict.has_finding()) *verdict.mutable_finding()->mutable_details() = verdict.details();
      out.Add(std::move(verdict));
    }
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(sites_);
  }

 private:
  struct Site : CollectiveSpan {
    bool reported = false;
    int ranks_of_group = 0;
    DType wire = DType::kUnspecified;
    RelativeErrorSum relative;
    std::optional<int64_t> measured;  // the newest step in `relative`
    std::shared_ptr<const ReductionAnalysis> last;
    void Persist(Archive& a) {
      a(any, reported, step_first, step_last, ranks, ranks_of_group, wire, relative, measured,
        last);
    }
  };

  Site& Note(const SiteStep& step) {
    Site& site = sites_[CollectiveKeyOf(step)];
    site.Take(step);
    return site;
  }

  static bool Exact(const Site& site) {
    return std::fabs(FactorError(site.wire, site.ranks_of_group)) <= Concern(site.wire);
  }

  static bool Multiplies(const ReductionReplay& replay) {
    const auto found = replay.parameters.find("averaging");
    return found != replay.parameters.end() &&
           (found->second == "pre-multiplied" || found->second == "post-multiplied");
  }

  // Returns true if the factor is 1/N, rounded to a narrow dtype. Another number near 1/N may be a
  // share of a token count, or a text with few digits.
  static bool IsRoundedReciprocal(double factor, double ranks) {
    static constexpr DType kNarrow[] = {DType::kBF16, DType::kF16, DType::kE4M3, DType::kE5M2};
    return std::any_of(std::begin(kNarrow), std::end(kNarrow), [&](DType t) {
      return factor > 0 && factor == RoundToFormat(1 / ranks, t) && factor * ranks != 1;
    });
  }

  // Takes the factors that the trainer declares: 1/N in a narrow dtype.
  void TakeFactors(const SiteStep& step, VerdictSink& out) {
    const auto calls = JoinReductions(step);
    Site* noted = nullptr;
    for (const JoinedReduction& joined : *calls) {
      const v1::ReductionCall& call = joined.call_of(0);
      const double ranks = std::max<double>(joined.size, call.group_size());
      if (ranks < 2) continue;
      for (const double factor : {call.prescale(), call.postscale()}) {
        const double error = factor * ranks - 1;
        if (!IsRoundedReciprocal(factor, ranks)) continue;
        if (noted == nullptr) noted = &Note(step);
        Site& site = *noted;
        if (site.reported) continue;
        site.reported = true;
        site.ranks_of_group = static_cast<int>(ranks);
        v1::Verdict verdict = Found(site, error, true);
        verdict.mutable_finding()->set_explanation(absl::StrFormat(
            "The trainer scales by %.9g, which is not 1/%d: every average is wrong by %+.3f %%.",
            factor, site.ranks_of_group, 100 * error));
        out.Add(std::move(verdict));
      }
    }
  }

  static v1::Verdict Found(const Site& site, double error, bool proved) {
    FindingBuilder found(v1::LEVEL_WARNING, proved ? v1::STRENGTH_PROVED : v1::STRENGTH_HEURISTIC);
    found
        .Title(absl::StrFormat("averages over %d ranks are multiplied by a rounded 1/%d",
                               site.ranks_of_group, site.ranks_of_group))
        .Cause("rounded-reciprocal", proved ? 1 : 0.5)
        .Measured("relative error of every average", error, "share")
        .Threshold(0, "divide by N, or use a power of two of ranks")
        .Fix(kFix);
    if (site.last != nullptr) {
      const ReductionReplay& replay = site.last->replay;
      found.Samples(replay.columns.size())
          .Explain(absl::StrFormat(
              "%s: 1/%d in %s is %.9g, so every average is wrong by %+.3f %%.",
              Capitalised(replay.Words()), site.ranks_of_group, DTypeName(site.wire),
              RoundToFormat(1.0 / site.ranks_of_group, site.wire), 100 * error));
      replay.AddDetails(*found.verdict().mutable_details());
      *found.finding().mutable_details() = found.verdict().details();
    }
    return found.Take();
  }

  // Called if no accepted class of models multiplies by a rounded factor.
  static v1::Verdict Rest(const Site& site) {
    const ReductionReplay& replay = site.last->replay;
    const double error = FactorError(site.wire, site.ranks_of_group);
    if (Exact(site) && error != 0) {
      return Pass(absl::StrFormat("the error of 1/%d in %s is %.1g, too small to change an average",
                                  site.ranks_of_group, DTypeName(site.wire), std::fabs(error)));
    }
    if (Exact(site)) {
      return Pass(absl::StrFormat("1/%d is exact in %s, so multiplying equals dividing",
                                  site.ranks_of_group, DTypeName(site.wire)));
    }
    const auto averaging = replay.parameters.find("averaging");
    if (averaging != replay.parameters.end())
      return Pass(absl::StrCat("the average is ", averaging->second, ": ", replay.Words()));
    if (replay.explained)
      return Inconclusive("tie: both a division and a multiplication give these averages");
    return ByInterval(site);
  }

  static v1::Verdict ByInterval(const Site& site) {
    const RelativeError r = site.relative.Get();
    const double expected = FactorError(site.wire, site.ranks_of_group);
    const double half = kBiasDeviations * r.standard_error;
    // Rounded products shift the mean a little, so half of the factor's error decides.
    const double most = std::fabs(expected) / 2;
    const std::string figures = absl::StrFormat(
        "the averages are wrong by %+.3f %% ± %.3f %%, and the rounded factor by %+.3f %%",
        100 * r.mean, 100 * half, 100 * expected);
    if (std::fabs(r.mean) + half < most) return Pass(figures);
    const bool near = std::fabs(r.mean - expected) < most && std::fabs(r.mean) > half;
    if (r.samples < 64 || !near || !(half < most))
      return Inconclusive("unexplained: no candidate gives these averages; " + figures);
    v1::Verdict verdict = Found(site, r.mean, false);
    v1::Finding& f = *verdict.mutable_finding();
    f.set_strength(v1::STRENGTH_STATISTICAL);
    f.mutable_false_alarm()->set_kind("probability");
    f.mutable_false_alarm()->set_value(1e-6);
    f.set_sample_size(r.samples);
    f.add_assumptions("the samples' errors are independent; the interval is 4.9 standard errors");
    f.set_explanation(absl::StrFormat(
        "No candidate explains the averages. They are wrong by %+.3f %% ± %.3f %%, and 1/%d in %s "
        "is wrong by %+.3f %%.",
        100 * r.mean, 100 * half, site.ranks_of_group, DTypeName(site.wire), 100 * expected));
    return verdict;
  }

  std::map<CollectiveKey, Site> sites_;
};

}  // namespace

CatalogueEntry collective_premultiply() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<CollectivePremultiply>(options);
          }};
}

}  // namespace plumbline::rules
