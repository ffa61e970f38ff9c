#include "tests/rules/attack/parts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace plumbline::rules::attack {

std::vector<int> Best(const double* x, int experts, int k) {
  std::vector<int> order(S(experts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[a] > x[b]; });
  order.resize(S(std::min(k, experts)));
  return order;
}

Call Blank(const Lab& lab, const Rows& rows) {
  Call call;
  call.scores = rows.x;
  call.k = lab.k();
  call.policy = "token-choice";
  call.index.assign(S(rows.count) * S(call.k), -1);
  call.keep.assign(call.index.size(), 0);
  call.map.assign(S(rows.count) * S(rows.experts), 0);
  return call;
}

void Choose(Call& call, int t, const std::vector<int>& experts) {
  for (size_t j = 0; j < experts.size() && j < S(call.k); ++j) {
    call.index[S(t) * S(call.k) + j] = experts[j];
    call.keep[S(t) * S(call.k) + j] = 1;
  }
}

void Finish(const Rows& rows, Call& call) {
  call.map.assign(S(rows.count) * S(rows.experts), 0);
  for (size_t i = 0; i < call.index.size(); ++i) {
    if (call.index[i] >= 0 && call.keep[i])
      call.map[i / S(call.k) * S(rows.experts) + S(call.index[i])] = 1;
  }
}

Call TopK(const Lab& lab, const Rows& rows, const std::vector<double>& scores) {
  Call call = Blank(lab, rows);
  for (int t = 0; t < rows.count; ++t)
    Choose(call, t, Best(&scores[S(t) * S(rows.experts)], rows.experts, call.k));
  Finish(rows, call);
  return call;
}
Call TopK(const Lab& lab, const Rows& rows) { return TopK(lab, rows, rows.x); }

Call Map(const Lab& lab, const Rows& rows, const std::function<bool(int t, int e)>& taken) {
  Call call = Blank(lab, rows);
  call.index.clear();
  call.keep.clear();
  call.function = v1::SCORE_IDENTITY;
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e) call.map[S(t) * S(rows.experts) + S(e)] = taken(t, e);
  }
  return call;
}

int64_t Places(const Lab& lab, const Call& call, int64_t rows, int experts) {
  const double even = static_cast<double>(rows) * call.k / experts;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(lab.factor() * even)));
}

namespace {

struct Request_ {
  double place;
  int t;
  size_t choice;
};

// Keeps the `capacity` requests with the lowest order per expert and pool.
void Refuse(const Rows& rows, const Order& order, Call& call) {
  std::map<std::pair<int, int>, std::vector<Request_>> cells;
  for (size_t i = 0; i < call.index.size(); ++i) {
    if (call.index[i] < 0 || !call.keep[i]) continue;
    const int t = static_cast<int>(i / S(call.k)), j = static_cast<int>(i % S(call.k));
    const int pool = call.pool.empty() ? 0 : call.pool[S(t)];
    cells[{pool, call.index[i]}].push_back({order(t, j, call.index[i]), t, i});
  }
  for (auto& [cell, requests] : cells) {
    std::stable_sort(requests.begin(), requests.end(),
                     [](const Request_& a, const Request_& b) { return a.place < b.place; });
    for (size_t n = S(call.capacity); n < requests.size(); ++n) call.keep[requests[n].choice] = 0;
  }
  Finish(rows, call);
}

}  // namespace

Call Limited(const Lab& lab, const Rows& rows, Call call, const Order& order, const char* policy) {
  call.capacity = Places(lab, call, rows.count, rows.experts);
  call.policy = policy;
  Refuse(rows, order, call);
  return call;
}

Call LimitedBySequence(const Lab& lab, const Rows& rows, Call call, const Order& order,
                       const char* policy) {
  for (int64_t sequence : rows.sequence) call.pool.push_back(static_cast<int>(sequence));
  const auto pools = 1 + *std::max_element(call.pool.begin(), call.pool.end());
  call.capacity = Places(lab, call, rows.count / pools, rows.experts);
  call.policy = policy;
  Refuse(rows, order, call);
  return call;
}

Call Along(const Rows& rows, Call call, const Admit& admit) {
  std::vector<int64_t> held(S(rows.experts), 0);
  for (size_t i = 0; i < call.index.size(); ++i) {
    if (call.index[i] < 0 || !call.keep[i]) continue;
    const int t = static_cast<int>(i / S(call.k)), j = static_cast<int>(i % S(call.k));
    call.keep[i] = admit(t, j, call.index[i], held);
    held[S(call.index[i])] += call.keep[i];
  }
  Finish(rows, call);
  return call;
}

std::vector<std::vector<int>> BySequence(const Rows& rows) {
  std::map<int64_t, std::vector<int>> lists;
  for (int t = 0; t < rows.count; ++t) lists[rows.sequence[S(t)]].push_back(t);
  std::vector<std::vector<int>> out;
  for (auto& [sequence, list] : lists) {
    std::sort(list.begin(), list.end(),
              [&](int a, int b) { return rows.position[S(a)] < rows.position[S(b)]; });
    out.push_back(std::move(list));
  }
  return out;
}

std::vector<double> FromPrefix(const Rows& rows, const Prefix& fill) {
  std::vector<double> x = rows.x;
  for (const std::vector<int>& list : BySequence(rows)) {
    std::vector<int> before;
    for (int t : list) {
      fill(before, t, &x[S(t) * S(rows.experts)]);
      before.push_back(t);
    }
  }
  return x;
}

double Softmax(const Rows& rows, int t, int e) {
  double sum = 0;
  for (int i = 0; i < rows.experts; ++i) sum += std::exp(rows.At(t, i) - rows.At(t, e));
  return 1 / sum;
}

double Mean(const Rows& rows, int t) {
  double sum = 0;
  for (int e = 0; e < rows.experts; ++e) sum += rows.At(t, e);
  return sum / rows.experts;
}

std::vector<double> Balanced(const Rows& rows, int k, int rounds) {
  std::vector<double> bias(S(rows.experts), 0), x(S(rows.experts));
  double step = 0.2;
  for (int round = 0; round < rounds; ++round, step *= 0.97) {
    std::vector<double> load(S(rows.experts), 0);
    for (int t = 0; t < rows.count; ++t) {
      for (int e = 0; e < rows.experts; ++e) x[S(e)] = rows.At(t, e) + bias[S(e)];
      for (int e : Best(x.data(), rows.experts, k)) ++load[S(e)];
    }
    const double even = static_cast<double>(rows.count) * k / rows.experts;
    for (size_t e = 0; e < load.size(); ++e)
      bias[e] += step * (load[e] < even ? 1 : load[e] > even ? -1 : 0);
  }
  return bias;
}

}  // namespace plumbline::rules::attack
