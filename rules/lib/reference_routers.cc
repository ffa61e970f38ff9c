#include "rules/lib/reference_routers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace plumbline::rules {
namespace {

struct NamedPolicy {
  RouterPolicy policy;
  const char* name;
  bool leaks;
};
constexpr NamedPolicy kPolicies[] = {
    {RouterPolicy::kTokenChoice, "token-choice", false},
    {RouterPolicy::kFifo, "fifo-capacity", false},
    {RouterPolicy::kFifoChunks, "fifo-chunks", false},
    {RouterPolicy::kScore, "score-capacity", true},
    {RouterPolicy::kExpertChoice, "expert-choice", true},
    {RouterPolicy::kRankMajor, "rank-major-capacity", true},
    {RouterPolicy::kOwnThreshold, "own-threshold", false},
};

class Router {
 public:
  Router(const RouterBatch& batch, int64_t capacity)
      : b_(batch), capacity_(capacity), probs_(batch.logits.size()) {
    for (int32_t t = 0; t < b_.tokens; ++t) Softmax(t);
    out_.map.assign(probs_.size(), 0);
  }

  RouterResult Run(RouterPolicy policy, int chunks) {
    if (policy == RouterPolicy::kExpertChoice) {
      ExpertsChoose();
      return std::move(out_);
    }
    ChooseTopK();
    switch (policy) {
      case RouterPolicy::kFifo:
        Queue(b_.pool, false);
        break;
      case RouterPolicy::kFifoChunks:
        Queue(Chunked(chunks), false);
        break;
      case RouterPolicy::kRankMajor:
        Queue(b_.pool, true);
        break;
      case RouterPolicy::kScore:
        KeepBest();
        break;
      case RouterPolicy::kOwnThreshold:
        OwnThreshold();
        break;
      default:
        break;
    }
    for (int32_t t = 0; t < b_.tokens; ++t) {
      for (int32_t j = 0; j < b_.top_k; ++j) {
        if (out_.keep[Slot(t, j)]) out_.map[At(t, out_.indices[Slot(t, j)])] = 1;
      }
    }
    return std::move(out_);
  }

 private:
  size_t At(int32_t t, int32_t e) const {
    return static_cast<size_t>(t) * static_cast<size_t>(b_.experts) + static_cast<size_t>(e);
  }
  size_t Slot(int32_t t, int32_t j) const {
    return static_cast<size_t>(t) * static_cast<size_t>(b_.top_k) + static_cast<size_t>(j);
  }
  bool Padding(int32_t t) const {
    return !b_.padding.empty() && b_.padding[static_cast<size_t>(t)] != 0;
  }

  void Softmax(int32_t t) {
    const double* x = &b_.logits[At(t, 0)];
    const double max = *std::max_element(x, x + b_.experts);
    double sum = 0;
    for (int32_t e = 0; e < b_.experts; ++e) sum += std::exp(x[e] - max);
    for (int32_t e = 0; e < b_.experts; ++e) probs_[At(t, e)] = std::exp(x[e] - max) / sum;
  }

  void ChooseTopK() {
    std::vector<int32_t> order(static_cast<size_t>(b_.experts));
    out_.indices.resize(static_cast<size_t>(b_.tokens) * static_cast<size_t>(b_.top_k));
    out_.keep.assign(out_.indices.size(), 1);
    for (int32_t t = 0; t < b_.tokens; ++t) {
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return b_.logits[At(t, a)] > b_.logits[At(t, b)];
      });
      for (int32_t j = 0; j < b_.top_k; ++j) {
        out_.indices[Slot(t, j)] = order[static_cast<size_t>(j)];
        if (Padding(t)) out_.keep[Slot(t, j)] = 0;  // padding is not dispatched
      }
    }
  }

  std::vector<int32_t> Chunked(int chunks) const {
    const int32_t length = (b_.tokens + chunks - 1) / chunks;
    std::vector<int32_t> pool(b_.pool);
    for (int32_t t = 0; t < b_.tokens; ++t)
      pool[static_cast<size_t>(t)] = pool[static_cast<size_t>(t)] * chunks + t / length;
    return pool;
  }

  int32_t Pools(const std::vector<int32_t>& pool) const {
    return *std::max_element(pool.begin(), pool.end()) + 1;
  }

  void Queue(const std::vector<int32_t>& pool, bool rank_major) {
    std::vector<int64_t> held(static_cast<size_t>(Pools(pool)) * static_cast<size_t>(b_.experts),
                              0);
    const auto offer = [&](int32_t t, int32_t j) {
      if (!out_.keep[Slot(t, j)]) return;
      int64_t& load =
          held[static_cast<size_t>(pool[static_cast<size_t>(t)]) * static_cast<size_t>(b_.experts) +
               static_cast<size_t>(out_.indices[Slot(t, j)])];
      out_.keep[Slot(t, j)] = load < capacity_;
      load += load < capacity_;
    };
    if (rank_major) {
      for (int32_t j = 0; j < b_.top_k; ++j) {
        for (int32_t t = 0; t < b_.tokens; ++t) offer(t, j);
      }
      return;
    }
    for (int32_t t = 0; t < b_.tokens; ++t) {
      for (int32_t j = 0; j < b_.top_k; ++j) offer(t, j);
    }
  }

  void KeepBest() {
    struct Wish {
      double score;
      size_t slot;
    };
    std::vector<std::vector<Wish>> cells(static_cast<size_t>(Pools(b_.pool)) *
                                         static_cast<size_t>(b_.experts));
    for (int32_t t = 0; t < b_.tokens; ++t) {
      for (int32_t j = 0; j < b_.top_k; ++j) {
        if (!out_.keep[Slot(t, j)]) continue;
        const int32_t e = out_.indices[Slot(t, j)];
        cells[static_cast<size_t>(b_.pool[static_cast<size_t>(t)]) *
                  static_cast<size_t>(b_.experts) +
              static_cast<size_t>(e)]
            .push_back({probs_[At(t, e)], Slot(t, j)});
      }
    }
    for (auto& cell : cells) {
      std::stable_sort(cell.begin(), cell.end(),
                       [](const Wish& a, const Wish& b) { return a.score > b.score; });
      for (size_t i = static_cast<size_t>(capacity_); i < cell.size(); ++i)
        out_.keep[cell[i].slot] = 0;
    }
  }

  void ExpertsChoose() {
    for (int32_t pool = 0; pool < Pools(b_.pool); ++pool) {
      std::vector<int32_t> members;
      for (int32_t t = 0; t < b_.tokens; ++t) {
        if (b_.pool[static_cast<size_t>(t)] == pool && !Padding(t)) members.push_back(t);
      }
      for (int32_t e = 0; e < b_.experts; ++e) {
        std::vector<int32_t> order = members;
        std::stable_sort(order.begin(), order.end(),
                         [&](int32_t a, int32_t b) { return probs_[At(a, e)] > probs_[At(b, e)]; });
        const auto taken = std::min(order.size(), static_cast<size_t>(capacity_));
        for (size_t i = 0; i < taken; ++i) out_.map[At(order[i], e)] = 1;
      }
    }
  }

  void OwnThreshold() {
    for (int32_t t = 0; t < b_.tokens; ++t) {
      const double best = probs_[At(t, out_.indices[Slot(t, 0)])];
      for (int32_t j = 0; j < b_.top_k; ++j) {
        if (probs_[At(t, out_.indices[Slot(t, j)])] < 0.5 * best) out_.keep[Slot(t, j)] = 0;
      }
    }
  }

  const RouterBatch& b_;
  int64_t capacity_;
  std::vector<double> probs_;
  RouterResult out_;
};

}  // namespace

RouterResult Route(const RouterBatch& batch, RouterPolicy policy, int64_t capacity, int chunks) {
  return Router(batch, capacity).Run(policy, chunks);
}

bool PolicyLeaks(RouterPolicy policy) {
  return std::any_of(std::begin(kPolicies), std::end(kPolicies), [&](const NamedPolicy& named) {
    return named.policy == policy && named.leaks;
  });
}

const char* PolicyName(RouterPolicy policy) {
  for (const NamedPolicy& named : kPolicies) {
    if (named.policy == policy) return named.name;
  }
  return "?";
}

bool ParsePolicy(const std::string& name, RouterPolicy* policy) {
  for (const NamedPolicy& named : kPolicies) {
    if (name != named.name) continue;
    *policy = named.policy;
    return true;
  }
  return false;
}

}  // namespace plumbline::rules
