#include <cmath>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "analysis/tensor/tensor.h"
#include "base/half.h"
#include "rules/bases/item_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# precision/position-collision

Two positions of one sequence have the same value in their dtype: the model cannot distinguish the places of
those tokens.

**Why.** bf16 has 8 bits: above 256 it has every second position, above 2,048 every 16th. It has 769 of the
positions 0 to 4,095. fp16 holds every position to 2,048. RoPE in bf16 turns runs of 16 tokens by one angle;
the loss at short contexts shows nothing, and long ones fail to extrapolate.

**Bad.** `4,096 positions have 769 values in bf16: 256 and 257 are both 256`.

**Good.** Integer positions; angles computed in fp32 and rounded after sine and cosine.

**How to fix it.**
- Hugging Face: keep `inv_freq` and `position_ids` out of `.to(torch.bfloat16)`; compute under
  `torch.autocast(device_type, enabled=False)` with `position_ids.float()`, as the current rotary modules do.
- Do not build them with `torch.arange(n, dtype=hidden_states.dtype)`; DeepSpeed and FSDP cast *buffers* too
  (`MixedPrecision(buffer_dtype=torch.float32)`; `model.half()` converts `inv_freq`).
- Megatron-LM: its rotary embedding is fp32; check ported ones (`--position-embedding-type rope`).

**What it checks.** Tensors of role `positions` with a floating dtype, row by row over their last axis. A
stretch of a row that equals round((s + i)·c) to the bit, for a whole start s and a step c (1, 1/k, or one
over the length) that its own values fix, is a rounded count; two neighbours with one value in it are a
collision. f32 values that are all bf16 or fp16 numbers were rounded before they were saved, and count as such.

**Inverse frequencies.** Tensors whose name ends in `inv_freq` in bf16 or fp16 (`run.watch` observes a model's
buffers): between the first, 1, and the last
lie base^(-2i/d), and the error of rounding grows with the position. If it is half a turn within 1,048,576 positions:
a warning, `bounded`, with the first such position.

**Strength.** `proved`: both positions are rounded and give the recorded value.

**Inconclusive when** equal neighbours have no such explanation (padding, sums that stop), or the values
do not count up at all (angle tables, random positions).

**Reasons.** `no-rows`: there are no complete rows of positions; `not-positions`: the values are too coarse in their
dtype to show a count; `repeated`: some neighbours are equal and no rounded count explains them; `no-count`: the
values do not increase by a constant step; `not-geometric`: the values are not powers of one ratio that fall from 1.

**What it cannot see.** Positions that are exact here and rounded later, inside the model; relative positions.

**Cost.** One pass over the sampled rows, a few candidates a stretch.

**Sources.** Wang et al., "When Precision Meets Position: BFloat16 Breaks Down RoPE in Long-Context
Training", 2024.
)page";

constexpr RuleInfo kInfo = {"precision/position-collision",
                            "two positions share a value",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

struct Looked {
  int64_t counted = 0;  // number of positions in stretches that count up
  int64_t collided_rows = 0;
  bool repeats = false;  // there are equal neighbours that no counting explains
  bool gave_up = false;  // too many ways of counting explain the values
  CountedStretch worst;  // the stretch with a collision that has most positions per value
  int64_t worst_row = -1;
};

Looked LookAtRows(const TensorCase& c, DType dtype) {
  // [T,1] is one sequence, not T sequences.
  const bool column = c.columns == 1;
  const int64_t rows = column ? 1 : c.rows;
  const int64_t n = column ? c.rows : c.columns;
  Looked looked;
  int64_t work = PositionWork(rows * n);
  for (int64_t r = 0; r < rows; ++r) {
    const PositionRow row = LookAtPositions(c.values.data() + r * n, n, dtype, work);
    bool collided = false;
    for (const CountedStretch& s : row.stretches) {
      looked.counted += s.length();
      if (s.collision < 0) continue;
      collided = true;
      if (looked.worst_row < 0 ||
          s.length() * looked.worst.distinct > looked.worst.length() * s.distinct) {
        looked.worst = s;
        looked.worst.collision += r * n;
        looked.worst.begin += r * n;
        looked.worst.end += r * n;
        looked.worst_row = r;
      }
    }
    looked.collided_rows += collided ? 1 : 0;
    looked.repeats |= row.repeats && !collided;
  }
  looked.gave_up = work <= 0;
  return looked;
}

class PositionCollision : public ItemRule {
 public:
  PositionCollision() : ItemRule(JudgeOne) {}

 private:
  static std::optional<v1::Verdict> JudgeOne(const Item& item) {
    if (!item.evidence->has_tensor()) return std::nullopt;
    const v1::TensorState& state = item.evidence->tensor();
    if (item.evidence->site().layer().ends_with("inv_freq")) {
      return JudgeFrequencies(state);
    }
    if (state.role() != "positions") return std::nullopt;
    if (IsInteger(static_cast<DType>(state.dtype()))) {
      google::protobuf::Struct details;
      Put(details, "dtype", DTypeName(static_cast<DType>(state.dtype())));
      return Pass("integer positions are exact", std::move(details));
    }
    const auto c = DecodeTensor(state);
    if (!c.ok()) return Inconclusive(std::string(c.status().message()));
    if (c->rows == 0) return Inconclusive("no-rows: the rule needs complete rows of positions");
    const DType used = CoarsestDType(c->values, c->dtype, 64);
    Looked looked = LookAtRows(*c, used);
    if (looked.worst_row >= 0) return Found(*c, used, looked);
    if (looked.gave_up) {
      return Inconclusive("not-positions: the values are too coarse in their dtype to show a count",
                          Describe(*c, used, looked));
    }
    if (looked.repeats) {
      return Inconclusive(
          "repeated: some neighbours are equal and no rounded count explains them (padding, or "
          "values that do not count)",
          Describe(*c, used, looked));
    }
    if (looked.counted == 0)
      return Inconclusive("no-count: the values do not increase by a constant step",
                          Describe(*c, used, looked));
    return Pass("every position has its own value", Describe(*c, used, looked));
  }

  // Judges RoPE's frequencies: f_i = base^(-2i/d), of which the first is 1.
  static std::optional<v1::Verdict> JudgeFrequencies(const v1::TensorState& state) {
    constexpr double kMostPositions = 1 << 20;
    constexpr size_t kFewestFrequencies = 4;
    const auto c = DecodeTensor(state);
    if (!c.ok() && absl::StartsWith(c.status().message(), "no-sample")) return std::nullopt;
    if (!c.ok()) return Inconclusive(std::string(c.status().message()));
    const std::vector<double>& f = c->values;
    const DType used = CoarsestDType(f, c->dtype, 8);
    google::protobuf::Struct details;
    Put(details, "dtype", DTypeName(used));
    Put(details, "frequencies", static_cast<double>(f.size()));
    if (f.size() != state.summary().count() || f.size() < kFewestFrequencies || !(f.front() == 1) ||
        !(f.back() > 0) || !(f.back() < 1)) {
      return Inconclusive("not-geometric: the values are not frequencies that fall from 1",
                          details);
    }
    if (used != DType::kBF16 && used != DType::kF16)
      return Pass("inverse frequencies are kept in more than 16 bits", details);
    // The common ratio of neighbours is computed from all frequencies, so that rounding errors
    // average out.
    double sum = 0, squares = 0, error = 0;
    for (size_t i = 1; i < f.size(); ++i) {
      sum += static_cast<double>(i) * std::log(f[i]);
      squares += static_cast<double>(i) * static_cast<double>(i);
    }
    size_t worst = 0;
    for (size_t i = 0; i < f.size(); ++i) {
      const double exact = std::exp(static_cast<double>(i) * sum / squares);
      if (!(std::fabs(f[i] - exact) <= 2 * UlpOf(exact, used)))
        return Inconclusive("not-geometric: the frequencies are not powers of one ratio", details);
      if (std::fabs(f[i] - exact) > error) {
        error = std::fabs(f[i] - exact);
        worst = i;
      }
    }
    const double half_turn = std::acos(-1.0) / error;
    Put(details, "half_turn_at", half_turn);
    if (!(half_turn < kMostPositions))
      return Pass("their rounding changes no angle by half a turn", details);
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_BOUNDED);
    found.Title(absl::StrFormat("inverse frequencies are kept in %s", DTypeName(used)))
        .Explain(absl::StrFormat(
            "Frequency %d of %d is %.9g in %s; the exact value is %.9g. From position %.0f on the "
            "error of the angle is half a turn; earlier positions have a part of this error.",
            worst, f.size(), f[worst], DTypeName(used),
            std::exp(static_cast<double>(worst) * sum / squares), std::ceil(half_turn)))
        .Cause("coarse-frequencies", 0.9)
        .Measured("position at which the error of the angle is half a turn", half_turn, "positions")
        .Threshold(kMostPositions, "positions")
        .Fix(
            "Exclude inv_freq from .to(torch.bfloat16) and .half() (register it again in fp32, or "
            "compute it in forward), and compute cosine and sine in fp32.")
        .Samples(f.size())
        .Witness("frequency", static_cast<double>(worst))
        .Witness("error", error);
    *found.verdict().mutable_details() = details;
    found.verdict().add_assumptions("the frequencies are powers of one ratio");
    return found.Take();
  }

  static v1::Verdict Found(const TensorCase& c, DType used, const Looked& looked) {
    const CountedStretch& s = looked.worst;
    const double value = c.values[static_cast<size_t>(s.collision)];
    const double first = (s.start + static_cast<double>(s.collision - s.begin)) * s.step;
    FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
    found
        .Title(absl::StrFormat("%d positions have %d values in %s", s.length(), s.distinct,
                               DTypeName(used)))
        .Explain(
            absl::StrFormat("Positions %.10g and %.10g are both %.10g in %s, whose values are %g "
                            "apart there. %d of "
                            "%d rows have such a pair.",
                            first, first + s.step, value, DTypeName(used), UlpOf(value, used),
                            looked.collided_rows, c.columns == 1 ? 1 : c.rows))
        .Cause(used == c.dtype ? "coarse-dtype" : "cast-too-late", 1)
        .Measured("distinct values / positions",
                  static_cast<double>(s.distinct) / static_cast<double>(s.length()), "share")
        .Threshold(1, "each position has its own value")
        .Fix(
            "Keep positions in an integer dtype or fp32, and round after sine and cosine "
            "(position_ids.float() outside autocast; FSDP buffer_dtype=torch.float32).")
        .Samples(static_cast<uint64_t>(c.values.size()))
        .Witness("row", static_cast<double>(looked.worst_row) + static_cast<double>(c.first_row))
        .Witness("first_position", first)
        .Witness("second_position", first + s.step)
        .Witness("value", value);
    *found.verdict().mutable_details() = Describe(c, used, looked);
    Put(*found.verdict().mutable_details(), "positions", static_cast<double>(s.length()));
    Put(*found.verdict().mutable_details(), "distinct", static_cast<double>(s.distinct));
    if (s.step != 1) Put(*found.verdict().mutable_details(), "step", s.step);
    found.verdict().add_assumptions(
        "each row of the last axis holds the positions of its tokens in order");
    return found.Take();
  }

  static google::protobuf::Struct Describe(const TensorCase& c, DType used, const Looked& looked) {
    google::protobuf::Struct details;
    Put(details, "dtype", DTypeName(used));
    if (used != c.dtype) Put(details, "stored_as", DTypeName(c.dtype));
    Put(details, "rows", static_cast<double>(c.columns == 1 ? 1 : c.rows));
    Put(details, "counted", static_cast<double>(looked.counted));
    return details;
  }
};

}  // namespace

CatalogueEntry position_collision() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<PositionCollision>();
          }};
}

}  // namespace plumbline::rules
