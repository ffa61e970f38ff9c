#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/bases/memory_words.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/memory-creep

Memory grows from step to step and will reach its limit.

**Why.** A list that keeps the loss with its graph (`losses.append(loss)` instead of `loss.item()`) keeps about 2 MB per step: with 20 GB free the run
ends out of memory at step 10,000, and the error names an unrelated allocation.

**Bad.** `memory.allocated grows by 2.1e+06 a step (steps 40 to 399), in the newer half of them at 0.97 or more of the older half's rate; it reaches
8e+10 in 1,900 steps`.

**Good.** `memory.allocated does not grow (99 % interval -310 to 290 a step)`.

**How to fix it.** Host references to tensors that have a graph: `.item()` or `.detach()` before anything is kept; metrics that keep their inputs; hooks
that store activations; caches by shape (`torch.compile` with dynamic shapes). `torch.cuda.memory._record_memory_history()` and `_dump_snapshot()` list
the code that allocated the memory. If `allocated` is flat and `reserved` grows it is fragmentation: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

**What it checks.** Series of memory (`memory.allocated`, `memory.reserved`, ...; not peaks), of each rank: the smallest value of each step, which
remains when activations are freed; the first 10 points of an attempt do not count. A finding where

- the slope of the newer half of the steps by Theil and Sen, and of all steps since growth began, is above 0 with 99 % confidence;
- it grew by at least twice as much as it ever fell back by: what was given back was not kept, and noise has to be outgrown;
- it does not slow down. Let q be the slope of the newer half of the growth over that of the older one, at least (both by the ends of their 99 %
  intervals). A cache that fills nears its end exponentially, and brings q/(1 - q) times the newer half's growth from now on: that must be more than
  what is left to the limit. And q is at least 0.7: growth with a power of time below 0.77, as a root (0.41) or a logarithm, has a smaller one;
- no newer part of it slows down, either (the newest 70, 50, 35 and 25 %): a cache that began to fill late; and none of the newer four eighths brings
  less than a third of its part: a jump or two;
- the newest eighth of it and the newest five points lie on the line of those before: growth that has ended does not count;
- the line reaches the limit within ten times as many steps as it grew in.

The limit is a related series (`memory.limit`, `memory.total`), the option `limit` in the series' own unit, 1 for a share, 100 for a percentage.

While a run continues, it is not known whether growth will end: with the first epoch, or when a cache is full. Growth that lasted for n steps
continues for another n/9 in nine of ten cases, if nothing else is known. So it is reported before the end of a run only if the limit is within a
ninth of the steps of the growth (checked sixteen times per doubling of the steps, from the 64th on), which is when nine tenths of the free memory are
used; at the end of a run, or of a file, whenever the above holds. An early warning becomes a note at the end if the memory fell or stayed constant
since.

**Strength.** `statistical`, measured: of 2,200 simulated healthy series of 150 to 2,000 steps, with noise of 0.02 to 2 % of the memory, 2 alarmed, so
at most 0.29 % do (95 %): 200 each that are flat, uneven, wander, saturate (time constants of 20 to 1,000 steps), grow like a root or a logarithm, are
emptied 2 to 20 times, step up once or three times, grow until a first epoch ends, or fill twice, of which kind both are. Of 400 leaks of 0.01 to 1 %
a step (even, in stairs, faster and faster, begun late) that end in a full memory all are found, 90 % of them while the run continues, the middle one
when 95 to 98 % of its life is over; of 400 runs with such a leak that end at 65 % of the memory 85 % are found, at 80 % 98 %: the others have fewer
than 60 steps, or too much noise.

**Inconclusive when** no rank has 50 steps and 40 points of it after its start, memory grows by less than half and its limit is not known (a series
above its recorded limit has none: the two are of different units; growth by half and more is a note that asks for the limit), or its noise hides
whether growth slows down.

**What it cannot see.** Growth that begins late, until it is half of the steps; a leak that slows down; memory that no series records; growth in fewer
than some ten jumps; growth under noise, or under a single fall, of more than half of it. That a file ends in the midst of a first epoch, or of a
first filling that is even: such growth is reported, because it looks like any other.

**Cost.** 4 KB a series and rank.

**Sources.** Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "limit",
     .type = OptionInfo::Type::kNumber,
     .unit = "the series' own",
     .default_value = "0",
     .reason = "0: the limit is read from a related series",
     .low = 0,
     .high = 1e18},
};

constexpr RuleInfo kInfo = {"performance/memory-creep",
                            "memory grows towards its limit",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr int64_t kFirstLook = 64;  // number of points
// Horizon, as a multiple of the number of steps in which the memory grew.
constexpr double kReach = 10;
constexpr size_t kMostMemoryCourses = 4096;

// Returns the number of points at which to test next: sixteen tests per doubling of the points.
int64_t NextLook(int64_t points) {
  if (points < kFirstLook) return kFirstLook;
  const auto apart = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(points)) >> 4);
  return (points / apart + 1) * apart;
}

// Returns true if the limit is near. If nothing is known about the end of a growth, it continues
// for at least a ninth of its past duration in nine of ten cases. So the remaining memory must be
// less than a ninth of the growth.
bool IsNear(double grown, double left) { return 9 * left <= grown; }

class MemoryCreep : public ScalarRule {
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
    std::vector<std::pair<uint32_t, double>>& least = least_;  // rank -> smallest value of the step
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
    bool look = false;
    for (const auto& [rank, value] : least) {
      const auto place = series.ranks.find(rank);
      const bool fresh = place == series.ranks.end();
      if (fresh && ++watched_ > kMostMemoryCourses) continue;
      LowCourse& course = fresh ? series.ranks[rank] : place->second;
      course.Add(step.attempt, step.step, value);
      look |= NextLook(course.points() - 1) == course.points();
    }
    // During the run, report only if little memory is left, because growth may still end.
    if (!look || series.reported.has_value() || !AnyNear(step.site.op(), series.ranks)) return;
    Seen seen = LookAt(step.site.op(), series.ranks, true);
    if (seen.creeping.empty()) return;
    series.reported = seen.soonest;
    out.Add(VerdictOf(step.site.layer(), step.site.op(), seen));
  }

  const void* judges_apart() const override { return this; }
  // Takes rows of known courses, up to the first row at which a course must be tested.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    std::vector<LowCourse*> courses;
    size_t taken = rows.size() - first;
    for (const ScalarColumn& column : rows.columns) {
      const Known& known = known_.Of(column.any(), [&] { return Find(column.any().site); });
      if (known.limit || known.series == nullptr) return 0;
      const auto place = known.series->ranks.find(column.source().rank());
      if (place == known.series->ranks.end()) return 0;
      LowCourse& course = place->second;
      if (course.attempt() != rows.end.attempt) return 0;
      const int64_t until = NextLook(course.points()) - course.points() - 1;
      taken = std::min(taken, static_cast<size_t>(until));
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
      if (series.ranks.empty()) continue;
      const Seen seen = LookAt(site.second, series.ranks, false);
      if (!series.reported.has_value()) {
        out.Add(VerdictOf(site.first, site.second, seen));
      } else if (seen.creeping.empty() && IsOver(*series.reported, series.ranks)) {
        out.Add(TakenBack(site.first, site.second, *series.reported, seen));
      }
    }
  }

  // known_ is recomputed after a restore. least_ belongs to one call.
  void Persist(Archive& archive) override {
    archive.Version(2, 2);
    archive(series_, limits_, watched_);
    if (archive.reading()) known_ = {};
  }

 private:
  using Ranks = std::map<uint32_t, LowCourse>;
  // The rank that reaches its limit first.
  struct Soonest {
    uint32_t rank = 0, attempt = 0;
    int64_t first = 0, last = 0;
    double now = 0, slope = 0, limit = 0, left = HUGE_VAL;
    void Persist(Archive& a) { a(rank, attempt, first, last, now, slope, limit, left); }
  };
  struct Series {
    Ranks ranks;
    std::optional<Soonest> reported;  // a finding, reported once
    void Persist(Archive& a) { a(ranks, reported); }
  };
  // The results of the courses of a series.
  struct Seen {
    std::vector<uint32_t> creeping, all;
    bool enough = false, no_limit = false, unclear = false;
    Creep shown;  // creep of the rank that reaches its limit first, else of the first rank
    std::optional<Creep> unlimited;  // the fastest growth among ranks without a known limit
    Soonest soonest;
  };

  // Cached data of a site; recomputed.
  struct Known {
    bool reads = false, limit = false;
    Series* series = nullptr;  // set when the series exists
  };
  Known Find(const v1::Site& site) const {
    return {ReadsScalar(site), KindOfMemory(site.op()) == MemoryKind::kLimit, nullptr};
  }

  void TakeLimits(const std::vector<std::pair<uint32_t, double>>& reported) {
    for (const auto& [rank, value] : reported) {
      if (limits_.size() < kMostMemoryCourses || limits_.contains(rank)) limits_[rank] = value;
    }
  }

  // Returns the limit, or 0 if none is known. Ignores a recorded limit below the series: it has
  // another unit, or belongs to another memory.
  double LimitOf(uint32_t rank, const std::string& op, double now) const {
    if (limit_ > 0) return limit_;
    const double named = LimitInName(op);
    const auto reported = limits_.find(rank);
    const double limit = named > 0 ? named : reported == limits_.end() ? 0 : reported->second;
    return now <= 1.01 * limit ? limit : 0;
  }

  // Returns true if some rank has used nine tenths of the memory that was free at its lowest value.
  // Does not compute a slope, which is expensive.
  bool AnyNear(const std::string& op, const Ranks& ranks) const {
    return std::any_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
      if (rank.second.size() == 0) return false;
      const double now = rank.second.Newest(), limit = LimitOf(rank.first, op, now);
      return limit > 0 && IsNear(now - rank.second.Lowest(), std::max(0.0, limit - now));
    });
  }

  // If `near`, includes only ranks with little memory left.
  Seen LookAt(const std::string& op, const Ranks& ranks, bool near) const {
    Seen seen;
    for (const auto& [rank, course] : ranks) {
      seen.all.push_back(rank);
      const double limit = course.size() == 0 ? 0 : LimitOf(rank, op, course.Newest());
      const Creep creep = LookForCreep(course, limit);
      if (seen.all.size() == 1) seen.shown = creep;
      seen.enough |= creep.kind != Creep::Kind::kFew;
      const bool unclear = creep.kind == Creep::Kind::kSlows && creep.unclear;
      if (creep.kind != Creep::Kind::kGrows && !unclear) continue;
      if (!(limit > 0)) {
        seen.no_limit = true;
        const bool most = !seen.unlimited || creep.growth > seen.unlimited->growth;
        if (!unclear && most && creep.now >= kMuchGrowth * (creep.now - creep.growth))
          seen.unlimited = creep;
        continue;
      }
      const double left = std::max(0.0, limit - creep.now) / creep.slope.slope;
      const auto grown = static_cast<double>(creep.last - creep.first + 1);
      if (!(left <= kReach * grown) || (near && !IsNear(grown, left))) continue;
      seen.unclear |= unclear;
      if (unclear) continue;
      seen.creeping.push_back(rank);
      if (seen.creeping.size() > 1 && left >= seen.soonest.left) continue;
      seen.shown = creep;
      seen.soonest = {rank,      course.attempt(),  creep.first, creep.last,
                      creep.now, creep.slope.slope, limit,       left};
    }
    return seen;
  }

  v1::Verdict VerdictOf(const std::string& layer, const std::string& op, const Seen& seen) const {
    const Creep& shown = seen.shown;
    v1::Verdict verdict;
    if (!seen.creeping.empty()) {
      verdict = Found(op, seen);
    } else if (!seen.enough) {
      verdict = Inconclusive(absl::StrFormat(
          "few-steps: %s has fewer than %d steps, or fewer than %d points, after its start", op,
          Creep::kFewestSteps, Creep::kFewestPoints));
    } else if (seen.unlimited) {
      verdict = UnlimitedMemory(op, *seen.unlimited);
    } else if (seen.no_limit) {
      verdict = Inconclusive(absl::StrCat("no-limit: ", op, " grows, and its limit is not known"));
    } else if (seen.unclear) {
      verdict = Inconclusive(
          absl::StrCat("unclear: ", op, " grows, and the growth may slow down before the limit"));
    } else {
      verdict = Pass(absl::StrFormat(
          "%s does not grow towards its limit%s (99 %% interval %.3g to %.3g per step)", op,
          CreepWords(shown), shown.slope.low, shown.slope.high));
    }
    SetPlace(verdict, layer, op, shown.first, std::max(shown.first, shown.last),
             seen.creeping.empty() ? seen.all : seen.creeping);
    return verdict;
  }

  static v1::Verdict Found(const std::string& op, const Seen& seen) {
    const Creep& creep = seen.shown;
    const size_t ranks = seen.creeping.size();
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    found.Title(kInfo.title)
        .Explain(absl::StrFormat(
            "%s grows by %.3g per step (99 %% interval %.3g to %.3g, steps %d to %d) on %d %s. In "
            "the newer half the rate is at least %.2g times that of the older half. It is at %.4g "
            "and reaches %.4g in about %.3g steps.",
            op, creep.slope.slope, creep.slope.low, creep.slope.high, creep.first, creep.last,
            ranks, ranks == 1 ? "rank" : "ranks", creep.faded, creep.now, seen.soonest.limit,
            seen.soonest.left))
        .Cause("memory-grows", 0.8)
        .Measured("growth per step", creep.slope.slope, "")
        .Threshold(0,
                   "99 % interval above 0, growth not slower than before, and limit within ten "
                   "times the observed steps")
        .Samples(static_cast<uint64_t>(creep.last - creep.first + 1))
        .FalseAlarm("measured", kFalseAlarmsOfCreep)
        .Assume("the growth continues as before")
        .Witness("now", creep.now)
        .Witness("limit", seen.soonest.limit)
        .Witness("steps_left", seen.soonest.left)
        .Fix(kMemoryFix);
    Put(*found.verdict().mutable_details(), "kind", "grows");
    return found.Take();
  }

  // Returns true if the memory has grown since the report by less than half of the predicted
  // amount.
  static bool IsOver(const Soonest& reported, const Ranks& ranks) {
    const auto place = ranks.find(reported.rank);
    if (place == ranks.end() || place->second.attempt() != reported.attempt) return false;
    const auto since = static_cast<double>(place->second.last() - reported.last);
    return place->second.Newest() - reported.now < reported.slope * since / 2;
  }

  // Returns a note that replaces the earlier warning (rules/engine/report.h).
  static v1::Verdict TakenBack(const std::string& layer, const std::string& op,
                               const Soonest& reported, const Seen& seen) {
    FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_STATISTICAL);
    found.Title("memory came close to its limit but no longer grows")
        .Explain(absl::StrFormat("%s grew by %.3g per step up to step %d and was at %.4g of %.4g. "
                                 "Since then the growth has slowed, and it is at %.4g.",
                                 op, reported.slope, reported.last, reported.now, reported.limit,
                                 seen.shown.now))
        .Cause("memory-grows", 0.8)
        .Measured("growth per step", seen.shown.slope.slope, "")
        .Threshold(0, "half of the reported rate, since the report")
        .FalseAlarm("measured", kFalseAlarmsOfCreep)
        .Witness("now", seen.shown.now)
        .Witness("limit", reported.limit)
        .Fix(kMemoryFix);
    Put(*found.verdict().mutable_details(), "kind", "ended");
    v1::Verdict verdict = found.Take();
    SetPlace(verdict, layer, op, reported.first, std::max(reported.first, seen.shown.last),
             std::vector<uint32_t>{reported.rank});
    return verdict;
  }

  const SeriesRoles roles_;  // roles that the user assigned
  double limit_;
  std::map<std::pair<std::string, std::string>, Series> series_;  // by layer and op
  std::map<uint32_t, double> limits_;                             // rank -> newest recorded limit
  SiteMemo<Known> known_;
  std::vector<std::pair<uint32_t, double>> least_;  // scratch memory
  uint64_t watched_ = 0;  // number of courses, including those beyond the limit
};

}  // namespace

CatalogueEntry memory_creep() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<MemoryCreep>(options);
          }};
}

}  // namespace plumbline::rules
