// Competitions over a whole pool, in which later tokens may win.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "analysis/routing/routers/state.h"

namespace plumbline::analysis::routers {
namespace {

// Returns the tokens of each pool, in row order, without idle ones.
std::vector<std::vector<int32_t>> Members(const State& s) {
  std::vector<std::vector<int32_t>> members(static_cast<size_t>(s.Pools()));
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    if (!s.Idle(t)) members[static_cast<size_t>(s.Pool(t))].push_back(t);
  }
  return members;
}

// Returns the slots that choose each (pool, expert), in row order.
std::vector<std::vector<std::pair<int32_t, int32_t>>> Candidates(const State& s) {
  std::vector<std::vector<std::pair<int32_t, int32_t>>> cells(static_cast<size_t>(s.Pools()) *
                                                              static_cast<size_t>(s.b.experts));
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t j = 0; j < s.b.top_k; ++j) {
      if (s.out.keep[s.Slot(t, j)]) cells[s.Cell(t, s.Expert(t, j))].push_back({t, j});
    }
  }
  return cells;
}

constexpr int32_t kLanes = 8;

// Returns the rows with a one, in the order of a partition: a zero is exchanged with the last one
// after it.
std::vector<int32_t> Partitioned(const std::vector<uint8_t>& ones, std::vector<int32_t> rows) {
  size_t left = 0, right = rows.size();
  while (left < right) {
    if (ones[static_cast<size_t>(rows[left])]) {
      ++left;
    } else {
      std::swap(rows[left], rows[--right]);
    }
  }
  rows.resize(left);
  return rows;
}

// ---- balanced assignment by auction -----------------------------------------------------------

// The auction of Bertsekas (1988): unassigned tokens bid for the expert with the highest value
// after its price. An expert holds the `capacity` highest bids. If it is full, its price is the
// lowest of them.
class Auctioneer {
 public:
  Auctioneer(const State& s, const std::vector<int32_t>& tokens, const std::vector<uint8_t>& taken)
      : s_(s),
        taken_(taken),
        capacity_((tokens.size() + static_cast<size_t>(s.b.experts) - 1) /
                  static_cast<size_t>(s.b.experts)),
        held_(static_cast<size_t>(s.b.experts)),
        price_(static_cast<size_t>(s.b.experts), 0),
        waiting_(tokens.rbegin(), tokens.rend()) {}

  // Sets the expert of each token, in `winner` [T].
  void Run(std::vector<int32_t>* winner) {
    // Bids rise by at least epsilon, so the bound is far above what an auction needs.
    for (size_t bids = 0; !waiting_.empty() && bids < 20000 * (1 + held_.size()); ++bids) Bid();
    for (size_t e = 0; e < held_.size(); ++e) {
      for (const auto& [bid, t] : held_[e])
        (*winner)[static_cast<size_t>(t)] = static_cast<int32_t>(e);
    }
  }

 private:
  static constexpr double kEpsilon = 1e-3;

  void Bid() {
    const int32_t t = waiting_.back();
    waiting_.pop_back();
    double best = -HUGE_VAL, second = -HUGE_VAL;
    int32_t e_best = -1;
    for (int32_t e = 0; e < s_.b.experts; ++e) {
      if (taken_[s_.At(t, e)]) continue;
      const double value = s_.logits[s_.At(t, e)] - price_[static_cast<size_t>(e)];
      if (e_best < 0 || value > best) {
        second = best;
        best = value;
        e_best = e;
      } else {
        second = std::max(second, value);
      }
    }
    if (e_best < 0) return;
    const auto at = static_cast<size_t>(e_best);
    const double rise = std::isfinite(second) ? best - second : 1.0;
    held_[at].push_back({price_[at] + rise + kEpsilon, t});
    if (held_[at].size() > capacity_) {
      const auto lowest = std::min_element(held_[at].begin(), held_[at].end());
      waiting_.push_back(lowest->second);
      held_[at].erase(lowest);
    }
    if (held_[at].size() == capacity_)
      price_[at] = std::min_element(held_[at].begin(), held_[at].end())->first;
  }

  const State& s_;
  const std::vector<uint8_t>& taken_;
  size_t capacity_;
  std::vector<std::vector<std::pair<double, int32_t>>> held_;
  std::vector<double> price_;
  std::vector<int32_t> waiting_;
};

}  // namespace

void KeepHighest(State& s,
                 const std::function<std::pair<int32_t, double>(int32_t t, int32_t j)>& value) {
  for (const auto& cell : Candidates(s)) {
    std::vector<std::pair<std::pair<int32_t, double>, size_t>> stop_conditions;
    for (const auto& [t, j] : cell) stop_conditions.push_back({value(t, j), s.Slot(t, j)});
    std::stable_sort(stop_conditions.begin(), stop_conditions.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (size_t i = static_cast<size_t>(s.p.capacity); i < stop_conditions.size(); ++i)
      s.out.keep[stop_conditions[i].second] = 0;
  }
}

void KeepByTieRule(State& s) {
  const auto members = Members(s);
  const auto cells = Candidates(s);
  for (size_t index = 0; index < cells.size(); ++index) {
    std::vector<int32_t> order;
    std::vector<uint8_t> ones(static_cast<size_t>(s.b.tokens), 0);
    for (const auto& [t, j] : cells[index]) {
      order.push_back(t);
      ones[static_cast<size_t>(t)] = 1;
    }
    if (s.p.tie_rule == TieRule::kLastFirst) std::reverse(order.begin(), order.end());
    if (s.p.tie_rule == TieRule::kStrided) {
      std::stable_sort(order.begin(), order.end(),
                       [](int32_t a, int32_t b) { return a % kLanes < b % kLanes; });
    }
    if (s.p.tie_rule == TieRule::kPartitioned)
      order = Partitioned(ones, members[index / static_cast<size_t>(s.b.experts)]);
    std::fill(ones.begin(), ones.end(), uint8_t{0});
    for (size_t i = 0; i < std::min(order.size(), static_cast<size_t>(s.p.capacity)); ++i)
      ones[static_cast<size_t>(order[i])] = 1;
    for (const auto& [t, j] : cells[index]) s.out.keep[s.Slot(t, j)] = ones[static_cast<size_t>(t)];
  }
}

void ExpertsChoose(State& s, bool by_logits) {
  const std::vector<double>& score = by_logits ? s.logits : s.softmax;
  for (const std::vector<int32_t>& members : Members(s)) {
    for (int32_t e = 0; e < s.b.experts; ++e) {
      std::vector<int32_t> order = members;
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return score[s.At(a, e)] > score[s.At(b, e)]; });
      const auto taken = std::min(order.size(), static_cast<size_t>(s.p.capacity));
      for (size_t i = 0; i < taken; ++i) s.out.map[s.At(order[i], e)] = 1;
    }
  }
}

// Scales rows and columns of exp(logits) to equal sums in turn (Sinkhorn 1967). Within a row only
// the columns' scales change the choice.
void Sinkhorn(State& s) {
  for (const std::vector<int32_t>& members : Members(s)) {
    std::vector<double> column(static_cast<size_t>(s.b.experts), 1);
    for (int i = 0; i < s.p.iterations; ++i) {
      std::vector<double> sums(column.size(), 0);
      for (int32_t t : members) {
        double row = 0;
        for (int32_t e = 0; e < s.b.experts; ++e)
          row += s.softmax[s.At(t, e)] * column[static_cast<size_t>(e)];
        for (int32_t e = 0; e < s.b.experts; ++e)
          sums[static_cast<size_t>(e)] += s.softmax[s.At(t, e)] / row;
      }
      for (size_t e = 0; e < column.size(); ++e) {
        // If no exponential reaches a column, it is unchanged.
        if (sums[e] > 0) column[e] = static_cast<double>(members.size()) / (s.b.experts * sums[e]);
      }
    }
    for (int32_t t : members) {
      for (int32_t e = 0; e < s.b.experts; ++e)
        s.selection[s.At(t, e)] = s.softmax[s.At(t, e)] * column[static_cast<size_t>(e)];
    }
  }
}

// Loss-free balancing (Wang 2024), with its update iterated to the end on the batch that it then
// routes.
void FitBias(State& s) {
  std::vector<double> fitted = s.selection;
  for (const std::vector<int32_t>& members : Members(s)) {
    std::vector<double> bias(static_cast<size_t>(s.b.experts), 0);
    for (int i = 0; i <= s.p.iterations; ++i) {
      AddBias(s, bias);
      std::vector<int64_t> load(bias.size(), 0);
      for (int32_t t : members) {
        const std::vector<int32_t> order = s.Ranking(t);
        for (int32_t j = 0; j < s.b.top_k; ++j)
          ++load[static_cast<size_t>(order[static_cast<size_t>(j)])];
      }
      if (i == s.p.iterations) break;
      const double mean = static_cast<double>(members.size()) * s.b.top_k / s.b.experts;
      for (size_t e = 0; e < bias.size(); ++e) {
        const double lack = mean - static_cast<double>(load[e]);
        bias[e] += s.p.bias_rate * ((lack > 0) - (lack < 0));
      }
    }
    for (int32_t t : members) {
      for (int32_t e = 0; e < s.b.experts; ++e) fitted[s.At(t, e)] = s.selection[s.At(t, e)];
    }
  }
  s.selection = std::move(fitted);
}

void Auction(State& s) {
  std::vector<uint8_t> taken(s.logits.size(), 0);
  for (int32_t j = 0; j < s.b.top_k; ++j) {
    std::vector<int32_t> winner(static_cast<size_t>(s.b.tokens), -1);
    for (const std::vector<int32_t>& members : Members(s)) {
      if (!members.empty()) Auctioneer(s, members, taken).Run(&winner);
    }
    for (int32_t t = 0; t < s.b.tokens; ++t) {
      int32_t e = winner[static_cast<size_t>(t)];
      s.out.keep[s.Slot(t, j)] = e >= 0;
      for (int32_t other : s.Ranking(t)) {
        if (e < 0 && !taken[s.At(t, other)]) e = other;
      }
      s.out.indices[s.Slot(t, j)] = e;
      taken[s.At(t, e)] = 1;
    }
  }
}

}  // namespace plumbline::analysis::routers
