// The choices of a token from its own scores, position, id and stored statistics.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "analysis/routing/routers/state.h"

namespace plumbline::analysis::routers {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double SqrtSoftplus(double x) {
  return std::sqrt(std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))));
}

void SoftmaxRow(const double* x, int32_t n, double* out) {
  const double max = *std::max_element(x, x + n);
  double sum = 0;
  for (int32_t e = 0; e < n; ++e) sum += out[e] = max == kLowest ? 1 : std::exp(x[e] - max);
  for (int32_t e = 0; e < n; ++e) out[e] /= sum;
}

// Returns the value of an expert before the division by the sum over the choice.
double Unscaled(const State& s, ScoreKey key, int32_t t, int32_t e) {
  const double x = s.logits[s.At(t, e)];
  switch (key) {
    case ScoreKey::kLogits:
      return x;
    case ScoreKey::kSigmoidShare:
      return Sigmoid(x);
    case ScoreKey::kSqrtSoftplusShare:
      return SqrtSoftplus(x);
    default:
      return s.softmax[s.At(t, e)];
  }
}

bool DividesByChosen(ScoreKey key) { return key != ScoreKey::kLogits && key != ScoreKey::kSoftmax; }

double SumOfChosen(const State& s, ScoreKey key, int32_t t) {
  double sum = 0;
  for (int32_t j = 0; j < s.b.top_k; ++j) sum += Unscaled(s, key, t, s.Expert(t, j));
  return sum;
}

void SetChoice(State& s, int32_t t, int32_t j, int32_t e) {
  s.out.indices[s.Slot(t, j)] = e;
  s.out.keep[s.Slot(t, j)] = !s.Idle(t);
}

void MakeChoices(State& s) {
  s.out.indices.assign(static_cast<size_t>(s.b.tokens) * static_cast<size_t>(s.b.top_k), 0);
  s.out.keep.assign(s.out.indices.size(), 0);
}

}  // namespace

// The finalizer of splitmix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

State::State(const RouterBatch& batch, const RouterParameters& parameters)
    : b(batch), p(parameters), logits(batch.logits), softmax(batch.logits.size()) {
  for (double& x : logits) {
    if (std::isnan(x)) x = kLowest;
    // The difference of infinities would be NaN.
    x = std::min(x, std::numeric_limits<double>::max());
  }
  for (int32_t t = 0; t < b.tokens; ++t)
    SoftmaxRow(&logits[At(t, 0)], b.experts, &softmax[At(t, 0)]);
  selection = logits;
  out.map.assign(logits.size(), 0);
  out.pool = b.pool;
  if (out.pool.empty()) out.pool.assign(static_cast<size_t>(b.tokens), 0);
}

int32_t State::Pools() const {
  return out.pool.empty() ? 0 : *std::max_element(out.pool.begin(), out.pool.end()) + 1;
}

double State::Draw(int32_t t, uint64_t salt) const {
  const uint64_t own = Mix(Mix(p.seed) ^ Mix(static_cast<uint64_t>(Sequence(t))) * 3 ^
                           Mix(static_cast<uint64_t>(Position(t))) * 5);
  const uint64_t bits = Mix(own ^ Mix(salt) * 7) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

std::vector<int32_t> State::Ranking(int32_t t, int32_t most) const {
  std::vector<int32_t> order(static_cast<size_t>(b.experts));
  std::iota(order.begin(), order.end(), 0);
  const double* row = &selection[At(t, 0)];
  std::partial_sort(order.begin(), order.begin() + most, order.end(), [&](int32_t x, int32_t y) {
    return row[x] != row[y] ? row[x] > row[y] : x < y;
  });
  order.resize(static_cast<size_t>(most));
  return order;
}

void ChooseTopK(State& s) {
  MakeChoices(s);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    const std::vector<int32_t> order = s.Ranking(t, s.b.top_k);
    for (int32_t j = 0; j < s.b.top_k; ++j) SetChoice(s, t, j, order[static_cast<size_t>(j)]);
  }
}

void AddBias(State& s, const std::vector<double>& bias) {
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t e = 0; e < s.b.experts; ++e) {
      const size_t at = s.At(t, e);
      const double f = s.p.function == ScoreFunction::kSoftmax   ? s.softmax[at]
                       : s.p.function == ScoreFunction::kSigmoid ? Sigmoid(s.logits[at])
                                                                 : s.logits[at];
      s.selection[at] = f + (bias.empty() ? 0 : bias[static_cast<size_t>(e)]);
    }
  }
}

void LimitGroups(State& s) {
  const int32_t size = s.b.experts / s.p.groups;
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    std::vector<std::pair<double, int32_t>> groups;  // score, group
    for (int32_t g = 0; g < s.p.groups; ++g) {
      std::vector<double> members(
          s.selection.begin() + static_cast<std::ptrdiff_t>(s.At(t, g * size)),
          s.selection.begin() + static_cast<std::ptrdiff_t>(s.At(t, g * size)) + size);
      std::sort(members.begin(), members.end(), std::greater<>());
      groups.push_back({members[0] + (s.p.group_sum2 && size > 1 ? members[1] : 0), g});
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (size_t i = static_cast<size_t>(s.p.top_groups); i < groups.size(); ++i) {
      for (int32_t e = 0; e < size; ++e)
        s.selection[s.At(t, groups[i].second * size + e)] = kLowest;
    }
  }
}

// Normal numbers by Box-Muller, from two of the token's own draws.
void AddNoise(State& s) {
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t e = 0; e < s.b.experts; ++e) {
      const auto salt = 2 * static_cast<uint64_t>(e);
      s.selection[s.At(t, e)] += s.p.noise * std::sqrt(-2 * std::log(s.Draw(t, salt))) *
                                 std::cos(2 * std::numbers::pi * s.Draw(t, salt + 1));
    }
  }
}

// Samples without replacement, proportional to the gates: the largest of log p + Gumbel noise.
void SampleLower(State& s) {
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    const int32_t best = s.Ranking(t)[0];
    for (int32_t e = 0; e < s.b.experts; ++e) {
      const double gumbel = -std::log(-std::log(s.Draw(t, static_cast<uint64_t>(e))));
      s.selection[s.At(t, e)] = std::log(s.softmax[s.At(t, e)]) + gumbel;
    }
    s.selection[s.At(t, best)] = std::numeric_limits<double>::infinity();
  }
}

void ChooseRoundRobin(State& s) {
  MakeChoices(s);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t j = 0; j < s.b.top_k; ++j)
      SetChoice(s, t, j, static_cast<int32_t>((s.Position(t) * s.b.top_k + j) % s.b.experts));
  }
}

void ChooseByHash(State& s) {
  MakeChoices(s);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    const uint64_t id = s.b.token.empty() ? static_cast<uint64_t>(s.Position(t))
                                          : s.b.token[static_cast<size_t>(t)];
    const uint64_t hash = Mix(Mix(s.p.seed) ^ id);
    for (int32_t j = 0; j < s.b.top_k; ++j) {
      SetChoice(s, t, j,
                static_cast<int32_t>((hash + static_cast<uint64_t>(j)) %
                                     static_cast<uint64_t>(s.b.experts)));
    }
  }
}

void ChooseReplayed(State& s) {
  MakeChoices(s);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t j = 0; j < s.b.top_k; ++j) SetChoice(s, t, j, s.p.replayed[s.Slot(t, j)]);
  }
}

void ChooseAboveThreshold(State& s) {
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t e = 0; e < s.b.experts; ++e) {
      s.out.map[s.At(t, e)] =
          !s.Idle(t) && s.logits[s.At(t, e)] >= s.p.thresholds[static_cast<size_t>(e)];
    }
  }
}

void ReserveShared(State& s) {
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t e = 0; e < s.p.shared_experts; ++e) s.selection[s.At(t, e)] = kLowest;
  }
}

void AddShared(State& s) {
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t e = 0; e < s.p.shared_experts; ++e) s.out.map[s.At(t, e)] = !s.Idle(t);
  }
}

void Drop(State& s, const std::function<bool(int32_t t, int32_t j)>& keeps) {
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t j = 0; j < s.b.top_k; ++j) {
      if (!keeps(t, j)) s.out.keep[s.Slot(t, j)] = 0;
    }
  }
}

void DropBelowOwnBest(State& s) {
  Drop(s, [&](int32_t t, int32_t j) {
    return s.softmax[s.At(t, s.Expert(t, j))] >=
           s.p.own_fraction * s.softmax[s.At(t, s.Expert(t, 0))];
  });
}

void DropBelowThreshold(State& s) {
  Drop(s, [&](int32_t t, int32_t j) {
    const int32_t e = s.Expert(t, j);
    return s.logits[s.At(t, e)] >= s.p.thresholds[static_cast<size_t>(e)];
  });
}

void DropByTable(State& s) {
  Drop(s, [&](int32_t t, int32_t j) {
    const auto at = static_cast<size_t>(s.Position(t) * s.b.experts + s.Expert(t, j));
    return at >= s.p.refusals.size() || s.p.refusals[at] == 0;
  });
}

// GShard (Lepikhin 2020): uses the second expert with probability 2 g2 of the two normalised gates.
void DropLowerAtRandom(State& s) {
  Drop(s, [&](int32_t t, int32_t j) {
    const double first = s.softmax[s.At(t, s.Expert(t, 0))];
    const double own = s.softmax[s.At(t, s.Expert(t, j))];
    return j == 0 || s.Draw(t, static_cast<uint64_t>(j)) * (first + own) < 2 * own;
  });
}

double KeyOf(const State& s, ScoreKey key, int32_t t, int32_t j) {
  const double value = Unscaled(s, key, t, s.Expert(t, j));
  return DividesByChosen(key) ? value / SumOfChosen(s, key, t) : value;
}

void FillProbs(State& s) {
  const ScoreKey key = s.p.combine;
  s.out.probs.resize(s.logits.size());
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    const bool divides = DividesByChosen(key) && !s.out.indices.empty();
    const double sum = divides ? SumOfChosen(s, key, t) : 1;
    for (int32_t e = 0; e < s.b.experts; ++e)
      s.out.probs[s.At(t, e)] = Unscaled(s, key, t, e) / sum;
  }
}

}  // namespace plumbline::analysis::routers
