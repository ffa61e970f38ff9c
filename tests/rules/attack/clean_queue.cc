// Clean routers with queues, random draws, masks or skips: variants of first come, first served;
// draws per token; absent experts.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/rules/attack/clean.h"
#include "tests/rules/attack/parts.h"

namespace plumbline::rules::attack {
namespace {

double Row(int t, int, int) { return t; }

std::vector<double> Noisy(const Lab& lab, const Rows& rows, double scale) {
  std::vector<double> x = rows.x;
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e)
      x[S(t) * S(rows.experts) + S(e)] += scale * lab.Normal(1, rows, t, e);
  }
  return x;
}
int64_t Room(const Lab& lab, const Rows& rows) {
  return Places(lab, Blank(lab, rows), rows.count, rows.experts);
}

// ---- first come, first served ----

Call FirstCome(const Lab& lab, const Rows& rows) {
  return Limited(lab, rows, TopK(lab, rows), Row, "fifo-capacity");
}
Call FirstComeBySequence(const Lab& lab, const Rows& rows) {
  return LimitedBySequence(lab, rows, TopK(lab, rows), Row, "fifo-capacity");
}
Call Chunked(const Lab& lab, const Rows& rows, const std::function<int(int t)>& piece) {
  Call call = TopK(lab, rows);
  for (int t = 0; t < rows.count; ++t) call.pool.push_back(piece(t));
  const int pools = *std::max_element(call.pool.begin(), call.pool.end()) + 1;
  call.capacity = Places(lab, call, rows.count / pools, rows.experts);
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
Call InHalves(const Lab& lab, const Rows& rows) {
  return Chunked(lab, rows, [&](int t) { return 2 * t / rows.count; });
}
Call InUnequalPieces(const Lab& lab, const Rows& rows) {
  return Chunked(lab, rows, [&](int t) {
    return t < rows.count / 5 ? 0 : t < rows.count / 2 ? 1 : 2;
  });
}
Call InPrefillChunks(const Lab& lab, const Rows& rows) {
  return Chunked(lab, rows, [&](int t) { return static_cast<int>(rows.position[S(t)] / 16); });
}
Call InPacks(const Lab& lab, const Rows& rows) {
  return Chunked(lab, rows, [&](int t) { return static_cast<int>(rows.sequence[S(t)] / 2); });
}
// One of two context-parallel ranks: the first and the last quarter of each sequence.
Call OnAZigzagShard(const Lab& lab, const Rows& rows) {
  std::map<int64_t, int64_t> length;
  for (size_t t = 0; t < rows.sequence.size(); ++t)
    length[rows.sequence[t]] = std::max(length[rows.sequence[t]], rows.position[t] + 1);
  return Chunked(lab, rows, [&](int t) {
    const int64_t quarter = 4 * rows.position[S(t)] / length[rows.sequence[S(t)]];
    return quarter == 0 || quarter == 3 ? 0 : 1;
  });
}
Call PlacesOfItsOwn(const Lab& lab, const Rows& rows) {
  const double room = static_cast<double>(Room(lab, rows));
  return Along(rows, TopK(lab, rows), [&](int, int, int e, const auto& held) {
    return static_cast<double>(held[S(e)]) <
           room * (0.5 + lab.Uniform(2, static_cast<uint64_t>(e)));
  });
}
Call PlacesOfDevices(const Lab& lab, const Rows& rows) {  // two experts share a capacity
  const int64_t room = 2 * Room(lab, rows);
  return Along(rows, TopK(lab, rows), [&](int, int, int e, const auto& held) {
    return held[S(e)] + held[S(e ^ 1)] < room;
  });
}
Call PlacesOfRanks(const Lab& lab, const Rows& rows) {  // per choice rank; the second has less
  const int64_t room = Room(lab, rows);
  std::vector<int64_t> of(S(rows.experts) * 8, 0);
  return Along(rows, TopK(lab, rows), [&](int, int j, int e, const auto&) {
    return ++of[S(e) * 8 + S(std::min(j, 7))] <= (j == 0 ? room : room / 2);
  });
}
Call LeakyBucket(const Lab& lab, const Rows& rows) {
  std::vector<double> level(S(rows.experts), 0);
  std::vector<int> last(S(rows.experts), 0);
  const double rate = lab.factor() * lab.k() / lab.experts();
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    level[S(e)] = std::max(0.0, level[S(e)] - rate * (t - last[S(e)]));
    last[S(e)] = t;
    if (level[S(e)] >= 4) return false;
    level[S(e)] += 1;
    return true;
  });
}
Call PrefixBudget(const Lab& lab, const Rows& rows) {
  const double rate = lab.factor() * lab.k() / lab.experts();
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto& held) {
    return static_cast<double>(held[S(e)]) < std::ceil(rate * (t + 1)) + 2;
  });
}
Call QuotaOfSequences(const Lab& lab,
                      const Rows& rows) {  // a quota per sequence of the pool capacity
  std::map<std::pair<int64_t, int>, int64_t> used;
  const int64_t quota = std::max<int64_t>(1, Room(lab, rows) / 4);
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    return ++used[{rows.sequence[S(t)], e}] <= quota;
  });
}
Call RandomEarlyDrop(const Lab& lab, const Rows& rows) {
  const auto room = static_cast<double>(Room(lab, rows));
  return Along(rows, TopK(lab, rows), [&](int t, int j, int e, const auto& held) {
    return lab.Uniform(3, rows, t, j) > static_cast<double>(held[S(e)]) / room - 0.5;
  });
}
Call LoadShedding(const Lab& lab, const Rows& rows) {
  const auto room = static_cast<double>(Room(lab, rows));
  return Along(rows, TopK(lab, rows), [&](int t, int j, int e, const auto& held) {
    const double full = static_cast<double>(held[S(e)]) / room;
    return full < 1 && (full < 0.8 || lab.Uniform(3, rows, t, j) < 0.5);
  });
}
// Admits n of N choices in arrival order. N was stored from an earlier text or, if `exact` is set,
// from this text.
Call StoredDemand(const Lab& lab, const Rows& rows, bool exact) {
  const Call earlier = TopK(lab, exact ? lab.Text() : lab.Earlier());
  std::vector<double> demand(S(rows.experts), 0), need(S(rows.experts));
  for (int e : earlier.index) ++demand[S(e)];
  for (double& n : need) n = static_cast<double>(Room(lab, rows));
  std::vector<double> seen(S(rows.experts), 0);
  return Along(rows, TopK(lab, rows), [&](int t, int j, int e, const auto&) {
    const double left = std::max(demand[S(e)] - seen[S(e)], 1.0);
    ++seen[S(e)];
    const bool in = lab.Uniform(4, rows, t, j) * left < need[S(e)];
    need[S(e)] -= in;
    return in;
  });
}
Call SelectionSampling(const Lab& lab, const Rows& rows) { return StoredDemand(lab, rows, true); }
Call SelectionSamplingOfEarlier(const Lab& lab, const Rows& rows) {
  return StoredDemand(lab, rows, false);
}
Call AllOrNothing(const Lab& lab, const Rows& rows) {
  Call call = TopK(lab, rows);
  const int64_t room = Room(lab, rows);
  std::vector<int64_t> held(S(rows.experts), 0);
  for (int t = 0; t < rows.count; ++t) {
    bool fits = true;
    for (int j = 0; j < call.k; ++j) fits &= held[S(call.index[S(t) * S(call.k) + S(j)])] < room;
    for (int j = 0; j < call.k; ++j) {
      call.keep[S(t) * S(call.k) + S(j)] = fits;
      held[S(call.index[S(t) * S(call.k) + S(j)])] += fits;
    }
  }
  Finish(rows, call);
  return call;
}
Call OverflowToNext(const Lab& lab, const Rows& rows) {  // in time order
  Call call = Blank(lab, rows);
  const int64_t room = Room(lab, rows);
  std::vector<int64_t> held(S(rows.experts), 0);
  for (int t = 0; t < rows.count; ++t) {
    std::vector<int> experts;
    for (int e : Best(&rows.x[S(t) * S(rows.experts)], rows.experts, rows.experts)) {
      if (held[S(e)] < room && experts.size() < S(call.k)) experts.push_back(e), ++held[S(e)];
    }
    while (experts.size() < S(call.k)) {
      for (int e = 0; e < rows.experts && experts.size() < S(call.k); ++e) {
        if (std::find(experts.begin(), experts.end(), e) == experts.end()) experts.push_back(e);
      }
    }
    Choose(call, t, experts);
  }
  Finish(rows, call);
  return call;
}
Call SecondIsBackup(const Lab& lab, const Rows& rows) {  // used if the first is full
  const int64_t room = Room(lab, rows);
  std::vector<uint8_t> served(S(rows.count), 0);
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto& held) {
    const bool in = !served[S(t)] && held[S(e)] < room;
    served[S(t)] |= in;
    return in;
  });
}
Call PaddingQueuesToo(const Lab& lab, const Rows& rows) {
  Rows padded = rows;
  for (int t = 0; t < rows.count; ++t) {
    padded.padding[S(t)] = rows.sequence[S(t)] % 2 == 1 && rows.position[S(t)] > 16;
    for (int e = 0; e < rows.experts && padded.padding[S(t)]; ++e)
      padded.x[S(t) * S(rows.experts) + S(e)] = e == 0 ? 3 : 0;
  }
  return Limited(lab, padded, TopK(lab, padded), Row, "fifo-capacity");
}
Call SeparateQueues(const Lab& lab, const Rows& rows) {  // even and odd positions
  return Chunked(lab, rows, [&](int t) { return static_cast<int>(rows.position[S(t)] % 2); });
}
Call WindowBudget(const Lab& lab, const Rows& rows) {
  std::vector<std::vector<int>> taken(S(rows.experts));
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    auto& list = taken[S(e)];
    const auto recent = std::count_if(list.begin(), list.end(), [&](int i) { return i > t - 16; });
    if (recent >= 4) return false;
    list.push_back(t);
    return true;
  });
}

// ---- random draws per token ----

Call Sampled(const Lab& lab, const Rows& rows) {  // Gumbel noise, not recorded
  return TopK(lab, rows, Noisy(lab, rows, 1));
}
Call SampledDeclared(const Lab& lab, const Rows& rows) {
  Call call = Sampled(lab, rows);
  call.randomness = "jitter";
  return call;
}
Call NoiseInTheScores(const Lab& lab, const Rows& rows) {
  Call call = TopK(lab, rows, Noisy(lab, rows, 0.5));
  call.scores = Noisy(lab, rows, 0.5);
  call.randomness = "jitter";
  return call;
}
Call NoiseInTheScoresThenQueue(const Lab& lab, const Rows& rows) {
  return Limited(lab, rows, NoiseInTheScores(lab, rows), Row, "fifo-capacity");
}
Call Jitter(const Lab& lab, const Rows& rows) {
  Call call = Blank(lab, rows);
  std::vector<double> x = rows.x;
  for (int t = 0; t < rows.count; ++t) {
    const double factor = 0.9 + 0.2 * lab.Uniform(1, rows, t);
    for (int e = 0; e < rows.experts; ++e) x[S(t) * S(rows.experts) + S(e)] *= factor;
  }
  call = TopK(lab, rows, x);
  call.scores = x;
  return call;
}
Call EpsilonGreedy(const Lab& lab, const Rows& rows) {
  std::vector<double> x = rows.x;
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts && lab.Uniform(5, rows, t) < 0.1; ++e)
      x[S(t) * S(rows.experts) + S(e)] = lab.Uniform(6, rows, t, e);
  }
  return TopK(lab, rows, x);
}
Call SecondKeptByGate(const Lab& lab, const Rows& rows) {
  Call call = Along(rows, TopK(lab, rows), [&](int t, int j, int e, const auto&) {
    return j == 0 || lab.Uniform(7, rows, t, j) < 2 * Softmax(rows, t, e);
  });
  call.randomness = lab.seed() % 2 == 0 ? "second-expert" : "";
  return call;
}
Call SecondKeptByGateThenQueue(const Lab& lab, const Rows& rows) {
  Call call = SecondKeptByGate(lab, rows);
  return Limited(lab, rows, call, Row, "fifo-capacity");
}
Call DropTokens(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows),
               [&](int t, int, int, const auto&) { return lab.Uniform(8, rows, t) > 0.2; });
}
Call DropChoices(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows),
               [&](int t, int j, int, const auto&) { return lab.Uniform(9, rows, t, j) > 0.3; });
}
Call DropHalfOfAnExpert(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    return e != 0 || lab.Uniform(10, rows, t) > 0.5;
  });
}
Call DropSequences(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows),
               [&](int t, int, int, const auto&) { return rows.sequence[S(t)] % 2 == 0; });
}
Call GateDropout(const Lab& lab, const Rows& rows) {  // all stay at the local experts
  std::vector<double> x = rows.x;
  const bool local = lab.Uniform(11) < 0.5;
  for (size_t i = 0; i < x.size(); ++i) {
    if (local && i % S(rows.experts) >= S(rows.experts) / 2) x[i] -= 100;
  }
  return TopK(lab, rows, x);
}

// ---- absent or null experts ----

Call ExpertsAway(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows), [&](int, int, int e, const auto&) { return e % 3 != 0; });
}
Call ExpertsMasked(const Lab& lab, const Rows& rows) {
  Rows masked = rows;
  for (int t = 0; t < rows.count; ++t)
    masked.x[S(t) * S(rows.experts) + S(static_cast<int64_t>(lab.Uniform(12) * rows.experts))] =
        -HUGE_VAL;
  return TopK(lab, masked);
}
Call NullExperts(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows),
               [&](int, int, int e, const auto&) { return e < rows.experts - 2; });
}
Call NullExpertsThenQueue(const Lab& lab, const Rows& rows) {
  return Limited(lab, rows, NullExperts(lab, rows), Row, "fifo-capacity");
}
Call AwayForSomeSequences(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    return e != 0 || lab.Uniform(13, static_cast<uint64_t>(rows.sequence[S(t)])) < 0.5;
  });
}
Call AwayByPosition(const Lab& lab, const Rows& rows) {
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    return (rows.position[S(t)] / 8 + e) % 4 != 0;
  });
}
Call Grouped(const Lab& lab, const Rows& rows, bool sum2, bool recorded) {
  Call call = Blank(lab, rows);
  const int groups = rows.experts / 2;
  const int top = std::max(1, groups / 2);
  call.k = std::min(call.k, 2 * top);
  call.index.assign(S(rows.count) * S(call.k), -1);
  call.keep.assign(call.index.size(), 0);
  for (int t = 0; t < rows.count; ++t) {
    std::vector<double> score(S(groups)), x(S(rows.experts), -HUGE_VAL);
    for (int g = 0; g < groups; ++g) {
      const double a = rows.At(t, 2 * g), b = rows.At(t, 2 * g + 1);
      score[S(g)] = sum2 ? a + b : std::max(a, b);
    }
    for (int g : Best(score.data(), groups, top)) {
      x[S(2 * g)] = rows.At(t, 2 * g);
      x[S(2 * g + 1)] = rows.At(t, 2 * g + 1);
    }
    Choose(call, t, Best(x.data(), rows.experts, call.k));
  }
  call.function = v1::SCORE_IDENTITY;
  if (recorded) call.groups = groups, call.top_groups = top, call.group_sum2 = sum2;
  Finish(rows, call);
  return call;
}
Call GroupLimited(const Lab& lab, const Rows& rows) { return Grouped(lab, rows, false, true); }
Call NodeLimited(const Lab& lab, const Rows& rows) { return Grouped(lab, rows, true, true); }
Call GroupLimitedUnrecorded(const Lab& lab, const Rows& rows) {
  return Grouped(lab, rows, true, false);
}
Call Dropless(const Lab& lab, const Rows& rows) { return TopK(lab, rows); }
Call SigmoidGates(const Lab& lab, const Rows& rows) {
  Call call = TopK(lab, rows);
  call.function = v1::SCORE_SIGMOID;
  return call;
}
Call ScoresAfterSoftmax(const Lab& lab, const Rows& rows) {
  Call call = TopK(lab, rows);
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e)
      call.scores[S(t) * S(rows.experts) + S(e)] = Softmax(rows, t, e);
  }
  call.logits = false;
  return call;
}
Call Clipped(const Lab& lab, const Rows& rows) {  // logits clipped, hence many ties
  std::vector<double> x = rows.x;
  for (double& v : x) v = std::clamp(v, -0.5, 0.5);
  Call call = TopK(lab, rows, x);
  call.scores = x;
  return call;
}
Call ClippedThenQueue(const Lab& lab, const Rows& rows) {
  return Limited(lab, rows, Clipped(lab, rows), Row, "fifo-capacity");
}

}  // namespace

void AddCleanByQueue(std::vector<Family>& out) {
  const std::vector<Family> families = {
      {"first come", FirstCome},
      {"first come on Sudokus", FirstCome, Data::kSudoku},
      {"first come on permutations", FirstCome, Data::kPermutations},
      {"first come, tied", FirstCome, Data::kTied},
      {"first come, popular experts", FirstCome, Data::kPopular},
      {"first come, packed", FirstCome, Data::kPacked},
      {"first come a sequence", FirstComeBySequence},
      {"first come a sequence on Sudokus", FirstComeBySequence, Data::kSudoku},
      {"first come in halves", InHalves},
      {"first come in unequal pieces", InUnequalPieces},
      {"first come in prefill chunks", InPrefillChunks},
      {"first come in packs", InPacks},
      {"first come on a zigzag shard", OnAZigzagShard},
      {"first come, places of an expert's own", PlacesOfItsOwn},
      {"first come, places of devices", PlacesOfDevices},
      {"first come, places of a choice rank", PlacesOfRanks},
      {"leaky bucket", LeakyBucket},
      {"a budget that grows", PrefixBudget},
      {"a quota of each sequence", QuotaOfSequences},
      {"random early drop", RandomEarlyDrop},
      {"load shedding", LoadShedding},
      {"selection sampling of a stored demand", SelectionSampling},
      {"selection sampling of an earlier demand", SelectionSamplingOfEarlier},
      {"all or nothing in a queue", AllOrNothing},
      {"overflow to the next expert, in time order", OverflowToNext},
      {"the second expert as a backup", SecondIsBackup},
      {"padding queues too", PaddingQueuesToo},
      {"two queues", SeparateQueues},
      {"a budget of the last rows", WindowBudget},
      {"sampled experts", Sampled},
      {"sampled experts, declared", SampledDeclared},
      {"noise in the scores", NoiseInTheScores},
      {"noise in the scores, then a queue", NoiseInTheScoresThenQueue},
      {"jitter", Jitter},
      {"epsilon-greedy", EpsilonGreedy},
      {"a second expert kept by its gate", SecondKeptByGate},
      {"a second expert kept by its gate, then a queue", SecondKeptByGateThenQueue},
      {"tokens dropped at random", DropTokens},
      {"choices dropped at random", DropChoices},
      {"half of an expert dropped", DropHalfOfAnExpert},
      {"sequences dropped", DropSequences},
      {"gate dropout", GateDropout},
      {"experts away", ExpertsAway},
      {"experts masked", ExpertsMasked},
      {"null experts on any text", NullExperts},
      {"null experts, then a queue", NullExpertsThenQueue},
      {"experts away for some sequences", AwayForSomeSequences},
      {"experts away for some positions", AwayByPosition},
      {"device-limited", GroupLimited},
      {"node-limited", NodeLimited},
      {"node-limited, unrecorded", GroupLimitedUnrecorded},
      {"dropless on any text", Dropless},
      {"dropless, tiny", Dropless, Data::kTiny},
      {"dropless on Sudokus", Dropless, Data::kSudoku},
      {"sigmoid gates", SigmoidGates},
      {"scores after the softmax", ScoresAfterSoftmax},
      {"clipped logits", Clipped},
      {"clipped logits, then a queue", ClippedThenQueue},
  };
  out.insert(out.end(), families.begin(), families.end());
}

namespace {

std::set<std::string> NamesOf(void (*add)(std::vector<Family>& out)) {
  std::vector<Family> list;
  add(list);
  std::set<std::string> names;
  for (const Family& family : list) names.insert(family.name);
  return names;
}

}  // namespace

std::set<std::string> CalibratedFamilies() { return NamesOf(AddCleanCalibrated); }
std::set<std::string> LoadAwareFamilies() { return NamesOf(AddCleanByLoad); }

const std::vector<Family>& CleanFamilies() {
  static const std::vector<Family> families = [] {
    std::vector<Family> list;
    AddCleanByScores(list);
    AddCleanByTables(list);
    AddCleanByQueue(list);
    AddCleanByLoad(list);
    AddCleanOfPapers(list);
    AddCleanCalibrated(list);
    return list;
  }();
  return families;
}

}  // namespace plumbline::rules::attack
