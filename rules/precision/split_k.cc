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
# precision/split-k

A matrix product is split along K, and its partial sums are stored in 16 bits before they are added.

**Why.** Small outputs with long K are split over blocks of the GPU, and the workspace has D's dtype by
default. With 16 parts in bf16 and normal factors, K = 4,096, the rms error is 1.4 times that of one
rounding where the parts are added in f32, 3.3 times in bf16; where parts cancel nothing bounds it by the result.
A batch of another size takes another kernel, and trainer and inference engine then differ.

**Bad.** `256 of 256 elements: exact parts of 256 stored in f16 and added in f32`.

**Good.** The same product with f32 parts.

**How to fix it.**
- PyTorch: `torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False`, and the same for fp16.
- cuBLASLt: `CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK` without `CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE`;
  cuBLAS: `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`.
- Triton: partial sums in an fp32 buffer, or `tl.atomic_add` on fp32.

**What it checks.** As `precision/gemm-accumulator`: sampled elements of D are replayed from their rows and
columns under every candidate. A finding is a class whose every member stores parts in 16 bits, while every
other candidate fails on k = ln(10^6 C) samples. It names the length of a part where all of the class share it.

Of a call without values (`plumb run` on a compiled trainer) only its arguments are judged: a cuBLASLt algorithm with
more than one part and REDUCTION_SCHEME_OUTPUT_TYPE is a warning.

**Strength.** `proved` by replay; `heuristic` from the call alone.

**Inconclusive when** no candidate explains the elements, or the class holds members with and without 16-bit
parts (too few elements distinguish them: sample more).

**Reasons.** `non-finite`: every sample has a NaN or infinite factor; `unexplained`: no candidate gives every element;
`few-samples`: both 16-bit partial sums and other arithmetics give every element. Those of precision/gemm-accumulator
for calls that cannot be decoded.

**What it cannot see.** Splits whose parts are kept in f32 (harmless; they are `promoted` sums).

**Cost.** None beyond `precision/gemm-accumulator`'s.

**Sources.** NVIDIA, cuBLAS documentation, "Reduction scheme"; PyTorch documentation, "Numerical accuracy".
)page";

constexpr RuleInfo kInfo = {"precision/split-k",
                            "a product stores partial sums in 16 bits",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

constexpr char kFix[] =
    "Keep partial sums in fp32: torch.backends.cuda.matmul."
    "allow_bf16_reduced_precision_reduction=False (and allow_fp16_...), cuBLAS "
    "CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, cuBLASLt without "
    "REDUCTION_SCHEME_OUTPUT_TYPE.";

class SplitK : public Rule {
 public:
  explicit SplitK(const Options& /*options*/) {}

  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (OnlyRequested(step)) return JudgeRequested(step, SplitRequested, out);
    JudgeMatmuls(
        step, [](const Item&, const MatmulAnalysis& a) { return One(a); }, out);
  }

  // Each step is judged independently.
  void Persist(Archive& /*archive*/) override {}

 private:
  static std::optional<v1::Verdict> SplitRequested(const RequestedProduct& product) {
    if (!product.narrow_parts) return std::nullopt;
    return RequestFinding(v1::LEVEL_WARNING, product,
                          "An algorithm that splits K and stores parts in D's dtype is selected")
        .Title("products may be split along K with parts in 16 bits")
        .Cause("16-bit-parts-requested", 0.5)
        .Measured("calls", static_cast<double>(product.calls))
        .Threshold(0, "partial sums are kept in f32")
        .Fix(kFix)
        .Take();
  }

  static v1::Verdict One(const MatmulAnalysis& a) {
    if (a.replay.samples == 0)
      return Inconclusive("non-finite: every sample has a NaN or infinite factor");
    if (FormatOf(a.c.d_dtype).precision > FormatOf(DType::kF16).precision)
      return Pass("the result has 32 bits, so its partial sums have 32 bits too");
    if (!a.replay.explained())
      return Inconclusive(
          "unexplained: no candidate gives every element (see "
          "precision/gemm-accumulator)");
    if (a.splits()) return Found(a);
    const bool some = std::any_of(a.replay.accepted.begin(), a.replay.accepted.end(), NarrowParts);
    if (a.replay.Holds(NarrowParts) || some)
      return Inconclusive(
          "few-samples: both 16-bit partial sums and other arithmetics give every element");
    return Pass("no 16-bit partial sums: " + a.replay.Words());
  }

  static v1::Verdict Found(const MatmulAnalysis& a) {
    const auto part = a.replay.shared.find("part");
    const bool known = part != a.replay.shared.end();
    const int length = a.replay.accepted[0].part;
    const int parts = (a.c.inner + length - 1) / length;
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title("a product is split along K with partial sums in 16 bits")
        .Explain(absl::StrFormat("%d of %d elements are sums of %s stored in %s (%s); it is the "
                                 "only match among %d candidates (the best other kind: %s, %d).",
                                 a.replay.matches, a.replay.samples,
                                 known ? absl::StrCat(parts, " parts of ", length) : "parts",
                                 DTypeName(a.c.d_dtype), a.replay.Words(), a.replay.candidates,
                                 a.replay.runner_up, a.replay.runner_up_matches))
        .Cause("16-bit-parts", 1)
        .Measured("length of a part", static_cast<double>(length), "products")
        .Threshold(static_cast<double>(a.c.inner), "K: no partial sum is stored in 16 bits")
        .Fix(kFix)
        .Samples(static_cast<uint64_t>(a.replay.samples));
    return found.Take();
  }
};

}  // namespace

CatalogueEntry split_k() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<SplitK>(options);
          }};
}

}  // namespace plumbline::rules
