#include "analysis/drift/strata.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

template <size_t N>
void MergeCells(std::array<DriftStrata::Cell, N>& into,
                const std::array<DriftStrata::Cell, N>& from) {
  for (size_t i = 0; i < N; ++i) into[i].Merge(from[i]);
}

template <size_t N, typename Name>
void DescribeCells(google::protobuf::Struct& details, const char* key,
                   const std::array<DriftStrata::Cell, N>& cells, const Name& name) {
  const auto used = [](const DriftStrata::Cell& cell) { return cell.count > 0; };
  if (std::count_if(cells.begin(), cells.end(), used) < 2) return;  // a comparison needs two cells
  google::protobuf::Struct& s = PutStruct(details, key);
  for (size_t i = 0; i < N; ++i) {
    if (used(cells[i])) Put(s, name(i), cells[i].mean_square());
  }
}

}  // namespace

size_t DriftHistogram::Bin(double size) {
  int exponent;
  const double fraction = std::frexp(size, &exponent);  // [0.5, 1)
  const int half = 2 * (exponent - 1 - kLowest) + (fraction >= 0.70710678118654757 ? 1 : 0);
  return static_cast<size_t>(std::clamp(half, 0, static_cast<int>(kBins) - 1));
}

double DriftHistogram::UpperEdge(size_t bin) {
  return std::exp2(kLowest + static_cast<double>(bin + 1) / 2);
}

void DriftHistogram::Add(double size) {
  ++count_;
  if (size == 0) {
    ++zeros_;
  } else {
    ++bins_[Bin(size)];
  }
}

void DriftHistogram::Merge(const DriftHistogram& other) {
  count_ += other.count_;
  zeros_ += other.zeros_;
  for (size_t i = 0; i < kBins; ++i) bins_[i] += other.bins_[i];
}

double DriftHistogram::Quantile(double share) const {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  const double wanted = share * static_cast<double>(count_);
  uint64_t seen = zeros_;
  if (static_cast<double>(seen) >= wanted) return 0;
  for (size_t i = 0; i < kBins; ++i) {
    seen += bins_[i];
    if (static_cast<double>(seen) >= wanted) return UpperEdge(i);
  }
  return UpperEdge(kBins - 1);
}

double DriftHistogram::ShareAbove(double size) const {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  uint64_t above = 0;
  for (size_t i = Bin(size) + 1; i < kBins; ++i) above += bins_[i];
  return static_cast<double>(above) / static_cast<double>(count_);
}

double DriftHistogram::RestShare() const {
  const double median = Quantile(0.5);
  if (!(median > 0))
    return zeros_ < count_ ? 1 - static_cast<double>(zeros_) / static_cast<double>(count_) : 0;
  return ShareAbove(64 * median);
}

void DriftStrata::BeginSequence(const std::string& worker) {
  open_worker_ = nullptr;
  if (worker.empty()) return;
  const auto found = worker_.find(worker);
  if (found != worker_.end()) {
    open_worker_ = &found->second;
  } else {
    open_worker_ = &worker_[worker_.size() < kWorkers ? worker : "..."];
  }
}

void DriftStrata::Add(double d, double rollout, int64_t position, int64_t turn, int64_t lag) {
  const double square = d * d;
  probability_[ProbabilityBin(rollout)].Add(square);
  const auto place = static_cast<uint64_t>(std::max<int64_t>(position, 0));
  position_[std::min<size_t>(kPositionBins - 1, static_cast<size_t>(std::bit_width(place)))].Add(
      square);
  if (turn >= 0) turn_[std::min<size_t>(kTurns - 1, static_cast<size_t>(turn))].Add(square);
  lag_[lag < 0 ? 0 : std::min<size_t>(kLags - 1, 1 + static_cast<size_t>(lag))].Add(square);
  if (open_worker_ != nullptr) open_worker_->Add(square);
}

size_t DriftStrata::ProbabilityBin(double rollout) {
  const double surprise = std::max(-rollout, 0.0);
  if (!(surprise > 0x1p-8)) return 0;
  return std::min(kProbabilityBins - 1, static_cast<size_t>(std::ilogb(surprise) + 9));
}

DriftStrata::Dominant DriftStrata::DominantWorker() const {
  constexpr double kDominates = 0.9;
  constexpr uint64_t kFewestTokens = 64;
  Cell all;
  for (const auto& [name, cell] : worker_) all.Merge(cell);
  for (const auto& [name, cell] : worker_) {
    if (cell.count < kFewestTokens || 2 * cell.count > all.count || name == "...") continue;
    if (cell.bounded > kDominates * all.bounded) return {name, cell.bounded / all.bounded};
  }
  return {};
}

void DriftStrata::Merge(const DriftStrata& other) {
  MergeCells(probability_, other.probability_);
  MergeCells(position_, other.position_);
  MergeCells(turn_, other.turn_);
  MergeCells(lag_, other.lag_);
  for (const auto& [name, cell] : other.worker_) {
    BeginSequence(name);
    open_worker_->Merge(cell);
  }
  open_worker_ = nullptr;
}

double DriftStrata::MedianStaleLag() const {
  uint64_t total = 0, seen = 0;
  for (size_t i = 2; i < kLags; ++i) total += lag_[i].count;
  for (size_t i = 2; i < kLags; ++i) {
    seen += lag_[i].count;
    if (seen > 0 && 2 * seen >= total) return static_cast<double>(i - 1);
  }
  return 0;
}

double DriftStrata::LagExponent() const {
  const double base = lag_[1].count > 0 ? lag_[1].mean_square() : 0;
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (size_t i = 2; i + 1 < kLags; ++i) {
    if (lag_[i].count == 0) continue;
    const double above = lag_[i].mean_square() - base;
    if (!(above > 0)) continue;
    const double w = static_cast<double>(lag_[i].count);
    const double lx = std::log(static_cast<double>(i - 1)), ly = std::log(above);
    n += w;
    x += w * lx;
    y += w * ly;
    xx += w * lx * lx;
    xy += w * lx * ly;
  }
  const double spread = xx - x * x / n;
  if (!(spread > 1e-9 * n)) return std::numeric_limits<double>::quiet_NaN();
  return (xy - x * y / n) / spread;
}

void DriftStrata::Describe(google::protobuf::Struct& details) const {
  google::protobuf::Struct strata;
  DescribeCells(strata, "minus_log_mu", probability_, [](size_t i) {
    return i == 0 ? std::string("below 2^-8") : absl::StrCat("from 2^", static_cast<int>(i) - 9);
  });
  DescribeCells(strata, "position", position_, [](size_t i) {
    return i == 0 ? std::string("0") : absl::StrCat("from ", uint64_t{1} << (i - 1));
  });
  DescribeCells(strata, "turn", turn_, [](size_t i) { return absl::StrCat(i); });
  DescribeCells(strata, "lag", lag_,
                [](size_t i) { return i == 0 ? std::string("unknown") : absl::StrCat(i - 1); });
  if (worker_.size() > 1) {
    google::protobuf::Struct& workers = PutStruct(strata, "worker");
    for (const auto& [name, cell] : worker_) Put(workers, name, cell.mean_square());
  }
  if (!strata.fields().empty())
    *(*details.mutable_fields())["mean_square_by"].mutable_struct_value() = strata;
}

}  // namespace plumbline::analysis
