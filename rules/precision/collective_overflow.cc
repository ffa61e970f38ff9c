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
#include "rules/bases/collective_span.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/collective-overflow

A partial sum overflows, though the result fits in the dtype: inputs and exact result are finite, the output is not.

**Why.** fp16 ends at 65,504. With a loss scale of 2^16 and gradients of 0.02, 64 ranks sum to 83,886: infinite, while
the average is 1,311. The loss scaler then halves its scale, again and again, and gradients fall below the smallest
subnormal instead: the overflow itself is not visible, but the training gets worse.

| the largest sum or partial sum | level | what it means for the run |
|---|---|---|
| up to a quarter of the dtype's largest value | pass | four times the ranks or the loss scale still fit |
| above a quarter | note | the next doubling but one of ranks or loss scale overflows |
| an output that is finite though the exact sum does not fit (it saturated) | error | the step uses a wrong gradient; a
loss scaler, which looks for infinities, never halves |
| an output that is infinite though the result fits | error | the step is skipped, or with no scaler the weights
become NaN; a scaler halves until sums fit and gradients below 6e-8 are lost (Micikevicius et al., 2018) |

**Bad.** `512 ranks, fp16 ring, post-divided: 8 of 256 sums are infinite, their averages are finite`.

**Good.** Divided before the sum, or summed in bf16 or fp32.

**How to fix it.**
- PyTorch DDP with `fp16_compress_hook`: it divides before the all-reduce; a hook of your own must, too.
- DeepSpeed: `"prescale_gradients": true` with fp16, or `"communication_data_type": "fp32"`.
- FSDP: `MixedPrecision(reduce_dtype=torch.float32)`; FSDP splits the division before and after the sum for fp16.
- Megatron-LM: `--accumulate-allreduce-grads-in-fp32`.
- Or bf16, whose range is that of fp32.

**What it checks.** At every sampled element of a collective: finite inputs whose exact result (after the division of
an average, and the `postscale` that the trainer applies) is finite in the wire's dtype, and an output that is not. The
order of sum and division is named by replay (`precision/collective-sum`). Where the addends' magnitudes together are
too small for any partial sum to overflow, the finding states this: something else wrote the NaN or infinity. The
reverse is checked too: if an exact sum is beyond the largest fp16 by more than any order of additions can err,
and its output is that value, it has saturated (cause `saturated`). Results that can only be sums must be the sums, and no
output may be infinite: this excludes a factor or a clip after the sum. A sum or
partial sum above a quarter of the dtype's largest value is a note: four times as many ranks, or a loss scale four times
as large, overflow.

**Strength.** `proved`: the inputs, the exact result and the output are there to be added up by hand. The note is
`proved` where the sum itself is so large, `heuristic` where a partial sum is, in one order of the ranks.

**Inconclusive when** the call cannot be decoded (missing ranks, malformed tensors) or every sample has an input that
is not finite.

**Reasons.** `non-finite`: every sample has an input that is not finite. Those of precision/collective-sum for calls that cannot be decoded.

**What it cannot see.** Elements that were not sampled: one infinity in a million is seen by `precision/non-finite`.

**Cost.** None in addition to `precision/collective-sum`.

**Sources.** Micikevicius et al., "Mixed Precision Training", 2018.
)page";

constexpr RuleInfo kInfo = {"precision/collective-overflow",
                            "a collective overflows though its result fits in the dtype",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

constexpr char kFix[] =
    "Divide before the sum (DeepSpeed prescale_gradients with fp16, a hook that divides first), or "
    "reduce in fp32 or bf16 (FSDP reduce_dtype=torch.float32, Megatron-LM "
    "--accumulate-allreduce-grads-in-fp32).";

// One element that is finite in every input.
struct Element {
  int column = -1;
  double exact = 0;    // result
  double mass = 0;     // sum of the addends' magnitudes
  double last = 0;     // the sum itself, the last partial sum of every order
  double largest = 0;  // largest partial sum, in the replayed order
};

// The results of one call.
struct Look {
  std::vector<Element> overflows;  // results that are not finite, although the exact ones fit
  std::vector<Element> others;     // such results for which no partial sum can have overflowed
  Element near_last;               // for finite outputs: the largest sum
  Element near;                    // and the largest partial sum
  uint64_t samples = 0;
};

class CollectiveOverflow : public Rule {
 public:
  explicit CollectiveOverflow(const Options& /*options*/) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    const auto all = AnalyseReductions(step);
    if (all.empty()) return;
    Site& site = sites_[CollectiveKeyOf(step)];
    site.Take(step);
    for (const auto& a : all) {
      // If a declared scale follows the sum, the sum may have saturated before it.
      const bool decoded = a->blocked.empty() || a->bound.postscaled;
      const SaturatedSums saturated =
          decoded ? FindSaturated(a->c, PostscaleOf(*a)) : SaturatedSums();
      if (saturated.found() && site.reported < v1::LEVEL_ERROR) {
        site.reported = v1::LEVEL_ERROR;
        out.Add(Saturated(*a, saturated));
      }
      if (!a->blocked.empty()) {
        if (site.blocked.empty()) site.blocked = a->blocked;
        continue;
      }
      Emit(*a, LookAt(*a), site, out);
    }
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, site] : sites_) {
      if (site.reported != v1::LEVEL_UNSPECIFIED) continue;
      v1::Verdict verdict = Rest(site);
      site.Place(key, &verdict);
      Put(*verdict.mutable_details(), "samples", static_cast<double>(site.samples));
      if (site.samples > 0) Put(*verdict.mutable_details(), "largest_share", site.largest_share);
      out.Add(std::move(verdict));
    }
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(sites_);
  }

 private:
  struct Site : CollectiveSpan {
    uint64_t samples = 0;      // samples with finite inputs
    double largest_share = 0;  // largest partial sum, as a share of the dtype's largest value
    std::string blocked;
    v1::Level reported = v1::LEVEL_UNSPECIFIED;
    void Persist(Archive& a) {
      a(any, step_first, step_last, ranks, samples, largest_share, blocked, reported);
    }
  };

  // Returns the model whose partial sums are used. If no model explains the call, returns a ring.
  static SumMachine MachineOf(const ReductionAnalysis& a) {
    SumMachine m;
    m.ranks = a.c.ranks;
    if (a.replay.explained) {
      m.arithmetic = a.replay.arithmetic;
      m.arithmetic.group = 1;
      if (a.replay.shape.kind == SumShape::Kind::kTree && a.replay.arithmetic.group == 1) {
        m.order = SumMachine::Order::kTree;
        m.tree = &a.replay.shapes->trees[static_cast<size_t>(a.replay.shape.order)].tree;
      }
      return m;
    }
    m.arithmetic.wire = m.arithmetic.partial = m.arithmetic.store = a.c.wire_dtype;
    m.arithmetic.averaging = a.c.average() ? Averaging::kPostDivided : Averaging::kNone;
    return m;
  }

  static Look LookAt(const ReductionAnalysis& a) {
    const ReductionCase& c = a.c;
    const SumMachine machine = MachineOf(a);
    // Half of the limit: a margin for rounding errors.
    const double half = FormatOf(c.wire_dtype).max_finite / 2;
    Look look;
    for (const int32_t column : a.replay.columns) {
      Element e{column};
      std::vector<double> addends;
      ExactSum exact;
      ExactSum entered;
      for (int r = 0; r < c.ranks; ++r) {
        addends.push_back(RoundToFormat(c.input(r, column), c.wire_dtype));
        e.mass += std::fabs(addends.back());
        if (!std::isfinite(e.mass)) break;
        exact.Add(addends.back());
        const double x = EnterSum(machine.arithmetic, addends.back(), c.ranks);
        if (std::isfinite(x)) entered.Add(x);
      }
      if (!std::isfinite(e.mass)) continue;
      ++look.samples;
      e.exact = ResultOf(exact, c, PostscaleOf(a));
      e.last = std::fabs(entered.Value());
      machine.Run(addends, column % c.ranks, &e.largest);
      const double y = c.output[static_cast<size_t>(column)];
      const bool fits = std::isfinite(RoundToFormat(e.exact, c.result_dtype()));
      if (!std::isfinite(y) && fits)
        (a.replay.explained || e.mass > half ? look.overflows : look.others).push_back(e);
      if (std::isfinite(y) && e.largest > look.near.largest) look.near = e;
      if (std::isfinite(y) && e.last > look.near_last.last) look.near_last = e;
    }
    return look;
  }

  static double PostscaleOf(const ReductionAnalysis& a) {
    const double scale = a.joined->call_of(0).postscale();
    return scale == 0 || !std::isfinite(scale) ? 1 : scale;
  }

  static void Emit(const ReductionAnalysis& a, const Look& look, Site& site, VerdictSink& out) {
    const double limit = FormatOf(MachineOf(a).arithmetic.partial).max_finite;
    site.samples += look.samples;
    site.largest_share = std::max(site.largest_share, look.near.largest / limit);
    const bool lost = !look.overflows.empty() || !look.others.empty();
    if (lost && site.reported < v1::LEVEL_ERROR) {
      site.reported = v1::LEVEL_ERROR;
      out.Add(look.overflows.empty() ? NotFinite(a, look.others) : Found(a, look.overflows));
      return;
    }
    if (site.reported != v1::LEVEL_UNSPECIFIED) return;
    if (look.near_last.last > limit / 4) {
      site.reported = v1::LEVEL_NOTE;
      out.Add(Close(a, look.near_last, look.near_last.last, limit, true));
    } else if (look.near.largest > limit / 4) {
      site.reported = v1::LEVEL_NOTE;
      out.Add(Close(a, look.near, look.near.largest, limit, false));
    }
  }

  static double ResultOf(const ExactSum& exact, const ReductionCase& c, double postscale) {
    const uint32_t divisor = c.average() ? static_cast<uint32_t>(c.ranks) : 1;
    return exact.RoundTo(DType::kF64, RoundingMode::kNearestEven, divisor) * postscale;
  }

  // Reports results that are not finite, although no sum of the addends comes near the dtype's
  // limit.
  static v1::Verdict NotFinite(const ReductionAnalysis& a, const std::vector<Element>& others) {
    v1::Verdict verdict = Found(a, others);
    v1::Finding& f = *verdict.mutable_finding();
    f.set_title("results of a collective are NaN or Inf though nothing can overflow");
    f.set_explanation(absl::StrFormat(
        "%d of %d sampled results over %d ranks are NaN or infinite, though every input is finite. "
        "The magnitudes of element %d sum to %.6g, and the largest %s is %.6g. No order of "
        "additions in that dtype overflows.",
        others.size(), a.replay.columns.size(), a.c.ranks,
        a.c.offsets[static_cast<size_t>(others.front().column)], others.front().mass,
        DTypeName(a.c.wire_dtype), FormatOf(a.c.wire_dtype).max_finite));
    f.mutable_cause()->set_id("not-an-overflow");
    f.mutable_cause()->set_confidence(1);
    f.mutable_measured()->set_name("NaN or infinite results");
    f.set_fix(
        "Find what else writes to the buffer: a kernel that runs at the same time as the "
        "collective (missing stream synchronisation), a rank that sends other memory, a narrower "
        "dtype than declared.");
    return verdict;
  }

  static v1::Verdict Found(const ReductionAnalysis& a, const std::vector<Element>& overflows) {
    const ReductionCase& c = a.c;
    const Element& first = overflows.front();
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title("a collective overflows though its result fits in the dtype");
    const std::string model = a.replay.explained
                                  ? a.replay.Words()
                                  : std::string("an order that replay does not explain");
    found
        .Explain(absl::StrFormat(
            "%d of %d sampled results over %d ranks overflow in %s, though every input is finite "
            "and the exact result fits (%.6g at element %d). Order of the sum: %s.",
            overflows.size(), a.replay.columns.size(), c.ranks, DTypeName(c.result_dtype()),
            first.exact, c.offsets[static_cast<size_t>(first.column)], model))
        .Cause(CauseId(a, first), a.replay.proved ? 1 : 0.5)
        .Measured("results that overflowed though they fit", static_cast<double>(overflows.size()),
                  "samples")
        .Threshold(0, "a finite sum must give a finite result")
        .Samples(a.replay.columns.size());
    google::protobuf::Struct& w = *found.finding().mutable_witness();
    Put(w, "element", static_cast<double>(c.offsets[static_cast<size_t>(first.column)]));
    Put(w, "exact_result", first.exact);
    Put(w, "largest_input", LargestInput(c, first.column));
    Put(w, "largest_finite", FormatOf(c.result_dtype()).max_finite);
    found.Fix(kFix);
    return Complete(a, found.Take());
  }

  static v1::Verdict Saturated(const ReductionAnalysis& a, const SaturatedSums& sums) {
    const ReductionCase& c = a.c;
    const char* dtype = DTypeName(c.result_dtype());
    const auto element = static_cast<double>(c.offsets[static_cast<size_t>(sums.sample)]);
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found.Title(absl::StrCat("sums beyond the largest ", dtype, " are stored as that value"))
        .Explain(absl::StrFormat(
            "%d of %d sampled results over %d ranks are ±%.6g, although their exact sum is beyond "
            "%.6g, the largest %s (%.6g at element %.0f). A loss scaler looks for Inf, so it does "
            "not notice, and keeps its scale.",
            sums.saturated, sums.compared, c.ranks, sums.level, sums.limit, dtype, sums.exact,
            element))
        .Cause("saturated", 1)
        .Measured("results that saturated", sums.saturated, "samples")
        .Threshold(0, "a sum that does not fit gives Inf")
        .Samples(static_cast<uint64_t>(sums.compared))
        .Witness("element", element)
        .Witness("exact_sum", sums.exact)
        .Witness("largest_finite", sums.limit);
    found.Fix(
        "Reduce in fp32 or bf16 (FSDP reduce_dtype=torch.float32, Megatron-LM "
        "--accumulate-allreduce-grads-in-fp32), or divide before the sum (DeepSpeed "
        "prescale_gradients). Do not clamp or nan_to_num before the loss scaler has seen Inf.");
    return Complete(a, found.Take());
  }

  // Returns the cause: a division or a scale after the sum, which came too late, or a partial sum.
  static std::string CauseId(const ReductionAnalysis& a, const Element& first) {
    const bool beyond =
        std::fabs(first.exact / PostscaleOf(a)) > FormatOf(a.c.result_dtype()).max_finite;
    const auto averaging = a.replay.shared.find("averaging");
    const std::string how = averaging == a.replay.shared.end() ? "" : averaging->second;
    if (how.rfind("post", 0) == 0) return "divided-after-the-sum";
    return beyond ? "scaled-after-the-sum" : "partial-sum";
  }

  static double LargestInput(const ReductionCase& c, int column) {
    double largest = 0;
    for (int r = 0; r < c.ranks; ++r) largest = std::max(largest, std::fabs(c.input(r, column)));
    return largest;
  }

  // If `certain`, `value` is the whole sum, which every order reaches; else it is a partial sum.
  static v1::Verdict Close(const ReductionAnalysis& a, const Element& near, double value,
                           double limit, bool certain) {
    const double share = value / limit;
    FindingBuilder found(v1::LEVEL_NOTE, certain ? v1::STRENGTH_PROVED : v1::STRENGTH_HEURISTIC);
    found.Title("a collective's sums are near overflow")
        .Explain(absl::StrFormat("A %s over %d ranks reaches %.6g, %.0f %% of the largest %s.",
                                 certain ? "sum" : "partial sum", a.c.ranks, value, 100 * share,
                                 DTypeName(MachineOf(a).arithmetic.partial)))
        .Cause("near-overflow", 1)
        .Measured(certain ? "largest sum" : "largest partial sum", share,
                  "share of the largest finite value")
        .Threshold(0.25, "a quarter: two doublings of ranks or of the loss scale")
        .Samples(a.replay.columns.size())
        .Witness("element", static_cast<double>(a.c.offsets[static_cast<size_t>(near.column)]))
        .Witness(certain ? "sum" : "partial_sum", value);
    if (!certain)
      found.Assume(
          "the partial sums use one order of the ranks; in another order they may be smaller");
    found.Fix(kFix);
    return Complete(a, found.Take());
  }

  static v1::Verdict Complete(const ReductionAnalysis& a, v1::Verdict verdict) {
    a.replay.AddDetails(*verdict.mutable_details());
    *verdict.mutable_finding()->mutable_details() = verdict.details();
    verdict.mutable_assumptions()->CopyFrom(verdict.finding().assumptions());
    return verdict;
  }

  static v1::Verdict Rest(const Site& site) {
    if (site.samples > 0) {
      return Pass(absl::StrFormat("partial sums stay below %.2g of the largest finite value",
                                  site.largest_share));
    }
    if (!site.blocked.empty()) return Inconclusive(site.blocked);
    return Inconclusive("non-finite: every sample has an input that is not finite");
  }

  std::map<CollectiveKey, Site> sites_;
};

}  // namespace

CatalogueEntry collective_overflow() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<CollectiveOverflow>(options);
          }};
}

}  // namespace plumbline::rules
