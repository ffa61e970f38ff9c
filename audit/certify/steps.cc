#include "audit/certify/steps.h"

#include "base/load.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kEntryBytes = 96;  // of a map's entry

std::string SiteName(const v1::Site& site) {
  return site.layer().empty() ? site.op() : site.layer() + "/" + site.op();
}

int64_t IntegerAt(const v1::Tensor& tensor, size_t i) {
  return static_cast<int64_t>(LoadDouble(tensor.data().data(), static_cast<DType>(tensor.dtype()),
                                         static_cast<int64_t>(i)));
}

// Returns true for choices without scores: rollout records give them by sequence and position.
bool IsRoutes(const v1::Evidence& item) {
  if (!item.has_routing() || !item.routing().has_sample()) return false;
  const v1::RoutingSample& sample = item.routing().sample();
  return sample.has_topk_indices() && sample.has_sequence_id() && sample.has_position() &&
         !sample.has_scores();
}

// Adds the choices by sequence and position. Returns the number of keys that were there already
// with other choices.
uint64_t AddRoutes(const v1::Source& source, const v1::Evidence& item, HeldStep* step) {
  const v1::RoutingSample& sample = item.routing().sample();
  const size_t rows = sample.sequence_id().data().size() / sizeof(int64_t);
  const size_t k = item.routing().config().top_k();
  const size_t width = DTypeSize(static_cast<DType>(sample.topk_indices().dtype()));
  if (sample.topk_indices().data().size() != rows * k * width ||
      sample.position().data().size() != rows * sizeof(int64_t) ||
      sample.sequence_id().dtype() != v1::DTYPE_I64 || sample.position().dtype() != v1::DTYPE_I64)
    return rows;
  uint64_t repeated = 0;
  for (size_t row = 0; row < rows; ++row) {
    std::vector<int64_t> chosen(k);
    for (size_t j = 0; j < k; ++j) chosen[j] = IntegerAt(sample.topk_indices(), row * k + j);
    const auto at = static_cast<int64_t>(row);
    const auto [found, fresh] =
        step->routes.try_emplace({source.role(), item.site().layer(),
                                  LoadRaw<int64_t>(sample.sequence_id().data().data(), at),
                                  LoadRaw<int64_t>(sample.position().data().data(), at)},
                                 chosen);
    if (!fresh && found->second != chosen) ++repeated;
  }
  return repeated;
}

}  // namespace

// The bytes that wait have a limit (CertifyOptions::held_bytes).
void HeldSteps::Grow(HeldStep* step, uint64_t bytes) {
  step->bytes += bytes;
  bytes_ += bytes;
}

// Returns the step that is held. Returns null, and counts it, if the step was compared already.
HeldStep* HeldSteps::At(const v1::Source& source, int64_t step, const CertifiedStep& closed) {
  const CertifiedStep key{source.attempt(), step};
  if (key <= closed) {
    ++late_;
    return nullptr;
  }
  HeldStep* held = &steps_[key];
  held->exact_nan = held->exact_nan && exact_nan_;
  return held;
}

void HeldSteps::Take(const v1::Batch& batch, bool exact_nan, const CertifiedStep& closed) {
  exact_nan_ = exact_nan;
  for (const v1::SeriesSet& set : batch.series_sets()) {
    std::vector<std::string>& names = sets_[{batch.stream_id(), set.id()}];
    names.clear();
    for (const v1::Site& site : set.sites()) names.push_back(SiteName(site));
  }
  for (const v1::Evidence& item : batch.evidence()) {
    if (item.source() < static_cast<uint32_t>(batch.sources_size()))
      Add(batch.sources(static_cast<int>(item.source())), item, closed);
  }
  for (const v1::SeriesRows& rows : batch.series()) AddRows(batch, rows, closed);
}

void HeldSteps::Add(const v1::Source& source, const v1::Evidence& item,
                    const CertifiedStep& closed) {
  HeldStep* step = At(source, item.step(), closed);
  if (step == nullptr) return;
  const CertifiedSite site{source.role(), source.rank(), SiteName(item.site())};
  if (item.has_scalar()) {
    step->series[site] = item.scalar().value();
    return Grow(step, kEntryBytes);
  }
  if (item.has_span() || item.has_timeline() || item.has_flight_recorder()) {
    ++step->times;
    return;
  }
  Grow(step, item.ByteSizeLong() + kEntryBytes);
  if (item.has_logprobs()) {
    for (const v1::LogprobsSequence& sequence : item.logprobs().sequences())
      step->sequences[sequence.id()].push_back(sequence);
  } else if (IsRoutes(item)) {
    Grow(step, item.sample_size() * kEntryBytes);
    step->repeated += AddRoutes(source, item, step);
  } else if (!step->evidence.try_emplace({site, item.call()}, item).second) {
    ++step->repeated;
  }
}

// Adds rows of scalars: one source for all rows or one each, values by row, and a bit for each
// value that is absent. Rows whose set of columns was not declared are counted.
void HeldSteps::AddRows(const v1::Batch& batch, const v1::SeriesRows& rows,
                        const CertifiedStep& closed) {
  const auto set = sets_.find({batch.stream_id(), rows.set()});
  const auto count = static_cast<size_t>(rows.step_size());
  const size_t columns = set == sets_.end() ? 0 : set->second.size();
  if (columns == 0 || rows.source_size() == 0 ||
      static_cast<size_t>(rows.value_size()) != columns * count ||
      (rows.source_size() != 1 && static_cast<size_t>(rows.source_size()) != count)) {
    undeclared_ += static_cast<uint64_t>(rows.value_size());
    return;
  }
  for (size_t r = 0; r < count; ++r) {
    const uint32_t index = rows.source(rows.source_size() == 1 ? 0 : static_cast<int>(r));
    if (index >= static_cast<uint32_t>(batch.sources_size())) continue;
    const v1::Source& source = batch.sources(static_cast<int>(index));
    HeldStep* step = At(source, rows.step(static_cast<int>(r)), closed);
    if (step == nullptr) continue;
    for (size_t c = 0; c < columns; ++c) {
      const size_t bit = r * columns + c;
      const bool absent = bit / 8 < rows.absent().size() &&
                          (static_cast<uint8_t>(rows.absent()[bit / 8]) >> (bit % 8) & 1) != 0;
      if (absent) continue;
      step->series[{source.role(), source.rank(), set->second[c]}] =
          rows.value(static_cast<int>(bit));
      Grow(step, kEntryBytes);
    }
  }
}

HeldStep HeldSteps::Release(const CertifiedStep& step) {
  const auto found = steps_.find(step);
  if (found == steps_.end()) return {};
  HeldStep out = std::move(found->second);
  bytes_ -= out.bytes;
  steps_.erase(found);
  return out;
}

}  // namespace plumbline::audit
