// The device form of the measurement, compiled for the host with 32 emulated lanes and blocks in
// any order, equals the CPU reference bit for bit.
#include "kernels/routing/core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "tests/kernels/device/emulated_warp.h"
#include "tests/kernels/routing/case.h"
#include "tests/kernels/routing/stats_equal.h"

namespace plumbline {
namespace {

// Further functions of a warp for the measurement of rows.
struct RowWarp : EmulatedWarp {
  static_assert(kLanes == kRowLanes);
  // Adds each lane's partner's value, like __shfl_xor_sync.
  template <typename T>
  static T Sum(Var<T> var) {
    for (int step = kRowLanes / 2; step > 0; step /= 2) {
      const Var<T> before = var;
      Each([&](int l) { var[l] = before[l] + before[l ^ step]; });
    }
    return var[17];  // any lane
  }
  static double Max(const Var<double>& var) { return *std::max_element(var.v, var.v + kRowLanes); }
  static bool Any(const Var<bool>& var) { return Ballot(var) != 0; }
  static uint32_t Ballot(const Var<bool>& var) {
    uint32_t bits = 0;
    Each([&](int l) { bits |= var[l] ? 1u << l : 0u; });
    return bits;
  }
  static RankCandidate Best(const Var<RankCandidate>& var) {
    return *std::min_element(var.v, var.v + kRowLanes,
                             [](const auto& a, const auto& b) { return RanksBefore(a, b); });
  }
  template <typename T>
  static T At(const Var<T>& var, int lane) {
    return var[lane];
  }
};

// The device's atomics, for one thread.
struct PlainOps {
  template <typename T>
  static T Peek(const T* p) {
    return *p;
  }
  static uint32_t Add(uint32_t* p, uint32_t n) { return std::exchange(*p, *p + n); }
  static void Max(uint64_t* p, uint64_t v) { *p = std::max(*p, v); }
  static uint64_t Swap(uint64_t* p, uint64_t expected, uint64_t desired) {
    return *p == expected ? std::exchange(*p, desired) : *p;
  }
};

struct PlainSink {
  RoutingRaw* raw;
  PoolMemory pools;
  void Fate(const RoutingPlan& plan, int64_t row, int32_t e, bool kept, bool padding) {
    CountFate<PlainOps>(plan, pools, row, e, kept, padding);
  }
  void Add(uint64_t RoutingCounts::*member, uint64_t n) { raw->counts.*member += n; }
  void AbsMax(uint64_t bits) {
    raw->counts.abs_max_bits = std::max(raw->counts.abs_max_bits, bits);
  }
  void Load(int32_t e) { ++raw->counts.load[e]; }
  void Refused(int32_t e) { ++raw->counts.refused[e]; }
  void DropBin(int bin) { ++raw->counts.drop_histogram[bin]; }
  void OfferBin(int bin, uint64_t n) { raw->counts.offered_histogram[bin] += n; }
  void BadIndex(uint64_t key) { raw->bad_index = std::min(raw->bad_index, key); }
};

double SumTree(std::vector<double> v) {
  for (size_t step = v.size() / 2; step > 0; step /= 2) {
    for (size_t i = 0; i < step; ++i) v[i] += v[i + step];
  }
  return v[0];
}

// Runs the kernels of routing.cu one after another; the blocks of the main one are shuffled.
class EmulatedDevice {
 public:
  EmulatedDevice(const RoutingPlan& plan, uint32_t seed) : plan_(plan), random_(seed) {
    raw_.bad_index = kNothingBad;
    raw_.bad_position = kNothingBad;
    for (int i = 0; plan.rule.has_bias && i < plan.rule.experts; ++i) {
      bias_.push_back(plan.bias.Number(i));
    }
  }

  RoutingRaw Run() {
    Positions();
    Pools();
    WithSlots(plan_.rule.experts, [&](auto slots) { Rows<decltype(slots)::value>(); });
    FoldPools();
    raw_.entropy_sum = Stripes(0);
    raw_.margin_sum = Stripes(1);
    raw_.z_sum = Stripes(2);
    return raw_;
  }

 private:
  void Positions() {
    for (int64_t row = plan_.tokens - 1; plan_.position.present() && row >= 0; --row) {
      if (plan_.padding.present() && plan_.padding.Integer(row) != 0) continue;
      const int64_t p = plan_.position.Integer(row);
      raw_.longest = std::max(raw_.longest, static_cast<uint64_t>(p) + 1);
    }
  }

  // Enters ids in any order; uses as many pool and unit cells as the device has.
  void Pools() {
    if (!plan_.fates_known) return;
    memory_.tables = tables_.get();
    std::vector<int64_t> rows(static_cast<size_t>(plan_.tokens));
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random_);
    for (int64_t row : rows) EnterRow<PlainOps>(plan_, row, memory_);
    const auto experts = static_cast<size_t>(plan_.rule.experts);
    cells_.resize(kMaxPools * experts);
    memory_.cells = cells_.data();
    if (!plan_.units_known) return;
    unit_cells_.resize(kMaxUnits * experts);
    memory_.unit_cells = unit_cells_.data();
  }

  void FoldPools() {
    const auto experts = static_cast<size_t>(plan_.rule.experts);
    if (PoolsMeasured(memory_)) {
      for (size_t i = tables_->pools.count * experts; i-- > 0;) {
        FoldCell<PlainOps>(cells_[i], &raw_.pools);
      }
    }
    if (UnitsMeasured(memory_)) {
      for (size_t i = tables_->units.count * experts; i-- > 0;) {
        FoldUnitCell<PlainOps>(unit_cells_[i], static_cast<int32_t>(i % experts), &raw_.pools);
      }
    }
    EndPools(plan_, memory_, &raw_.pools);
  }

  template <int Slots>
  void Rows() {
    std::vector<double> values(kMaxExperts);
    PlainSink sink{&raw_, memory_};
    RowMeasure<RowWarp, PlainSink, Slots> measure(plan_, bias_.data(), values.data(), raw_.longest,
                                                  &sink);
    const int64_t tiles = (plan_.tokens + kTileRows - 1) / kTileRows;
    std::vector<int64_t> order(static_cast<size_t>(tiles));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (auto& p : partials_) p.assign(static_cast<size_t>(tiles), 0);
    for (int64_t tile : order) {
      std::vector<double> means[3];
      for (auto& m : means) m.assign(kTileRows, 0);
      std::vector<size_t> rows(kTileRows);
      std::iota(rows.begin(), rows.end(), 0);
      std::shuffle(rows.begin(), rows.end(), random_);
      for (size_t r : rows) {
        const int64_t row = tile * kTileRows + static_cast<int64_t>(r);
        if (row >= plan_.tokens) continue;
        const RowMeans m = measure.Measure(row);
        means[0][r] = m.entropy;
        means[1][r] = m.margin;
        means[2][r] = m.z;
      }
      for (size_t q = 0; q < 3; ++q) partials_[q][static_cast<size_t>(tile)] = SumTree(means[q]);
    }
  }

  double Stripes(size_t q) const {
    std::vector<double> stripe(kTileRows);
    for (size_t t = 0; t < partials_[q].size(); ++t) stripe[t % kTileRows] += partials_[q][t];
    return SumTree(stripe);
  }

  const RoutingPlan& plan_;
  std::mt19937 random_;
  RoutingRaw raw_{};
  std::vector<double> bias_;
  std::vector<double> partials_[3];
  std::unique_ptr<PoolTables> tables_ = std::make_unique<PoolTables>();
  std::vector<PoolCell> cells_;
  std::vector<UnitCell> unit_cells_;
  PoolMemory memory_;
};

void ExpectTwins(const RoutingCase& c, uint32_t seed) {
  RoutingPlan plan;
  ASSERT_TRUE(PlanRouting(c.in, &plan).ok());
  RoutingStats host;
  ASSERT_TRUE(SummariseRouting(c.in, &host).ok());
  RoutingStats device;
  ASSERT_TRUE(FinishRouting(plan, EmulatedDevice(plan, seed).Run(), &device).ok());
  ExpectSame(device, host);
}

TEST(RoutingCore, DeviceFormEqualsTheCpuReferenceBitForBit) {
  for (uint32_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    const RoutingCase c = CaseMaker(seed + 100000).Make();
    ExpectTwins(c, seed);
    if (testing::Test::HasFailure()) return;
  }
}

// More tiles than stripes, so that a stripe adds several.
TEST(RoutingCore, ManyTilesSumInOneOrder) {
  constexpr int64_t kTokens = 300 * kTileRows + 17;
  RoutingCase c;
  std::mt19937 random(9);
  std::normal_distribution<double> normal;
  c.in.top_k = 1;
  c.in.scores = MakeTensor(&c, DType::kF32, kTokens, 2, Layout::kDense,
                           [&](int64_t, int64_t) { return normal(random); });
  ExpectTwins(c, 1);
}

TEST(RoutingCore, BothFormsReportTheSameFirstBadIndex) {
  RoutingCase c;
  c.in.top_k = 2;
  c.in.scores = MakeTensor(&c, DType::kF32, 600, 4, Layout::kDense,
                           [](int64_t, int64_t j) { return static_cast<double>(j); });
  c.in.topk_indices = MakeTensor(&c, DType::kI32, 600, 2, Layout::kDense, [](int64_t i, int64_t j) {
    return i == 31 && j == 1 ? 77 : (i > 31 && i % 100 == 0 ? -9 : j);
  });
  RoutingPlan plan;
  ASSERT_TRUE(PlanRouting(c.in, &plan).ok());
  RoutingStats stats;
  const absl::Status host = SummariseRouting(c.in, &stats);
  const absl::Status device = FinishRouting(plan, EmulatedDevice(plan, 3).Run(), &stats);
  EXPECT_EQ(host, device);
  EXPECT_EQ(host.message(),
            "topk_indices: expected values in [-1, 3], found 77 at row 31, choice 1");
}

}  // namespace
}  // namespace plumbline
