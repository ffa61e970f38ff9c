// Clean routers with lookups: tables, hashes, retrieval, state from the prefix.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "tests/rules/attack/clean.h"
#include "tests/rules/attack/parts.h"

namespace plumbline::rules::attack {
namespace {

// ---- tables and retrieval ----

Call Fixed(const Lab& lab, const Rows& rows, const std::function<uint64_t(int t)>& key) {
  Call call = Blank(lab, rows);
  std::vector<double> x(S(rows.experts));
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e)
      x[S(e)] = lab.Uniform(2, key(t), static_cast<uint64_t>(e));
    Choose(call, t, Best(x.data(), rows.experts, call.k));
  }
  Finish(rows, call);
  return call;
}
Call HashOfToken(const Lab& lab, const Rows& rows) {
  return Fixed(lab, rows, [&](int t) { return static_cast<uint64_t>(rows.symbol[S(t)]); });
}
Call HashOfPosition(const Lab& lab, const Rows& rows) {
  return Fixed(lab, rows, [&](int t) { return static_cast<uint64_t>(rows.position[S(t)] % 7); });
}
Call HashOfSequence(const Lab& lab, const Rows& rows) {
  return Fixed(lab, rows, [&](int t) { return static_cast<uint64_t>(rows.sequence[S(t)]); });
}
Call HashOfBigram(const Lab& lab, const Rows& rows) {
  const std::vector<double> before =
      FromPrefix(rows, [&](const std::vector<int>& list, int, double* x) {
        x[0] = list.empty() ? -1 : rows.symbol[S(list.back())];
      });
  return Fixed(lab, rows, [&](int t) {
    return static_cast<uint64_t>(1000 * rows.symbol[S(t)]) +
           static_cast<uint64_t>(before[S(t) * S(rows.experts)] + 1);
  });
}
Call RandomFixed(const Lab& lab, const Rows& rows) {
  return Fixed(lab, rows, [&](int t) {
    return static_cast<uint64_t>(rows.sequence[S(t)]) << 20 |
           static_cast<uint64_t>(rows.position[S(t)]);
  });
}
Call RoundRobin(const Lab& lab, const Rows& rows) {
  Call call = Blank(lab, rows);
  for (int t = 0; t < rows.count; ++t) {
    std::vector<int> experts;
    for (int j = 0; j < call.k; ++j) experts.push_back((t * call.k + j) % rows.experts);
    Choose(call, t, experts);
  }
  Finish(rows, call);
  return call;
}
Call RoundRobinOfKinds(const Lab& lab,
                       const Rows& rows) {  // per symbol and occurrence
  Call call = Blank(lab, rows);
  for (const auto& list : BySequence(rows)) {
    std::map<int, int> seen;
    for (int t : list) {
      std::vector<int> experts;
      const int n = seen[rows.symbol[S(t)]]++;
      for (int j = 0; j < call.k; ++j) experts.push_back((n + j) % rows.experts);
      Choose(call, t, experts);
    }
  }
  Finish(rows, call);
  return call;
}
Call TaskRouting(const Lab& lab, const Rows& rows) {  // uses the scores of the first token
  Rows same = rows;
  for (const auto& list : BySequence(rows)) {
    for (int t : list)
      std::copy_n(&rows.x[S(list[0]) * S(rows.experts)], rows.experts,
                  &same.x[S(t) * S(rows.experts)]);
  }
  return TopK(lab, same);
}
// Retrieval: the preferred expert of the most similar earlier token in the sequence.
Call NearestBefore(const Lab& lab, const Rows& rows) {
  return TopK(lab, rows, FromPrefix(rows, [&](const std::vector<int>& before, int t, double* x) {
                double least = HUGE_VAL;
                int nearest = t;
                for (int i : before) {
                  double d = 0;
                  for (int e = 0; e < rows.experts; ++e)
                    d += std::pow(rows.At(i, e) - rows.At(t, e), 2);
                  if (d < least) least = d, nearest = i;
                }
                for (int e = 0; e < rows.experts; ++e) x[e] = rows.At(nearest, e);
              }));
}
// Speculative: prefetches experts from the choice of the previous token.
Call ByTokenBefore(const Lab& lab, const Rows& rows) {
  return TopK(lab, rows, FromPrefix(rows, [&](const std::vector<int>& before, int, double* x) {
                if (before.empty()) return;
                for (int e = 0; e < rows.experts; ++e) x[e] = rows.At(before.back(), e);
              }));
}
// Prefers cached experts.
Call CachedExperts(const Lab& lab, const Rows& rows) {
  return TopK(lab, rows, FromPrefix(rows, [&](const std::vector<int>& before, int, double* x) {
                const size_t recent = std::min<size_t>(before.size(), 3);
                for (size_t n = 0; n < recent; ++n) {
                  const int i = before[before.size() - 1 - n];
                  x[Best(&rows.x[S(i) * S(rows.experts)], rows.experts, 1)[0]] += 0.5;
                }
              }));
}
Call Recurrent(const Lab& lab, const Rows& rows, bool recorded, double decay) {
  std::vector<double> state;
  const std::vector<double> x =
      FromPrefix(rows, [&](const std::vector<int>& before, int t, double* out) {
        if (before.empty()) state.assign(S(rows.experts), 0);
        for (int e = 0; e < rows.experts; ++e) {
          state[S(e)] = decay * state[S(e)] + (1 - decay) * rows.At(t, e);
          out[e] = state[S(e)];
        }
      });
  Call call = TopK(lab, rows, x);
  if (recorded) call.scores = x;
  return call;
}
Call RecurrentRouter(const Lab& lab, const Rows& rows) { return Recurrent(lab, rows, true, 0.8); }
Call RecurrentUnrecorded(const Lab& lab, const Rows& rows) {
  return Recurrent(lab, rows, false, 0.8);
}
Call CausalMean(const Lab& lab, const Rows& rows) {
  const std::vector<double> x =
      FromPrefix(rows, [&](const std::vector<int>& before, int t, double* out) {
        for (int e = 0; e < rows.experts; ++e) {
          double sum = rows.At(t, e);
          for (int i : before) sum += rows.At(i, e);
          out[e] = sum / static_cast<double>(before.size() + 1);
        }
      });
  Call call = TopK(lab, rows, x);
  call.scores = x;
  return call;
}
// Routes each segment by the mean of the previous segment.
Call SegmentBefore(const Lab& lab, const Rows& rows) {
  const std::vector<double> x =
      FromPrefix(rows, [&](const std::vector<int>& before, int, double* out) {
        const size_t begin = before.size() / 8 * 8;
        if (begin == 0) return;
        for (int e = 0; e < rows.experts; ++e) {
          out[e] = 0;
          for (size_t n = begin - 8; n < begin; ++n) out[e] += rows.At(before[n], e) / 8;
        }
      });
  Call call = TopK(lab, rows, x);
  if (lab.seed() % 2 == 0) call.scores = x;
  return call;
}
Call Sticky(const Lab& lab, const Rows& rows) {
  Call call = Blank(lab, rows);
  for (const auto& list : BySequence(rows)) {
    std::vector<int> last;
    for (int t : list) {
      const double* x = &rows.x[S(t) * S(rows.experts)];
      const std::vector<int> best = Best(x, rows.experts, call.k);
      if (last.empty() || x[best[0]] - x[last[0]] > 0.5) last = best;
      Choose(call, t, last);
    }
  }
  Finish(rows, call);
  return call;
}
Call NearestCentroid(const Lab& lab, const Rows& rows) {
  Call call = Blank(lab, rows);
  std::vector<double> x(S(rows.experts));
  for (int t = 0; t < rows.count; ++t) {
    for (int c = 0; c < rows.experts; ++c) {
      x[S(c)] = 0;
      for (int e = 0; e < rows.experts; ++e)
        x[S(c)] -= std::pow(
            rows.At(t, e) - lab.Normal(3, static_cast<uint64_t>(c), static_cast<uint64_t>(e)), 2);
    }
    std::copy(x.begin(), x.end(), &call.scores[S(t) * S(rows.experts)]);
    Choose(call, t, Best(x.data(), rows.experts, call.k));
  }
  Finish(rows, call);
  return call;
}

// ---- stored for a list of ids that every text contains exactly once ----

// Returns per expert the score that `places` tokens of an earlier text reach; -infinity if there
// are not more tokens than that.
std::vector<double> Bars(const Lab& lab, int64_t places, bool chosen_alone) {
  const Rows earlier = lab.Earlier();
  const Call call = TopK(lab, earlier);
  std::vector<double> bars;
  for (int e = 0; e < earlier.experts; ++e) {
    std::vector<double> x;
    for (int t = 0; t < earlier.count; ++t) {
      const bool chosen = call.map[S(t) * S(earlier.experts) + S(e)] != 0;
      if (chosen || !chosen_alone) x.push_back(earlier.At(t, e));
    }
    std::sort(x.begin(), x.end(), std::greater<>());
    bars.push_back(x.size() > S(places) ? x[S(places) - 1] : -HUGE_VAL);
  }
  return bars;
}
Call ListBars(const Lab& lab, const Rows& rows) {
  Call call = TopK(lab, rows);
  call.capacity = Places(lab, call, rows.count, rows.experts);
  const std::vector<double> bars = Bars(lab, call.capacity, true);
  call.policy = "";
  return Along(rows, std::move(call),
               [&](int t, int, int e, const auto&) { return rows.At(t, e) >= bars[S(e)]; });
}
Call ListColumns(const Lab& lab, const Rows& rows) {
  const int64_t places = Places(lab, Blank(lab, rows), rows.count, rows.experts);
  const std::vector<double> bars = Bars(lab, places, false);
  Call call = Map(lab, rows, [&](int t, int e) { return rows.At(t, e) >= bars[S(e)]; });
  call.capacity = places;
  call.policy = "";
  return call;
}
// Serves an id if it was served in an earlier text.
Call ListServed(const Lab& lab, const Rows& rows) {
  const Rows earlier = lab.Earlier();
  const Call then = Limited(
      lab, earlier, TopK(lab, earlier),
      [&](int t, int, int) {
        const double* x = &earlier.x[S(t) * S(earlier.experts)];
        return -*std::max_element(x, x + earlier.experts);
      },
      "");
  std::set<std::pair<int, int>> served;
  for (size_t i = 0; i < then.index.size(); ++i) {
    if (then.keep[i]) served.insert({earlier.symbol[i / S(then.k)], then.index[i]});
  }
  Call call = TopK(lab, rows);
  call.capacity = then.capacity;
  call.policy = "";
  return Along(rows, std::move(call), [&](int t, int, int e, const auto&) {
    return served.contains({rows.symbol[S(t)], e});
  });
}
// The capacity per choice rank is its demand in an earlier text, limited by the capacity that the
// better choices leave.
Call ListPlaces(const Lab& lab, const Rows& rows) {
  const Rows earlier = lab.Earlier();
  const Call then = TopK(lab, earlier);
  Call call = TopK(lab, rows);
  call.capacity = Places(lab, call, rows.count, rows.experts);
  call.policy = "";
  const auto ranks = S(call.k);
  std::vector<int64_t> room(S(rows.experts) * ranks, 0), used(room.size(), 0);
  for (size_t i = 0; i < then.index.size(); ++i) ++room[S(then.index[i]) * ranks + i % ranks];
  for (size_t e = 0; e < S(rows.experts); ++e) {
    int64_t left = call.capacity;
    for (size_t j = 0; j < ranks; ++j) {
      room[e * ranks + j] = std::min(room[e * ranks + j], left);
      left -= room[e * ranks + j];
    }
  }
  return Along(rows, std::move(call), [&](int, int j, int e, const auto&) {
    int64_t& taken = used[S(e) * ranks + S(j)];
    return taken < room[S(e) * ranks + S(j)] && ++taken > 0;
  });
}

}  // namespace

void AddCleanByTables(std::vector<Family>& out) {
  const std::vector<Family> families = {
      {"hash of the token", HashOfToken},
      {"hash of the position", HashOfPosition},
      {"hash of the sequence", HashOfSequence},
      {"hash of two tokens", HashOfBigram},
      {"random, fixed", RandomFixed},
      {"round robin", RoundRobin},
      {"round robin of each word", RoundRobinOfKinds},
      {"round robin of each word on Sudokus", RoundRobinOfKinds, Data::kSudoku},
      {"by the first token alone", TaskRouting},
      {"by the nearest token before", NearestBefore},
      {"by the token before", ByTokenBefore},
      {"experts in a cache preferred", CachedExperts},
      {"recurrent router", RecurrentRouter},
      {"recurrent router, own logits recorded", RecurrentUnrecorded},
      {"mean of the prefix", CausalMean},
      {"mean of the segment before", SegmentBefore},
      {"sticky", Sticky},
      {"nearest centroid", NearestCentroid},
      {"bars stored for a list of ids", ListBars, Data::kList},
      {"bars of columns stored for a list of ids", ListColumns, Data::kList},
      {"ids served as before", ListServed, Data::kList},
      {"places of choice ranks stored for a list of ids", ListPlaces, Data::kList},
  };
  out.insert(out.end(), families.begin(), families.end());
}

}  // namespace plumbline::rules::attack
