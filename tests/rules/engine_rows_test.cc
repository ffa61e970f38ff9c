// Tests rows of many steps that each rule judges together (rows_judge.h): the verdicts, their
// order, the stored values and the resulting state equal those of rows judged step by step, in runs
// with every kind of fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "rules/engine/engine.h"
#include "tests/rules/engine_outcome.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using List = std::vector<std::pair<std::string, double>>;

// The series lists of one step, by number.
struct Step {
  int64_t step = 0;
  std::map<uint64_t, List> lists;
};

struct Attempt {
  std::vector<Step> steps;
  uint32_t attempt = 0;
};

constexpr const char* kKinds[] = {
    "healthy",   "nan",        "many-nan",  "inf",        "spike",     "recovered",
    "shift",     "divergence", "drift",     "stall",      "vanish",    "zero-norm",
    "explosion", "norm-jump",  "clip",      "storm",      "skipped",   "rest",
    "restart",   "rate-nan",   "negative",  "hinge",      "lowest",    "overfit",
    "memory",    "means",      "ratio",     "held",       "counters",  "groups",
    "mfu",       "checksums",  "two-rates", "two-losses", "scale-nan", "many-lists"};

// `x` is the number of steps since the onset of the fault.
Step StepOf(const std::string& kind, int64_t step, int64_t i, int64_t x, double noise,
            std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const auto n = static_cast<double>(i), after = static_cast<double>(x);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const bool on = x >= 0;
  const auto is = [&](const char* name) { return kind == name; };
  double loss = (2 + 8 / std::sqrt(n + 1)) * std::exp(noise * normal(random));
  double norm = (0.5 + 3 / std::sqrt(n + 1)) * std::exp(noise * normal(random));
  double rate = 1e-3 * std::min(1.0, (n + 1) / 100) * (1 - n / 10000);
  double memory = 1e9 + 1e6 * uniform(random);
  // Losses.
  if (is("nan") && x == 0) loss = nan;
  if (is("many-nan") && on && uniform(random) < 0.3) loss = norm = nan;
  if (is("inf") && x == 3) loss = HUGE_VAL;
  if (is("spike") && on) loss *= 1 + 3 * std::exp(-after / 400);
  if (is("recovered") && on && x < 30) loss *= 2;
  if (is("shift") && on) loss *= 1.3;
  if (is("divergence") && on) loss *= 1 + after / 200;
  if (is("drift") && on) loss *= 1 + after / 3000;
  if (is("stall")) loss = 10.8 * std::exp(1e-3 * normal(random));
  if (is("negative") && i % 97 == 13) loss = -loss;
  if (is("hinge") && i > 50) loss = std::max(0.0, normal(random) - 1);
  if (is("lowest") && on) loss = norm = 0;
  // Norms and rates.
  if (is("vanish") && on) norm *= std::exp(-after / 10);
  if (is("zero-norm") && on) norm = 0;
  if (is("explosion") && on) norm *= std::pow(10, std::min(9.0, after / 5));
  if (is("norm-jump") && on && x < 40) norm *= 30;
  if (is("clip")) norm = std::min(norm, 0.6);
  if (is("rest") && on) rate = 0;
  if (is("restart") && on) rate = 1e-3;
  if (is("rate-nan") && uniform(random) < 0.05) rate = nan;
  if (is("memory")) memory += 2e6 * n;
  Step reported{step, {}};
  List& list = reported.lists[1] = {{"train/loss", loss},
                                    {"lr", rate},
                                    {"grad_norm", norm},
                                    {"memory/allocated", memory},
                                    {"layers/3/norm", uniform(random)}};
  if (!is("means")) list.emplace_back("tokens", 4096 * n);
  // Series specific to the kind.
  const auto too = [&](const std::string& op, double value) { list.emplace_back(op, value); };
  if (is("storm")) too("loss_scale", std::pow(2, on ? 16 - std::min(24.0, after / 7) : 16));
  if (is("scale-nan"))
    too("loss_scale", i % 50 == 3 ? nan : 65536), list[2].second = on ? nan : norm;
  if (is("skipped")) too("skipped", on && i % 5 == 0 ? 1 : 0);
  if (is("means")) too("train/loss_sum", 100 * loss), too("train/tokens", 100);
  if (is("ratio")) too("update_ratio", std::pow(10, on ? 0.0 : -3 + 0.1 * normal(random)));
  if (is("held")) too("held", on ? 0 : rate);
  if (is("counters")) too("scheduler.step", n / (on ? 2 : 1)), too("optimizer.step", n);
  if (is("groups")) too("lr/pg1", on ? 0 : rate), too("lr/pg2", rate / 2);
  if (is("mfu")) too("mfu", on ? 1.7 : 0.4), too("memory/limit", 8e10);
  if (is("memory")) too("memory/limit", 3.4e9);
  if (is("two-rates")) too("learning_rate", i % 400 < 200 ? 1e-3 : 1e-4);
  if (is("two-losses")) too("aux_loss", on && x % 9 == 0 ? nan : loss / 10), too("z_loss", 1e-4);
  if (is("checksums")) too("parameters", n), too("storage", 1);
  // Occasional lists: one that a rule reads, and one that no rule reads.
  const int64_t every = is("many-lists") ? 3 : 40;
  if (i % every == every - 1)
    reported.lists[2] = {{"val/loss", is("overfit") && on ? loss * std::exp(after / 1000) : loss}};
  if (i % 7 == 2) reported.lists[3] = {{"layer/y", n}};
  if (is("many-lists") && i % 2 == 0) reported.lists[4] = {{"lm loss", loss}, {"gnorm", norm}};
  if (is("many-lists") && i % 11 == 10) reported.lists.erase(1);
  return reported;
}

// Returns two attempts. The second starts within the first.
std::vector<Attempt> RunsOf(const std::string& kind, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t count = kind == "stall" || seed % 3 == 0 ? 4400 : 1300;
  const int64_t onset = count / 2 + static_cast<int64_t>(random() % 300);
  const double noise = seed % 2 == 0 ? 0.01 : 0.1;
  const bool gaps = seed % 4 == 1;
  std::vector<Attempt> runs(2);
  int64_t step = 0;
  for (int64_t i = 0; i < count; ++i) {
    runs[0].steps.push_back(StepOf(kind, step, i, i - onset, noise, random));
    step += gaps && random() % 20 == 0 ? static_cast<int64_t>(2 + random() % 300) : 1;
  }
  runs[1].attempt = 1;
  const auto begin = static_cast<size_t>(count - 700 + static_cast<int64_t>(random() % 300));
  step = runs[0].steps[begin].step;
  for (auto i = static_cast<int64_t>(begin); i < count + 200; ++i)
    runs[1].steps.push_back(StepOf(kind, step++, i, i - onset, noise, random));
  return runs;
}

void DescribeProgress(v1::Batch* batch, int64_t step) {
  test::AddProgress(batch, step).set_newest_step(step + 1);
}

// Returns the steps in [first, end) as a batch of columns, or of single scalars.
v1::Batch BatchOf(const Attempt& run, size_t first, size_t end, bool columns) {
  v1::Batch batch = test::BatchOf(test::SourceOf("run", 0, 1, run.attempt));
  batch.set_stream_id(7000);
  std::map<uint64_t, int> places;
  for (size_t i = first; i < end; ++i) {
    const Step& step = run.steps[i];
    for (const auto& [number, list] : step.lists) {
      if (!columns) {
        for (const auto& [op, value] : list)
          test::AddScalar(&batch, op, step.step, value).set_sample_size(1);
        continue;
      }
      const auto [place, fresh] = places.try_emplace(number, batch.series_size());
      if (fresh) {
        v1::SeriesSet& set = *batch.add_series_sets();
        set.set_id(number);
        for (const auto& [op, value] : list) set.add_sites()->set_op(op);
        batch.add_series()->set_set(number);
        batch.mutable_series()->rbegin()->add_source(0);
      }
      v1::SeriesRows& rows = *batch.mutable_series(place->second);
      rows.add_step(step.step);
      for (const auto& [op, value] : list) rows.add_value(value);
    }
  }
  DescribeProgress(&batch, run.steps[end - 1].step);
  return batch;
}

struct Way {
  bool columns = true;
  size_t steps = 0;  // per batch; 0: random, up to 900
  bool store = false;
  uint64_t run_bytes = 0;
  bool restored = false;  // restore the engine from its state in the middle of each attempt
};

// Returns the part of an engine's state that belongs to rules. It does not depend on the division
// into batches.
std::string RulesOf(const std::string& state) {
  const size_t begin = state.rfind("causality/moe-future-leak");  // the first rule
  EXPECT_NE(begin, std::string::npos);
  return state.substr(begin, state.size() - begin - sizeof(uint32_t));  // without the checksum
}

struct Judged {
  std::vector<std::string> reported;  // verdicts, and the steps stored between them
  Stored stored;
  std::vector<std::string> remembered;
};

Judged Judge(const std::vector<Attempt>& runs, const Way& way) {
  Judged judged;
  std::mt19937_64 random(runs[0].steps.size());
  EngineConfig config;
  config.run_bytes = way.run_bytes;
  const auto make = [&] {
    auto engine = *Engine::Create(
        config, [&](const v1::Verdict& v) { judged.reported.push_back(v.DebugString()); });
    if (way.store) {
      engine->SetOnSeries([&, store = StoreIn(&judged.stored)](const StepSeries& step) {
        judged.reported.push_back(std::to_string(step.step) + step.columns->key);
        store(step);
      });
    }
    return engine;
  };
  auto engine = make();
  for (const Attempt& run : runs) {
    const size_t half = run.steps.size() / 2;
    for (size_t first = 0, end = 0; first < run.steps.size(); first = end) {
      end = first + (way.steps > 0 ? way.steps : 1 + random() % 900);
      end = std::min(end, first < half ? half : run.steps.size());
      EXPECT_TRUE(engine->Add(BatchOf(run, first, end, way.columns)).ok());
      if (end != half) continue;
      const std::string state = engine->Checkpoint();
      judged.remembered.push_back(RulesOf(state));
      if (!way.restored) continue;
      engine = make();
      EXPECT_TRUE(engine->Restore(state).ok());
    }
  }
  judged.remembered.push_back(RulesOf(engine->Checkpoint()));
  engine->Finish();
  return judged;
}

class EngineRows : public testing::TestWithParam<const char*> {};

TEST_P(EngineRows, ManyStepsTogetherAreJudgedAsEachByItself) {
  uint64_t seed = 0;
  for (const char c : std::string(GetParam())) seed = 31 * seed + static_cast<unsigned char>(c);
  const std::vector<Attempt> runs = RunsOf(GetParam(), seed);
  // Step by step: too few rows to be judged together.
  const Judged plain = Judge(runs, {.steps = 5}), stored = Judge(runs, {.steps = 5, .store = true});
  EXPECT_GT(plain.reported.size(), 8u);
  EXPECT_GT(stored.stored.size(), 5000u);
  EXPECT_EQ(Judge(runs, {.columns = false, .steps = 100}).reported, plain.reported);
  for (const size_t steps : {size_t{8}, size_t{257}, size_t{0}}) {
    const Judged together = Judge(runs, {.steps = steps});
    EXPECT_EQ(together.reported, plain.reported) << steps;
    EXPECT_TRUE(together.remembered == plain.remembered) << steps;
  }
  const Judged adjacent = Judge(runs, {.store = true});
  EXPECT_EQ(adjacent.reported, stored.reported);
  EXPECT_EQ(adjacent.stored, stored.stored);
  EXPECT_EQ(Judge(runs, {.restored = true}).reported, plain.reported);
  // If memory is limited, rules judge step by step.
  EXPECT_EQ(Judge(runs, {.run_bytes = uint64_t{64} << 20}).reported, plain.reported);
}

std::string NameOf(const testing::TestParamInfo<const char*>& kind) {
  std::string name = kind.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, EngineRows, testing::ValuesIn(kKinds), NameOf);

}  // namespace
}  // namespace plumbline::rules
