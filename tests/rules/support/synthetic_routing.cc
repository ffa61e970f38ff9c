#include "tests/rules/support/synthetic_routing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/half.h"

namespace plumbline::rules::testing {
namespace {

double Round(double x, DType dtype) {
  const auto f = static_cast<float>(x);
  switch (dtype) {
    case DType::kF16:
      return F16ToFloat(FloatToF16(f));
    case DType::kBF16:
      return BF16ToFloat(FloatToBF16(f));
    case DType::kF64:
      return x;
    default:
      return f;
  }
}

// Draws rows of scores. Keeps the state that a sequence's next row depends on.
class ScoreSource {
 public:
  ScoreSource(const RoutingSpec& spec, std::vector<double> popularity)
      : spec_(spec), popularity_(std::move(popularity)) {
    std::mt19937_64 rng(spec.seed ^ 0xb10d);
    for (size_t i = 0; i < 2 * popularity_.size(); ++i) taste_.push_back(1.5 * normal_(rng));
  }

  std::vector<double> Row(int sequence, std::mt19937_64& rng) {
    const size_t experts = popularity_.size();
    std::vector<double> row(experts);
    const size_t kind = spec_.shape == ScoreShape::kBimodal ? rng() % 2 : 0;
    std::vector<double>& last = last_[sequence];
    last.resize(experts, 0);
    for (size_t e = 0; e < experts; ++e) {
      double x = normal_(rng);
      if (spec_.shape == ScoreShape::kHeavy) x *= std::exp(0.8 * normal_(rng));
      if (spec_.shape == ScoreShape::kCorrelated) x = last[e] = 0.9 * last[e] + 0.44 * x;
      if (spec_.shape == ScoreShape::kBimodal) x = 0.4 * x + taste_[kind * experts + e];
      x += (spec_.shape == ScoreShape::kSkewed ? 3 : 1) * popularity_[e];
      if (spec_.quantum > 0) x = std::round(x / spec_.quantum) * spec_.quantum;
      row[e] = Round(x, spec_.dtype);
    }
    return row;
  }

 private:
  const RoutingSpec& spec_;
  std::vector<double> popularity_;
  std::vector<double> taste_;
  std::map<int, std::vector<double>> last_;
  std::normal_distribution<double> normal_;
};

std::vector<double> Popularity(int experts, std::mt19937_64& rng,
                               std::normal_distribution<double>& normal) {
  std::vector<double> popularity(static_cast<size_t>(experts));
  for (double& p : popularity) p = 0.5 * normal(rng);
  return popularity;
}

// Returns thresholds that `share` of a column's earlier values reach.
std::vector<double> Thresholds(std::vector<std::vector<double>> columns, double share) {
  std::vector<double> thresholds;
  for (std::vector<double>& column : columns) {
    std::sort(column.begin(), column.end(), std::greater<>());
    const auto at = static_cast<size_t>(share * static_cast<double>(column.size()));
    thresholds.push_back(column[std::min(at, column.size() - 1)]);
  }
  return thresholds;
}

}  // namespace

SyntheticRouting::SyntheticRouting(const RoutingSpec& spec) : spec_(spec) {
  std::mt19937_64 rng(spec.seed);
  MakeRows(rng);
  MakeScores(rng);
  MakeParameters();
  result_ = Route(batch_, spec_.policy, parameters_);
}

// Rows in queue order.
void SyntheticRouting::MakeRows(std::mt19937_64& rng) {
  std::vector<int> lengths(static_cast<size_t>(spec_.sequences), spec_.length);
  for (int& length : lengths) {
    if (spec_.packed) length = 1 + static_cast<int>(rng() % static_cast<uint64_t>(spec_.length));
  }
  for (size_t b = 0; b < lengths.size(); ++b)
    lengths[b] = lengths[b - b % static_cast<size_t>(spec_.repeat)];
  for (int outer = 0; outer < (spec_.seq_major ? spec_.length : spec_.sequences); ++outer) {
    for (int inner = 0; inner < (spec_.seq_major ? spec_.sequences : spec_.length); ++inner) {
      const int b = spec_.seq_major ? inner : outer, s = spec_.seq_major ? outer : inner;
      if (s >= lengths[static_cast<size_t>(b)]) continue;
      batch_.sequence.push_back(100 + b);
      batch_.position.push_back(s);
    }
  }
  const auto T = static_cast<int>(batch_.position.size());
  batch_.tokens = T;
  batch_.experts = spec_.experts;
  batch_.top_k = spec_.top_k;
  batch_.pool.assign(static_cast<size_t>(T), 0);
  batch_.padding.assign(static_cast<size_t>(T), 0);
  for (int row = 0; row < T; ++row) {
    const auto at = static_cast<size_t>(row);
    const auto b = static_cast<int>(batch_.sequence[at] - 100);
    if (static_cast<double>(batch_.position[at]) >= spec_.length * (1 - spec_.padding_share) &&
        b % 2 == 1)
      batch_.padding[at] = 1;
    if (spec_.pool == PoolUnit::kSequence) batch_.pool[at] = b;
    if (spec_.pool == PoolUnit::kPack) batch_.pool[at] = b / 2;
    if (spec_.pool == PoolUnit::kChunk)
      batch_.pool[at] = row / ((T + spec_.chunks - 1) / spec_.chunks);
  }
}

void SyntheticRouting::MakeScores(std::mt19937_64& rng) {
  std::normal_distribution<double> normal;
  ScoreSource source(spec_, Popularity(spec_.experts, rng, normal));
  std::map<std::pair<int64_t, int64_t>, std::pair<std::vector<double>, uint64_t>> texts;
  std::mt19937_64 ids(spec_.seed ^ 0x1d5);
  for (size_t row = 0; row < batch_.position.size(); ++row) {
    const int64_t b = batch_.sequence[row] - 100;
    const auto [text, fresh] = texts.try_emplace({b / spec_.repeat, batch_.position[row]});
    if (fresh) text->second = {source.Row(static_cast<int>(b), rng), ids() % 5000};
    batch_.logits.insert(batch_.logits.end(), text->second.first.begin(), text->second.first.end());
    batch_.token.push_back(text->second.second);
  }
}

// Returns the average number of rows that compete for one capacity.
double SyntheticRouting::UnitRows() const {
  const double T = batch_.tokens;
  switch (spec_.policy) {
    case RouterPolicy::kFifoSequence:
    case RouterPolicy::kSequenceTopK: {
      std::set<std::pair<int32_t, int64_t>> units;
      for (size_t t = 0; t < batch_.pool.size(); ++t)
        units.insert({batch_.pool[t], batch_.sequence[t]});
      return T / static_cast<double>(units.size());
    }
    case RouterPolicy::kSamePositionMixing: {
      std::set<std::pair<int32_t, int64_t>> units;
      for (size_t t = 0; t < batch_.pool.size(); ++t)
        units.insert({batch_.pool[t], batch_.position[t]});
      return T / static_cast<double>(units.size());
    }
    case RouterPolicy::kWindowBudget:
      return spec_.router.window;
    default: {
      const int pools = *std::max_element(batch_.pool.begin(), batch_.pool.end()) + 1;
      const bool pieces = spec_.policy == RouterPolicy::kFifoChunks ||
                          spec_.policy == RouterPolicy::kFifoUnequalChunks;
      return T / pools / (pieces ? spec_.chunks : 1);
    }
  }
}

// Stored statistics come from an earlier batch of the same distribution, never from this one.
void SyntheticRouting::MakeParameters() {
  RouterParameters& p = parameters_ = spec_.router;
  std::mt19937_64 rng(spec_.seed ^ 0x57a715);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const auto E = static_cast<size_t>(spec_.experts), k = static_cast<size_t>(spec_.top_k);
  p.seed = spec_.seed;
  p.chunks = spec_.chunks;
  p.capacity_factor = spec_.capacity_factor;
  const double per_rank = spec_.capacity_factor * UnitRows() / spec_.experts;
  const double ranks = spec_.policy == RouterPolicy::kFifoFirstRanks ? p.first_ranks : spec_.top_k;
  p.capacity = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(per_rank * ranks)));
  for (size_t j = 0; j < k; ++j) {
    p.rank_capacity.push_back(
        std::max<int64_t>(1, static_cast<int64_t>(std::ceil(per_rank * (j == 0 ? 1.2 : 0.6)))));
  }
  if (spec_.policy == RouterPolicy::kFifoExpertCapacity) {
    for (size_t e = 0; e < E; ++e)
      p.expert_capacity.push_back(
          1 + static_cast<int64_t>(static_cast<double>(p.capacity) * (0.5 + uniform(rng))));
  }
  if (p.chunk_rows.empty()) {
    for (double share : {0.35, 0.1, 0.3})
      p.chunk_rows.push_back(1 + static_cast<int64_t>(share * UnitRows() * spec_.chunks));
  }
  const double scale = p.function == ScoreFunction::kIdentity  ? 0.8
                       : p.function == ScoreFunction::kSigmoid ? 0.2
                                                               : 1.0 / spec_.experts;
  if (spec_.policy == RouterPolicy::kStoredBias) {
    for (size_t e = 0; e < E; ++e) p.bias.push_back(static_cast<float>(scale * normal(rng)));
  }
  // The experts' popularity, drawn as in MakeScores.
  std::mt19937_64 again(spec_.seed);
  for (int b = 0; spec_.packed && b < spec_.sequences; ++b) again();
  std::normal_distribution<double> fresh;
  const std::vector<double> popularity = Popularity(spec_.experts, again, fresh);
  ScoreSource source(spec_, popularity);
  std::vector<std::vector<double>> columns(E);
  for (int i = 0; i < 400; ++i) {
    const std::vector<double> row = source.Row(i % 4, rng);
    for (size_t e = 0; e < E; ++e) columns[e].push_back(row[e]);
  }
  const double share = static_cast<double>(k) / static_cast<double>(E);
  p.thresholds = Thresholds(std::move(columns),
                            spec_.policy == RouterPolicy::kThresholdChoice ? share : 0.6 * share);
  if (spec_.policy == RouterPolicy::kStoredTable || spec_.policy == RouterPolicy::kStoredTableFifo)
    MakeTable(popularity, rng);
  if (spec_.policy == RouterPolicy::kReplayed) {
    RouterBatch elsewhere = batch_;
    for (double& x : elsewhere.logits) x += 0.2 * normal(rng);
    p.replayed = Route(elsewhere, RouterPolicy::kTokenChoice, p).indices;
  }
}

// A stored table may refuse in runs of positions or at single ones.
void SyntheticRouting::MakeTable(const std::vector<double>& popularity, std::mt19937_64& rng) {
  const auto E = static_cast<size_t>(spec_.experts), rows = static_cast<size_t>(spec_.length);
  std::vector<size_t> order(E);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return popularity[a] > popularity[b]; });
  const auto thinned =
      spec_.table_experts > 0 ? static_cast<size_t>(spec_.table_experts) : (E + 1) / 2;
  const bool runs = rng() % 2 == 0;
  parameters_.refusals.assign(rows * E, 0);
  for (size_t i = 0; i < std::min(thinned, E); ++i) {
    const size_t from = rng() % rows, to = from + 1 + rng() % rows;
    for (size_t p = 0; p < rows; ++p) {
      parameters_.refusals[p * E + order[i]] = runs ? p >= from && p < to : rng() % 3 == 0;
    }
  }
}

int64_t SyntheticRouting::MostHeld() const {
  const auto E = static_cast<size_t>(spec_.experts), k = static_cast<size_t>(spec_.top_k);
  std::vector<int64_t> held(E, 0);
  std::vector<uint8_t> refuses(E, 0);
  for (size_t i = 0; i < result_.keep.size(); ++i) {
    const auto e = static_cast<size_t>(result_.indices[i]);
    held[e] += result_.keep[i];
    refuses[e] |= !result_.keep[i] && !batch_.padding[i / k];
  }
  int64_t most = 0;
  for (size_t e = 0; e < E; ++e) most = refuses[e] ? std::max(most, held[e]) : most;
  return most;
}

int64_t SyntheticRouting::dropped() const {
  int64_t dropped = 0;
  for (size_t i = 0; i < result_.keep.size(); ++i) {
    if (!batch_.padding[i / static_cast<size_t>(spec_.top_k)]) dropped += result_.keep[i] == 0;
  }
  return dropped;
}

// ---- truth by intervention ---------------------------------------------------------------------

std::vector<uint8_t> SyntheticRouting::Assignment(const RouterBatch& batch) const {
  return Route(batch, spec_.policy, parameters_).map;
}

void SyntheticRouting::Redraw(RouterBatch& batch, size_t row, const std::vector<size_t>& models,
                              int method, std::mt19937_64& rng) const {
  std::normal_distribution<double> normal;
  const auto E = static_cast<size_t>(spec_.experts);
  const size_t copy = models[rng() % models.size()];
  const double* model = &batch_.logits[copy * E];
  // In a flood all rows choose what the first model wanted least or most.
  const double* first = &batch_.logits[models[0] * E];
  const auto wanted = static_cast<size_t>(std::max_element(first, first + E) - first);
  for (size_t e = 0; e < E; ++e) {
    double x = 1.5 * model[e];
    if (method == 1) x = 2 * normal(rng);
    if (method == 2) x = normal(rng) + (e == wanted ? 5 : 0);
    batch.logits[row * E + e] = Round(x, spec_.dtype);
  }
  batch.token[row] = method == 0 ? batch_.token[copy] : rng() % 5000;
}

bool SyntheticRouting::Flips(int trials, bool other_sequence) const {
  std::mt19937_64 rng(spec_.seed ^ 0x9e3779b97f4a7c15);
  const std::vector<uint8_t> base = Assignment(batch_);
  const auto E = static_cast<size_t>(spec_.experts);
  const auto pick = [&](int n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
  for (int trial = 0; trial < trials; ++trial) {
    const int64_t target = 100 + pick(spec_.sequences);
    const int64_t other = 100 + pick(spec_.sequences);
    const int64_t cut = 1 + pick(std::max(1, spec_.length - 1));
    if (other_sequence && other == target) continue;
    std::vector<size_t> watched, changes;
    for (size_t t = 0; t < batch_.sequence.size(); ++t) {
      if (batch_.padding[t]) continue;
      const bool mine = batch_.sequence[t] == target;
      if (other_sequence ? mine : mine && batch_.position[t] < cut) watched.push_back(t);
      if (other_sequence ? batch_.sequence[t] == other : mine && batch_.position[t] >= cut)
        changes.push_back(t);
    }
    if (watched.empty() || changes.empty()) continue;
    std::shuffle(watched.begin(), watched.end(), rng);
    RouterBatch changed = batch_;
    for (size_t t : changes) Redraw(changed, t, watched, trial % 3, rng);
    const std::vector<uint8_t> now = Assignment(changed);
    for (size_t t : watched) {
      const auto begin = static_cast<std::ptrdiff_t>(t * E), end = begin + spec_.experts;
      if (!std::equal(base.begin() + begin, base.begin() + end, now.begin() + begin)) return true;
    }
  }
  return false;
}

bool SyntheticRouting::LeaksByIntervention(int trials) const { return Flips(trials, false); }
bool SyntheticRouting::FlipsByOtherSequence(int trials) const { return Flips(trials, true); }

bool SyntheticRouting::Nondeterministic() const {
  RouterParameters again = parameters_;
  again.run += 1;
  return Route(batch_, spec_.policy, again).map != result_.map;
}

}  // namespace plumbline::rules::testing
