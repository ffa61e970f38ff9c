#include "analysis/routing/call/keys.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "base/parallel.h"
#include "base/router/rows.h"

namespace plumbline::analysis {
namespace {

double Sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

bool Divides(KeyKind kind) { return kind != KeyKind::kRecorded && kind != KeyKind::kProbs; }

// Returns one ulp of a recorded value. A masked expert's -inf is exact.
double Rounding(double x, DType dtype) { return IsMasked(x) ? 0 : UlpOf(x, dtype); }

// Returns the part of the key that is summed: exponentials, or plain scores (sigmoids of logits).
double Share(const RoutingCase& c, KeyKind kind, const KeyScale& row, double x) {
  if (kind != KeyKind::kShareOfChosen) return std::exp(x - row.max);
  return c.routing->sample().scores_are_logits() ? Sigmoid(x) : x;
}

// `visit_all(visit)` calls visit(x) for every expert in the sum of the row's key.
template <typename VisitAll>
KeyScale ScaleOver(const RoutingCase& c, KeyKind kind, VisitAll visit_all) {
  KeyScale row{-HUGE_VAL, 0, 0};
  visit_all([&](double x) {
    row.max = std::max(row.max, x);
    row.delta = std::max(row.delta, Rounding(x, c.scores.dtype()));
  });
  visit_all([&](double x) { row.sum += Share(c, kind, row, x); });
  return row;
}

KeyScale ScaleOverRow(const RoutingCase& c, KeyKind kind, int32_t token) {
  return ScaleOver(c, kind, [&](auto visit) {
    for (int32_t e = 0; e < c.experts; ++e) visit(c.scores.At(token, e));
  });
}

KeyScale ScaleOverChosen(const RoutingCase& c, KeyKind kind, std::span<const Choice> row) {
  return ScaleOver(c, kind, [&](auto visit) {
    for (const Choice& choice : row) visit(c.scores.At(choice.token, choice.expert));
  });
}

// Computes the scale of one row.
KeyScale ScaleOf(const RoutingCase& c, KeyKind kind, int32_t token) {
  if (kind == KeyKind::kSoftmax) return ScaleOverRow(c, kind, token);
  return ScaleOverChosen(c, kind, c.ChoicesOf(token));
}

// Returns a share divided by the row's sum. Its rounding `delta` is propagated to first order:
// relative for exponentials and sigmoids, absolute for plain scores; plus two fp32 ulp for the
// function itself.
Key Divided(const RoutingCase& c, KeyKind kind, const KeyScale& row, double share, double delta) {
  const double value = share / row.sum;
  const bool plain = kind == KeyKind::kShareOfChosen && !c.routing->sample().scores_are_logits();
  const double carried =
      plain ? (delta + value * c.top_k * row.delta) / row.sum : value * (delta + row.delta);
  return {value, carried + 2 * UlpOf(value, DType::kF32)};
}

Key KeyOf(const RoutingCase& c, KeyKind kind, const KeyScale& row, int32_t token, int32_t expert,
          int16_t rank) {
  if (kind == KeyKind::kProbs) {
    const bool by_rank = c.probs.columns() != c.experts;
    const double p = c.probs.At(token, by_rank ? std::max<int16_t>(rank, 0) : expert);
    return {p, UlpOf(p, c.probs.dtype())};
  }
  const double x = c.scores.At(token, expert);
  const double delta = Rounding(x, c.scores.dtype());
  if (kind == KeyKind::kRecorded) return {x, delta};
  return Divided(c, kind, row, Share(c, kind, row, x), delta);
}

bool ProbsVary(const RoutingCase& c) {
  for (int32_t t = 1; t < c.tokens; ++t) {
    if (c.probs.At(t, 0) != c.probs.At(0, 0)) return true;
  }
  return false;
}

}  // namespace

const char* KeyName(KeyKind kind) {
  switch (kind) {
    case KeyKind::kRecorded:
      return "recorded scores";
    case KeyKind::kSoftmax:
      return "softmax";
    case KeyKind::kSoftmaxChosen:
      return "softmax over the chosen";
    case KeyKind::kShareOfChosen:
      return "scores normalised over the chosen";
    case KeyKind::kProbs:
      return "probs";
  }
  return "?";
}

std::vector<KeyKind> KeyKinds(const RoutingCase& c) {
  const bool logits = c.routing->sample().scores_are_logits();
  // Over one expert a softmax is always 1, so it is not a key.
  const bool several = c.experts > 1;
  const bool softmax =
      several && logits && c.routing->config().score_function() == v1::SCORE_SOFTMAX;
  std::vector<KeyKind> kinds;
  if (softmax) kinds.push_back(KeyKind::kSoftmax);
  kinds.push_back(KeyKind::kRecorded);
  if (several && logits && !softmax) kinds.push_back(KeyKind::kSoftmax);
  // Over one choice every share is 1, so it cannot rank.
  if (c.top_k > 1 && logits) kinds.push_back(KeyKind::kSoftmaxChosen);
  if (c.top_k > 1) kinds.push_back(KeyKind::kShareOfChosen);
  if (c.probs.present() && (several || ProbsVary(c))) kinds.push_back(KeyKind::kProbs);
  return kinds;
}

struct RowKeyReader::Softmax {
  RouterRule rule;
  ScoreRows rows;
  RouterScratch scratch;
  double x[kMaxExperts];
};

RowKeyReader::RowKeyReader(const RoutingCase& c, KeyKind kind) : case_(c), kind_(kind) {
  if (kind != KeyKind::kSoftmax) return;
  softmax_ = std::make_unique<Softmax>();
  softmax_->rule.experts = c.experts;
  softmax_->rule.top_k = 1;
  softmax_->rule.dtype = c.scores.dtype();
  softmax_->rows = {c.scores.data(), c.experts, 1, c.scores.dtype()};
}

RowKeyReader::~RowKeyReader() = default;

// Uses the vectorised code.
KeyScale RowKeyReader::SoftmaxScale(int32_t token) {
  KeyScale scale;
  if (case_.softmax != nullptr && case_.softmax->Get(token, &scale)) return scale;
  Softmax& s = *softmax_;
  const RowScale row = ReadRouterScale(s.rule, s.rows, token, s.x, &s.scratch);
  scale = row.finite ? KeyScale{row.max, row.sum, UlpOf(row.abs_max, s.rule.dtype)}
                     : ScaleOverRow(case_, KeyKind::kSoftmax, token);
  if (case_.softmax != nullptr) case_.softmax->Put(token, scale);
  return scale;
}

KeyScale RowKeyReader::Scale(int32_t token) {
  if (!Divides(kind_)) return {};
  return kind_ == KeyKind::kSoftmax ? SoftmaxScale(token)
                                    : ScaleOverChosen(case_, kind_, case_.ChoicesOf(token));
}

// Computes KeyOf for each choice, with each share computed once.
void RowKeyReader::DivideOverChosen(int32_t token) {
  KeyScale scale{-HUGE_VAL, 0, 0};
  for (const Choice& choice : case_.ChoicesOf(token)) {
    const double x = case_.scores.At(token, choice.expert);
    keys_.push_back({x, Rounding(x, case_.scores.dtype())});
    scale.max = std::max(scale.max, x);
    scale.delta = std::max(scale.delta, keys_.back().tolerance);
  }
  for (Key& key : keys_) {
    key.value = Share(case_, kind_, scale, key.value);
    scale.sum += key.value;
  }
  for (Key& key : keys_) key = Divided(case_, kind_, scale, key.value, key.tolerance);
}

const std::vector<Key>& RowKeyReader::Keys(int32_t token) {
  keys_.clear();
  if (Divides(kind_) && kind_ != KeyKind::kSoftmax) {
    DivideOverChosen(token);
    return keys_;
  }
  const KeyScale scale = Scale(token);
  for (const Choice& choice : case_.ChoicesOf(token)) {
    keys_.push_back(KeyOf(case_, kind_, scale, token, choice.expert, choice.rank));
  }
  return keys_;
}

KeyReader::KeyReader(const RoutingCase& c, KeyKind kind) : case_(c), kind_(kind) {
  if (!Divides(kind)) return;
  rows_.resize(static_cast<size_t>(c.tokens));
  const int threads = ThreadsFor(c.routing->sample().scores().data().size());
  ParallelParts(c.tokens, threads, [&](int, int64_t first, int64_t last) {
    RowKeyReader reader(c, kind);
    for (auto t = static_cast<int32_t>(first); t < last; ++t) {
      rows_[static_cast<size_t>(t)] = reader.Scale(t);
    }
  });
}

Key KeyReader::At(int32_t token, int32_t expert, int16_t rank) const {
  static constexpr KeyScale kNone;
  return KeyOf(case_, kind_, rows_.empty() ? kNone : rows_[static_cast<size_t>(token)], token,
               expert, rank);
}

double KeyValue(const RoutingCase& c, KeyKind kind, int32_t token, int32_t expert, int16_t rank) {
  return KeyOf(c, kind, Divides(kind) ? ScaleOf(c, kind, token) : KeyScale{}, token, expert, rank)
      .value;
}

}  // namespace plumbline::analysis
