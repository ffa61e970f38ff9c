#include "analysis/routing/call/own_choices.h"

#include "base/parallel.h"
#include "base/router/rows.h"

namespace plumbline::analysis {
namespace {

enum Flag : uint8_t { kFinite = 1, kTied = 2, kOrderKnown = 4 };

}  // namespace

OwnChoices::OwnChoices(const RouterRule& rule, const Matrix& scores, int64_t tokens,
                       const std::vector<double>& bias)
    : k_(static_cast<size_t>(rule.top_k)),
      expert_(static_cast<size_t>(tokens) * k_),
      flags_(static_cast<size_t>(tokens)) {
  const ScoreRows rows{scores.data(), rule.experts, 1, scores.dtype()};
  const auto bytes = static_cast<uint64_t>(tokens * rule.experts) * DTypeSize(scores.dtype());
  ParallelParts(tokens, ThreadsFor(bytes), [&](int, int64_t first, int64_t last) {
    RouterScratch scratch;
    RouterChoice choice;
    double x[kMaxExperts];
    for (int64_t t = first; t < last; ++t) {
      ReadRouterChoice(rule, rows, t, rule.has_bias ? bias.data() : nullptr, x, &scratch, &choice);
      Store(static_cast<size_t>(t), choice);
    }
  });
}

OwnChoices::Choice OwnChoices::Row(int64_t t) const {
  const auto row = static_cast<size_t>(t);
  const uint8_t flags = flags_[row];
  return {(flags & kFinite) != 0, (flags & kTied) != 0, (flags & kOrderKnown) != 0,
          std::span(expert_).subspan(row * k_, k_)};
}

void OwnChoices::Store(size_t row, const RouterChoice& choice) {
  if (!choice.finite) return;
  flags_[row] = static_cast<uint8_t>(kFinite | (choice.tied ? kTied : 0) |
                                     (choice.rank_order_known ? kOrderKnown : 0));
  for (size_t n = 0; n < k_; ++n) {
    expert_[row * k_ + n] = static_cast<int16_t>(choice.expert[n]);
  }
}

}  // namespace plumbline::analysis
