#include "analysis/tensor/block_fit_verdict.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/tensor/block_fault.h"
#include "analysis/tensor/block_fit.h"

namespace plumbline::analysis {
namespace {

std::optional<v1::Verdict> BlocksFinding(const MatmulCase& c, const BlockFit& fit, bool of_a) {
  const BlockFault faults[] = {
      {fit.stale, "stale-scale",
       "have no value above a quarter of the format's largest, and lost bits of small values"},
      {fit.clipped, "clipped-blocks", "have a quarter of their values at the format's largest"},
      {fit.spent, "outlier-blocks", "have one value and zeros"}};
  const BlockFault& worst = MostFrequent(faults);
  const double share = fit.share(worst.blocks);
  if (!(share >= kShareOfBlocks)) return std::nullopt;
  v1::Verdict verdict = BlockFaultFinding(
      worst, share,
      absl::StrFormat("scales of %s's blocks do not fit its values", of_a ? "A" : "B"),
      absl::StrFormat("%.0f %% of %d blocks of %d values %s (%g).", 100 * share, fit.blocks,
                      c.block, worst.words, (of_a ? c.a_format : c.b_format).max_finite),
      "Compute the scale from the block's own largest value in the same step (Transformer Engine "
      "Float8CurrentScaling, MXFP8BlockScaling), a smaller block, or a rotation that spreads "
      "outliers.");
  verdict.mutable_finding()->set_sample_size(fit.blocks);
  return verdict;
}

}  // namespace

std::optional<v1::Verdict> JudgeBlockScales(const Item& item) {
  if (!item.evidence->has_matmul() || !item.evidence->matmul().sample().has_a_scale())
    return std::nullopt;
  const auto c = DecodeMatmul(item.evidence->matmul());
  if (!c.ok()) return Inconclusive(std::string(c.status().message()));
  google::protobuf::Struct details;
  std::optional<v1::Verdict> worst;
  uint64_t most = 0;  // most blocks of a factor
  for (const bool of_a : {true, false}) {
    const BlockFit fit = FitOfBlocks(*c, of_a);
    most = std::max(most, fit.blocks);
    google::protobuf::Struct& shares = PutStruct(details, of_a ? "a" : "b");
    Put(shares, "blocks", static_cast<double>(fit.blocks));
    Put(shares, "stale", fit.share(fit.stale));
    Put(shares, "clipped", fit.share(fit.clipped));
    Put(shares, "spent_on_one", fit.share(fit.spent));
    if (!worst && fit.blocks >= kFewBlocks) worst = BlocksFinding(*c, fit, of_a);
  }
  if (worst) {
    *worst->mutable_details() = details;
    *worst->mutable_finding()->mutable_details() = std::move(details);
    return worst;
  }
  if (most < kFewBlocks)
    return Inconclusive(
        absl::StrCat("few-blocks: fewer than ", kFewBlocks, " blocks of 8 bits or fewer"), details);
  return Pass("the blocks' scales fit their values", std::move(details));
}

}  // namespace plumbline::analysis
