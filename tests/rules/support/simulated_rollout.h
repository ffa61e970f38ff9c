// Simulated rollouts, honest and faulty: the injector of the drift rules.
//
// A cell is one context on both sides: the distribution that tokens are drawn from, the one that
// the rollout logs, and the one that the trainer logs, each a vector over the vocabulary. Tokens
// are drawn from a moderate number of cells, which costs a few nanoseconds per token. An honest
// cell's record is true, whatever differs between its two sides. Values are equal on every platform
// up to the library's exp and log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/rollout/sequence.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/analysis_names.h"
#include "tests/rules/support/rollout_cells.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {

struct RolloutSpec {
  // ---- the model
  std::string family = "small";  // 64 tokens with normal logits; "large": 4,096, Zipf-like
  int vocabulary = 0;            // 0: that of the family
  int contexts = 0;              // cells per kind; 0: as in the family (256, 32)
  double sharpness = 1;          // multiplies every logit: 3 is a model after much training

  // ---- the run
  int steps = 4, sequences = 16, length = 64;  // length: tokens of each sequence, or
  bool uneven = false;                         // geometric with that mean, up to four times it
  int first_step = 0;
  int workers = 2;
  int seed = 1;

  // ---- honest differences between the sides
  std::string noise = "dense";  // bf16-like; "moe": with router flips; "fp8"; "none": equal bits
  double noise_scale = 1;
  bool learning = false;  // both sides' logits move by `drift` with each step
  int lag = 0;            // versions; each sequence is 0 .. lag versions old, in equal shares
  double drift = .03;     // deviation of a logit's change per version
  int in_flight = 0;      // versions by which the engine's weights advance in the middle of each
                          // sequence; all then begin at `lag`
  int restart_every = 0;  // steps per attempt of the run; 0: there is one

  // ---- faults: "" none,
  //   "raw-at-temperature"    drawn at T, rollout logs raw, trainer at T
  //   "processed-against-raw" drawn and logged at T, trainer raw
  //   "both-raw"              drawn at T and/or top-p, both sides log raw
  //   "truncated"             drawn and logged after top-p (top-k), trainer over all tokens
  //   "allowed"               in `share` of the contexts a grammar allows `size` of the tokens:
  //                           drawn and logged over these, trainer over the full vocabulary
  //   "off-by-one"            the trainer's values belong to the next token
  //   "retokenised"           runs of tokens (`share` of all) with trainer's values of other tokens
  //   "zero-filled"           `share` of the rollout's values are 0
  //   "missed-sync"           from `from_step` on the rollout is `versions` old and records lag 0
  //   "stale-cache"           noise of deviation `size` that grows with the step and with the
  //                           cached tokens and starts again every `reset` steps
  //   "batch-variance"        noise of deviation `size` on the trainer's logits
  //   "sharpening"            trainer's logits (1 + size)^lag times as large
  //   "leak"                  `share` of the tokens are not drawn but the likeliest, logged as if
  //                           drawn
  //   "rewarded"              the trainer's values move by `size` with each unit of the advantage
  //   "standing-version"      as "missed-sync" with `ramp`, and the tokens' versions state it
  //   "dropout"               noise of deviation `size` on the trainer's logits, drawn in each pass
  //   "other-model"           the engine's logits differ by `size`, always in the same way
  //   "unmerged"              the engine keeps the weights of step 0 (needs `learning`)
  //   "packed"                the trainer's first tokens differ in sequences that are not the first
  //                           of their pack, of `pack` sequences
  //   "template"              all of the trainer's tokens differ, the first ones most
  //   "stale-prefix"          first tokens differ from step 1 on, in sequences with cached tokens
  std::string sin;
  double temperature = 1, top_p = 1;
  int top_k = 0;
  double share = .01;
  double size = .1;
  int from_step = 0;   // first step with the fault
  int until_step = 0;  // first step without the fault again; 0: there is none
  bool ramp = false;   // "missed-sync": the weights stand, so `versions` grows by 1 per step
  int pack = 4;
  std::string guilty;  // "": all tokens; else every `guilty_every`-th "worker", "step", "version"
  int guilty_every = 2;
  double other_temperature = 0;  // temperature of the other tokens; 0: they have no fault
  int versions = 4, reset = 8;

  // ---- the record
  std::string rounded;    // "train", "rollout", "both": to bf16; or "f16-both"; "logits",
                          // "train-logits": both sides' logits, or one's, before the softmax
  int decimals = -1;      // values are read from text with this number of decimals
  std::string mode;       // "", "raw", "processed"
  bool declared = false;  // temperature, top_p, top_k of the sampler are in the record
  bool entropy = false, varentropy = false;  // the trainer's
  // The rollout's, of the logged distribution.
  bool rollout_entropy = false, rollout_varentropy = false;
  bool versions_recorded = true;
  bool behaviour = false;  // the trainer's values at the version that each token is labelled with
  bool routing = false;    // both sides' choices of 2 of 16 experts, in one layer
  bool advantages = false;
  bool ids = true;        // token ids
  std::string selection;  // "", "all", "filtered"
  double kept_share = 0;  // 0: not declared; if filtered, sequences are kept at random
  std::string source;     // "", "sampled", "rescored"
  double rescore_k2 = 0;  // 0: not declared
  int mask_every = 0;     // every n-th token is masked and contains garbage
  int poison_every = 0;   // every n-th token's values are, in turn, NaN on the rollout's side, NaN
                          // on the trainer's, -inf on the rollout's
  int null_beyond_rank = 0;  // the rollout's values of less likely tokens are NaN
  bool far = false;          // every |d| is 20, alternating in sign
  int epochs = 1;            // how often each step's sequences are sent, with a later trainer
  bool halves = false;       // the rollout process and the trainer send their halves separately
  bool logits = false;  // the evidence is Logits with rows, at op "logits", instead of Logprobs
};

void Set(RolloutSpec& spec, const std::string& key, const std::string& value);

// Not thread-safe.
class RolloutSimulator {
 public:
  explicit RolloutSimulator(const RolloutSpec& spec);
  RolloutSimulator(const RolloutSimulator&) = delete;
  RolloutSimulator& operator=(const RolloutSimulator&) = delete;

  // Returns the sequences of one step in the order of their ids. Steps may be requested in any
  // order and repeatedly. If `seed` is not 0, it is another run of the same model.
  std::vector<RolloutSequence> Step(int step, uint64_t seed = 0);
  // Returns the rows of full logits of the same judged tokens.
  v1::Logits LogitsOf(int step, uint64_t seed = 0);

  // For a token of the last generated step: returns true if its experts flipped between the sides.
  bool Flipped(size_t sequence, size_t token) const {
    return step_origins_[sequence][token].cell->flipped;
  }

  // Returns the largest E_pi[d^2 | context] of the contexts so far.
  double largest_d2() const;

 private:
  // The origin of a token.
  struct Origin {
    const RolloutCell* cell;
    int32_t token;
  };
  bool Sinful(int step) const {
    return !spec_.sin.empty() && step >= spec_.from_step &&
           (spec_.until_step == 0 || step < spec_.until_step);
  }
  double ExtraAt(int step, int position, const RolloutSequence& s) const;
  bool Guilty(int step, int lag, const RolloutSequence& s) const;
  CellKind KindOf(int step, int lag, int position, const RolloutSequence& s, Draw& draw) const;
  void DrawTokens(int step, RolloutSequence* s, Draw& draw);
  void Sin(int step, RolloutSequence* s, Draw& draw);
  void Record(RolloutSequence* s, Draw& draw) const;
  void Describe(RolloutSequence* s) const;

  RolloutSpec spec_;
  RolloutCells cells_;
  std::vector<Origin> origins_;  // of the current sequence
  std::vector<std::vector<Origin>> step_origins_;
  size_t number_ = 0;  // index of the current sequence in its step
  double largest_d2_ = 0;
};

// Builds one side's half, or both sides, as a probe sends it.
enum class RolloutHalf { kBoth, kTrain, kRollout };
v1::LogprobsSequence SequenceMessage(const RolloutSpec& spec, const RolloutSequence& sequence,
                                     RolloutHalf half);

// Returns layer "policy", op "logprobs" (or "logits"): one trainer, and with halves also a rollout
// process.
v1::Batch RolloutRun(const RolloutSpec& spec);

}  // namespace plumbline::rules::testing
