// Clean routers from publications: zero-computation and copied experts, recursion depths,
// controllers, drafts, compressed caches and other router types.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/rules/attack/clean.h"
#include "tests/rules/attack/parts.h"

namespace plumbline::rules::attack {
namespace {

double Row(int t, int, int) { return t; }
int64_t Room(const Lab& lab, const Rows& rows) {
  return Places(lab, Blank(lab, rows), rows.count, rows.experts);
}
// First come, first served, except for the experts for which `free` returns true.
Call QueueBut(const Lab& lab, const Rows& rows, const std::function<bool(int e)>& free) {
  const int64_t room = Room(lab, rows);
  return Along(rows, TopK(lab, rows),
               [&](int, int, int e, const auto& held) { return free(e) || held[S(e)] < room; });
}
// Zero-computation experts (MoE++, LongCat). They accept every token.
Call ZeroExperts(const Lab& lab, const Rows& rows) {
  return QueueBut(lab, rows, [&](int e) { return e % 4 == 3; });
}
Call SharedCapacityOfHalves(const Lab& lab, const Rows& rows) {  // small and large experts
  const int64_t room = Room(lab, rows);
  return Along(rows, TopK(lab, rows), [&](int, int, int e, const auto& held) {
    return held[S(e)] < (e < rows.experts / 2 ? room : 2 * room);
  });
}
// A popular expert has two copies; positions alternate between them.
Call Replicas(const Lab& lab, const Rows& rows) {
  Rows copied = rows;
  for (int t = 0; t < rows.count; ++t)
    copied.x[S(t) * S(rows.experts) + 1] = copied.x[S(t) * S(rows.experts)];
  Call call = Blank(lab, copied);
  for (int t = 0; t < rows.count; ++t) {
    std::vector<int> best = Best(&copied.x[S(t) * S(rows.experts)], rows.experts, call.k);
    for (int& e : best) {
      if (e == 0 && call.k == 1) e = static_cast<int>(rows.position[S(t)] % 2);
    }
    Choose(call, t, best);
  }
  call.scores = copied.x;
  Finish(rows, call);
  return call;
}
// A controller (the PID of LongCat) that updates biases per block from the load of the previous
// rows.
Call BiasController(const Lab& lab, const Rows& rows) {
  std::vector<double> x = rows.x, bias(S(rows.experts), 0), load(S(rows.experts), 0),
                      wound(S(rows.experts), 0);
  Call call = Blank(lab, rows);
  for (int t = 0; t < rows.count; ++t) {
    if (t > 0 && t % 16 == 0) {
      const double even = 16.0 * call.k / rows.experts;
      for (size_t e = 0; e < bias.size(); ++e) {
        wound[e] += even - load[e];
        bias[e] = 0.05 * (even - load[e]) + 0.01 * wound[e];
      }
      load.assign(load.size(), 0);
    }
    for (size_t e = 0; e < bias.size(); ++e) x[S(t) * bias.size() + e] += bias[e];
    const std::vector<int> best = Best(&x[S(t) * bias.size()], rows.experts, call.k);
    for (const int e : best) ++load[S(e)];
    Choose(call, t, best);
  }
  Finish(rows, call);
  return call;
}
// Mixture of recursions: the number of rounds of a token follows from stored thresholds.
Call Recursions(const Lab& lab, const Rows& rows) {
  return Map(lab, rows, [&](int t, int e) { return rows.At(t, 0) > -1 + 2.0 * e / rows.experts; });
}
Call Doors(const Lab& lab, const Rows& rows) {  // one gate per expert
  return Map(lab, rows, [&](int t, int e) {
    return 1 / (1 + std::exp(-rows.At(t, e))) > lab.Uniform(40, rows, t, e);
  });
}
// Draft tokens use the experts of their root token.
Call DraftsFollowTheirRoot(const Lab& lab, const Rows& rows) {
  return TopK(lab, rows, FromPrefix(rows, [&](const std::vector<int>& before, int, double* x) {
                const size_t root = before.size() / 4 * 4;
                for (int e = 0; e < rows.experts && root < before.size(); ++e)
                  x[e] = rows.At(before[root], e);
              }));
}
// If a row is in the prefix cache, it is not routed.
Call CachedPrefix(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows), [&](int t, int, int, const auto&) {
    return rows.position[S(t)] >= 4 * (1 + rows.sequence[S(t)] % 3);
  });
}
Call CachedPrefixThenQueue(const Lab& lab, const Rows& rows) {
  return Limited(lab, rows, CachedPrefix(lab, rows), Row, "fifo-capacity");
}
Call EarlyExit(const Lab& lab, const Rows& rows) {  // stops once a sequence is certain
  std::map<int64_t, bool> done;
  std::vector<uint8_t> in(S(rows.count), 0);
  for (const auto& list : BySequence(rows)) {
    bool out = false;
    for (const int t : list) {
      in[S(t)] = !out;
      const double* x = &rows.x[S(t) * S(rows.experts)];
      out |= Softmax(rows, t, Best(x, rows.experts, 1)[0]) > 0.8;
    }
  }
  return Along(rows, TopK(lab, rows), [&](int t, int, int, const auto&) { return in[S(t)] != 0; });
}
Call ImagePatchesDropped(const Lab& lab, const Rows& rows) {  // by a stored grid
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    return (rows.position[S(t)] % 8 + rows.position[S(t)] / 8 + e) % 3 != 0;
  });
}
Call ImagePatchesDroppedThenQueue(const Lab& lab, const Rows& rows) {
  return Limited(lab, rows, ImagePatchesDropped(lab, rows), Row, "fifo-capacity");
}
Call CosineRouter(const Lab& lab, const Rows& rows) {
  Rows unit = rows;
  for (int t = 0; t < rows.count; ++t) {
    double norm = 1e-9;
    for (int e = 0; e < rows.experts; ++e) norm += rows.At(t, e) * rows.At(t, e);
    for (int e = 0; e < rows.experts; ++e)
      unit.x[S(t) * S(rows.experts) + S(e)] /= 0.07 * std::sqrt(norm);
  }
  return TopK(lab, unit);
}
Call SoftCapped(const Lab& lab, const Rows& rows) {
  Rows capped = rows;
  for (double& x : capped.x) x = 0.5 * std::tanh(x / 0.5);
  return Limited(lab, capped, TopK(lab, capped), Row, "fifo-capacity");
}
Call EightBits(const Lab& lab,
               const Rows& rows) {  // routed in 8 bits, recorded before quantisation
  std::vector<double> x = rows.x;
  for (double& v : x) v = std::nearbyint(v * 16) / 16;
  return TopK(lab, rows, x);
}
Call EightBitsRecordedThenQueue(const Lab& lab, const Rows& rows) {
  Rows coarse = rows;
  for (double& v : coarse.x) v = std::nearbyint(v * 16) / 16;
  return Limited(lab, coarse, TopK(lab, coarse), Row, "fifo-capacity");
}
Call TemperatureByPosition(const Lab& lab, const Rows& rows) {
  Rows warm = rows;
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e)
      warm.x[S(t) * S(rows.experts) + S(e)] /= 1 + 0.05 * static_cast<double>(rows.position[S(t)]);
  }
  return TopK(lab, warm);
}
Call OneThenTwo(const Lab& lab, const Rows& rows) {  // one expert during prefill, then k
  return Along(rows, TopK(lab, rows),
               [&](int t, int j, int, const auto&) { return j == 0 || rows.position[S(t)] >= 12; });
}
Call ExpertsOfTheLanguage(const Lab& lab, const Rows& rows) {
  std::vector<double> x = rows.x;
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e)
      x[S(t) * S(rows.experts) + S(e)] -= e % 2 == rows.sequence[S(t)] % 2 ? 0 : 50;
  }
  Call call = TopK(lab, rows, x);
  call.scores = x;
  return call;
}
Call ExpertsOfTheLanguageThenQueue(const Lab& lab, const Rows& rows) {
  return Limited(lab, rows, ExpertsOfTheLanguage(lab, rows), Row, "fifo-capacity");
}
// The number of active experts grows with the position (a curriculum along the text).
Call MoreExpertsLater(const Lab& lab, const Rows& rows) {
  return TopK(lab, rows, FromPrefix(rows, [&](const std::vector<int>& before, int, double* x) {
                const auto on = 2 + static_cast<int>(before.size()) / 4;
                for (int e = std::max(on, lab.k()); e < rows.experts; ++e) x[e] -= 100;
              }));
}
Call ProductKeys(const Lab& lab, const Rows& rows) {  // an expert is a pair of half keys
  Rows sums = rows;
  const int half = std::max(2, rows.experts / 4);
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e)
      sums.x[S(t) * S(rows.experts) + S(e)] = rows.At(t, e / half) + rows.At(t, e % half);
  }
  return TopK(lab, sums);
}
Call FirstComeOfDocuments(const Lab& lab, const Rows& rows) {
  return LimitedBySequence(lab, rows, TopK(lab, rows), Row, "fifo-capacity");
}
// Capacity per expert and rank under expert parallelism, with rows distributed round-robin.
Call FirstComeOfRanks(const Lab& lab, const Rows& rows) {
  Call call = TopK(lab, rows);
  for (int t = 0; t < rows.count; ++t)
    call.pool.push_back(static_cast<int>(rows.sequence[S(t)] % 2));
  call.capacity = Places(lab, call, rows.count / 2, rows.experts);
  call.policy = "fifo-capacity";
  std::map<std::pair<int, int>, int64_t> held;
  for (size_t i = 0; i < call.index.size(); ++i) {
    int64_t& places = held[{call.pool[i / S(call.k)], call.index[i]}];
    call.keep[i] = places < call.capacity;
    places += call.keep[i];
  }
  Finish(rows, call);
  return call;
}

}  // namespace

void AddCleanOfPapers(std::vector<Family>& out) {
  const std::vector<Family> families = {
      {"zero experts next to a queue", ZeroExperts},
      {"zero experts next to a queue, many rows", ZeroExperts, Data::kLarge},
      {"small and large experts", SharedCapacityOfHalves, Data::kLarge},
      {"copies of a popular expert", Replicas},
      {"a controller of biases", BiasController},
      {"recursions by thresholds", Recursions},
      {"a door before each expert", Doors},
      {"drafts follow their root", DraftsFollowTheirRoot},
      {"a cached prefix", CachedPrefix},
      {"a cached prefix, then a queue", CachedPrefixThenQueue, Data::kLarge},
      {"early exit", EarlyExit},
      {"patches dropped by a grid", ImagePatchesDropped},
      {"patches dropped by a grid, then a queue", ImagePatchesDroppedThenQueue, Data::kLarge},
      {"cosine router", CosineRouter},
      {"soft-capped logits, then a queue", SoftCapped},
      {"routed in eight bits", EightBits},
      {"recorded in eight bits, then a queue", EightBitsRecordedThenQueue, Data::kLarge},
      {"temperature by position", TemperatureByPosition},
      {"one expert, later several", OneThenTwo},
      {"experts of the language", ExpertsOfTheLanguage},
      {"experts of the language, then a queue", ExpertsOfTheLanguageThenQueue},
      {"more experts later in a text", MoreExpertsLater},
      {"product keys", ProductKeys},
      {"first come in packed documents", FirstComeOfDocuments, Data::kPacked},
      {"first come on two ranks", FirstComeOfRanks, Data::kLarge},
      {"dropless, many rows", [](const Lab& lab, const Rows& rows) { return TopK(lab, rows); },
       Data::kLarge},
  };
  out.insert(out.end(), families.begin(), families.end());
}

}  // namespace plumbline::rules::attack
