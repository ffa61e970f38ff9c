#include "audit/learn/meter.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostRatioSeries = 24;  // 276 pairs
constexpr size_t kMostOrderPairs = 4096;

std::string SiteName(const v1::Site& site) {
  return site.layer().empty() ? site.op() : absl::StrCat(site.layer(), "/", site.op());
}

}  // namespace

const char* NameOfMeasure(Measure measure) {
  switch (measure) {
    case Measure::kRange:
      return "range";
    case Measure::kRatio:
      return "ratio";
    case Measure::kNonFinite:
      return "finite";
    case Measure::kStill:
      return "moves";
    case Measure::kFall:
      return "never-falls";
    case Measure::kSpread:
      return "ranks-equal";
    case Measure::kAlike:
      return "ranks-differ";
    case Measure::kOrder:
      return "order";
  }
  return "";
}

int PhaseOf(int64_t step) {
  return step < 16 ? 0 : static_cast<int>(std::bit_width(static_cast<uint64_t>(step))) - 4;
}

std::pair<int64_t, int64_t> StepsOfPhase(int phase) {
  return {phase == 0 ? 0 : int64_t{1} << (phase + 3), (int64_t{1} << (phase + 4)) - 1};
}

void Meter::Add(const std::string& name, const analysis::SiteStep& step, uint32_t rank,
                double value, bool digest) {
  Seen& seen = open_[name];
  seen.layer = step.site.layer();
  seen.op = step.site.op();
  seen.digest = digest;
  seen.values[rank] = value;
}

void Meter::TakeSite(const analysis::SiteStep& step) {
  if (step.late) return;
  const std::string name = SiteName(step.site);
  for (const analysis::Item& item : step.items) {
    const uint32_t rank = item.source->rank();
    if (item.evidence->order() > 0) order_[rank].emplace_back(item.evidence->order(), name);
    if (item.evidence->has_scalar()) {
      Add(name, step, rank, item.evidence->scalar().value(), false);
      continue;
    }
    if (!item.evidence->has_tensor()) continue;
    const v1::TensorSummary& summary = item.evidence->tensor().summary();
    if (summary.count() == 0) continue;
    const auto count = static_cast<double>(summary.count());
    Add(name + " rms", step, rank, std::sqrt(summary.sum_squares() / count), false);
    Add(name + " zeros", step, rank, static_cast<double>(summary.zero()) / count, false);
    // 53 bits: exact as a double
    Add(name + " bits", step, rank, static_cast<double>(summary.digest_low() >> 11), true);
  }
}

void Meter::EndStep(const analysis::StepEnd& step) {
  if (open_.empty() && order_.empty()) return;
  const std::string course = absl::StrCat(step.run, "\n", step.attempt, "\n", step.role);
  MeterPlace place;
  place.run = &step.run;
  place.step = step.step;
  for (const auto& [name, seen] : open_) {
    Series& series = series_[{course, name}];
    place.layer = seen.layer;
    place.op = seen.op;
    if (!seen.digest) {
      for (const auto& [rank, value] : seen.values) {
        place.ranks = {rank};
        MeasureRank(name, seen, rank, value, &series, &place);
      }
    }
    if (seen.values.size() > 1) CompareRanks(name, seen, &series, &place);
  }
  MeasureRatios(&place);
  MeasureOrder(&place);
  open_.clear();
  order_.clear();
}

void Meter::MeasureRank(const std::string& name, const Seen& /*seen*/, uint32_t rank, double value,
                        Series* series, MeterPlace* place) {
  const bool finite = std::isfinite(value);
  emit_({Measure::kNonFinite, name, "", -1}, finite ? 0 : 1, *place);
  if (!finite) return;
  emit_({Measure::kRange, name, "", PhaseOf(place->step)}, value, *place);
  const auto [known, fresh] = series->before.try_emplace(rank, value, 0);
  if (fresh) return;
  auto& [before, still] = known->second;
  emit_({Measure::kFall, name, "", -1}, before - value, *place);
  still = before == value ? still + 1 : 0;
  emit_({Measure::kStill, name, "", -1}, static_cast<double>(still), *place);
  before = value;
}

void Meter::CompareRanks(const std::string& name, const Seen& seen, Series* series,
                         MeterPlace* place) {
  place->ranks.clear();
  double low = INFINITY, high = -INFINITY;
  for (const auto& [rank, value] : seen.values) {
    if (!std::isfinite(value)) return;
    place->ranks.push_back(rank);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  emit_({Measure::kSpread, name, "", -1}, high - low, *place);
  series->alike = low == high ? series->alike + 1 : 0;
  emit_({Measure::kAlike, name, "", -1}, static_cast<double>(series->alike), *place);
}

// Only series of positive values have ratios.
void Meter::MeasureRatios(MeterPlace* place) {
  std::vector<std::pair<const std::string*, const Seen*>> of;
  for (const auto& [name, seen] : open_) {
    if (of.size() < kMostRatioSeries && !seen.digest) of.emplace_back(&name, &seen);
  }
  const int phase = PhaseOf(place->step);
  for (size_t a = 0; a < of.size(); ++a) {
    place->layer = of[a].second->layer;
    place->op = of[a].second->op;
    for (size_t b = a + 1; b < of.size(); ++b) {
      for (const auto& [rank, value] : of[a].second->values) {
        const auto other = of[b].second->values.find(rank);
        if (other == of[b].second->values.end()) continue;
        const double ratio = value / other->second;
        if (!(value > 0) || !(other->second > 0) || !std::isfinite(ratio) || ratio == 0) continue;
        place->ranks = {rank};
        emit_({Measure::kRatio, *of[a].first, *of[b].first, phase}, ratio, *place);
      }
    }
  }
}

// Sites that once followed each other directly are compared from then on.
void Meter::MeasureOrder(MeterPlace* place) {
  for (auto& [rank, sites] : order_) {
    std::sort(sites.begin(), sites.end());
    std::map<std::string, size_t> first;
    std::string before;
    for (size_t i = 0; i < sites.size(); ++i) {
      if (!first.try_emplace(sites[i].second, i).second) continue;
      if (!before.empty() && pairs_.size() < kMostOrderPairs &&
          !pairs_.contains({sites[i].second, before}))
        pairs_.insert({before, sites[i].second});
      before = sites[i].second;
    }
    place->ranks = {rank};
    for (const auto& [earlier, later] : pairs_) {
      const auto e = first.find(earlier), l = first.find(later);
      if (e == first.end() || l == first.end()) continue;
      place->layer = "";
      place->op = earlier;
      emit_({Measure::kOrder, earlier, later, -1}, e->second > l->second ? 1 : 0, *place);
    }
  }
}

}  // namespace plumbline::audit
