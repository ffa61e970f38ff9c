#include "analysis/routing/train_infer/join.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

constexpr double kGateDifference = 0.01;  // share of the larger gate
constexpr uint64_t kFewScored = 16;
constexpr uint64_t kFewRenumbered = 64;  // tokens
// Some choices flip by rounding. A moved expert has its new number in 90 % of its tokens, and its
// old one in less than 50 %. Ordinary flips of both sides, and chance, give neither.
constexpr double kFits = 0.9, kStaysEqual = 0.5;
constexpr uint64_t kFewOfExpert = 16;  // tokens

bool Complete(const RoutedToken& t) {
  return std::find(t.chosen.begin(), t.chosen.end(), int16_t{-1}) == t.chosen.end();
}

std::vector<int16_t> SetOf(const RoutedToken& t) {
  std::vector<int16_t> set = t.chosen;
  std::sort(set.begin(), set.end());
  return set;
}

// Appends the values at the two experts on the edge of a's choice, minus those of b. If an expert
// is not among b's best, it is further away than any that is.
void EdgeDifferences(const RoutedToken& a, const RoutedToken& b, size_t k,
                     std::vector<double>* out) {
  for (size_t i = k - 1; i <= k && i < a.ranked.size(); ++i) {
    const auto at = std::find_if(b.ranked.begin(), b.ranked.end(), [&](const EdgeScore& e) {
      return e.expert == a.ranked[i].expert;
    });
    out->push_back(at == b.ranked.end() ? kInfinity
                                        : std::fabs(double{a.ranked[i].value} - double{at->value}));
  }
}

bool ChoseItsBest(const RoutedToken& t) {
  return t.ranked.size() >= t.chosen.size() &&
         std::all_of(t.chosen.begin(), t.chosen.end(), [&](int16_t expert) {
           const auto end = t.ranked.begin() + static_cast<std::ptrdiff_t>(t.chosen.size());
           return std::any_of(t.ranked.begin(), end,
                              [&](const EdgeScore& e) { return e.expert == expert; });
         });
}

// Returns true if the noise of this one token explains its flip. Tokens have unequal noise (scales
// of fp8 and int8, outlier channels), so the layer's median difference does not bound it. Let s be
// the root mean square of the differences of the n experts that both sides chose or both left out.
// If the token's noise is equal for all experts, a flip with smaller margin m needs a difference of
// 2 m between two of them. Then 2 m > 8 * 0.6745 s (1 + 28 / n^2), for a factor of 4, has a chance
// of 1e-3 by Student's t with n degrees of freedom. Noise of more than an eighth of the layer's
// spread is no rounding (int8 with one channel 60 times the others has that): s exceeds it by the
// factor 1 + 2.3 / sqrt(n) with a chance of 1e-3 by chi-square. If n is 0, only this counts.
bool OwnNoiseExplains(const RoutedToken& a, const RoutedToken& b, double factor, double spread) {
  if (!ChoseItsBest(a) || !ChoseItsBest(b)) return false;
  const auto chose = [](const RoutedToken& t, int16_t expert) {
    return std::find(t.chosen.begin(), t.chosen.end(), expert) != t.chosen.end();
  };
  double all = 0, squares = 0, common = 0, n = 0;
  for (const EdgeScore& here : a.ranked) {
    const auto there = std::find_if(b.ranked.begin(), b.ranked.end(),
                                    [&](const EdgeScore& e) { return e.expert == here.expert; });
    if (there == b.ranked.end()) continue;
    const double square = std::pow(double{here.value} - double{there->value}, 2);
    all += square;
    ++common;
    if (chose(a, here.expert) != chose(b, here.expert)) continue;
    squares += square;
    ++n;
  }
  const double noise = n > 0 ? std::sqrt(squares / n) : std::sqrt(all / common);
  if (!(noise <= spread / 8 * (1 + 2.3 / std::sqrt(n > 0 ? n : common)))) return false;
  return n == 0 || std::min(a.margin, b.margin) <= factor * 0.6745 * (1 + 28 / (n * n)) * noise;
}

double Median(std::vector<double>& v) {
  if (v.empty()) return 0;
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

class Comparer {
 public:
  Comparer(const RoutedSide& train, const RoutedSide& infer, double factor)
      : train_(train), infer_(infer), factor_(factor) {}

  RoutingComparison Run() {
    c_.experts = train_.experts;
    c_.top_k = train_.top_k;
    c_.blocked = Blocked();
    if (!c_.blocked.empty()) return std::move(c_);
    Join();
    c_.joined = pairs_.size();
    if (pairs_.empty()) {
      c_.blocked = "nothing-joins: no token has the same sequence and position on both sides";
      return std::move(c_);
    }
    c_.unmarked = Unmarked();
    if (c_.unmarked.empty()) MeasureDifference();
    if (c_.blocked.empty()) Compare();
    return std::move(c_);
  }

 private:
  struct Joined {
    const RoutedToken* train;
    const RoutedToken* infer;
  };

  std::string Blocked() const {
    if (!train_.blocked.empty()) return absl::StrCat(train_.blocked, " (training)");
    if (!infer_.blocked.empty()) return absl::StrCat(infer_.blocked, " (inference)");
    if (train_.key != infer_.key) {
      return "keys-differ: training and inference redacted their ids with different keys, or only "
             "one redacted them; set PLUMBLINE_REDACT_KEY on both";
    }
    if (train_.experts != infer_.experts || train_.top_k != infer_.top_k) {
      return absl::StrCat("shapes-differ: training chooses ", train_.top_k, " of ", train_.experts,
                          " experts, inference ", infer_.top_k, " of ", infer_.experts);
    }
    for (const RoutedSide* side : {&train_, &infer_}) {
      if (100 * side->conflicting > side->rows) {
        return absl::StrCat(
            "ids-repeat: ", side->conflicting, " of ", side->rows, " rows of ",
            side == &train_ ? "training" : "inference",
            " share a sequence and position with another row that is routed differently");
      }
    }
    return "";
  }

  std::string Unmarked() const {
    if (train_.kind.empty() || infer_.kind.empty()) {
      return absl::StrCat("no-scores: ", train_.kind.empty() ? "training" : "inference",
                          " recorded no scores, so that a flip has no margin");
    }
    if (train_.kind != infer_.kind) {
      return absl::StrCat("scores-differ-in-kind: training recorded ", train_.kind, ", inference ",
                          infer_.kind);
    }
    return "";
  }

  void Join() {
    auto b = infer_.tokens.begin();
    for (const RoutedToken& a : train_.tokens) {
      while (b != infer_.tokens.end() && b->key < a.key) ++b;
      if (b == infer_.tokens.end()) break;
      if (b->key == a.key) pairs_.push_back({&a, &*b});
    }
  }

  void MeasureDifference() {
    const auto k = static_cast<size_t>(train_.top_k);
    std::vector<Joined> scored;
    for (const Joined& p : pairs_) {
      if (!p.train->ranked.empty() && !p.infer->ranked.empty()) scored.push_back(p);
    }
    c_.scored = scored.size();
    if (2 * c_.scored < c_.joined || c_.scored < kFewScored) {
      c_.unmarked = absl::StrCat("non-finite: only ", c_.scored, " of ", c_.joined,
                                 " tokens have finite scores on both sides");
      return;
    }
    std::vector<double> own, other;
    for (size_t i = 0; i < scored.size(); ++i) {
      const RoutedToken& a = *scored[i].train;
      const RoutedToken& b = *scored[i].infer;
      EdgeDifferences(a, b, k, &own);
      EdgeDifferences(b, a, k, &own);
      const RoutedToken& far = *scored[(i + scored.size() / 2) % scored.size()].infer;
      EdgeDifferences(a, far, k, &other);
      EdgeDifferences(far, a, k, &other);
    }
    c_.difference = Median(own);
    for (const bool train : {true, false}) {
      std::vector<double> spreads;
      for (const Joined& p : scored) spreads.push_back((train ? p.train : p.infer)->spread);
      c_.spread = std::max(c_.spread, Median(spreads));
    }
    c_.unrelated = Median(other);
    if (c_.difference > 0 && !(c_.difference < 0.5 * c_.unrelated)) {
      c_.blocked =
          "not-the-same-tokens: after joining by ids, the scores of the two sides are not closer "
          "than those of unrelated tokens (wrong ids, very different weights, or active noise)";
    }
  }

  void Compare() {
    double overlap = 0;
    std::vector<double> margins;
    for (const Joined& p : pairs_) {
      Sentinel(p);
      ZeroGates(p);
      const bool complete = Complete(*p.train) && Complete(*p.infer);
      const bool scored = !p.train->ranked.empty() && !p.infer->ranked.empty();
      if (!complete || !(scored || !c_.unmarked.empty()) || SetOf(*p.train) != SetOf(*p.infer))
        c_.diverged.push_back(p.train->key);
      if (!complete) continue;
      ++c_.compared;
      const std::vector<int16_t> a = SetOf(*p.train);
      const std::vector<int16_t> b = SetOf(*p.infer);
      std::vector<int16_t> both;
      std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
      overlap += static_cast<double>(both.size()) / static_cast<double>(a.size());
      if (a == b) {
        SameSet(p);
        continue;
      }
      ++c_.flips;
      if (!c_.unmarked.empty() || !scored) continue;
      const double margin = std::min(p.train->margin, p.infer->margin);
      margins.push_back(margin);
      if (p.train->tied || p.infer->tied || !(margin > factor_ * c_.difference)) continue;
      if (OwnNoiseExplains(*p.train, *p.infer, factor_, c_.spread)) {
        ++c_.noisy_flips;
        continue;
      }
      ++c_.large_flips;
      c_.large.push_back({*p.train, *p.infer, true});
    }
    if (c_.compared > 0) c_.overlap = overlap / static_cast<double>(c_.compared);
    c_.median_flip_margin = Median(margins);
    if (c_.flips > 0) Renumbering();
    if (c_.flips > 0 && c_.renumbered == 0) RenumberingWithFlips();
    if (train_.whole && infer_.whole) Lengths();
  }

  // Each expert's new number is in inference's choice for every token that training sends to it.
  void Renumbering() {
    std::map<int16_t, std::vector<int16_t>> numbers;
    uint64_t tokens = 0;
    for (const Joined& p : pairs_) {
      if (!Complete(*p.train) || !Complete(*p.infer)) continue;
      ++tokens;
      const std::vector<int16_t> there = SetOf(*p.infer);
      for (const int16_t expert : p.train->chosen) {
        const auto [at, fresh] = numbers.try_emplace(expert, there);
        if (!fresh)
          std::erase_if(at->second, [&](int16_t e) {
            return !std::binary_search(there.begin(), there.end(), e);
          });
        if (at->second.empty()) return;
      }
    }
    std::set<int16_t> taken;
    uint64_t moved = 0;
    for (const auto& [expert, there] : numbers) {
      if (there.size() != 1) continue;  // seen in too few tokens
      if (!taken.insert(there[0]).second) return;
      if (there[0] == expert) continue;
      if (moved++ > 0) continue;
      c_.renumbered_from = expert;
      c_.renumbered_to = there[0];
    }
    const bool known = 2 * taken.size() > numbers.size();
    if (tokens >= kFewRenumbered && known) c_.renumbered = moved;
  }

  // The same, for sides that also flip some choices.
  void RenumberingWithFlips() {
    std::map<int16_t, std::map<int16_t, uint64_t>> together;
    std::map<int16_t, uint64_t> seen;
    uint64_t tokens = 0;
    for (const Joined& p : pairs_) {
      if (!Complete(*p.train) || !Complete(*p.infer)) continue;
      ++tokens;
      for (const int16_t a : p.train->chosen) {
        ++seen[a];
        for (const int16_t b : p.infer->chosen) ++together[a][b];
      }
    }
    std::set<int16_t> taken;
    uint64_t moved = 0, fits = 0, of = 0;
    for (const auto& [expert, there] : together) {
      const auto count = static_cast<double>(seen[expert]);
      if (seen[expert] < kFewOfExpert) continue;
      std::vector<int16_t> numbers;
      for (const auto& [number, times] : there) {
        if (static_cast<double>(times) >= kFits * count) numbers.push_back(number);
      }
      const auto own = there.find(expert);
      const bool stays =
          own != there.end() && static_cast<double>(own->second) >= kStaysEqual * count;
      if (stays) numbers.assign(1, expert);
      if (numbers.size() != 1) continue;
      if (!taken.insert(numbers[0]).second) return;
      fits += there.at(numbers[0]);
      of += seen[expert];
      if (stays || moved++ > 0) continue;
      c_.renumbered_from = expert;
      c_.renumbered_to = numbers[0];
    }
    if (moved < 2 || tokens < kFewRenumbered || 2 * taken.size() <= seen.size()) return;
    c_.renumbered = moved;
    c_.renumbered_fit = static_cast<double>(fits) / static_cast<double>(of);
  }

  void SameSet(const Joined& p) {
    if (p.train->chosen != p.infer->chosen) {
      ++c_.order_only;
      return;
    }
    if (p.train->gates.empty() || p.infer->gates.empty()) return;
    bool differs = false;
    for (size_t j = 0; j < p.train->gates.size(); ++j) {
      const double g = p.train->gates[j];
      const double h = p.infer->gates[j];
      const double d = std::fabs(g - h);
      if (d > c_.largest_gate_difference) c_.largest_gate_difference = d;
      differs = differs || !(d <= kGateDifference * std::max(std::fabs(g), std::fabs(h)));
    }
    if (differs) ++c_.weight_only;
  }

  // The last token of a sequence is sampled and never passes through the model again.
  bool LastOfSequence(const RoutedToken& t) const {
    const auto at = train_.sequences.find(t.key.sequence);
    return at == train_.sequences.end() || t.key.position >= at->second.last;
  }

  void Sentinel(const Joined& p) {
    if (Complete(*p.infer) || !Complete(*p.train) || LastOfSequence(*p.train)) return;
    if (c_.sentinels++ == 0) c_.first_sentinel = {*p.train, *p.infer, true};
  }

  void ZeroGates(const Joined& p) {
    if (p.train->gates.empty() || p.infer->gates.empty()) return;
    if (p.train->zero_gates == p.infer->zero_gates) return;
    const RoutedToken& other = p.train->zero_gates ? *p.infer : *p.train;
    const bool weighted =
        std::any_of(other.gates.begin(), other.gates.end(), [](float g) { return g != 0; });
    if (!weighted) return;
    if (c_.zero_gates++ == 0) c_.first_zero = {*p.train, *p.infer, true};
  }

  // Checks sequences that training has without a gap: inference must have the same positions,
  // possibly without the last one.
  void Lengths() {
    for (const auto& [id, t] : train_.sequences) {
      const auto at = infer_.sequences.find(id);
      if (at == infer_.sequences.end() || t.rows != t.last - t.first + 1) continue;
      const Extent& i = at->second;
      const bool full = i.first == t.first && i.last >= t.last - 1 && i.last <= t.last &&
                        i.rows >= i.last - i.first + 1;
      if (full || i.rows > t.rows) continue;
      if (c_.short_sequences++ > 0) continue;
      c_.short_sequence = id;
      c_.short_rows = i.rows;
      c_.short_of = t.rows;
    }
  }

  const RoutedSide& train_;
  const RoutedSide& infer_;
  double factor_;
  RoutingComparison c_;
  std::vector<Joined> pairs_;
};

}  // namespace

RoutingComparison CompareRouting(const RoutedSide& train, const RoutedSide& infer, double factor) {
  RoutingComparison c = SameButForFunction(train, infer)
                            ? Comparer(InLogits(train, infer), InLogits(infer, train), factor).Run()
                            : Comparer(train, infer, factor).Run();
  if (!c.blocked.empty()) return c;
  c.rules = CompareRules(train, infer);
  c.rule_example = {c.rules.train, c.rules.infer, c.rules.shown > 0};
  for (RoutedToken* t : {&c.rule_example.train, &c.rule_example.infer}) t->row.clear();
  return c;
}

}  // namespace plumbline::analysis
