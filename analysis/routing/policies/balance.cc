#include "analysis/routing/policies/balance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "analysis/routing/call/call.h"

namespace plumbline::analysis {
namespace {

constexpr int64_t kMostScores = int64_t{1} << 25;  // more would take too long

// The rows of one pool whose choices are known.
struct Market {
  size_t experts = 0;
  std::vector<std::vector<double>> value;    // [rows][E]
  std::vector<std::vector<int32_t>> chosen;  // [rows], ascending
};

bool Usable(const RoutingCase& c, int32_t token) {
  const RowState state = c.rows[static_cast<size_t>(token)];
  return state == RowState::kExplained || state == RowState::kUnexplained;
}

std::vector<int32_t> UsableRows(const RoutingCase& c) {
  std::vector<int32_t> rows;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (Usable(c, t)) rows.push_back(t);
  }
  return rows;
}

std::vector<Market> MarketsOf(const RoutingCase& c) {
  std::vector<Market> markets(static_cast<size_t>(c.pools));
  for (Market& market : markets) market.experts = static_cast<size_t>(c.experts);
  for (size_t i = 0; i < c.choices.size();) {
    const int32_t token = c.choices[i].token;
    std::vector<int32_t> chosen;
    for (; i < c.choices.size() && c.choices[i].token == token; ++i) {
      chosen.push_back(c.choices[i].expert);
    }
    if (!Usable(c, token)) continue;
    std::sort(chosen.begin(), chosen.end());
    Market& market = markets[static_cast<size_t>(c.pool[static_cast<size_t>(token)])];
    std::vector<double> row(market.experts);
    for (size_t e = 0; e < row.size(); ++e) row[e] = c.scores.At(token, static_cast<int64_t>(e));
    market.value.push_back(std::move(row));
    market.chosen.push_back(std::move(chosen));
  }
  std::erase_if(markets, [](const Market& market) { return market.value.empty(); });
  return markets;
}

// Returns -log2 of the multinomial probability that uniform choices give loads as even as these,
// which differ by at most one.
double EvenBits(const int64_t* load, size_t experts) {
  int sign = 0;
  double total = 0, bits = 0, upper = 0;
  const int64_t least = *std::min_element(load, load + experts);
  for (size_t e = 0; e < experts; ++e) {
    total += static_cast<double>(load[e]);
    upper += load[e] > least;
    // std::lgamma writes a global variable.
    bits += lgamma_r(static_cast<double>(load[e]) + 1, &sign);
  }
  const auto all = static_cast<double>(experts);
  return (bits - lgamma_r(total + 1, &sign)) / std::numbers::ln2 + total * std::log2(all) -
         Log2Choose(all, upper);
}

// Loads count every row, including tied ones.
bool CheckEqual(const RoutingCase& c, double* bits) {
  const auto experts = static_cast<size_t>(c.experts);
  std::vector<int64_t> load(static_cast<size_t>(c.pools) * experts, 0);
  for (const Choice& choice : c.choices) ++load[CellOfToken(c, choice.token, choice.expert)];
  for (size_t pool = 0; pool < static_cast<size_t>(c.pools); ++pool) {
    const int64_t* first = &load[pool * experts];
    const auto [least, most] = std::minmax_element(first, first + experts);
    if (*most - *least > 1) return false;
    *bits += EvenBits(first, experts);
  }
  return true;
}

// ---- prices ----------------------------------------------------------------------------------

// Returns slack[e][f]: the smallest lead of a token's chosen expert e over its unchosen expert f.
// Prices explain every choice if p_e - p_f <= slack[e][f] + epsilon.
std::vector<double> Slack(const Market& market) {
  const size_t experts = market.experts;
  std::vector<double> slack(experts * experts, HUGE_VAL);
  std::vector<uint8_t> in(experts);
  for (size_t t = 0; t < market.value.size(); ++t) {
    std::fill(in.begin(), in.end(), uint8_t{0});
    for (int32_t e : market.chosen[t]) in[static_cast<size_t>(e)] = 1;
    for (int32_t chosen : market.chosen[t]) {
      const auto e = static_cast<size_t>(chosen);
      for (size_t f = 0; f < experts; ++f) {
        double& least = slack[e * experts + f];
        if (!in[f]) least = std::min(least, market.value[t][e] - market.value[t][f]);
      }
    }
  }
  return slack;
}

// Solves the difference constraints by Bellman-Ford. Returns false if there is a negative cycle:
// then no such prices exist.
bool SolvePrices(const std::vector<double>& slack, size_t experts, double epsilon,
                 std::vector<double>* price) {
  price->assign(experts, 0);
  for (size_t round = 0; round <= experts; ++round) {
    bool changed = false;
    for (size_t e = 0; e < experts; ++e) {
      for (size_t f = 0; f < experts; ++f) {
        const double bound = (*price)[f] + slack[e * experts + f] + epsilon;
        if (bound < (*price)[e] - 1e-12) {
          (*price)[e] = bound;
          changed = true;
        }
      }
    }
    if (!changed) return true;
  }
  return false;
}

// Returns the evidence for the prices in bits. Counts for every row how many experts would have
// been within epsilon of its choice. The bits are against a random choice of k among E, less E
// log2(rows) for the prices. If a choice is not explained, returns negative infinity.
double PriceBits(const Market& market, const std::vector<double>& price, double epsilon) {
  const auto experts = static_cast<double>(market.experts);
  double bits = -experts * std::log2(static_cast<double>(market.value.size()) + 1);
  for (size_t t = 0; t < market.value.size(); ++t) {
    const std::vector<double>& x = market.value[t];
    double least = HUGE_VAL;
    for (int32_t e : market.chosen[t]) {
      least = std::min(least, x[static_cast<size_t>(e)] - price[static_cast<size_t>(e)]);
    }
    double able = 0, above = 0;
    for (size_t e = 0; e < x.size(); ++e) {
      able += x[e] - price[e] >= least - epsilon;
      above += x[e] - price[e] > least + epsilon;
    }
    const auto k = static_cast<double>(market.chosen[t].size());
    if (above > k - 1) return -HUGE_VAL;
    bits += Log2Choose(experts, k) - Log2Choose(able, k);
  }
  return bits;
}

void FitPrices(const std::vector<Market>& markets, Balance& out) {
  for (bool loose : {false, true}) {
    double bits = 0;
    bool fits = true;
    double epsilon = 0;
    for (const Market& market : markets) {
      double low = HUGE_VAL, high = -HUGE_VAL;
      for (const auto& row : market.value) {
        const auto [least, most] = std::minmax_element(row.begin(), row.end());
        low = std::min(low, *least);
        high = std::max(high, *most);
      }
      // An auction stops within epsilon of the best; a 50th of the range is a usual epsilon.
      const double here = loose ? std::max((high - low) / 50, 1e-4) : 1e-6 * (high - low);
      std::vector<double> price;
      fits = SolvePrices(Slack(market), market.experts, here, &price);
      if (!fits) break;
      bits += PriceBits(market, price, here);
      epsilon = std::max(epsilon, here);
    }
    if (!fits || !(bits > out.price_bits)) continue;
    out.priced = true;
    out.price_bits = bits;
    out.epsilon = epsilon;
    return;
  }
}

// ---- optimal transport -----------------------------------------------------------------------

// Scales the rows and columns of exp(x) in turn until the columns are equal. Each row counts
// `weight` times.
class Transport {
 public:
  explicit Transport(const Market& market) : market_(market) {
    for (const auto& row : market.value) {
      const double most = *std::max_element(row.begin(), row.end());
      for (double x : row) kernel_.push_back(std::exp(x - most));
    }
  }

  // Scales rows and columns in turn, at most `rounds` times. Calls visit(prices, round) after each
  // round, which may stop it. Prices are minus the log of the column scalings.
  template <typename Visit>
  void Balance(const std::vector<double>& weight, int rounds, Visit visit) const {
    const size_t experts = market_.experts;
    double total = 0;
    for (double w : weight) total += w;
    std::vector<double> scale(experts, 1), column(experts), price(experts);
    for (int round = 1; round <= rounds; ++round) {
      std::fill(column.begin(), column.end(), 0);
      for (size_t t = 0; t < weight.size(); ++t) {
        if (weight[t] == 0) continue;
        const double* k = &kernel_[t * experts];
        double sum = 0;
        for (size_t e = 0; e < experts; ++e) sum += k[e] * scale[e];
        for (size_t e = 0; e < experts; ++e) column[e] += weight[t] / sum * k[e];
      }
      double change = 0;
      for (size_t e = 0; e < experts; ++e) {
        const double next = total / static_cast<double>(experts) / column[e];
        change = std::max(change, std::abs(std::log(next / scale[e])));
        scale[e] = next;
        price[e] = -std::log(next);
      }
      if (visit(price, round) || !(change > 1e-9)) return;
    }
  }

 private:
  const Market& market_;
  std::vector<double> kernel_;  // [rows, E]
};

// A generator of this library, so that verdicts are the same on every host.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

constexpr int kMostRounds = 200;
// Error of a price due to fp32 arithmetic.
constexpr double kTransportTolerance = 1e-4;

// Returns the number of rounds whose prices explain every choice of the market. If there is none,
// returns 0.
int RoundsThatExplain(const Market& market, const Transport& transport, double bits) {
  int found = 0;
  const std::vector<double> once(market.value.size(), 1);
  transport.Balance(once, kMostRounds, [&](const std::vector<double>& price, int round) {
    if (PriceBits(market, price, kTransportTolerance) >= bits) found = round;
    return found > 0;
  });
  return found;
}

bool TransportExplains(const std::vector<Market>& markets) {
  for (const Market& market : markets) {
    const Transport transport(market);
    const int rounds =
        RoundsThatExplain(market, transport, kProofBits / static_cast<double>(markets.size()));
    if (rounds == 0) return false;
    // If prices of resampled rows explain as much, the prices might have been stored.
    SplitMix random(0x706c756d62);
    std::vector<double> weight(market.value.size());
    bool another = false;
    for (int resample = 0; resample < 32 && !another; ++resample) {
      std::fill(weight.begin(), weight.end(), 0);
      for (size_t i = 0; i < weight.size(); ++i) ++weight[random.Next() % weight.size()];
      std::vector<double> last;
      transport.Balance(weight, rounds, [&](const std::vector<double>& price, int) {
        last = price;
        return false;
      });
      another = std::isfinite(PriceBits(market, last, kTransportTolerance));
    }
    if (another) return false;
  }
  return true;
}

// ---- tables ----------------------------------------------------------------------------------

// Returns true if the choices ignore the scores: round robin, blocks, or a function of the
// position.
bool Tabular(const RoutingCase& c) {
  std::vector<uint64_t> choice(static_cast<size_t>(c.tokens), 0);
  for (const Choice& made : c.choices) {
    choice[static_cast<size_t>(made.token)] +=
        SplitMix(static_cast<uint64_t>(made.expert) + 1).Next();
  }
  std::vector<uint64_t> rows;
  std::map<int64_t, uint64_t> at_position;
  bool position_decides = true, position_repeats = false;
  for (int32_t t = 0; t < c.tokens; ++t) {
    if (!Usable(c, t)) continue;
    const auto row = static_cast<size_t>(t);
    rows.push_back(choice[row]);
    const auto [entry, fresh] = at_position.try_emplace(c.position[row], choice[row]);
    position_repeats |= !fresh;
    position_decides &= entry->second == choice[row];
  }
  // If every position occurs once, some function of the position always fits.
  if (position_decides || !position_repeats) return true;
  int64_t runs = 1;
  for (size_t i = 1; i < rows.size(); ++i) runs += rows[i] != rows[i - 1];
  if (runs <= 2 * c.experts) return true;
  // Find the shortest period by the prefix function.
  std::vector<size_t> prefix(rows.size(), 0);
  for (size_t i = 1; i < rows.size(); ++i) {
    size_t k = prefix[i - 1];
    while (k > 0 && rows[i] != rows[k]) k = prefix[k - 1];
    prefix[i] = k + (rows[i] == rows[k] ? 1 : 0);
  }
  return !rows.empty() && rows.size() - prefix.back() <= rows.size() / 2;
}

}  // namespace

bool Balance::found() const {
  if (tabular) return false;
  const bool prices = equal && equal_bits >= kProofBits && priced && price_bits >= kProofBits;
  return (prices && !bias_possible) || sinkhorn;
}

bool Balance::as_a_bias() const { return !tabular && !found() && priced; }

Balance FindBalance(const RoutingCase& c) {
  Balance out;
  if (!c.ordered() || int64_t{c.tokens} * c.experts > kMostScores) return out;
  const std::vector<Market> markets = MarketsOf(c);
  if (markets.empty()) return out;
  out.tabular = Tabular(c);
  if (out.tabular) return out;
  const v1::RoutingConfig& config = c.routing->config();
  const bool bias_known =
      !c.bias.empty() && config.bias_captured() == v1::RoutingConfig::BIAS_CAPTURED_BEFORE;
  out.bias_possible = !bias_known && config.policy() != "balanced-assignment";
  out.equal = CheckEqual(c, &out.equal_bits);
  if (out.equal && out.equal_bits >= kProofBits) FitPrices(markets, out);
  if (!out.found())
    out.sinkhorn = TransportExplains(markets) && !RowsNearlyRepeat(c, UsableRows(c));
  return out;
}

}  // namespace plumbline::analysis
