#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"
#include "analysis/rates/rates.h"
#include "analysis/series/series.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/learning-rate

The learning rate is zero, restarts after a resume, advances an integer multiple too fast, or differs between ranks.

**Why.** At a rate of zero each step costs what it always does and changes nothing: a scheduler that was made for 10,000 steps of a run of 100,000
leaves nine tenths of it at zero, and the loss merely looks as if it had converged. A rate that differs between data-parallel ranks moves their
weights apart from the first such step on. A rate that a resume puts back to 3e-4, after it had decayed to 5e-5, loses the gain of the decay: the loss jumps
to its value of tens of thousands of steps ago. And a scheduler that is stepped once a process, on 8 of them, ends a warm-up of 2,000 steps after 250.

**Bad.** `the rate is 0 in steps 10,000 to 10,009, and was 3e-7 before`.

**Good.** A warm-up that begins at 0 and has left it by its second step; a schedule that ends where the run ends; a group of frozen parameters at 0
next to others that learn; a resume that continues the rate.

**How to fix it.**
- PyTorch: `T_max` of `CosineAnnealingLR`, `total_steps` of `OneCycleLR` in optimizer steps, not in epochs or micro-batches; with Accelerate,
  `scheduler.step()` counts once a process (`split_batches`, `step_with_optimizer`).
- Megatron-LM: `--lr-decay-iters`, `--min-lr`; DeepSpeed: `total_num_steps` of the scheduler.
- At zero from the start: `scheduler.step()` is never called, or a warm-up is counted in epochs.
- Starts again: save and load the scheduler's state with the optimizer's; if a new schedule is intended, begin it with a warm-up.
- Too fast: step the scheduler once an optimizer step. Accelerate steps it once a process (`split_batches`, `step_scheduler_with_optimizer`).
- Different on ranks: step the scheduler on every rank, on the same condition, with a number that was reduced over them.

**What it checks.** Each series of a learning rate (`lr`, `lr.1`, `learning_rate`, `train/lr`, `lr-AdamW/pg1`; not `min_lr`, `lr_scale` and the like),
one value per rank and optimizer step, as `run.watch` records it.
- *Zero.* All parameter groups of a rank are exactly 0 in 10 consecutive steps from the first step on. Or, after a rate above 0, in 100 consecutive
  steps while the run continues (the rate may return), or in the last 10 steps of the run. The onset is the first of them. With a declared length of
  the run (`--set health/learning-rate.steps=100000`) a rate that becomes 0 within its last tenth is not a fault. Values in files were printed, maybe
  with few digits (not a 0 with an exponent, `0.00e+00`, nor a `0` without decimals, as `%g` prints it, nor one in a log with two values such as
  `0.00018400000000000003`, which was not rounded): 0.0000 after 0.0001 means only that the rate is below 0.00005. Where all values are multiples of
  10^-k, and the last one before the zeros is two of these, or no further from 0 than from the value before it and two more, and where it reads 0 from
  the first to the last step, that is a note at the run's end. If losses, rewards or gradient norms of the same log have 9 digits or more, the loss does not fall and the reward does not rise, the 0
  is not rounded: an error. If they have few, but the loss is flat (as `health/not-learning` has it): a warning.
- *Leaves its floor.* After three points or more at one value, a fiftieth to a quarter of its maximum, the rate is four times that in one step, with
  no resume that the steps show: a schedule that restarts, as after a resume without the scheduler's state. A warning, once an attempt.
- *Leaps.* In one step the rate is a hundred times what it was for ten points, and higher than it ever was. A warning.
- *Restarts with its warm-up.* The first rate of a resume is at most half of the rate before it, which was below three quarters of the maximum, and
  within 2,048 points it rises to 1.5 times that. A warning. Simulated (`tests/audit/rate_resumes.py`): none of 360 resumes that continue their
  schedule is reported (cosine, linear, inverse root, warm-up-stable-decay, cycles, steps); of 180 cosine, linear and inverse-root schedules that
  restart 60 are found (with *starts again*), but not those whose warm-up has a few points, or that fall back by 8 rows or less, which are read as
  repeated steps. **Known alarm:** a second phase with a warm-up of its own (continued pretraining) looks the same, and so does a cycle with a warm-up
  that begins exactly at the resume.
- *Starts again.* In the first step of a resume the rate is at least half of the maximum of the steps before it, though in the last of these it was
  below half of the maximum, and at most half of that first rate. A schedule that rose so within the run is cyclic, and none; nor is a resume that
  goes back to where the rate was high. Nor is one that was at the bottom of its curve: a schedule with restarts may restart there (differences of a
  rate that bends: the last one at most 1/1.45 of the one before, or the next one would reach 0; with fewer than 8 points since the maximum it is not
  known). In checkpoints a resume is seen where the schedule's counter goes back and the optimizer's continues.
- *Too fast.* The slope after a resume is an integer multiple (at least 2, to 2 %) of the slope before it, and the rate continues from its value.
  Slopes are those of parabolas through the last 32 points before the resume and the first 16 to 128 after it, each known to 1 %. Of a run of several
  processes the multiple divides their number, or is by how much it grew. With a declared length (`--set health/learning-rate.steps=100000`) or
  warm-up (`health/learning-rate.warmup=2000`): the rate comes to rest at a quarter of its maximum or less, or reaches its maximum, in a half, a
  third, ... of it.
- *Never right.* NaN in three steps in a row (a warning), or below 0 in three (an error).
- *Different.* The same series has values on two ranks in one step that are more than a millionth apart.

**Strength.** `proved`: the values are what the optimizer was given. At zero it is an error, different a warning. `heuristic`, and a note, where it
reads 0 in few digits.

**Inconclusive when** fewer than 10 steps have a rate, or every value is NaN.

**What it cannot see.** One parameter group at zero while others are not: it may be frozen by design. A rate that is recorded rarely is judged by the
recorded values. A schedule that starts again with a warm-up where no resume is seen; one that runs too fast from the first step on where nothing was
declared; a resume on the flat part of a schedule.

**Cost.** A few numbers a rank and series, and some 2,500 points of its course a series.

**Sources.** PyTorch documentation, `torch.optim.lr_scheduler`; Hugging Face Accelerate, `AcceleratedScheduler`.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "steps",
     .type = OptionInfo::Type::kInteger,
     .unit = "optimizer steps that the run is planned to have; 0: not declared",
     .default_value = "0",
     .reason = "a record does not contain the planned length of the run",
     .low = 0,
     .high = 1e15},
    {.name = "warmup",
     .type = OptionInfo::Type::kInteger,
     .unit = "optimizer steps that the warm-up is planned to have; 0: not declared",
     .default_value = "0",
     .reason = "a record does not contain the planned length of the warm-up",
     .low = 0,
     .high = 1e15},
};

constexpr RuleInfo kInfo = {
    "health/learning-rate",
    "the learning rate is zero, restarts, advances too fast or differs between ranks",
    v1::LEVEL_ERROR,
    "0.1.0",
    kPage,
    kOptions};

class LearningRate : public ScalarRule {
 public:
  explicit LearningRate(const Options& options)
      : roles_(options.roles()),
        steps_(options.Integer("steps")),
        warm_up_(options.Integer("warmup")) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return CountsSteps(site) || NameIn(site.op()).has_value() ||
           RateNeighbours::IsOne(roles_.Of(site.op()));
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    if (CountsSteps(step.site)) return resumes_.Take(step);
    Known& known = known_.Of(step, [&] { return Find(step); });
    if (known.stem == nullptr) return neighbours_.Take(step, known.role);
    for (const Item& item : step.items) {
      if (!item.evidence->has_scalar()) continue;
      // If a step has several values, the last one counts.
      RateReported& reported = known.stem->second;
      if (known.values == nullptr) known.values = &reported.groups[step.site.op()];
      const double value = item.evidence->scalar().value();
      if (known.values->empty() || known.values->back().first != item.source->rank()) {
        known.values->emplace_back(item.source->rank(), value);
      } else {
        known.values->back().second = value;
      }
      reported.Note(*item.source, value);
      if (!std::exchange(reported.open, true)) open_.push_back(known.stem);
    }
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    resumes_.Close();
    const auto before = [](const Stem* a, const Stem* b) { return a->first < b->first; };
    if (!std::is_sorted(open_.begin(), open_.end(), before))
      std::sort(open_.begin(), open_.end(), before);
    for (Stem* stem : open_) {
      const Key& key = stem->first;
      RateReported& reported = stem->second;
      if (reported.rate == nullptr) reported.rate = &rates_[key];
      RateStem& rate = *reported.rate;
      if (rate.step_last < 0) rate.step_first = step.step;
      rate.step_last = std::max(rate.step_last, step.step);
      if (rate.op.empty()) rate.op = reported.groups.begin()->first;
      Take(step, reported, rate);
      if (auto odd = OddFinding(std::get<1>(key), rate.op, &rate.odd)) out.Add(odd->Take());
      JudgeZero(std::get<1>(key), rate, false, out);
      JudgeApart(step, std::get<1>(key), reported, rate, out);
      JudgeCourse(step, key, reported, rate, out);
      reported.Close();
    }
    open_.clear();
  }

  const void* judges_apart() const override { return this; }
  // If no schedule was declared, takes rows of a single rate that follows its course so far.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    if (rows.columns.empty()) return rows.size() - first;
    if (steps_ > 0 || warm_up_ > 0) return 0;
    const ScalarColumn* one = nullptr;
    RateReported* reported = nullptr;
    for (const ScalarColumn& column : rows.columns) {
      const SiteStep& any = column.any();
      if (CountsSteps(any.site)) return 0;
      const Known& known = known_.Of(any, [&] { return Find(any); });
      if (known.stem == nullptr && neighbours_.done()) continue;
      if (known.stem == nullptr || one != nullptr) return 0;
      one = &column;
      reported = &known.stem->second;
    }
    if (one == nullptr) return rows.size() - first;
    return reported->TakeRows(rows, *one, first, rows.end.attempt + resumes_.count);
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (auto& [key, rate] : rates_) {
      JudgeZero(std::get<1>(key), rate, true, out);
      std::optional<v1::Verdict> printed;
      if (!rate.reported_zero) printed = Printed(std::get<1>(key), rate);
      if (printed) out.Add(*std::move(printed));
      const bool reported = rate.reported_zero || rate.distinguished || rate.odd.reported();
      if (printed || reported || reported_course_.contains(key)) continue;
      uint64_t points = 0;
      std::vector<uint32_t> ranks;
      for (const auto& [rank, of_rank] : rate.ranks) {
        points = std::max(points, of_rank.points);
        ranks.push_back(rank);
      }
      v1::Verdict verdict = RateRest(rate, points);
      Put(*verdict.mutable_details(), "steps", static_cast<double>(points));
      SetPlace(verdict, std::get<1>(key), rate.op, rate.step_first, rate.step_last, ranks);
      out.Add(std::move(verdict));
    }
  }

  // open_ and largest_ are empty between steps. names_, stems_, known_ are found after a restore.
  void Persist(Archive& archive) override {
    archive.Version(9, 9);  // 8: computed values; 9: the reward
    archive(rates_, courses_, reported_course_, resumes_, neighbours_);
    if (!archive.reading()) return;
    stems_.clear();
    known_ = {};
  }

 private:
  using Key = std::tuple<v1::Role, std::string, std::string>;  // role, layer, stem
  using Stem = std::map<Key, RateReported>::value_type;
  struct Known {
    Stem* stem = nullptr;  // nullptr if the site is not a rate
    RatesOfStep::mapped_type* values = nullptr;
    SeriesRole role = SeriesRole::kNone;
  };

  Known Find(const SiteStep& step) {
    const std::optional<RateName>& name = Name(step.site.op());
    if (!name) return {nullptr, nullptr, roles_.Of(step.site.op())};
    return {&*stems_.try_emplace({step.role, step.site.layer(), name->stem}).first, nullptr};
  }

  // A role that the user assigned to a name takes precedence.
  std::optional<RateName> NameIn(const std::string& op) const {
    const auto stated = roles_.stated().find(op);
    if (stated == roles_.stated().end()) return RateNameOf(op);
    if (stated->second != SeriesRole::kRate) return std::nullopt;
    return RateNameOf(op).value_or(RateName{op, ""});
  }

  const std::optional<RateName>& Name(const std::string& op) {
    constexpr size_t kMost = 4096;
    if (const auto known = names_.find(op); known != names_.end()) return known->second;
    if (names_.size() >= kMost) names_.clear();
    return names_.emplace(op, NameIn(op)).first->second;
  }

  // Takes each rank's largest rate. Ignores NaN.
  void Take(const StepEnd& step, const RateReported& reported, RateStem& rate) {
    largest_.clear();  // by rank, ascending
    for (const auto& [op, values] : reported.groups) {
      auto at = largest_.begin();
      for (const auto& [rank, value] : values) {
        rate.odd.Take(step.step, value);
        if (std::isnan(value)) continue;
        while (at != largest_.end() && at->first < rank) ++at;
        if (at == largest_.end() || at->first != rank) at = largest_.insert(at, {rank, 0});
        at->second = std::max(at->second, std::fabs(value));
      }
    }
    for (const auto& [rank, value] : largest_) {
      RankRate& of_rank = rate.ranks[rank];
      of_rank.Came(reported.exact, reported.unrounded);
      if (value > 0) neighbours_.Done();
      of_rank.Take(step.attempt, step.step, value);
    }
  }

  // True if the schedule has reached its planned end, where zero is intended.
  bool AtRest(const RankRate& rate) const {
    return steps_ > 0 && static_cast<double>(rate.zeros_first) >= 0.9 * static_cast<double>(steps_);
  }

  // A rate that fell to zero may return, as cyclic ones do, so the verdict waits for the run's end.
  void JudgeZero(const std::string& layer, RateStem& rate, bool at_end, VerdictSink& out) const {
    if (rate.reported_zero) return;
    std::vector<uint32_t> ranks;
    const RankRate* shown = nullptr;
    for (const auto& [rank, of_rank] : rate.ranks) {
      const bool may_return = std::isfinite(of_rank.before) && !at_end;
      if (of_rank.zeros < (may_return ? kZeroRateReturns : kZeroRateSteps)) continue;
      if (AtRest(of_rank)) {
        rate.at_rest = std::max(rate.at_rest, of_rank.zeros);
        continue;
      }
      if (of_rank.may_be_printed()) continue;
      ranks.push_back(rank);
      if (shown == nullptr) shown = &of_rank;
    }
    if (shown == nullptr) return;
    rate.reported_zero = true;
    out.Add(ZeroFinding(rate.op, *shown, RankWords(ranks), steps_ > 0)
                .At(layer, rate.op, shown->zeros_first, shown->zeros_last, ranks)
                .Take());
  }

  // Called at the run's end. Reports a rate printed as 0 with too few digits for a small value.
  std::optional<v1::Verdict> Printed(const std::string& layer, const RateStem& rate) const {
    std::vector<uint32_t> ranks;
    const RankRate* shown = nullptr;
    for (const auto& [rank, of_rank] : rate.ranks) {
      if (of_rank.zeros < kZeroRateSteps || AtRest(of_rank) || !of_rank.may_be_printed()) continue;
      ranks.push_back(rank);
      if (shown == nullptr) shown = &of_rank;
    }
    if (shown == nullptr) return std::nullopt;
    const std::string who = RankWords(ranks);
    return AlwaysZeroFinding(rate.op, *shown, who, neighbours_)
        .At(layer, rate.op, shown->zeros_first, shown->zeros_last, ranks)
        .Take();
  }

  static void JudgeApart(const StepEnd& step, const std::string& layer,
                         const RateReported& reported, RateStem& rate, VerdictSink& out) {
    if (rate.distinguished) return;
    const std::optional<ApartRates> apart = FindApart(reported.groups);
    if (!apart) return;
    rate.distinguished = true;
    std::vector<uint32_t> ranks;
    for (const auto& [rank, value] : reported.groups.at(apart->op)) ranks.push_back(rank);
    out.Add(ApartFinding(step.step, *apart)
                .Samples(ranks.size())
                .At(layer, apart->op, step.step, step.step, ranks)
                .Take());
  }

  void JudgeCourse(const StepEnd& step, const Key& key, RateReported& values, const RateStem& rate,
                   VerdictSink& out) {
    const auto largest = LargestRate(values.groups);
    if (!largest) return;
    if (values.course == nullptr) values.course = &courses_[key];
    RateCourse& course = *values.course;
    const uint32_t attempt = step.attempt + resumes_.count;
    course.Take(attempt, step.world_size, step.step, largest->second);
    const auto known = reported_course_.find(key);
    const bool reported = known != reported_course_.end() && known->second == attempt;
    std::optional<FindingBuilder> found;
    if (const auto restart = course.Restart()) {
      found = RestartFinding(rate.op, *restart);
    } else if (const auto anew = course.Anew(); anew && !reported) {
      found = AnewFinding(rate.op, *anew);
    } else if (const auto warm = course.Rewarmed(); warm && !reported) {
      found = RewarmedFinding(rate.op, *warm);
    } else if (const auto leap = course.Leap(); leap && !reported) {
      found = LeapFinding(rate.op, *leap);
    } else if (const auto faster = course.Faster(); faster && !reported) {
      found = FasterFinding(rate.op, *faster, step.world_size);
    } else if (known == reported_course_.end()) {
      found = Declared(course, rate);
    }
    if (!found) return;
    reported_course_[key] = attempt;
    found->verdict().mutable_site()->set_layer(std::get<1>(key));
    found->verdict().mutable_site()->add_ranks(largest->first);
    out.Add(found->Take());
  }

  std::optional<FindingBuilder> Declared(const RateCourse& course, const RateStem& rate) const {
    const auto compare = [&](const char* what, const char* option, int64_t declared,
                             int64_t seen) -> std::optional<FindingBuilder> {
      const uint64_t multiple = WholeMultiple(declared, seen);
      if (multiple == 0) return std::nullopt;
      return DeclaredFinding(rate.op, {what, option, declared, seen, multiple});
    };
    if (const auto warm = course.WarmUp(); warm && warm_up_ > 0) {
      if (auto found = compare("warms up", "warmup", warm_up_, *warm)) return found;
    }
    const auto rest = course.Rest();
    // A rate that stays at zero is reported as a separate error.
    if (!rest || steps_ == 0 || rest->rate == 0) return std::nullopt;
    return compare("decays", "steps", steps_, rest->step);
  }

  const SeriesRoles roles_;
  int64_t steps_, warm_up_;
  SeenResumes resumes_;
  std::map<Key, RateReported> stems_;
  std::vector<Stem*> open_;  // pointers into stems_: those of this step
  std::map<Key, RateStem> rates_;
  std::map<Key, RateCourse> courses_;
  std::map<Key, uint32_t> reported_course_;  // the attempt of each reported course
  RateNeighbours neighbours_;
  SiteMemo<Known> known_;
  std::vector<std::pair<uint32_t, double>> largest_;  // reused buffer
  std::unordered_map<std::string, std::optional<RateName>> names_;
};

}  // namespace

CatalogueEntry learning_rate() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LearningRate>(options);
          }};
}

}  // namespace plumbline::rules
