#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/collective/collective.h"
#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"
#include "rules/bases/alpha_sites.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/collective-sum

An all-reduce or reduce-scatter sums over ranks in too few bits, and the sum is biased.

**Why.** Noise makes rounding errors average out; the part that all ranks share does not. A bf16 ring of gradients
c(1 + 0.3 normal) shows nothing at 64 ranks, is 2.7 % too large at 256, 13 % too small at 512 and loses half at
1,024. The loss curve shows none of it: it is a learning rate that differs from element to element.

**Bad.** `rank 11: element 175774 is -96.5, its 16 inputs sum to 1.537, and no order is off by more than 0.132`. `bf16
ring starting at rank 3: 64 of 64 samples; sums over 512 ranks are 13 % too small`.

**Good.** `fp32 accumulation, rounded once: 256 of 256 samples`, or a 16-bit tree that is reported as a note only.

**How to fix it.**
- PyTorch DDP: reduce in fp32 (no `fp16_compress_hook` or `bf16_compress_hook` over many ranks).
- FSDP: `MixedPrecision(reduce_dtype=torch.float32)`.
- Megatron-LM: `--accumulate-allreduce-grads-in-fp32`, and no `--grad-reduce-in-bf16`.
- DeepSpeed: `"communication_data_type": "fp32"`.
- NCCL: `NCCL_ALGO=Tree` or NVLS, whose partial sums are few or wide; hierarchical groups with fp32 inside.

**What it checks.** At up to 4,096 sampled elements a call, every rank's input and the result, joined by
(group, sequence number). Three questions, kept apart:
- *Which arithmetic made this result?* Every candidate is replayed on the samples: rings from each start and in
  both directions, rounded at every hop (to nearest, toward zero), with the start that each segment has (count/N,
  gloo's parts, channels and chunks from metadata); trees, recursive halving, NCCL's pair of trees; groups of ranks
  first; fp32 accumulation rounded once, to nearest, toward zero or away from it; the exact sum; averages divided or multiplied
  before or after; subnormals flushed. Ring orders come from metadata; for up to 8 ranks all orders are tried. What
  gives the result's bits on every sample is a class. It is `proved` when every candidate of another family
  differs on k = ln(10^6 C) distinct samples, C the number of candidates: another arithmetic that differs as often
  matches by luck with probability below 10^-6. "The only match among the candidates" is all that is claimed. A
  wide accumulation is named `fp32`, with the addition "or a compensated sum", until sums by Kahan and Neumaier in the wire's
  dtype differ on as many, too; they are as good, and seldom do.
- *Is there a bias?* The error beyond the one unavoidable rounding, in units of the last place (ulp),
  plus for too large; fp32 results in ulp of bf16. A wealth process over all steps of the run alarms with a
  false-alarm probability that is this site's share of one in a million; the interval of the unclipped mean
  (4.9 standard errors) must be beyond 0.05 ulp on the alarm's side. From 1 ulp on it is an error. Samples with
  equal addends share their error: they count as one. If a step has several calls, one is measured.
- *What would another arithmetic give?* The same inputs summed otherwise, in the details (`what_if`).
  Calls that no candidate explains (an undeclared order) are not reported for their bias alone, and are kept
  separate from explained calls: each element is summed in 19 random orders, in pairs, in groups and one after the other, in
  every rounding of 16 bits; results that fall among some way's sums as these fall among each other, and are no more biased
  than those, are sums that were rounded. Else it is inconclusive, with what the results look like instead (cut at one
  magnitude, one factor, never reduced): something was done to them, or to the inputs, between the recording and the sum.
- *Can it be a sum at all?* Additions in any order are off by at most c sum|x| and an ulp, c = (N + 4) 2^(1-p), p
  the wire's significand bits (half of it where nine samples in ten show rounding to nearest). A result beyond it, and
  four times further off than every result within it, is broken: a sign, a spike, a buffer that something else wrote
  to. Where a strict majority of the ranks got the sums, the ranks that got something else are named, however much
  of theirs is garbage. One rank whose values are subtracted is named if a replay with its sign flipped gives every result
  (cause `flipped-sign`, `proved`), and so is one that adds its recorded values of the step before (`stale-rank`). f32 inputs
  that a replay cuts to bf16 or f16 toward zero are a warning (`inputs-cut`). For f32 inputs without a declared wire dtype, p is 8, because a 16-bit hook is common.

A model that begins within a run is reported from the first step that shows it, with the last one before it whose partial
sums were wide. 16-bit partial sums that show no bias yet are a note: addends like these are simulated over twice as many ranks,
and so on to 2,048, until the bias passes its budget.

- *Compressed reductions* (`algorithm` PowerSGD, 1-bit, top-k, scaled 8 bits): single steps are not sums. Over steps, in
  elements that come at every one of them, the part that a step omits must come later: error feedback. In each of the last three
  quarters of the steps the part of the gradient that the other quarters share must arrive; noise, which they do not
  share, may be late. Needed are 32 steps and four times as long as a step's share takes to arrive (top-k of 1 %: 1,600).

| of the persistent gradient is missing, at least | level |
|---|---|
| below 10 % | pass |
| from 10 % | warning: the learning rate is that much smaller in some directions, and zero in others |
| from 50 % | error: signs and ranks decide, not sizes; without feedback such methods need not converge at all (Karimireddy et al., 2019) |

**The level of a bias** is that of the sums, in units in the last place (ulp) of what the optimizer reads:

| the mean sum is off by | level | what it means for the run |
|---|---|---|
| less than 0.05 ulp | pass, or a note for 16-bit partial sums | below 0.04 % in bf16; noise of a batch is larger for thousands of steps |
| 0.05 to 1 ulp | warning | up to 0.8 % in bf16 (0.1 % in fp16), the same way at every step: a learning rate that is as much off |
| 1 ulp and more | error | 13 % at 512 bf16 ranks, 48 % at 1,024: a learning rate that is lost in the elements that
agree, and kept in those that do not |

Nothing of it averages out: a bias of b in each step is a bias of b in Adam's mean, whatever its decay. Without bias 16-bit
partial sums only add variance, about N u^2 per step (relative; u = 2^-8 in bf16), which is below that of the batch (Higham and Mary, 2019).

**Strength.** The model `proved` by replay, the bias `statistical`, a result that no order gives `bounded`: an error; a
warning if most elements are affected and no `algorithm` is declared. The note's forecast is a simulation.

**Inconclusive when** every element is one factor times its sum (recorded after a division by N or a clip of the
norm: declare `postscale` (the finding states its value), or record the output before it), or cut to one magnitude; `algorithm`
declares that it is not a plain sum (`powersgd`, `one-bit`, `top-k`, `int8-scaled`, `fp8-scaled`); ranks are missing
(named) or disagree, tensors are malformed, no candidate explains the sums
and they show no bias, or no call came with a sample. From calls alone (dtype and ranks) a bias is predicted, as a note.

**Reasons.** `few-samples`: a bias on too few sums for a finding; `no-sample`: no call, or not every rank, was
recorded with values; `no-samples`: the sample is empty; `no-result`: no rank recorded the result; `one-rank`: values
of a single rank; `non-finite`: every sample has an input that is not finite; `unexplained`: no candidate gives the
sums, and they show no bias; `unlike-sums`: biased, and unlike sums in any order; `stored-narrower`: every result has
fewer bits than its sum; `common-factor`: one factor times the sums; within a tenth of 1 only if no more than the
rounding of the result is left; `postscaled`: the sums times the declared `postscale`; `clipped`: cut to one
magnitude; `sparsified`: only the largest sums are kept; `compressed`: `algorithm` declares a compression;
`compressed-unsaid`: close to the sums but not equal, and no `algorithm` is declared; `not-shared`: the judged rank
does not get the sums (a scatter, a reduce to another rank, sums over some of the ranks); `not-a-sum`: the operation is neither a sum nor an
average; `integer-wire`: integer sums are exact; `missing-ranks`: ranks did not report; `ranks-disagree`: see
precision/collective-mismatch; `ambiguous-group`: records of one call cannot be one call; `offsets-differ`: ranks
sampled different elements; `offset-out-of-range`: an offset is outside the buffer; `bad-tensor`: a tensor has the
wrong shape or dtype; `bad-count`, `bad-channels`, `bad-ring-order`, `count-too-small`, `too-large`: a declared number
is impossible or above its limit; `few-steps`: too few steps to distinguish late values of a compression from lost
ones; `elements-change`: each step recorded different elements; `no-persistent-part`: the gradients of the steps have
no common part.

**What it cannot see.** An arithmetic that is not listed and agrees with a listed one on every sample; undeclared
ring orders of more than 8 ranks; rings of more than 2,048 ranks (nothing is proved there); errors before the
collective. Of more than 16 calls of a site in one step the first 16 are replayed.

**Cost.** Tens of milliseconds a captured call for 64 ranks and 4,096 samples; half a second where all orders of 8
ranks are tried.

**Sources.** Higham, "The accuracy of floating point summation", 1993; Thakur et al., "Optimization of collective
communication operations in MPICH", 2005; Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019; Karimireddy
et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", 2019; Waudby-Smith and Ramdas, 2023, on betting; gloo and NCCL sources.
)page";

constexpr RuleInfo kInfo = {
    "precision/collective-sum", "a collective's sum is biased", v1::LEVEL_ERROR, "0.1.0", kPage, {},
    /*alpha_weight=*/1.0 / 16};

constexpr char kFix[] =
    "Sum in fp32: DDP without a 16-bit compression hook, FSDP reduce_dtype=torch.float32, "
    "Megatron-LM --accumulate-allreduce-grads-in-fp32, DeepSpeed communication_data_type fp32; or "
    "a tree (NCCL_ALGO=Tree), which has few partial sums.";

constexpr char kReciprocal[] = "rounded-reciprocal";
constexpr char kDivideFix[] =
    "Divide in fp32 instead of multiplying by a rounded 1/N: ReduceOp.SUM instead of AVG and a "
    "division, DeepSpeed prescale_gradients false, FSDP reduce_dtype=torch.float32; or use a power "
    "of two of ranks.";

constexpr double kCollectiveHalfAlpha = HalfOfAlpha(kInfo.alpha_weight);

class CollectiveSum : public Rule {
 public:
  explicit CollectiveSum(const Options& /*options*/) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    const auto joined = JoinReductions(step);
    if (joined->empty()) return;
    const Key key = Sites::KeyOf(step);
    CompressedSite::Take(key, step, *joined, compressed_, out);
    ReductionStatistics& tally = sites_.Of(step);
    tally.TakeCalls(*joined);
    const auto calls = WithoutStale(key, step, tally, out);
    tally.Take(step, calls);
    const bool unlike = tally.unknown.level() > tally.reported && tally.unlike_sums();
    if (unlike && tally.likeness.any()) tally.Block(tally.likeness.Explanation());
    ReportBlocked(tally, out);
    if (!tally.reported_broken) {
      const auto broken = BrokenCollective(calls);
      tally.reported_broken = broken.has_value();
      if (broken) out.Add(*broken);
    }
    if (!tally.judged()) return;
    const BiasStream* accused = tally.accused();
    if (accused != nullptr && accused->level() > tally.reported) {
      tally.reported = accused->level();
      out.Add(Biased(key, tally, *accused, false));
    } else if (tally.reported == v1::LEVEL_UNSPECIFIED && tally.growth) {
      tally.reported = v1::LEVEL_NOTE;
      out.Add(Complete(key, tally, NarrowVerdict(tally, kFix), &tally.narrow->replay, true));
    }
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    sites_.AtEnd([&](const Key& key, const ReductionStatistics& tally, bool by_ebh) {
      if (tally.reported > v1::LEVEL_NOTE) return;
      const BiasStream* accused = tally.accused();
      const bool enough =
          accused != nullptr && accused->effective_count() >= FewestSamples(kCollectiveHalfAlpha);
      if (by_ebh && enough) {
        out.Add(Biased(key, tally, *accused, true));
      } else if (tally.reported == v1::LEVEL_UNSPECIFIED && !tally.reported_broken) {
        Rest(key, tally, out);
      }
    });
    for (const auto& [key, site] : compressed_) site.JudgeRun(key, out);
  }

  void Persist(Archive& archive) override {
    const uint32_t version = archive.Version(5, 4);
    archive(sites_, compressed_);
    if (version >= 5) archive(earlier_);
  }

 private:
  using Sites = AlphaSites<ReductionStatistics>;
  using Key = Sites::Key;

  // Returns the step's calls except those with a stale rank, which it reports. Keeps the inputs.
  std::vector<std::shared_ptr<const ReductionAnalysis>> WithoutStale(const Key& key,
                                                                     const SiteStep& step,
                                                                     ReductionStatistics& tally,
                                                                     VerdictSink& out) {
    std::vector<std::shared_ptr<const ReductionAnalysis>> calls;
    std::map<std::string, uint32_t> numbers;
    for (const auto& a : AnalyseReductions(step)) {
      const std::string& group = a->joined->group;
      const EarlierInputs::Place place = std::tuple_cat(key, std::tuple(group, numbers[group]++));
      const StaleRank stale = earlier_.Find(place, *a, step.step);
      earlier_.Keep(place, *a, step.step);
      if (!stale.found()) {
        calls.push_back(a);
      } else if (!tally.reported_broken) {
        tally.reported_broken = true;
        out.Add(StaleFinding(*a, stale));
      }
    }
    return calls;
  }

  // Ranks of different shapes or speeds sample different steps, of which some coincide. Steps that
  // do not coincide need no report.
  static bool MayMeetLater(const std::string& id) {
    return id == "missing-ranks" || id == "no-sample";
  }

  static void ReportBlocked(ReductionStatistics& tally, VerdictSink& out) {
    for (const auto& [id, reason] : tally.blocked) {
      if (MayMeetLater(id) || !tally.reported_blocked.insert(id).second) continue;
      out.Add(id == "postscaled" ? Pass(reason.substr(reason.find(": ") + 2))
                                 : Inconclusive(reason));
    }
  }

  static v1::Verdict Biased(const Key& key, const ReductionStatistics& tally,
                            const BiasStream& stream, bool by_ebh) {
    const bool known = &stream == &tally.stream;
    const ReductionAnalysis& of = known ? *tally.explained : *tally.last;
    const ReductionReplay& replay = of.replay;
    const std::string model = known ? ReductionStatistics::ModelText(replay) : tally.ModelText();
    FindingBuilder found;
    FillBias(stream, found.finding(), tally.unit());
    const bool small = stream.interval_side() == BiasSide::kTooSmall;
    found
        .Title(
            absl::StrCat("the sum over ", of.c.ranks, " ranks is too ", small ? "small" : "large"))
        .Explain(absl::StrFormat("Sums over %d ranks in %s have a bias of %+.3g %s beyond rounding "
                                 "(interval %.3g to %.3g). %s. %s%s.%s",
                                 of.c.ranks, DTypeName(of.c.wire_dtype), stream.mean(),
                                 tally.unit(), stream.low(), stream.high(), Capitalised(model),
                                 WhatIfText(tally),
                                 Capitalised(ForecastWords(Forecast(stream.mean(), stream.sd()))),
                                 known && replay.narrow_partials ? tally.SinceText() : ""))
        .Cause(CauseId(replay), replay.proved ? 1 : 0.5);
    if (by_ebh) {
      found.finding().mutable_false_alarm()->set_value(kCollectiveHalfAlpha);
      found.Assume(
          "selected by e-BH over all sites: the rate is the expected share of false findings among "
          "the selected ones");
    }
    found.Fix(CauseId(replay) == kReciprocal ? kDivideFix : kFix);
    const bool since = known && replay.narrow_partials;
    return Complete(key, tally, found.Take(), &replay, since);
  }

  static std::string CauseId(const ReductionReplay& replay) {
    if (!replay.explained) return "16-bit-partial-sums";  // the order is not known
    const auto is = [&](const char* key, const char* value) {
      const auto found = replay.shared.find(key);
      return found != replay.shared.end() && found->second == value;
    };
    if (is("averaging", "pre-multiplied") || is("averaging", "post-multiplied")) return kReciprocal;
    for (const char* mode : {"toward-zero", "away-from-zero"})
      if (is("rounding", mode)) return mode;
    // Members of the class multiply at different places. A wide sum itself has no bias.
    const Averaging averaging = replay.arithmetic.averaging;
    const bool multiplied =
        averaging == Averaging::kPreMultiplied || averaging == Averaging::kPostMultiplied;
    if (multiplied && !replay.narrow_partials) return kReciprocal;
    return replay.narrow_partials ? "16-bit-partial-sums" : replay.name;
  }

  // Returns a text such as "With fp32 accumulation, rounded once, the same inputs give +0. "
  static std::string WhatIfText(const ReductionStatistics& tally) {
    for (const WhatIf& w : tally.what_if) {
      if (w.model.rfind("fp32", 0) == 0)
        return absl::StrFormat("With %s, the same inputs give %+.2g. ", w.model, w.mean);
    }
    return "";
  }

  // Returns a biased stream. Skips a bias that was already reported together with what to declare.
  static const BiasStream* UntoldBias(const ReductionStatistics& tally) {
    if (tally.stream.interval_side() != BiasSide::kNone) return &tally.stream;
    const bool other = tally.unknown.interval_side() != BiasSide::kNone && !tally.excused();
    return other ? &tally.unknown : nullptr;
  }

  static void Rest(const Key& key, const ReductionStatistics& tally, VerdictSink& out) {
    if (!tally.judged()) {
      if (tally.blocked.empty()) out.Add(FromCalls(key, tally));
      for (const auto& [id, reason] : tally.blocked)
        if (MayMeetLater(id)) out.Add(Complete(key, tally, Inconclusive(reason)));
      return;
    }
    const ReductionReplay& replay = tally.last->replay;
    if (replay.columns.empty()) {
      out.Add(Complete(key, tally,
                       Inconclusive("non-finite: every sample has an input that is "
                                    "not finite")));
    } else if (!replay.explained && tally.excused()) {
      return;  // reported before, together with what to declare
    } else if (!replay.explained) {
      out.Add(Complete(key, tally, Inconclusive("unexplained: " + tally.ModelText())));
    } else if (const BiasStream* biased = UntoldBias(tally); biased != nullptr) {
      out.Add(Complete(
          key, tally,
          Inconclusive(absl::StrFormat(
              "few-samples: %d sums have a bias of %+.3g %s; they are too few for a finding; %s",
              biased->count(), biased->mean(), tally.unit(), tally.ModelText()))));
    } else {
      out.Add(Complete(key, tally, Pass("no bias; " + tally.ModelText())));
    }
  }

  // Returns the verdict if no call had a sample.
  static v1::Verdict FromCalls(const Key& key, const ReductionStatistics& tally) {
    constexpr uint32_t kMostRanks = 1 << 14;
    const bool known = tally.wire != DType::kUnspecified && tally.group_size > 1;
    GrownBias bias;
    if (known && FormatOf(tally.wire).precision < 24)
      bias = PredictRing(tally.wire, static_cast<int>(std::min(tally.group_size, kMostRanks)));
    if (!known || bias.ranks == 0 || !bias.beyond_budget()) {
      return Complete(
          key, tally,
          Inconclusive("no-sample: no call of this collective was recorded with values"));
    }
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found.Title("a biased sum is predicted")
        .Explain(absl::StrFormat("Predicted, not measured: a %s ring over %d ranks with addends "
                                 "c(1 + 0.3 normal) has a bias of %+.2g ulp (%+.2g %%).",
                                 DTypeName(tally.wire), bias.ranks, bias.mean, 100 * bias.relative))
        .Cause("predicted", 0.5)
        .Measured("predicted mean error beyond rounding", bias.mean, "ulp")
        .Threshold(kBiasBudgetUlp, "limit of the bias test, in ulp")
        .Assume(
            "a ring whose partial sums have the wire's dtype; ranks whose gradients "
            "deviate by 0.3 of their mean")
        .Fix(kFix);
    return Complete(key, tally, found.Take());
  }

  // `replay`: the replay of the verdict, if it is not the last one. `since_narrow`: the verdict
  // begins at the first step with narrow partial sums.
  static v1::Verdict Complete(const Key& key, const ReductionStatistics& tally, v1::Verdict verdict,
                              const ReductionReplay* replay = nullptr, bool since_narrow = false) {
    const int64_t first = since_narrow ? tally.narrow_since() : tally.step_first;
    SetPlace(verdict, std::get<1>(key), std::get<2>(key), first, tally.step_last, tally.ranks);
    tally.Describe(*verdict.mutable_details(), replay);
    if (since_narrow) tally.DescribeSince(*verdict.mutable_details());
    for (const std::string& assumption : tally.Assumptions()) verdict.add_assumptions(assumption);
    if (verdict.has_finding()) {
      *verdict.mutable_finding()->mutable_details() = verdict.details();
      for (const std::string& assumption : tally.Assumptions())
        verdict.mutable_finding()->add_assumptions(assumption);
      verdict.mutable_assumptions()->CopyFrom(verdict.finding().assumptions());
    }
    return verdict;
  }

  Sites sites_{kCollectiveHalfAlpha};
  CompressedSite::Sites compressed_;
  EarlierInputs earlier_;
};

}  // namespace

CatalogueEntry collective_sum() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<CollectiveSum>(options);
          }};
}

}  // namespace plumbline::rules
