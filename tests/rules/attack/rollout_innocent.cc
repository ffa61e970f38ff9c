#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/rules/attack/rollout_families.h"

namespace plumbline::rules::testing {

void EachSequence(
    v1::Batch* batch,
    const std::function<void(v1::LogprobsSequence&, int64_t step, int number)>& change) {
  int number = 0;
  for (v1::Evidence& e : *batch->mutable_evidence()) {
    if (!e.has_logprobs()) continue;
    for (v1::LogprobsSequence& s : *e.mutable_logprobs()->mutable_sequences())
      change(s, e.step(), number++);
  }
}

void EachValue(v1::Tensor* tensor, const std::function<float(float value, size_t index)>& change) {
  std::string& data = *tensor->mutable_data();
  for (size_t i = 0; i + sizeof(float) <= data.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, data.data() + i, sizeof value);
    value = change(value, i / sizeof(float));
    std::memcpy(data.data() + i, &value, sizeof value);
  }
}

namespace {

RolloutSpec Base(int seed) {
  RolloutSpec spec;
  spec.seed = seed;
  spec.steps = 12;
  spec.sequences = 8;
  spec.contexts = 64;
  spec.entropy = seed % 2 == 0;
  return spec;
}

template <typename Change>
v1::Batch With(int seed, const Change& change) {
  RolloutSpec spec = Base(seed);
  change(spec);
  return RolloutRun(spec);
}

v1::Batch Dense(int seed) { return RolloutRun(Base(seed)); }
v1::Batch Moe(int seed) {
  return With(seed, [](auto& s) { s.noise = "moe"; });
}
v1::Batch Fp8(int seed) {
  return With(seed, [](auto& s) { s.noise = "fp8"; });
}
v1::Batch Deterministic(int seed) {
  return With(seed, [](auto& s) { s.noise = "none"; });
}
v1::Batch Bf16Engine(int seed) {
  return With(seed, [](auto& s) { s.rounded = "rollout"; });
}
v1::Batch Bf16Both(int seed) {
  return With(seed, [](auto& s) { s.rounded = "both"; });
}
v1::Batch F16Both(int seed) {
  return With(seed, [](auto& s) { s.rounded = "f16-both"; });
}
v1::Batch RoundedLogits(int seed) {
  return With(seed, [](auto& s) { s.rounded = "logits"; });
}
v1::Batch FourDecimals(int seed) {
  return With(seed, [](auto& s) { s.decimals = 4; });
}
v1::Batch TwoDecimals(int seed) {
  return With(seed, [](auto& s) { s.decimals = 2; });
}
v1::Batch LittleDropout(int seed) {
  return With(seed, [](auto& s) {
    s.sin = "dropout";
    s.size = 0.1;
  });
}
v1::Batch Dropout(int seed) {
  return With(seed, [](auto& s) {
    s.sin = "dropout";
    s.size = 0.6;
  });
}
v1::Batch HeavyDropout(int seed) {
  return With(seed, [](auto& s) {
    s.sin = "dropout";
    s.size = 2;
  });
}
v1::Batch DropoutOfManyWorkers(int seed) {
  return With(seed, [](auto& s) {
    s.sin = "dropout";
    s.size = 1;
    s.guilty = "worker";
    s.workers = 4;
  });
}
v1::Batch FilteredWithShare(int seed) {
  return With(seed, [](auto& s) {
    s.selection = "filtered";
    s.kept_share = 0.7;
  });
}
v1::Batch FilteredWithoutShare(int seed) {
  return With(seed, [](auto& s) { s.selection = "filtered"; });
}
v1::Batch RescoredWithFigure(int seed) {
  return With(seed, [](auto& s) {
    s.source = "rescored";
    s.rescore_k2 = 1e-3;
  });
}
v1::Batch RescoredWithoutFigure(int seed) {
  return With(seed, [](auto& s) { s.source = "rescored"; });
}
v1::Batch StaleByEight(int seed) {
  return With(seed, [](auto& s) { s.lag = 8; });
}
v1::Batch LargeUpdates(int seed) {
  return With(seed, [](auto& s) {
    s.lag = 4;
    s.drift = 0.2;
  });
}
v1::Batch UpdatesInFlight(int seed) {
  return With(seed, [](auto& s) {
    s.lag = 4;
    s.in_flight = 3;
  });
}
v1::Batch EightTokens(int seed) {
  return With(seed, [](auto& s) { s.vocabulary = 8; });
}
v1::Batch TwoTokens(int seed) {
  return With(seed, [](auto& s) { s.vocabulary = 2; });
}
v1::Batch LargeVocabulary(int seed) {
  return With(seed, [](auto& s) {
    s.family = "large";
    s.contexts = 8;
  });
}
v1::Batch OneContext(int seed) {
  return With(seed, [](auto& s) { s.contexts = 1; });
}
// Returns a run with 2 to 26 contexts. Their common part repeats in every sequence.
v1::Batch FewContexts(int seed) {
  return With(seed, [seed](auto& s) {
    s.contexts = 2 + 3 * (seed % 9);
    s.steps = 24;
    s.advantages = s.behaviour = seed % 2 == 0;
    s.noise = seed % 4 < 2 ? "dense" : "fp8";
    s.lag = seed % 3;
  });
}
v1::Batch TinyBatches(int seed) {
  return With(seed, [](auto& s) {
    s.sequences = 1;
    s.length = 8;
    s.steps = 40;
  });
}
v1::Batch OneTokenSequences(int seed) {
  return With(seed, [](auto& s) {
    s.length = 1;
    s.sequences = 64;
  });
}
v1::Batch OneLongSequence(int seed) {
  return With(seed, [](auto& s) {
    s.steps = 1;
    s.sequences = 1;
    s.length = 4096;
  });
}
v1::Batch ResumedRun(int seed) {
  return With(seed, [](auto& s) { s.restart_every = 4; });
}
v1::Batch ManyWorkers(int seed) {
  return With(seed, [](auto& s) {
    s.workers = 200;
    s.sequences = 100;
    s.length = 8;
  });
}
v1::Batch Masked(int seed) {
  return With(seed, [](auto& s) { s.mask_every = 3; });
}
v1::Batch Poisoned(int seed) {
  return With(seed, [](auto& s) { s.poison_every = 9; });
}
v1::Batch Sharp(int seed) {
  return With(seed, [](auto& s) { s.sharpness = 4; });
}
v1::Batch Flat(int seed) {
  return With(seed, [](auto& s) { s.sharpness = 0.05; });
}
v1::Batch Uneven(int seed) {
  return With(seed, [](auto& s) { s.uneven = true; });
}
v1::Batch ThreeEpochs(int seed) {
  return With(seed, [](auto& s) { s.epochs = 3; });
}
v1::Batch Halves(int seed) {
  return With(seed, [](auto& s) { s.halves = true; });
}
v1::Batch FullLogits(int seed) {
  return With(seed, [](auto& s) {
    s.logits = true;
    s.steps = 4;
  });
}
v1::Batch JoinedRouting(int seed) {
  return With(seed, [](auto& s) {
    s.noise = "moe";
    s.routing = true;
  });
}
v1::Batch NoVersions(int seed) {
  return With(seed, [](auto& s) { s.versions_recorded = false; });
}
v1::Batch NoIds(int seed) {
  return With(seed, [](auto& s) { s.ids = false; });
}
v1::Batch ThirdPass(int seed) {
  return With(seed, [](auto& s) {
    s.lag = 4;
    s.behaviour = true;
  });
}
v1::Batch OwnColumns(int seed) {
  return With(seed, [](auto& s) { s.rollout_entropy = s.rollout_varentropy = true; });
}
v1::Batch OwnEntropy(int seed) {
  return With(seed, [](auto& s) {
    s.rollout_entropy = true;
    s.sequences = 16;
  });
}
v1::Batch WithAdvantages(int seed) {
  return With(seed, [](auto& s) { s.advantages = true; });
}
v1::Batch ManyShortSteps(int seed) {
  return With(seed, [](auto& s) {
    s.steps = 96;
    s.sequences = 4;
    s.length = 16;
  });
}

// Returns a run with the noise of a quantised KV cache, which grows with the position.
v1::Batch QuantisedCache(int seed) {
  v1::Batch batch = Dense(seed);
  EachSequence(&batch, [&](v1::LogprobsSequence& s, int64_t, int number) {
    Draw draw(static_cast<uint64_t>(seed * 100000 + number));
    EachValue(s.mutable_train()->mutable_logprobs(), [&](float value, size_t i) {
      return std::min(0.0f, value + 0.02f * std::sqrt(static_cast<float>(i) / 64) *
                                        static_cast<float>(draw.Normal()));
    });
  });
  return batch;
}

// Returns a run with a declared temperature per sequence, at which both sides log their values.
v1::Batch DeclaredTemperatures(int seed) {
  v1::Batch batch = With(seed, [](auto& s) { s.mode = "processed"; });
  EachSequence(&batch, [](v1::LogprobsSequence& s, int64_t, int number) {
    s.set_temperature(0.6 + 0.1 * (number % 7));
  });
  return batch;
}

// Returns a run with clocks that differ, run backward or show another year.
v1::Batch SkewedClocks(int seed) {
  v1::Batch batch = Dense(seed);
  EachSequence(&batch, [](v1::LogprobsSequence& s, int64_t, int number) {
    s.set_t_start(1e9 * (number % 3) - s.t_start());
    s.set_t_end(number % 2 == 0 ? -1e300 : s.t_start() + 1);
  });
  return batch;
}

// Returns a run of workers with different engines: fp8 and bf16 in one fleet.
v1::Batch MixedFleet(int seed) {
  v1::Batch batch = Dense(seed);
  EachSequence(&batch, [&](v1::LogprobsSequence& s, int64_t, int number) {
    if (number % 2 == 0) return;
    Draw draw(static_cast<uint64_t>(seed * 100000 + number));
    EachValue(s.mutable_train()->mutable_logprobs(), [&](float value, size_t) {
      return std::min(0.0f, value + 0.03f * static_cast<float>(draw.Normal()));
    });
  });
  return batch;
}

// Returns a run in which a restarted worker uses a new name each time.
v1::Batch RenamedWorkers(int seed) {
  v1::Batch batch = Dense(seed);
  EachSequence(&batch, [](v1::LogprobsSequence& s, int64_t step, int number) {
    s.set_worker("pod-" + std::to_string(step / 3) + "-" + std::to_string(number % 2));
  });
  return batch;
}

// Returns a correct run with declared values after top-p; the trainer uses the full vocabulary.
v1::Batch DeclaredTopP(int seed) {
  return With(seed, [](auto& s) {
    s.sin = "truncated";
    s.top_p = 0.8;
    s.mode = "processed";
    s.declared = true;
  });
}

// Structured decoding: returns a correct run in which a grammar allows some of the tokens. Logged
// values are renormalised over them; the trainer uses the full vocabulary.
v1::Batch Grammar(int seed, double contexts, double tokens, const char* mode) {
  return With(seed, [&](auto& s) {
    s.sin = "allowed";
    s.share = contexts;
    s.size = tokens;
    s.mode = mode;
  });
}
v1::Batch GrammarOfFewTokens(int seed) { return Grammar(seed, 0.2, 0.05, "processed"); }
v1::Batch GrammarOfHalf(int seed) { return Grammar(seed, 0.5, 0.5, "processed"); }
v1::Batch GrammarEverywhere(int seed) { return Grammar(seed, 1, 0.8, "processed"); }
v1::Batch GrammarThatForces(int seed) { return Grammar(seed, 0.1, 0, "processed"); }

}  // namespace

const std::vector<InnocentRollout>& InnocentRollouts() {
  static const std::vector<InnocentRollout> families = {
      {"dense", Dense},
      {"moe", Moe},
      {"fp8", Fp8},
      {"deterministic", Deterministic},
      {"bf16 engine", Bf16Engine},
      {"bf16 both", Bf16Both},
      {"f16 both", F16Both},
      {"rounded logits", RoundedLogits},
      {"four decimals", FourDecimals},
      {"two decimals", TwoDecimals},
      {"little dropout", LittleDropout, true},
      {"dropout", Dropout, true},
      {"heavy dropout", HeavyDropout, true},
      {"dropout of some workers", DropoutOfManyWorkers, true},
      {"filtered, share", FilteredWithShare},
      {"filtered, no share", FilteredWithoutShare},
      {"rescored, figure", RescoredWithFigure},
      {"rescored, no figure", RescoredWithoutFigure},
      {"stale by eight", StaleByEight},
      {"large updates", LargeUpdates, true},
      {"updates in flight", UpdatesInFlight},
      {"eight tokens", EightTokens},
      {"two tokens", TwoTokens},
      {"large vocabulary", LargeVocabulary},
      {"one context", OneContext},
      {"few contexts", FewContexts},
      {"tiny batches", TinyBatches},
      {"one-token sequences", OneTokenSequences},
      {"one long sequence", OneLongSequence},
      {"resumed run", ResumedRun},
      {"many workers", ManyWorkers},
      {"masked", Masked},
      {"poisoned", Poisoned},
      {"sharp", Sharp},
      {"flat", Flat},
      {"uneven lengths", Uneven},
      {"three epochs", ThreeEpochs},
      {"halves", Halves},
      {"full logits", FullLogits},
      {"joined routing", JoinedRouting},
      {"no versions", NoVersions},
      {"no ids", NoIds},
      {"third pass", ThirdPass},
      {"own columns", OwnColumns},
      {"own entropy", OwnEntropy},
      {"advantages", WithAdvantages},
      {"many short steps", ManyShortSteps},
      {"quantised cache", QuantisedCache},
      {"declared temperatures", DeclaredTemperatures},
      {"skewed clocks", SkewedClocks},
      {"mixed fleet", MixedFleet},
      {"renamed workers", RenamedWorkers},
      {"declared top-p", DeclaredTopP, true},
      {"a grammar of few tokens", GrammarOfFewTokens, true},
      {"a grammar of half of the tokens", GrammarOfHalf, true},
      {"a grammar in every context", GrammarEverywhere, true},
      {"a grammar that forces tokens", GrammarThatForces, true},
  };
  return families;
}

}  // namespace plumbline::rules::testing
