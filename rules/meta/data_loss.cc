#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "rules/catalogue.h"
#include "rules/lib/verdicts.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# meta/data-loss

Evidence was measured, or due, and could not be kept.

**What it checks.** Every place that can drop evidence counts what it drops, by cause: a full ring or
queue in the agent, a failed write, a refused batch, a rank that was closed over. This rule adds the
counts up for each site.

**Why.** A verdict over what is left can be wrong in one direction: the steps that were lost are the
busy ones. With 1 % of a site gone, a fault that shows on one step in a hundred is missed on average
once in every 37 % of runs; so more than 1 % is an error, anything less a warning.

**Bad.** 120 of 1,000 items of `layers.3/routing` lost, cause `queue-full`: the server was away for
longer than the agent's queue could hold.

**Good.** No loss. The rule then says nothing.

**How to fix it.**
- `queue-full`: raise the agent's queue (`PLUMBLINE_QUEUE_BYTES`), or record to disk beside the server
  (`plumbline.init(server=..., record=...)`).
- `ring-full`: the drain thread was starved of CPU; leave it a core, or sample less often.
- `record-write`: the record's file system is full or gone.
- `late`: a rank reported steps that had been closed over; look for a stalled process or clock.
- `rejected`: agent and server disagree on a message; compare their versions.
- `sample-queue-full`: raw rows were given up, their summaries arrived; as `queue-full`.
- `invalid`: the observation's tensors do not fit together; the trainer's log names the first.
- `device-kernels-not-loaded`: tensors are on a GPU that cannot be used; the trainer's log says why
  (`libplumbline_cuda.so` missing, a driver older than it, no such device).
- `device-ring-full`, `sample-ring-full`: a GPU was further behind than its ring could hold, or held
  more raw rows (their summaries arrived): raise `PLUMBLINE_DEVICE_RING_BYTES`, pinned memory.
- `stream-capture`: the router ran while its stream was captured into a CUDA graph; observe it
  outside of the graph, or on steps that run without one.
- `device-streams`: routers of one GPU ran on more than four streams at once.
- `device-starting`: several threads met a GPU's first tensor at the same time. Once a run.
- `device-error`: CUDA refused a call, or the GPU failed; the trainer's log names the first.
- `device-unfinished`: the run was closed while a GPU was still at work; wait for it before.
- `after-step-end`, `too-many-sites`, `too-many-open-spans`: calls outside a step, over 8,192 sites,
  or spans that never end: see the probes' placing.

**What it cannot see.** Losses of a process that was killed before it could report them: the step
numbers of its last batches then end early.

**Cost.** None beyond the counters.

**Strength.** `proved`: the counts are exact.

**Sources.** Perfetto's trace-processor statistics, where data loss is a class of its own.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "error-share",
     .type = OptionInfo::Type::kNumber,
     .unit = "share of a site's evidence",
     .default_value = "0.01",
     .reason = "above it, faults that show on one step in a hundred begin to be missed",
     .low = 0,
     .high = 1},
};

constexpr RuleInfo kInfo = {
    "meta/data-loss", "evidence was dropped", v1::LEVEL_ERROR, RuleStatus::kBuilt, "0.1.0", kPage,
    kOptions};

// One site's losses over all causes.
struct SiteLoss {
  uint64_t lost = 0;
  int64_t step_first = 0;
  int64_t step_last = 0;
  std::vector<uint32_t> ranks;
  std::map<std::string, uint64_t> causes;
};

class DataLoss : public Rule {
 public:
  explicit DataLoss(const Options& options) : error_share_(options.Number("error-share")) {}

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    std::map<std::pair<std::string, std::string>, SiteLoss> sites;
    for (const auto& [key, loss] : run.losses) {
      if (loss.count == 0) continue;
      const auto& [layer, op, cause] = key;
      SiteLoss& site = sites[{layer, op}];
      site.step_first =
          site.lost == 0 ? loss.step_first : std::min(site.step_first, loss.step_first);
      site.step_last = std::max(site.step_last, loss.step_last);
      site.lost += loss.count;
      site.causes[cause] += loss.count;
      site.ranks.insert(site.ranks.end(), loss.ranks.begin(), loss.ranks.end());
    }
    for (auto& [key, site] : sites) Report(run, key, site, out);
  }

  // Judges the summary of the run, which the engine keeps.
  void Persist(Archive& /*archive*/) override {}

 private:
  void Report(const RunSummary& run, const std::pair<std::string, std::string>& key, SiteLoss& site,
              VerdictSink& out) const {
    uint64_t kept = 0;
    if (const auto found = run.sites.find(key); found != run.sites.end())
      kept = found->second.evidence;
    if (key.first.empty() && key.second.empty()) {
      for (const auto& [name, count] : run.sites) kept += count.evidence;
    }
    // "late" evidence did arrive, so it is among what was kept; the others are not.
    const uint64_t arrived = site.causes.contains("late") ? site.causes.at("late") : 0;
    const uint64_t total = kept + site.lost - std::min(arrived, kept);
    const double share =
        static_cast<double>(site.lost) / static_cast<double>(std::max<uint64_t>(total, 1));
    std::sort(site.ranks.begin(), site.ranks.end());
    site.ranks.erase(std::unique(site.ranks.begin(), site.ranks.end()), site.ranks.end());

    v1::Verdict verdict;
    verdict.set_kind(v1::Verdict::KIND_FINDING);
    v1::FindingSite& where = *verdict.mutable_site();
    where.set_layer(key.first);
    where.set_op(key.second);
    where.set_step_first(site.step_first);
    where.set_step_last(site.step_last);
    for (uint32_t rank : site.ranks) where.add_ranks(rank);

    v1::Finding& finding = *verdict.mutable_finding();
    const bool error = !(share <= error_share_);
    finding.set_level(error ? v1::LEVEL_ERROR : v1::LEVEL_WARNING);
    finding.set_strength(v1::STRENGTH_PROVED);
    const auto main_cause =
        std::max_element(site.causes.begin(), site.causes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    finding.set_title(
        absl::StrCat(site.lost, " evidence items were lost, mostly by ", main_cause->first));
    finding.set_explanation(absl::StrCat("Of ", total, " items measured at this site ", site.lost,
                                         " could not be kept. Verdicts rest on the rest."));
    finding.mutable_cause()->set_id(main_cause->first);
    finding.mutable_cause()->set_confidence(static_cast<double>(main_cause->second) /
                                            static_cast<double>(site.lost));
    finding.mutable_measured()->set_name("lost share");
    finding.mutable_measured()->set_value(share);
    finding.mutable_measured()->set_unit("share");
    finding.mutable_threshold()->set_value(error_share_);
    finding.mutable_threshold()->set_source("option error-share");
    finding.set_sample_size(total);
    for (const auto& [cause, count] : site.causes)
      Put(*finding.mutable_witness(), cause, static_cast<double>(count));
    finding.set_fix(Fix(main_cause->first));
    Put(*verdict.mutable_details(), "lost", static_cast<double>(site.lost));
    Put(*verdict.mutable_details(), "kept", static_cast<double>(kept));
    out.Add(std::move(verdict));
  }

  static std::string Fix(const std::string& cause) {
    if (cause == "queue-full")
      return "Raise the agent's queue (PLUMBLINE_QUEUE_BYTES) or record to disk beside the server.";
    if (cause == "ring-full") return "Leave the drain thread a core, or sample less often.";
    if (cause == "record-write") return "Free space on the record's file system.";
    if (cause == "sample-queue-full")
      return "Raise the agent's queue (PLUMBLINE_QUEUE_BYTES); summaries did arrive.";
    if (cause == "invalid") return "Fix the observation that the trainer's log names.";
    if (cause == "device-kernels-not-loaded")
      return "Observe host tensors, or install the build with device kernels; the trainer's log "
             "says "
             "what is missing.";
    if (cause == "device-ring-full" || cause == "sample-ring-full")
      return "Raise the GPU's ring (PLUMBLINE_DEVICE_RING_BYTES).";
    if (cause == "stream-capture") return "Observe outside of what is captured into a CUDA graph.";
    if (cause == "device-error")
      return "Fix what the trainer's log names; CUDA's own text is there.";
    if (cause == "device-unfinished") return "Wait for the device before the run is closed.";
    if (cause == "late") return "Find the rank that stalled for more than the step window.";
    if (cause == "rejected") return "Compare the versions of agent and server.";
    return "See `plumb explain meta/data-loss` for each cause.";
  }

  double error_share_;
};

}  // namespace

CatalogueEntry data_loss() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<DataLoss>(options);
          }};
}

}  // namespace plumbline::rules
