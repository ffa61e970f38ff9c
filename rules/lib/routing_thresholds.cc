#include "rules/lib/routing_thresholds.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <unordered_map>

#include "base/router_scores.h"
#include "rules/lib/routing_capacity.h"
#include "rules/lib/routing_cell_keys.h"

namespace plumbline::rules {
namespace {

// One number between all that were refused and all that were taken?
class Cut {
 public:
  void Add(const Key& key, bool taken) {
    if (taken) least_taken_ = std::min(least_taken_, key.value + key.tolerance);
    if (!taken) most_refused_ = std::max(most_refused_, key.value - key.tolerance);
  }
  bool fits() const { return !(most_refused_ > least_taken_); }
  bool decides() const { return std::isfinite(most_refused_) && std::isfinite(least_taken_); }

 private:
  double least_taken_ = HUGE_VAL;
  double most_refused_ = -HUGE_VAL;
};

// Do all of these cuts fit, and at least `fewest` of them decide something?
template <typename Cuts>
bool AllFit(const Cuts& cuts, int64_t fewest) {
  int64_t deciding = 0;
  for (const Cut& cut : cuts) {
    if (!cut.fits()) return false;
    deciding += cut.decides();
  }
  return deciding >= fewest;
}

// A threshold that the prefix moves stays for so many tokens.
constexpr int64_t kStays = 8;

class Tester {
 public:
  explicit Tester(const RoutingCase& c)
      : c_(c),
        of_expert_(static_cast<size_t>(c.experts)),
        of_cell_(static_cast<size_t>(c.pools) * static_cast<size_t>(c.experts)) {
    if (!c.sequence.empty()) {
      sequences_ = NumberIds(c.sequence);
      of_sequence_.resize(static_cast<size_t>(sequences_.count));
      of_window_.resize(of_sequence_.size());
    }
  }

  void Add(int32_t token, int32_t expert, const Key& key, bool taken) {
    if (!std::isfinite(key.value)) return;
    all_.Add(key, taken);
    of_expert_[static_cast<size_t>(expert)].Add(key, taken);
    of_cell_[CellOfToken(c_, token, expert)].Add(key, taken);
    if (of_sequence_.empty()) return;
    const auto row = static_cast<size_t>(token);
    const auto sequence = static_cast<size_t>(sequences_.of_row[row]);
    of_sequence_[sequence].Add(key, taken);
    if (c_.position.empty() || c_.position[row] < 0) return;
    std::vector<Cut>& windows = of_window_[sequence];
    const auto window = static_cast<size_t>(c_.position[row] / kStays);
    if (window >= windows.size() && window <= static_cast<size_t>(c_.tokens))
      windows.resize(window + 1);
    if (window < windows.size()) windows[window].Add(key, taken);
  }

  StoredThresholds Judge() const {
    StoredThresholds out;
    const auto cells = std::count_if(of_cell_.begin(), of_cell_.end(),
                                     [](const Cut& cut) { return cut.decides(); });
    const auto experts = std::count_if(of_expert_.begin(), of_expert_.end(),
                                       [](const Cut& cut) { return cut.decides(); });
    out.common = cells > 1 && all_.fits();
    out.per_expert = cells > experts && AllFit(of_expert_, 1);
    // With one expert, or one pool a sequence and expert, they are the cells themselves.
    out.per_sequence = experts > 1 && AllFit(of_sequence_, 2);
    out.moving = experts > 1 && std::all_of(of_window_.begin(), of_window_.end(),
                                            [](const auto& cuts) { return AllFit(cuts, 0); });
    out.moving = out.moving && !of_window_.empty();
    return out;
  }

 private:
  const RoutingCase& c_;
  DenseIds sequences_;
  Cut all_;
  std::vector<Cut> of_expert_, of_cell_, of_sequence_;
  std::vector<std::vector<Cut>> of_window_;  // of each sequence, by position
};

bool Known(const RoutingCase& c, int32_t token) {
  const RowState state = c.rows[static_cast<size_t>(token)];
  return state != RowState::kPadding && state != RowState::kNonFinite;
}

// What became of each judged row, as one number; equal numbers: equal fates.
std::vector<uint64_t> Fates(const RoutingCase& c, bool kept_alone) {
  std::vector<uint64_t> fate(static_cast<size_t>(c.tokens), 0);
  for (const Choice& choice : c.choices) {
    if (kept_alone && !choice.kept) continue;
    const uint64_t one = 2 * static_cast<uint64_t>(choice.expert) + (choice.kept ? 1 : 0) + 1;
    uint64_t z = one * 0x9e3779b97f4a7c15ull;  // order must not matter: mixed, then added
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    fate[static_cast<size_t>(choice.token)] += z ^ (z >> 27);
  }
  return fate;
}

using Kinds = std::unordered_map<uint64_t, int64_t>;  // fate -> rows

constexpr size_t kFewKinds = 8;

bool CommonDivisor(const Kinds& kinds, size_t fewest) {
  int64_t divisor = 0;
  for (const auto& [fate, rows] : kinds) divisor = std::gcd(divisor, rows);
  return kinds.size() >= fewest && divisor > 1;
}

// `kept_alone`: a token's kind is where it was kept, whatever refused it. Fewer kinds than `fewest`
// tell nothing.
bool FollowStructure(const RoutingCase& c, bool kept_alone, size_t fewest) {
  const std::vector<uint64_t> fate = Fates(c, kept_alone);
  std::vector<Kinds> of_pool(static_cast<size_t>(c.pools));
  std::unordered_map<int64_t, Kinds> of_sequence;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    const auto row = static_cast<size_t>(t);
    ++of_pool[static_cast<size_t>(c.pool[row])][fate[row]];
    if (!c.sequence.empty()) ++of_sequence[c.sequence[row]][fate[row]];
  }
  const bool divided = std::all_of(of_pool.begin(), of_pool.end(), [&](const Kinds& kinds) {
    return CommonDivisor(kinds, fewest);
  });
  if (divided || of_sequence.size() < 2) return divided;
  const Kinds& first = of_sequence.begin()->second;
  return first.size() >= fewest &&
         std::all_of(of_sequence.begin(), of_sequence.end(),
                     [&](const auto& entry) { return entry.second == first; });
}

}  // namespace

const char* StoredThresholds::name() const {
  if (common) return "one threshold for all experts";
  if (per_expert) return "one threshold an expert, the same in all pools";
  if (per_sequence) return "one threshold a sequence";
  return moving ? "a threshold that moves along the sequence, common to all experts" : "";
}

StoredThresholds ThresholdsOfMap(const RoutingCase& c, const std::vector<uint8_t>& taken,
                                 const KeyReader& reader) {
  Tester tester(c);
  const auto experts = static_cast<size_t>(c.experts);
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!Known(c, t)) continue;
    for (int32_t e = 0; e < c.experts; ++e) {
      const size_t at = static_cast<size_t>(t) * experts + static_cast<size_t>(e);
      tester.Add(t, e, reader.At(t, e, 0), taken[at] != 0);
    }
  }
  return tester.Judge();
}

QueueBy ByOf(const RankedReplay& replay) {
  using Priority = RankedReplay::Priority;
  return replay.priority == Priority::kOwnScore    ? QueueBy::kChoice
         : replay.priority == Priority::kBestOfRow ? QueueBy::kBestOfRow
                                                   : QueueBy::kSumOfRow;
}

StoredThresholds ThresholdsOfChoices(const RoutingCase& c, const RankedReplay& replay) {
  if (!replay.by_score() || replay.rank_first) return {};
  const size_t cells = static_cast<size_t>(c.pools) * static_cast<size_t>(c.experts);
  const std::vector<Key> keys =
      KeysOfChoices(c, std::vector<uint8_t>(cells, 1), replay.key, ByOf(replay));
  Tester tester(c);
  for (size_t i = 0; i < c.choices.size(); ++i) {
    const Choice& choice = c.choices[i];
    if (Known(c, choice.token)) tester.Add(choice.token, choice.expert, keys[i], choice.kept);
  }
  return tester.Judge();
}

bool CountsFollowStructure(const RoutingCase& c) {
  // Full experts alone are as many kinds, of C rows each, and those kept nowhere one more.
  const auto experts = static_cast<size_t>(c.experts);
  return FollowStructure(c, false, kFewKinds) ||
         FollowStructure(c, true, std::max(kFewKinds, experts + 2));
}

bool CutsInGaps(const RoutingCase& c, const Saturation& s, KeyKind kind, QueueBy by) {
  constexpr size_t kBeside = 8;
  std::vector<uint8_t> refuses(s.cells.size());
  for (size_t i = 0; i < refuses.size(); ++i) refuses[i] = s.cells[i].refused > 0;
  const CellChoices cells = GroupByCell(c, refuses);
  const std::vector<Key> keys = KeysOfChoices(c, refuses, kind, by);
  int64_t told = 0, wide = 0;
  std::vector<double> kept, refused;
  for (size_t i = 0; i < cells.size(); ++i) {
    kept.clear();
    refused.clear();
    for (int32_t n : cells.ChoicesOf(i)) {
      const auto at = static_cast<size_t>(n);
      if (std::isfinite(keys[at].value))
        (c.choices[at].kept ? kept : refused).push_back(keys[at].value);
    }
    // At the ends of a cell gaps grow by themselves.
    if (kept.size() <= kBeside || refused.size() <= kBeside) continue;
    std::partial_sort(kept.begin(), kept.begin() + kBeside + 1, kept.end());
    std::partial_sort(refused.begin(), refused.begin() + kBeside + 1, refused.end(),
                      std::greater<>());
    const double spacing =
        (kept[kBeside] - kept[0] + refused[0] - refused[kBeside]) / (2 * kBeside);
    ++told;
    wide += kept[0] - refused[0] > 8 * spacing;
  }
  return told > 0 && 8 * wide > told;
}

bool ZeroDecides(const RoutingCase& c) {
  const auto experts = static_cast<size_t>(c.experts);
  std::vector<uint8_t> taken(static_cast<size_t>(c.tokens) * experts, 0);
  std::vector<int64_t> held(static_cast<size_t>(c.pools) * experts, 0);
  int64_t all = 0, judged = 0;
  for (const Choice& choice : c.choices) {
    if (!choice.kept) continue;
    taken[static_cast<size_t>(choice.token) * experts + static_cast<size_t>(choice.expert)] = 1;
    ++held[CellOfToken(c, choice.token, choice.expert)];
    all += c.judged(choice.token);
  }
  const bool logits = c.routing->sample().scores_are_logits();
  const auto function = logits ? c.routing->config().score_function() : v1::SCORE_IDENTITY;
  if (function == v1::SCORE_SOFTMAX && !c.bias.empty()) return false;
  int64_t left = 0;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!c.judged(t)) continue;
    if (!Known(c, t)) return false;
    ++judged;
    for (size_t e = 0; e < experts; ++e) {
      double x = c.scores.At(t, static_cast<int64_t>(e));
      double open = 0;  // how far rounding may have moved it across zero
      if (!c.bias.empty()) {
        if (function == v1::SCORE_SIGMOID) x = 1 / (1 + std::exp(-x));
        open = UlpOf(x, c.scores.dtype()) + 2 * UlpOf(c.bias[e], DType::kF32);
        x += c.bias[e];
      }
      const bool is_taken = taken[static_cast<size_t>(t) * experts + e] != 0;
      if (std::abs(x) > open ? (x > 0) != is_taken : open == 0 && is_taken) return false;
      left += !is_taken;
    }
  }
  if (all == 0 || left == 0 || all == judged * c.top_k) return false;
  const auto [least, most] = std::minmax_element(held.begin(), held.end());
  return held.size() == 1 || *least != *most;
}

}  // namespace plumbline::rules
