#include "transport/batch_edit.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "proto/evidence_samples.h"

namespace plumbline::transport {
namespace {

using LossKey = std::tuple<std::string, std::string, std::string>;  // cause, layer, op

// Finds the losses of a batch by cause and site.
class LossIndex {
 public:
  explicit LossIndex(v1::Batch* batch) : batch_(batch) {
    for (v1::Loss& loss : *batch->mutable_losses()) {
      index_[{loss.cause(), loss.site().layer(), loss.site().op()}] = &loss;
    }
  }

  void Add(std::string_view cause, const v1::Site* site, uint64_t count, int64_t first,
           int64_t last) {
    LossKey key{std::string(cause), site ? site->layer() : "", site ? site->op() : ""};
    v1::Loss*& loss = index_[key];
    if (loss == nullptr) {
      loss = batch_->add_losses();
      loss->set_cause(std::get<0>(key));
      if (site != nullptr) *loss->mutable_site() = *site;
      loss->set_step_first(first);
      loss->set_step_last(last);
    }
    loss->set_count(loss->count() + count);
    loss->set_step_first(std::min(loss->step_first(), first));
    loss->set_step_last(std::max(loss->step_last(), last));
  }

 private:
  v1::Batch* batch_;
  std::map<LossKey, v1::Loss*> index_;
};

const v1::SeriesSet* SetOf(const v1::Batch& batch, uint64_t id, const SeriesSets& known) {
  for (const v1::SeriesSet& set : batch.series_sets()) {
    if (set.id() == id) return &set;
  }
  for (const v1::SeriesSet& set : known) {
    if (set.id() == id) return &set;
  }
  return nullptr;
}

bool Present(const v1::SeriesRows& rows, int value) {
  if (rows.absent().empty()) return true;
  return (static_cast<uint8_t>(rows.absent()[static_cast<size_t>(value / 8)]) >> (value % 8) & 1) ==
         0;
}

uint64_t CountPresent(const v1::SeriesRows& rows) {
  if (rows.absent().empty()) return static_cast<uint64_t>(rows.value_size());
  uint64_t count = 0;
  for (int value = 0; value < rows.value_size(); ++value) count += Present(rows, value);
  return count;
}

void CountLost(const v1::SeriesRows& rows, const v1::SeriesSet* set, std::string_view cause,
               LossIndex* losses) {
  const int columns = rows.step_size() == 0 ? 0 : rows.value_size() / rows.step_size();
  const bool named = set != nullptr && set->sites_size() == columns;
  for (int value = 0; columns > 0 && value < rows.value_size(); ++value) {
    if (!Present(rows, value)) continue;
    const int64_t step = rows.step(std::min(value / columns, rows.step_size() - 1));
    losses->Add(cause, named ? &set->sites(value % columns) : nullptr, 1, step, step);
  }
}

int64_t FirstStep(const v1::Batch& batch) {
  int64_t first = kNoStep;
  for (const v1::Evidence& e : batch.evidence()) first = std::min(first, e.step());
  for (const v1::SeriesRows& rows : batch.series()) {
    for (const int64_t step : rows.step()) first = std::min(first, step);
  }
  if (first != kNoStep) return first;
  for (const v1::Progress& p : batch.progress()) {
    if (p.any_step()) first = std::min(first, p.complete_through());
  }
  return first;
}

}  // namespace

SealedBatch Seal(const v1::Batch& batch) {
  SealedBatch sealed;
  sealed.body = std::make_shared<const std::string>(batch.SerializeAsString());
  sealed.items = static_cast<uint64_t>(batch.evidence_size());
  for (const v1::SeriesRows& rows : batch.series()) sealed.items += CountPresent(rows);
  sealed.sets = static_cast<uint64_t>(batch.series_sets_size());
  sealed.progress = batch.progress_size() != 0;
  sealed.first_step = FirstStep(batch);
  for (const v1::Evidence& e : batch.evidence()) sealed.samples += HasSample(e);
  return sealed;
}

v1::Batch Parsed(const SealedBatch& sealed) {
  v1::Batch batch;
  batch.ParseFromString(*sealed.body);  // cannot fail: we wrote these bytes
  return batch;
}

std::string BatchNumber(uint64_t stream_id, uint64_t sequence) {
  // Fields of a message may come in any order; the library writes these two.
  v1::Batch number;
  number.set_stream_id(stream_id);
  number.set_sequence(sequence);
  return number.SerializeAsString();
}

void AddLoss(v1::Batch* batch, std::string_view cause, const v1::Site* site, uint64_t count,
             int64_t step_first, int64_t step_last) {
  LossIndex(batch).Add(cause, site, count, step_first, step_last);
}

void DropSamples(v1::Batch* batch, std::string_view cause) {
  LossIndex losses(batch);
  for (v1::Evidence& e : *batch->mutable_evidence()) {
    if (!RemoveSample(&e, "dropped: " + std::string(cause))) continue;
    losses.Add(cause, &e.site(), 1, e.step(), e.step());
  }
}

void DropEvidence(v1::Batch* batch, std::string_view cause, const SeriesSets& known) {
  LossIndex losses(batch);
  for (const v1::Evidence& e : batch->evidence()) {
    losses.Add(cause, &e.site(), 1, e.step(), e.step());
  }
  for (const v1::SeriesRows& rows : batch->series()) {
    CountLost(rows, SetOf(*batch, rows.set(), known), cause, &losses);
  }
  batch->clear_evidence();
  batch->clear_series();
}

bool DropNames(v1::Batch* batch) {
  const auto named = [](const v1::Loss& loss) { return loss.has_site(); };
  const bool any = !batch->declarations().empty() || !batch->series_sets().empty() ||
                   std::any_of(batch->losses().begin(), batch->losses().end(), named);
  if (!any) return false;
  v1::Batch summed;
  LossIndex losses(&summed);
  for (const v1::Loss& l : batch->losses())
    losses.Add(l.cause(), nullptr, l.count(), l.step_first(), l.step_last());
  batch->mutable_losses()->Swap(summed.mutable_losses());
  batch->clear_declarations();
  batch->clear_series_sets();
  return true;
}

void MergeHollow(const v1::Batch& newer, v1::Batch* older) {
  LossIndex losses(older);
  for (const v1::Loss& l : newer.losses()) {
    losses.Add(l.cause(), l.has_site() ? &l.site() : nullptr, l.count(), l.step_first(),
               l.step_last());
  }
  if (newer.progress_size() != 0) *older->mutable_progress() = newer.progress();
  older->mutable_declarations()->MergeFrom(newer.declarations());
  older->mutable_series_sets()->MergeFrom(newer.series_sets());
  if (older->sources_size() == 0) *older->mutable_sources() = newer.sources();
}

SealedBatch WithoutSamples(const SealedBatch& sealed, std::string_view cause) {
  v1::Batch batch = Parsed(sealed);
  DropSamples(&batch, cause);
  return Seal(batch);
}

SealedBatch WithoutEvidence(const SealedBatch& sealed, std::string_view cause,
                            const SeriesSets& known) {
  v1::Batch batch = Parsed(sealed);
  DropEvidence(&batch, cause, known);
  return Seal(batch);
}

SealedBatch Merged(const SealedBatch& older, const SealedBatch& newer) {
  v1::Batch batch = Parsed(older);
  MergeHollow(Parsed(newer), &batch);
  return Seal(batch);
}

}  // namespace plumbline::transport
