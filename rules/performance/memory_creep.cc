#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/memory-creep

Memory grows from step to step and will reach its limit.

**Why.** A list that keeps the loss with its graph (`losses.append(loss)` instead of `loss.item()`) holds some 2 MB a step: with 20 GB free the run
dies of memory at step 10,000, on a Sunday, and the error names an innocent allocation.

**What it checks.** Series of memory (`memory.allocated`, `memory.reserved`, ...; not peaks), of each rank: the smallest value of each
step, which is what is left when activations are gone. Of the newer half of the steps (at least 50; the first 10 of an attempt do
not count) the slope by Theil and Sen with its 99 % interval. A finding where all of the interval is above 0, in both halves of these steps alone, too, the
later half grows at least half as fast as the earlier one (a cache that fills slows down), and the line reaches the limit within ten times as many steps. The limit is a series beside it (`memory.limit`, `memory.total`), the option `limit` in the series' own unit, 1 for a
share, 100 for a percentage.

**Bad.** `memory.allocated grows by 2.1e+06 a step (steps 200 to 399); it reaches 8e+10 in 1,900 steps`.

**Good.** `memory.allocated does not grow (99 % interval -310 to 290 a step)`.

**How to fix it.** Host references to tensors that have a graph: `.item()` or `.detach()` before anything is kept; metrics that gather; hooks that
store activations; caches by shape (`torch.compile` with dynamic shapes). `torch.cuda.memory._record_memory_history()` and `_dump_snapshot()` name
who allocated what is still there. If `allocated` is flat and `reserved` grows it is fragmentation: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

**Strength.** `statistical`, measured: of 1,000 simulated healthy series of 400 steps (batches of uneven length, 5 % apart, with a quarter of the
memory free; a cache that fills in the first 40 steps) 5 alarmed, so at most 1.1 % do (95 %).

**Inconclusive when** no rank has 50 steps of it behind its start, or memory grows and no limit is told.

**What it cannot see.** Growth that begins late, until it is half of the steps; memory that no series tells; growth in jumps further apart than the
run is long.

**Cost.** 4 KB a series and rank.

**Sources.** Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "limit",
     .type = OptionInfo::Type::kNumber,
     .unit = "the series' own",
     .default_value = "0",
     .reason = "0: what a series beside it tells",
     .low = 0,
     .high = 1e18},
};

constexpr RuleInfo kInfo = {"performance/memory-creep",
                            "memory grows towards its limit",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr double kFalseAlarmsOfCreep = 1.1e-2;  // 5 of 1,000: below 10.5 / 1000 at 95 %
constexpr int64_t kMemoryStartUp = 10, kFewestMemorySteps = 50;
constexpr double kReach = 10;  // times as many steps as were looked at
constexpr size_t kMostMemoryBuckets = 256, kMostMemoryCourses = 4096;

enum class MemoryKind { kNone, kUse, kLimit };

std::vector<std::string> WordsOfMemory(const std::string& op) {
  return absl::StrSplit(absl::AsciiStrToLower(op), absl::ByAnyChar("/_-. :"), absl::SkipEmpty());
}

bool HasMemoryWord(const std::vector<std::string>& words, std::initializer_list<const char*> any) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(any.begin(), any.end(), word) != any.end();
  });
}

// "system/gpu.0.memoryAllocated".
bool IsWandbGpu(const std::string& op) {
  return op.starts_with("system/gpu.") || op.starts_with("system.gpu.");
}

MemoryKind KindByWords(const std::string& op) {
  const auto words = WordsOfMemory(op);
  if (HasMemoryWord(words, {"limit", "total", "capacity"})) return MemoryKind::kLimit;
  if (HasMemoryWord(words, {"peak", "max", "free", "available", "fragmentation"}))
    return MemoryKind::kNone;
  if (IsWandbGpu(op) && op.ends_with(".memory")) return MemoryKind::kNone;  // time, not room
  return MemoryKind::kUse;
}

// Asked at each step for the same few names: the words of each are looked at once.
MemoryKind KindOfMemory(const std::string& op) {
  constexpr size_t kMostKept = 256;
  thread_local std::unordered_map<std::string, MemoryKind> kept;
  if (const auto known = kept.find(op); known != kept.end()) return known->second;
  if (kept.size() >= kMostKept) kept.clear();
  return kept[op] = KindByWords(op);
}

// What a series' own name says of its limit; 0: nothing. W&B tells its GPUs' memory in per cent.
double LimitInName(const std::string& op) {
  const auto words = WordsOfMemory(op);
  if (HasMemoryWord(words, {"share", "fraction", "ratio"})) return 1;
  if (HasMemoryWord(words, {"percent", "pct"})) return 100;
  return IsWandbGpu(op) && op.ends_with("memoryAllocated") ? 100 : 0;
}

// The smallest values of neighbouring steps, thinned out to a few hundred.
struct MemoryCourse {
  uint32_t attempt = 0;
  int64_t steps = 0;                              // told, of the attempt
  int bits = 0;                                   // a bucket is 2^bits steps
  std::vector<std::pair<int64_t, double>> least;  // by bucket: its number, its smallest value
  int64_t last = 0;                               // step
  void Persist(Archive& a) { a(attempt, steps, bits, least, last); }

  void Add(uint32_t of_attempt, int64_t step, double value) {
    if (of_attempt != attempt) *this = MemoryCourse{.attempt = of_attempt};
    last = step;
    if (++steps <= kMemoryStartUp) return;
    Put(step >> bits, value);
    while (least.size() > kMostMemoryBuckets) Thin();
  }

 private:
  void Put(int64_t bucket, double value) {
    if (!least.empty() && least.back().first >= bucket) {
      least.back().second = std::min(least.back().second, value);
    } else {
      least.emplace_back(bucket, value);
    }
  }
  void Thin() {
    ++bits;
    const auto before = std::exchange(least, {});
    for (const auto& [bucket, value] : before) Put(bucket >> 1, value);
  }
};

// What one rank's memory does.
struct Creep {
  bool enough = false;
  bool grows = false;   // all along, and does not slow down
  SlopeInterval slope;  // a step
  int64_t first = 0, last = 0;
  double now = 0;
};

Creep LookAt(const MemoryCourse& course) {
  Creep creep;
  std::vector<double> x, y;
  const size_t half = course.least.size() / 2;
  const auto reach = [&](size_t from) {
    return (course.least.back().first - course.least[from].first + 1) << course.bits;
  };
  if (course.least.empty() || reach(0) < kFewestMemorySteps) return creep;
  const size_t from = reach(half) >= kFewestMemorySteps ? half : 0;
  for (size_t i = from; i < course.least.size(); ++i) {
    x.push_back(static_cast<double>(course.least[i].first << course.bits));
    y.push_back(course.least[i].second);
  }
  creep.enough = true;
  creep.first = course.least[from].first << course.bits;
  creep.last = course.last;
  creep.slope = TheilSen(x, y);
  // Each half is asked for itself: noise that leans one way once in 200 does so twice in 40,000.
  const std::span<const double> steps(x), values(y);
  const size_t middle = x.size() / 2;
  const SlopeInterval earlier = TheilSen(steps.first(middle), values.first(middle));
  const SlopeInterval later = TheilSen(steps.subspan(middle), values.subspan(middle));
  creep.grows =
      creep.slope.low > 0 && earlier.low > 0 && later.low > 0 && 2 * later.slope >= earlier.slope;
  creep.now = y.back();
  return creep;
}

class MemoryCreep : public Rule {
 public:
  explicit MemoryCreep(const Options& options)
      : roles_(options.roles()), limit_(options.Number("limit")) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return roles_.Of(site.op()) == SeriesRole::kMemory &&
           KindOfMemory(site.op()) != MemoryKind::kNone;
  }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    Known& known = known_.Of(step, [&] { return Find(step.site); });
    if (!known.reads) return;
    std::vector<std::pair<uint32_t, double>>& least = least_;  // by rank, over the step's calls
    least.clear();
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      const double value = item.evidence->scalar().value();
      if (!(value >= 0) || !std::isfinite(value)) continue;
      if (least.empty() || least.back().first != item.source->rank()) {
        least.emplace_back(item.source->rank(), value);
      } else {
        least.back().second = std::min(least.back().second, value);
      }
    }
    if (known.limit) return TakeLimits(least);
    if (known.series == nullptr) known.series = &series_[{step.site.layer(), step.site.op()}];
    Series& series = *known.series;
    int64_t steps = 0;
    for (const auto& [rank, value] : least) {
      const auto place = series.ranks.find(rank);
      const bool fresh = place == series.ranks.end();
      if (fresh && ++watched_ > kMostMemoryCourses) continue;
      MemoryCourse& course = fresh ? series.ranks[rank] : place->second;
      course.Add(step.attempt, step.step, value);
      steps = std::max(steps, course.steps);
    }
    // While it runs it is looked at whenever its steps have doubled.
    if (series.told || steps < 128 || (steps & (steps - 1)) != 0) return;
    v1::Verdict verdict = JudgeSeries(step.site.layer(), step.site.op(), series.ranks);
    series.told = verdict.kind() == v1::Verdict::KIND_FINDING;
    if (series.told) out.Add(std::move(verdict));
  }

  const void* judges_apart() const override { return this; }
  // Of courses that are known, up to where one is looked at.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    std::vector<MemoryCourse*> courses;
    size_t taken = rows.size() - first;
    for (const ScalarColumn& column : rows.columns) {
      const Known& known = known_.Of(column.any(), [&] { return Find(column.any().site); });
      if (known.limit || known.series == nullptr) return 0;
      const auto place = known.series->ranks.find(column.source().rank());
      if (place == known.series->ranks.end()) return 0;
      MemoryCourse& course = place->second;
      if (course.attempt != rows.end.attempt) return 0;
      const auto next = std::bit_ceil(static_cast<uint64_t>(course.steps) + 1);
      taken = std::min<size_t>(taken, next - static_cast<uint64_t>(course.steps) - 1);
      courses.push_back(&course);
    }
    for (size_t i = 0; i < courses.size(); ++i) {
      for (size_t row = first; row < first + taken; ++row) {
        const double value = rows.columns[i].value(row);
        if (value >= 0 && std::isfinite(value))
          courses[i]->Add(rows.end.attempt, rows.steps[row], value);
      }
    }
    return taken;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [site, series] : series_) {
      if (!series.told && !series.ranks.empty())
        out.Add(JudgeSeries(site.first, site.second, series.ranks));
    }
  }

  // known_ is found again; least_ is of one call.
  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(series_, limits_, watched_);
    if (archive.reading()) known_ = {};
  }

 private:
  using Ranks = std::map<uint32_t, MemoryCourse>;
  struct Series {
    Ranks ranks;
    bool told = false;  // a finding: said once
    void Persist(Archive& a) { a(ranks, told); }
  };

  // What is known of a site; found again.
  struct Known {
    bool reads = false, limit = false;
    Series* series = nullptr;  // once there is one
  };
  Known Find(const v1::Site& site) const {
    return {ReadsScalar(site), KindOfMemory(site.op()) == MemoryKind::kLimit, nullptr};
  }

  void TakeLimits(const std::vector<std::pair<uint32_t, double>>& told) {
    for (const auto& [rank, value] : told) {
      if (limits_.size() < kMostMemoryCourses || limits_.contains(rank)) limits_[rank] = value;
    }
  }

  double LimitOf(uint32_t rank, const std::string& op) const {
    if (limit_ > 0) return limit_;
    if (const double named = LimitInName(op); named > 0) return named;
    const auto told = limits_.find(rank);
    return told == limits_.end() ? 0 : told->second;
  }

  // Steps until the line is at the limit.
  static double StepsLeft(const Creep& creep, double limit) {
    return std::max(0.0, limit - creep.now) / creep.slope.slope;
  }

  v1::Verdict JudgeSeries(const std::string& layer, const std::string& op,
                          const Ranks& ranks) const {
    std::vector<uint32_t> creeping, all;
    const Creep* soonest = nullptr;
    std::map<uint32_t, Creep> looks;
    bool any = false, no_limit = false;
    double left = HUGE_VAL;
    for (const auto& [rank, course] : ranks) {
      all.push_back(rank);
      const Creep& creep = looks[rank] = LookAt(course);
      any |= creep.enough;
      if (!creep.enough || !creep.grows) continue;
      const double limit = LimitOf(rank, op);
      no_limit |= !(limit > 0);
      const double steps = limit > 0 ? StepsLeft(creep, limit) : HUGE_VAL;
      if (!(steps <= kReach * static_cast<double>(creep.last - creep.first + 1))) continue;
      creeping.push_back(rank);
      if (steps < left || soonest == nullptr) soonest = &creep;
      left = std::min(left, steps);
    }
    const Creep& shown = soonest != nullptr ? *soonest : looks.begin()->second;
    v1::Verdict verdict;
    if (soonest != nullptr) {
      verdict = Found(op, *soonest, left, LimitOf(creeping.front(), op), creeping.size());
    } else if (!any) {
      verdict = Inconclusive(absl::StrFormat(
          "few-steps: %s has fewer than %d steps behind its start", op, kFewestMemorySteps));
    } else if (no_limit) {
      verdict = Inconclusive(absl::StrCat("no-limit: ", op, " grows, and no limit is told"));
    } else {
      verdict = Pass(
          absl::StrFormat("%s does not grow towards its limit (99 %% interval %.3g to %.3g a step)",
                          op, shown.slope.low, shown.slope.high));
    }
    SetPlace(verdict, layer, op, shown.first, std::max(shown.first, shown.last),
             creeping.empty() ? all : creeping);
    return verdict;
  }

  static v1::Verdict Found(const std::string& op, const Creep& creep, double left, double limit,
                           size_t ranks) {
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    found.Title(kInfo.title)
        .Explain(absl::StrFormat("%s grows by %.3g a step (99 %% interval %.3g to %.3g, steps %d "
                                 "to %d) on %d %s; it is at "
                                 "%.4g and reaches %.4g in some %.3g steps.",
                                 op, creep.slope.slope, creep.slope.low, creep.slope.high,
                                 creep.first, creep.last, ranks, ranks == 1 ? "rank" : "ranks",
                                 creep.now, limit, left))
        .Cause("memory-grows", 0.8)
        .Measured("growth a step", creep.slope.slope, "")
        .Threshold(0, "99 % interval above 0, and the limit within ten times the steps looked at")
        .Samples(static_cast<uint64_t>(creep.last - creep.first + 1))
        .FalseAlarm("measured", kFalseAlarmsOfCreep)
        .Assume("it goes on as it did")
        .Witness("now", creep.now)
        .Witness("limit", limit)
        .Witness("steps_left", left)
        .Fix(
            "Look for what keeps tensors with their graph (.item() or .detach() before anything is "
            "kept); torch.cuda.memory._dump_snapshot() names who allocated what is still there.");
    return found.Take();
  }

  const SeriesRoles roles_;  // what the user said
  double limit_;
  std::map<std::pair<std::string, std::string>, Series> series_;  // by layer and op
  std::map<uint32_t, double> limits_;                             // by rank, the newest told
  SiteMemo<Known> known_;
  std::vector<std::pair<uint32_t, double>> least_;  // memory used again
  uint64_t watched_ = 0;                            // courses, and those beyond the bound
};

}  // namespace

CatalogueEntry memory_creep() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MemoryCreep>(options);
          }};
}

}  // namespace plumbline::rules
