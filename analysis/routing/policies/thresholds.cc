#include "analysis/routing/policies/thresholds.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/cell_keys.h"
#include "base/router/scores.h"

namespace plumbline::analysis {
namespace {

// Tests whether one number separates all refused keys from all taken ones.
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

// Returns true if all cuts fit, and at least `fewest` of them decide something.
template <typename Cuts>
bool AllFit(const Cuts& cuts, int64_t fewest) {
  int64_t deciding = 0;
  for (const Cut& cut : cuts) {
    if (!cut.fits()) return false;
    deciding += cut.decides();
  }
  return deciding >= fewest;
}

// A threshold that moves along the prefix stays for this number of tokens.
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

  // True if a threshold may still fit. If one does not fit once, it never will.
  bool open() const {
    const auto all = [](const auto& cuts) {
      return std::all_of(cuts.begin(), cuts.end(), [](const Cut& cut) { return cut.fits(); });
    };
    return all_.fits() || (c_.pools > 1 && all(of_expert_)) ||
           (!of_sequence_.empty() &&
            (all(of_sequence_) || std::all_of(of_window_.begin(), of_window_.end(), all)));
  }

  StoredThresholds Judge() const {
    StoredThresholds out;
    const auto cells = std::count_if(of_cell_.begin(), of_cell_.end(),
                                     [](const Cut& cut) { return cut.decides(); });
    const auto experts = std::count_if(of_expert_.begin(), of_expert_.end(),
                                       [](const Cut& cut) { return cut.decides(); });
    out.common = cells > 1 && all_.fits();
    out.per_expert = cells > experts && AllFit(of_expert_, 1);
    // With one expert, or one pool per sequence and expert, the cuts equal the cells.
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
  std::vector<std::vector<Cut>> of_window_;  // per sequence, by position
};

bool Known(const RoutingCase& c, int32_t token) {
  const RowState state = c.rows[static_cast<size_t>(token)];
  return state != RowState::kPadding && state != RowState::kNonFinite;
}

// Returns each judged row's fate as one number. Equal fates have equal numbers.
std::vector<uint64_t> Fates(const RoutingCase& c, bool kept_alone) {
  std::vector<uint64_t> fate(static_cast<size_t>(c.tokens), 0);
  for (const Choice& choice : c.choices) {
    if (kept_alone && !choice.kept) continue;
    const uint64_t one = 2 * static_cast<uint64_t>(choice.expert) + (choice.kept ? 1 : 0) + 1;
    uint64_t z = one * 0x9e3779b97f4a7c15ull;  // mixed and added, so that the order has no effect
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

// Returns true if some fate surely belongs to one row only. Then kinds have no common divisor, and
// do not occur in every sequence. Counts up to 2 per bucket; there are at least four times as many
// buckets as rows.
bool SomeFateIsUnique(const RoutingCase& c, const std::vector<uint64_t>& fate) {
  size_t buckets = 64;
  while (buckets < 4 * fate.size()) buckets *= 2;
  std::vector<uint8_t> rows(buckets, 0);
  const auto bucket = [&](size_t row) { return (fate[row] ^ fate[row] >> 32) & (buckets - 1); };
  for (int32_t t = 0; t < c.tokens; ++t) {
    uint8_t& count = rows[bucket(static_cast<size_t>(t))];
    if (c.judged(t) && count < 2) ++count;
  }
  return std::find(rows.begin(), rows.end(), uint8_t{1}) != rows.end();
}

// A fate that occurs equally often in each of n sequences occurs a multiple of n times in all.
bool MayOccurAlike(const std::vector<Kinds>& of_pool, const RoutingCase& c) {
  if (c.sequence.empty()) return false;
  std::unordered_set<int64_t> sequences;
  for (int32_t t = 0; t < c.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    if (c.judged(t) && (row == 0 || c.sequence[row] != c.sequence[row - 1] || !c.judged(t - 1)))
      sequences.insert(c.sequence[row]);
  }
  const auto n = static_cast<int64_t>(sequences.size());
  Kinds all;
  for (const Kinds& kinds : of_pool) {
    for (const auto& [fate, rows] : kinds) all[fate] += rows;
  }
  return n >= 2 && std::all_of(all.begin(), all.end(),
                               [&](const auto& entry) { return entry.second % n == 0; });
}

// If `kept_alone`, a token's kind is the set of experts that kept it; the experts that refused it
// do not count. If there are fewer kinds than `fewest`, they show nothing.
bool FollowStructure(const RoutingCase& c, bool kept_alone, size_t fewest) {
  const std::vector<uint64_t> fate = Fates(c, kept_alone);
  if (SomeFateIsUnique(c, fate)) return false;
  std::vector<Kinds> of_pool(static_cast<size_t>(c.pools));
  for (int32_t t = 0; t < c.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    if (c.judged(t)) ++of_pool[static_cast<size_t>(c.pool[row])][fate[row]];
  }
  const bool divided = std::all_of(of_pool.begin(), of_pool.end(), [&](const Kinds& kinds) {
    return CommonDivisor(kinds, fewest);
  });
  if (divided || !MayOccurAlike(of_pool, c)) return divided;
  std::unordered_map<int64_t, Kinds> of_sequence;
  for (int32_t t = 0; t < c.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    if (c.judged(t)) ++of_sequence[c.sequence[row]][fate[row]];
  }
  const Kinds& first = of_sequence.begin()->second;
  return first.size() >= fewest &&
         std::all_of(of_sequence.begin(), of_sequence.end(),
                     [&](const auto& entry) { return entry.second == first; });
}

}  // namespace

const char* StoredThresholds::name() const {
  if (common) return "one threshold for all experts";
  if (per_expert) return "one threshold per expert, the same in all pools";
  if (per_sequence) return "one threshold a sequence";
  return moving ? "a threshold that changes along the sequence, common to all experts" : "";
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

StoredThresholds ThresholdsOfChoices(const RoutingCase& c, const RankedReplay& replay) {
  if (!replay.by_score() || replay.rank_first) return {};
  constexpr int32_t kBetweenLooks = 4096;
  const bool lowest = replay.priority == RankedReplay::Priority::kLowestScore;
  RowKeyReader reader(c, replay.key);
  Tester tester(c);
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (t % kBetweenLooks == 0 && !tester.open()) return {};
    if (!Known(c, t)) continue;
    const std::vector<Key>& keys = reader.Keys(t);
    const std::span<const Choice> row = c.ChoicesOf(t);
    for (size_t i = 0; i < row.size(); ++i) {
      Key key = QueueKey(keys, i, ByOf(replay));
      if (lowest) key.value = -key.value;
      tester.Add(t, row[i].expert, key, row[i].kept);
    }
  }
  return tester.Judge();
}

bool CountsFollowStructure(const RoutingCase& c) {
  // Full experts alone give as many kinds of C rows each, plus one kind for rows kept nowhere.
  const auto experts = static_cast<size_t>(c.experts);
  return FollowStructure(c, false, kFewKinds) ||
         FollowStructure(c, true, std::max(kFewKinds, experts + 2));
}

namespace {

// Returns the keys by which these choices queue.
std::vector<Key> QueueKeys(const RoutingCase& c, const std::vector<int32_t>& choices, KeyKind kind,
                           QueueBy by) {
  const bool over_chosen = kind == KeyKind::kSoftmaxChosen || kind == KeyKind::kShareOfChosen;
  if (c.top_k > 1 && (over_chosen || by != QueueBy::kChoice))
    return KeysOfSome(c, choices, 1, kind)[static_cast<size_t>(by)];
  const KeyReader reader(c, kind);
  std::vector<Key> keys;
  keys.reserve(choices.size());
  for (const int32_t n : choices) {
    const Choice& choice = c.choices[static_cast<size_t>(n)];
    keys.push_back(reader.At(choice.token, choice.expert, choice.rank));
  }
  return keys;
}

}  // namespace

bool CutsInGaps(const RoutingCase& c, const Saturation& s, KeyKind kind, QueueBy by, bool lowest) {
  constexpr size_t kAdjacent = 8;
  // The first cells of a million choices are as informative as all of them.
  constexpr int64_t kEnoughChoices = 1 << 17, kFewestCells = 8;
  std::vector<uint8_t> refuses(s.cells.size(), 0);
  int64_t choices = 0, taken = 0;
  for (size_t i = 0; i < refuses.size(); ++i) {
    if (choices >= kEnoughChoices && taken >= kFewestCells) break;
    refuses[i] = s.cells[i].refused > 0;
    taken += refuses[i];
    choices += refuses[i] ? s.cells[i].candidates() : 0;
  }
  const CellChoices cells = GroupByCell(c, refuses);
  const std::vector<Key> keys = QueueKeys(c, cells.choices, kind, by);
  int64_t reported = 0, wide = 0;
  std::vector<double> kept, refused;
  for (size_t i = 0; i < cells.size(); ++i) {
    kept.clear();
    refused.clear();
    for (size_t n = cells.begin[i]; n < cells.begin[i + 1]; ++n) {
      const auto choice = static_cast<size_t>(cells.choices[n]);
      if (std::isfinite(keys[n].value))
        (c.choices[choice].kept ? kept : refused)
            .push_back(lowest ? -keys[n].value : keys[n].value);
    }
    // At the ends of a cell the gaps are wider anyway.
    if (kept.size() <= kAdjacent || refused.size() <= kAdjacent) continue;
    std::partial_sort(kept.begin(), kept.begin() + kAdjacent + 1, kept.end());
    std::partial_sort(refused.begin(), refused.begin() + kAdjacent + 1, refused.end(),
                      std::greater<>());
    const double spacing =
        (kept[kAdjacent] - kept[0] + refused[0] - refused[kAdjacent]) / (2 * kAdjacent);
    ++reported;
    wide += kept[0] - refused[0] > 8 * spacing;
  }
  return reported > 0 && 8 * wide > reported;
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
      double open = 0;  // largest rounding error towards zero
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

}  // namespace plumbline::analysis
