// Clean routers whose choices depend only on the scores of the token, on stored numbers and on the
// prefix.
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

// Returns the value that the fraction `share` of an earlier text's logits exceeds.
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
  const Rows rows = lab.Earlier();
  std::vector<double> out, column(S(rows.count));
  for (int e = 0; e < lab.experts(); ++e) {
    for (int t = 0; t < rows.count; ++t) column[S(t)] = rows.At(t, e);
    std::sort(column.begin(), column.end(), std::greater<>());
    const auto at = static_cast<int64_t>(Share(lab) * rows.count);
    out.push_back(column[std::min(column.size() - 1, S(at))]);
  }
  return out;
}

std::vector<double> Plus(const Rows& rows, const std::function<double(int t, int e)>& more) {
  std::vector<double> x = rows.x;
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e) x[S(t) * S(rows.experts) + S(e)] += more(t, e);
  }
  return x;
}

// ---- thresholds ----

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
// A controller that raises the threshold of an expert if the expert has taken more than its share
// so far.
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
// The first rows of a sequence set the threshold for the remaining rows.
Call ThresholdOfPrompt(const Lab& lab, const Rows& rows) {
  const std::vector<double> each = StoredEach(lab);
  const std::vector<double> bar =
      FromPrefix(rows, [&](const std::vector<int>& before, int, double* x) {
        const size_t prompt = std::min<size_t>(before.size(), 8);
        for (int e = 0; e < rows.experts; ++e) {
          double most = each[S(e)];
          for (size_t i = 0; i < prompt; ++i) most = std::max(most, rows.At(before[i], e));
          x[e] = most - 0.5;
        }
      });
  return Map(lab, rows,
             [&](int t, int e) { return rows.At(t, e) > bar[S(t) * S(rows.experts) + S(e)]; });
}

// Returns rows of a trained router that is balanced on a balanced text. Half of the words prefer
// one expert and half three experts, each expert equally often. The counts are equal without any
// enforcement.
Rows EvenRows(const Lab& lab, const Rows& rows, double spread) {
  Rows even = rows;
  const int experts = rows.experts;
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < experts; ++e) {
      const int away = (e - rows.symbol[S(t)] % experts + experts) % experts;
      const bool three = rows.symbol[S(t)] % (2 * experts) >= experts;
      const bool likes = away == 0 || (three && (away == 1 || away == 3));
      even.x[S(t) * S(experts) + S(e)] = (likes ? 1 : -1) +
                                         0.2 * std::tanh(lab.Normal(14, rows, t, e)) +
                                         spread * lab.Normal(15, static_cast<uint64_t>(e));
    }
  }
  return even;
}
Call EvenRelu(const Lab& lab, const Rows& rows) { return Relu(lab, EvenRows(lab, rows, 0)); }
Call EvenThresholds(const Lab& lab, const Rows& rows) {
  const Rows even = EvenRows(lab, rows, 1);
  return Map(lab, even, [&](int t, int e) {
    return even.At(t, e) > lab.Normal(15, static_cast<uint64_t>(e));
  });
}
Call EvenThresholdsOfTasks(const Lab& lab, const Rows& rows) {
  Rows even = EvenRows(lab, rows, 0);
  const auto task = [&](int t) {
    return lab.Normal(16, static_cast<uint64_t>(rows.sequence[S(t)]));
  };
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e) even.x[S(t) * S(rows.experts) + S(e)] += task(t);
  }
  return Map(lab, even, [&](int t, int e) { return even.At(t, e) > task(t); });
}
Call EvenChoiceLessThreshold(const Lab& lab, const Rows& rows) {  // the weakest words are dropped
  const Rows even = EvenRows(lab, rows, 1);
  return Along(even, TopK(lab, even), [&](int t, int, int e, const auto&) {
    return even.At(t, e) > lab.Normal(15, static_cast<uint64_t>(e));
  });
}

// ---- variable number of experts ----

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

// ---- one expert that computes or skips a token ----

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
// Exactly half of each sequence, drawn sequentially (selection sampling). The lengths are known in
// advance.
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

// ---- biases ----

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
      {"ReLU routing of even words", EvenRelu, Data::kEven},
      {"thresholds of even words", EvenThresholds, Data::kEven},
      {"thresholds of tasks of even words", EvenThresholdsOfTasks, Data::kEven},
      {"choices of even words, none below a threshold", EvenChoiceLessThreshold, Data::kEven},
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
  };
  out.insert(out.end(), families.begin(), families.end());
}

}  // namespace plumbline::rules::attack
