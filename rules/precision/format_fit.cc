#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "analysis/tensor/tensor.h"
#include "base/half.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/format-fit

More than one value in a hundred does not fit the format that the tensor is declared to be stored in: it
becomes zero, or it is beyond the largest finite value.

**Why.** The largest e4m3 value is 448 and the smallest positive one 2e-3. Of normal values with a deviation of 0.01,
7.8 % become 0 in e4m3 as they are; with a scale per block of 32, fewer than one in 100,000. Of gradients with a deviation
of 1e-8, ordinary late in training, 99.7 % are 0 in fp16. Flushed values are not noise: each of them errs towards zero.

**Bad.** `12 % of the values become 0 in e4m3`.

**Good.** Values scaled by their amax before the cast, fewer than 1 % lost.

**How to fix it.**
- Scale: Transformer Engine `fp8_autocast(fp8_recipe=DelayedScaling())`, `Float8CurrentScaling` or
  `MXFP8BlockScaling` for outliers; torchao `Float8LinearConfig`, DeepSeek-V3's 1×128 tiles.
- fp16 gradients: `torch.cuda.amp.GradScaler`, DeepSpeed `fp16.initial_scale_power`, Megatron-LM
  `--initial-loss-scale`.
- Gradients have wide ranges: `Format.HYBRID` (e4m3 forward, e5m2 backward), or bf16.
- If the tensor is scaled later, pass the values as they are stored, after the scale.

**What it checks.** Over the whole tensor (of more than 4,194,304 elements: over tiles of 2,048 that a fixed hash draws, one of each
32 neighbours), each finite non-zero value rounded once to nearest even in `target_format`: the share that becomes 0
(flushed) plus the share beyond the largest finite value
(saturated), *as the values were recorded*. The verdict's details hold the shares for fp16, bf16, e4m3
and e5m2, and for the 8-bit formats with a power-of-two scale per 32 and per 128 elements.

Of weights the format may be asked for, whatever was declared: `--set precision/format-fit.format=e4m3` shows what a cast of
a checkpoint would lose.

**On the way to a collective** (the site `cast`): inputs that were recorded in a wider dtype than the wire's, or a tensor
whose op is `cast`. There it is the mass that counts, sum |x| of what becomes 0 or overflows over sum |x| of all:

| of the mass is lost | level |
|---|---|
| below 1 % | pass |
| from 1 % | warning |
| from 10 % | error: the sum is another one |

Normal gradients in fp16 lose 0.05 % of their mass at a deviation of 1e-6, 1.1 % at 2e-7, 16 % at 5e-8 and 99 % at
1e-8; a loss scale moves them out of it (Micikevicius et al., "Mixed Precision Training", 2018).

**Of block-scaled factors** (MXFP8, MXFP4, NVFP4, 1 x 128 tiles: products with `a_scale` and `b_scale`), seen from the
values as they are stored in 8 bits and fewer, a warning where one block in ten° is one of these: its largest value is below
a quarter of the format's largest while a quarter of the others are below its least normal value (the scale is stale, or of a larger
block, and bits are lost for it); several of its values, a quarter of all and twice as many as have the next smaller
value, are the format's largest (the scale is too small and cuts them); one value is alone
among zeros (an outlier determines the scale, and the rest became zero).

**Of a tensor whose format has a scale a block**, over the whole tensor, from a dump that names the format (`target_format`
mxfp8, mxfp4 or nvfp4; or e4m3, e5m2, e2m1 with `block` 32, 1x128 or 128x128 and `scale_format`), or of any dumped
tensor and of a checkpoint's weights for a format that is asked for (`--set precision/format-fit.blocks=nvfp4`). The
values are held against the recorded
scales (tensors `scale`, one a block, and `tensor_scale`), without them against those that the format's own rule gives:
2^(floor(log2 amax) - largest exponent) of MX, amax / 6 in e4m3 over the tensor's scale of NVFP4, amax / 448 in f32. A warning
where one block in ten is stale (as above), cut by a factor of 2, or spent: half of its values become 0 because of one
outlier, and would not with the next largest value; or where 5 % of sum |x| is lost (normal values lose 1.1 % in mxfp4, 0.4 % in nvfp4,
0.1 % in mxfp8; Student's with 3 degrees, whose tails are like gradients', 3.1, 1.3 and 0.2 %; with 2 degrees 6.2, 2.7 and
0.3 %). Of values that are stored already (u8, F8, F4 and their scales)
only the marks of products' factors are left.

**Strength.** `heuristic`: one per cent is customary. The shares are exact, of a large tensor those of the drawn tiles
(the sample size is their
number). On the site `cast` `proved`: every listed value
is cast again.

**Inconclusive when** there are fewer than 100 finite non-zero values, or the tensor is already stored in
the format: what it lost is lost.

**Reasons.** `few-values`: too few values; `few-blocks`: too few blocks with a value; `already-stored`: the values are
already in this format; `not-measured`: the probe does not measure this format; `contradictory`: the counts of the
tensor do not add up.

**What it cannot see.** Precision: values that fit and keep two bits; scales that are applied later. Formats with a scale a
block are measured where a dump is read, not by the live probes: there the details' `e4m3_block32` and `e4m3_block128` are what
a power-of-two scale would leave lost. In stored values, zeros from rounding cannot be distinguished from original zeros.

**Cost.** None beyond the tensor's statistics.

**Sources.** Micikevicius et al., "FP8 Formats for Deep Learning", 2022; OCP Microscaling Formats, 2023.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "share",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of finite non-zero values",
     .default_value = "0.01",
     .reason = "customary: below it no effect on training is known",
     .low = 0,
     .high = 1},
    {.name = "blocks",
     .type = OptionInfo::Type::kChoice,
     .unit = "",
     .default_value = "declared",
     .reason = "tensors that are not planned for block formats are not judged",
     .choices = kBlockChoices},
    {.name = "format",
     .type = OptionInfo::Type::kChoice,
     .unit = "",
     .default_value = "declared",
     .reason = "of weights: tensors that are not planned for a cast are not judged",
     .choices = "declared|bf16|f16|e4m3|e5m2"},
};

constexpr RuleInfo kInfo = {"precision/format-fit",
                            "values do not fit their declared format",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr uint64_t kFewValues = 100;
constexpr char kCast[] = "cast";
constexpr double kMassOfWarning = 0.01, kMassOfError = 0.1;

DType FormatNamed(const std::string& name) {
  for (const DType type : {DType::kBF16, DType::kF16, DType::kE4M3, DType::kE5M2}) {
    if (name == DTypeName(type)) return type;
  }
  return DType::kUnspecified;
}

bool Narrows(DType from, DType to) {
  const FloatFormat a = FormatOf(from), b = FormatOf(to);
  return IsFloating(from) && IsFloating(to) &&
         (b.max_finite < a.max_finite ||
          b.min_exponent - b.precision > a.min_exponent - a.precision);
}

const v1::FormatFit* FitOf(const v1::TensorSummary& s, v1::DType format, uint32_t block) {
  for (const v1::FormatFit& fit : s.fits()) {
    if (fit.format() == format && fit.block() == block) return &fit;
  }
  return nullptr;
}

// Returns `whole` minus the parts. If the counts contradict each other, returns nullopt.
std::optional<uint64_t> Rest(uint64_t whole, std::initializer_list<uint64_t> parts) {
  for (const uint64_t part : parts) {
    if (part > whole) return std::nullopt;
    whole -= part;
  }
  return whole;
}

// Returns the number of finite non-zero elements that the fits count. In a large tensor, only
// sampled tiles are counted, by the fits and by the exponents.
std::optional<uint64_t> Values(const v1::TensorSummary& s) {
  const auto all = Rest(s.count(), {s.nan(), s.pos_inf(), s.neg_inf(), s.zero()});
  if (!all || s.exponents().empty()) return all;
  uint64_t rest = *all;
  for (const uint64_t values : s.exponents()) {
    if (values > rest) return std::nullopt;
    rest -= values;
  }
  return *all - rest;
}

// Returns true if each fit counts at most the existing values.
bool Consistent(const v1::TensorSummary& s, uint64_t values) {
  return std::all_of(s.fits().begin(), s.fits().end(), [&](const v1::FormatFit& fit) {
    return Rest(values, {fit.flushed(), fit.saturated()}).has_value();
  });
}

uint64_t Lost(const v1::FormatFit& fit) { return fit.flushed() + fit.saturated(); }

class FormatFitRule : public Rule {
 public:
  explicit FormatFitRule(const Options& options)
      : share_(options.Number("share")),
        blocks_(options.Choice("blocks")),
        format_(FormatNamed(options.Choice("format"))) {}

  bool judges_late() const override { return true; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    const bool cast = step.site.op() == kCast;
    JudgeItems(
        step, [&](const Item& item) { return cast ? JudgeCastTensor(item) : JudgeOne(item); }, out);
    if (auto verdict = JudgeWire(step)) out.Add(*std::move(verdict));
    JudgeItems(step, JudgeBlockScales, out);
    if (cast) return;
    JudgeItems(
        step, [&](const Item& item) { return JudgeBlockTensor(item, blocks_); }, out);
  }

  // Each step is judged independently.
  void Persist(Archive& /*archive*/) override {}

 private:
  std::optional<v1::Verdict> JudgeOne(const Item& item) const {
    if (!item.evidence->has_tensor()) return std::nullopt;
    const v1::TensorState& state = item.evidence->tensor();
    if (DeclaresBlocks(state)) return std::nullopt;  // see JudgeBlockTensor
    const bool requested = format_ != DType::kUnspecified && state.role() == "weight";
    const auto target = requested ? format_ : static_cast<DType>(state.target_format());
    const auto dtype = static_cast<DType>(state.dtype());
    if (!IsFloating(target) || !IsFloating(dtype)) return std::nullopt;
    const v1::TensorSummary& s = state.summary();
    const uint64_t values = Values(s).value_or(0);
    if (!Values(s) || !Consistent(s, values))
      return Inconclusive("contradictory: the tensor's counts do not add up");
    google::protobuf::Struct details = Describe(state, target, values);
    if (values < kFewValues) {
      return Inconclusive(
          absl::StrCat("few-values: fewer than ", kFewValues, " finite non-zero values"),
          std::move(details));
    }
    if (dtype == target) {
      return Inconclusive("already-stored: the values are already in this format",
                          std::move(details));
    }
    const v1::FormatFit* fit = FitOf(s, static_cast<v1::DType>(target), 0);
    if (fit == nullptr) {
      // All narrower formats are measured, so a missing one is wider and can hold all values.
      const bool holds = DTypeSize(target) >= DTypeSize(dtype);
      if (holds) return Pass("the format can represent every value of the tensor's dtype", details);
      return Inconclusive("not-measured: the probe does not measure this format", details);
    }
    const double share = static_cast<double>(Lost(*fit)) / static_cast<double>(values);
    if (!(share > share_)) return Pass("few values are lost in their format", std::move(details));
    return Found(state, target, *fit, values, share, std::move(details));
  }

  // Judges the tensors that ranks pass to a collective in a wider dtype than the wire's.
  static std::optional<v1::Verdict> JudgeWire(const SiteStep& step) {
    CastMass mass;
    DType wire = DType::kUnspecified;
    std::set<uint32_t> ranks;
    for (const Item& item : step.items) {
      if (!item.evidence->has_reduction()) continue;
      const v1::Reduction& reduction = item.evidence->reduction();
      const auto to = static_cast<DType>(reduction.call().wire_dtype());
      if (!reduction.has_sample() || IsCompression(reduction.call().algorithm())) continue;
      if (!Narrows(static_cast<DType>(reduction.sample().inputs().dtype()), to)) continue;
      const auto inputs = ReadValues("inputs", reduction.sample().inputs());
      if (!inputs.ok()) continue;
      mass.Take(inputs->values, to);
      wire = to;
      ranks.insert(item.source->rank());
    }
    if (wire == DType::kUnspecified) return std::nullopt;
    v1::Verdict verdict = JudgeMass(mass, wire);
    SetPlace(verdict, step.site.layer(), kCast, step.step, step.step, ranks);
    return verdict;
  }

  static std::optional<v1::Verdict> JudgeCastTensor(const Item& item) {
    if (!item.evidence->has_tensor()) return std::nullopt;
    const v1::TensorState& state = item.evidence->tensor();
    const auto target = static_cast<DType>(state.target_format());
    if (!IsFloating(target) || !IsFloating(static_cast<DType>(state.dtype()))) return std::nullopt;
    if (!Narrows(static_cast<DType>(state.dtype()), target))
      return Pass("the format can represent every value of the tensor's dtype");
    const auto sample = DecodeTensor(state);
    if (!sample.ok()) return Inconclusive(std::string(sample.status().message()));
    CastMass mass;
    mass.Take(sample->values, target);
    return JudgeMass(mass, target);
  }

  static v1::Verdict JudgeMass(const CastMass& mass, DType target) {
    google::protobuf::Struct details;
    Put(details, "target_format", DTypeName(target));
    Put(details, "values", static_cast<double>(mass.values));
    Put(details, "flushed", static_cast<double>(mass.flushed));
    Put(details, "overflowed", static_cast<double>(mass.overflowed));
    Put(details, "lost_mass_share", mass.lost_share());
    Put(details, "amax", mass.amax);
    if (mass.values < kFewValues) {
      return Inconclusive(
          absl::StrCat("few-values: fewer than ", kFewValues, " finite non-zero values"),
          std::move(details));
    }
    if (!(mass.lost_share() >= kMassOfWarning))
      return Pass("the cast loses little of sum |x", std::move(details));
    const bool error = mass.lost_share() >= kMassOfError;
    FindingBuilder found(error ? v1::LEVEL_ERROR : v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found.Title(absl::StrFormat("the cast to %s loses values that are summed", DTypeName(target)))
        .Explain(absl::StrFormat("%.1f %% of the sum of magnitudes is lost in the cast: of %d "
                                 "finite non-zero values %d become 0 in %s (%.3g of sum |x| = "
                                 "%.3g), and %d are above its largest value (%.3g). amax is %.4g.",
                                 100 * mass.lost_share(), mass.values, mass.flushed,
                                 DTypeName(target), mass.flushed_mass, mass.mass, mass.overflowed,
                                 mass.overflowed_mass, mass.amax))
        .Cause(mass.flushed_mass >= mass.overflowed_mass ? "underflow" : "overflow", 1)
        .Measured("share of sum |x| lost in the cast", mass.lost_share(), "share")
        .Threshold(error ? kMassOfError : kMassOfWarning,
                   "warning from 1 % of sum |x|, error from 10 %")
        .Fix(
            "Scale before the cast (GradScaler, Megatron-LM --initial-loss-scale), or reduce in "
            "bf16 or fp32 (DDP without fp16_compress_hook, FSDP reduce_dtype=torch.float32).")
        .Samples(mass.values);
    const FloatFormat format = FormatOf(target);
    found.Witness("amax", mass.amax)
        .Witness("least_positive", PowerOfTwo(format.min_exponent - format.precision + 1))
        .Witness("largest_finite", format.max_finite);
    *found.verdict().mutable_details() = std::move(details);
    found.verdict().add_assumptions("the values are cast as recorded, without a scale");
    return found.Take();
  }

  v1::Verdict Found(const v1::TensorState& state, DType target, const v1::FormatFit& fit,
                    uint64_t values, double share, google::protobuf::Struct details) const {
    const FloatFormat format = FormatOf(target);
    const bool flushed = fit.flushed() >= fit.saturated();
    const std::string scaled = ScaledText(state, target, values);
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found
        .Title(
            absl::StrFormat("%.1f %% of the values do not fit %s", 100 * share, DTypeName(target)))
        .Explain(absl::StrFormat("Of %d finite non-zero values %d become 0 in %s, and %d are above "
                                 "its largest finite value, %g. amax is %.4g.%s",
                                 values, fit.flushed(), DTypeName(target), fit.saturated(),
                                 format.max_finite, state.summary().amax(), scaled))
        .Cause(flushed ? "underflow" : "overflow", 1)
        .Measured("values lost", share, "share")
        .Threshold(share_, "option share")
        .Fix(
            "Scale by the amax before the cast (Transformer Engine fp8_autocast, "
            "MXFP8BlockScaling; GradScaler for fp16 gradients), or store in bf16.")
        .Samples(state.summary().count())
        .Witness("amax", state.summary().amax())
        .Witness("least_positive", PowerOfTwo(format.min_exponent - format.precision + 1))
        .Witness("largest_finite", format.max_finite);
    found.verdict().add_assumptions("the values are stored as recorded, without a scale");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

  // Returns a text such as " With a scale per 32 elements 0.0 % are lost."
  static std::string ScaledText(const v1::TensorState& state, DType target, uint64_t values) {
    std::string text;
    for (const v1::FormatFit& fit : state.summary().fits()) {
      if (static_cast<DType>(fit.format()) != target || fit.block() == 0) continue;
      absl::StrAppendFormat(&text, " With one scale per %d elements %.2f %% are lost.", fit.block(),
                            100 * static_cast<double>(Lost(fit)) / static_cast<double>(values));
    }
    return text;
  }

  static google::protobuf::Struct Describe(const v1::TensorState& state, DType target,
                                           uint64_t values) {
    google::protobuf::Struct details;
    const v1::TensorSummary& s = state.summary();
    Put(details, "dtype", DTypeName(static_cast<DType>(state.dtype())));
    Put(details, "target_format", DTypeName(target));
    Put(details, "values", static_cast<double>(values));
    Put(details, "amax", s.amax());
    if (values == 0) return details;
    const auto n = static_cast<double>(values);
    for (const v1::FormatFit& fit : s.fits()) {
      std::string name = DTypeName(static_cast<DType>(fit.format()));
      if (fit.block() > 0) absl::StrAppend(&name, "_block", fit.block());
      google::protobuf::Struct& shares = PutStruct(details, name);
      Put(shares, "flushed", static_cast<double>(fit.flushed()) / n);
      Put(shares, "subnormal", static_cast<double>(fit.subnormal()) / n);
      Put(shares, "saturated", static_cast<double>(fit.saturated()) / n);
    }
    return details;
  }

  double share_;
  std::string blocks_;
  DType format_;  // format to test weights against; kUnspecified if none
};

}  // namespace

CatalogueEntry format_fit() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<FormatFitRule>(options);
          }};
}

}  // namespace plumbline::rules
