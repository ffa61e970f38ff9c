// Clean load-aware routers: token buckets, experts with reduced load because they were hot before,
// queues with a service rate. Their decisions depend on earlier rows only, never on later rows.
#include <algorithm>
#include <cmath>
#include <map>

#include "tests/rules/attack/clean.h"
#include "tests/rules/attack/parts.h"

namespace plumbline::rules::attack {
namespace {

int64_t Room(const Lab& lab, const Rows& rows) {
  return Places(lab, Blank(lab, rows), rows.count, rows.experts);
}
double Rate(const Lab& lab) { return lab.factor() * lab.k() / lab.experts(); }

// Returns the number of choices per expert in an earlier text of the same size.
std::vector<double> EarlierDemand(const Lab& lab) {
  std::vector<double> demand(S(lab.experts()), 0);
  for (const int e : TopK(lab, lab.Earlier()).index) ++demand[S(e)];
  return demand;
}
// Returns 1 for each expert whose earlier demand exceeds its capacity.
std::vector<uint8_t> Hot(const Lab& lab, const Rows& rows) {
  std::vector<uint8_t> hot;
  for (const double demand : EarlierDemand(lab))
    hot.push_back(demand > static_cast<double>(Room(lab, rows)));
  return hot;
}
// Applies `admit`, then a queue with the configured capacity.
Call ThenQueue(const Lab& lab, const Rows& rows, const Admit& admit) {
  return Limited(
      lab, rows, Along(rows, TopK(lab, rows), admit), [](int t, int, int) { return t; },
      "fifo-capacity");
}

// ---- token buckets ----

struct Bucket {
  double rate, size, level, last = 0;
  Bucket(double rate_of, double size_of) : rate(rate_of), size(size_of), level(size_of) {}
  bool Take(double time) {
    level = std::min(size, level + rate * (time - last));
    last = time;
    if (level < 1) return false;
    level -= 1;
    return true;
  }
};

Call Buckets(const Lab& lab, const Rows& rows, const std::function<double(int e)>& rate,
             double size) {
  std::vector<Bucket> buckets;
  for (int e = 0; e < rows.experts; ++e) buckets.emplace_back(rate(e), size);
  return Along(rows, TopK(lab, rows),
               [&](int t, int, int e, const auto&) { return buckets[S(e)].Take(t); });
}
Call TokenBucket(const Lab& lab, const Rows& rows) {
  return Buckets(
      lab, rows, [&](int) { return Rate(lab); }, 4);
}
Call TokenBucketSmall(const Lab& lab, const Rows& rows) {
  return Buckets(
      lab, rows, [&](int) { return Rate(lab); }, 1);
}
Call TokenBucketLarge(const Lab& lab, const Rows& rows) {
  return Buckets(
      lab, rows, [&](int) { return Rate(lab) / 2; }, 12);
}
// The bucket size is recorded as the configured capacity, although it is not the capacity.
Call TokenBucketAsCapacity(const Lab& lab, const Rows& rows) {
  Call call = TokenBucket(lab, rows);
  std::vector<int64_t> held(S(rows.experts), 0);
  for (size_t i = 0; i < call.map.size(); ++i) held[i % S(rows.experts)] += call.map[i];
  call.capacity = *std::max_element(held.begin(), held.end());
  call.policy = "";
  return call;
}
Call TokenBucketOfStoredRates(const Lab& lab, const Rows& rows) {
  const std::vector<double> demand = EarlierDemand(lab);
  return Buckets(
      lab, rows, [&](int e) { return 0.7 * demand[S(e)] / rows.count; }, 3);
}
Call TokenBucketOfChoices(const Lab& lab,
                          const Rows& rows) {  // refilled per request, not over time
  std::vector<Bucket> buckets(S(rows.experts), Bucket(0.6, 3));
  std::vector<double> requested(S(rows.experts), 0);
  return Along(rows, TopK(lab, rows),
               [&](int, int, int e, const auto&) { return buckets[S(e)].Take(++requested[S(e)]); });
}
Call TokenBucketOfSequences(const Lab& lab, const Rows& rows) {
  std::map<std::pair<int64_t, int>, Bucket> buckets;
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    const auto at = buckets.try_emplace({rows.sequence[S(t)], e}, Bucket(1.5 * Rate(lab), 2)).first;
    return at->second.Take(static_cast<double>(rows.position[S(t)]));
  });
}
Call TokenBucketOfDevices(const Lab& lab, const Rows& rows) {  // one bucket per two experts
  std::vector<Bucket> buckets(S(rows.experts), Bucket(2 * Rate(lab), 6));
  return Along(rows, TopK(lab, rows),
               [&](int t, int, int e, const auto&) { return buckets[S(e / 2)].Take(t); });
}
Call CreditsEachEightTokens(const Lab& lab, const Rows& rows) {
  std::map<std::pair<int64_t, int>, std::pair<int64_t, int64_t>> used;  // window, used credit
  const auto credit = std::max<int64_t>(1, std::llround(8 * Rate(lab)));
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    auto& [window, taken] = used[{rows.sequence[S(t)], e}];
    if (window != rows.position[S(t)] / 8) window = rows.position[S(t)] / 8, taken = 0;
    return ++taken <= credit;
  });
}
// A queue with a service rate. If the queue is full, the choice is refused.
Call ServedAtARate(const Lab& lab, const Rows& rows) {
  std::vector<double> backlog(S(rows.experts), 0), last(S(rows.experts), 0);
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    double& waiting = backlog[S(e)];
    waiting = std::max(0.0, waiting - std::floor(Rate(lab) * (t - last[S(e)]) * 4) / 4);
    last[S(e)] = t;
    if (waiting >= 6) return false;
    waiting += 1;
    return true;
  });
}
// Closes at a high mark and reopens if the backlog has fallen to a low mark.
Call Hysteresis(const Lab& lab, const Rows& rows) {
  std::vector<double> backlog(S(rows.experts), 0), last(S(rows.experts), 0);
  std::vector<uint8_t> closed(S(rows.experts), 0);
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    double& waiting = backlog[S(e)];
    waiting = std::max(0.0, waiting - Rate(lab) * (t - last[S(e)]));
    last[S(e)] = t;
    if (waiting >= 5) closed[S(e)] = 1;
    if (waiting <= 2) closed[S(e)] = 0;
    waiting += !closed[S(e)];
    return !closed[S(e)];
  });
}
Call LoadAverage(const Lab& lab, const Rows& rows) {  // of requests, over about 30 rows
  std::vector<double> load(S(rows.experts), 0), last(S(rows.experts), 0);
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    double& average = load[S(e)];
    average *= std::exp(-(t - last[S(e)]) / 30);
    last[S(e)] = t;
    const bool in = average < 30 * 1.2 * Rate(lab);
    average += 1;
    return in;
  });
}
// An admission window that grows by one and is halved on overflow.
Call IncreaseAndHalve(const Lab& lab, const Rows& rows) {
  std::vector<double> window(S(rows.experts), 4), taken(S(rows.experts), 0);
  std::vector<int> block(S(rows.experts), 0);
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    const size_t at = S(e);
    if (block[at] != t / 16) {
      window[at] = taken[at] > window[at] ? std::max(1.0, window[at] / 2) : window[at] + 1;
      block[at] = t / 16, taken[at] = 0;
    }
    return ++taken[at] <= window[at];
  });
}
// If an expert had too many requests in the previous block, it takes every other choice in this
// block.
Call HotInTheBlockBefore(const Lab& lab, const Rows& rows) {
  std::vector<int> before(S(rows.experts), 0), now(S(rows.experts), 0);
  int block = 0;
  return Along(rows, TopK(lab, rows), [&](int t, int, int e, const auto&) {
    if (t / 32 != block) block = t / 32, before = now, now.assign(now.size(), 0);
    const bool hot = before[S(e)] > 32 * 1.3 * lab.k() / lab.experts();
    return ++now[S(e)] % 2 == 0 || !hot;
  });
}

// ---- experts that were hot before ----

Call HotThinned(const Lab& lab, const Rows& rows, double slack) {
  const std::vector<double> demand = EarlierDemand(lab);
  const auto room = static_cast<double>(Room(lab, rows));
  return ThenQueue(lab, rows, [&](int t, int j, int e, const auto&) {
    return lab.Uniform(20, rows, t, j) * demand[S(e)] < slack * room;
  });
}
Call HotThinnedToFit(const Lab& lab, const Rows& rows) { return HotThinned(lab, rows, 1); }
Call HotThinnedLess(const Lab& lab, const Rows& rows) { return HotThinned(lab, rows, 1.15); }
Call HotThinnedLittle(const Lab& lab, const Rows& rows) { return HotThinned(lab, rows, 1.4); }
Call HotThinnedByHalf(const Lab& lab, const Rows& rows) {
  const std::vector<uint8_t> hot = Hot(lab, rows);
  return ThenQueue(lab, rows, [&](int t, int j, int e, const auto&) {
    return !hot[S(e)] || lab.Uniform(20, rows, t, j) < 0.5;
  });
}
Call HotTakeEveryOther(const Lab& lab, const Rows& rows) {
  const std::vector<uint8_t> hot = Hot(lab, rows);
  std::vector<int> requested(S(rows.experts), 0);
  return ThenQueue(lab, rows, [&](int, int, int e, const auto&) {
    return ++requested[S(e)] % 2 == 0 || !hot[S(e)];
  });
}
Call HotTakeTwoOfThree(const Lab& lab, const Rows& rows) {
  const std::vector<uint8_t> hot = Hot(lab, rows);
  std::vector<int> requested(S(rows.experts), 0);
  return ThenQueue(lab, rows, [&](int, int, int e, const auto&) {
    return ++requested[S(e)] % 3 != 0 || !hot[S(e)];
  });
}
Call HotSkipTheFirst(const Lab& lab, const Rows& rows) {
  const std::vector<double> demand = EarlierDemand(lab);
  const auto room = static_cast<double>(Room(lab, rows));
  std::vector<double> requested(S(rows.experts), 0);
  return ThenQueue(lab, rows, [&](int, int, int e, const auto&) {
    return ++requested[S(e)] > 0.6 * (demand[S(e)] - room);
  });
}
Call HotRefuseSecondChoices(const Lab& lab, const Rows& rows) {
  const std::vector<uint8_t> hot = Hot(lab, rows);
  return ThenQueue(lab, rows, [&](int, int j, int e, const auto&) { return j == 0 || !hot[S(e)]; });
}
Call HotRefuseTheWeak(const Lab& lab, const Rows& rows) {
  const std::vector<uint8_t> hot = Hot(lab, rows);
  return ThenQueue(lab, rows, [&](int t, int, int e, const auto&) {
    return !hot[S(e)] || Softmax(rows, t, e) > 0.3;
  });
}
Call HotRefuseWords(const Lab& lab, const Rows& rows) {
  const std::vector<uint8_t> hot = Hot(lab, rows);
  return ThenQueue(lab, rows, [&](int t, int, int e, const auto&) {
    return !hot[S(e)] || rows.symbol[S(t)] % 3 != 0;
  });
}
Call HotRestSomePositions(const Lab& lab, const Rows& rows) {
  const std::vector<uint8_t> hot = Hot(lab, rows);
  return ThenQueue(lab, rows, [&](int t, int, int e, const auto&) {
    return !hot[S(e)] || rows.position[S(t)] % 4 != 1;
  });
}
Call HotRestByPlace(const Lab& lab, const Rows& rows) {  // a duty cycle along the queue
  const std::vector<uint8_t> hot = Hot(lab, rows);
  return ThenQueue(lab, rows,
                   [&](int t, int, int e, const auto&) { return !hot[S(e)] || t / 6 % 3 != 0; });
}
Call EarlyDropThenQueue(const Lab& lab, const Rows& rows) {
  const auto room = static_cast<double>(Room(lab, rows));
  return ThenQueue(lab, rows, [&](int t, int j, int e, const auto& held) {
    return lab.Uniform(21, rows, t, j) > static_cast<double>(held[S(e)]) / room - 0.4;
  });
}
Call SheddingThenQueue(const Lab& lab, const Rows& rows) {
  const auto room = static_cast<double>(Room(lab, rows));
  return ThenQueue(lab, rows, [&](int t, int j, int e, const auto& held) {
    return static_cast<double>(held[S(e)]) < 0.7 * room || lab.Uniform(21, rows, t, j) < 0.5;
  });
}
Call BucketThenQueue(const Lab& lab, const Rows& rows) {
  std::vector<Bucket> buckets(S(rows.experts), Bucket(1.3 * Rate(lab), 3));
  return ThenQueue(lab, rows,
                   [&](int t, int, int e, const auto&) { return buckets[S(e)].Take(t); });
}
// Chooses the least loaded of the three best experts, by the load so far.
Call LeastLoadedOfThree(const Lab& lab, const Rows& rows) {
  Call call = Blank(lab, rows);
  std::vector<int64_t> held(S(rows.experts), 0);
  for (int t = 0; t < rows.count; ++t) {
    std::vector<int> best =
        Best(&rows.x[S(t) * S(rows.experts)], rows.experts, std::max(3, call.k));
    std::stable_sort(best.begin(), best.end(),
                     [&](int a, int b) { return held[S(a)] < held[S(b)]; });
    best.resize(S(call.k));
    for (const int e : best) ++held[S(e)];
    Choose(call, t, best);
  }
  Finish(rows, call);
  return call;
}

}  // namespace

void AddCleanByLoad(std::vector<Family>& out) {
  const std::vector<Family> families = {
      {"token bucket", TokenBucket},
      {"token bucket, popular experts", TokenBucket, Data::kPopular},
      {"token bucket, many rows", TokenBucket, Data::kLarge},
      {"token bucket of one", TokenBucketSmall},
      {"token bucket, large", TokenBucketLarge, Data::kPopular},
      {"token bucket recorded as a capacity", TokenBucketAsCapacity, Data::kPopular},
      {"token bucket recorded as a capacity, many rows", TokenBucketAsCapacity, Data::kLarge},
      {"token bucket of stored rates", TokenBucketOfStoredRates, Data::kLarge},
      {"token bucket filled by choices", TokenBucketOfChoices},
      {"token bucket of each sequence", TokenBucketOfSequences},
      {"token bucket of devices", TokenBucketOfDevices},
      {"credits each eight tokens", CreditsEachEightTokens},
      {"a queue served at a rate", ServedAtARate, Data::kPopular},
      {"closed from a mark to a mark", Hysteresis, Data::kLarge},
      {"refused while the load average is high", LoadAverage, Data::kLarge},
      {"a window increased and halved", IncreaseAndHalve, Data::kLarge},
      {"hot in the block before", HotInTheBlockBefore, Data::kLarge},
      {"hot experts thinned to fit", HotThinnedToFit, Data::kLarge},
      {"hot experts thinned less", HotThinnedLess, Data::kLarge},
      {"hot experts thinned little", HotThinnedLittle, Data::kLarge},
      {"hot experts thinned, any text", HotThinnedLess},
      {"hot experts thinned by half", HotThinnedByHalf, Data::kLarge},
      {"hot experts take every other", HotTakeEveryOther, Data::kLarge},
      {"hot experts take two of three", HotTakeTwoOfThree, Data::kLarge},
      {"hot experts skip the first", HotSkipTheFirst, Data::kLarge},
      {"hot experts refuse second choices", HotRefuseSecondChoices, Data::kLarge},
      {"hot experts refuse the weak", HotRefuseTheWeak, Data::kLarge},
      {"hot experts refuse some words", HotRefuseWords, Data::kLarge},
      {"hot experts rest at some positions", HotRestSomePositions, Data::kLarge},
      {"hot experts rest by turns", HotRestByPlace, Data::kLarge},
      {"random early drop, then a queue", EarlyDropThenQueue, Data::kLarge},
      {"load shedding, then a queue", SheddingThenQueue, Data::kLarge},
      {"token bucket, then a queue", BucketThenQueue, Data::kLarge},
      {"the least loaded of three", LeastLoadedOfThree},
  };
  out.insert(out.end(), families.begin(), families.end());
}

}  // namespace plumbline::rules::attack
