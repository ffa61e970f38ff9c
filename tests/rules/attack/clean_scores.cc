// Clean routers whose choices rest on a token's own scores, on stored numbers, and on the prefix.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tests/rules/attack/clean.h"
#include "tests/rules/attack/parts.h"

namespace plumbline::rules::attack {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The value that `share` of an earlier text's logits exceed.
double Stored(const Lab& lab, double share, int expert = -1) {
  const Rows rows = lab.Earlier();
  std::vector<double> x;
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e) {
      if (expert < 0 || e == expert) x.push_back(rows.At(t, e));
    }
  }
  std::sort(x.begin(), x.end(), std::greater<>());
  return x[std::min(x.size() - 1, S(static_cast<int64_t>(share * static_cast<double>(x.size()))))];
}
double Share(const Lab& lab) { return static_cast<double>(lab.k()) / lab.experts(); }

std::vector<double> StoredEach(const Lab& lab) {
  std::vector<double> out;
  for (int e = 0; e < lab.experts(); ++e) out.push_back(Stored(lab, Share(lab), e));
  return out;
}

std::vector<double> Plus(const Rows& rows, const std::function<double(int t, int e)>& more) {
  std::vector<double> x = rows.x;
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e) x[S(t) * S(rows.experts) + S(e)] += more(t, e);
  }
  return x;
}

// scores [T,E] from each sequence's rows in time order.
using Prefix = std::function<void(const std::vector<int>& before, int t, double* x)>;
std::vector<double> FromPrefix(const Rows& rows, const Prefix& fill) {
  std::vector<double> x = rows.x;
  for (const std::vector<int>& list : BySequence(rows)) {
    std::vector<int> before;
    for (int t : list) {
      fill(before, t, &x[S(t) * S(rows.experts)]);
      before.push_back(t);
    }
  }
  return x;
}

// ---- thresholds --------------------------------------------------------------------------------

Call Relu(const Lab& lab, const Rows& rows) {
  return Map(lab, rows, [&](int t, int e) { return rows.At(t, e) > 0; });
}
Call ReluRecordedAfter(const Lab& lab, const Rows& rows) {
  Call call = Relu(lab, rows);
  for (double& x : call.scores) x = std::max(x, 0.0);
  call.logits = false;
  return call;
}
Call ReluShifted(const Lab& lab, const Rows& rows) {
  const double t0 = Stored(lab, Share(lab));
  Rows shifted = rows;
  for (double& x : shifted.x) x -= t0;
  Call call = Relu(lab, shifted);
  call.scores = shifted.x;
  return call;
}
Call CommonThreshold(const Lab& lab, const Rows& rows) {
  const double t0 = Stored(lab, Share(lab));
  return Map(lab, rows, [&](int t, int e) { return rows.At(t, e) > t0; });
}
Call ThresholdEach(const Lab& lab, const Rows& rows) {
  const std::vector<double> each = StoredEach(lab);
  return Map(lab, rows, [&](int t, int e) { return rows.At(t, e) > each[S(e)]; });
}
Call DynMoe(const Lab& lab, const Rows& rows) {
  const std::vector<double> each = StoredEach(lab);
  Call call =
      Map(lab, rows, [&](int t, int e) { return Sigmoid(rows.At(t, e)) > Sigmoid(each[S(e)]); });
  call.function = v1::SCORE_SIGMOID;
  for (double x : each) call.bias.push_back(-Sigmoid(x));
  return call;
}
Call DynMoeAtLeastOne(const Lab& lab, const Rows& rows) {
  const std::vector<double> each = StoredEach(lab);
  return Map(lab, rows, [&](int t, int e) {
    const double* x = &rows.x[S(t) * S(rows.experts)];
    bool any = false;
    for (int i = 0; i < rows.experts; ++i) any |= x[i] > each[S(i)];
    return any ? x[e] > each[S(e)] : Best(x, rows.experts, 1)[0] == e;
  });
}
Call ThresholdBySequence(const Lab& lab, const Rows& rows) {
  const double t0 = Stored(lab, Share(lab));
  return Map(lab, rows, [&](int t, int e) {
    return rows.At(t, e) > t0 + 0.5 * lab.Normal(1, static_cast<uint64_t>(rows.sequence[S(t)]));
  });
}
Call ThresholdBySequenceAndExpert(const Lab& lab, const Rows& rows) {
  const std::vector<double> each = StoredEach(lab);
  return Map(lab, rows, [&](int t, int e) {
    const auto sequence = static_cast<uint64_t>(rows.sequence[S(t)]);
    return rows.At(t, e) > each[S(e)] + 0.3 * lab.Normal(1, sequence, static_cast<uint64_t>(e));
  });
}
Call ThresholdByFirstToken(const Lab& lab, const Rows& rows) {
  std::map<int64_t, double> shift;
  for (const auto& list : BySequence(rows)) shift[rows.sequence[S(list[0])]] = Mean(rows, list[0]);
  const double t0 = Stored(lab, Share(lab));
  return Map(lab, rows,
             [&](int t, int e) { return rows.At(t, e) > t0 + shift[rows.sequence[S(t)]]; });
}
Call ThresholdByPosition(const Lab& lab, const Rows& rows) {
  const double t0 = Stored(lab, Share(lab));
  return Map(lab, rows, [&](int t, int e) {
    return rows.At(t, e) > t0 + 0.02 * static_cast<double>(rows.position[S(t)] % 32) - 0.3;
  });
}
Call ThresholdOfPrefixMean(const Lab& lab, const Rows& rows) {
  const std::vector<double> bar =
      FromPrefix(rows, [&](const std::vector<int>& before, int t, double* x) {
        double sum = Mean(rows, t);
        for (int i : before) sum += Mean(rows, i);
        std::fill(x, x + rows.experts, sum / static_cast<double>(before.size() + 1) + 0.5);
      });
  return Map(lab, rows,
             [&](int t, int e) { return rows.At(t, e) > bar[S(t) * S(rows.experts) + S(e)]; });
}
Call ThresholdOfPrefixQuantile(const Lab& lab, const Rows& rows) {
  const std::vector<double> bar =
      FromPrefix(rows, [&](const std::vector<int>& before, int t, double* x) {
        for (int e = 0; e < rows.experts; ++e) {
          std::vector<double> seen{rows.At(t, e)};
          for (int i : before) seen.push_back(rows.At(i, e));
          std::sort(seen.begin(), seen.end(), std::greater<>());
          x[e] = seen[S(static_cast<int64_t>(Share(lab) * static_cast<double>(seen.size())))];
        }
      });
  return Map(lab, rows,
             [&](int t, int e) { return rows.At(t, e) >= bar[S(t) * S(rows.experts) + S(e)]; });
}
// A controller raises an expert's threshold when it has taken more than its share so far.
Call ThresholdController(const Lab& lab, const Rows& rows) {
  const std::vector<double> each = StoredEach(lab);
  Call call = Map(lab, rows, [](int, int) { return false; });
  for (const auto& list : BySequence(rows)) {
    std::vector<double> taken(S(rows.experts), 0);
    for (size_t n = 0; n < list.size(); ++n) {
      for (int e = 0; e < rows.experts; ++e) {
        const double due = Share(lab) * static_cast<double>(n);
        const bool take = rows.At(list[n], e) > each[S(e)] + 0.3 * (taken[S(e)] - due);
        call.map[S(list[n]) * S(rows.experts) + S(e)] = take;
        taken[S(e)] += take;
      }
    }
  }
  return call;
}
// The first rows of a sequence set the threshold of the rest.
Call ThresholdOfPrompt(const Lab& lab, const Rows& rows) {
  const std::vector<double> bar =
      FromPrefix(rows, [&](const std::vector<int>& before, int, double* x) {
        const size_t prompt = std::min<size_t>(before.size(), 8);
        for (int e = 0; e < rows.experts; ++e) {
          std::vector<double> seen{Stored(lab, Share(lab), e)};
          for (size_t i = 0; i < prompt; ++i) seen.push_back(rows.At(before[i], e));
          x[e] = *std::max_element(seen.begin(), seen.end()) - 0.5;
        }
      });
  return Map(lab, rows,
             [&](int t, int e) { return rows.At(t, e) > bar[S(t) * S(rows.experts) + S(e)]; });
}

// ---- a number of experts that varies
// ---------------------------------------------------------------

Call Nucleus(const Lab& lab, const Rows& rows, double mass, int most) {
  return Map(lab, rows, [&](int t, int e) {
    double sum = 0;
    for (int i : Best(&rows.x[S(t) * S(rows.experts)], rows.experts, most)) {
      if (i == e) return true;
      sum += Softmax(rows, t, i);
      if (sum >= mass) return false;
    }
    return false;
  });
}
Call TopP(const Lab& lab, const Rows& rows) { return Nucleus(lab, rows, 0.6, rows.experts); }
Call TopPOfFour(const Lab& lab, const Rows& rows) {
  return Nucleus(lab, rows, 0.8, std::min(4, rows.experts));
}
Call MinP(const Lab& lab, const Rows& rows) {
  return Map(lab, rows, [&](int t, int e) {
    const int best = Best(&rows.x[S(t) * S(rows.experts)], rows.experts, 1)[0];
    return Softmax(rows, t, e) >= 0.4 * Softmax(rows, t, best);
  });
}
Call AboveOwnMean(const Lab& lab, const Rows& rows) {
  return Map(lab, rows, [&](int t, int e) { return rows.At(t, e) > Mean(rows, t) + 0.5; });
}
Call EntropyDecidesK(const Lab& lab, const Rows& rows) {
  return Map(lab, rows, [&](int t, int e) {
    double entropy = 0;
    for (int i = 0; i < rows.experts; ++i)
      entropy -= Softmax(rows, t, i) * std::log(Softmax(rows, t, i));
    const int k = entropy > 0.7 * std::log(rows.experts) ? 3 : 1;
    const std::vector<int> best = Best(&rows.x[S(t) * S(rows.experts)], rows.experts, k);
    return std::find(best.begin(), best.end(), e) != best.end();
  });
}
Call MoreExpertsEarly(const Lab& lab, const Rows& rows) {
  return Map(lab, rows, [&](int t, int e) {
    const std::vector<int> best =
        Best(&rows.x[S(t) * S(rows.experts)], rows.experts, rows.position[S(t)] < 16 ? 3 : 1);
    return std::find(best.begin(), best.end(), e) != best.end();
  });
}
Call NoExpertBelowThreshold(const Lab& lab, const Rows& rows) {
  const double t0 = Stored(lab, 0.3);
  return Along(rows, TopK(lab, rows),
               [&](int t, int, int e, const auto&) { return rows.At(t, e) > t0; });
}
Call SecondOnlyIfNear(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows), [&](int t, int j, int e, const auto&) {
    const double best = *std::max_element(&rows.x[S(t) * S(rows.experts)],
                                          &rows.x[S(t) * S(rows.experts)] + rows.experts);
    return j == 0 || best - rows.At(t, e) < 0.7;
  });
}

// ---- one expert: to compute a token or to skip it
// ------------------------------------------------------

Call Skip(const Lab& lab, const Rows& rows, const std::function<bool(int t)>& in) {
  return Along(rows, TopK(lab, rows), [&](int t, int, int, const auto&) { return in(t); });
}
Call DepthsByStoredThreshold(const Lab& lab, const Rows& rows) {
  const double t0 = Stored(lab, 0.5, 0);
  return Skip(lab, rows, [&](int t) { return rows.At(t, 0) > t0; });
}
Call DepthsByPredictor(const Lab& lab, const Rows& rows) {
  return Skip(lab, rows, [&](int t) { return Sigmoid(rows.At(t, 0)) > 0.5; });
}
Call DepthsEveryOther(const Lab& lab, const Rows& rows) {
  return Skip(lab, rows, [&](int t) { return rows.position[S(t)] % 2 == 0; });
}
Call DepthsAmongPrefix(const Lab& lab, const Rows& rows) {
  const std::vector<double> place =
      FromPrefix(rows, [&](const std::vector<int>& before, int t, double* x) {
        x[0] = static_cast<double>(std::count_if(before.begin(), before.end(), [&](int i) {
                 return rows.At(i, 0) > rows.At(t, 0);
               })) < 0.5 * static_cast<double>(before.size() + 1);
      });
  return Skip(lab, rows, [&](int t) { return place[S(t)] > 0; });
}
Call DepthsByTokenBucket(const Lab& lab, const Rows& rows) {
  const double t0 = Stored(lab, 0.6, 0);
  std::map<int64_t, double> bucket;
  std::vector<uint8_t> in(S(rows.count), 0);
  for (const auto& list : BySequence(rows)) {
    double left = 4;
    for (int t : list) {
      left = std::min(left + 0.5, 8.0);
      in[S(t)] = left >= 1 && rows.At(t, 0) > t0;
      left -= in[S(t)];
    }
  }
  return Skip(lab, rows, [&](int t) { return in[S(t)] != 0; });
}
// Exactly half of a sequence, drawn as it comes (selection sampling); lengths are known beforehand.
Call DepthsBySelectionSampling(const Lab& lab, const Rows& rows) {
  std::vector<uint8_t> in(S(rows.count), 0);
  for (const auto& list : BySequence(rows)) {
    double need = std::floor(0.5 * static_cast<double>(list.size()));
    for (size_t n = 0; n < list.size(); ++n) {
      in[S(list[n])] = lab.Uniform(1, rows, list[n]) * static_cast<double>(list.size() - n) < need;
      need -= in[S(list[n])];
    }
  }
  return Skip(lab, rows, [&](int t) { return in[S(t)] != 0; });
}
Call DepthsAtRandom(const Lab& lab, const Rows& rows) {
  Call call = Skip(lab, rows, [&](int t) { return lab.Uniform(1, rows, t) < 0.5; });
  call.randomness = lab.seed() % 2 == 0 ? "drop" : "";
  return call;
}
Call DepthsAfterStart(const Lab& lab, const Rows& rows) {
  return Skip(lab, rows,
              [&](int t) { return rows.position[S(t)] < 4 || rows.symbol[S(t)] % 3 != 0; });
}

// ---- biases
// -------------------------------------------------------------------------------------------

Call Biased(const Lab& lab, const Rows& rows, const std::vector<double>& bias, bool recorded) {
  Call call = TopK(lab, rows, Plus(rows, [&](int, int e) { return bias[S(e)]; }));
  call.function = v1::SCORE_IDENTITY;
  if (!recorded) return call;
  for (double b : bias) call.bias.push_back(static_cast<float>(b));
  return call;
}
Call LossFreeBias(const Lab& lab, const Rows& rows) {
  return Biased(lab, rows, Balanced(lab.Earlier(), lab.k(), 60), true);
}
Call LossFreeBiasUnrecorded(const Lab& lab, const Rows& rows) {
  return Biased(lab, rows, Balanced(lab.Earlier(), lab.k(), 60), false);
}
Call BiasConverged(const Lab& lab, const Rows& rows) {
  return Biased(lab, rows, Balanced(lab.Text(), lab.k(), 120), false);
}
Call BiasConvergedRecorded(const Lab& lab, const Rows& rows) {
  return Biased(lab, rows, Balanced(lab.Text(), lab.k(), 120), true);
}
Call BiasOfTasks(const Lab& lab, const Rows& rows) {
  return TopK(lab, rows, Plus(rows, [&](int t, int e) {
                return lab.Normal(1, static_cast<uint64_t>(rows.sequence[S(t)]),
                                  static_cast<uint64_t>(e));
              }));
}
Call BiasOfPrefix(const Lab& lab, const Rows& rows) {
  return TopK(lab, rows, FromPrefix(rows, [&](const std::vector<int>& before, int, double* x) {
                for (int e = 0; e < rows.experts; ++e) {
                  for (int i : before) x[e] -= 0.05 * Softmax(rows, i, e);
                }
              }));
}
Call SinkhornOfEarlierText(const Lab& lab, const Rows& rows) {
  return Biased(lab, rows, Balanced(lab.Earlier(), 1, 200), false);
}
Call BiasZeroRecorded(const Lab& lab, const Rows& rows) {
  return Biased(lab, rows, std::vector<double>(S(rows.experts), 0), true);
}

// ---- tables and retrieval
// ---------------------------------------------------------------------------------

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
                       const Rows& rows) {  // of each symbol, occurrence by occurrence
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
Call TaskRouting(const Lab& lab, const Rows& rows) {  // scores are the first token's
  Rows same = rows;
  for (const auto& list : BySequence(rows)) {
    for (int t : list)
      std::copy_n(&rows.x[S(list[0]) * S(rows.experts)], rows.experts,
                  &same.x[S(t) * S(rows.experts)]);
  }
  return TopK(lab, same);
}
// Retrieval: the expert that the nearest earlier token of the sequence liked best.
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
// Speculative: experts are fetched by what the token before would choose.
Call ByTokenBefore(const Lab& lab, const Rows& rows) {
  return TopK(lab, rows, FromPrefix(rows, [&](const std::vector<int>& before, int, double* x) {
                if (before.empty()) return;
                for (int e = 0; e < rows.experts; ++e) x[e] = rows.At(before.back(), e);
              }));
}
// Experts in a cache are preferred.
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
// Each segment is routed by the mean of the segment before.
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

}  // namespace

void AddCleanByScores(std::vector<Family>& out) {
  const std::vector<Family> families = {
      {"ReLU routing", Relu},
      {"ReLU routing on Sudokus", Relu, Data::kSudoku},
      {"ReLU routing on permutations", Relu, Data::kPermutations},
      {"ReLU routing of a periodic text", Relu, Data::kPeriodic},
      {"ReLU routing, recorded after it", ReluRecordedAfter},
      {"ReLU routing, recorded after it, on Sudokus", ReluRecordedAfter, Data::kSudoku},
      {"ReLU routing, shifted", ReluShifted},
      {"one threshold for all", CommonThreshold},
      {"one threshold for all on Sudokus", CommonThreshold, Data::kSudoku},
      {"one threshold an expert", ThresholdEach},
      {"one threshold an expert on Sudokus", ThresholdEach, Data::kSudoku},
      {"one threshold an expert on permutations", ThresholdEach, Data::kPermutations},
      {"DynMoE", DynMoe},
      {"DynMoE on Sudokus", DynMoe, Data::kSudoku},
      {"DynMoE, at least one", DynMoeAtLeastOne},
      {"a threshold of the sequence's task", ThresholdBySequence},
      {"a threshold of the task, each expert's", ThresholdBySequenceAndExpert},
      {"a threshold of the task on permutations", ThresholdBySequence, Data::kPermutations},
      {"a threshold set by the first token", ThresholdByFirstToken},
      {"a threshold set by the prompt", ThresholdOfPrompt},
      {"a threshold that follows the position", ThresholdByPosition},
      {"a threshold at the prefix's mean", ThresholdOfPrefixMean},
      {"a threshold at the prefix's quantile", ThresholdOfPrefixQuantile},
      {"a threshold that a controller moves", ThresholdController},
      {"a threshold that a controller moves on Sudokus", ThresholdController, Data::kSudoku},
      {"top-p", TopP},
      {"top-p on Sudokus", TopP, Data::kSudoku},
      {"top-p of at most four", TopPOfFour},
      {"min-p", MinP},
      {"above the token's own mean", AboveOwnMean},
      {"entropy decides how many", EntropyDecidesK},
      {"more experts for early tokens", MoreExpertsEarly},
      {"no choice below a threshold", NoExpertBelowThreshold},
      {"no choice below a threshold on Sudokus", NoExpertBelowThreshold, Data::kSudoku},
      {"a second expert only if it is near", SecondOnlyIfNear},
      {"mixture of depths, stored threshold", DepthsByStoredThreshold, Data::kOne},
      {"mixture of depths, predictor", DepthsByPredictor, Data::kOne},
      {"mixture of depths, every other token", DepthsEveryOther, Data::kOne},
      {"mixture of depths, the best of the prefix", DepthsAmongPrefix, Data::kOne},
      {"mixture of depths, token bucket", DepthsByTokenBucket, Data::kOne},
      {"mixture of depths, selection sampling", DepthsBySelectionSampling, Data::kOne},
      {"mixture of depths, at random", DepthsAtRandom, Data::kOne},
      {"mixture of depths, some words", DepthsAfterStart, Data::kOne},
      {"loss-free bias", LossFreeBias},
      {"loss-free bias unrecorded", LossFreeBiasUnrecorded},
      {"a bias converged on this text", BiasConverged},
      {"a bias converged on this Sudoku", BiasConverged, Data::kSudoku},
      {"a bias converged on this plain text", BiasConverged, Data::kPlain},
      {"a bias converged on this text, recorded", BiasConvergedRecorded},
      {"a bias of each task", BiasOfTasks},
      {"a bias that the prefix moves", BiasOfPrefix},
      {"prices of an earlier text", SinkhornOfEarlierText},
      {"a bias of zero, recorded", BiasZeroRecorded},
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
  };
  out.insert(out.end(), families.begin(), families.end());
}

}  // namespace plumbline::rules::attack
