#include "rules/lib/routing_keys.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/half.h"

namespace plumbline::rules {
namespace {

double Sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
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
  const bool softmax = logits && c.routing->config().score_function() == v1::SCORE_SOFTMAX;
  std::vector<KeyKind> kinds;
  if (softmax) kinds.push_back(KeyKind::kSoftmax);
  kinds.push_back(KeyKind::kRecorded);
  if (logits && !softmax) kinds.push_back(KeyKind::kSoftmax);
  // Over one choice every share is 1: nothing to rank by.
  if (c.top_k > 1 && logits) kinds.push_back(KeyKind::kSoftmaxChosen);
  if (c.top_k > 1) kinds.push_back(KeyKind::kShareOfChosen);
  if (c.probs.present()) kinds.push_back(KeyKind::kProbs);
  return kinds;
}

KeyReader::KeyReader(const RoutingCase& c, KeyKind kind)
    : case_(c), kind_(kind), logits_(c.routing->sample().scores_are_logits()) {
  if (kind == KeyKind::kRecorded || kind == KeyKind::kProbs) return;
  const auto rows = static_cast<size_t>(c.tokens);
  row_max_.assign(rows, -HUGE_VAL);
  row_sum_.assign(rows, 0);
  row_delta_.assign(rows, 0);
  kind == KeyKind::kSoftmax ? SumOverAll() : SumOverChosen();
}

void KeyReader::SumOverAll() {
  for (int32_t t = 0; t < case_.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    for (int32_t e = 0; e < case_.experts; ++e) {
      const double x = case_.scores.At(t, e);
      row_max_[row] = std::max(row_max_[row], x);
      row_delta_[row] = std::max(row_delta_[row], UlpOf(x, case_.scores.dtype()));
    }
    for (int32_t e = 0; e < case_.experts; ++e)
      row_sum_[row] += std::exp(case_.scores.At(t, e) - row_max_[row]);
  }
}

void KeyReader::SumOverChosen() {
  for (const Choice& choice : case_.choices) {
    const double x = case_.scores.At(choice.token, choice.expert);
    const auto row = static_cast<size_t>(choice.token);
    row_max_[row] = std::max(row_max_[row], x);
    row_delta_[row] = std::max(row_delta_[row], UlpOf(x, case_.scores.dtype()));
  }
  for (const Choice& choice : case_.choices) {
    const double x = case_.scores.At(choice.token, choice.expert);
    const auto row = static_cast<size_t>(choice.token);
    if (kind_ == KeyKind::kSoftmaxChosen) {
      row_sum_[row] += std::exp(x - row_max_[row]);
    } else {
      row_sum_[row] += logits_ ? Sigmoid(x) : x;
    }
  }
}

Key KeyReader::At(int32_t token, int32_t expert, int16_t rank) const {
  if (kind_ == KeyKind::kProbs) {
    const bool by_rank = case_.probs.columns() != case_.experts;
    const double p = case_.probs.At(token, by_rank ? std::max<int16_t>(rank, 0) : expert);
    return {p, UlpOf(p, case_.probs.dtype())};
  }
  const double x = case_.scores.At(token, expert);
  const double delta = UlpOf(x, case_.scores.dtype());
  if (kind_ == KeyKind::kRecorded) return {x, delta};
  const auto row = static_cast<size_t>(token);
  double value = 0;
  double carried = 0;
  if (kind_ == KeyKind::kShareOfChosen && !logits_) {
    value = x / row_sum_[row];
    carried = (delta + value * case_.top_k * row_delta_[row]) / row_sum_[row];
  } else {
    value = (kind_ == KeyKind::kShareOfChosen ? Sigmoid(x) : std::exp(x - row_max_[row])) /
            row_sum_[row];
    carried = value * (delta + row_delta_[row]);
  }
  return {value, carried + 2 * UlpOf(value, DType::kF32)};
}

}  // namespace plumbline::rules
