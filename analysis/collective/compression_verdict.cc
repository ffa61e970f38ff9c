#include "analysis/collective/compression_verdict.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

v1::Verdict Lossy(const CompressionDrift& drift, const std::string& algorithm) {
  const CompressionDrift::Share& share = *drift.measured();
  const bool less = share.mean < 0;
  FindingBuilder found(CompressionLevel(drift), v1::STRENGTH_STATISTICAL);
  found
      .Title(absl::StrFormat("%s %s %.0f %% of the gradient over steps", algorithm,
                             less ? "loses" : "adds", 100 * std::fabs(share.mean)))
      .Explain(absl::StrFormat(
          "In the part of the gradient common to %d steps, %s sends %.0f %% too %s in each group "
          "of %d steps (at least %.0f %%): it is not late but %s. With error feedback the omitted "
          "part of a step is sent with the next one.",
          share.steps, algorithm, 100 * std::fabs(share.mean), less ? "little" : "much",
          share.steps / 4, 100 * std::fabs(share.nearest), less ? "lost" : "not there"))
      .Cause(less ? "no-error-feedback" : "compression-scale", 0.9)
      .Measured("error of the sent part of the persistent gradient", share.mean, "share")
      .Threshold(
          std::fabs(share.nearest) >= kCompressionError ? kCompressionError : kCompressionWarning,
          "warning from a tenth of the persistent part, error from half")
      .Fix(
          "Turn error feedback on: PyTorch PowerSGDState(use_error_feedback=True, "
          "warm_start=True), Horovod and DeepSpeed 1-bit optimizers keep it by default (do not "
          "reset their buffers at checkpoints); or reduce uncompressed.")
      .Samples(drift.elements())
      .FalseAlarm("probability", 1e-6)
      .Assume(
          "errors of elements are independent; intervals are 4.9 standard errors in each of three "
          "groups of steps")
      .Assume("the recorded steps are similar to those between them");
  found.verdict().mutable_assumptions()->CopyFrom(found.finding().assumptions());
  return found.Take();
}

}  // namespace

v1::Level CompressionLevel(const CompressionDrift& drift) {
  if (!drift.measured()) return v1::LEVEL_UNSPECIFIED;
  const double nearest = std::fabs(drift.measured()->nearest);
  if (nearest >= kCompressionError) return v1::LEVEL_ERROR;
  return nearest >= kCompressionWarning ? v1::LEVEL_WARNING : v1::LEVEL_UNSPECIFIED;
}

v1::Verdict CompressionVerdict(const CompressionDrift& drift, const std::string& algorithm) {
  google::protobuf::Struct details;
  Put(details, "algorithm", algorithm);
  Put(details, "steps", static_cast<double>(drift.steps()));
  Put(details, "elements", static_cast<double>(drift.elements()));
  if (drift.measured()) Put(details, "persistent_share", drift.measured()->mean);
  v1::Verdict verdict;
  if (CompressionLevel(drift) != v1::LEVEL_UNSPECIFIED) {
    verdict = Lossy(drift, algorithm);
    *verdict.mutable_finding()->mutable_details() = details;
  } else if (!drift.measured()) {
    verdict = Inconclusive(drift.why());
  } else if (std::fabs(drift.measured()->farthest) < kCompressionWarning) {
    verdict =
        Pass(absl::StrFormat("the part that %s omits in a step is sent later: over %d steps the "
                             "error is %+.1f %% of the persistent part",
                             algorithm, drift.measured()->steps, 100 * drift.measured()->mean));
  } else {
    verdict =
        Inconclusive(absl::StrFormat("few-steps: over %d steps the error is %+.0f %% of the "
                                     "persistent part, and may be up to %.0f %%",
                                     drift.measured()->steps, 100 * drift.measured()->mean,
                                     100 * std::fabs(drift.measured()->farthest)));
  }
  *verdict.mutable_details() = std::move(details);
  return verdict;
}

void CompressedSite::Take(const Key& key, const SiteStep& step,
                          const std::vector<JoinedReduction>& calls, Sites& sites,
                          VerdictSink& out) {
  for (const JoinedReduction& joined : calls) {
    const std::string& algorithm = joined.call_of(0).algorithm();
    if (!joined.has_sample() || !IsCompression(algorithm)) continue;
    const auto c = DecodeReduction(joined, true);
    if (!c.ok()) continue;  // the verdict on the call reports it
    const auto [found, first] = sites.try_emplace(key);
    CompressedSite& site = found->second;
    if (first) site.step_first = step.step;
    site.algorithm = algorithm;
    site.step_last = std::max(site.step_last, step.step);
    for (const Item& item : joined.items) site.ranks.insert(item.source->rank());
    site.drift.Take(*c, step.step);
    if (CompressionLevel(site.drift) <= site.reported) return;
    site.reported = CompressionLevel(site.drift);
    out.Add(site.Verdict(key));
    return;
  }
}

v1::Verdict CompressedSite::Verdict(const Key& key) const {
  v1::Verdict verdict = CompressionVerdict(drift, algorithm);
  SetPlace(verdict, std::get<1>(key), std::get<2>(key), step_first, step_last, ranks);
  return verdict;
}

void CompressedSite::JudgeRun(const Key& key, VerdictSink& out) const {
  if (reported == v1::LEVEL_UNSPECIFIED && step_last > step_first) out.Add(Verdict(key));
}

}  // namespace plumbline::analysis
