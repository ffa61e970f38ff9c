#include "rules/lib/drift_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plumbline::rules {

StepChange DriftSite::Jump() const {
  if (statistics.with_lag == 0) return {};
  return FindStepChange(statistics.series.At(0));
}

DriftCause DriftSite::Cause() const { return NameDriftCause(statistics, Jump(), tests); }

std::string DriftSite::RecordDoubt() const {
  if (!tests.record_failed()) return "";
  return "record-invalid: what was logged is not what was sampled, so that its drift says nothing "
         "about the weights";
}

void DriftSite::Place(v1::Verdict& verdict) const {
  v1::FindingSite& site = *verdict.mutable_site();
  site.set_layer(layer);
  site.set_op(op);
  site.set_step_first(step_first);
  site.set_step_last(step_last);
  for (const uint32_t rank : ranks) site.add_ranks(rank);
}

void DriftRun::Take(const SiteStep& step) { Take(*join_.Take(step)); }

void DriftRun::Finish() {
  if (finished_) return;
  finished_ = true;
  Take(*join_.Finish());
  for (auto& [key, site] : sites_) site.ended = true;
}

void DriftRun::Take(const std::vector<RolloutBatch>& batches) {
  touched_.clear();
  for (const RolloutBatch& batch : batches) {
    const Key key{batch.layer, batch.op};
    touched_.insert(key);
    DriftSite& site = sites_[key];
    if (site.batches++ == 0) {
      site.layer = batch.layer;
      site.op = batch.op;
      site.step_first = site.step_last = batch.step;
    }
    site.step_first = std::min(site.step_first, batch.step);
    site.step_last = std::max(site.step_last, batch.step);
    site.ranks.insert(batch.ranks.begin(), batch.ranks.end());
    site.unmatched += batch.unmatched;
    site.statistics.BeginStep(batch.attempt, batch.step);
    site.times.BeginStep();
    const std::string problem = batch.ForEach([&site](const RolloutSequence& sequence) {
      site.statistics.Take(sequence);
      if (!sequence.later_epoch) site.times.Take(sequence);
    });
    site.times.EndStep();
    if (site.unreadable.empty()) site.unreadable = problem;
  }
}

DriftRun& SharedDriftRun::Take(const SiteStep& step) {
  std::shared_ptr<const void>& slot = (*step.shared)["drift-run"];
  if (slot == nullptr) {
    run_->Take(step);
    slot = run_;
  } else {
    run_ = std::const_pointer_cast<DriftRun>(std::static_pointer_cast<const DriftRun>(slot));
  }
  return *run_;
}

DriftRun& SharedDriftRun::Finish() {
  run_->Finish();
  return *run_;
}

}  // namespace plumbline::rules
