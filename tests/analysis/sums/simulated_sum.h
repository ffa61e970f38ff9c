// Black boxes for the tests: replayed models, and direct code independent of models.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "analysis/sums/random.h"
#include "analysis/sums/sum_model.h"

namespace plumbline::sums {

// Returns the tree that adds the last two addends first.
inline SummationTree RightFold(int n) {
  SummationTree tree(n);
  int sum = n - 1;
  for (int i = n - 2; i >= 0; --i) sum = tree.Join({sum, i});
  return tree;
}

// Returns a target with the results of the model's replay.
inline Target TargetOf(const SumModel& model) {
  auto owned = std::make_shared<SumModel>(model);
  auto replay = std::make_shared<Replay>(*owned);
  Target target;
  target.name = "simulated";
  target.kind = model.kind;
  target.n = model.tree.leaves();
  target.input = model.input;
  target.output = model.output;
  target.call = [owned, replay](absl::Span<const double> a, absl::Span<const double> b, double* y) {
    *y = replay->Run(a, b);
    return absl::OkStatus();
  };
  return target;
}

// Returns a target from direct code.
inline Target TargetOf(
    Kind kind, int n, DType input, DType output,
    std::function<double(absl::Span<const double>, absl::Span<const double>)> sum) {
  Target target;
  target.name = "code";
  target.kind = kind;
  target.n = n;
  target.input = input;
  target.output = output;
  target.call = [sum](absl::Span<const double> a, absl::Span<const double> b, double* y) {
    *y = sum(a, b);
    return absl::OkStatus();
  };
  return target;
}

// Returns a fast target: f32 additions in tree order, nodes of several children truncated to 24
// fraction bits.
inline Target QuickTarget(const SummationTree& tree) {
  struct Code {
    std::vector<int> children;
    std::vector<int> ends;
    std::vector<float> values;
  };
  auto code = std::make_shared<Code>();
  for (int i = tree.leaves(); i <= tree.root(); ++i) {
    for (const int child : tree.node(i).children) code->children.push_back(child);
    code->ends.push_back(static_cast<int>(code->children.size()));
  }
  const auto n = static_cast<size_t>(tree.leaves());
  code->values.resize(n + code->ends.size());
  Target target;
  target.n = tree.leaves();
  target.call = [code, n](absl::Span<const double> a, absl::Span<const double>, double* y) {
    float* v = code->values.data();
    for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>(a[i]);
    size_t at = 0;
    for (size_t i = 0; i < code->ends.size(); ++i) {
      const auto end = static_cast<size_t>(code->ends[i]);
      if (end - at == 2) {
        v[n + i] = v[code->children[at]] + v[code->children[at + 1]];
      } else {
        float top = 0;
        for (size_t k = at; k < end; ++k) top = std::max(top, std::abs(v[code->children[k]]));
        const double unit = top == 0 ? 1 : std::ldexp(1.0, std::ilogb(top) - 24);
        double sum = 0;
        for (size_t k = at; k < end; ++k) {
          sum += static_cast<double>(static_cast<int64_t>(v[code->children[k]] / unit));
        }
        v[n + i] = static_cast<float>(sum * unit);
      }
      at = end;
    }
    *y = v[n + code->ends.size() - 1];
    return absl::OkStatus();
  };
  return target;
}

// Returns a random tree: nodes of two children and, with probability `wide`, up to six.
inline SummationTree RandomTree(int n, double wide, uint64_t seed) {
  Random random(seed);
  SummationTree tree(n);
  std::vector<int> parts;
  for (int i = 0; i < n; ++i) parts.push_back(i);
  while (parts.size() > 1) {
    size_t count = random.Uniform() < wide ? 3 + static_cast<size_t>(random.Below(4)) : 2;
    count = std::min(count, parts.size());
    std::vector<int> children;
    for (size_t k = 0; k < count; ++k) {
      const auto at = static_cast<size_t>(random.Below(static_cast<int>(parts.size())));
      children.push_back(parts[at]);
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
    }
    parts.push_back(tree.Join(children));
  }
  return tree;
}

// Returns a sequential chain of blocks of `block` addends, as in a tensor core.
inline SummationTree BlockChain(int n, int block) {
  SummationTree tree(n);
  int sum = -1;
  for (int i = 0; i < n; i += block) {
    std::vector<int> children;
    if (sum >= 0) children.push_back(sum);
    for (int k = i; k < std::min(n, i + block); ++k) children.push_back(k);
    sum = children.size() == 1 ? children[0] : tree.Join(children);
  }
  return tree;
}

inline Target BareTarget(Kind kind, int n, DType input, DType output) {
  Target target;
  target.kind = kind;
  target.n = n;
  target.input = input;
  target.output = output;
  return target;
}

}  // namespace plumbline::sums
