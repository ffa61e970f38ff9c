#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/product/product.h"
#include "analysis/statistics/statistics.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/gemm-accumulator

A matrix product accumulates in fewer bits than was promised.

**Why.** An 8-bit tensor core that keeps 13 fraction bits loses every product below 2^-13 of the largest. With
K = 4,096 and normal e4m3 factors its results err by 0.13 % (rms), and one in 23 by more than a hundredth of its
value; with positive factors all are 7 % too small (0.06 % when promoted every 128 products), and a sum of ones
stops at 16,384. The loss curve shows noise.

**Bad.** `64 of 64 elements: aligned blocks of 32, 13 fraction bits, f32 toward zero`.

**Good.** `64 of 64 elements: aligned blocks of 16, 25 fraction bits`, or the same 13 bits added in f32 every
128 products.

**How to fix it.**
- FP8: promote partial sums (DeepGEMM; Transformer Engine: `use_split_accumulator=True`, the default of
  backward passes; cuBLASLt: `CUBLASLT_MATMUL_DESC_FAST_ACCUM` off; PyTorch: `torch._scaled_mm(...,
  use_fast_accum=False)`).
- fp16 accumulation: PyTorch `torch.backends.cuda.matmul.allow_fp16_accumulation = False`; cuBLAS compute
  type `CUBLAS_COMPUTE_32F`.
- 16-bit reductions of split-K: `torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False`
  (see `precision/split-k`).

**What it checks.** At sampled elements D[i,j], the row of A and the column of B that went into each. Which
arithmetic gives D's bits on every sample? Every candidate is replayed: the exact sum rounded once; one
product after the other in f32, f16, bf16, e4m3, e5m2 or f64, rounded or fused, to nearest or toward zero; pairwise
trees; blocks of 1 to 64 products aligned to the largest exponent and cut to 10 to 36 fraction bits, as
tensor cores do, the accumulator inside or outside the block, in f32 or (8-bit factors) cut to e8m13 between
blocks; sums that are set aside and added in f32
every n products; split-K with 16-bit parts; f32 factors cut to tf32 or bf16 first. What explains every
sample is a class. Scales are part of it: `scale` on the finished sum (rounded to f32 and then stored, in one rounding,
or as two factors), a scale per block of products on the factors (in f32, in bf16; exact where it is a power of two, as
MXFP8's and MXFP4's) or on each block's sum as it is added in f32 (DeepSeek's 1 x 128). `proved` is what all of the
class have in common and what every other candidate fails
on k = ln(10^6 C) samples, C the number of candidates.

A finding is a class of which every member keeps fewer than 21 fraction bits where f32 is expected (sums that are
added in f32 at least every 256 products do not count: their loss does not grow with K); an
unexplained product with an element beyond (K+1) 2^-24 sum|ab| (plus half a unit in the last place of a
16-bit D), which no f32 accumulation can reach; or a bias over the run, in units in the last place of bf16
for a 32-bit D: every tensor core truncates, and a quarter of an f32 unit is normal.

**The level** follows what the sums keep (figures: K = 4,096, e4m3 factors, simulated):

| partial sums keep | error of normal factors | of positive ones (attention, activations after ReLU) | level |
|---|---|---|---|
| f32, or 21 fraction bits and more | below 1e-6 | -3e-5 | pass |
| 13 fraction bits, promoted every 256 products or sooner | 0.02 % | -0.06 % | pass |
| 13 fraction bits | 0.13 % | -7 % | error; a warning if f32 is not declared |
| fp16 (10 bits) | 0.9 % | -9 % | as above |
| bf16 (7 bits) | 7 % | -58 % | as above |

In the second column errors are small compared with the noise of the batch; in the third all elements err in the same direction, in every layer and
step. DeepSeek-V3 promotes every 128 products for that reason: nearly 2 % largest relative error without it at K = 4,096 (DeepSeek-AI, 2024, 3.3.2). A
*bias* found by the statistic is a warning below 1 ulp of bf16 (0.4 to 0.8 %), an error above; more than any f32 sum can err an error.

**Strength.** `proved` by replay, an error where f32 was declared, a warning where nothing was (an assumption).
The bound is `bounded`, the bias `statistical`. If only a call's arguments are known (`plumb run` on a compiled
trainer), a requested 16-bit accumulator is a warning, `heuristic`.

**Inconclusive when** every element is one factor times its sum (declare `scale`), the result looks stored by
stochastic rounding (each element one of the two values next to its sum,
on both sides, without bias: declare `output_rounding`, and only elements beyond both are reported), `library` names a Strassen or
Winograd product (whose errors depend on the whole matrices, not on their own products), no candidate explains the
elements and all lie within the bound (the best two are
named), the class keeps few bits but too few elements exclude wider sums, every sample has a factor that is not
finite, or the call came without rows and columns.

**Reasons.** `non-finite`: every sample has a NaN or infinite factor; `stochastic-store`: every element is one of the
two values next to its sum, without bias; `common-factor`: every element is one factor times its sum, with no more
than the rounding of f32 sums left (of the result alone if the factor is near 1); declare `scale`; `fast-multiplication`: a Strassen or Winograd product;
`not-stochastic`: elements are on one side of their sums more often than the declared stochastic rounding allows;
`few-samples`: sums with more bits differ on too few elements; `unexplained`: no candidate gives every element;
`no-sample`: the call was recorded without rows and columns; `no-samples`: the sample is empty; `bad-tensor`: a tensor
has the wrong shape or dtype; `bad-scale`: a scale is missing or not finite; `bad-config`: the declared accumulator is
no floating-point dtype; `input-format`: a value does not exist in the declared format; `f64-inputs`: products of at
most f32 are judged; `f64-output`: results of at most f32 are judged; `too-large`: more products than the limit.

**What it cannot see.** An arithmetic that is not listed and agrees with a listed one on every sample;
elements that were not sampled. A fingerprint belongs to a kernel and shape, not to a GPU.

**Cost.** On one core, 1,024 elements of K = 4,096: a second for a 32-bit result, three to six for a 16-bit one; none in
the trainer but the gather of 32 rows and 32 columns.

**Sources.** Higham, "Accuracy and Stability of Numerical Algorithms", 2002; Fasi, Higham, Mikaitis and
Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021; DeepSeek-AI, "DeepSeek-V3", 2024, on promotion.
)page";

constexpr RuleInfo kInfo = {"precision/gemm-accumulator",
                            "a product accumulates in fewer bits than declared",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {},
                            /*alpha_weight=*/1.0 / 16};

constexpr int kEnoughBits = 21;
constexpr char kFix[] =
    "Accumulate in fp32: FP8 with promoted partial sums (Transformer Engine "
    "use_split_accumulator=True, torch._scaled_mm use_fast_accum=False, cuBLASLt FAST_ACCUM off); "
    "torch.backends.cuda.matmul.allow_fp16_accumulation=False; cuBLAS CUBLAS_COMPUTE_32F.";

bool Narrow(const MatmulModel& m) { return KeepsFewerBits(m, kEnoughBits); }

std::string Matches(const MatmulReplay& replay) {
  return absl::StrFormat("%d of %d elements: %s", replay.matches, replay.samples, replay.Words());
}

class GemmAccumulator : public Rule {
 public:
  explicit GemmAccumulator(const Options& /*options*/) {}

  // One call is enough for a verdict, so late calls are judged. Errors are summed in the order of
  // steps.
  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (OnlyRequested(step)) return JudgeRequested(step, Requested, out);
    const auto all = AnalyseMatmuls(step);
    size_t at = 0;
    const auto judge = [&](const Item&) -> std::optional<v1::Verdict> {
      const auto& a = all[at++];
      if (a == nullptr) return std::nullopt;
      return Complete(*a, One(*a));
    };
    if (!step.late) {
      TakeErrors(step, all);
      if (auto biased = Biased(step, all)) return out.Add(*std::move(biased));
    }
    JudgeItems(step, judge, out);
  }

  void Persist(Archive& archive) override {
    archive.Version(2, 2);
    archive(shares_, sites_);
  }

 private:
  static std::optional<v1::Verdict> Requested(const RequestedProduct& product) {
    if (product.accumulator != DType::kF16 && product.accumulator != DType::kBF16)
      return std::nullopt;
    const char* const name = DTypeName(product.accumulator);
    return RequestFinding(v1::LEVEL_WARNING, product,
                          absl::StrCat("Accumulation in ", name, " is requested"))
        .Title(absl::StrCat("products may accumulate in ", name))
        .Cause("narrow-accumulator-requested", 0.5)
        .Measured("significand bits of the accumulator", FormatOf(product.accumulator).precision,
                  "bits")
        .Threshold(FormatOf(DType::kF32).precision, "f32")
        .Fix(kFix)
        .Take();
  }

  struct Stream {
    BiasStream stream{0};
    int64_t last_step = -1;
    v1::Level reported = v1::LEVEL_UNSPECIFIED;
    void Persist(Archive& a) { a(stream, last_step, reported); }
  };
  struct Site {
    double alpha = 0;
    std::map<uint32_t, Stream> ranks;  // each with its share of the site's alpha
    void Persist(Archive& a) { a(alpha, ranks); }
  };
  using Key = std::tuple<v1::Role, std::string, std::string>;

  static v1::Verdict One(const MatmulAnalysis& a) {
    if (!a.blocked.empty()) return Inconclusive(a.blocked);
    if (a.replay.samples == 0)
      return Inconclusive("non-finite: every sample has a NaN or infinite factor");
    if (!a.replay.explained()) return NotReplayed(a);
    if (a.splits()) return Pass("16-bit partial sums: see precision/split-k; " + Matches(a.replay));
    const bool expected = FormatOf(a.c.declared).precision >= FormatOf(DType::kF32).precision;
    if (expected && a.replay.Holds(Narrow)) return a.replay.Proves(Narrow) ? Proved(a) : Few(a);
    return Pass(Matches(a.replay));
  }

  // Judges by the error bound alone, because no model reproduces the call.
  static v1::Verdict NotReplayed(const MatmulAnalysis& a) {
    if (a.looks_stochastic() && !a.c.stochastic) {
      return Inconclusive(
          "stochastic-store: every element is one of the two values next to its sum, without bias, "
          "as with stochastic rounding; if that is so, declare output_rounding = stochastic");
    }
    if (a.common_factor != 0 && a.c.scale.empty()) {
      return Inconclusive(
          absl::StrFormat("common-factor: every element is %.7g times its sum; if the product is "
                          "scaled, declare scale (decimal, or a tensor [1] or [m])",
                          a.common_factor));
    }
    const std::string library = absl::AsciiStrToLower(a.c.library);
    if (absl::StrContains(library, "strassen") || absl::StrContains(library, "winograd")) {
      return Inconclusive(
          "fast-multiplication: the elements of a Strassen or Winograd product are not sums of "
          "their own products; their error depends on the whole matrices");
    }
    if (a.beyond > 0) return Beyond(a);
    if (!a.c.stochastic) return Unexplained(a);
    if (!(std::abs(a.stochastic_z) < 5)) {
      return Inconclusive(
          "not-stochastic: elements are on one side of their sums more often than the declared "
          "stochastic rounding allows");
    }
    return Pass(
        "stored stochastically, as declared: every element is one of the two values next to an f32 "
        "sum");
  }

  static v1::Verdict Unexplained(const MatmulAnalysis& a) {
    return Inconclusive(absl::StrFormat(
        "unexplained: no candidate gives every element; the best are %s (%d of %d) and %s (%d)",
        a.replay.best, a.replay.matches, a.replay.samples, a.replay.runner_up,
        a.replay.runner_up_matches));
  }

  static v1::Verdict Few(const MatmulAnalysis& a) {
    return Inconclusive(
        absl::StrFormat("few-samples: %s, but sums with more bits differ on fewer than the %d "
                        "elements that are needed to exclude them",
                        Matches(a.replay), a.replay.needed));
  }

  static v1::Verdict Proved(const MatmulAnalysis& a) {
    const bool declared = a.c.accumulator_declared;
    const int bits = KeptBits(a.replay);
    FindingBuilder found(declared ? v1::LEVEL_ERROR : v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title(absl::StrCat("a product accumulates in ", bits, " fraction bits"))
        .Explain(absl::StrFormat(
            "%s; it is the only match among %d candidates (the best other kind: %s, %d of %d). %s "
            "was %s. Results are correct to %.1f bits of sum|ab|; %.0f %% of the inexact ones are "
            "too small.",
            Capitalised(Matches(a.replay)), a.replay.candidates, a.replay.runner_up,
            a.replay.runner_up_matches, a.replay.samples, Capitalised(DTypeName(a.c.declared)),
            declared ? "declared" : "expected", a.effective_bits, 100 * a.toward_zero))
        .Cause("short-accumulator", 1)
        .Measured("fraction bits kept", static_cast<double>(bits), "bits")
        .Threshold(kEnoughBits, "the fewest bits that hardware f32 accumulation keeps")
        .Fix(kFix)
        .Samples(static_cast<uint64_t>(a.replay.samples));
    if (!declared) found.Assume("the accumulator is f32 (none was declared)");
    return found.Take();
  }

  // Returns the largest number of bits that an accepted model keeps.
  static int KeptBits(const MatmulReplay& replay) {
    int most = 0;
    for (const MatmulModel& m : replay.accepted) {
      int bits = FormatOf(m.accumulator).precision - 1;
      if (m.sum == MatmulModel::Sum::kAligned) bits = std::min(bits, m.fraction_bits);
      if (m.kept > 0) bits = std::min(bits, m.kept - 1);
      most = std::max(most, bits);
    }
    return most;
  }

  static v1::Verdict Beyond(const MatmulAnalysis& a) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_BOUNDED);
    found.Title("a product has a larger error than f32 accumulation can cause")
        .Explain(absl::StrFormat(
            "Sample %d is %.9g; the exact value is %.9g. The error is %.3g times the bound (K+1) "
            "2^-24 sum|ab|, K = %d. %d of %d elements exceed it. No candidate explains all of "
            "them; the best is %s (%d of %d).",
            a.worst.sample, a.worst.d, a.worst.exact, a.worst.excess(), a.c.inner, a.beyond,
            a.replay.samples, a.replay.best, a.replay.matches, a.replay.samples))
        .Cause("unexplained", 0.5)
        .Measured("error", std::abs(a.worst.d - a.worst.exact), "absolute")
        .Threshold(a.worst.bound, "(K+1) 2^-24 sum|ab|, and half an ulp of a 16-bit result")
        .Fix(kFix);
    google::protobuf::Struct& witness = *found.finding().mutable_witness();
    Put(witness, "sample", a.worst.sample);
    Put(witness, "d", a.worst.d);
    Put(witness, "exact", a.worst.exact);
    Put(witness, "bound", a.worst.bound);
    found.Assume(
        "every element is a sum of its own products, in any order (no Strassen or Winograd "
        "product)");
    if (!a.c.offsets.empty())
      Put(witness, "element",
          static_cast<double>(a.c.offsets[static_cast<size_t>(a.worst.sample)]));
    found.Samples(static_cast<uint64_t>(a.replay.samples));
    return found.Take();
  }

  // Adds the errors. Uses one stream per rank, because all ranks sample the same elements. Uses one
  // call per step, because all calls of a step sample the same elements.
  void TakeErrors(const SiteStep& step,
                  const std::vector<std::shared_ptr<const MatmulAnalysis>>& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] == nullptr || !all[i]->blocked.empty()) continue;
      // A scaled product is not a plain sum, so its error as one has no meaning.
      if (!all[i]->replay.explained() && all[i]->common_factor != 0) continue;
      const uint32_t rank = step.items[i].source->rank();
      Stream& s = StreamOf(step, rank);
      if (step.step <= s.last_step) continue;
      s.last_step = step.step;
      const v1::MatmulConfig& config = step.items[i].evidence->matmul().config();
      uint64_t elements = 0;
      const bool known = config.rows() > 0 && config.columns() > 0 &&
                         !__builtin_mul_overflow(config.rows(), config.columns(), &elements) &&
                         elements >= all[i]->errors.drawn();
      s.stream.Add(all[i]->errors, known ? std::optional<uint64_t>(elements) : std::nullopt);
    }
  }

  Stream& StreamOf(const SiteStep& step, uint32_t rank) {
    const Key key{step.role, step.site.layer(), step.site.op()};
    const auto [site, fresh] = sites_.try_emplace(key);
    Site& s = site->second;
    if (fresh) s.alpha = kInfo.alpha_weight * kRunAlpha * shares_.Next(step.role);
    const auto [at, first] = s.ranks.try_emplace(rank);
    if (first) at->second.stream = BiasStream(s.alpha * ShareOfNumber(rank));
    return at->second;
  }

  // Returns the verdict of the first item whose rank has a bias that was not reported yet.
  std::optional<v1::Verdict> Biased(const SiteStep& step,
                                    const std::vector<std::shared_ptr<const MatmulAnalysis>>& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] == nullptr || !all[i]->blocked.empty()) continue;
      // Other rules report truncated factors and split sums.
      if (all[i]->cuts() || all[i]->splits()) continue;
      const uint32_t rank = step.items[i].source->rank();
      Stream& s = StreamOf(step, rank);
      if (s.stream.level() <= s.reported) continue;
      s.reported = s.stream.level();
      v1::Verdict verdict = Complete(*all[i], BiasFinding(*all[i], s.stream));
      verdict.mutable_site()->add_ranks(rank);
      return verdict;
    }
    return std::nullopt;
  }

  static v1::Verdict BiasFinding(const MatmulAnalysis& a, const BiasStream& stream) {
    FindingBuilder found;
    const char* unit = BiasUnit(a.c.d_dtype);
    FillBias(stream, found.finding(), unit);
    const bool small = stream.interval_side() == BiasSide::kTooSmall;
    found.Title(absl::StrCat("the product is too ", small ? "small" : "large"))
        .Explain(absl::StrFormat(
            "Elements have a bias of %+.3g %s beyond rounding (interval %.3g to %.3g). %s. %s.",
            stream.mean(), unit, stream.low(), stream.high(),
            a.replay.explained() ? Capitalised(Matches(a.replay)) : "No candidate explains them",
            Capitalised(ForecastWords(Forecast(stream.mean(), stream.sd())))))
        .Cause(a.replay.explained() ? a.replay.name : "unexplained", 0.5)
        .Fix(kFix);
    return found.Take();
  }

  static v1::Verdict Complete(const MatmulAnalysis& a, v1::Verdict verdict) {
    if (!a.blocked.empty()) return verdict;
    a.AddDetails(*verdict.mutable_details());
    if (a.replay.left > 0) {
      verdict.add_assumptions(absl::StrFormat(
          "%d of %d elements were replayed; the others distinguish the candidates least",
          a.replay.samples, a.replay.samples + a.replay.left));
    }
    if (!verdict.has_finding()) return verdict;
    *verdict.mutable_finding()->mutable_details() = verdict.details();
    for (const std::string& assumption : verdict.assumptions())
      verdict.mutable_finding()->add_assumptions(assumption);
    verdict.mutable_assumptions()->CopyFrom(verdict.finding().assumptions());
    return verdict;
  }

  AlphaShares shares_;
  std::map<Key, Site> sites_;
};

}  // namespace

CatalogueEntry gemm_accumulator() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<GemmAccumulator>(options);
          }};
}

}  // namespace plumbline::rules
