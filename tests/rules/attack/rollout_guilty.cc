#include "tests/rules/attack/rollout_families.h"

namespace plumbline::rules::testing {
namespace {

template <typename Change>
v1::Batch With(int seed, const char* sin, const Change& change) {
  RolloutSpec spec;
  spec.seed = seed;
  spec.sin = sin;
  spec.steps = 24;
  spec.contexts = 64;
  change(spec);
  return RolloutRun(spec);
}

void OwnColumns(RolloutSpec& s) { s.rollout_entropy = s.rollout_varentropy = true; }

// Returns a run with halves sampled at 0.85 and 1.15, whose effects cancel. Both sides log raw
// values.
v1::Batch Cancelling(int seed, const char* halves) {
  return With(seed, "both-raw", [&](auto& s) {
    OwnColumns(s);
    s.temperature = 0.85;
    s.other_temperature = 1.15;
    s.guilty = halves;
  });
}
v1::Batch CancellingWorkers(int seed) { return Cancelling(seed, "worker"); }
v1::Batch CancellingSteps(int seed) { return Cancelling(seed, "step"); }
v1::Batch CancellingWorkersByEntropy(int seed) {
  return With(seed, "both-raw", [](auto& s) {
    s.entropy = true;
    s.temperature = 0.85;
    s.other_temperature = 1.15;
    s.guilty = "worker";
    s.steps = 64;
  });
}
v1::Batch CancellingTemperatures(int seed) {
  return With(seed, "processed-against-raw", [](auto& s) {
    s.entropy = true;
    s.temperature = 0.85;
    s.other_temperature = 1.15;
    s.guilty = "worker";
  });
}
v1::Batch OneWorkerOfFourCold(int seed) {
  return With(seed, "both-raw", [](auto& s) {
    OwnColumns(s);
    s.temperature = 0.85;
    s.guilty = "worker";
    s.guilty_every = s.workers = 4;
  });
}
v1::Batch OneWorkerOfFourRaw(int seed) {
  return With(seed, "raw-at-temperature", [](auto& s) {
    s.temperature = 0.85;
    s.guilty = "worker";
    s.guilty_every = s.workers = 4;
  });
}
v1::Batch EngineRestarts(int seed) {
  v1::Batch batch = With(seed, "stale-cache", [](auto& s) {
    s.size = 1;
    s.steps = 32;
  });
  EachSequence(&batch, [](auto& s, int64_t, int) { s.set_cached_tokens(-1); });
  return batch;
}
v1::Batch CachedTokens(int seed) {
  return With(seed, "stale-cache", [](auto& s) { s.size = 1; });
}
// A flat jump has several causes: the finding names them.
v1::Batch MissedSync(int seed) {
  return With(seed, "missed-sync", [](auto& s) {
    s.from_step = 12;
    s.versions = 8;
  });
}
// Drift grows from a small beginning, without a jump.
v1::Batch StandingWeights(int seed) {
  return With(seed, "missed-sync", [](auto& s) {
    s.from_step = 12;
    s.ramp = true;
  });
}
v1::Batch OffByOne(int seed) {
  return With(seed, "off-by-one", [](auto&) {});
}
v1::Batch Retokenised(int seed) {
  return With(seed, "retokenised", [](auto& s) { s.share = 0.03; });
}
v1::Batch ZeroFilled(int seed) {
  return With(seed, "zero-filled", [](auto& s) { s.share = 0.05; });
}
v1::Batch TrainerAtTemperature(int seed) {
  return With(seed, "raw-at-temperature", [](auto& s) { s.temperature = 0.8; });
}
v1::Batch UndeclaredTopP(int seed) {
  return With(seed, "truncated", [](auto& s) { s.top_p = 0.85; });
}
v1::Batch BothRawHot(int seed) {
  return With(seed, "both-raw", [](auto& s) {
    OwnColumns(s);
    s.temperature = 1.2;
  });
}
v1::Batch EverythingFar(int seed) {
  return With(seed, "", [](auto& s) { s.far = true; });
}
v1::Batch FilteredAndCold(int seed) {
  return With(seed, "raw-at-temperature", [](auto& s) {
    s.temperature = 0.7;
    s.selection = "filtered";
    s.kept_share = 0.9;
  });
}

}  // namespace

const std::vector<GuiltyRollout>& GuiltyRollouts() {
  static const std::vector<GuiltyRollout> families = {
      {"workers that cancel", CancellingWorkers, "drift/sampler-mismatch", ""},
      {"steps that cancel", CancellingSteps, "drift/sampler-mismatch", ""},
      {"workers that cancel, trainer's entropy", CancellingWorkersByEntropy,
       "drift/sampler-mismatch", ""},
      {"processed workers that cancel", CancellingTemperatures, "drift/logit-drift", "temperature"},
      {"one worker of four cold", OneWorkerOfFourCold, "drift/sampler-mismatch", ""},
      {"one worker of four raw", OneWorkerOfFourRaw, "drift/record-invalid", ""},
      {"an engine that restarts", EngineRestarts, "drift/logit-drift", "stale-cache"},
      {"a stale cache", CachedTokens, "drift/logit-drift", "stale-cache"},
      {"a missed update", MissedSync, "drift/missed-sync", ""},
      {"weights that stand", StandingWeights, "drift/", ""},
      {"off by one", OffByOne, "drift/record-invalid", "misalignment"},
      {"retokenised", Retokenised, "drift/logit-drift", "retokenisation"},
      {"zero-filled", ZeroFilled, "drift/record-invalid", "zero-filled"},
      {"trainer at 0.8", TrainerAtTemperature, "drift/record-invalid", "temperature"},
      {"undeclared top-p", UndeclaredTopP, "drift/record-invalid", "truncation"},
      {"both raw at 1.2", BothRawHot, "drift/sampler-mismatch", "temperature"},
      {"every token far off", EverythingFar, "drift/record-invalid", ""},
      {"filtered and cold", FilteredAndCold, "drift/record-invalid", ""},
  };
  return families;
}

}  // namespace plumbline::rules::testing
