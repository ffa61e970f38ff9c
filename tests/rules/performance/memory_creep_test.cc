// Measures false alarm rate, detection rate and detection time of performance/memory-creep: the
// figures of the rule page.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules {
namespace {

using testing::Draw;

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

// In per cent of the available memory.
struct Memory {
  std::vector<double> values;
  bool bytes = false;  // If set, the values are in bytes and a limit is given.
};

double Between(Draw& draw, double low, double high) { return low + (high - low) * draw.Uniform(); }

double LogBetween(Draw& draw, double low, double high) {
  return std::exp(Between(draw, std::log(low), std::log(high)));
}

constexpr const char* kHealthy[] = {"flat", "uneven",      "wander", "saturates", "root",     "saw",
                                    "step", "first-epoch", "log",    "plateaus",  "two-fills"};

// `at` is the number of steps so far, `n` the total. Range: about 0 to 1.
struct Shape {
  explicit Shape(Draw& draw, double n)
      : tau(LogBetween(draw, 20, 1000)),
        teeth(std::floor(Between(draw, 2, 21))),
        offset(draw.Uniform()),
        end(Between(draw, 0.1, 0.95) * n),
        scale(LogBetween(draw, 3, n / 3)) {}
  double Of(const std::string& kind, double at, double n) const {
    if (kind == "saturates") return 1 - std::exp(-at / tau);
    if (kind == "root") return std::sqrt(at / n);
    if (kind == "saw") {
      const double turn = at * teeth / n + offset;
      return turn - std::floor(turn);
    }
    if (kind == "step") return at < end ? 0 : 1;
    if (kind == "first-epoch") return std::min(1.0, at / end);
    if (kind == "log") return std::log1p(at / scale) / std::log1p(n / scale);
    if (kind == "plateaus") return std::floor(3 * at / n + offset) / 3;
    if (kind == "two-fills")
      return 0.5 * (1 - std::exp(-at / scale)) +
             0.5 * (at < end ? 0 : 1 - std::exp((end - at) / tau));
    return 0;
  }
  double tau, teeth, offset, end, scale;
};

Memory Healthy(const std::string& kind, uint64_t seed) {
  Draw draw(seed);
  const double lengths[] = {150, 400, 600, 2000};
  const double n = lengths[draw.generator()() % 4];
  const Shape shape(draw, n);
  const double base = Between(draw, 10, 50), grows = Between(draw, 5, 95 - base);
  const double noise = kind == "uneven" ? 0.05 * base : LogBetween(draw, 0.02, 2);
  Memory memory;
  memory.bytes = draw.Uniform() < 0.5;
  double wander = 0;
  for (double at = 0; at < n; ++at) {
    if (kind == "wander") wander = 0.97 * wander + draw.Normal();
    memory.values.push_back(base + grows * shape.Of(kind, at, n) + wander + noise * draw.Normal());
  }
  return memory;
}

constexpr const char* kLeaks[] = {"linear", "staircase", "accelerating", "late"};

// Returns growth up to `full` per cent at a mean `rate` per step.
Memory Leak(const std::string& kind, uint64_t seed, double full) {
  Draw draw(seed);
  const double rate = LogBetween(draw, 0.01, 1), base = Between(draw, 20, 50);
  const double noise = LogBetween(draw, 0.02, 1);
  const double n = std::ceil((full - base) / rate),
               epoch = std::max(2.0, n / Between(draw, 15, 60));
  Memory memory;
  memory.bytes = draw.Uniform() < 0.5;
  const double still = kind == "late" ? n / 2 : 0;
  for (double at = 0; at < n + still; ++at) {
    double share = std::max(0.0, at - still) / n;
    if (kind == "staircase") share = std::floor(at / epoch) * epoch / n;
    if (kind == "accelerating") share = std::pow(share, 1.5);
    memory.values.push_back(base + (full - base) * share + noise * draw.Normal());
  }
  return memory;
}

struct Heard {
  bool reported = false;  // If set, the warning is in the final report.
  bool note = false;      // If set, the warning was withdrawn.
  int64_t at = -1;        // Step of the warning before the end; -1 if there was none.
  std::string unsure;     // The reason if the rule was inconclusive.
};

Heard Listen(const Memory& memory) {
  v1::Batch batch;
  testing::AddTrainer(0, 1, &batch);
  const auto add = [&](int64_t step, const char* name, double value) {
    v1::Evidence& evidence = *batch.add_evidence();
    evidence.mutable_site()->set_op(name);
    evidence.set_step(step);
    evidence.mutable_scalar()->set_value(value);
  };
  for (size_t i = 0; i < memory.values.size(); ++i) {
    const auto step = static_cast<int64_t>(i);
    const double unit = memory.bytes ? 8e8 : 1;
    add(step, memory.bytes ? "memory.allocated" : "system/gpu.0.memoryAllocated",
        unit * memory.values[i]);
    if (memory.bytes && i == 0) add(step, "memory.limit", unit * 100);
  }
  Heard heard;
  Report report;
  EngineConfig config;
  config.rules = {"performance/memory-creep"};
  auto engine = Engine::Create(config, [&](const v1::Verdict& verdict) {
    if (verdict.rule() != "performance/memory-creep") return;
    report.Add(verdict);
    if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE) heard.unsure = verdict.reason();
    const auto newest = static_cast<int64_t>(memory.values.size()) - 1;
    if (verdict.kind() == v1::Verdict::KIND_FINDING && verdict.site().step_last() < newest &&
        heard.at < 0)
      heard.at = verdict.site().step_last();
  });
  EXPECT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Add(std::move(batch)).ok());
  (*engine)->Finish();
  for (const v1::Finding* finding : report.findings()) {
    heard.reported |= finding->level() >= v1::LEVEL_WARNING;
    heard.note |= finding->level() < v1::LEVEL_WARNING;
  }
  return heard;
}

TEST(MemoryCreep, MemoryThatIsWellIsNotAccused) {
  const uint64_t each = Long() ? 200 : 12;
  int accused = 0, notes = 0;
  for (const std::string kind : kHealthy) {
    int of_kind = 0, notes_of_kind = 0;
    for (uint64_t i = 0; i < each; ++i) {
      const Heard heard = Listen(Healthy(kind, 1000 * i + 7));
      of_kind += heard.reported ? 1 : 0;
      notes_of_kind += heard.note ? 1 : 0;
      if (heard.reported) RecordProperty(kind + "_seed_" + std::to_string(i), 1);
    }
    RecordProperty("accused_" + kind, of_kind);
    RecordProperty("notes_" + kind, notes_of_kind);
    if (Long()) std::printf("%s: %d accused, %d notes\n", kind.c_str(), of_kind, notes_of_kind);
    accused += of_kind;
    notes += notes_of_kind;
  }
  EXPECT_LE(accused, Long() ? 8 : 1);
  EXPECT_LE(notes, Long() ? 40 : 4);
}

// Tests runs that fail because of the leak.
TEST(MemoryCreep, ALeakIsReportedBeforeTheLimitIsReached) {
  const uint64_t each = Long() ? 100 : 8;
  for (const std::string kind : kLeaks) {
    int live = 0, in_the_end = 0;
    std::vector<double> used;
    for (uint64_t i = 0; i < each; ++i) {
      const Memory memory = Leak(kind, 1000 * i + 3, 100);
      const Heard heard = Listen(memory);
      live += heard.at >= 0 ? 1 : 0;
      in_the_end += heard.reported ? 1 : 0;
      if (heard.at >= 0)
        used.push_back(static_cast<double>(heard.at + 1) /
                       static_cast<double>(memory.values.size()));
    }
    std::sort(used.begin(), used.end());
    if (Long() && !used.empty())
      std::printf("%s: %d live, %d in the end; reported at %.3f (middle), %.3f (90 %%), %.3f\n",
                  kind.c_str(), live, in_the_end, used[used.size() / 2], used[used.size() * 9 / 10],
                  used.back());
    EXPECT_GE(live, static_cast<int>(each) * 8 / 10) << kind;
    EXPECT_GE(in_the_end, static_cast<int>(each) * 8 / 10) << kind;
  }
}

// Tests runs that end earlier. The file is judged as a whole.
TEST(MemoryCreep, ALeakIsFoundInARunThatEndsBeforeTheLimit) {
  const uint64_t each = Long() ? 100 : 8;
  for (const double full : {65.0, 80.0}) {
    for (const std::string kind : kLeaks) {
      int found = 0;
      for (uint64_t i = 0; i < each; ++i)
        found += Listen(Leak(kind, 1000 * i + 5, full)).reported ? 1 : 0;
      if (Long()) std::printf("%s up to %.0f %%: %d\n", kind.c_str(), full, found);
      EXPECT_GE(found, static_cast<int>(each) * (full > 70 ? 6 : 4) / 10) << kind << full;
    }
  }
}

// Tests that NaN values do not change the result.
TEST(MemoryCreep, PointsWithoutANumberHideNoLeak) {
  for (uint64_t i = 0; i < 8; ++i) {
    Memory leak = Leak("linear", 1000 * i + 3, 100), well = Healthy("saturates", 1000 * i + 7);
    for (Memory* memory : {&leak, &well}) {
      for (size_t at = 5; at < memory->values.size(); at += 17) {
        memory->values[at] = at % 2 == 0 ? std::numeric_limits<double>::quiet_NaN()
                                         : std::numeric_limits<double>::infinity();
      }
    }
    EXPECT_EQ(Listen(leak).reported, Listen(Leak("linear", 1000 * i + 3, 100)).reported) << i;
    EXPECT_FALSE(Listen(well).reported) << i;
  }
}

// Tests a peak within a tenth of the limit that fell again. The warning must not be in the final
// report.
TEST(MemoryCreep, AWarningIsTakenBackWhereMemoryFell) {
  Memory memory;
  for (int i = 0; i < 900; ++i) memory.values.push_back(30 + 0.15 * (i % 450) + 0.01 * (i % 3));
  const Heard heard = Listen(memory);
  EXPECT_GE(heard.at, 0);
  EXPECT_FALSE(heard.reported);
  EXPECT_TRUE(heard.note);
}

TEST(MemoryCreep, FewPointsAreNotEnough) {
  Memory memory;
  for (int i = 0; i < 45; ++i) memory.values.push_back(30 + i);
  EXPECT_EQ(Listen(memory).unsure.substr(0, 10), "few-steps:");
}

}  // namespace
}  // namespace plumbline::rules
