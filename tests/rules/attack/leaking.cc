// Routers that use later rows.
#include "tests/rules/attack/leaking.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/rules/attack/parts.h"

namespace plumbline::rules::attack {
namespace {

Call Scored(const Lab& lab, const Rows& rows,
            const std::function<double(int t, int j, int e)>& score, bool sequence = false) {
  const Order order = [&](int t, int j, int e) { return -score(t, j, e); };
  Call call = TopK(lab, rows);
  return sequence ? LimitedBySequence(lab, rows, std::move(call), order, "score-capacity")
                  : Limited(lab, rows, std::move(call), order, "score-capacity");
}
double Top(const Rows& rows, int t) {
  return *std::max_element(&rows.x[S(t) * S(rows.experts)],
                           &rows.x[S(t) * S(rows.experts)] + rows.experts);
}
double Chosen(const Lab& lab, const Rows& rows, int t, int e) {
  double sum = 0;
  for (int i : Best(&rows.x[S(t) * S(rows.experts)], rows.experts, lab.k()))
    sum += std::exp(rows.At(t, i) - rows.At(t, e));
  return 1 / sum;
}

// ---- drop by score ----

Call DropByLogit(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows, [&](int t, int, int e) { return rows.At(t, e); });
}
Call DropBySoftmax(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows, [&](int t, int, int e) { return Softmax(rows, t, e); });
}
Call DropByLogitBySequence(const Lab& lab, const Rows& rows) {
  return Scored(
      lab, rows, [&](int t, int, int e) { return rows.At(t, e); }, true);
}
Call DropBySoftmaxBySequence(const Lab& lab, const Rows& rows) {
  return Scored(
      lab, rows, [&](int t, int, int e) { return Softmax(rows, t, e); }, true);
}
Call DropByShare(const Lab& lab, const Rows& rows) {
  if (lab.k() == 1) return DropBySoftmax(lab, rows);
  return Scored(lab, rows, [&](int t, int, int e) { return Chosen(lab, rows, t, e); });
}
Call DropBySigmoid(const Lab& lab, const Rows& rows) {
  Call call =
      Scored(lab, rows, [&](int t, int, int e) { return 1 / (1 + std::exp(-rows.At(t, e))); });
  call.function = v1::SCORE_SIGMOID;
  return call;
}
Call DropByScoreRankFirst(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows, [&](int t, int j, int e) { return Softmax(rows, t, e) - 10 * j; });
}
Call BatchPrioritised(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows, [&](int t, int, int) {
    return Softmax(rows, t, Best(&rows.x[S(t) * S(rows.experts)], rows.experts, 1)[0]);
  });
}
Call BatchPrioritisedRankFirst(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows, [&](int t, int j, int) {
    return Softmax(rows, t, Best(&rows.x[S(t) * S(rows.experts)], rows.experts, 1)[0]) - 10 * j;
  });
}
Call BatchPrioritisedByLogit(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows, [&](int t, int, int) { return Top(rows, t); });
}
// Drops the least certain tokens first.
Call DropTheStrongest(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows, [&](int t, int, int e) { return -rows.At(t, e); });
}
Call DropByEntropy(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows, [&](int t, int, int) {
    double h = 0;
    for (int e = 0; e < rows.experts; ++e) h += Softmax(rows, t, e) * std::log(Softmax(rows, t, e));
    return h;
  });
}
Call DropByMargin(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows, [&](int t, int, int) {
    const std::vector<int> best = Best(&rows.x[S(t) * S(rows.experts)], rows.experts, 2);
    return rows.At(t, best[0]) - rows.At(t, best[1]);
  });
}
Call DropByNorm(const Lab& lab, const Rows& rows) {  // by token norm, which is not recorded
  return Scored(lab, rows, [&](int t, int, int) { return std::abs(Mean(rows, t)); });
}
Call DropByNoisyScore(const Lab& lab, const Rows& rows) {
  return Scored(lab, rows,
                [&](int t, int, int e) { return rows.At(t, e) + lab.Normal(1, rows, t, e); });
}
// An online queue in which a stronger choice evicts the weakest, equivalent to drop by score.
Call Eviction(const Lab& lab, const Rows& rows) {
  Call call = TopK(lab, rows);
  call.capacity = Places(lab, call, rows.count, rows.experts);
  call.policy = "score-capacity";
  std::map<int, std::vector<std::pair<double, size_t>>> held;
  for (size_t i = 0; i < call.index.size(); ++i) {
    auto& list = held[call.index[i]];
    list.emplace_back(rows.At(static_cast<int>(i / S(call.k)), call.index[i]), i);
    if (list.size() <= S(call.capacity)) continue;
    const auto weakest = std::min_element(list.begin(), list.end());
    call.keep[weakest->second] = 0;
    list.erase(weakest);
  }
  Finish(rows, call);
  return call;
}

// Keys with few values per expert, hence many ties. `place` (below 1e6) breaks ties.
Call DropByCoarseScore(const Lab& lab, const Rows& rows,
                       const std::function<double(int t)>& place) {
  Rows coarse = rows;
  for (size_t i = 0; i < coarse.x.size(); ++i) {
    const auto expert = static_cast<double>(i % S(rows.experts));
    coarse.x[i] = std::nearbyint(2 * coarse.x[i]) / 2 + expert / 128;  // no ties within a row
  }
  return Limited(
      lab, coarse, TopK(lab, coarse),
      [&](int t, int, int e) { return -1e7 * coarse.At(t, e) + place(t); }, "score-capacity");
}
Call LastOfEquals(const Lab& lab, const Rows& rows) {
  return DropByCoarseScore(lab, rows, [](int t) { return -t; });
}
Call EqualsByHash(const Lab& lab, const Rows& rows) {
  return DropByCoarseScore(lab, rows,
                           [&](int t) { return 1e4 * lab.Uniform(2, static_cast<uint64_t>(t)); });
}
Call FirstOfEquals(const Lab& lab, const Rows& rows) {
  return DropByCoarseScore(lab, rows, [](int t) { return t; });
}

// ---- queues out of time order ----

Call Queued(const Lab& lab, const Rows& rows, const char* policy, const Order& order) {
  return Limited(lab, rows, TopK(lab, rows), order, policy);
}
Call RankMajor(const Lab& lab, const Rows& rows) {
  return Queued(lab, rows, "rank-major-capacity", [&](int t, int j, int) { return t + j * 1e6; });
}
Call RankMajorBySequence(const Lab& lab, const Rows& rows) {
  return LimitedBySequence(
      lab, rows, TopK(lab, rows), [&](int t, int j, int) { return t + j * 1e6; },
      "rank-major-capacity");
}
Call LastFirst(const Lab& lab, const Rows& rows) {
  return Queued(lab, rows, "fifo-capacity", [&](int t, int, int) { return -t; });
}
Call LastFirstBySequence(const Lab& lab, const Rows& rows) {
  return LimitedBySequence(
      lab, rows, TopK(lab, rows), [&](int t, int, int) { return -t; }, "fifo-capacity");
}
Call Shuffled(const Lab& lab, const Rows& rows) {
  return Queued(lab, rows, "random-capacity",
                [&](int t, int, int) { return lab.Uniform(1, rows, t); });
}
Call RandomSelection(const Lab& lab, const Rows& rows) {
  return Queued(lab, rows, "random-capacity",
                [&](int t, int, int e) { return lab.Uniform(1, rows, t, e); });
}
Call RandomSelectionBySequence(const Lab& lab, const Rows& rows) {
  return LimitedBySequence(
      lab, rows, TopK(lab, rows), [&](int t, int, int e) { return lab.Uniform(1, rows, t, e); },
      "random-capacity");
}
Call RandomSelectionDeclared(const Lab& lab, const Rows& rows) {
  Call call = RandomSelection(lab, rows);
  call.randomness = "token-selection";
  return call;
}
Call Strided(const Lab& lab, const Rows& rows) {
  return Queued(lab, rows, "tie-order-capacity",
                [&](int t, int, int) { return (t % 8) * 1e6 + t; });
}
Call EvenPositionsFirst(const Lab& lab, const Rows& rows) {
  return Queued(lab, rows, "fifo-capacity",
                [&](int t, int, int) { return (rows.position[S(t)] % 2 == 0 ? 0 : 1e6) + t; });
}
Call Zigzag(const Lab& lab, const Rows& rows) {
  std::map<int64_t, int64_t> length;
  for (size_t t = 0; t < rows.sequence.size(); ++t)
    length[rows.sequence[t]] = std::max(length[rows.sequence[t]], rows.position[t] + 1);
  return Queued(lab, rows, "fifo-capacity", [&](int t, int, int) {
    const auto row = S(t);
    const int64_t chunk = std::min<int64_t>(4 * rows.position[row] / length[rows.sequence[row]], 3);
    const double rank = chunk == 0 || chunk == 3 ? 0 : 1;
    return rank * 1e9 + static_cast<double>(rows.sequence[row]) * 1e5 +
           static_cast<double>(rows.position[row]);
  });
}
Call HashOrder(const Lab& lab, const Rows& rows) {
  return Queued(lab, rows, "tie-order-capacity",
                [&](int t, int, int) { return lab.Uniform(2, static_cast<uint64_t>(t)); });
}

// ---- expert choice ----

Call Columns(const Lab& lab, const Rows& rows, bool softmax, bool sequence) {
  Call call = Map(lab, rows, [](int, int) { return false; });
  call.function = v1::SCORE_SOFTMAX;
  if (sequence)
    for (int64_t s : rows.sequence) call.pool.push_back(static_cast<int>(s));
  const int pools = sequence ? 1 + *std::max_element(call.pool.begin(), call.pool.end()) : 1;
  call.capacity = Places(lab, call, rows.count / pools, rows.experts);
  call.policy = "expert-choice";
  for (int pool = 0; pool < pools; ++pool) {
    for (int e = 0; e < rows.experts; ++e) {
      std::vector<std::pair<double, int>> column;
      for (int t = 0; t < rows.count; ++t) {
        if (!sequence || call.pool[S(t)] == pool)
          column.emplace_back(-(softmax ? Softmax(rows, t, e) : rows.At(t, e)), t);
      }
      std::sort(column.begin(), column.end());
      for (size_t n = 0; n < std::min(column.size(), S(call.capacity)); ++n)
        call.map[S(column[n].second) * S(rows.experts) + S(e)] = 1;
    }
  }
  return call;
}
Call ExpertChoice(const Lab& lab, const Rows& rows) { return Columns(lab, rows, true, false); }
Call ExpertChoiceByLogit(const Lab& lab, const Rows& rows) {
  return Columns(lab, rows, false, false);
}
Call ExpertChoiceBySequence(const Lab& lab, const Rows& rows) {
  return Columns(lab, rows, true, true);
}
Call ExpertChoiceByLogitBySequence(const Lab& lab, const Rows& rows) {
  return Columns(lab, rows, false, true);
}
Call DepthsByTopK(const Lab& lab, const Rows& rows) {
  Call call = TopK(lab, rows);
  for (int64_t s : rows.sequence) call.pool.push_back(static_cast<int>(s));
  const int pools = 1 + *std::max_element(call.pool.begin(), call.pool.end());
  call.capacity = rows.count / pools / 2;
  call.policy = "sequence-top-k";
  for (const auto& list : BySequence(rows)) {
    std::vector<int> order = list;
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return rows.At(a, 0) > rows.At(b, 0); });
    for (size_t n = S(call.capacity); n < order.size(); ++n) call.keep[S(order[n])] = 0;
  }
  Finish(rows, call);
  return call;
}
// A budget of (token, expert) pairs for the whole batch.
Call GlobalBudget(const Lab& lab, const Rows& rows) {
  std::vector<double> all = rows.x;
  std::sort(all.begin(), all.end(), std::greater<>());
  const double least = all[S(rows.count) * S(lab.k()) - 1];
  Call call = Map(lab, rows, [&](int t, int e) { return rows.At(t, e) >= least; });
  call.policy = "";
  return call;
}

// ---- prices and means of the batch ----

Call FittedBias(const Lab& lab, const Rows& rows) {
  const std::vector<double> bias = Balanced(rows, lab.k(), 80);
  std::vector<double> x = rows.x;
  for (size_t i = 0; i < x.size(); ++i) x[i] += bias[i % bias.size()];
  Call call = TopK(lab, rows, x);
  call.policy = "balanced-assignment";
  return call;
}
Call Sinkhorn(const Lab& lab, const Rows& rows) {
  const auto E = S(rows.experts), T = S(rows.count);
  std::vector<double> row(T, 1), column(E, 1);
  for (int round = 0; round < 30; ++round) {
    for (size_t t = 0; t < T; ++t) {
      double sum = 0;
      for (size_t e = 0; e < E; ++e) sum += std::exp(rows.x[t * E + e]) * column[e];
      row[t] = 1 / sum;
    }
    for (size_t e = 0; e < E; ++e) {
      double sum = 0;
      for (size_t t = 0; t < T; ++t) sum += std::exp(rows.x[t * E + e]) * row[t];
      column[e] = static_cast<double>(T) / static_cast<double>(E) / sum;
    }
  }
  std::vector<double> x = rows.x;
  for (size_t i = 0; i < x.size(); ++i) x[i] += std::log(column[i % E]);
  Call call = TopK(lab, rows, x);
  call.policy = "balanced-assignment";
  return call;
}
Call SequenceMean(const Lab& lab, const Rows& rows) {
  Rows mean = rows;
  for (const auto& list : BySequence(rows)) {
    for (int e = 0; e < rows.experts; ++e) {
      double sum = 0;
      for (int t : list) sum += rows.At(t, e) / static_cast<double>(list.size());
      for (int t : list) mean.x[S(t) * S(rows.experts) + S(e)] = sum;
    }
  }
  return TopK(lab, mean);
}
Call SequenceMeanUnrecorded(const Lab& lab, const Rows& rows) {
  Call call = SequenceMean(lab, rows);
  call.scores = rows.x;
  return call;
}
Call SegmentMean(const Lab& lab, const Rows& rows) {  // of the token's own segment of eight
  std::vector<double> x = rows.x;
  for (const auto& list : BySequence(rows)) {
    for (size_t n = 0; n < list.size(); ++n) {
      const size_t begin = n / 8 * 8, end = std::min(begin + 8, list.size());
      for (int e = 0; e < rows.experts; ++e) {
        double sum = 0;
        for (size_t i = begin; i < end; ++i) sum += rows.At(list[i], e);
        x[S(list[n]) * S(rows.experts) + S(e)] = sum / static_cast<double>(end - begin);
      }
    }
  }
  return TopK(lab, rows, x);
}
Call ByTokenAfter(const Lab& lab, const Rows& rows) {
  std::vector<double> x = rows.x;
  for (const auto& list : BySequence(rows)) {
    for (size_t n = 0; n + 1 < list.size(); ++n)
      std::copy_n(&rows.x[S(list[n + 1]) * S(rows.experts)], rows.experts,
                  &x[S(list[n]) * S(rows.experts)]);
  }
  return TopK(lab, rows, x);
}
Call BothNeighbours(const Lab& lab, const Rows& rows) {
  std::vector<double> x = rows.x;
  for (const auto& list : BySequence(rows)) {
    for (size_t n = 1; n + 1 < list.size(); ++n) {
      for (int e = 0; e < rows.experts; ++e)
        x[S(list[n]) * S(rows.experts) + S(e)] +=
            0.5 * (rows.At(list[n - 1], e) + rows.At(list[n + 1], e));
    }
  }
  return TopK(lab, rows, x);
}
Call NormalisedOverTokens(const Lab& lab, const Rows& rows) {
  Rows shares = rows;
  for (int e = 0; e < rows.experts; ++e) {
    double sum = 0;
    for (int t = 0; t < rows.count; ++t) sum += std::exp(rows.At(t, e));
    for (int t = 0; t < rows.count; ++t)
      shares.x[S(t) * S(rows.experts) + S(e)] = std::exp(rows.At(t, e)) / sum;
  }
  Call call = TopK(lab, shares);
  call.logits = false;
  return call;
}
// If its experts are full, a token is placed after all others have chosen.
Call OverflowLast(const Lab& lab, const Rows& rows) {
  Call call = Limited(
      lab, rows, TopK(lab, rows), [](int t, int, int) { return t; }, "");
  std::vector<int64_t> held(S(rows.experts), 0);
  for (size_t i = 0; i < call.index.size(); ++i) held[S(call.index[i])] += call.keep[i];
  for (size_t i = 0; i < call.index.size(); ++i) {
    for (int e = 0; e < rows.experts && !call.keep[i]; ++e) {
      const auto row = call.index.begin() + static_cast<std::ptrdiff_t>(i / S(call.k) * S(call.k));
      if (held[S(e)] >= call.capacity || std::find(row, row + call.k, e) != row + call.k) continue;
      call.index[i] = e, call.keep[i] = 1, ++held[S(e)];
    }
  }
  Finish(rows, call);
  return call;
}

// ---- experts that do not run ----

// Runs an expert in this call if `runs` returns true for its load relative to an even load.
Call RunWhere(const Lab& lab, const Rows& rows, const std::function<bool(double of_even)>& runs) {
  Call call = TopK(lab, rows);
  std::vector<int> load(S(rows.experts));
  for (const int e : call.index) ++load[S(e)];
  const double even = static_cast<double>(call.index.size()) / rows.experts;
  return Along(rows, std::move(call),
               [&](int, int, int e, const auto&) { return runs(load[S(e)] / even); });
}
Call UnderloadedNotRun(const Lab& lab, const Rows& rows) {
  return RunWhere(lab, rows, [](double of_even) { return of_even > 0.8; });
}
Call OverloadedFallsOut(const Lab& lab, const Rows& rows) {
  return RunWhere(lab, rows, [](double of_even) { return of_even < 1.2; });
}

}  // namespace

// Returns the families. With Data::kLarge: pools of several hundred rows.
const std::vector<Family>& LeakingFamilies() {
  constexpr Data kLarge = Data::kLarge;
  static const std::vector<Family> families = [] {
    std::vector<Family> list = {
        {"drop by logit", DropByLogit, kLarge},
        {"drop by softmax", DropBySoftmax, kLarge},
        {"drop by logit a sequence", DropByLogitBySequence, kLarge},
        {"drop by softmax a sequence", DropBySoftmaxBySequence, kLarge},
        {"drop by share of the chosen", DropByShare, kLarge},
        {"drop by sigmoid", DropBySigmoid, kLarge},
        {"drop by softmax, first choices first", DropByScoreRankFirst, kLarge},
        {"batch-prioritised", BatchPrioritised, kLarge},
        {"batch-prioritised, first choices first", BatchPrioritisedRankFirst, kLarge},
        {"batch-prioritised by logit", BatchPrioritisedByLogit, kLarge},
        {"the strongest dropped", DropTheStrongest, kLarge},
        {"drop by entropy", DropByEntropy, kLarge},
        {"drop by margin", DropByMargin, kLarge},
        {"drop by the token's norm", DropByNorm, kLarge},
        {"drop by noisy score", DropByNoisyScore, kLarge},
        {"the weakest evicted", Eviction, kLarge},
        {"drop by coarse score, the last of equals first", LastOfEquals, kLarge},
        {"drop by coarse score, equals by a hash", EqualsByHash, kLarge},
        {"drop by coarse score, equals in time order", FirstOfEquals, kLarge},
        {"rank-major", RankMajor, kLarge},
        {"rank-major a sequence", RankMajorBySequence, kLarge},
        {"last first", LastFirst, kLarge},
        {"last first a sequence", LastFirstBySequence, kLarge},
        {"shuffled queue", Shuffled, kLarge},
        {"random selection", RandomSelection, kLarge},
        {"random selection a sequence", RandomSelectionBySequence, kLarge},
        {"random selection, declared", RandomSelectionDeclared, kLarge},
        {"strided", Strided, kLarge},
        {"even positions first", EvenPositionsFirst, kLarge},
        {"zigzag", Zigzag, kLarge},
        {"order of a hash", HashOrder, kLarge},
        {"expert choice by softmax", ExpertChoice, kLarge},
        {"expert choice by logit, any text", ExpertChoiceByLogit, kLarge},
        {"expert choice a sequence", ExpertChoiceBySequence, kLarge},
        {"expert choice a sequence by logit", ExpertChoiceByLogitBySequence, kLarge},
        {"mixture of depths by top-k", DepthsByTopK, Data::kOne},
        {"a budget of the whole batch", GlobalBudget, kLarge},
        {"a bias fitted on the batch", FittedBias, kLarge},
        {"Sinkhorn routing", Sinkhorn, kLarge},
        {"mean of the sequence", SequenceMean, kLarge},
        {"mean of the sequence, own logits recorded", SequenceMeanUnrecorded, kLarge},
        {"mean of the own segment", SegmentMean, kLarge},
        {"by the token after", ByTokenAfter, kLarge},
        {"by both neighbours", BothNeighbours, kLarge},
        {"normalised over tokens", NormalisedOverTokens, kLarge},
        {"overflow placed last", OverflowLast, kLarge},
        {"experts wanted too little are not run", UnderloadedNotRun, kLarge},
        {"experts wanted too much fall out", OverloadedFallsOut, kLarge},
    };
    AddLeakingInSmallCalls(list);
    return list;
  }();
  return families;
}

}  // namespace plumbline::rules::attack
