#include "analysis/product/replay.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/frame/frame.h"
#include "analysis/product/candidates.h"
#include "analysis/product/lanes.h"
#include "analysis/product/machine.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

// If nothing is explained, this number of candidates is counted on all samples.
constexpr int kRanked = 8;

// If an 8-bit result overflows its format, it may be NaN or the largest value.
bool Gives(double result, double d, DType dtype) {
  if (SameResult(result, d)) return true;
  return DTypeSize(dtype) == 1 && !std::isfinite(result) &&
         std::abs(d) == FormatOf(dtype).max_finite && !(result * d < 0);
}

double Addend(const MatmulCase& c, int i) { return c.c.empty() ? 0 : c.c[static_cast<size_t>(i)]; }
// Returns the addend inside the sum. After a scale it is added on top.
double AddendInSum(const MatmulCase& c, int i) { return c.scale.empty() ? Addend(c, i) : 0; }

// ---- elements that need no replay --------------------------------------------------------------

// Sums that `store` rounds to D lie in [low, high]. Sums strictly inside or outside are certain.
struct Interval {
  double low = -kInfinity, high = kInfinity;
  bool known = false;
};

Interval RoundingInterval(double d, DType dtype, RoundingMode store) {
  const FloatFormat f = FormatOf(dtype);
  if (!std::isfinite(d) || std::abs(d) >= f.max_finite) return {};
  const double up = UlpOf(d, dtype);
  // Towards zero the spacing halves below a power of two.
  const int e = d == 0 ? f.min_exponent : std::ilogb(d);
  const bool power = d != 0 && std::abs(d) == PowerOfTwo(e) && e > f.min_exponent;
  const double down = power ? up / 2 : up, magnitude = std::abs(d);
  double low = magnitude - down / 2, high = magnitude + up / 2;
  if (store == RoundingMode::kTowardZero) {
    low = d == 0 ? -up : magnitude;
    high = magnitude + up;
  }
  return d < 0 ? Interval{-high, -low, true} : Interval{low, high, true};
}

enum class Sure { kMatch, kMiss, kUnknown };

// Decides what a sum within `bound` of `exact` must be.
Sure Decide(const Interval& interval, double exact, double bound) {
  if (!interval.known || !(bound < kInfinity)) return Sure::kUnknown;
  if (exact - bound > interval.low && exact + bound < interval.high) return Sure::kMatch;
  if (exact + bound < interval.low || exact - bound > interval.high) return Sure::kMiss;
  return Sure::kUnknown;
}

// ---- the replay --------------------------------------------------------------------------------

class Replay {
 public:
  Replay(const MatmulCase& c, uint64_t steps) : c_(c), steps_(steps) {
    const std::vector<MatmulModel> models = CandidateModels(c);
    for (const MatmulModel& model : models) out_.tallies.push_back({model});
    out_.candidates = models.size() + VariantCount(c, models);
    out_.needed = static_cast<int32_t>(
        std::ceil(std::log(1e6 * static_cast<double>(std::max<uint64_t>(out_.candidates, 1)))));
  }

  MatmulReplay Run() {
    Order();
    TestFrom(0);
    const size_t first = out_.tallies.size();
    AddPartVariants();
    if (out_.tallies.size() > first) TestFrom(first);
    Conclude();
    return std::move(out_);
  }

 private:
  // Tests the candidates from number `first` on, over all samples or as many as the budget allows.
  void TestFrom(size_t first) {
    std::vector<size_t> active(out_.tallies.size() - first);
    std::iota(active.begin(), active.end(), first);
    int32_t judged = 0;
    for (; judged < static_cast<int32_t>(order_.size()) && !active.empty(); ++judged) {
      if (spent_ > steps_ && judged >= 2 * out_.needed) break;
      Test(order_[static_cast<size_t>(judged)], active);
      std::erase_if(active, [&](size_t i) { return out_.tallies[i].missed >= out_.needed; });
    }
    // The class is judged by the samples that all its members saw.
    out_.samples = active.empty() ? std::max(out_.samples, survived_ ? 0 : judged)
                   : survived_    ? std::min(out_.samples, judged)
                                  : judged;
    survived_ |= !active.empty();
    out_.left = survived_ ? static_cast<int32_t>(order_.size()) - out_.samples : 0;
  }

  // Adds variants within a part only for splits that already explain a large share.
  void AddPartVariants() {
    const size_t count = out_.tallies.size();
    for (size_t i = 0; i < count; ++i) {
      const MatmulCounts split = out_.tallies[i];
      if (split.model.part == 0 || split.tested == 0) continue;
      if (split.missed > 0.6 * split.tested) continue;
      for (const MatmulModel& model : PartVariants(c_, split.model))
        out_.tallies.push_back({model});
    }
  }

  // Sorts the samples. For results of 16 bits or fewer, those come first whose exact sum is closest
  // to a boundary, in units of the rounding of f32 sums: they distinguish the candidates.
  void Order() {
    std::vector<std::pair<double, int>> keyed;
    const bool narrow = Narrow();
    for (int i = 0; i < c_.samples; ++i) {
      terms_[0].Load(c_, i, InputCut::kNone);
      const double c = Addend(c_, i);
      if (!terms_[0].finite || !std::isfinite(c)) {
        ++out_.aside;
        continue;
      }
      keyed.push_back({narrow ? Distance(terms_[0], c_.Scale(i), c) : 0, i});
    }
    std::stable_sort(keyed.begin(), keyed.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [key, i] : keyed) order_.push_back(i);
  }

  bool Narrow() const { return FormatOf(c_.d_dtype).precision < FormatOf(DType::kF32).precision; }

  double Distance(const MatmulTerms& t, double scale, double c) const {
    const double s = scale * t.exact.Value() + c, unit = UlpOf(s, c_.d_dtype);
    const double q = std::abs(s) / unit, rest = q - std::floor(q);
    const double mass = std::abs(scale) * (t.prefix_sum + t.total) + std::abs(c);
    return std::abs(rest - 0.5) * unit / mass;
  }

  // Candidates that differ only in how the finished sum is stored are neighbours, and so are those
  // that differ only in their fraction bits. The former share a sum, the latter a pass.
  void Test(int i, const std::vector<size_t>& active) {
    loaded_.fill(false);
    const double c = AddendInSum(c_, i), d = c_.d[static_cast<size_t>(i)];
    Undecided(i, active);
    for (size_t at = 0; at < open_.size();) {
      MatmulModel base = Base(open_[at]);
      const MatmulTerms& terms = Terms(i, base);
      fraction_bits_.clear();
      size_t end = at;
      for (; end < open_.size() && Base(open_[end]) == base; ++end) {
        const int bits = out_.tallies[open_[end]].model.fraction_bits;
        if (!fraction_bits_.empty() && fraction_bits_.back() == bits) continue;
        if (fraction_bits_.size() == kAlignedLanes) break;
        fraction_bits_.push_back(bits);
      }
      std::array<double, kAlignedLanes> sums;
      machine_.Sums(base, terms, c, fraction_bits_, sums.data());
      spent_ += static_cast<uint64_t>(terms.size) * (FitsLanes(base) ? 1 : fraction_bits_.size());
      for (size_t lane = 0; at < end; ++at) {
        MatmulCounts& tally = out_.tallies[open_[at]];
        while (fraction_bits_[lane] != tally.model.fraction_bits) ++lane;
        tally.missed +=
            !Gives(MatmulMachine::Result(tally.model, sums[lane], c_, i), d, c_.d_dtype);
      }
    }
  }

  // Returns the model without the properties in which sums of one pass may differ.
  MatmulModel Base(size_t tally) const {
    MatmulModel m = out_.tallies[tally].model;
    m.store = RoundingMode::kNearestEven;
    m.scaling = Scaling::kRounded;
    m.fraction_bits = 0;
    return m;
  }

  // Collects in open_ the active candidates that must be replayed.
  void Undecided(int i, const std::vector<size_t>& active) {
    open_.clear();
    const double d = c_.d[static_cast<size_t>(i)];
    const Interval intervals[] = {RoundingInterval(d, c_.d_dtype, RoundingMode::kNearestEven),
                                  RoundingInterval(d, c_.d_dtype, RoundingMode::kTowardZero)};
    const bool narrow = Narrow();
    for (const size_t at : active) {
      MatmulCounts& tally = out_.tallies[at];
      const MatmulModel& model = tally.model;
      ++tally.tested;
      Sure sure = Sure::kUnknown;
      if (narrow) {
        const MatmulTerms& terms = Terms(i, model);
        const bool zero = model.store == RoundingMode::kTowardZero;
        sure = Expect(intervals[zero], model, terms, exact_[Slot(model)], i);
      }
      if (sure == Sure::kUnknown) open_.push_back(at);
      tally.missed += sure == Sure::kMiss;
    }
  }

  Sure Expect(const Interval& interval, const MatmulModel& model, const MatmulTerms& terms,
              double exact, int i) const {
    const double c = Addend(c_, i);
    if (model.scales_sums()) return Sure::kUnknown;
    if (c_.scale.empty()) return Decide(interval, exact + c, ErrorBound(model, terms, c));
    // Two roundings of the scaled sum and one of the addend, to f32.
    const double scale = c_.Scale(i), scaled = exact * scale;
    const double bound = std::abs(scale) * ErrorBound(model, terms, 0);
    const double rounded = PowerOfTwo(-22) * (std::abs(scaled) + std::abs(c) + bound);
    return Decide(interval, scaled + c, 1.001 * bound + rounded + PowerOfTwo(-147));
  }

  // Returns the number of the terms that a model uses.
  static size_t Slot(const MatmulModel& m) {
    if (m.blocks == BlockScaling::kFactorsBf16) return 6;
    if (m.blocks == BlockScaling::kInside) return 8;
    return m.scales_sums() ? 7 : static_cast<size_t>(m.cut);
  }

  const MatmulTerms& Terms(int i, const MatmulModel& m) {
    const size_t at = Slot(m);
    if (!loaded_[at]) {
      terms_[at].Load(c_, i, m.cut, m.blocks);
      exact_[at] = terms_[at].exact.Value();
      loaded_[at] = true;
    }
    return terms_[at];
  }

  void Conclude() {
    if (out_.samples == 0) return;
    for (const MatmulCounts& tally : out_.tallies) {
      if (tally.missed == 0 && tally.tested >= out_.samples) out_.accepted.push_back(tally.model);
    }
    if (out_.accepted.empty()) return RankUnexplained();
    out_.matches = out_.samples;
    for (const MatmulModel& model : out_.accepted) out_.families.insert(FamilyOf(model));
    NameClass();
    Compare();
  }

  // Names a class by its plainest member.
  void NameClass() {
    for (const char* family :
         {"exact", "sequential", "pairwise", "aligned", "promoted", "split-k", "tf32"}) {
      if (out_.families.count(family) == 0) continue;
      out_.name = family;
      break;
    }
    out_.shared = ParametersOf(out_.accepted[0]);
    for (const MatmulModel& model : out_.accepted) {
      const auto own = ParametersOf(model);
      std::erase_if(out_.shared, [&](const auto& entry) {
        const auto it = own.find(entry.first);
        return it == own.end() || it->second != entry.second;
      });
    }
  }

  // Sums that are almost the same are not rivals. One product per block is a sequential sum. A sum
  // in f64 or a single wide block is almost the exact one.
  std::string Kin(const MatmulModel& m) const {
    std::string family = FamilyOf(m);
    if (m.compensation != MatmulModel::Compensation::kNone) return "compensated";
    if (family == "aligned" && m.block == 1) return "sequential";
    if (family == "aligned" && m.block >= c_.inner && m.fraction_bits >= 28) return "exact";
    if (family == "sequential" && m.accumulator == DType::kF64) return "exact";
    return family;
  }

  void Compare() {
    std::set<std::string> kin;
    for (const MatmulModel& model : out_.accepted) kin.insert(Kin(model));
    int32_t nearest = std::numeric_limits<int32_t>::max();
    for (const MatmulCounts& tally : out_.tallies) {
      if (kin.count(Kin(tally.model)) != 0) continue;
      if (tally.missed < nearest) {
        nearest = tally.missed;
        out_.runner_up = ::plumbline::analysis::Words(tally.model);
        out_.runner_up_matches = tally.tested - tally.missed;
      }
    }
    out_.discriminating = nearest == std::numeric_limits<int32_t>::max() ? 0 : nearest;
    out_.proved =
        kin.size() == 1 && nearest >= out_.needed && nearest != std::numeric_limits<int32_t>::max();
  }

  // Finds the two closest candidates, counted on all samples.
  void RankUnexplained() {
    std::vector<size_t> by_share(out_.tallies.size());
    std::iota(by_share.begin(), by_share.end(), size_t{0});
    const auto share = [&](size_t i) {
      const MatmulCounts& t = out_.tallies[i];
      return t.tested == 0 ? 0.0 : 1 - static_cast<double>(t.missed) / t.tested;
    };
    std::stable_sort(by_share.begin(), by_share.end(),
                     [&](size_t a, size_t b) { return share(a) > share(b); });
    std::vector<std::pair<int32_t, size_t>> counted;
    for (size_t at = 0; at < std::min<size_t>(kRanked, by_share.size()); ++at) {
      const MatmulMatches of = CountMatches(c_, out_.tallies[by_share[at]].model);
      out_.samples = of.samples;
      counted.push_back({of.matches, by_share[at]});
    }
    std::stable_sort(counted.begin(), counted.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    out_.left = 0;
    out_.matches = counted[0].first;
    out_.best = ::plumbline::analysis::Words(out_.tallies[counted[0].second].model);
    if (counted.size() < 2) return;
    out_.runner_up = ::plumbline::analysis::Words(out_.tallies[counted[1].second].model);
    out_.runner_up_matches = counted[1].first;
  }

  const MatmulCase& c_;
  const uint64_t steps_;
  uint64_t spent_ = 0;
  bool survived_ = false;  // some candidate explains all samples that it was tested on
  MatmulReplay out_;
  MatmulMachine machine_;
  std::vector<int> order_;
  std::vector<size_t> open_;          // Undecided's
  std::vector<int> fraction_bits_;    // for one pass
  std::array<MatmulTerms, 9> terms_;  // by slot
  std::array<double, 9> exact_{};
  std::array<bool, 9> loaded_{};
};

}  // namespace

bool MatmulReplay::Holds(const Claim& claim) const {
  return explained() && std::all_of(accepted.begin(), accepted.end(), claim);
}

bool MatmulReplay::Proves(const Claim& claim) const {
  return Holds(claim) && std::all_of(tallies.begin(), tallies.end(), [&](const MatmulCounts& t) {
           return t.missed >= needed || claim(t.model);
         });
}

std::string MatmulReplay::Words() const {
  if (!explained()) return "no known arithmetic";
  if (accepted.size() == 1) return analysis::Words(accepted[0]);
  std::vector<std::string> parts;
  for (const auto& [key, value] : shared) {
    if (key != "sum") parts.push_back(absl::StrCat(key, " ", value));
  }
  return absl::StrCat(name, parts.empty() ? "" : " (", absl::StrJoin(parts, ", "),
                      parts.empty() ? "" : ")");
}

void MatmulReplay::AddDetails(google::protobuf::Struct& details) const {
  google::protobuf::Struct& model = PutStruct(details, "model");
  Put(model, "name", name);
  for (const auto& [key, value] : shared) {
    const bool number =
        !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
    if (number) {
      Put(model, key, std::stod(value));
    } else {
      Put(model, key, value);
    }
  }
  Put(details, "matches", matches);
  Put(details, "samples", samples);
  Put(details, "discriminating", discriminating);
  Put(details, "needed", needed);
  Put(details, "candidates", static_cast<double>(candidates));
  PutFlag(details, "proved", proved);
  if (families.size() > 1) Put(details, "families", absl::StrJoin(families, ", "));
  if (!best.empty()) Put(details, "best", best);
  if (!runner_up.empty()) {
    Put(details, "runner_up", runner_up);
    Put(details, "runner_up_matches", runner_up_matches);
  }
}

MatmulReplay ReplayMatmul(const MatmulCase& c, uint64_t steps) { return Replay(c, steps).Run(); }

MatmulMatches CountMatches(const MatmulCase& c, const MatmulModel& model) {
  MatmulMatches of;
  MatmulTerms terms;
  MatmulMachine machine;
  for (int i = 0; i < c.samples; ++i) {
    terms.Load(c, i, model.cut, model.blocks);
    if (!terms.finite || !std::isfinite(Addend(c, i))) continue;
    ++of.samples;
    const double sum = machine.Sum(model, terms, AddendInSum(c, i));
    const double result = MatmulMachine::Result(model, sum, c, i);
    of.matches += Gives(result, c.d[static_cast<size_t>(i)], c.d_dtype);
  }
  return of;
}

}  // namespace plumbline::analysis
