#include "analysis/routing/policies/ranked.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/routing/policies/cell_keys.h"
#include "analysis/routing/policies/trials.h"
#include "analysis/routing/policies/zigzag.h"
#include "base/parallel.h"

namespace plumbline::analysis {
namespace {

using Priority = RankedReplay::Priority;

bool MostRanksKnown(const RoutingCase& c, const RefusingCells& cells) {
  const auto known =
      std::count_if(cells.list.choices.begin(), cells.list.choices.end(),
                    [&](int32_t i) { return c.choices[static_cast<size_t>(i)].rank >= 0; });
  return 2 * known > static_cast<std::ptrdiff_t>(cells.list.choices.size());
}

// The keys of a kind, as one priority uses them.
class ScoreKeys : public KeySource {
 public:
  ScoreKeys(CellKeys& keys, const RankedReplay& replay)
      : keys_(keys), by_(ByOf(replay)), lowest_(replay.priority == Priority::kLowestScore) {}
  std::span<const Key> Cell(size_t i, bool fits) override {
    return Ordered(keys_.Cell(i, by_, fits));
  }
  std::span<const Key> Sample(size_t stride) override { return Ordered(keys_.Sample(by_, stride)); }

 private:
  // Returns the keys with the highest first.
  std::span<const Key> Ordered(std::span<const Key> keys) {
    if (!lowest_) return keys;
    reversed_.assign(keys.begin(), keys.end());
    for (Key& key : reversed_) key.value = -key.value;
    return reversed_;
  }

  CellKeys& keys_;
  QueueBy by_;
  bool lowest_;
  std::vector<Key> reversed_;
};

// Keys by an order of the rows: place(row), the lowest first.
template <typename PlaceOfRow>
class PlaceKeys : public KeySource {
 public:
  PlaceKeys(const RoutingCase& c, const RefusingCells& cells, PlaceOfRow place)
      : c_(c), cells_(cells), place_(place) {}
  std::span<const Key> Cell(size_t i, bool) override {
    keys_.clear();
    for (const Choice& choice : cells_.Candidates(c_, i, scratch_)) Add(choice);
    return keys_;
  }
  std::span<const Key> Sample(size_t stride) override {
    const std::span<const int32_t> choices = cells_.list.ChoicesOf(0);
    keys_.clear();
    for (size_t n = 0; n < choices.size(); n += stride)
      Add(c_.choices[static_cast<size_t>(choices[n])]);
    return keys_;
  }

 private:
  void Add(const Choice& choice) {
    keys_.push_back({-place_(static_cast<size_t>(choice.token)), 0});
  }

  const RoutingCase& c_;
  const RefusingCells& cells_;
  PlaceOfRow place_;
  std::vector<Key> keys_;
  std::vector<Choice> scratch_;
};

using TrialList = std::vector<Trial>;

// Arguments common to all trials.
struct Tried {
  const RoutingCase& c;
  const RefusingCells& cells;
  bool ranks;  // true if most choice ranks are known

  void Try(KeySource& keys, RankedReplay replay, TrialList& out) const {
    out.push_back(TryPolicy(c, cells, keys, std::move(replay)));
  }
};

TrialList ByScore(const Tried& t, KeyKind kind) {
  TrialList out;
  CellKeys keys(t.c, t.cells.list, kind);
  // Over the chosen experts, the shares of every row sum to one.
  const bool shares = kind == KeyKind::kSoftmaxChosen || kind == KeyKind::kShareOfChosen;
  for (Priority priority :
       {Priority::kOwnScore, Priority::kBestOfRow, Priority::kSumOfRow, Priority::kLowestScore}) {
    for (bool rank_first : {false, true}) {
      const RankedReplay replay{.priority = priority, .key = kind, .rank_first = rank_first};
      if (!replay.by_own_score() && t.c.top_k == 1) continue;
      if (priority == Priority::kSumOfRow && shares) continue;
      if (rank_first && (!t.ranks || priority == Priority::kLowestScore)) continue;
      ScoreKeys source(keys, replay);
      t.Try(source, replay, out);
    }
  }
  return out;
}

// Returns each row's place in a queue.
std::vector<int32_t> PlacesIn(const TimeQueue& queue) {
  std::vector<int32_t> place(queue.order.size());
  for (size_t i = 0; i < place.size(); ++i) {
    place[static_cast<size_t>(queue.order[i])] = static_cast<int32_t>(i);
  }
  return place;
}

// Tries a queue in which all second choices come after all first ones.
void ByRank(const Tried& t, const TimeQueue& queue, const std::vector<int32_t>& place,
            TrialList& out) {
  PlaceKeys keys(t.c, t.cells, [&](size_t row) { return static_cast<double>(place[row]); });
  t.Try(keys, {.priority = Priority::kPlace, .rank_first = true, .order = queue.name}, out);
}

// Tries first come first served in reverse time order.
void ByLastFirst(const Tried& t, const TimeQueue& queue, const std::vector<int32_t>& place,
                 TrialList& out) {
  PlaceKeys keys(t.c, t.cells, [&](size_t row) { return -static_cast<double>(place[row]); });
  t.Try(keys, {.priority = Priority::kPlace, .order = queue.name + ", the last row first"}, out);
}

// Tries the order of context-parallel layouts.
TrialList ByZigzag(const Tried& t) {
  TrialList out;
  const Sequences sequences = NumberSequences(t.c);
  for (int32_t ranks : {2, 4, 8, 16}) {
    for (bool by_position : {true, false}) {
      if (ZigzagKeepsTime(t.c, sequences, ranks, by_position)) continue;
      PlaceKeys keys(t.c, t.cells, [&](size_t row) {
        return ZigzagPlace(t.c, sequences, ranks, by_position, row);
      });
      t.Try(keys,
            {.priority = Priority::kPlace,
             .order = absl::StrCat("zigzag over ", ranks, " ranks, ",
                                   by_position ? "seq-major" : "batch-major")},
            out);
    }
  }
  return out;
}

// Returns true if no later token of a sequence comes before an earlier one.
template <typename PlaceOfRow>
bool KeepsTime(const Sequences& sequences, const TimeQueue& queue, PlaceOfRow place) {
  std::vector<double> last(sequences.length.size(), -HUGE_VAL);
  return std::all_of(queue.order.begin(), queue.order.end(), [&](int32_t t) {
    const auto row = static_cast<size_t>(t);
    double& before = last[static_cast<size_t>(sequences.number[row])];
    const bool later = place(row) > before;
    before = place(row);
    return later;
  });
}

// Tries the order of lanes: every n-th row, or position, belongs to one lane, and lanes follow each
// other.
void ByLanes(const Tried& t, const Sequences& sequences, const TimeQueue& queue,
             const std::vector<int32_t>& place, TrialList& out) {
  for (const int64_t lanes : {2, 4, 8, 16, 32}) {
    for (const bool positions : {true, false}) {
      const auto lane_place = [&](size_t row) {
        const int64_t number = positions ? t.c.position[row] : place[row];
        return static_cast<double>((number % lanes + lanes) % lanes) * 4294967296.0 +
               static_cast<double>(place[row]);
      };
      if (KeepsTime(sequences, queue, lane_place)) continue;
      PlaceKeys keys(t.c, t.cells, lane_place);
      t.Try(keys,
            {.priority = Priority::kPlace,
             .order = absl::StrCat(queue.name, ", ", lanes,
                                   positions ? " lanes of positions" : " lanes of rows")},
            out);
    }
  }
}

TrialList ByQueues(const Tried& t, const std::vector<TimeQueue>& queues) {
  TrialList by_rank, last_first;
  const Sequences sequences = NumberSequences(t.c);
  for (const TimeQueue& queue : queues) {
    const std::vector<int32_t> place = PlacesIn(queue);
    if (t.ranks) ByRank(t, queue, place, by_rank);
    ByLastFirst(t, queue, place, last_first);
    ByLanes(t, sequences, queue, place, last_first);
  }
  std::move(last_first.begin(), last_first.end(), std::back_inserter(by_rank));
  return by_rank;
}

// Tries every policy, in the order of preference among equals. In a large call, groups run in
// parallel.
std::vector<Trial> TryAll(const Tried& t, const std::vector<TimeQueue>& queues) {
  std::vector<std::function<TrialList()>> groups;
  for (KeyKind kind : UsableKeys(t.c)) groups.push_back([&, kind] { return ByScore(t, kind); });
  groups.push_back([&] { return ByQueues(t, queues); });
  groups.push_back([&] { return ByZigzag(t); });
  std::vector<TrialList> tried(groups.size());
  ParallelTasks(groups.size(), ThreadsFor(t.c.routing->sample().scores().data().size()),
                [&](size_t i) { tried[i] = groups[i](); });
  TrialList all;
  for (TrialList& group : tried) std::move(group.begin(), group.end(), std::back_inserter(all));
  return all;
}

}  // namespace

std::vector<KeyKind> UsableKeys(const RoutingCase& c) {
  std::vector<KeyKind> kinds = KeyKinds(c);
  if (!c.probs.present()) return kinds;
  const auto of = [&](const Choice& choice) {
    return KeyValue(c, KeyKind::kProbs, choice.token, choice.expert, choice.rank);
  };
  std::map<double, int64_t> refused;
  int64_t all = 0;
  for (const Choice& choice : c.choices) {
    if (choice.kept || !c.judged(choice.token)) continue;
    ++all;
    ++refused[of(choice)];
  }
  for (const auto& [value, count] : refused) {
    if (2 * count <= all) continue;
    const auto kept = std::count_if(
        c.choices.begin(), c.choices.end(),
        [&, value = value](const Choice& choice) { return choice.kept && of(choice) == value; });
    if (value == 0 || 2 * kept < count) std::erase(kinds, KeyKind::kProbs);
  }
  return kinds;
}

std::string RankedReplay::Describe() const {
  const char* rank = rank_first ? ", first choices before second ones" : "";
  switch (priority) {
    case Priority::kOwnScore:
      return absl::StrCat("drop by score (", KeyName(key), rank, ")");
    case Priority::kLowestScore:
      return absl::StrCat("drop by score, the lowest first (", KeyName(key), ")");
    case Priority::kBestOfRow:
      return absl::StrCat("batch-prioritised routing (by a token's best of ", KeyName(key), rank,
                          ")");
    case Priority::kSumOfRow:
      return absl::StrCat("batch-prioritised routing (by a token's sum of ", KeyName(key), rank,
                          ")");
    case Priority::kPlace:
      break;
  }
  if (!rank_first) return absl::StrCat("first come first served out of time order (", order, ")");
  return absl::StrCat("a queue of all first choices before all second ones (", order, " order)");
}

QueueBy ByOf(const RankedReplay& replay) {
  return replay.by_own_score()                     ? QueueBy::kChoice
         : replay.priority == Priority::kBestOfRow ? QueueBy::kBestOfRow
                                                   : QueueBy::kSumOfRow;
}

double ExactCountBits(double n, double count) {
  if (count <= 0 || count >= n) return 0;
  const double p = count / n;
  return -(Log2Choose(n, count) + count * std::log2(p) + (n - count) * std::log2(1 - p));
}

std::vector<RankedReplay> ReplayRanked(const RoutingCase& c, const Saturation& s,
                                       const std::vector<TimeQueue>& queues) {
  const RefusingCells cells = CollectCells(c, s);
  if (cells.cells() == 0) return {};
  const Tried tried{c, cells, c.top_k > 1 && MostRanksKnown(c, cells)};
  std::vector<RankedReplay> out = Weigh(TryAll(tried, queues));
  std::stable_sort(out.begin(), out.end(), [](const RankedReplay& a, const RankedReplay& b) {
    if (a.exact != b.exact) return a.exact;
    if (!a.exact) return a.share > b.share;
    return a.bits != b.bits ? a.bits > b.bits : a.raw_bits > b.raw_bits;
  });
  return out;
}

}  // namespace plumbline::analysis
