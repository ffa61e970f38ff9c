#include "rules/lib/routing_ranked.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "rules/lib/routing_trials.h"
#include "rules/lib/routing_zigzag.h"

namespace plumbline::rules {
namespace {

using Priority = RankedReplay::Priority;

// Priorities of whole rows: their best key, or the sum over their choices.
class RowKeys {
 public:
  RowKeys(const RoutingCase& c, const std::vector<size_t>& begin, const KeyReader& reader)
      : c_(c), begin_(begin), reader_(reader) {}

  Key At(int32_t token, Priority priority) const {
    Key row{-HUGE_VAL, 0};
    for (size_t i = begin_[static_cast<size_t>(token)]; i < begin_[static_cast<size_t>(token) + 1];
         ++i) {
      const Key key = reader_.At(token, c_.choices[i].expert, c_.choices[i].rank);
      if (priority == Priority::kSumOfRow) {
        row.value = row.value == -HUGE_VAL ? key.value : row.value + key.value;
        row.tolerance += key.tolerance;
      } else if (key.value > row.value) {
        row = key;
      }
    }
    return row;
  }

 private:
  const RoutingCase& c_;
  const std::vector<size_t>& begin_;
  const KeyReader& reader_;
};

std::vector<size_t> ChoicesByToken(const RoutingCase& c) {
  std::vector<size_t> begin(static_cast<size_t>(c.tokens) + 1, 0);
  for (const Choice& choice : c.choices) ++begin[static_cast<size_t>(choice.token) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  return begin;
}

bool MostRanksKnown(const RoutingCase& c, const RefusingCells& cells) {
  const auto known =
      std::count_if(cells.list.choices.begin(), cells.list.choices.end(),
                    [&](int32_t i) { return c.choices[static_cast<size_t>(i)].rank >= 0; });
  return 2 * known > static_cast<std::ptrdiff_t>(cells.list.choices.size());
}

void ByScores(const RoutingCase& c, bool ranks, Trials& trials) {
  const std::vector<size_t> begin = ChoicesByToken(c);
  for (KeyKind kind : UsableKeys(c)) {
    const KeyReader reader(c, kind);
    const auto own = [&](const Choice& choice) {
      return reader.At(choice.token, choice.expert, choice.rank);
    };
    for (bool rank_first : {false, true}) {
      if (rank_first && !ranks) continue;
      trials.Run(own, {.priority = Priority::kOwnScore, .key = kind, .rank_first = rank_first});
    }
    // Over the chosen, shares sum to one in every row.
    const bool shares = kind == KeyKind::kSoftmaxChosen || kind == KeyKind::kShareOfChosen;
    for (Priority priority : {Priority::kBestOfRow, Priority::kSumOfRow}) {
      if (c.top_k == 1 || (shares && priority == Priority::kSumOfRow)) continue;
      const RowKeys rows(c, begin, reader);
      for (bool rank_first : {false, true}) {
        if (rank_first && !ranks) continue;
        trials.Run([&](const Choice& choice) { return rows.At(choice.token, priority); },
                   {.priority = priority, .key = kind, .rank_first = rank_first});
      }
    }
  }
}

// Each row's place in a queue.
std::vector<double> PlacesIn(const TimeQueue& queue) {
  std::vector<double> place(queue.order.size());
  for (size_t i = 0; i < place.size(); ++i) {
    place[static_cast<size_t>(queue.order[i])] = static_cast<double>(i);
  }
  return place;
}

// All second choices queue behind all first ones.
void ByRank(const std::vector<TimeQueue>& queues, Trials& trials) {
  for (const TimeQueue& queue : queues) {
    const std::vector<double> place = PlacesIn(queue);
    trials.Run(
        [&](const Choice& choice) {
          return Key{-place[static_cast<size_t>(choice.token)], 0};
        },
        {.priority = Priority::kPlace, .rank_first = true, .order = queue.name});
  }
}

// First come first served in an order that is not time's.
void ByWrongOrder(const RoutingCase& c, const std::vector<TimeQueue>& queues, Trials& trials) {
  for (const TimeQueue& queue : queues) {
    const std::vector<double> place = PlacesIn(queue);
    trials.Run(
        [&](const Choice& choice) {
          return Key{place[static_cast<size_t>(choice.token)], 0};
        },
        {.priority = Priority::kPlace, .order = queue.name + ", the last row first"});
  }
  const Sequences sequences = NumberSequences(c);
  for (int32_t ranks : {2, 4, 8, 16}) {
    for (bool by_position : {true, false}) {
      const std::string name = absl::StrCat("zigzag over ", ranks, " ranks, ",
                                            by_position ? "seq-major" : "batch-major");
      trials.Run(
          [&](const Choice& choice) {
            const auto row = static_cast<size_t>(choice.token);
            return Key{-ZigzagPlace(c, sequences, ranks, by_position, row), 0};
          },
          {.priority = Priority::kPlace, .order = name});
    }
  }
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
    const auto kept = std::count_if(c.choices.begin(), c.choices.end(), [&](const Choice& choice) {
      return choice.kept && of(choice) == value;
    });
    if (value == 0 || 2 * kept < count) std::erase(kinds, KeyKind::kProbs);
  }
  return kinds;
}

std::string RankedReplay::Describe() const {
  const char* rank = rank_first ? ", first choices before second ones" : "";
  switch (priority) {
    case Priority::kOwnScore:
      return absl::StrCat("drop by score (", KeyName(key), rank, ")");
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

double ExactCountBits(double n, double count) {
  if (count <= 0 || count >= n) return 0;
  const double p = count / n;
  return -(Log2Choose(n, count) + count * std::log2(p) + (n - count) * std::log2(1 - p));
}

std::vector<RankedReplay> ReplayRanked(const RoutingCase& c, const Saturation& s,
                                       const std::vector<TimeQueue>& queues) {
  const RefusingCells cells = CollectCells(c, s);
  if (cells.cells() == 0) return {};
  Trials trials(c, cells);
  const bool ranks = c.top_k > 1 && MostRanksKnown(c, cells);
  ByScores(c, ranks, trials);
  if (ranks) ByRank(queues, trials);
  ByWrongOrder(c, queues, trials);
  std::vector<RankedReplay> out = trials.Weighed();
  std::stable_sort(out.begin(), out.end(), [](const RankedReplay& a, const RankedReplay& b) {
    if (a.exact != b.exact) return a.exact;
    if (!a.exact) return a.share > b.share;
    return a.bits != b.bits ? a.bits > b.bits : a.raw_bits > b.raw_bits;
  });
  return out;
}

}  // namespace plumbline::rules
