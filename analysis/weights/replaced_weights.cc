#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/weights/saved_findings.h"
#include "analysis/weights/saved_weights.h"
#include "analysis/weights/upper_median.h"
#include "analysis/weights/weight_names.h"

namespace plumbline::analysis {
namespace {

using Change = SavedPair::Change;

constexpr double kSteady = 0.8;     // a weight that is trained on
constexpr double kUnrelated = 0.2;  // new values; 512 independent ones have |r| < 0.2 but for 1e-5
constexpr size_t kFewestCompared = 64;  // elements
constexpr size_t kFewestPeers = 3;

bool Has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

// Returns true for tensors that are replaced on purpose: factors that are merged and begin again,
// and heads for another task.
bool IsRenewed(const std::string& layer) {
  return Has(layer, "lora_") || Has(layer, "classifier") || Has(layer, "score") ||
         Has(layer, "head") || IsWordHead(layer);
}

class Replaced {
 public:
  Replaced(int64_t step, const SavedCourse& before, SavedRank& rank)
      : step_(step), before_(before), rank_(rank) {}

  std::vector<v1::Verdict> Judge() {
    std::vector<SavedPair*> suspects, zeroed, turned;
    size_t steady = 0, compared = 0;
    for (SavedPair& pair : rank_.tensors) {
      if (!pair.weight() || !pair.look->matrix || pair.change == Change::kFirst) continue;
      if (!rank_.IsTrained(pair)) continue;
      ++compared;
      if (IsTurned(pair)) {
        turned.push_back(&pair);
        continue;
      }
      if (pair.look->all_zero()) {
        if (pair.past->varied && 2 * pair.past->zeros < pair.past->count) zeroed.push_back(&pair);
        continue;
      }
      if (!IsComparable(pair)) continue;
      const double r = CorrelationOf(pair.past->last, pair.look->values);
      const bool was_steady = pair.past->steady > 0;
      pair.past->steady = r >= kSteady ? pair.past->steady + 1 : 0;
      if (r >= kSteady || pair.change != Change::kNew) {
        ++steady;
      } else if (was_steady && std::fabs(r) <= kUnrelated) {
        suspects.push_back(&pair);
      } else if (was_steady && r <= -kSteady) {
        Report(pair, Replacement::kNegated, r, nullptr);
      }
    }
    // If many weights are new, this is another run, or a conversion.
    const size_t few = std::max<size_t>(2, compared / 4);
    if (steady >= kFewestPeers && turned.size() <= few) {
      for (SavedPair* pair : turned) Report(*pair, Replacement::kTransposed, 1, nullptr);
    }
    if (steady < kFewestPeers || suspects.size() + zeroed.size() > few) return std::move(out_);
    for (SavedPair* pair : zeroed) {
      if (!IsRenewed(pair->layer) && !IsMasked(pair->layer))
        Report(*pair, Replacement::kZero, 0, nullptr);
    }
    for (SavedPair* pair : suspects) Explain(*pair);
    return std::move(out_);
  }

 private:
  static bool IsComparable(const SavedPair& pair) {
    return pair.look->comparable() && pair.past->varied && pair.past->which == pair.look->which &&
           pair.look->values.size() >= kFewestCompared;
  }
  static bool IsTurned(const SavedPair& pair) {
    const std::vector<int64_t>&was = pair.past->shape, &is = pair.look->shape;
    return was.size() == 2 && is.size() == 2 && was[0] != was[1] && was[0] == is[1] &&
           was[1] == is[0];
  }
  // A pruned weight is stored with its mask: "layers.0.fc.weight_mask".
  bool IsMasked(const std::string& layer) const {
    return std::any_of(rank_.tensors.begin(), rank_.tensors.end(),
                       [](const SavedPair& pair) { return Has(pair.layer, "_mask"); }) ||
           Has(layer, "_orig");
  }

  // Compares a weight with the mirrored one and with all of its shape.
  void Explain(SavedPair& pair) {
    if (const double r = MirroredCorrelation(pair.past->last, *pair.look); r >= kSteady)
      return Report(pair, Replacement::kTransposed, r, nullptr);
    for (const SavedPair& other : rank_.tensors) {
      if (&other == &pair || !other.weight() || other.change == Change::kFirst) continue;
      if (other.past->shape != pair.look->shape || other.past->which != pair.look->which) continue;
      const double r = CorrelationOf(other.past->last, pair.look->values);
      if (r < kSteady) continue;
      const bool both = CorrelationOf(pair.past->last, other.look->values) >= kSteady;
      return Report(pair, both ? Replacement::kSwapped : Replacement::kOther, r, &other);
    }
    if (IsRenewed(pair.layer) || IsReset(pair)) return;
    // Weights that began near zero grow, and forget how they began.
    double was = 0, is = 0;
    for (const float x : pair.past->last) was += double{x} * x;
    for (const float x : pair.look->values) is += double{x} * x;
    if (is > 2.25 * was) return;
    Report(pair, Replacement::kDrawnAnew, CorrelationOf(pair.past->last, pair.look->values),
           nullptr);
  }

  // Returns true if the optimizer's state of the weight was reset along with it: its second moment
  // is zero, or fills up again.
  bool IsReset(const SavedPair& pair) const {
    const SavedPair* square = rank_.Find(pair.layer, "exp_avg_sq");
    return square != nullptr && square->look->mean_abs < 0.5 * square->past->mean_abs;
  }

  // Returns true if the second moment of the weight went on from its earlier values. For new
  // values, which may be a reset on purpose, each element must be above what decay leaves of it,
  // and decay must leave at least half.
  bool IsTrainedOn(const SavedPair& pair, Replacement how) const {
    const SavedPair* square = rank_.Find(pair.layer, "exp_avg_sq");
    if (square == nullptr || square->change != Change::kNew || IsReset(pair)) return false;
    if (how != Replacement::kDrawnAnew) return true;
    const auto beta = rank_.betas.find(pair.layer);
    if (beta == rank_.betas.end() || !rank_.steps || !before_.steps) return false;
    const std::vector<float>&was = square->past->last, &is = square->look->values;
    if (square->past->which != square->look->which || was.size() != is.size()) return false;
    const double left = std::pow(beta->second, *rank_.steps - *before_.steps);
    if (!(*rank_.steps > *before_.steps) || !(left >= 0.5)) return false;
    size_t above = 0;
    for (size_t i = 0; i < is.size(); ++i) above += is[i] >= 0.99 * left * was[i] ? 1 : 0;
    return is.size() >= kFewestCompared &&
           static_cast<double>(above) >= 0.99 * static_cast<double>(is.size());
  }

  void Report(SavedPair& pair, Replacement how, double r, const SavedPair* other) {
    if (pair.past->reported) return;
    pair.past->reported = true;
    out_.push_back(ReplacedFound(how, before_.step, step_, pair, r, other, rank_.rank,
                                 IsTrainedOn(pair, how)));
  }

  int64_t step_;
  const SavedCourse& before_;
  SavedRank& rank_;
  std::vector<v1::Verdict> out_;
};

bool IsGain(const SavedPair& pair) {
  return pair.weight() && !pair.look->matrix && pair.look->finite && pair.look->mean_abs > 0.05 &&
         (Has(pair.layer, "norm") || IsOneAxisByName(pair.layer)) && !Has(pair.layer, "bias");
}

}  // namespace

std::vector<v1::Verdict> JudgeReplaced(int64_t step, const SavedCourse& before, SavedRank& rank) {
  return Replaced(step, before, rank).Judge();
}

std::vector<v1::Verdict> JudgeGains(int64_t step, SavedRank& rank) {
  constexpr size_t kIntervals = 6;
  constexpr double kLeastGrowth = 0.0488;  // ln 1.05 per interval
  constexpr double kSpread = 0.12;  // growth by equal amounts spreads more over six such intervals
  std::vector<v1::Verdict> out;
  std::vector<SavedPair*> gains;
  std::vector<double> grown;
  for (SavedPair& pair : rank.tensors) {
    if (!IsGain(pair)) continue;
    GainGrowth& growth = pair.past->growth;
    if (growth.mean_abs > 0 && step > growth.step) {
      const double by = std::log(pair.look->mean_abs / growth.mean_abs);
      growth.grown.push_back(by);
      growth.rates.push_back(by / static_cast<double>(step - growth.step));
      if (growth.rates.size() > kIntervals) {
        growth.grown.erase(growth.grown.begin());
        growth.rates.erase(growth.rates.begin());
      }
      gains.push_back(&pair);
      grown.push_back(by);
    }
    growth.mean_abs = pair.look->mean_abs;
    growth.step = step;
  }
  if (gains.size() <= kFewestPeers) return out;
  const double usual = UpperMedian(grown);
  for (SavedPair* pair : gains) {
    const GainGrowth& growth = pair->past->growth;
    if (growth.rates.size() < kIntervals || pair->past->reported) continue;
    double mean = 0;
    for (const double rate : growth.rates) mean += rate / kIntervals;
    const auto [low, high] = std::minmax_element(growth.rates.begin(), growth.rates.end());
    const double least = *std::min_element(growth.grown.begin(), growth.grown.end());
    if (least < kLeastGrowth || usual > kLeastGrowth / 2) continue;
    if (*low < (1 - kSpread) * mean || *high > (1 + kSpread) * mean) continue;
    pair->past->reported = true;
    out.push_back(GrowthFound(step, *pair, mean, rank.rank));
  }
  return out;
}

}  // namespace plumbline::analysis
