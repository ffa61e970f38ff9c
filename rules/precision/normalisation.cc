#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/tensor/tensor.h"
#include "rules/bases/item_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/normalisation

Rows of probabilities do not sum to one: their denominators, or their logarithms, were kept in too few bits.

**Why.** A sum of equal addends stops at 256 in bf16 and at 2,048 in fp16. A uniform attention row over
4,096 keys summed in bf16 is divided by 256: its probabilities sum to 16, and the layer's output with them.
In random rows the error is smaller, and no message shows it either: over 4,096 keys with normal logits, Σp is 2.5 in bf16. With
V = 1 the output O must be 1.

| rows sum to | level | what it means for the run |
|---|---|---|
| one, within the bound of fp32 sums | pass | nothing |
| up to 2⁻¹³ beyond it, or anything that has an honest explanation | inconclusive | 0.01 % of the layer's output |
| more, up to 2.5 (normal logits) or 16 (uniform rows) over 4,096 keys | warning | the output is as many times too
large, more with every doubling of the context: what was trained at one length fails at another (Dao et al., 2022,
keep the statistics in fp32) |

**Bad.** `61 of 64 rows sum to more than one, up to 2.72`.

Where every row that is off is so by what the replay of such a sum gives (p divided by the row's largest, added one by
one in bf16 or fp16, stops at the very number that the row was divided by), no factor explains it better, and
the finding states the divisor.

**Good.** Softmax and losses in fp32, rounded to 16 bits once at the end.

**How to fix it.**
- PyTorch: `torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)`; `F.scaled_dot_product_attention`.
- Megatron-LM: `--attention-softmax-in-fp32`; its fused softmax kernels sum in fp32.
- Hand-written Triton and CUDA kernels: keep the running maximum and sum in fp32, whatever the inputs are.
- Losses and log-probabilities: `logits.float()` before the log-sum-exp; a bf16 log-probability of −8 is known to 1.6 %.

**What it checks.** Tensors of role `probabilities`, row by row over their last axis: |Σp − 1| must not
exceed ½·Σulp(p) + (n+2)·2⁻²⁴, that is every p rounded once to its dtype after sums and divisions in fp32.
Values that are all bf16 or fp16 numbers inside a wider dtype count as such. A finding needs a row that
sums to *more* than one and has no other explanation (below).

**Strength.** `bounded`: on the assumption that the rows are meant to be distributions.

**Inconclusive when** there are no whole rows, or all that is wrong has an honest explanation: zeros
between a row's values (dropout, top-k, sparse masks), one factor over unlike rows (a routed scaling; dropout's
1/(1-p) where that nothing was dropped can be believed), values
below zero or above one (dropout's scale, scores that are no shares), a floor under all values (clamp), sums
further from one than n additions in 8 bits can err (sigmoids), or sums below one alone (a sink, a shard of
the vocabulary, a top-k that was not renormalised), or values that are few levels (integers or 8 bits with a
scale). Rows of zeros or with NaN (fully masked) are set aside. Up to 2⁻¹³ beyond the bound it is inconclusive
too: `exp(x - logsumexp(x))` of fp32 logits in the thousands errs so.

**Reasons.** `not-shares`: values are below zero or above one; `one-factor`: different rows have the same sum, so they
were scaled; `dropout-factor`: rows are scaled as dropout scales rows without a dropped value; `not-distributions`:
sums differ from one by more than any 16-bit sum explains; `near-one`: rows exceed the bound by less than the error of
exp; `no-probabilities`: the values are not floating point; `no-rows`: there are no complete rows of at least two
finite values.

**What it cannot see.** Sums that err downwards only; attention with dropout; layer norms (record a row of their weights).

**Cost.** One pass over the sampled rows.

**Sources.** Dao et al., "FlashAttention", 2022, on fp32 statistics in fused softmax; Higham, "Accuracy and
Stability of Numerical Algorithms", chapter 4, on the bound.
)page";

constexpr RuleInfo kInfo = {"precision/normalisation",
                            "probabilities do not sum to one",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

constexpr size_t kKinds = static_cast<size_t>(RowKind::kSteps) + 1;

struct RowCounts {
  std::array<size_t, kKinds> rows{};
  // Among rows whose sum exceeds 1, the row with the largest excess relative to its bound.
  const ProbabilityRow* worst = nullptr;

  size_t of(RowKind kind) const { return rows[static_cast<size_t>(kind)]; }
  size_t judged() const { return of(RowKind::kSumsToOne) + of(RowKind::kExcess); }
};

RowCounts Count(const std::vector<ProbabilityRow>& rows) {
  RowCounts tally;
  for (const ProbabilityRow& row : rows) {
    ++tally.rows[static_cast<size_t>(row.kind)];
    if (row.kind != RowKind::kExcess) continue;
    const auto ratio = [](const ProbabilityRow& r) { return (r.sum - 1) / r.bound; };
    if (tally.worst == nullptr || ratio(row) > ratio(*tally.worst)) tally.worst = &row;
  }
  return tally;
}

// Returns why sums may differ from 1 without a fault. If there is no such reason, returns "".
std::string Explanation(const std::vector<ProbabilityRow>& rows, const RowCounts& tally) {
  if (tally.of(RowKind::kNoShare) > 0)
    return "not-shares: values are below zero or above one (scaled by dropout, or scores that are "
           "not probabilities)";
  if (StoppedNormaliser(rows)) return "";
  if (OneFactor(rows)) return "one-factor: different rows have the same sum, so they were scaled";
  if (DropoutFactor(rows))
    return "dropout-factor: the rows are scaled as dropout scales rows without a dropped value";
  if (OneFloor(rows)) return "floored: a lower bound was applied to the values";
  if (tally.of(RowKind::kNotOne) > 0)
    return "not-distributions: sums differ from one by more than any 16-bit sum explains, or rows "
           "are incomplete (a shard, a top-k, sigmoids)";
  if (tally.of(RowKind::kSteps) > 0)
    return "quantised: the values have few levels, as integers or scaled 8-bit values";
  if (tally.of(RowKind::kGaps) > 0)
    return "gaps: there are zeros between the values (dropout, a top-k or a sparse mask)";
  if (tally.worst != nullptr) return "";
  if (tally.of(RowKind::kDeficit) > 0)
    return "deficit: rows sum to less than one; the rest may be in a sink or another shard";
  if (tally.of(RowKind::kNearOne) > 0)
    return "near-one: rows exceed the bound by less than the error of exp of an fp32 logarithm";
  return "";
}

class Normalisation : public ItemRule {
 public:
  Normalisation() : ItemRule(JudgeOne) {}

 private:
  static std::optional<v1::Verdict> JudgeOne(const Item& item) {
    if (!item.evidence->has_tensor()) return std::nullopt;
    const v1::TensorState& state = item.evidence->tensor();
    if (state.role() != "probabilities") return std::nullopt;
    const auto c = DecodeTensor(state);
    if (!c.ok()) return Inconclusive(std::string(c.status().message()));
    if (!IsFloating(c->dtype))
      return Inconclusive("no-probabilities: the values are not floating point");
    if (c->rows == 0 || c->columns < 2)
      return Inconclusive("no-rows: the rule needs complete rows of at least two values");
    const std::vector<ProbabilityRow> rows = LookAtRows(*c);
    const RowCounts tally = Count(rows);
    if (const std::string why = Explanation(rows, tally); !why.empty())
      return Inconclusive(why, Describe(*c, tally));
    if (tally.worst != nullptr) return Found(*c, tally);
    if (tally.judged() == 0)
      return Inconclusive("no-rows: every row is masked or non-finite", Describe(*c, tally));
    return Pass("rows sum to one within the bound", Describe(*c, tally));
  }

  static v1::Verdict Found(const TensorCase& c, const RowCounts& tally) {
    const ProbabilityRow& worst = *tally.worst;
    const double off = worst.sum - 1;
    const bool stopped = worst.stopped;
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_BOUNDED);
    found.Title("probabilities sum to more than one")
        .Explain(absl::StrFormat(
            "%d of %d rows of %d values sum to more than one, beyond the error of fp32 sums and "
            "one rounding to %s. Row %d sums to %.6g; its error is %.3g times the bound%s.",
            tally.of(RowKind::kExcess), c.rows, c.columns, DTypeName(RowsDType(c)), worst.index,
            worst.sum, off / worst.bound,
            stopped ? absl::StrFormat(": it was divided by %.5g, the value at which a 16-bit sum "
                                      "of its values stops growing",
                                      1 / worst.largest)
                    : ""))
        .Cause("16-bit-normaliser", stopped ? 0.95 : 0.9)
        .Measured("sum of a row minus one", off, "")
        .Threshold(worst.bound, "half an ulp of each value and (n + 2) 2^-24")
        .Fix(
            "Sum in fp32: torch.softmax(x, -1, dtype=torch.float32), Megatron-LM "
            "--attention-softmax-in-fp32, fp32 running sums in hand-written kernels.")
        .Samples(static_cast<uint64_t>(c.rows))
        .Witness("row", static_cast<double>(worst.index))
        .Witness("sum", worst.sum)
        .Witness("largest", worst.largest);
    *found.verdict().mutable_details() = Describe(c, tally);
    found.verdict().add_assumptions("each row of the last axis is one distribution");
    return found.Take();
  }

  static google::protobuf::Struct Describe(const TensorCase& c, const RowCounts& tally) {
    static constexpr std::array<const char*, kKinds> kNames = {
        "sum_to_one", "near_one", "excess",     "deficit",  "not_one",
        "gaps",       "masked",   "non_finite", "no_share", "in_steps"};
    google::protobuf::Struct details;
    Put(details, "dtype", DTypeName(c.dtype));
    Put(details, "rows", static_cast<double>(c.rows));
    Put(details, "columns", static_cast<double>(c.columns));
    for (size_t k = 0; k < kKinds; ++k) {
      if (tally.rows[k] > 0) Put(details, kNames[k], static_cast<double>(tally.rows[k]));
    }
    return details;
  }
};

}  // namespace

CatalogueEntry normalisation() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<Normalisation>();
          }};
}

}  // namespace plumbline::rules
