#include "tests/rules/attack/rollout_courses.h"

namespace plumbline::rules::testing {
namespace {

RolloutSpec Plain(int seed) {
  RolloutSpec spec;
  spec.seed = seed;
  spec.steps = 64;
  spec.sequences = 8;
  spec.contexts = 64;
  spec.entropy = seed % 2 == 0;
  return spec;
}

RolloutSpec With(int seed, const char* sin, double size = 0.1) {
  RolloutSpec spec = Plain(seed);
  spec.sin = sin;
  spec.size = size;
  return spec;
}

RolloutSpec Repaired(int seed) {
  RolloutSpec spec = With(seed, "missed-sync");
  spec.from_step = 20;
  spec.until_step = 40;
  spec.versions = 8;
  return spec;
}
RolloutSpec RepairedRamp(int seed) {
  RolloutSpec spec = Repaired(seed);
  spec.ramp = true;
  spec.drift = 0.06;
  return spec;
}
RolloutSpec StandingVersion(int seed) {
  RolloutSpec spec = RepairedRamp(seed);
  spec.sin = "standing-version";
  return spec;
}
RolloutSpec DropoutUntil(int seed) {
  RolloutSpec spec = With(seed, "dropout", 0.5);
  spec.until_step = 30;
  return spec;
}
RolloutSpec DropoutGrows(int seed) {
  RolloutSpec spec = With(seed, "dropout", 1.5);
  spec.from_step = 56;
  return spec;
}
RolloutSpec HotUntil(int seed) {
  RolloutSpec spec = With(seed, "raw-at-temperature");
  spec.temperature = 0.6;
  spec.until_step = 30;
  return spec;
}
RolloutSpec Steady(int seed) { return With(seed, "dropout", 0.5); }
RolloutSpec AsyncPause(int seed) {
  RolloutSpec spec = Plain(seed);
  spec.sin = "standing-version";
  spec.drift = 0.01;
  spec.ramp = true;
  spec.from_step = 20;
  spec.until_step = 26;
  return spec;
}
RolloutSpec Learning(int seed) {
  RolloutSpec spec = Plain(seed);
  spec.learning = true;
  spec.steps = 40;
  return spec;
}
RolloutSpec Unmerged(int seed) {
  RolloutSpec spec = Learning(seed);
  spec.sin = "unmerged";
  spec.steps = 24 + 8 * (seed % 3);
  spec.drift = 0.02;
  return spec;
}
RolloutSpec OtherModel(int seed) {
  RolloutSpec spec = With(seed, "other-model", 0.6 + 0.3 * (seed % 3));
  spec.learning = true;
  spec.drift = 0.01;
  spec.contexts = 16;
  spec.steps = 16;
  return spec;
}
RolloutSpec Dropout(int seed) {
  RolloutSpec spec = OtherModel(seed);
  spec.sin = "dropout";
  return spec;
}
RolloutSpec Packed(int seed) {
  RolloutSpec spec = With(seed, "packed", 0.3);
  spec.pack = 2 + seed % 2;
  spec.steps = 16;
  spec.sequences = 12;
  return spec;
}
RolloutSpec Template(int seed) {
  RolloutSpec spec = With(seed, "template", 0.5 + 0.3 * (seed % 3));
  spec.steps = 16;
  spec.sequences = 12;
  spec.length = seed % 2 == 0 ? 64 : 512;
  return spec;
}
RolloutSpec StalePrefix(int seed) {
  RolloutSpec spec = With(seed, "stale-prefix", 0.5);
  spec.steps = 16;
  spec.sequences = 12;
  return spec;
}
RolloutSpec OneOfEight(int seed, const char* sin) {
  RolloutSpec spec = With(seed, sin);
  spec.workers = 8;
  spec.sequences = 16;
  spec.steps = 12;
  spec.guilty = "worker";
  spec.guilty_every = 8;
  return spec;
}
RolloutSpec OneShifted(int seed) { return OneOfEight(seed, "off-by-one"); }
RolloutSpec OneCold(int seed) {
  RolloutSpec spec = OneOfEight(seed, "processed-against-raw");
  spec.temperature = seed % 4 < 2 ? 0.7 : 1.4;
  return spec;
}
RolloutSpec EightWorkers(int seed) { return OneOfEight(seed, ""); }

}  // namespace

const std::vector<CourseFamily>& CourseFamilies() {
  static const std::vector<CourseFamily> families = {
      {"a missed update, repaired", Repaired, "drift/missed-sync", "missed-sync", "fell back", 20,
       39},
      {"weights that stand, repaired", RepairedRamp, "drift/missed-sync", "missed-sync",
       "fell back", -1, 39},
      {"versions that stand", StandingVersion, "drift/missed-sync", "missed-sync", "20 updates", 19,
       39},
      {"dropout that ends", DropoutUntil, "drift/logit-drift", "batch-variance", "Ended at step 30",
       0, 29, 1, "Ended at step 30"},
      {"dropout that begins late", DropoutGrows, "drift/logit-drift", "",
       "Newest in steps 56 to 63", -1, 63},
      {"a temperature that ends", HotUntil, "drift/record-invalid", "temperature",
       "Ended at step 30", 0, 29, 1, "Ended at step 30"},
      {"steady dropout", Steady, "drift/logit-drift", "batch-variance", "Newest in steps 56 to 63",
       0, 63, 1, "Newest in steps 56 to 63"},
      {"a short pause of updates", AsyncPause, "", "", ""},
      {"healthy learning", Learning, "", "", ""},
      {"an adapter that is not merged", Unmerged, "drift/", "missed-sync", "adapter is not merged",
       -1, -1, 0.1, "a LoRA adapter is not merged"},
      {"another model", OtherModel, "drift/logit-drift", "other-model", "another model", -1, -1,
       0.5,
       "dropout or another random layer is active in one pass, or the engine has another model"},
      {"dropout", Dropout, "drift/logit-drift", "batch-variance", "dropout", -1, -1, 0.5,
       "dropout or another random layer is active in one pass, or the engine has another model"},
      {"packed without a mask", Packed, "drift/logit-drift", "packing", "pack"},
      {"another template", Template, "drift/logit-drift", "template", "different prompts", -1, -1,
       0.5, "different prompts"},
      {"a stale prefix", StalePrefix, "drift/logit-drift", "stale-cache", "prefix cache"},
      {"one worker of eight, shifted", OneShifted, "drift/logit-drift", "misalignment",
       "worker worker-0"},
      {"one worker of eight, cold", OneCold, "drift/logit-drift", "temperature", "worker worker-0"},
      {"eight healthy workers", EightWorkers, "", "", ""},
  };
  return families;
}

}  // namespace plumbline::rules::testing
