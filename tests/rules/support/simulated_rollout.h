// Simulated rollouts, honest and sinful: the injector of the drift rules.
//
// A cell is one context as both sides see it: the distribution tokens are drawn from, the one the
// rollout logs, the one the trainer logs, each a vector over the vocabulary. Tokens are drawn from
// a moderate number of cells, which costs a few nanoseconds a token; an honest cell's record is
// true whatever separates its two sides. Same values on every platform up to the library's exp and
// log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/rollout/sequence.h"
#include "plumbline/v1/batch.pb.h"
#include "tests/rules/support/rollout_cells.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {

struct RolloutSpec {
  // ---- the model
  std::string family = "small";  // 64 tokens with normal logits; "large": 4,096, Zipf-like
  int vocabulary = 0;            // 0: the family's
  int contexts = 0;              // cells of a kind; 0: the family's (256, 32)
  double sharpness = 1;          // multiplies every logit: 3 is a model after much training

  // ---- the run
  int steps = 4, sequences = 16, length = 64;  // length: tokens of each sequence, or
  bool uneven = false;                         // geometric with that mean, up to four times it
  int first_step = 0;
  int workers = 2;
  int seed = 1;

  // ---- what separates the sides honestly
  std::string noise =
      "dense";  // bf16-like; "moe": router flips beside it; "fp8"; "none": equal bits
  double noise_scale = 1;
  int lag = 0;            // versions; each sequence is 0 .. lag behind, in equal shares
  double drift = .03;     // deviation of one version's change of a logit
  int in_flight = 0;      // versions by which the engine's weights advance in the middle of each
                          // sequence; all then begin at `lag`
  int restart_every = 0;  // steps of an attempt of the run; 0: there is one

  // ---- sins: "" none,
  // "raw-at-temperature"   drawn at T, rollout logs raw, trainer at T
  // "processed-against-raw" drawn and logged at T, trainer raw
  // "both-raw"             drawn at T and/or top-p, both sides log raw
  // "truncated"            drawn and logged after top-p (top-k), trainer over the full vocabulary
  // "allowed"              in `share` of the contexts a grammar allows `size` of the tokens: drawn
  // and
  //                        logged over these, trainer over the full vocabulary
  // "off-by-one"           the trainer's values belong to the next token
  // "retokenised"          runs of tokens (`share` of all) whose trainer's values are of other
  // tokens "zero-filled"          `share` of the rollout's values are 0 "missed-sync"          from
  // `from_step` on the rollout is `versions` behind and says lag 0 "stale-cache"          noise of
  // deviation `size` that grows with the step and with the cached
  //                        tokens and starts anew every `reset` steps
  // "batch-variance"       noise of deviation `size` on the trainer's logits
  // "sharpening"           trainer's logits (1 + size)^lag times as large
  // "leak"                 `share` of the tokens are not drawn but the likeliest, logged as if
  // drawn
  // "rewarded"             the trainer's values move by `size` with each unit of the advantage
  std::string sin;
  double temperature = 1, top_p = 1;
  int top_k = 0;
  double share = .01;
  double size = .1;
  int from_step = 0;   // the sin begins
  std::string guilty;  // "": all tokens; of every `guilty_every`-th "worker", "step", "version"
  int guilty_every = 2;
  double other_temperature = 0;  // of the tokens that are not guilty; 0: they are innocent
  int versions = 4, reset = 8;

  // ---- the record
  std::string rounded;    // "train", "rollout", "both": to bf16; or "f16-both"; "logits",
                          // "train-logits": both sides' logits, or one's, before the softmax
  int decimals = -1;      // values read from text of so many
  std::string mode;       // "", "raw", "processed"
  bool declared = false;  // temperature, top_p, top_k of the sampler are in the record
  bool entropy = false, varentropy = false;                  // the trainer's
  bool rollout_entropy = false, rollout_varentropy = false;  // the rollout's, of what it logs
  bool versions_recorded = true;
  bool behaviour = false;  // the trainer's values at the version each token is labelled with
  bool routing = false;    // both sides' choices of 2 of 16 experts, in one layer
  bool advantages = false;
  bool ids = true;        // token ids
  std::string selection;  // "", "all", "filtered"
  double kept_share = 0;  // 0: not said; if filtered, sequences are kept by luck alone
  std::string source;     // "", "sampled", "rescored"
  double rescore_k2 = 0;  // 0: not said
  int mask_every = 0;     // every n-th token is masked and holds rubbish
  int poison_every = 0;   // every n-th token's values are, in turn, NaN on the rollout's side,
                          // NaN on the trainer's, -inf on the rollout's
  bool far = false;       // every |d| is 20, alternating in sign
  int epochs = 1;         // each step's sequences are sent so often, with a later trainer
  bool halves = false;    // the rollout process and the trainer send their halves apart
  bool logits = false;    // evidence is Logits with rows, at op "logits", not Logprobs
};

void Set(RolloutSpec& spec, const std::string& key, const std::string& value);

// Not thread-safe.
class RolloutSimulator {
 public:
  explicit RolloutSimulator(const RolloutSpec& spec);
  RolloutSimulator(const RolloutSimulator&) = delete;
  RolloutSimulator& operator=(const RolloutSimulator&) = delete;

  // The sequences of one step, in the order of their ids; steps may be taken in any order and more
  // than once. `seed` other than 0: another run of the same model.
  std::vector<RolloutSequence> Step(int step, uint64_t seed = 0);
  // The rows of full logits of the same tokens, of those that are judged.
  v1::Logits LogitsOf(int step, uint64_t seed = 0);

  // Of a token of the last step made: did its experts flip between the sides?
  bool Flipped(size_t sequence, size_t token) const {
    return step_origins_[sequence][token].cell->flipped;
  }

  // The largest E_pi[d^2 | context] of the contexts met so far.
  double largest_d2() const;

 private:
  // Where a token came from.
  struct Origin {
    const RolloutCell* cell;
    int32_t token;
  };
  bool Sinful(int step) const { return !spec_.sin.empty() && step >= spec_.from_step; }
  bool Guilty(int step, int lag, const RolloutSequence& s) const;
  CellKind KindOf(int step, int lag, const RolloutSequence& s, Draw& draw) const;
  void DrawTokens(int step, RolloutSequence* s, Draw& draw);
  void Sin(int step, RolloutSequence* s, Draw& draw);
  void Record(RolloutSequence* s, Draw& draw) const;
  void Describe(RolloutSequence* s) const;

  RolloutSpec spec_;
  RolloutCells cells_;
  std::vector<Origin> origins_;  // of the sequence that is being made
  std::vector<std::vector<Origin>> step_origins_;
  double largest_d2_ = 0;
};

// One side's half, or both sides, as a probe would send it.
enum class RolloutHalf { kBoth, kTrain, kRollout };
v1::LogprobsSequence SequenceMessage(const RolloutSpec& spec, const RolloutSequence& sequence,
                                     RolloutHalf half);

// Layer "policy", op "logprobs" (or "logits"). One trainer; with halves, a rollout process too.
v1::Batch RolloutRun(const RolloutSpec& spec);

}  // namespace plumbline::rules::testing
