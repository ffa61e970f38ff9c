#include "agent/core/sites/batch_builder.h"

#include <algorithm>
#include <utility>

namespace plumbline::agent {
namespace {

constexpr uint64_t kScalarBytes = 8;
constexpr uint64_t kItemBytes = 64;  // approximate bytes without the sample; batch_bytes is no hard
                                     // limit

void SetSite(const Site& site, v1::Site* out) {
  out->set_layer(site.layer);
  out->set_op(site.op);
}

}  // namespace

BatchBuilder::BatchBuilder(const AgentOptions& options, const v1::Source& source,
                           std::shared_ptr<SeriesRegistry> registry)
    : options_(options), scalars_(std::move(registry)) {
  *batch_.add_sources() = source;
}

v1::Evidence* BatchBuilder::Add(const Site& site, int64_t step, uint32_t call, uint64_t order) {
  v1::Evidence* e = batch_.add_evidence();
  SetSite(site, e->mutable_site());
  e->set_step(step);
  e->set_call(call);
  e->set_order(order);
  NoteStep(step);
  bytes_ += kItemBytes;
  return e;
}

void BatchBuilder::NoteStep(int64_t step) {
  first_step_ = items_ == 0 ? step : std::min(first_step_, step);
  last_step_ = items_ == 0 ? step : std::max(last_step_, step);
  ++items_;
}

void BatchBuilder::RemoveLast() {
  batch_.mutable_evidence()->RemoveLast();
  --items_;
}

void BatchBuilder::AddScalar(int64_t step, const ScalarValue& value) {
  scalars_.Add(step, value);
  NoteStep(step);
  bytes_ += kScalarBytes;
}

void BatchBuilder::Declare(const Site& site) {
  v1::SiteDeclaration* d = batch_.add_declarations();
  SetSite(site, d->mutable_site());
  d->set_kind(SiteKindName(site.kind));
  d->set_step(site.declared_step);
  d->set_file(site.file);
  d->set_line(site.line);
}

void BatchBuilder::AddLoss(const char* cause, const Site* site, const LossCounters::Taken& taken) {
  if (taken.count == 0) return;
  v1::Site name;
  if (site != nullptr) SetSite(*site, &name);
  transport::AddLoss(&batch_, cause, site == nullptr ? nullptr : &name, taken.count,
                     taken.step_first, taken.step_last);
}

void BatchBuilder::StepEnded(int64_t step, bool sampled) {
  complete_through_ = std::max(complete_through_, step);
  scalars_.EndSteps(complete_through_, &batch_);
  progressed_ = true;
  step_boundary_ |= sampled;
}

bool BatchBuilder::empty() const {
  return items_ == 0 && batch_.losses_size() == 0 && batch_.declarations_size() == 0 &&
         !progressed_ && !finished_;
}

bool BatchBuilder::Full() const {
  if (empty()) return false;
  return step_boundary_ || items_ >= options_.batch_items || bytes_ >= options_.batch_bytes ||
         last_step_ - first_step_ + 1 >= options_.batch_steps;
}

bool BatchBuilder::Due(uint64_t now_ns) const {
  return Full() || (!empty() && IntervalPassed(now_ns));
}

transport::SealedBatch BatchBuilder::Take(int64_t newest_step, int64_t next_look, uint64_t now_ns) {
  scalars_.Flush(&batch_);
  v1::Progress* progress = batch_.add_progress();
  progress->set_any_step(complete_through_ >= 0);
  progress->set_complete_through(complete_through_);
  progress->set_newest_step(newest_step);
  if (next_look >= 0) progress->set_next_look(next_look);
  progress->set_finished(finished_);
  if (finished_ && ending_.ByteSizeLong() > 0) *progress->mutable_ending() = ending_;
  transport::SealedBatch sealed = transport::Seal(batch_);

  batch_.clear_evidence();
  batch_.clear_progress();
  batch_.clear_losses();
  batch_.clear_declarations();
  batch_.clear_series_sets();
  batch_.clear_series();
  items_ = 0;
  bytes_ = 0;
  first_step_ = last_step_ = 0;
  progressed_ = step_boundary_ = finished_ = false;
  last_taken_ns_ = now_ns;
  return sealed;
}

}  // namespace plumbline::agent
