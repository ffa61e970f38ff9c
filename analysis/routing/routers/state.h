// State that the parts of the reference routers share: the batch, its scores, and the result under
// construction. Internal to analysis/routing/routers/routers*.cc.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "analysis/routing/routers/routers.h"

namespace plumbline::analysis::routers {

struct State {
  State(const RouterBatch& batch, const RouterParameters& parameters);

  const RouterBatch& b;
  const RouterParameters& p;
  std::vector<double> logits;     // [T,E], with NaN replaced by -infinity
  std::vector<double> softmax;    // [T,E]
  std::vector<double> selection;  // [T,E] the value by which a token ranks experts
  RouterResult out;

  size_t At(int32_t t, int32_t e) const {
    return static_cast<size_t>(t) * static_cast<size_t>(b.experts) + static_cast<size_t>(e);
  }
  size_t Slot(int32_t t, int32_t j) const {
    return static_cast<size_t>(t) * static_cast<size_t>(b.top_k) + static_cast<size_t>(j);
  }
  // True if the token is not routed at all.
  bool Idle(int32_t t) const {
    return !p.padding_competes && !b.padding.empty() && b.padding[static_cast<size_t>(t)] != 0;
  }
  int64_t Sequence(int32_t t) const {
    return b.sequence.empty() ? 0 : b.sequence[static_cast<size_t>(t)];
  }
  int64_t Position(int32_t t) const {
    return b.position.empty() ? t : b.position[static_cast<size_t>(t)];
  }
  int32_t Pool(int32_t t) const { return out.pool[static_cast<size_t>(t)]; }
  int32_t Pools() const;
  size_t Cell(int32_t t, int32_t e) const {
    return static_cast<size_t>(Pool(t)) * static_cast<size_t>(b.experts) + static_cast<size_t>(e);
  }
  int32_t Expert(int32_t t, int32_t j) const { return out.indices[Slot(t, j)]; }
  // Returns a number uniform in (0,1) that belongs to the token: by seed, sequence, position and
  // salt.
  double Draw(int32_t t, uint64_t salt) const;
  // Returns the best experts by selection, best first. If two are equal, the lower number comes
  // first.
  std::vector<int32_t> Ranking(int32_t t, int32_t most) const;
  std::vector<int32_t> Ranking(int32_t t) const { return Ranking(t, b.experts); }
};

uint64_t Mix(uint64_t x);

// ---- choices (routers/choice.cc) -----------------------------------------------------

void ChooseTopK(State& s);  // by selection, all kept; idle tokens keep nothing
void AddBias(State& s, const std::vector<double>& bias);  // selection = function(logits) + bias
void LimitGroups(State& s);
void AddNoise(State& s);
void SampleLower(State& s);
void ChooseRoundRobin(State& s);
void ChooseByHash(State& s);
void ChooseReplayed(State& s);
void ChooseAboveThreshold(State& s);  // only fills the map
void ReserveShared(State& s);         // call before the choice
void AddShared(State& s);             // call after it
// Keeps only the choices for which `keeps` returns true.
void Drop(State& s, const std::function<bool(int32_t t, int32_t j)>& keeps);
void DropBelowOwnBest(State& s);
void DropBelowThreshold(State& s);
void DropByTable(State& s);
void DropLowerAtRandom(State& s);
// Returns a token's value for one of its choices, by the key.
double KeyOf(const State& s, ScoreKey key, int32_t t, int32_t j);
void FillProbs(State& s);

// ---- queues (routers/queue.cc) -------------------------------------------------------

// Change which tokens compete: out.pool.
void CutIntoChunks(State& s);
void CutUnequally(State& s);
void CutBySequence(State& s);
void CutByPosition(State& s);

using Order = std::vector<int32_t>;
Order RowOrder(const State& s);
Order ReverseOrder(const State& s);
Order ZigzagOrder(const State& s);
Order ArrivalOrder(const State& s);
Order PriorityOrder(const State& s);

void Queue(State& s, const Order& order, bool rank_major);
void QueueByRank(State& s);
void QueuePrefixBudget(State& s);
void QueueWindow(State& s);
void QueueAllOrNothing(State& s);
void OverflowGreedily(State& s);
void RerouteOverflow(State& s);

// ---- competitions over a whole pool (routers/batch.cc) -------------------------------

void KeepHighest(State& s,
                 const std::function<std::pair<int32_t, double>(int32_t t, int32_t j)>& value);
void KeepByTieRule(State& s);
void ExpertsChoose(State& s, bool by_logits);  // among the tokens of one out.pool
void Sinkhorn(State& s);                       // changes selection
void FitBias(State& s);                        // changes selection
void Auction(State& s);                        // changes indices and keep

}  // namespace plumbline::analysis::routers
