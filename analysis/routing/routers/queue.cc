// Queues: tokens are served in sequence, and a full expert refuses.
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include "analysis/routing/routers/state.h"

namespace plumbline::analysis::routers {
namespace {

int64_t CapacityOf(const State& s, int32_t t, int32_t e) {
  const auto pool = static_cast<size_t>(s.Pool(t));
  if (pool < s.p.chunk_capacity.size()) return s.p.chunk_capacity[pool];
  return s.p.expert_capacity.empty() ? s.p.capacity : s.p.expert_capacity[static_cast<size_t>(e)];
}

// The number that every (pool, expert) holds.
class Loads {
 public:
  explicit Loads(const State& s)
      : s_(s), held_(static_cast<size_t>(s.Pools()) * static_cast<size_t>(s.b.experts), 0) {}
  bool HasRoom(int32_t t, int32_t e) const { return held_[s_.Cell(t, e)] < CapacityOf(s_, t, e); }
  int64_t Held(int32_t t, int32_t e) const { return held_[s_.Cell(t, e)]; }
  void Take(int32_t t, int32_t e) { ++held_[s_.Cell(t, e)]; }

 private:
  const State& s_;
  std::vector<int64_t> held_;
};

// Returns each row's place in its pool.
std::vector<int64_t> Places(const State& s) {
  std::vector<int64_t> seen(static_cast<size_t>(s.Pools()), 0), places;
  for (int32_t t = 0; t < s.b.tokens; ++t) places.push_back(seen[static_cast<size_t>(s.Pool(t))]++);
  return places;
}

std::vector<int64_t> PoolSizes(const State& s) {
  std::vector<int64_t> sizes(static_cast<size_t>(s.Pools()), 0);
  for (int32_t pool : s.out.pool) ++sizes[static_cast<size_t>(pool)];
  return sizes;
}

// Numbers the (old pool, piece) pairs in the order of their first row.
void Split(State& s, const std::vector<int64_t>& piece) {
  std::map<std::pair<int32_t, int64_t>, int32_t> dense;
  for (size_t t = 0; t < piece.size(); ++t) {
    s.out.pool[t] = dense.try_emplace({s.out.pool[t], piece[t]}, static_cast<int32_t>(dense.size()))
                        .first->second;
  }
}

// Returns the best expert with free capacity that the token does not use already. If there is none,
// returns -1.
int32_t NextWithRoom(const State& s, const Loads& loads, int32_t t) {
  for (int32_t e : s.Ranking(t)) {
    bool used = false;
    for (int32_t j = 0; j < s.b.top_k; ++j) used |= s.out.keep[s.Slot(t, j)] && s.Expert(t, j) == e;
    if (!used && loads.HasRoom(t, e)) return e;
  }
  return -1;
}

void SortByKey(Order& order, const std::vector<double>& key) {
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return key[static_cast<size_t>(a)] < key[static_cast<size_t>(b)];
  });
}

}  // namespace

void CutIntoChunks(State& s) {
  const std::vector<int64_t> places = Places(s), sizes = PoolSizes(s);
  std::vector<int64_t> piece(places.size());
  for (size_t t = 0; t < piece.size(); ++t) {
    const int64_t rows = sizes[static_cast<size_t>(s.out.pool[t])];
    const int64_t length = (rows + s.p.chunks - 1) / s.p.chunks;
    const int64_t pieces = (rows + length - 1) / length;
    const int64_t first = s.p.short_chunk_first ? rows - (pieces - 1) * length : length;
    piece[t] = places[t] < first ? 0 : 1 + (places[t] - first) / length;
  }
  Split(s, piece);
}

void CutUnequally(State& s) {
  const std::vector<int64_t> places = Places(s);
  std::vector<int64_t> piece(places.size(), 0);
  for (size_t t = 0; t < piece.size(); ++t) {
    int64_t end = 0;
    for (int64_t rows : s.p.chunk_rows) piece[t] += places[t] >= (end += rows) ? 1 : 0;
  }
  Split(s, piece);
}

void CutBySequence(State& s) {
  std::vector<int64_t> piece;
  for (int32_t t = 0; t < s.b.tokens; ++t) piece.push_back(s.Sequence(t));
  Split(s, piece);
}

void CutByPosition(State& s) {
  std::vector<int64_t> piece;
  for (int32_t t = 0; t < s.b.tokens; ++t) piece.push_back(s.Position(t));
  Split(s, piece);
}

Order RowOrder(const State& s) {
  Order order(static_cast<size_t>(s.b.tokens));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Order ReverseOrder(const State& s) {
  Order order = RowOrder(s);
  std::reverse(order.begin(), order.end());
  return order;
}

// Context parallelism over n ranks splits a sequence into 2n segments and gives rank i segments i
// and 2n-1-i. The pool is gathered rank by rank.
Order ZigzagOrder(const State& s) {
  std::map<int64_t, int64_t> length;
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    int64_t& l = length[s.Sequence(t)];
    l = std::max(l, s.Position(t) + 1);
  }
  std::vector<double> rank;
  const int64_t segments = 2 * s.p.context_ranks;
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    const int64_t segment = s.Position(t) * segments / length[s.Sequence(t)];
    rank.push_back(static_cast<double>(std::min(segment, segments - 1 - segment)));
  }
  Order order = RowOrder(s);
  SortByKey(order, rank);
  return order;
}

Order ArrivalOrder(const State& s) {
  std::vector<double> arrival;
  const uint64_t run = Mix(Mix(s.p.seed) ^ s.p.run);
  for (int32_t t = 0; t < s.b.tokens; ++t)
    arrival.push_back(static_cast<double>(Mix(run ^ static_cast<uint64_t>(t)) >> 11));
  Order order = RowOrder(s);
  SortByKey(order, arrival);
  return order;
}

// Batch-prioritised routing (Riquelme 2021): the best tokens first.
Order PriorityOrder(const State& s) {
  std::vector<double> key(static_cast<size_t>(s.b.tokens), 0);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t j = 0; j < (s.p.priority_sum ? s.b.top_k : 1); ++j)
      key[static_cast<size_t>(t)] -= KeyOf(s, s.p.key, t, j);
  }
  Order order = RowOrder(s);
  SortByKey(order, key);
  return order;
}

void Queue(State& s, const Order& order, bool rank_major) {
  Loads loads(s);
  const auto offer = [&](int32_t t, int32_t j) {
    if (!s.out.keep[s.Slot(t, j)]) return;
    const int32_t e = s.Expert(t, j);
    const bool room = loads.HasRoom(t, e);
    s.out.keep[s.Slot(t, j)] = room;
    if (room) loads.Take(t, e);
  };
  if (rank_major) {
    for (int32_t j = 0; j < s.b.top_k; ++j) {
      for (int32_t t : order) offer(t, j);
    }
    return;
  }
  for (int32_t t : order) {
    for (int32_t j = 0; j < s.b.top_k; ++j) offer(t, j);
  }
}

void QueueByRank(State& s) {
  for (int32_t j = 0; j < s.b.top_k; ++j) {
    Loads loads(s);
    for (int32_t t = 0; t < s.b.tokens; ++t) {
      if (!s.out.keep[s.Slot(t, j)]) continue;
      const int32_t e = s.Expert(t, j);
      const bool room = loads.Held(t, e) < s.p.rank_capacity[static_cast<size_t>(j)];
      s.out.keep[s.Slot(t, j)] = room;
      if (room) loads.Take(t, e);
    }
  }
}

void QueuePrefixBudget(State& s) {
  Loads loads(s);
  const std::vector<int64_t> places = Places(s);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    const double budget =
        std::ceil(s.p.capacity_factor * s.b.top_k *
                      static_cast<double>(places[static_cast<size_t>(t)] + 1) / s.b.experts -
                  1e-9);
    for (int32_t j = 0; j < s.b.top_k; ++j) {
      if (!s.out.keep[s.Slot(t, j)]) continue;
      const int32_t e = s.Expert(t, j);
      const bool room = static_cast<double>(loads.Held(t, e)) < budget;
      s.out.keep[s.Slot(t, j)] = room;
      if (room) loads.Take(t, e);
    }
  }
}

void QueueWindow(State& s) {
  std::vector<std::deque<int64_t>> recent(static_cast<size_t>(s.Pools()) *
                                          static_cast<size_t>(s.b.experts));
  const std::vector<int64_t> places = Places(s);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    const int64_t place = places[static_cast<size_t>(t)];
    for (int32_t j = 0; j < s.b.top_k; ++j) {
      if (!s.out.keep[s.Slot(t, j)]) continue;
      std::deque<int64_t>& admitted = recent[s.Cell(t, s.Expert(t, j))];
      while (!admitted.empty() && admitted.front() <= place - s.p.window) admitted.pop_front();
      const bool room = static_cast<int64_t>(admitted.size()) < s.p.capacity;
      s.out.keep[s.Slot(t, j)] = room;
      if (room) admitted.push_back(place);
    }
  }
}

void QueueAllOrNothing(State& s) {
  Loads loads(s);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    if (s.Idle(t)) continue;
    bool room = true;
    for (int32_t j = 0; j < s.b.top_k; ++j) room &= loads.HasRoom(t, s.Expert(t, j));
    for (int32_t j = 0; j < s.b.top_k; ++j) {
      s.out.keep[s.Slot(t, j)] = room;
      if (room) loads.Take(t, s.Expert(t, j));
    }
  }
}

void OverflowGreedily(State& s) {
  Loads loads(s);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    if (s.Idle(t)) continue;
    int32_t j = 0;
    for (int32_t e : s.Ranking(t)) {
      if (j == s.b.top_k) break;
      if (!loads.HasRoom(t, e)) continue;
      s.out.indices[s.Slot(t, j++)] = e;
      loads.Take(t, e);
    }
    std::vector<uint8_t> taken(static_cast<size_t>(s.b.experts), 0);
    for (int32_t i = 0; i < j; ++i) taken[static_cast<size_t>(s.Expert(t, i))] = 1;
    // There is no free expert: name the best remaining one, and do not keep it.
    for (int32_t e : s.Ranking(t)) {
      if (j == s.b.top_k) break;
      if (taken[static_cast<size_t>(e)]) continue;
      s.out.indices[s.Slot(t, j)] = e;
      s.out.keep[s.Slot(t, j++)] = 0;
    }
  }
}

void RerouteOverflow(State& s) {
  const std::vector<int32_t> own = s.out.indices;
  Queue(s, RowOrder(s), false);
  Loads loads(s);
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    for (int32_t j = 0; j < s.b.top_k; ++j) {
      if (s.out.keep[s.Slot(t, j)]) loads.Take(t, own[s.Slot(t, j)]);
    }
  }
  for (int32_t t = 0; t < s.b.tokens; ++t) {
    if (s.Idle(t)) continue;
    for (int32_t j = 0; j < s.b.top_k; ++j) {
      if (s.out.keep[s.Slot(t, j)]) continue;
      const int32_t e = NextWithRoom(s, loads, t);
      if (e < 0) continue;
      // Another refused choice of this token may name e; if so, they are swapped.
      for (int32_t i = 0; i < s.b.top_k; ++i) {
        if (s.Expert(t, i) == e) s.out.indices[s.Slot(t, i)] = s.Expert(t, j);
      }
      s.out.indices[s.Slot(t, j)] = e;
      s.out.keep[s.Slot(t, j)] = 1;
      loads.Take(t, e);
    }
  }
}

}  // namespace plumbline::analysis::routers
