#include "analysis/routing/intervention/replay.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/policies.h"

namespace plumbline::analysis {
namespace {

size_t Index(int64_t i) { return static_cast<size_t>(i); }

size_t At(const RoutingCase& c, int32_t token, int32_t expert) {
  return Index(token) * Index(c.experts) + Index(expert);
}

// Returns the map [T,E] of the kept choices.
std::vector<uint8_t> RecordedMap(const RoutingCase& c) {
  std::vector<uint8_t> map(Index(c.tokens) * Index(c.experts), 0);
  for (const Choice& choice : c.choices) map[At(c, choice.token, choice.expert)] |= choice.kept;
  return map;
}

// In a tied row the recorded precision does not determine the choice. Raises the logits of the
// recorded choice by less than that precision, so that the replay makes this choice.
void SettleTies(const RoutingCase& c, std::vector<double>* logits) {
  std::vector<double> highest(Index(c.tokens), -std::numeric_limits<double>::infinity());
  std::vector<uint8_t> chosen(logits->size(), 0);
  for (const Choice& choice : c.choices) chosen[At(c, choice.token, choice.expert)] = 1;
  for (size_t i = 0; i < logits->size(); ++i) {
    double& high = highest[i / Index(c.experts)];
    if (!chosen[i]) high = std::max(high, (*logits)[i]);
  }
  for (size_t i = 0; i < logits->size(); ++i) {
    const size_t row = i / Index(c.experts);
    if (!chosen[i] || c.rows[row] != RowState::kTied) continue;
    (*logits)[i] = std::max((*logits)[i], highest[row] + 1e-12 * (1 + std::abs(highest[row])));
  }
}

// One reference router to try. `order` belongs to Search.
struct OrderCandidate {
  std::string how;
  RouterPolicy policy;
  RouterParameters parameters;
  const std::vector<int32_t>* order;
};

// Lists the reference routers that fit the named policy, and returns the first that gives every
// recorded assignment.
class Search {
 public:
  explicit Search(const RoutingAnalysis& a)
      : a_(a), c_(a.c), map_(RecordedMap(a.c)), queues_(TimeQueues(a.c)) {
    logits_.reserve(map_.size());
    for (int32_t t = 0; t < c_.tokens; ++t) {
      for (int32_t e = 0; e < c_.experts; ++e) logits_.push_back(c_.scores.At(t, e));
    }
    if (!c_.kept_outside_choice) SettleTies(c_, &logits_);
    for (int32_t t = 0; t < c_.tokens; ++t) {
      for (int32_t e = 0; e < c_.experts && !c_.judged(t); ++e)
        padding_holds_ |= map_[At(c_, t, e)] != 0;
    }
  }

  ReplayedRouter Find() {
    ListCandidates();
    for (const OrderCandidate& candidate : candidates_) {
      ReplayedRouter router = Make(candidate);
      if (Exact(router)) return router;
    }
    ReplayedRouter none;
    none.problem =
        absl::StrCat("not-replayed: no reference router of ", a_.policy,
                     " gives every recorded assignment (", candidates_.size(), " tried)");
    return none;
  }

  // The logits as recorded, with ties decided.
  const std::vector<double>& logits() const { return logits_; }

 private:
  void ListCandidates() {
    if (a_.policy == "token-choice") Add("token choice", RouterPolicy::kTokenChoice, Base(0), 0);
    if (a_.policy == "fifo-capacity") ListFirstCome();
    if (a_.policy == "rank-major-capacity")
      ListByOrder("a rank-major queue", RouterPolicy::kRankMajor);
    if (a_.policy == "score-capacity") ListByScore();
    if (a_.policy == "tie-order-capacity") ListTies();
    if (a_.policy == "expert-choice") ListColumns("expert choice", RouterPolicy::kExpertChoice);
    if (a_.policy == "sequence-top-k" && a_.columns())
      ListColumns("top-k over the sequence", RouterPolicy::kSequenceTopK);
    if (a_.policy == "sequence-top-k" && !a_.columns()) ListByScore();
  }

  // The parameters that every candidate shares.
  RouterParameters Base(int64_t capacity) const {
    const v1::RoutingConfig& config = c_.routing->config();
    RouterParameters p;
    p.capacity = capacity;
    if (c_.bias_matters) p.bias = c_.bias;
    if (c_.routing->sample().scores_are_logits())
      p.function = static_cast<ScoreFunction>(config.score_function());
    if (config.groups() > 1 && config.top_groups() < config.groups()) {
      p.groups = static_cast<int>(config.groups());
      p.top_groups = static_cast<int>(config.top_groups());
      p.group_sum2 = c_.group_score_used == "sum2";
    }
    p.padding_competes = padding_holds_;
    return p;
  }

  void Add(const std::string& how, RouterPolicy policy, RouterParameters p, size_t queue) {
    candidates_.push_back({how, policy, std::move(p), &queues_[queue].order});
  }

  // Returns the declared capacity. If there is none, that of the full cells.
  int64_t Capacity() const {
    const v1::RoutingConfig& config = c_.routing->config();
    if (DeclaresCapacity(config)) return static_cast<int64_t>(config.capacity());
    return std::max<int64_t>(a_.saturation.capacity, 1);
  }

  // One candidate for each order in which the tokens may have queued.
  void ListByOrder(const std::string& what, RouterPolicy policy, const RouterParameters& p) {
    for (size_t q = 0; q < queues_.size(); ++q)
      Add(absl::StrCat(what, ", ", queues_[q].name, " order"), policy, p, q);
  }
  void ListByOrder(const std::string& what, RouterPolicy policy) {
    ListByOrder(what, policy, Base(Capacity()));
  }

  // Queues over the whole pool, by sequence, over the first choices, by choice rank, and in chunks.
  void ListFirstCome() {
    const std::string first_come = "first come first served";
    ListByOrder(first_come, RouterPolicy::kFifo);
    ListByOrder(first_come + " in each sequence", RouterPolicy::kFifoSequence);
    for (int r = 1; r < c_.top_k; ++r) {
      RouterParameters p = Base(Capacity());
      p.first_ranks = r;
      ListByOrder(absl::StrCat(first_come, " over the first ", r, " choices"),
                  RouterPolicy::kFifoFirstRanks, p);
    }
    if (c_.top_k > 1) {
      RouterParameters p = Base(Capacity());
      p.rank_capacity = RankCapacities();
      ListByOrder(first_come + ", a capacity a choice rank", RouterPolicy::kFifoRankCapacity, p);
    }
    if (c_.pool_basis != PoolBasis::kRecorded) ListChunks();
  }

  // Returns how many of one choice rank a cell keeps if it refuses some. If it never refuses, it is
  // unlimited.
  std::vector<int64_t> RankCapacities() const {
    const size_t cells = Index(c_.pools) * Index(c_.experts), k = Index(c_.top_k);
    std::vector<int64_t> kept(cells * k, 0), most(k, std::numeric_limits<int64_t>::max());
    std::vector<uint8_t> refuses(cells * k, 0);
    for (const Choice& choice : c_.choices) {
      if (choice.rank < 0) continue;
      const size_t at = CellOfToken(c_, choice.token, choice.expert) * k + Index(choice.rank);
      kept[at] += choice.kept;
      refuses[at] |= !choice.kept;
    }
    for (size_t at = 0; at < kept.size(); ++at) {
      if (refuses[at]) most[at % k] = std::min(most[at % k], kept[at]);
    }
    return most;
  }

  // If the pool was not recorded, the batch may have been routed in equal pieces.
  void ListChunks() {
    for (size_t q = 0; q < queues_.size(); ++q) {
      for (int chunks = 2; chunks <= std::min(1024, c_.tokens / 2); ++chunks) {
        for (bool short_first : {false, true}) {
          RouterParameters p = Base(0);
          p.chunks = chunks;
          p.short_chunk_first = short_first;
          p.capacity = PieceCapacity(queues_[q].order, chunks, short_first);
          if (p.capacity < 1) continue;
          Add(absl::StrCat("first come first served in ", chunks, " chunks, ", queues_[q].name,
                           " order"),
              RouterPolicy::kFifoChunks, p, q);
        }
      }
    }
  }

  // Returns what every refusing cell of this cut holds, if it is one number and no cell holds more;
  // else 0.
  int64_t PieceCapacity(const std::vector<int32_t>& order, int chunks, bool short_first) const {
    const auto rows = static_cast<int64_t>(order.size());
    const int64_t length = (rows + chunks - 1) / chunks, pieces = (rows + length - 1) / length;
    const int64_t first = short_first ? rows - (pieces - 1) * length : length;
    std::vector<int64_t> piece(order.size());
    for (int64_t place = 0; place < rows; ++place)
      piece[Index(order[Index(place)])] = place < first ? 0 : 1 + (place - first) / length;
    std::vector<int64_t> kept(Index(pieces) * Index(c_.experts), 0);
    std::vector<uint8_t> refuses(kept.size(), 0);
    for (const Choice& choice : c_.choices) {
      const size_t at =
          Index(piece[Index(choice.token)]) * Index(c_.experts) + Index(choice.expert);
      kept[at] += choice.kept;
      refuses[at] |= !choice.kept;
    }
    int64_t capacity = 0;
    for (size_t at = 0; at < kept.size(); ++at) {
      if (!refuses[at]) continue;
      if (capacity != 0 && kept[at] != capacity) return 0;
      capacity = kept[at];
    }
    return std::all_of(kept.begin(), kept.end(), [&](int64_t n) { return n <= capacity; })
               ? capacity
               : 0;
  }

  // The replay that named the policy gives the key. A key that was recorded separately from the
  // scores cannot be computed for other rows.
  void ListByScore() {
    const RankedReplay* leak = a_.leak();
    if (leak == nullptr || leak->key == KeyKind::kProbs) return;
    using Priority = RankedReplay::Priority;
    RouterParameters p = Base(Capacity());
    p.key = leak->key == KeyKind::kSoftmax         ? ScoreKey::kSoftmax
            : leak->key == KeyKind::kSoftmaxChosen ? ScoreKey::kSoftmaxChosen
            : leak->key == KeyKind::kShareOfChosen ? ScoreKey::kSigmoidShare
                                                   : ScoreKey::kLogits;
    p.priority_sum = leak->priority == Priority::kSumOfRow;
    const bool rows = leak->priority == Priority::kBestOfRow || p.priority_sum;
    const RouterPolicy policy =
        rows ? (leak->rank_first ? RouterPolicy::kPriorityRankMajor : RouterPolicy::kPriority)
             : (leak->rank_first ? RouterPolicy::kScoreRankMajor : RouterPolicy::kScore);
    for (size_t q = 0; q < queues_.size(); ++q) Add(leak->Describe(), policy, p, q);
  }

  void ListTies() {
    for (const TieRule rule : {TieRule::kLastFirst, TieRule::kStrided, TieRule::kPartitioned}) {
      RouterParameters p = Base(Capacity());
      p.tie_rule = rule;
      ListByOrder("ties in another order", RouterPolicy::kTieOrder, p);
    }
  }

  void ListColumns(const std::string& what, RouterPolicy policy) {
    for (const ScoreKey key : {ScoreKey::kSoftmax, ScoreKey::kLogits}) {
      RouterParameters p = Base(a_.column.capacity);
      p.key = key;
      Add(absl::StrCat(what, key == ScoreKey::kSoftmax ? " by softmax" : " by score"), policy, p,
          0);
    }
  }

  // The batch in the candidate's order, without logits: Call takes those.
  ReplayedRouter Make(const OrderCandidate& candidate) const {
    ReplayedRouter router;
    router.how = candidate.how;
    router.policy = candidate.policy;
    router.parameters = candidate.parameters;
    router.order = *candidate.order;
    RouterBatch& b = router.batch;
    b.tokens = c_.tokens;
    b.experts = c_.experts;
    b.top_k = c_.top_k;
    for (int32_t row : router.order) {
      b.pool.push_back(c_.pool[Index(row)]);
      b.padding.push_back(c_.judged(row) ? 0 : 1);
      b.sequence.push_back(c_.sequence[Index(row)]);
      b.position.push_back(c_.position[Index(row)]);
    }
    return router;
  }

  // Returns true if the router keeps exactly what was recorded as kept. Padding counts only if it
  // uses capacity.
  bool Exact(const ReplayedRouter& router) const {
    const auto fates = router.Call()(logits_);
    if (!fates.ok()) return false;
    for (int32_t t = 0; t < c_.tokens; ++t) {
      if (!c_.judged(t) && !padding_holds_) continue;
      for (int32_t e = 0; e < c_.experts; ++e) {
        if (((*fates)[At(c_, t, e)] == 1) != (map_[At(c_, t, e)] != 0)) return false;
      }
    }
    return true;
  }

  const RoutingAnalysis& a_;
  const RoutingCase& c_;
  std::vector<uint8_t> map_;
  std::vector<double> logits_;
  std::vector<TimeQueue> queues_;
  std::vector<OrderCandidate> candidates_;
  bool padding_holds_ = false;
};

// Returns the rank of each row [T]. If there is one rank, returns an empty vector.
std::vector<int64_t> RowRanks(const RoutingAnalysis& a) {
  std::vector<int64_t> of(a.rank_ends.empty() ? 0 : Index(a.c.tokens));
  size_t rank = 0;
  for (size_t row = 0; row < of.size(); ++row) {
    while (static_cast<int64_t>(row) >= a.rank_ends[rank]) ++rank;
    of[row] = a.ranks[rank];
  }
  return of;
}

// Returns why this recording cannot be replayed, as "code: text". If it can, returns an empty
// string.
std::string Unreplayable(const RoutingAnalysis& a) {
  const RoutingCase& c = a.c;
  if (!c.ordered()) return "no-order: sequence_id and position were not both recorded";
  if (a.policy == "unknown") return "policy-unknown: no known policy explains the recording";
  if (a.policy == "random-capacity" || a.policy == "balanced-assignment") {
    return absl::StrCat("not-replayable: ", a.policy,
                        " depends on unrecorded data (draws, steps of an auction)");
  }
  if (!(a.explained_share >= 1)) {
    return absl::StrCat("partly-explained: ", a.policy, " explains a share of ", a.explained_share);
  }
  if (c.non_finite > 0) return "non-finite: some scores are NaN or infinite";
  if (c.unknown_refusals > 0 || c.holders_unknown)
    return "fates-unknown: the refusals of some rows were not recorded";
  if (!c.routing->config().randomness().empty())
    return absl::StrCat("random-choice: the choice is random (", c.routing->config().randomness(),
                        ") and the draws were not recorded");
  return "";
}

}  // namespace

RouterInputs ReplayedRouter::Inputs(const RoutingAnalysis& a) const {
  const RoutingCase& c = a.c;
  RouterInputs inputs{c.tokens, c.experts, {}, c.sequence, c.position, {}, RowRanks(a)};
  inputs.logits.resize(Index(c.tokens) * Index(c.experts));
  for (size_t place = 0; place < order.size(); ++place) {
    std::copy_n(batch.logits.begin() + static_cast<std::ptrdiff_t>(place * Index(c.experts)),
                c.experts,
                inputs.logits.begin() +
                    static_cast<std::ptrdiff_t>(Index(order[place]) * Index(c.experts)));
  }
  for (int32_t t = 0; t < c.tokens; ++t) inputs.padding.push_back(c.judged(t) ? 0 : 1);
  return inputs;
}

RouterCall ReplayedRouter::Call() const {
  return [this](const std::vector<double>& logits) -> absl::StatusOr<Assignments> {
    RouterBatch requested = batch;
    const size_t experts = Index(batch.experts);
    requested.logits.resize(logits.size());
    for (size_t place = 0; place < order.size(); ++place)
      std::copy_n(&logits[Index(order[place]) * experts], experts,
                  &requested.logits[place * experts]);
    const RouterResult result = Route(requested, policy, parameters);
    Assignments fates(logits.size(), 0);
    for (size_t place = 0; place < order.size(); ++place) {
      uint8_t* row = &fates[Index(order[place]) * experts];
      std::copy_n(&result.map[place * experts], experts, row);
      for (size_t j = 0; !result.indices.empty() && j < Index(batch.top_k); ++j) {
        uint8_t& fate = row[Index(result.indices[place * Index(batch.top_k) + j])];
        if (fate == 0) fate = 2;
      }
    }
    return fates;
  };
}

ReplayedRouter ReplayNamedPolicy(const RoutingAnalysis& a) {
  ReplayedRouter router;
  router.problem = Unreplayable(a);
  if (!router.problem.empty()) return router;
  Search search(a);
  router = search.Find();
  if (!router.problem.empty()) return router;
  const size_t experts = Index(a.c.experts);
  router.batch.logits.resize(search.logits().size());
  for (size_t place = 0; place < router.order.size(); ++place) {
    std::copy_n(&search.logits()[Index(router.order[place]) * experts], experts,
                &router.batch.logits[place * experts]);
  }
  return router;
}

}  // namespace plumbline::analysis
