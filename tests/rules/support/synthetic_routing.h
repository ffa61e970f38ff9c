// Recordings of reference routers on random scores, and the truth about them by intervention.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "analysis/routing/routers/routers.h"
#include "base/dtype.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/analysis_names.h"

namespace plumbline::rules::testing {

enum class PoolUnit { kMicrobatch, kSequence, kChunk, kPack };  // kPack: two sequences per pool
enum class Recorded { kIndicesAndMask, kIndicesAndMap, kMapOnly, kMaskOnly, kIndicesMaskAndMap };
enum class RecordedProbs { kNone, kDense, kChosen };
// The source of the scores. Popularity: experts differ in their mean.
enum class ScoreShape {
  kNormal,      // independent, mild popularity
  kHeavy,       // heavy tails
  kCorrelated,  // neighbours in a sequence have similar scores
  kSkewed,      // strong popularity
  kBimodal,     // two kinds of tokens
};

struct RoutingSpec {
  RouterPolicy policy = RouterPolicy::kTokenChoice;
  int sequences = 4;
  int length = 64;
  int experts = 8;
  int top_k = 2;
  double capacity_factor = 1.0;
  int chunks = 4;  // of kFifoChunks, and of PoolUnit::kChunk
  DType dtype = DType::kF32;
  double quantum = 0;  // if > 0: logits are multiples of it, so rows tie
  ScoreShape shape = ScoreShape::kNormal;
  int repeat = 1;  // number of exact copies of each prompt in the batch
  PoolUnit pool = PoolUnit::kMicrobatch;
  bool record_pool_id = true;
  bool whole_pool = false;  // pool_id is the batch's, not that of the real pieces
  bool pool_metadata = true;
  bool declare_capacity = true;
  int64_t declared_capacity = 0;  // if > 0: declared, whatever the truth is
  bool declare_as_held = false;   // declared is the most that a refusing expert holds
  int64_t declared_offset = 0;    // added to the true capacity: a wrong declaration
  bool seq_major = false;         // order of the queue
  bool shuffle_rows = false;      // rows are stored in another order than in the queue
  double padding_share = 0;
  bool packed = false;  // documents of random lengths up to `length`
  bool softmax = true;  // score_function metadata; kStoredBias records its own function
  bool record_bias = true;
  v1::RoutingConfig::BiasCaptured bias_captured = v1::RoutingConfig::BIAS_CAPTURED_BEFORE;
  bool declare_randomness = true;
  bool record_groups = true;
  Recorded recorded = Recorded::kIndicesAndMask;
  RecordedProbs probs = RecordedProbs::kNone;
  bool pad_map = false;   // maps filled up to capacity with entries of probability zero
  int table_experts = 0;  // number of the most popular experts that a stored table thins; 0: half
  // Tie rule, keys, counts. Capacities, stored statistics, seed and table are set automatically.
  RouterParameters router = {};
  uint64_t seed = 1;
};

class SyntheticRouting {
 public:
  explicit SyntheticRouting(const RoutingSpec& spec);

  const RoutingSpec& spec() const { return spec_; }
  const RouterBatch& batch() const { return batch_; }
  const RouterParameters& parameters() const { return parameters_; }
  const RouterResult& result() const { return result_; }
  int64_t capacity() const { return parameters_.capacity; }
  int64_t dropped() const;

  // Returns one evidence item, as a probe sends it.
  v1::Evidence Evidence() const;
  // Returns the same in a batch of one source.
  v1::Batch Batch(uint32_t rank = 0, uint32_t world = 1, int64_t step = 0) const;

  // Redraws what follows a cut of one sequence (in turn: copies of the prefix's strongest tokens,
  // noise, a flood of one expert) and routes again with the same draws and stored statistics.
  // Returns true if an earlier token's experts changed in any of `trials` tries.
  bool LeaksByIntervention(int trials) const;
  // The same with a whole other sequence redrawn.
  bool FlipsByOtherSequence(int trials) const;
  // Returns true if a second run of the same batch differs.
  bool Nondeterministic() const;

 private:
  void MakeRows(std::mt19937_64& rng);
  void MakeScores(std::mt19937_64& rng);
  void MakeParameters();
  double UnitRows() const;
  void MakeTable(const std::vector<double>& popularity, std::mt19937_64& rng);
  int64_t MostHeld() const;
  // Returns the declared capacity. If the policy has no single capacity, returns 0.
  int64_t Declared() const;
  void FillConfig(v1::RoutingConfig& config) const;
  void FillRow(v1::RoutingSample& sample, size_t row, const std::vector<uint8_t>& map) const;
  std::vector<uint8_t> RecordedMap() const;
  void Redraw(RouterBatch& batch, size_t row, const std::vector<size_t>& models, int method,
              std::mt19937_64& rng) const;
  std::vector<uint8_t> Assignment(const RouterBatch& batch) const;
  bool Flips(int trials, bool other_sequence) const;
  bool has_map() const;
  bool has_indices() const;
  bool has_mask() const;

  RoutingSpec spec_;
  RouterBatch batch_;  // rows in queue order
  RouterParameters parameters_;
  RouterResult result_;
};

// Returns two to eight prompts of ordinary size, recorded in full.
RoutingSpec OrdinarySpec(RouterPolicy policy, uint64_t seed);
// Returns a random spec of this policy: shapes, dtypes, pools, orders, padding, ties.
RoutingSpec RandomSpec(RouterPolicy policy, uint64_t seed);

// A router and a way of recording it.
struct Kind {
  std::string name;
  bool leaks = false;
  std::function<RoutingSpec(uint64_t seed)> make;
  RoutingSpec Make(uint64_t seed) const { return make(seed); }
};
// Causal in time: no verdict may be a finding against them.
std::vector<Kind> CleanKinds();
// The same, but built to look like leaks; not known in practice. Never proved.
std::vector<Kind> PosedKinds();
// Leak if experts are full.
std::vector<Kind> LeakingKinds();

}  // namespace plumbline::rules::testing
