// Clean routers whose stored numbers were calibrated on the recorded text itself, for example
// because an epoch repeats or evaluation prompts were seen before. Each token is routed from its
// own data only, but the recording equals that of a leaking router. Only a different text
// distinguishes them.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tests/rules/attack/clean.h"
#include "tests/rules/attack/parts.h"

namespace plumbline::rules::attack {
namespace {

using Score = double (*)(const Rows& rows, int t, int e);

double Logit(const Rows& rows, int t, int e) { return rows.At(t, e); }
double Top(const Rows& rows, int t, int /*e*/) {
  return Softmax(rows, t, Best(&rows.x[S(t) * S(rows.experts)], rows.experts, 1)[0]);
}
double Reversed(const Rows& rows, int t, int e) { return -rows.At(t, e); }

int64_t Room(const Lab& lab, const Rows& rows, int pools = 1) {
  return Places(lab, Blank(lab, rows), rows.count / pools, rows.experts);
}
// Returns `call` with the configured capacity `room` and an optional policy name (empty by
// default).
Call Configured(Call call, int64_t room, const char* policy = "") {
  call.capacity = room;
  call.policy = policy;
  return call;
}
// Returns the `room`-th largest value of each key, or -infinity if there are fewer values.
template <typename Key>
std::map<Key, double> Bars(const std::map<Key, std::vector<double>>& values, int64_t room) {
  std::map<Key, double> bars;
  for (auto [key, list] : values) {
    std::sort(list.begin(), list.end(), std::greater<>());
    bars[key] = list.size() > S(room) ? list[S(room) - 1] : -HUGE_VAL;
  }
  return bars;
}

// ---- choices refused by a threshold ----

Call ChosenAbove(const Lab& lab, const Rows& rows, Score score, const char* policy = "") {
  const Rows then = lab.Text();
  const Call chosen = TopK(lab, then);
  std::map<int, std::vector<double>> values;
  for (size_t i = 0; i < chosen.index.size(); ++i) {
    const int t = static_cast<int>(i / S(chosen.k)), e = chosen.index[i];
    values[e].push_back(score(then, t, e));
  }
  const int64_t room = Room(lab, then);
  std::map<int, double> bars = Bars(values, room);
  return Configured(
      Along(rows, TopK(lab, rows),
            [&](int t, int, int e, const auto&) { return score(rows, t, e) >= bars[e]; }),
      room, policy);
}
Call BarsOfLogits(const Lab& lab, const Rows& rows) { return ChosenAbove(lab, rows, Logit); }
Call BarsOfSoftmax(const Lab& lab, const Rows& rows) { return ChosenAbove(lab, rows, Softmax); }
Call BarsOfTheBest(const Lab& lab, const Rows& rows) { return ChosenAbove(lab, rows, Top); }
Call BarsFromAbove(const Lab& lab, const Rows& rows) { return ChosenAbove(lab, rows, Reversed); }
// As above, but named after the policy that it imitates.
Call BarsNamedDropByScore(const Lab& lab, const Rows& rows) {
  return ChosenAbove(lab, rows, Softmax, "score-capacity");
}
// A threshold per sequence; each sequence has its own capacity.
Call BarsOfSequences(const Lab& lab, const Rows& rows) {
  const Rows then = lab.Text();
  const Call chosen = TopK(lab, then);
  std::map<std::pair<int64_t, int>, std::vector<double>> values;
  for (size_t i = 0; i < chosen.index.size(); ++i) {
    const int t = static_cast<int>(i / S(chosen.k)), e = chosen.index[i];
    values[{then.sequence[S(t)], e}].push_back(Softmax(then, t, e));
  }
  Call call = TopK(lab, rows);
  for (const int64_t s : rows.sequence) call.pool.push_back(static_cast<int>(s));
  const int pools = 1 + *std::max_element(call.pool.begin(), call.pool.end());
  auto bars = Bars(values, Room(lab, then, pools));
  return Configured(Along(rows, std::move(call),
                          [&](int t, int, int e, const auto&) {
                            return Softmax(rows, t, e) >= bars[{rows.sequence[S(t)], e}];
                          }),
                    Room(lab, then, pools));
}
// A threshold per choice rank. First choices are never refused.
Call BarsOfRanks(const Lab& lab, const Rows& rows) {
  const Rows then = lab.Text();
  const Call chosen = TopK(lab, then);
  const int64_t room = Room(lab, then);
  std::map<std::pair<int, int>, double> bars;
  for (int e = 0; e < rows.experts; ++e) {
    int64_t left = room;
    for (int j = 0; j < chosen.k; ++j) {
      std::vector<double> values;
      for (int t = 0; t < then.count; ++t) {
        if (chosen.index[S(t) * S(chosen.k) + S(j)] == e) values.push_back(Softmax(then, t, e));
      }
      std::sort(values.begin(), values.end(), std::greater<>());
      const int64_t taken = std::min<int64_t>(left, static_cast<int64_t>(values.size()));
      bars[{e, j}] = taken == static_cast<int64_t>(values.size()) ? -HUGE_VAL
                     : taken == 0                                 ? HUGE_VAL
                                                                  : values[S(taken - 1)];
      left -= taken;
    }
  }
  return Configured(Along(rows, TopK(lab, rows),
                          [&](int t, int j, int e, const auto&) {
                            return Softmax(rows, t, e) >= bars[{e, j}];
                          }),
                    room);
}

// ---- decisions stored by row ----

// Returns the decisions of another processing order of the same text, replayed per row and choice.
Call Replayed(const Lab& lab, const Rows& rows, const Order& order) {
  const Rows then = lab.Text();
  const Call was = Limited(lab, then, TopK(lab, then), order, "");
  std::set<std::tuple<int64_t, int64_t, int>> served;
  for (size_t i = 0; i < was.index.size(); ++i) {
    const size_t t = i / S(was.k);
    if (was.keep[i]) served.insert({then.sequence[t], then.position[t], was.index[i]});
  }
  return Configured(Along(rows, TopK(lab, rows),
                          [&](int t, int, int e, const auto&) {
                            return served.contains({rows.sequence[S(t)], rows.position[S(t)], e});
                          }),
                    was.capacity);
}
Call ServedByDraw(const Lab& lab, const Rows& rows) {
  return Replayed(lab, rows, [&](int t, int, int e) {
    return lab.Uniform(30, S(t), static_cast<uint64_t>(e));
  });
}
Call ServedByRank(const Lab& lab, const Rows& rows) {
  return Replayed(lab, rows, [](int t, int j, int) { return t + 1e6 * j; });
}
Call ServedFromTheEnd(const Lab& lab, const Rows& rows) {
  return Replayed(lab, rows, [](int t, int, int) { return -t; });
}
Call ServedByStride(const Lab& lab, const Rows& rows) {
  return Replayed(lab, rows, [](int t, int, int) { return t % 8 * 1e6 + t; });
}
// The capacity of each choice rank equals its number of kept choices in the earlier run.
Call PlacesOfRanks(const Lab& lab, const Rows& rows, const char* policy) {
  const Rows then = lab.Text();
  const Call chosen = TopK(lab, then);
  const int64_t room = Room(lab, then);
  const auto ranks = S(chosen.k);
  std::vector<int64_t> places(S(rows.experts) * ranks, 0), used(places.size(), 0);
  for (size_t i = 0; i < chosen.index.size(); ++i) ++places[S(chosen.index[i]) * ranks + i % ranks];
  for (size_t e = 0; e < S(rows.experts); ++e) {
    int64_t left = room;
    for (size_t j = 0; j < ranks; ++j) {
      places[e * ranks + j] = std::min(places[e * ranks + j], left);
      left -= places[e * ranks + j];
    }
  }
  return Configured(Along(rows, TopK(lab, rows),
                          [&](int, int j, int e, const auto&) {
                            const size_t at = S(e) * ranks + S(j);
                            return used[at] < places[at] && ++used[at] > 0;
                          }),
                    room, policy);
}
Call PlacesStored(const Lab& lab, const Rows& rows) { return PlacesOfRanks(lab, rows, ""); }
Call PlacesNamedRankMajor(const Lab& lab, const Rows& rows) {
  return PlacesOfRanks(lab, rows, "rank-major-capacity");
}
// A stored number of requests is skipped first.
Call SkipsStored(const Lab& lab, const Rows& rows) {
  const Rows then = lab.Text();
  std::vector<int64_t> demand(S(rows.experts), 0), requested(S(rows.experts), 0);
  for (const int e : TopK(lab, then).index) ++demand[S(e)];
  const int64_t room = Room(lab, then);
  return Configured(
      Along(rows, TopK(lab, rows),
            [&](int, int, int e, const auto&) { return ++requested[S(e)] > demand[S(e)] - room; }),
      room);
}

// ---- experts with a threshold only ----

Call ColumnsAbove(const Lab& lab, const Rows& rows, Score score, bool sequences,
                  const char* policy = "") {
  const Rows then = lab.Text();
  std::map<std::pair<int64_t, int>, std::vector<double>> values;
  const auto key = [&](const Rows& of, int t, int e) {
    return std::make_pair(sequences ? of.sequence[S(t)] : 0, e);
  };
  for (int t = 0; t < then.count; ++t) {
    for (int e = 0; e < then.experts; ++e) values[key(then, t, e)].push_back(score(then, t, e));
  }
  const int pools =
      sequences
          ? 1 + static_cast<int>(*std::max_element(then.sequence.begin(), then.sequence.end()))
          : 1;
  const int64_t room = Room(lab, then, pools);
  auto bars = Bars(values, room);
  Call call =
      Map(lab, rows, [&](int t, int e) { return score(rows, t, e) >= bars[key(rows, t, e)]; });
  call.function = v1::SCORE_SOFTMAX;
  for (size_t t = 0; t < rows.sequence.size() && sequences; ++t)
    call.pool.push_back(static_cast<int>(rows.sequence[t]));
  return Configured(std::move(call), room, policy);
}
Call Columns(const Lab& lab, const Rows& rows) { return ColumnsAbove(lab, rows, Logit, false); }
Call ColumnsOfSoftmax(const Lab& lab, const Rows& rows) {
  return ColumnsAbove(lab, rows, Softmax, false);
}
Call ColumnsOfSequences(const Lab& lab, const Rows& rows) {
  return ColumnsAbove(lab, rows, Softmax, true);
}
Call ColumnsNamedExpertChoice(const Lab& lab, const Rows& rows) {
  return ColumnsAbove(lab, rows, Softmax, false, "expert-choice");
}
// DynMoE with thresholds at which each expert takes as many tokens as its capacity.
Call ThresholdsAsBias(const Lab& lab, const Rows& rows) {
  Call call = Columns(lab, rows);
  const Rows then = lab.Text();
  for (int e = 0; e < rows.experts; ++e) {
    std::vector<double> x;
    for (int t = 0; t < then.count; ++t) x.push_back(then.At(t, e));
    std::sort(x.begin(), x.end(), std::greater<>());
    call.bias.push_back(-1 / (1 + std::exp(-x[std::min(x.size() - 1, S(call.capacity))])));
  }
  call.function = v1::SCORE_SIGMOID;
  return call;
}
// One expert that computes or skips a token.
Call DepthsAbove(const Lab& lab, const Rows& rows, bool sequences) {
  const Rows then = lab.Text();
  std::map<int64_t, std::vector<double>> values;
  for (int t = 0; t < then.count; ++t)
    values[sequences ? then.sequence[S(t)] : 0].push_back(then.At(t, 0));
  const int64_t room =
      std::max<int64_t>(1, static_cast<int64_t>(S(then.count) / values.size() / 2));
  auto bars = Bars(values, room);
  Call call = TopK(lab, rows);
  for (size_t t = 0; t < rows.sequence.size() && sequences; ++t)
    call.pool.push_back(static_cast<int>(rows.sequence[t]));
  return Configured(Along(rows, std::move(call),
                          [&](int t, int, int, const auto&) {
                            return rows.At(t, 0) >= bars[sequences ? rows.sequence[S(t)] : 0];
                          }),
                    room);
}
Call Depths(const Lab& lab, const Rows& rows) { return DepthsAbove(lab, rows, false); }
Call DepthsOfSequences(const Lab& lab, const Rows& rows) { return DepthsAbove(lab, rows, true); }

// One threshold for all experts, set so that the text has the required number of pairs.
Call OneBar(const Lab& lab, const Rows& rows) {
  std::vector<double> x = lab.Text().x;
  std::sort(x.begin(), x.end(), std::greater<>());
  const double least = x[S(rows.count) * S(lab.k()) - 1];
  return Configured(Map(lab, rows, [&](int t, int e) { return rows.At(t, e) >= least; }), 0);
}

}  // namespace

void AddCleanCalibrated(std::vector<Family>& out) {
  constexpr Data kLarge = Data::kLarge;
  const std::vector<Family> families = {
      {"bars of this text", BarsOfLogits},
      {"bars of this large text", BarsOfLogits, kLarge},
      {"bars of this Sudoku", BarsOfLogits, Data::kSudoku},
      {"bars of this text's softmax", BarsOfSoftmax, kLarge},
      {"bars of this text's best scores", BarsOfTheBest, kLarge},
      {"bars from above of this text", BarsFromAbove, kLarge},
      {"bars of this text named drop by score", BarsNamedDropByScore, kLarge},
      {"bars of this text's sequences", BarsOfSequences, kLarge},
      {"bars of this text's choice ranks", BarsOfRanks, kLarge},
      {"served as a draw served this text", ServedByDraw, kLarge},
      {"served as this text by rank", ServedByRank, kLarge},
      {"served as this text from the end", ServedFromTheEnd, kLarge},
      {"served as this text by stride", ServedByStride, kLarge},
      {"places of this text's choice ranks", PlacesStored, kLarge},
      {"places of this text named rank-major", PlacesNamedRankMajor, kLarge},
      {"skips of this text", SkipsStored, kLarge},
      {"columns of this text", Columns},
      {"columns of this large text", Columns, kLarge},
      {"columns of this permutation", Columns, Data::kPermutations},
      {"columns of this text's softmax", ColumnsOfSoftmax, kLarge},
      {"columns of this text's sequences", ColumnsOfSequences, kLarge},
      {"columns of this text named expert choice", ColumnsNamedExpertChoice, kLarge},
      {"thresholds of this text", ThresholdsAsBias, kLarge},
      {"mixture of depths, bar of this text", Depths, Data::kOne},
      {"mixture of depths, bars of this text's sequences", DepthsOfSequences, Data::kOne},
      {"one bar of this text", OneBar, kLarge},
  };
  out.insert(out.end(), families.begin(), families.end());
}

}  // namespace plumbline::rules::attack
