// Routers in production use, at realistic layer sizes, recorded by the configuration and the
// adapters of python/plumbline.
#include "tests/rules/attack/real.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/rules/attack/parts.h"

namespace plumbline::rules::attack {
namespace {

// The shape of a real layer, used instead of the lab shape.
struct Layer {
  int experts, k, sequences, length;
  double factor = 0;
};

Rows TextOf(const Lab& lab, const Layer& layer) {
  Rows rows;
  rows.experts = layer.experts;
  rows.count = layer.sequences * layer.length;
  for (int t = 0; t < rows.count; ++t) {
    rows.sequence.push_back(t / layer.length);
    rows.position.push_back(t % layer.length);
    rows.symbol.push_back(0);
    for (int e = 0; e < layer.experts; ++e) {
      rows.x.push_back(
          static_cast<float>(lab.Normal(1, static_cast<uint64_t>(t), static_cast<uint64_t>(e)) +
                             0.5 * lab.Normal(2, static_cast<uint64_t>(e))));
    }
  }
  rows.padding.assign(S(rows.count), 0);
  return rows;
}

Call Of(const Rows& rows, int k, const char* policy) {
  Call call;
  call.scores = rows.x;
  call.k = k;
  call.policy = policy;
  call.index.assign(S(rows.count) * S(k), -1);
  call.keep.assign(call.index.size(), 0);
  for (int t = 0; t < rows.count; ++t)
    Choose(call, t, Best(&rows.x[S(t) * S(rows.experts)], rows.experts, k));
  Finish(rows, call);
  return call;
}

// Limits the whole call to the capacity. Order: order(t, j), lowest first.
void Cap(const Rows& rows, double factor, const Order& order, Call& call) {
  call.capacity = static_cast<int64_t>(std::ceil(factor * rows.count * call.k / rows.experts));
  std::vector<std::vector<std::pair<double, size_t>>> requests(S(rows.experts));
  for (size_t i = 0; i < call.index.size(); ++i) {
    const int t = static_cast<int>(i / S(call.k)), j = static_cast<int>(i % S(call.k));
    if (call.index[i] >= 0 && call.keep[i])
      requests[S(call.index[i])].emplace_back(order(t, j, call.index[i]), i);
  }
  for (auto& list : requests) {
    std::sort(list.begin(), list.end());
    for (size_t n = S(call.capacity); n < list.size(); ++n) call.keep[list[n].second] = 0;
  }
  Finish(rows, call);
}

double RowOrder(int t, int, int) { return t; }
double RankOrder(int t, int j, int) { return t + 1e9 * j; }

Made Dropless(const Lab& lab, const Layer& layer) {
  Rows rows = TextOf(lab, layer);
  Call call = Of(rows, layer.k, "token-choice");
  return {std::move(rows), std::move(call)};
}
Made Mixtral(const Lab& lab) { return Dropless(lab, {8, 2, 4, 1024}); }
Made Qwen(const Lab& lab) { return Dropless(lab, {128, 8, 2, 1024}); }
Made Olmoe(const Lab& lab) { return Dropless(lab, {64, 8, 2, 1024}); }
Made MegaBlocks(const Lab& lab) { return Dropless(lab, {64, 1, 4, 1024}); }
Made Megatron(const Lab& lab) {
  return Dropless(lab, {16, 2, 4, 1024});
}  // no capacity factor by default

// Softmax scores, three of eight groups by their best score.
Made DeepSeekV2(const Lab& lab) {
  Rows rows = TextOf(lab, {160, 6, 2, 512});
  Call call = Of(rows, 6, "token-choice");
  call.groups = 8, call.top_groups = 3;
  for (int t = 0; t < rows.count; ++t) {
    std::vector<double> group(8, -HUGE_VAL), x(160, -HUGE_VAL);
    for (int e = 0; e < 160; ++e) group[S(e / 20)] = std::max(group[S(e / 20)], rows.At(t, e));
    for (int g : Best(group.data(), 8, 3)) {
      for (int e = 20 * g; e < 20 * g + 20; ++e) x[S(e)] = rows.At(t, e);
    }
    Choose(call, t, Best(x.data(), 160, 6));
  }
  Finish(rows, call);
  return {std::move(rows), std::move(call)};
}
// Sigmoid scores plus a stored bias, four of eight groups by the sum of their two best scores.
Made DeepSeekV3(const Lab& lab) {
  Rows rows = TextOf(lab, {256, 8, 2, 512});
  Call call = Of(rows, 8, "token-choice");
  call.function = v1::SCORE_SIGMOID;
  call.groups = 8, call.top_groups = 4, call.group_sum2 = true;
  for (int e = 0; e < 256; ++e)
    call.bias.push_back(static_cast<float>(0.05 * lab.Normal(3, static_cast<uint64_t>(e))));
  for (int t = 0; t < rows.count; ++t) {
    std::vector<double> score(256), group(8), x(256, -HUGE_VAL);
    for (int e = 0; e < 256; ++e)
      score[S(e)] = 1 / (1 + std::exp(-rows.At(t, e))) + call.bias[S(e)];
    for (int g = 0; g < 8; ++g) {
      const std::vector<int> two = Best(&score[S(32 * g)], 32, 2);
      group[S(g)] = score[S(32 * g + two[0])] + score[S(32 * g + two[1])];
    }
    for (int g : Best(group.data(), 8, 4)) std::copy_n(&score[S(32 * g)], 32, &x[S(32 * g)]);
    Choose(call, t, Best(x.data(), 256, 8));
  }
  Finish(rows, call);
  return {std::move(rows), std::move(call)};
}
Made Switch(const Lab& lab) {
  Rows rows = TextOf(lab, {64, 1, 4, 1024});
  Call call = Of(rows, 1, "fifo-capacity");
  call.randomness = "jitter";  // on the router input, so the logits include it
  Cap(rows, 1.25, RowOrder, call);
  return {std::move(rows), std::move(call)};
}
// The second expert is dispatched at random. First choices go before second choices.
Made GShard(const Lab& lab) {
  Rows rows = TextOf(lab, {64, 2, 4, 1024});
  Call call = Of(rows, 2, "rank-major-capacity");
  call.randomness = "second-expert";
  for (int t = 0; t < rows.count; ++t) {
    const size_t second = S(t) * 2 + 1;
    const double share =
        1 / (1 + std::exp(rows.At(t, call.index[second - 1]) - rows.At(t, call.index[second])));
    if (lab.Uniform(4, static_cast<uint64_t>(t)) < 2 * share) continue;
    call.index[second] = -1;
    call.keep[second] = 0;
  }
  Cap(rows, 1, RankOrder, call);
  return {std::move(rows), std::move(call)};
}
// Batch-prioritised, first choices before second choices.
Made StMoe(const Lab& lab) {
  Rows rows = TextOf(lab, {32, 2, 4, 1024});
  Call call = Of(rows, 2, "score-capacity");
  Cap(
      rows, 1.25,
      [&](int t, int j, int) { return 10 * j - Softmax(rows, t, call.index[S(t) * 2]); }, call);
  return {std::move(rows), std::move(call)};
}
// Top-1, capacity factor 1, random token selection.
Made DeepSpeed(const Lab& lab) {
  Rows rows = TextOf(lab, {16, 1, 4, 1024});
  Call call = Of(rows, 1, "random-capacity");
  call.randomness = "token-selection";
  Cap(
      rows, 1, [&](int t, int, int) { return lab.Uniform(5, static_cast<uint64_t>(t)); }, call);
  return {std::move(rows), std::move(call)};
}
Made Tutel(const Lab& lab) {
  Rows rows = TextOf(lab, {32, 2, 4, 1024});
  Call call = Of(rows, 2, "rank-major-capacity");
  Cap(rows, 1, RankOrder, call);
  return {std::move(rows), std::move(call)};
}
Made Columns(const Lab& lab, const Layer& layer, bool by_sequence, const char* policy) {
  Rows rows = TextOf(lab, layer);
  Call call = Of(rows, layer.k, policy);
  call.index.clear();
  call.keep.clear();
  call.map.assign(S(rows.count) * S(layer.experts), 0);
  const int pools = by_sequence ? layer.sequences : 1, each = rows.count / pools;
  for (int t = 0; t < rows.count && by_sequence; ++t) call.pool.push_back(t / each);
  call.capacity = static_cast<int64_t>(layer.factor * each * layer.k / layer.experts);
  for (int pool = 0; pool < pools; ++pool) {
    for (int e = 0; e < layer.experts; ++e) {
      std::vector<std::pair<double, int>> column;
      for (int t = pool * each; t < (pool + 1) * each; ++t)
        column.emplace_back(layer.experts > 1 ? -Softmax(rows, t, e) : -rows.At(t, e), t);
      std::sort(column.begin(), column.end());
      for (size_t n = 0; n < S(call.capacity); ++n)
        call.map[S(column[n].second) * S(layer.experts) + S(e)] = 1;
    }
  }
  return {std::move(rows), std::move(call)};
}
Made ExpertChoice(const Lab& lab) {
  return Columns(lab, {64, 2, 4, 1024, 1}, false, "expert-choice");
}
Made MixtureOfDepths(const Lab& lab) {
  return Columns(lab, {1, 1, 4, 1024, 0.125}, true, "sequence-top-k");
}
Made Sinkhorn(const Lab& lab) {
  Rows rows = TextOf(lab, {32, 1, 4, 1024});
  Rows priced = rows;
  const auto E = S(32), T = S(rows.count);
  std::vector<double> column(E, 1);
  for (int round = 0; round < 20; ++round) {
    std::vector<double> sum(E, 0);
    for (size_t t = 0; t < T; ++t) {
      double all = 0;
      for (size_t e = 0; e < E; ++e) all += std::exp(rows.x[t * E + e]) * column[e];
      for (size_t e = 0; e < E; ++e) sum[e] += std::exp(rows.x[t * E + e]) / all;
    }
    for (size_t e = 0; e < E; ++e)
      column[e] = static_cast<double>(T) / static_cast<double>(E) / sum[e];
  }
  for (size_t i = 0; i < priced.x.size(); ++i) priced.x[i] += std::log(column[i % E]);
  Call call = Of(priced, 1, "balanced-assignment");
  call.scores = rows.x;
  return {std::move(rows), std::move(call)};
}
Made ReMoe(const Lab& lab) {
  Rows rows = TextOf(lab, {64, 8, 2, 1024});
  for (double& x : rows.x) x -= 1.2F;
  for (double& x : rows.x) x = static_cast<float>(x);
  Call call = Of(rows, 8, "token-choice");
  call.index.clear();
  call.keep.clear();
  call.function = v1::SCORE_IDENTITY;
  for (size_t i = 0; i < call.map.size(); ++i) call.map[i] = rows.x[i] > 0;
  return {std::move(rows), std::move(call)};
}

}  // namespace

const std::vector<RealRouter>& RealRouters() {
  static const std::vector<RealRouter> routers = {
      {"Mixtral", Mixtral, false},
      {"DeepSeek-V2", DeepSeekV2, false},
      {"DeepSeek-V3", DeepSeekV3, false},
      {"Qwen", Qwen, false},
      {"OLMoE", Olmoe, false},
      {"Switch", Switch, false},
      {"GShard", GShard, true},
      {"ST-MoE", StMoe, true},
      {"Megatron default", Megatron, false},
      {"DeepSpeed default", DeepSpeed, true},
      {"Tutel", Tutel, true},
      {"MegaBlocks dropless", MegaBlocks, false},
      {"expert choice", ExpertChoice, true},
      {"mixture of depths", MixtureOfDepths, true},
      {"Sinkhorn", Sinkhorn, true},
      {"ReMoE", ReMoe, false},
  };
  return routers;
}

}  // namespace plumbline::rules::attack
