#include "analysis/tensor/block_fit_tensor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/tensor/block_fault.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

// Share of sum |x|. In mxfp4, normal values lose 1.1 % of it. Student's t with 3 degrees of
// freedom, whose tails are like gradients', loses 3.1 %. In mxfp8 it is 0.1 and 0.2 %, clipped
// because the scale's rule rounds down.
constexpr double kMassLost = 0.05;

struct Format {
  const char* name;
  const char* element;
  const char* scale_format;
  uint32_t columns, rows;
};
constexpr Format kFormats[] = {
    {"mxfp8", "e4m3", "e8m0", 32, 1},     {"mxfp8-e5m2", "e5m2", "e8m0", 32, 1},
    {"mxfp4", "e2m1", "e8m0", 32, 1},     {"nvfp4", "e2m1", "e4m3", 16, 1},
    {"fp8-1x128", "e4m3", "f32", 128, 1}, {"fp8-128x128", "e4m3", "f32", 128, 128},
};

// Published formats by their components. A format that a dump describes otherwise has no name.
bool Is(const v1::BlockScaleFit& fit, const Format& format) {
  return fit.element() == format.element && fit.scale_format() == format.scale_format &&
         fit.columns() == format.columns && fit.rows() == format.rows;
}

// Returns a name such as "mxfp4", or "e4m3 in blocks of 64 x 64, scales f32".
std::string NameOf(const v1::BlockScaleFit& fit) {
  for (const Format& format : kFormats) {
    if (Is(fit, format)) return format.name;
  }
  return absl::StrFormat("%s in blocks of %d x %d, scales %s", fit.element(), fit.rows(),
                         fit.columns(), fit.scale_format());
}

// Returns nullptr if the tensor was not measured against that format.
const v1::BlockScaleFit* Find(const v1::TensorState& state, const std::string& requested) {
  for (const v1::BlockScaleFit& fit : state.block_fits()) {
    if (requested == "declared" ? fit.declared() : NameOf(fit) == requested) return &fit;
  }
  return nullptr;
}

double Share(uint64_t of, uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(of) / static_cast<double>(all);
}

double ShareLost(const v1::BlockScaleFit& fit) {
  return fit.mass() > 0 ? (fit.flushed_mass() + fit.cut_mass()) / fit.mass() : 0;
}

// Returns true if no part exceeds the whole.
bool Consistent(const v1::BlockScaleFit& fit) {
  const uint64_t most = std::max({fit.stale(), fit.clipped(), fit.spent()});
  return most <= fit.blocks() && fit.blocks() <= fit.values() && fit.flushed() <= fit.values() &&
         fit.saturated() <= fit.values() - fit.flushed() && fit.mass() >= 0 &&
         fit.flushed_mass() >= 0 && fit.cut_mass() >= 0 && ShareLost(fit) <= 1;
}

// Returns the shares of every measured format, so that the user sees what another format would
// lose.
google::protobuf::Struct Describe(const v1::TensorState& state) {
  google::protobuf::Struct details;
  for (const v1::BlockScaleFit& fit : state.block_fits()) {
    google::protobuf::Struct& of =
        PutStruct(details, absl::StrCat(NameOf(fit), fit.recorded() ? " as recorded" : ""));
    Put(of, "blocks", static_cast<double>(fit.blocks()));
    Put(of, "flushed", Share(fit.flushed(), fit.values()));
    Put(of, "saturated", Share(fit.saturated(), fit.values()));
    Put(of, "lost_mass", ShareLost(fit));
    Put(of, "stale", Share(fit.stale(), fit.blocks()));
    Put(of, "clipped", Share(fit.clipped(), fit.blocks()));
    Put(of, "spent_on_one", Share(fit.spent(), fit.blocks()));
  }
  return details;
}

constexpr char kFix[] =
    "Compute the scale from the block's own largest value in the same step (Transformer Engine "
    "Float8CurrentScaling, MXFP8BlockScaling), a smaller block (NVFP4 has 16 values), a format "
    "with more exponents, or a rotation that spreads outliers (a Hadamard transform).";

// Returns the most frequent fault of the blocks' scales.
v1::Verdict BlocksFinding(const v1::BlockScaleFit& fit) {
  const BlockFault faults[] = {
      {fit.stale(), "stale-scale",
       "have no value above a quarter of the format's largest, and lost bits of small values: the "
       "scale is from another step, or from a larger block"},
      {fit.clipped(), "clipped-blocks", "are clipped: their scale is too small"},
      {fit.spent(), "outlier-blocks",
       "lose at least half of their values because one outlier determines the scale"}};
  const BlockFault& worst = MostFrequent(faults);
  const double share = Share(worst.blocks, fit.blocks());
  return BlockFaultFinding(
      worst, share, absl::StrFormat("scales of %s blocks do not fit the values", NameOf(fit)),
      absl::StrFormat("%.0f %% of %d blocks %s. %.2g %% of the values become 0 and %.2g %% are "
                      "above the largest value: %.2g %% of sum |x|.",
                      100 * share, fit.blocks(), worst.words,
                      100 * Share(fit.flushed(), fit.values()),
                      100 * Share(fit.saturated(), fit.values()), 100 * ShareLost(fit)),
      kFix);
}

// No single block is wrong, but too much of sum |x| is lost over all of them.
v1::Verdict MassFinding(const v1::BlockScaleFit& fit) {
  const bool flushed = fit.flushed_mass() >= fit.cut_mass();
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC)
      .Title(
          absl::StrFormat("%.1f %% of sum |x| does not fit %s", 100 * ShareLost(fit), NameOf(fit)))
      .Explain(absl::StrFormat("Of %d values in %d blocks, %d become 0 (%.2g %% of sum |x|) and %d "
                               "exceed the range of their block's scale (%.2g %%).",
                               fit.values(), fit.blocks(), fit.flushed(),
                               100 * fit.flushed_mass() / fit.mass(), fit.saturated(),
                               100 * fit.cut_mass() / fit.mass()))
      .Cause(flushed ? "underflow" : "overflow", 0.5)
      .Measured("mass lost", ShareLost(fit), "share")
      .Threshold(kMassLost, "values distributed like gradients lose 3.1 % in mxfp4")
      .Fix(kFix)
      .Take();
}

}  // namespace

bool DeclaresBlocks(const v1::TensorState& state) { return Find(state, "declared") != nullptr; }

std::optional<v1::Verdict> JudgeBlockTensor(const Item& item, const std::string& requested) {
  if (!item.evidence->has_tensor()) return std::nullopt;
  const v1::TensorState& state = item.evidence->tensor();
  const v1::BlockScaleFit* fit = Find(state, requested);
  if (fit == nullptr && (requested == "declared" || !IsFloating(static_cast<DType>(state.dtype()))))
    return std::nullopt;
  if (fit == nullptr)
    return Inconclusive("not-measured: the probe does not measure this format; dump the tensor");
  // Counts come from a file or the network. If they contradict each other, do not judge them.
  if (!Consistent(*fit)) return Inconclusive("contradictory: the blocks' counts do not add up");
  google::protobuf::Struct details = Describe(state);
  if (fit->unusable() > 0 && 10 * fit->unusable() >= fit->unusable() + fit->blocks()) {
    return Inconclusive(absl::StrFormat("bad-scale: %d of %d scales are not positive numbers",
                                        fit->unusable(), fit->unusable() + fit->blocks()),
                        std::move(details));
  }
  if (fit->blocks() < kFewBlocks) {
    return Inconclusive(absl::StrCat("few-blocks: fewer than ", kFewBlocks, " blocks with a value"),
                        std::move(details));
  }
  // If many blocks have one fault, report it as the cause. If mass is lost without such a fault,
  // only the place is known.
  const uint64_t worst = std::max({fit->stale(), fit->clipped(), fit->spent()});
  const bool blocks = Share(worst, fit->blocks()) >= kShareOfBlocks;
  if (!blocks && !(ShareLost(*fit) >= kMassLost))
    return Pass(absl::StrFormat("the scales of %s blocks fit the values", NameOf(*fit)),
                std::move(details));
  v1::Verdict verdict = blocks ? BlocksFinding(*fit) : MassFinding(*fit);
  verdict.mutable_finding()->set_sample_size(fit->blocks());
  *verdict.mutable_details() = details;
  *verdict.mutable_finding()->mutable_details() = std::move(details);
  if (!fit->recorded() && !fit->stored())
    verdict.add_assumptions("each block has the scale that the format's own rule gives");
  return verdict;
}

}  // namespace plumbline::analysis
