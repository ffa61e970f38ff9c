#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/product/product.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/silent-tf32

The factors of an f32 product are cut to 11 bits (tf32) or 8 (bf16) before they are multiplied.

**Why.** tf32 keeps three decimal digits. A product of normal factors with K = 4,096 is then right to 17 bits of
sum|ab|, and errs by 0.03 % of the result, where f32 keeps 24 bits: harmless for most weights, not for a loss, a router, a normalisation, rotary
positions, or a Gram matrix that is inverted. The library's version, the environment and the GPU decide whether tf32 is used; the code states f32
in all cases.

**Bad.** `64 of 64 elements: inputs cut to tf32-nearest-away`.

**Good.** f32 products, or tf32 if it was requested (dumps: `input_format` = tf32).

**How to fix it.**
- PyTorch: `torch.backends.cuda.matmul.allow_tf32 = False`, `torch.backends.cudnn.allow_tf32 = False` (on by
  default for convolutions), `torch.set_float32_matmul_precision("highest")`.
- JAX: `jax.default_matmul_precision("float32")`; TensorFlow: `tf.config.experimental.
  enable_tensor_float_32_execution(False)`.
- Environment: `NVIDIA_TF32_OVERRIDE=0`. oneDNN on CPUs: `ONEDNN_DEFAULT_FPMATH_MODE=STRICT`.

**What it checks.** As `precision/gemm-accumulator`: sampled elements of D are replayed from their rows and
columns, with the factors as they are and cut to tf32 (to nearest even, to nearest away, truncated) or bf16. A
finding is a class whose every member cuts, while every candidate that does not fails on k = ln(10^6 C) samples.

Of a call without values (`plumb run` on a compiled trainer) only its arguments are judged: a math mode or compute type
that permits tf32, bf16 or f16 factors is a note.

**Strength.** `proved` by replay; `heuristic` from the call alone.

**Inconclusive when** the factors fit 11 bits anyway (bf16 weights in f32 storage: cut and uncut products are the
same), or no candidate explains the elements.

**Reasons.** `non-finite`: every sample has a NaN or infinite factor; `unexplained`: no candidate gives every element;
`few-samples`: too few elements distinguish rounded factors from unchanged ones; `factors-fit`: rounded and unchanged
factors give the same elements. Those of precision/gemm-accumulator for calls that cannot be decoded.

**What it cannot see.** Products in three tf32 or bf16 passes, which restore most bits; elements not sampled.

**Cost.** None beyond `precision/gemm-accumulator`'s.

**Sources.** NVIDIA, "TensorFloat-32 precision format", 2020; PyTorch documentation, "CUDA semantics".
)page";

constexpr RuleInfo kInfo = {"precision/silent-tf32",
                            "fp32 inputs are rounded to tf32",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

constexpr int kF32Bits = 24;
constexpr char kFix[] =
    "torch.backends.cuda.matmul.allow_tf32=False, torch.backends.cudnn.allow_tf32=False, "
    "torch.set_float32_matmul_precision(\"highest\"); or NVIDIA_TF32_OVERRIDE=0. If tf32 is "
    "intended, declare it (input_format tf32).";

bool Cut(const MatmulModel& m) { return m.cut != InputCut::kNone; }

class SilentTf32 : public Rule {
 public:
  explicit SilentTf32(const Options& /*options*/) {}

  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (OnlyRequested(step)) return JudgeRequested(step, FactorsRequested, out);
    JudgeMatmuls(
        step,
        [](const Item&, const MatmulAnalysis& a) -> std::optional<v1::Verdict> {
          if (!a.f32_factors()) return std::nullopt;  // 16-bit factors have no bits to truncate
          return One(a);
        },
        out);
  }

  // Each step is judged independently.
  void Persist(Archive& /*archive*/) override {}

 private:
  static std::optional<v1::Verdict> FactorsRequested(const RequestedProduct& product) {
    if (product.input_format.empty()) return std::nullopt;
    return RequestFinding(
               v1::LEVEL_NOTE, product,
               absl::StrCat("Rounding of f32 factors to ", product.input_format, " is permitted"))
        .Title(absl::StrCat("the factors of f32 products may be rounded to ", product.input_format))
        .Cause(absl::StrCat(product.input_format, "-requested"), 0.5)
        .Measured("significand bits of a factor", product.input_format == "bf16" ? 8 : 11, "bits")
        .Threshold(kF32Bits, "f32")
        .Fix(kFix)
        .Take();
  }

  static v1::Verdict One(const MatmulAnalysis& a) {
    if (a.replay.samples == 0)
      return Inconclusive("non-finite: every sample has a NaN or infinite factor");
    if (a.c.tf32_declared) return Pass("tf32 was declared");
    if (!a.replay.explained())
      return Inconclusive(
          "unexplained: no candidate gives every element (see "
          "precision/gemm-accumulator)");
    if (a.cuts()) return Found(a);
    if (std::none_of(a.replay.accepted.begin(), a.replay.accepted.end(), Cut))
      return Pass("the factors are used unchanged: " + a.replay.Words());
    return Inconclusive(
        a.replay.Holds(Cut)
            ? "few-samples: too few elements distinguish rounded factors from unchanged ones"
            : "factors-fit: rounded and unchanged factors give the same elements");
  }

  static v1::Verdict Found(const MatmulAnalysis& a) {
    int bits = 0;
    for (const MatmulModel& m : a.replay.accepted)
      bits = std::max(bits, CutBits(m.cut, DType::kF32));
    const char* format = bits == FormatOf(DType::kBF16).precision ? "bf16" : "tf32";
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title(absl::StrCat("the factors of an f32 product are rounded to ", format))
        .Explain(absl::StrFormat("%d of %d elements: %s; it is the only match among %d candidates "
                                 "(the best with unchanged factors: %s, %d).",
                                 a.replay.matches, a.replay.samples, a.replay.Words(),
                                 a.replay.candidates, a.replay.runner_up,
                                 a.replay.runner_up_matches))
        .Cause(absl::StrCat(format, "-inputs"), 1)
        .Measured("significand bits of a factor", static_cast<double>(bits), "bits")
        .Threshold(kF32Bits, "f32")
        .Fix(kFix)
        .Samples(static_cast<uint64_t>(a.replay.samples));
    return found.Take();
  }
};

}  // namespace

CatalogueEntry silent_tf32() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<SilentTf32>(options);
          }};
}

}  // namespace plumbline::rules
