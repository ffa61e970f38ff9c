#include "routers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace moe {
namespace {

void Softmax(Routing& r) {
  r.scores.resize(r.logits.size());
  for (int t = 0; t < r.tokens; ++t) {
    const float* x = &r.logits[static_cast<size_t>(t) * static_cast<size_t>(r.experts)];
    float* p = &r.scores[static_cast<size_t>(t) * static_cast<size_t>(r.experts)];
    const float top = *std::max_element(x, x + r.experts);
    float sum = 0;
    for (int e = 0; e < r.experts; ++e) sum += p[e] = std::exp(x[e] - top);
    for (int e = 0; e < r.experts; ++e) p[e] /= sum;
  }
}

void Choose(Routing& r) {
  std::vector<int32_t> order(static_cast<size_t>(r.experts));
  for (int t = 0; t < r.tokens; ++t) {
    const float* x = &r.logits[static_cast<size_t>(t) * static_cast<size_t>(r.experts)];
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + r.top_k, order.end(),
                      [x](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
    r.indices.insert(r.indices.end(), order.begin(), order.begin() + r.top_k);
  }
  r.keep.assign(r.indices.size(), 1);
}

// Makes each expert keep its first C choices in the order of `queue`, which lists choices (row * k
// + j).
void KeepFirst(Routing& r, const std::vector<int32_t>& queue) {
  std::vector<int64_t> served(static_cast<size_t>(r.experts), 0);
  for (int32_t choice : queue) {
    int64_t& place = served[static_cast<size_t>(r.indices[static_cast<size_t>(choice)])];
    r.keep[static_cast<size_t>(choice)] = place++ < r.capacity;
  }
}

float ScoreOf(const Routing& r, int32_t choice) {
  const auto row = static_cast<size_t>(choice / r.top_k);
  const auto expert = static_cast<size_t>(r.indices[static_cast<size_t>(choice)]);
  return r.scores[row * static_cast<size_t>(r.experts) + expert];
}

}  // namespace

Policy PolicyOf(const std::string& name) {
  if (name == "dropless") return Policy::kDropless;
  if (name == "fifo") return Policy::kFifo;
  if (name == "score-drop") return Policy::kScoreDrop;
  throw std::invalid_argument("--router is " + name + "; expected dropless, fifo or score-drop");
}

double Routing::dropped() const {
  const auto refused = std::count(keep.begin(), keep.end(), 0);
  return static_cast<double>(refused) / static_cast<double>(keep.size());
}

Routing Route(Policy policy, std::vector<float> logits, int experts, int top_k,
              double capacity_factor) {
  Routing r;
  r.tokens = static_cast<int>(logits.size()) / experts;
  r.experts = experts;
  r.top_k = top_k;
  r.logits = std::move(logits);
  Softmax(r);
  Choose(r);
  r.policy = policy == Policy::kDropless ? "token-choice"
             : policy == Policy::kFifo   ? "fifo-capacity"
                                         : "score-capacity";
  if (policy == Policy::kDropless) return r;
  r.capacity = static_cast<int64_t>(std::ceil(capacity_factor * r.tokens * top_k / experts));
  std::vector<int32_t> queue(r.indices.size());
  std::iota(queue.begin(), queue.end(), 0);
  if (policy == Policy::kScoreDrop) {
    std::stable_sort(queue.begin(), queue.end(),
                     [&r](int32_t a, int32_t b) { return ScoreOf(r, a) > ScoreOf(r, b); });
  }
  KeepFirst(r, queue);
  return r;
}

}  // namespace moe
