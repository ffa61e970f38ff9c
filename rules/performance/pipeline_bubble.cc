#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "rules/bases/timeline_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/pipeline-bubble

A pipeline's stages wait longer than its schedule requires.

**Why.** A pipeline of p stages and m micro-batches idles (p − 1)/(m + p − 1) of each step, whatever is done: 16 %
with 4 stages and 16 micro-batches. Where one stage
takes a fifth longer than the others, all the others wait for it in every micro-batch, and of four stages three pay: another 12 %.

**Bad.** `the stages wait 41 % of the time, where 4 stages and 16 micro-batches make it 15.8 %; stage 2 computes 1.6
times as long as the mean of all`.

**Good.** `the stages wait 18 % of the time, where 4 stages and 16 micro-batches make it 15.8 %`.

**How to fix it.** `stage-imbalance`: move layers from that stage to others (the embedding and the head count: a head
over 128,000 words of a 4,096 wide model costs as much as three layers);
with experts look at their load. `other-waiting`: `performance/exposed-communication`, `performance/idle-comb`. The
bubble itself: more micro-batches, an interleaved schedule;
`plumb plan` computes the gain of each.

**What it checks.** Of the traces of all ranks of a pipeline (kernels that send and receive and state their peers),
over the steps that they mark: measured = 1 − U(computation) /
time, over all ranks; predicted = (p − 1)/(v·m + p − 1), p the stages that were seen, m the option `micro_batches`, v
the option `virtual_stages` of an interleaved schedule.
A finding where measured ≥ predicted + 5 points. It is a `warning` of cause `stage-imbalance`, which names the stage,
where the imbalance, 1 − mean / largest computing time of a stage,
is at least half of that excess; else a `note` of cause `other-waiting`.

**Strength.** `heuristic`: 5 points are customary. Of 402 simulated healthy pipelines (2 to 8 stages of two
ranks, spread 1 % between ranks, 1 ms of 180 for the last reduction) none was accused; with one stage 1.3 times
as large all 402 were, at that stage.

**Inconclusive when** the number of micro-batches is not known (`--set performance/pipeline-bubble.micro_batches=16`), a stage
has no trace, it is not known which ranks belong to
one stage, or fewer than three steps are marked. Traces without a pipeline are none of its business.

**What it cannot see.** Which of two imbalanced halves is the right one; work that does nothing useful (padding); that
a pipeline waits for the network rather than for a stage
(a note then states this).

**Cost.** A few sums a rank and step.

**Sources.** Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021, section 2.2.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "micro_batches",
     .type = OptionInfo::Type::kNumber,
     .unit = "per step and replica",
     .default_value = "0",
     .reason = "0: not declared, and a trace does not contain it",
     .low = 0,
     .high = 1e6},
    {.name = "virtual_stages",
     .type = OptionInfo::Type::kNumber,
     .unit = "a rank",
     .default_value = "1",
     .reason = "not interleaved",
     .low = 1,
     .high = 1e4},
    {.name = "points",
     .type = OptionInfo::Type::kNumber,
     .unit = "of the time",
     .default_value = "0.05",
     .reason = "customary: 5 % is 5 %: one GPU in twenty",
     .low = 0,
     .high = 1},
};

constexpr RuleInfo kInfo = {"performance/pipeline-bubble",
                            "the pipeline bubble is larger than predicted",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr int kFewestBubbleSteps = 3;

// One stage, over its ranks and their steps.
struct StageTimes {
  std::vector<uint32_t> ranks;
  double time = 0, compute = 0;  // ns
  double busy_share() const { return compute / time; }
};

class PipelineBubble : public Rule {
 public:
  explicit PipelineBubble(const Options& options)
      : micro_batches_(options.Number("micro_batches")),
        virtual_stages_(options.Number("virtual_stages")),
        points_(options.Number("points")) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    const bool pipeline = std::any_of(step.items.begin(), step.items.end(), [](const Item& item) {
      return item.evidence->has_timeline() && item.evidence->timeline().stage_known();
    });
    if (!pipeline || WhoseTimeline(step.site) != TimelineOf::kTrace) return;
    std::vector<uint32_t> ranks;
    v1::Verdict verdict = JudgeRanks(step, &ranks);
    ReportSteps(first_, last_, &verdict);
    std::vector<const v1::Timeline*> timelines;
    for (const Item& item : step.items) {
      if (item.evidence->has_timeline()) timelines.push_back(&item.evidence->timeline());
    }
    ReportPaid(timeline::BottlenecksOf(timelines), &verdict);
    SetPlace(verdict, step.site.layer(), step.site.op(), first_, last_, ranks);
    out.Add(std::move(verdict));
  }
  // Stores nothing: each call of Judge sets first_ and last_.
  void Persist(Archive& /*archive*/) override {}

 private:
  // Sets `ranks` to the ranks of the stage that the finding names, else to all ranks.
  v1::Verdict JudgeRanks(const SiteStep& step, std::vector<uint32_t>* ranks) {
    first_ = last_ = step.step;
    std::map<uint32_t, StageTimes> stages;
    for (const Item& item : step.items) {
      if (!item.evidence->has_timeline()) continue;
      const v1::Timeline& t = item.evidence->timeline();
      const uint32_t rank = item.source->rank();
      ranks->push_back(rank);
      if (const std::string wrong = WrongWith(t); !wrong.empty())
        return Inconclusive(absl::StrFormat("wrong-timeline: rank %d: %s", rank, wrong));
      if (!t.stage_known() || t.stage() >= timeline::kStageOfNoOther)
        return Inconclusive(
            absl::StrFormat("no-stage: the pipeline stage of rank %d is not known", rank));
      if (t.steps_size() < kFewestBubbleSteps)
        return Inconclusive(absl::StrFormat("few-steps: rank %d marks %d steps; the rule needs %d",
                                            rank, t.steps_size(), kFewestBubbleSteps));
      StageTimes& stage = stages[t.stage()];
      stage.ranks.push_back(rank);
      for (const v1::TimelineStep& marked : t.steps()) {
        stage.time += static_cast<double>(marked.duration_ns());
        stage.compute += static_cast<double>(marked.compute_ns());
      }
      // first_ and last_ span the steps of all ranks.
      const int64_t first = t.steps(0).number();
      const int64_t last = std::max(first, t.steps(t.steps_size() - 1).number());
      first_ = ranks->size() == 1 ? first : std::min(first_, first);
      last_ = ranks->size() == 1 ? last : std::max(last_, last);
    }
    // Stages are numbered from 0, so a missing number is a stage without a trace.
    const auto count = static_cast<double>(stages.rbegin()->first) + 1;
    if (static_cast<double>(stages.size()) < count || stages.size() < 2)
      return Inconclusive(absl::StrFormat("stages-missing: traces exist for %d of %.0f stages",
                                          stages.size(), std::max(count, 2.0)));
    for (const auto& [number, stage] : stages) {
      if (!(stage.time > 0) || !(stage.compute > 0))
        return Inconclusive(absl::StrFormat("no-time: stage %d computes nothing", number));
    }
    if (!(micro_batches_ >= 1))
      return Inconclusive(
          "no-micro-batches: declare the number per step, --set "
          "performance/pipeline-bubble.micro_batches=M");
    return Compare(stages, ranks);
  }

  v1::Verdict Compare(const std::map<uint32_t, StageTimes>& stages,
                      std::vector<uint32_t>* ranks) const {
    const auto count = static_cast<double>(stages.size());
    double sum = 0, largest = 0;
    uint32_t slowest = 0;
    for (const auto& [number, stage] : stages) {
      sum += stage.busy_share();
      if (stage.busy_share() > largest) slowest = number;
      largest = std::max(largest, stage.busy_share());
    }
    const double measured = 1 - sum / count;
    const double predicted = (count - 1) / (virtual_stages_ * micro_batches_ + count - 1);
    const double excess = measured - predicted;
    const double imbalance = 1 - sum / count / largest;
    google::protobuf::Struct details;
    Put(details, "measured", measured);
    Put(details, "predicted", predicted);
    Put(details, "stages", count);
    Put(details, "imbalance", imbalance);
    const std::string words = absl::StrFormat(
        "the stages wait %.3g %% of the time; %.0f stages and %.4g micro-batches give %.3g %%",
        100 * measured, count, micro_batches_, 100 * predicted);
    if (!(excess >= points_)) return Pass(words, std::move(details));
    const bool imbalanced = imbalance >= excess / 2;
    const double times = largest / (sum / count);
    if (imbalanced) {
      *ranks = stages.at(slowest).ranks;
      Put(details, "slow_stage", static_cast<double>(slowest));
    }
    FindingBuilder found(imbalanced ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found.Title(kInfo.title)
        .Explain(Capitalised(words) +
                 absl::StrFormat("; stage %d computes %.3g times as long as the mean of all.",
                                 slowest, times))
        .Cause(imbalanced ? "stage-imbalance" : "other-waiting", imbalanced ? 0.9 : 0.5)
        .Measured("share of the time in which the stages do not compute", measured, "share")
        .Threshold(predicted + points_, "the schedule's bubble plus 5 percentage points")
        .Samples(stages.size())
        .Assume("the number of micro-batches is the one that the option declares")
        .Witness("slowest_stage", static_cast<double>(slowest))
        .Witness("times_the_mean", times)
        .Fix(
            imbalanced
                ? "Move layers from that stage to the others; count the embedding and the head too."
                : "The stages are balanced. Look at performance/exposed-communication and "
                  "idle-comb.");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

  const double micro_batches_, virtual_stages_, points_;
  int64_t first_ = 0, last_ = 0;  // of the step that is being judged
};

}  // namespace

CatalogueEntry pipeline_bubble() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<PipelineBubble>(options);
          }};
}

}  // namespace plumbline::rules
