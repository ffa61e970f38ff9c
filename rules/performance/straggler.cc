#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "rules/bases/timeline_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/straggler

One rank makes the others wait.

**Why.** A collective ends when its last rank has arrived. One GPU of 512 that runs at three quarters of its clock makes 511
others wait for a quarter of every step. This costs as much as 128 GPUs, and each of the 511 shows the wait as communication.

**Bad.** `rank 5 takes 1.62 times as long as the others for what it does itself; 7 ranks wait`.

**Good.** `no rank takes more than 1.04 times as long as the others`.

*What the driver reports* (live and from run records, by NVML where `libnvidia-ml.so.1` is there; once a second, in
series `gpu.clocks_held`, `gpu.clock_reasons`,
`gpu.ecc_uncorrected`, `gpu.xid`) is reported for the culprit if half of the others do not report the same: cause
`xid`, `memory-errors`, or `clocks-held`
(heat, a power brake or a hardware slowdown in half of the looks; a power cap is none). `details.driver` is `not asked` if no driver could be queried.

**How to fix it.** `slow`: clocks, temperature and ECC counts of that GPU (`nvidia-smi -q -d CLOCK,TEMPERATURE,ECC`), another process on it, a larger
share of tokens or experts; swap the node. `late`: what its host does: a loader, garbage collection, a checkpoint, a
throttled CPU; `performance/idle-comb` of that rank names it.

**What it checks.** Of the traces of all ranks, for each step that all have marked: own time = step − exposed communication. Ranks are
compared within a cohort only: those of equal place in their send and receive group (a pipeline stage), else all. s is the
median over steps of own time / the others' median. From 12 steps on a rank is a culprit where more than half of its
excess s − 1 is there in three quarters of the steps, and s ≥ 4/3, or, in cohorts of 16 and more, s ≥ 1.1 and six median
deviations (× 1.4826) above the others'. With 5 to 11 steps: 4/3 in every step. In all cases
ln s ≥ 4 √(π/2 / steps) d, d being the others' scatter between steps (median deviations of logarithms, × 1.4826; the
lesser of that of their ratios and that of
their own times × √(1 + π/2 / other ranks)): sequences of very different lengths make some rank's median long by
chance, and it is not to blame. `slow`: computing holds at least half of the
excess; else the rank comes `late` (its host is busy with something else). And other ranks must wait: their exposed communication is at least half of
the excess. *Of trainers' own spans*, live and from run records, a step reaches from the end of the one before to its own, and exposed
communication is what `run.span("collective")`, or under DistributedDataParallel on the CPU the wait for the last gradients, takes.

**Strength.** `statistical`, measured on simulated jobs: at a spread of 5 % between ranks and 8 to 512 ranks at most 1.3 % of healthy jobs
were accused (here: none of 4,200 of 16 steps); a rank 1.6 times as slow was found in 1,999 of 2,000 jobs of 8 ranks and 12 steps,
one of 1.25 among 64, at a spread of 2 %, in 98.6 % of 666. Loops whose work differs between ranks and steps by a
lognormal factor of σ 0.2 to 0.8 (2, 8 and 64 ranks, 7 to 64 steps): 4 of 4,800 accused a rank; at σ 0.3 and 64 steps
a rank 1.67 times as slow was named alone in all of 400.

**Inconclusive when** there is one rank, fewer than 5 steps that all have marked, a rank without GPU events, kernels that send and receive
without their peers (the stages of the ranks are not known), a rank that takes longer while no rank waits for it, or
hosts that run ahead of their GPUs: then
marks describe the host, not the GPU. Loops without a GPU whose block of steps takes the rank less
than 2 s. Loops without a span for the wait for others.

**What it cannot see.** A whole stage that is slow (its cohort agrees); ranks whose trace is missing; which of two
ranks of a cohort is the normal one, except that the slower makes the faster wait.

**Cost.** A few medians a rank and step.

**Sources.** Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", 2025.
)page";

constexpr RuleInfo kInfo = {"performance/straggler",
                            "one rank makes the others wait",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            {}};

constexpr double kFalseAlarmsOfRanks = 0.013;  // measured; the rule's page has the conditions
constexpr size_t kFewestCompared = 5;
constexpr double kSeconds = 1e-9;
constexpr double kShortLoop =
    2;  // s: for this long, a busy machine's scheduler may favour one process

using timeline::RankSteps;
using timeline::Straggler;
using timeline::Stragglers;

struct Traces {
  std::map<uint32_t, const v1::Timeline*> by_rank;
  std::vector<int64_t> steps;  // steps that all ranks have marked
  bool host_ahead = false;     // the host runs ahead on some rank

  std::vector<const v1::Timeline*> all() const {
    std::vector<const v1::Timeline*> list;
    for (const auto& [rank, timeline] : by_rank) list.push_back(timeline);
    return list;
  }
};

// Returns true if more than half of a median step's work is left for the GPU after the last mark.
bool HostRunsAhead(const v1::Timeline& timeline) {
  if (timeline.steps().empty()) return false;
  std::vector<double> lengths;
  int64_t end = INT64_MIN;
  for (const v1::TimelineStep& step : timeline.steps()) {
    lengths.push_back(static_cast<double>(step.duration_ns()));
    end = std::max(end, step.start_ns() + static_cast<int64_t>(step.duration_ns()));
  }
  std::nth_element(lengths.begin(), lengths.begin() + static_cast<ptrdiff_t>(lengths.size() / 2),
                   lengths.end());
  const auto left = static_cast<double>(static_cast<int64_t>(timeline.span_ns()) - end);
  return timeline.steps_left_out() == 0 && left > lengths[lengths.size() / 2] / 2;
}

// Returns true if any rank waits for others. If none does, all steps are equally long.
bool AnyWaits(const Traces& traces) {
  return std::any_of(traces.by_rank.begin(), traces.by_rank.end(),
                     [](const auto& rank) { return rank.second->exposed_ns() > 0; });
}

// Returns why the ranks cannot be compared ("few-steps: ..."). If they can, returns an empty
// string.
std::string WhyNot(const Traces& traces) {
  if (traces.by_rank.size() < 2) return "one-rank: one trace was given; the rule compares ranks";
  for (const auto& [rank, timeline] : traces.by_rank) {
    if (timeline->span_ns() == 0)
      return absl::StrFormat(
          "no-gpu-events: rank %d has no GPU events, so the time that it waits is not known", rank);
    if (const std::string wrong = WrongWith(*timeline); !wrong.empty())
      return absl::StrFormat("wrong-timeline: rank %d: %s", rank, wrong);
  }
  if (traces.steps.size() < kFewestCompared) {
    return absl::StrFormat("few-steps: %d steps are marked on all ranks; the rule needs %d",
                           traces.steps.size(), kFewestCompared);
  }
  return "";
}

Traces Gather(const SiteStep& step) {
  Traces traces;
  for (const Item& item : step.items) {
    if (item.evidence->has_timeline())
      traces.by_rank.emplace(item.source->rank(), &item.evidence->timeline());
  }
  std::map<int64_t, size_t> marked;
  for (const auto& [rank, timeline] : traces.by_rank) {
    traces.host_ahead |= WrongWith(*timeline).empty() && HostRunsAhead(*timeline);
    std::set<int64_t> numbers;
    for (const v1::TimelineStep& s : timeline->steps()) numbers.insert(s.number());
    for (const int64_t number : numbers) ++marked[number];
  }
  for (const auto& [number, ranks] : marked) {
    if (ranks == traces.by_rank.size()) traces.steps.push_back(number);
  }
  return traces;
}

RankSteps StepsOf(uint32_t rank, const v1::Timeline& timeline, const std::vector<int64_t>& steps) {
  RankSteps out;
  out.rank = rank;
  out.cohort = timeline.stage_known() ? static_cast<int64_t>(timeline.stage()) : -1;
  std::map<int64_t, const v1::TimelineStep*> by_number;
  for (const v1::TimelineStep& step : timeline.steps()) by_number.emplace(step.number(), &step);
  for (const int64_t number : steps) {
    const v1::TimelineStep& step = *by_number.at(number);
    out.own.push_back(kSeconds * static_cast<double>(step.duration_ns() - step.exposed_ns()));
    out.compute.push_back(kSeconds * static_cast<double>(step.compute_ns()));
    out.exposed.push_back(kSeconds * static_cast<double>(step.exposed_ns()));
  }
  return out;
}

void PutRanks(google::protobuf::Struct& details, const char* key,
              const std::vector<uint32_t>& ranks) {
  auto& values = *(*details.mutable_fields())[key].mutable_list_value();
  for (const uint32_t rank : ranks) values.add_values()->set_number_value(rank);
}

std::string RankWords(const std::vector<uint32_t>& ranks) {
  constexpr size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kShown) absl::StrAppend(&text, " and ", ranks.size() - kShown, " more");
  return text;
}

class StragglerRule : public ScalarRule {
 public:
  bool ReadsScalar(const v1::Site& site) const override { return timeline::IsOfDriver(site); }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (timeline::IsOfDriver(step.site)) return Remember(step);
    if (std::none_of(step.items.begin(), step.items.end(),
                     [](const Item& item) { return item.evidence->has_timeline(); }))
      return;
    const bool of_loop = WhoseTimeline(step.site) != TimelineOf::kTrace;
    if (of_loop && step.world_size == 1) return;
    const Traces traces = Gather(step);
    v1::Verdict verdict = of_loop && !AnyWaits(traces)
                              ? Inconclusive(
                                    "no-collectives: no loop declares when it waits for others "
                                    "(run.span(\"collective\"))")
                              : JudgeTraces(traces, WhoseTimeline(step.site) == TimelineOf::kLoop);
    int64_t first = step.step, last = step.step;
    if (!traces.steps.empty()) {
      first = traces.steps.front();
      last = traces.steps.back();
      ReportSteps(first, last, &verdict);
    }
    if (verdict.has_finding()) ReportDriver(step.step, &verdict);
    if (!of_loop) ReportPaid(timeline::BottlenecksOf(traces.all()), &verdict);
    // The slow ranks that the verdict names, else all ranks.
    std::vector<uint32_t> ranks;
    if (const auto named = verdict.details().fields().find("ranks");
        named != verdict.details().fields().end()) {
      for (const auto& value : named->second.list_value().values())
        ranks.push_back(static_cast<uint32_t>(value.number_value()));
    }
    if (ranks.empty()) {
      for (const auto& [rank, timeline] : traces.by_rank) ranks.push_back(rank);
    }
    SetPlace(verdict, step.site.layer(), step.site.op(), first, last, ranks);
    out.Add(std::move(verdict));
  }
  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(driver_);
  }

 private:
  void Remember(const SiteStep& step) {
    for (const Item& item : step.items) {
      if (item.evidence->has_scalar())
        driver_[item.source->rank()].Hear(step.site.op(), step.step,
                                          item.evidence->scalar().value());
    }
  }

  // Adds the driver's report for the slow rank, at the last step of this block. If most other
  // drivers report the same, it is not the cause.
  void ReportDriver(int64_t step, v1::Verdict* verdict) const {
    google::protobuf::Struct& details = *verdict->mutable_details();
    const auto culprit =
        static_cast<uint32_t>(details.fields().at("ranks").list_value().values(0).number_value());
    const auto own = driver_.find(culprit);
    const bool known = own != driver_.end() && own->second.step == step;
    Put(details, "driver", known ? "nothing" : "not asked");
    if (!known) return;
    const timeline::DriverCause cause = timeline::CauseOfDriver(own->second);
    if (cause.id.empty()) return;
    size_t same = 0, others = 0;
    for (const auto& [rank, stated] : driver_) {
      if (rank == culprit || stated.step != step) continue;
      ++others;
      same += timeline::CauseOfDriver(stated).id == cause.id ? 1 : 0;
    }
    if (others > 0 && 2 * same >= others) return;
    Put(details, "driver", std::string(cause.id));
    v1::Finding& finding = *verdict->mutable_finding();
    absl::StrAppend(finding.mutable_explanation(), cause.words);
    finding.mutable_cause()->set_id(std::string(cause.id));
    finding.set_fix(cause.fix);
  }

  static v1::Verdict JudgeTraces(const Traces& traces, bool on_processors) {
    if (const std::string why = WhyNot(traces); !why.empty()) return Inconclusive(why);
    std::vector<RankSteps> ranks;
    for (const auto& [rank, timeline] : traces.by_rank)
      ranks.push_back(StepsOf(rank, *timeline, traces.steps));
    const Stragglers found = timeline::FindStragglers(ranks);
    if (found.largest_cohort < 2)
      return Inconclusive("one-rank: no two traces belong to the same pipeline stage");
    google::protobuf::Struct details;
    Put(details, "steps", static_cast<double>(traces.steps.size()));
    Put(details, "slowness", found.largest);
    if (found.culprits.empty() && !found.unawaited.empty()) {
      const Straggler& first = found.unawaited.front();
      return Inconclusive(
          absl::StrFormat(
              "none-waits: the step marks of rank %d are %.3g times as long as those of the "
              "others, which wait %.4g ms per step; hosts may run ahead of their GPUs",
              first.rank, first.slowness, 1e3 * first.others_exposed),
          std::move(details));
    }
    if (found.culprits.empty() && traces.host_ahead) {
      return Inconclusive(
          "host-ahead: GPUs still work after the mark of the last step has ended, so the marks "
          "measure the hosts (synchronise once per step while profiling)",
          std::move(details));
    }
    if (found.culprits.empty()) {
      return Pass(
          absl::StrFormat("no rank takes more than %.3g times as long as the others (%d ranks, "
                          "%d steps)",
                          found.largest, ranks.size(), traces.steps.size()),
          std::move(details));
    }
    const double seconds = found.culprits.front().own * static_cast<double>(found.steps);
    if (on_processors && seconds < kShortLoop) {
      return Inconclusive(
          absl::StrFormat("short: rank %d took %.3g times as long as the others for %.3g s; the "
                          "scheduler of a busy machine can cause this",
                          found.culprits.front().rank, found.culprits.front().slowness, seconds),
          std::move(details));
    }
    return Found(found, ranks, on_processors, std::move(details));
  }

  static v1::Verdict Found(const Stragglers& found, const std::vector<RankSteps>& all,
                           bool on_processors, google::protobuf::Struct details) {
    const Straggler& worst =
        *std::max_element(found.culprits.begin(), found.culprits.end(),
                          [](const auto& a, const auto& b) { return a.slowness < b.slowness; });
    std::vector<uint32_t> culprits, waiting;
    for (const Straggler& culprit : found.culprits) culprits.push_back(culprit.rank);
    for (const RankSteps& rank : all) {
      if (!std::binary_search(culprits.begin(), culprits.end(), rank.rank))
        waiting.push_back(rank.rank);
    }
    PutRanks(details, "ranks", culprits);
    PutRanks(details, "waiting", waiting);
    const char* kind = worst.computes ? "slow" : "late";
    Put(details, "kind", kind);
    FindingBuilder builder(v1::LEVEL_WARNING, v1::STRENGTH_STATISTICAL);
    builder
        .Title(worst.computes ? "a rank computes more slowly than the others, and they wait for it"
                              : "a rank is late to its collectives, and the others wait for it")
        .Explain(absl::StrFormat(
            "%sank %d needs %.3g times as long as the others for its own work: %.4g ms per step, "
            "the others %.4g ms. In %.3g %% of %d steps it is slower by more than half of that. It "
            "waits %.4g ms per step for communication, the others %.4g ms.",
            culprits.size() == 1 ? "R" : Capitalised(RankWords(culprits)) + ": r", worst.rank,
            worst.slowness, 1e3 * worst.own, 1e3 * worst.others, 100 * worst.steady_share,
            found.steps, 1e3 * worst.exposed, 1e3 * worst.others_exposed))
        .Cause(kind, 0.9)
        .Measured("own time per step / median of the others", worst.slowness, "")
        .Threshold(worst.slowness >= 4.0 / 3 ? 4.0 / 3 : 1.1,
                   "at most 1.3 % of simulated healthy jobs are above it")
        .Samples(found.steps)
        .FalseAlarm("measured", kFalseAlarmsOfRanks)
        .Assume("the compared ranks have equal work")
        .Witness("rank", worst.rank)
        .Witness("own_ms", 1e3 * worst.own)
        .Witness("others_ms", 1e3 * worst.others)
        .Fix(worst.computes ? "Check that GPU (nvidia-smi -q -d CLOCK,TEMPERATURE,ECC), other "
                              "processes on it, and its share of the work. Replace the node."
                            : "Check what that rank's host does before its collectives: a loader, "
                              "garbage collection, a throttled CPU. performance/idle-comb names "
                              "the cause on that rank.");
    // The culprit waits for communication as long as the others would without it.
    builder.Lost((worst.others_exposed - worst.exposed) * static_cast<double>(found.steps) *
                     static_cast<double>(waiting.size()),
                 !on_processors);
    *builder.verdict().mutable_details() = std::move(details);
    return builder.Take();
  }

  std::map<uint32_t, timeline::DriverStated> driver_;  // by rank
};

}  // namespace

CatalogueEntry straggler() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<StragglerRule>();
          }};
}

}  // namespace plumbline::rules
