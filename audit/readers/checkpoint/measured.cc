#include "audit/readers/checkpoint/measured.h"

#include <algorithm>
#include <utility>

#include "base/parallel.h"

namespace plumbline::audit {
namespace {

// Returns true for tensors that rules compare between consecutive checkpoints.
bool IsSampled(const SitedTensor& tensor) {
  return IsFloating(tensor.place.dtype) && (tensor.op == "weight" || tensor.op == "average" ||
                                            tensor.op == "exp_avg" || tensor.op == "exp_avg_sq");
}

}  // namespace

void TensorMeasurer::Open(const WholeCheckpoint* whole) {
  whole_ = whole;
  ahead_.clear();
  const auto sampled = std::count_if(whole->tensors.begin(), whole->tensors.end(), IsSampled);
  most_sampled_ = SampledElements::MostOf(static_cast<size_t>(sampled));
}

MeasuredTensor TensorMeasurer::Take(size_t tensor) {
  if (!ahead_.contains(tensor) && whole_->tensors[tensor].place.bytes() < kSmall) Ahead(tensor);
  if (const auto at = ahead_.find(tensor); at != ahead_.end()) {
    MeasuredTensor measured = std::move(at->second);
    ahead_.erase(at);
    return measured;
  }
  MeasuredTensor measured = Prepare(tensor);
  Measure(tensor, &scan_, &measured);
  return measured;
}

// Chooses what to measure of a tensor.
MeasuredTensor TensorMeasurer::Prepare(size_t tensor) {
  const SitedTensor& sited = whole_->tensors[tensor];
  MeasuredTensor out;
  if (sited.role == "weight" && RowDigests::Suits(sited.place)) out.rows.emplace(sited.place);
  if (IsSampled(sited)) {
    const auto count = static_cast<uint64_t>(sited.place.elements());
    out.sample.emplace(sited.place, elements_.Of(sited.place.shape, count, most_sampled_));
  }
  return out;
}

void TensorMeasurer::Measure(size_t tensor, TensorScan* scan, MeasuredTensor* out) const {
  const SitedTensor& sited = whole_->tensors[tensor];
  out->status =
      scan->Measure(*whole_->files[sited.file].file, sited.place, &out->stats,
                    out->rows ? &*out->rows : nullptr, out->sample ? &*out->sample : nullptr);
}

// Measures the small tensors from `first` on, with all cores.
void TensorMeasurer::Ahead(size_t first) {
  std::vector<std::pair<size_t, MeasuredTensor>> group;
  uint64_t bytes = 0;
  for (size_t i = first; i < whole_->tensors.size() && group.size() < kMostTogether; ++i) {
    const StoredTensor& place = whole_->tensors[i].place;
    if (DTypeSize(place.dtype) == 0) continue;
    if (place.bytes() >= kSmall || bytes + place.bytes() > kTogether) break;
    bytes += place.bytes();
    group.emplace_back(i, Prepare(i));
  }
  // Start threads only if there is enough work.
  const int threads =
      bytes < kSmall ? 1 : std::min<int>(ThreadsFor(UINT64_MAX), static_cast<int>(group.size()));
  if (scans_.size() < static_cast<size_t>(threads)) scans_.resize(static_cast<size_t>(threads));
  ParallelParts(static_cast<int64_t>(group.size()), threads,
                [&](int part, int64_t from, int64_t to) {
                  for (int64_t i = from; i < to; ++i) {
                    auto& [tensor, measured] = group[static_cast<size_t>(i)];
                    Measure(tensor, &scans_[static_cast<size_t>(part)], &measured);
                  }
                });
  for (auto& [tensor, measured] : group) ahead_.emplace(tensor, std::move(measured));
}

}  // namespace plumbline::audit
