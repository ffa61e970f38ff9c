#include "analysis/tensor/non_finite_sighting.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/collective/case/case.h"
#include "analysis/tensor/non_finite_words.h"
#include "base/half.h"

namespace plumbline::analysis {

std::string NonFiniteSighting::WhoText() const {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0], " was");
  return absl::StrCat(RankWords(ranks), " had the same");
}

std::string NonFiniteSighting::HistoryText() const {
  std::string alone;
  if (finite_ranks > 0) {
    alone = absl::StrFormat("%d %s observed finite values there. ", finite_ranks,
                            finite_ranks == 1 ? "other rank" : "other ranks");
  }
  if (first.at_start())
    return absl::StrCat(alone, StartText(finite_weight, finite_step, step), in_front);
  return absl::StrCat(alone, UnseenText(finite_step, step, "It"),
                      BeforeText(before ? &*before : nullptr), in_front);
}

std::string NonFiniteSighting::Cause(bool backed_off) const {
  if (backed_off) return "loss-scale-back-off";
  if (WrittenBetweenSteps()) return "weight-written-between-steps";
  if (!before || !IsFloating(before->dtype)) return "unknown";
  // A square, or a sum of a few hundred such values, exceeds the dtype's range.
  const double most = FormatOf(before->dtype).max_finite;
  return before->non_finite() == 0 && before->amax >= std::sqrt(most) ? "near-overflow" : "unknown";
}

bool NonFiniteSighting::WrittenBetweenSteps() const {
  return first.at_start() && finite_weight && *finite_weight == step - 1;
}

double NonFiniteSighting::Confidence(bool backed_off) const {
  if (backed_off) return 1;
  return Cause(backed_off) == "unknown" ? 0 : 0.8;
}

void NonFiniteSighting::Fill(v1::Verdict& verdict) const {
  const Observation& o = first;
  SetPlace(verdict, o.layer, o.op, step, step, ranks);
  verdict.mutable_finding()->set_sample_size(o.count);
  google::protobuf::Struct& witness = *verdict.mutable_finding()->mutable_witness();
  Put(witness, "rank", static_cast<double>(o.rank));
  Put(witness, "order", static_cast<double>(o.order));
  Put(witness, "values", CountText(o));
  google::protobuf::Struct& details = *verdict.mutable_details();
  Put(details, "dtype", DTypeName(o.dtype));
  Put(details, "role", o.what);
  Put(details, "sites_in_step", static_cast<double>(sites));
  const auto& clean = first.at_start() && finite_weight ? finite_weight : finite_step;
  if (clean) Put(details, "clean_step", static_cast<double>(*clean));
  if (before) {
    Put(details, "before", absl::StrCat(before->layer, "/", before->op));
    if (std::isfinite(before->amax)) Put(details, "before_amax", before->amax);
  }
  if (WrittenBetweenSteps())
    verdict.add_assumptions("weights are observed after the update of their step");
  if (apart) {
    verdict.add_assumptions(
        "ranks that observe different sites (stages of a pipeline) are ordered by the names of the "
        "sites: forward values first, then gradients in reverse order");
  }
  if (!ordered) {
    verdict.add_assumptions("the order of observation is not known, so sites are ordered by name");
  }
}

}  // namespace plumbline::analysis
