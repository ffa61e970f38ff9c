// Random router calls: every dtype, stride pattern, score function, group limit and record.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "base/half.h"
#include "base/load.h"
#include "kernels/routing/routing.h"

namespace plumbline {

inline void StoreNumber(double v, DType t, unsigned char* at) {
  const auto put = [&](auto x) { std::memcpy(at, &x, sizeof(x)); };
  switch (t) {
    case DType::kF64:
      return put(v);
    case DType::kF32:
      return put(static_cast<float>(v));
    case DType::kF16:
      return put(FloatToF16(static_cast<float>(v)));
    case DType::kBF16:
      return put(FloatToBF16(static_cast<float>(v)));
    case DType::kI64:
    case DType::kU64:
      return put(static_cast<int64_t>(v));
    case DType::kI32:
    case DType::kU32:
      return put(static_cast<int32_t>(v));
    case DType::kI16:
    case DType::kU16:
      return put(static_cast<int16_t>(v));
    default:
      return put(static_cast<int8_t>(v));
  }
}

// A call and the memory of its views. Views stay valid when a case is moved.
struct RoutingCase {
  RoutingInput in;
  std::deque<std::vector<unsigned char>> storage;
};

enum class Layout { kDense, kTransposed, kNegative, kPadded, kUnaligned };

// Makes a tensor of the values f(i, j) (columns < 0: a vector) in a layout, with NaN-like bytes in
// the gaps.
inline TensorView MakeTensor(RoutingCase* c, DType t, int64_t rows, int64_t columns, Layout layout,
                             const std::function<double(int64_t, int64_t)>& f) {
  const int64_t width = columns < 0 ? 1 : columns;
  TensorView v;
  v.dtype = t;
  v.rank = columns < 0 ? 1 : 2;
  v.shape = {rows, width};
  int64_t origin = 0;
  int64_t elements = rows * width;
  v.stride = {width, 1};
  if (layout == Layout::kTransposed) v.stride = {1, rows};
  if (layout == Layout::kNegative) {
    v.stride = {-width, -1};
    origin = rows * width - 1;
  }
  if (layout == Layout::kPadded) {
    v.stride = {2 * width + 3, 2};
    elements = rows * (2 * width + 3);
  }
  if (v.rank == 1) v.shape[1] = v.stride[1] = 0;
  const auto size = static_cast<int64_t>(DTypeSize(t));
  const int64_t skew = layout == Layout::kUnaligned ? 1 : 0;
  c->storage.emplace_back(static_cast<size_t>(elements * size + skew), 0xff);
  unsigned char* base = c->storage.back().data() + skew + origin * size;
  v.data = base;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      StoreNumber(f(i, j), t, base + (i * v.stride[0] + j * v.stride[1]) * size);
    }
  }
  return v;
}

struct CaseOptions {
  bool aligned = false;      // device memory is aligned
  int64_t max_tokens = 700;  // more than two tiles
};

class CaseMaker {
 public:
  explicit CaseMaker(uint32_t seed, CaseOptions options = {}) : random_(seed), options_(options) {}

  RoutingCase Make() {
    RoutingCase c;
    const int sizes[] = {1, 2, 5, 8, 16, 32, 33, 60, 64, 96, 128, 200, 256, 512};
    experts_ = sizes[Below(14)];
    tokens_ = 1 + Below(Chance(4) ? static_cast<int>(options_.max_tokens) : 40);
    Rule(&c.in);
    Scores(&c);
    Record(&c);
    Columns(&c);
    return c;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool Chance(int one_in) { return Below(one_in) == 0; }
  Layout AnyLayout() { return static_cast<Layout>(Below(options_.aligned ? 4 : 5)); }
  DType AnyInteger() {
    const DType t[] = {DType::kI64, DType::kI32, DType::kI16,
                       DType::kU64, DType::kU32, DType::kU16};
    return t[Below(6)];
  }
  DType AnyMask() { return Chance(2) ? DType::kBool : DType::kU8; }

  void Rule(RoutingInput* in) {
    in->score_function = static_cast<ScoreFunction>(Below(3));
    in->scores_are_logits = !Chance(4);
    int admitted = experts_;
    for (int g : {16, 8, 5, 3, 2}) {
      if (Chance(4) && experts_ % g == 0) {
        in->groups = g;
        in->top_groups = 1 + Below(g);
        in->group_score = static_cast<GroupScore>(Below(3));
        admitted = in->top_groups < g ? experts_ / g * in->top_groups : experts_;
        break;
      }
    }
    in->top_k = 1 + Below(std::min(admitted, Chance(8) ? kMaxTopK : 9));
  }

  void Scores(RoutingCase* c) {
    const DType types[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
    const DType t = types[Below(4)];
    const double scale = Chance(3) ? 0.02 : 2;
    const bool coarse = Chance(3);                    // many exact ties
    const bool poisoned = Chance(3);                  // some rows are non-finite
    const int masked = Chance(3) ? 1 + Below(6) : 0;  // one in this many scores is -inf
    std::normal_distribution<double> normal(0, scale);
    const auto value = [&](int64_t, int64_t) {
      if (poisoned && Below(10 * experts_) == 0) {
        const double bad[] = {NAN, INFINITY, -INFINITY};
        return bad[Below(3)];
      }
      if (masked > 0 && Chance(1 + masked)) return -double{INFINITY};
      double v = normal(random_);
      if (coarse) v = std::round(v * 4) / 4;
      if (!c->in.scores_are_logits && c->in.score_function != ScoreFunction::kIdentity) {
        v = std::fabs(v) / (1 + std::fabs(v));
      }
      return v;
    };
    c->in.scores = MakeTensor(c, t, tokens_, experts_, AnyLayout(), value);
    if (Chance(10)) c->in.scores.stride[0] = 0;  // one row broadcast over all tokens
    if (Chance(2)) {
      const DType bias = Chance(2) ? DType::kF32 : DType::kBF16;
      c->in.expert_bias = MakeTensor(c, bias, experts_, -1, AnyLayout(), [&](int64_t, int64_t) {
        return Chance(200) && poisoned ? NAN : 0.1 * normal(random_);
      });
    }
  }

  // Returns roughly the choice of the scores, so that some rows are explained by them and some are
  // not.
  std::vector<int64_t> RoughChoice(const RoutingInput& in, int64_t row) {
    std::vector<int64_t> order(static_cast<size_t>(experts_));
    for (int i = 0; i < experts_; ++i) order[static_cast<size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const double va = DoubleAt(in.scores, row, a);
      const double vb = DoubleAt(in.scores, row, b);
      return (std::isnan(va) ? -1e300 : va) > (std::isnan(vb) ? -1e300 : vb);
    });
    order.resize(static_cast<size_t>(in.top_k));
    if (Chance(6)) order[static_cast<size_t>(Below(in.top_k))] = Below(experts_);
    return order;
  }

  void Record(RoutingCase* c) {
    const int kind = Below(5);  // none, indices, indices + keep, indices + map, map
    if (kind == 0) return;
    const int k = c->in.top_k;
    std::vector<std::vector<int64_t>> chosen;
    for (int64_t row = 0; row < tokens_; ++row) chosen.push_back(RoughChoice(c->in, row));
    const auto at = [&](int64_t i, int64_t j) {
      return chosen[static_cast<size_t>(i)][static_cast<size_t>(j)];
    };
    if (kind <= 3) {
      const DType t = AnyInteger();
      const bool none = t == DType::kI64 || t == DType::kI32 || t == DType::kI16;
      c->in.topk_indices = MakeTensor(c, t, tokens_, k, AnyLayout(), [&](int64_t i, int64_t j) {
        return none && Chance(12) ? -1.0 : static_cast<double>(at(i, j));
      });
    }
    if (kind == 2) {
      c->in.keep_mask = MakeTensor(c, AnyMask(), tokens_, k, AnyLayout(),
                                   [&](int64_t, int64_t) { return Chance(5) ? 0 : 1; });
    }
    if (kind >= 3) {
      c->in.routing_map =
          MakeTensor(c, AnyMask(), tokens_, experts_, AnyLayout(), [&](int64_t i, int64_t e) {
            const auto& row = chosen[static_cast<size_t>(i)];
            return std::find(row.begin(), row.end(), e) != row.end() && !Chance(6) ? 1 : 0;
          });
    }
    if (Chance(2)) {
      const bool by_expert = Chance(2);
      c->in.probs = MakeTensor(c, DType::kF32, tokens_, by_expert ? experts_ : k, AnyLayout(),
                               [&](int64_t, int64_t) { return Chance(8) ? 0 : 0.25; });
    }
  }

  void Columns(RoutingCase* c) {
    if (Chance(2)) {
      c->in.padding_mask = MakeTensor(c, AnyMask(), tokens_, -1, AnyLayout(),
                                      [&](int64_t, int64_t) { return Chance(5) ? 1 : 0; });
    }
    if (Chance(2)) {
      const int length = 1 + Below(90);
      c->in.position = MakeTensor(c, AnyInteger(), tokens_, -1, AnyLayout(),
                                  [&](int64_t i, int64_t) { return i % length; });
      c->in.sequence_id = MakeTensor(c, AnyInteger(), tokens_, -1, AnyLayout(),
                                     [&](int64_t i, int64_t) { return i / length; });
    }
    if (Chance(2)) {
      const int pools = Chance(5) ? 200 : 1 + Below(9);  // more than are measured, or few
      c->in.pool_id = MakeTensor(c, AnyInteger(), tokens_, -1, AnyLayout(),
                                 [&](int64_t i, int64_t) { return i * 7 % pools; });
    }
  }

  std::mt19937 random_;
  CaseOptions options_;
  int experts_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace plumbline
