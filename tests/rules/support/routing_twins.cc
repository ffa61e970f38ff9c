#include "tests/rules/support/routing_twins.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

namespace plumbline::rules::testing {
namespace {

// One row's choice of an expert, in the order of a queue. Padding uses the capacity that it was
// given.
struct Query {
  size_t row;  // place in the queue
  int64_t position;
  int32_t expert;
  int32_t pool;
  size_t rank;
  bool kept;
  bool padding;
};
using Queries = std::vector<Query>;

Queries QueriesInOrder(const SyntheticRouting& routing, bool by_position) {
  const RouterBatch& batch = routing.batch();
  const RouterResult& result = routing.result();
  const auto k = static_cast<size_t>(batch.top_k);
  std::vector<size_t> order(static_cast<size_t>(batch.tokens));
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto key = [&](size_t t) {
      const int64_t p = batch.position[t], q = batch.sequence[t];
      return by_position ? std::make_pair(p, q) : std::make_pair(q, p);
    };
    return key(a) < key(b);
  });
  Queries queries;
  for (size_t place = 0; place < order.size(); ++place) {
    for (size_t j = 0; j < k; ++j) {
      const size_t t = order[place], slot = t * k + j;
      queries.push_back({place, batch.position[t], result.indices[slot], result.pool[t], j,
                         result.keep[slot] != 0, batch.padding[t] != 0});
    }
  }
  return queries;
}

double LogBinomial(double n, double k) {
  return (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(2.0);
}

// ---- first come first served -------------------------------------------------------------------

// Returns true if the choices from `begin` to `end` can be one queue with one capacity.
bool OneQueue(const Queries& queries, size_t begin, size_t end) {
  std::map<int32_t, std::pair<int64_t, bool>> experts;  // number held, whether it refuses
  for (size_t i = begin; i < end; ++i) {
    auto& [held, refuses] = experts[queries[i].expert];
    if (queries[i].kept) {
      if (refuses && !queries[i].padding) return false;
      ++held;
    } else if (!queries[i].padding) {
      refuses = true;
    }
  }
  int64_t capacity = -1, most = 0;
  for (const auto& [expert, state] : experts) {
    most = std::max(most, state.first);
    if (!state.second) continue;
    if (capacity >= 0 && state.first != capacity) return false;
    capacity = state.first;
  }
  return capacity < 0 || (capacity > 0 && most <= capacity);
}

// Returns the smallest number of pieces of a cut into queues. Each piece is as long as possible,
// because what begins a longer piece also begins a shorter one.
std::optional<int64_t> FewestPieces(const Queries& queries, size_t rows, size_t k) {
  std::vector<int64_t> pieces(rows + 1, -1);
  pieces[0] = 0;
  size_t reach = 0;
  for (size_t from = 0; from <= reach && from < rows; ++from) {
    for (size_t to = std::max(from, reach); to < rows; ++to) {
      if (!OneQueue(queries, from * k, (to + 1) * k)) break;
      pieces[to + 1] = pieces[from] + 1;
      reach = to + 1;
    }
  }
  if (reach < rows) return std::nullopt;
  return pieces[rows];
}

bool PiecesTwin(const Queries& queries, const SyntheticRouting& routing) {
  const auto rows = static_cast<size_t>(routing.batch().tokens);
  const auto pieces = FewestPieces(queries, rows, static_cast<size_t>(routing.batch().top_k));
  if (!pieces) return false;
  std::map<int32_t, std::pair<double, double>> cells;  // kept, refused
  for (const Query& query : queries) {
    if (!query.padding) ++(query.kept ? cells[query.expert].first : cells[query.expert].second);
  }
  double sets = 0;
  for (const auto& [expert, n] : cells) sets += LogBinomial(n.first + n.second, n.first);
  const auto n = static_cast<double>(*pieces);
  const double cuts = LogBinomial(static_cast<double>(rows) - 1, n - 1);
  return cuts + n * std::log2(static_cast<double>(routing.capacity())) < sets;
}

// Returns true for a queue and capacity per choice rank, or one queue over the first choices only.
bool RanksTwin(const Queries& queries, size_t k) {
  bool each = true;
  for (size_t r = 0; r < k; ++r) {
    Queries of_rank;
    std::copy_if(queries.begin(), queries.end(), std::back_inserter(of_rank),
                 [&](const Query& query) { return query.rank == r; });
    each = each && OneQueue(of_rank, 0, of_rank.size());
  }
  for (size_t first = 1; first < k && !each; ++first) {
    Queries used;
    std::copy_if(queries.begin(), queries.end(), std::back_inserter(used),
                 [&](const Query& query) { return query.rank < first; });
    const bool unused = std::none_of(queries.begin(), queries.end(), [&](const Query& query) {
      return query.rank >= first && query.kept && !query.padding;
    });
    each = unused && OneQueue(used, 0, used.size());
  }
  return each;
}

// ---- a table -----------------------------------------------------------------------------------

// Returns -log2 of the binomial probability of exactly `kept` of n.
double ExactlyBits(double n, double kept) {
  if (kept <= 0 || kept >= n) return 0;
  const double p = kept / n;
  return -LogBinomial(n, kept) - kept * std::log2(p) - (n - kept) * std::log2(1 - p);
}

struct Cell {
  double kept = 0, refused = 0, last = 0;  // the last run of refusals
};
using Cells = std::map<std::pair<int32_t, int32_t>, Cell>;  // by pool, expert

Cells CountCells(const Queries& queries) {
  Cells cells;
  for (const Query& query : queries) {
    Cell& cell = cells[{query.pool, query.expert}];
    if (query.kept) cell.last = 0;
    if (query.padding) continue;
    ++(query.kept ? cell.kept : cell.refused);
    cell.last += query.kept ? 0 : 1;
  }
  return cells;
}

bool TableTwin(const Queries& queries) {
  std::map<std::pair<int64_t, int32_t>, bool> table;  // by position, expert
  for (const Query& query : queries) {
    if (query.padding) continue;
    if (table.try_emplace({query.position, query.expert}, query.kept).first->second != query.kept)
      return false;
  }
  std::map<int32_t, Cell> entries;
  for (const auto& [at, kept] : table)
    ++(kept ? entries[at.second].kept : entries[at.second].refused);
  std::map<int32_t, std::set<size_t>> rows;
  for (const Query& query : queries) {
    if (!query.padding) rows[query.pool].insert(query.row);
  }
  double count_bits = 0, fit_bits = 0;
  for (const auto& [at, cell] : CountCells(queries)) {
    const double all = cell.kept + cell.refused;
    if (cell.refused == 0) continue;
    // The candidates are drawn from the pool's rows without replacement.
    const double others = 1 - all / static_cast<double>(rows[at.first].size());
    const double exactly = ExactlyBits(all, cell.kept) + 0.5 * std::log2(others);
    count_bits += std::max(exactly - std::log2(cell.last + 1), 0.0);
    fit_bits += LogBinomial(all, cell.kept);
  }
  for (const auto& [expert, n] : entries) fit_bits -= LogBinomial(n.kept + n.refused, n.kept);
  return fit_bits >= 8 && count_bits < 7;
}

// ---- own refusals, then first come first served
// ---------------------------------------------------

double Entropy(double kept, double refused) {  // bits of all of them at the likeliest rate
  if (kept == 0 || refused == 0) return 0;
  const double n = kept + refused;
  return -kept * std::log2(kept / n) - refused * std::log2(refused / n);
}

// Returns true if own draws thin an expert's choices up to its last admission, at a rate per
// expert, or at one that depends on how full it is. Later choices find no free capacity.
bool ThinnedTwin(const Queries& queries) {
  constexpr double kBits = 7;
  constexpr size_t kLevels = 8;
  struct Queue {
    std::vector<uint8_t> kept;  // in order
    double all = 0;             // number of kept choices
  };
  std::map<std::pair<int32_t, int32_t>, Queue> queues;  // pool, expert
  for (const Query& query : queries) {
    if (query.padding) continue;
    Queue& queue = queues[{query.pool, query.expert}];
    queue.kept.push_back(query.kept);
    queue.all += query.kept;
  }
  double drawn = 0, by_expert = 0, by_level = 0;
  std::array<std::pair<double, double>, kLevels> levels{};  // kept, refused
  for (auto& [key, queue] : queues) {
    const auto n = static_cast<double>(queue.kept.size());
    if (queue.all == 0 || queue.all == n) continue;
    drawn += LogBinomial(n, queue.all);
    while (!queue.kept.back()) queue.kept.pop_back();
    by_expert += Entropy(queue.all, static_cast<double>(queue.kept.size()) - queue.all);
    double before = 0;
    for (const uint8_t kept : queue.kept) {
      auto& level = levels[static_cast<size_t>(kLevels * before / queue.all)];
      ++(kept ? level.first : level.second);
      before += kept;
    }
  }
  for (const auto& [kept, refused] : levels) by_level += Entropy(kept, refused);
  return drawn > 0 && std::min(by_expert, by_level) < drawn + kBits;
}

}  // namespace

std::string CausalTwin(const SyntheticRouting& routing) {
  if (routing.result().indices.empty()) return "";
  for (bool by_position : {false, true}) {
    const Queries queries = QueriesInOrder(routing, by_position);
    if (PiecesTwin(queries, routing)) return "first come first served over pieces";
    if (RanksTwin(queries, static_cast<size_t>(routing.batch().top_k)))
      return "first come first served by choice rank";
    if (TableTwin(queries)) return "a table of positions";
    if (ThinnedTwin(queries)) return kThinned;
  }
  return "";
}

}  // namespace plumbline::rules::testing
