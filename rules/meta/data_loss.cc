#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "analysis/processes/processes.h"
#include "rules/catalogue.h"
#include "rules/engine/refused.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# meta/data-loss

Evidence was measured, or due, and could not be kept, or not be judged with the rest of its step.

**Why.** A verdict over the remaining evidence can be wrong in one direction, because evidence is lost
in the busiest steps. If 1 % of a site is lost, a fault that shows on one step in a hundred is missed
on average once in every 37 % of runs; so more than 1 % is an error, anything less a warning.

**Bad.** 120 of 1,000 items of `layers.3/routing` lost, cause `queue-full`: the server was away for
longer than the agent's queue could hold.

**Good.** No loss. The rule then has no finding.

**How to fix it.**
- `queue-full`: give the agent a spool (`plumbline.init(..., spool=DIR)`, `PLUMBLINE_SPOOL`), which keeps
  on disk what a server that is away has not acknowledged, or raise its queue
  (`PLUMBLINE_QUEUE_BYTES`).
- `spool-full`: the server was away for longer than the spool could hold: raise it
  (`PLUMBLINE_SPOOL_BYTES`), or find out why the server was away.
- `spool-write`: the spool's disk refused writes (full, or missing); evidence that did not fit
  into memory is lost. Free space there.
- `spool-damaged`: what was read back from the spool fails its checksum: suspect that disk. What an
  ended process left there counts as at least one.
- `ring-full`: the agent's drain thread got too little CPU time; reserve a core for it, or sample less often.
- `record-write`: the record's file system is full or missing.
- `late-rank-slow`: a rank that was connected, with nothing in its queue, was 64 steps later than
  the others (`ingest.window_steps`): find out why it is slow.
- `late-stream-broken`: a rank's connection broke, and it came back after the grace (`--grace`): look at
  its process and at the network, or raise the grace.
- `late-server-away`: the server was away, and the rank came back to it after the grace.
- `late-rank-silent`: a rank was connected and sent nothing for the grace period: its process was
  stopped, or its network lost.
- `late-never-came`: a rank connected only after the grace period: start the ranks closer together.
- `late-next-attempt`: the next attempt of the run had begun when the last steps of a killed process
  arrived. They are before its first step, so they are judged; nothing has to be done.
- `late`: steps were closed before all had come, as in a record that was put together by hand.
- `quarantined`: plumbd died over this run's evidence, or had too little memory to judge it. The evidence
  is kept, and not judged until `plumb runs --retry`.
- `superseded`: a later attempt of the run had begun at or before these steps when they arrived, and its
  evidence of them counts. Steps before its first one are not superseded.
- `engine-refused`: plumbd acknowledged them and then could not judge or store them. This is a fault of
  plumbd; its log states the reason. It is reported at once.
- `rejected`: agent and server disagree on a message; compare their versions.
- `sample-queue-full`, `sample-spool-full`, `sample-spool-write`: raw rows were lost, but their
  summaries arrived; the fix is that of the cause without `sample-`. A spool gives its last
  quarter to summaries alone.
- `invalid`: the observation's tensors do not fit together; the trainer's log names the first.
- `device-kernels-not-loaded`: tensors are on a GPU that cannot be used; the trainer's log has the reason
  (`libplumbline_cuda.so` missing, a driver older than it, no such device).
- `device-tensor-not-read`: of CUDA tensors that are copied to be measured, those larger than a
  sample may be (8 MiB) or without regular strides are not; hand them over on the host (`.cpu()`).
- `device-ring-full`, `sample-ring-full`: the GPU's ring was full because the GPU was too slow, or
  it held more raw rows (their summaries arrived): raise `PLUMBLINE_DEVICE_RING_BYTES`, pinned memory.
- `stream-capture`: the call came while its stream was captured into a CUDA graph; capture the graph
  within `run.capturing()` (C: `plumbline_capture_begin`), and its replays are measured.
- `captured-calls`: CUDA graphs that still exist hold 1,024 calls of one GPU; a call counts until its
  graph and all that was instantiated of it are destroyed.
- `device-streams`: routers, or tensors, of one GPU were observed on more than four streams at once.
- `device-context`: observed on a stream of a green context, where the probes' kernels are not loaded;
  hand the tensor over on a stream of the GPU's primary context.
- `device-starting`: several threads met a GPU's first tensor at the same time. Once a run.
- `device-error`: CUDA refused a call, or the GPU failed; the trainer's log names the first.
- `device-unfinished`: the run was closed while a GPU was still at work; wait for it before.
- `after-step-end`, `too-many-sites`, `too-many-open-spans`: calls outside a step (or between
  `together_begin` and an end after the end of the step), over 8,192 sites, or spans that never
  end: see the probes' placing.
- `stage-marks`: stages of the training loop, of which only times are recorded: the drain thread did
  not read them for 4,096 of them, or no step ended for 32,768.
- `too-many-spans`: over 32,768 of a block of steps; the spans are kept, but the shares of the loop's time are not known.

**What it checks.** Every place that can drop evidence counts what it drops, by cause: a full ring,
queue or spool in the agent, a failed write, a refused batch, a rank that was closed over. This
rule adds the counts for each site and describes each cause. Causes that begin with `sample-` count
raw rows whose summaries arrived; they are counted separately. Causes that begin with `late` count evidence
that arrived after its step had been closed over its rank: it is stored and shown, and judged by
the rules that look at each item by itself, but nothing joins it with the other ranks any more. That
is reported at once, in one finding for each cause, like `engine-refused`. Everything else is reported at the run's end, by site.

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
     .reason = "above it, the rules can miss faults that occur in one step of a hundred",
     .low = 0,
     .high = 1},
};

constexpr RuleInfo kInfo = {
    "meta/data-loss", "evidence was dropped", v1::LEVEL_ERROR, "0.1.0", kPage, kOptions};

struct Cause {
  const char* id;
  const char* words;  // completes "N were lost because ..."
  const char* fix;
};
constexpr Cause kCauses[] = {
    {"queue-full", "the agent's queue was full while the server did not acknowledge",
     "Set a spool folder (PLUMBLINE_SPOOL), or raise the limit of the queue "
     "(PLUMBLINE_QUEUE_BYTES)."},
    {"spool-full", "the agent's spool was full while the server was not reachable",
     "Raise the limit of the spool (PLUMBLINE_SPOOL_BYTES), or find out why the server was not "
     "reachable."},
    {"spool-write", "the spool's disk refused the write", "Free space on the spool's file system."},
    {"spool-damaged", "the spool on disk was damaged",
     "Check the spool's disk: its data failed their checksums."},
    {"ring-full", "the agent's drain thread did not keep up",
     "Leave a CPU core for the drain thread, or sample less often."},
    {"record-write", "the record could not be written", "Free space on the record's file system."},
    {"rejected", "the server refused them",
     "Check that agent and server have compatible versions."},
    {"engine-refused", "the server acknowledged them but could not judge or store them",
     "Report plumbd's log, which names the refused evidence: this is a bug in plumbd. The records "
     "of the run, if there are any, still contain the evidence."},
    {"superseded", "a later attempt of the run repeated their steps",
     "Do nothing: the repeated steps are judged instead."},
    {"invalid", "the shapes of their tensors do not match",
     "Fix the observation that the trainer's log names."},
    {"device-kernels-not-loaded", "they are on a device that the agent cannot use",
     "Observe host tensors, or install the build with device kernels; the trainer's log names the "
     "missing part."},
    {"device-tensor-not-read", "CUDA tensors of this size or with these strides cannot be measured",
     "Pass them as CPU tensors (.cpu()). As CUDA tensors they are larger than a sample may be (8 "
     "MiB), or have more than two axes that are not dense."},
    {"device-ring-full", "the GPU's ring was full because the GPU was too slow",
     "Raise the size of the GPU's ring (PLUMBLINE_DEVICE_RING_BYTES)."},
    {"sample-ring-full", "the GPU had more raw rows than its ring can hold",
     "Raise the size of the GPU's ring (PLUMBLINE_DEVICE_RING_BYTES)."},
    {"stream-capture", "their stream was being captured into a CUDA graph",
     "Capture the graph within run.capturing() (C: plumbline_capture_begin)."},
    {"captured-calls", "existing CUDA graphs contain the largest number of calls allowed per GPU",
     "Destroy graphs that are no longer replayed, or capture fewer calls."},
    {"device-error", "CUDA returned an error, or the device failed",
     "Read CUDA's error message in the trainer's log, and fix its cause."},
    {"device-unfinished", "the run was closed while the device was busy",
     "Synchronise the device before you close the run."},
    {"device-streams", "the device used more streams at once than the agent has memory for",
     nullptr},
    {"device-context", "their stream belongs to another context of the GPU (a green context)",
     "Observe on a stream of the GPU's primary context."},
    {"device-starting", "another thread was initialising the device", nullptr},
    {"after-step-end", "they were observed while their step ended", nullptr},
    {"too-many-sites", "the table of sites is full", nullptr},
    {"too-many-open-spans", "too many spans were open", nullptr},
    {"stage-marks", "they were stages of the loop that were not read in time", nullptr},
    {"too-many-spans", "a block of steps had more spans than it can store", nullptr},
};

bool OfSamples(std::string_view cause) { return cause.rfind("sample-", 0) == 0; }

// Returns the entry of a cause. If raw rows were lost, returns the entry of the underlying cause.
const Cause* Find(std::string_view id) {
  for (const Cause& cause : kCauses) {
    if (id == cause.id) return &cause;
  }
  return OfSamples(id) ? Find(id.substr(7)) : nullptr;
}

std::string Words(const std::string& id) {
  const Cause* cause = Find(id);
  return cause == nullptr ? id : absl::StrCat(cause->words, " (", id, ")");
}

std::string Fix(const std::string& id) {
  const Cause* cause = Find(id);
  if (cause != nullptr && cause->fix != nullptr) return cause->fix;
  return "See `plumb explain meta/data-loss` for each cause.";
}

// The losses of one site over all causes.
struct SiteLoss {
  uint64_t lost = 0;     // lost items
  uint64_t samples = 0;  // items that arrived without their raw rows
  int64_t step_first = 0;
  int64_t step_last = 0;
  std::vector<uint32_t> ranks;
  std::map<std::string, uint64_t> causes;

  uint64_t all() const { return lost + samples; }
};

// Returns a text such as "120 because ... (queue-full), and the raw rows of 3 because ...
// (sample-queue-full)".
std::string Reasons(const SiteLoss& site) {
  std::string out;
  for (const bool of_samples : {false, true}) {
    for (const auto& [id, count] : site.causes) {
      if (OfSamples(id) != of_samples) continue;
      absl::StrAppend(&out, out.empty() ? "" : ", ", of_samples ? "the raw rows of " : "", count,
                      " because ", Words(id));
    }
  }
  return out;
}

class DataLoss : public Rule {
 public:
  explicit DataLoss(const Options& options) : error_share_(options.Number("error-share")) {}

  // Reports a late item at once, and again each time the number of late items has doubled.
  void JudgeLate(const RunSummary& run, VerdictSink& out) override {
    for (const auto& [cause, late] : run.late) {
      uint64_t& reported = reported_late_[cause];
      if (late.count < 2 * reported) continue;
      reported = late.count;
      out.Add(LateVerdict(run, cause, late, error_share_));
    }
    ReportRefused(run, out);
  }

  void JudgeRun(const RunSummary& run, VerdictSink& out) override {
    for (const auto& [cause, late] : run.late) {
      if (late.count != reported_late_[cause]) out.Add(LateVerdict(run, cause, late, error_share_));
    }
    std::map<std::pair<std::string, std::string>, SiteLoss> sites;
    for (const auto& [key, loss] : run.losses) {
      if (loss.count == 0) continue;
      const auto& [layer, op, cause] = key;
      SiteLoss& site = sites[{layer, op}];
      site.step_first =
          site.all() == 0 ? loss.step_first : std::min(site.step_first, loss.step_first);
      site.step_last = std::max(site.step_last, loss.step_last);
      (OfSamples(cause) ? site.samples : site.lost) += loss.count;
      site.causes[cause] += loss.count;
      site.ranks.insert(site.ranks.end(), loss.ranks.begin(), loss.ranks.end());
    }
    for (auto& [key, site] : sites) Report(run, key, site, out);
  }

  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(reported_late_);
  }

 private:
  // Reports evidence that the server held and then refused. Such losses continue, so the user must
  // know before the run ends.
  void ReportRefused(const RunSummary& run, VerdictSink& out) {
    for (const auto& [key, loss] : run.losses) {
      const auto& [layer, op, cause] = key;
      if (cause != kRefusedLoss) continue;
      uint64_t& reported = reported_late_[cause];
      if (loss.count < 2 * reported || loss.count == reported) continue;
      reported = loss.count;
      SiteLoss site;
      site.lost = loss.count;
      site.step_first = loss.step_first;
      site.step_last = loss.step_last;
      site.ranks.assign(loss.ranks.begin(), loss.ranks.end());
      site.causes[cause] = loss.count;
      Report(run, {layer, op}, site, out);
    }
  }

  void Report(const RunSummary& run, const std::pair<std::string, std::string>& key, SiteLoss& site,
              VerdictSink& out) const {
    uint64_t kept = 0;
    if (const auto found = run.sites.find(key); found != run.sites.end())
      kept = found->second.evidence;
    if (key.first.empty() && key.second.empty()) {
      for (const auto& [name, count] : run.sites) kept += count.evidence;
    }
    const uint64_t total = kept + site.lost;
    // If no item was lost, counts the items that lost their raw rows.
    const uint64_t missing = site.lost != 0 ? site.lost : site.samples;
    const double share =
        static_cast<double>(missing) / static_cast<double>(std::max<uint64_t>(total, 1));
    std::sort(site.ranks.begin(), site.ranks.end());
    site.ranks.erase(std::unique(site.ranks.begin(), site.ranks.end()), site.ranks.end());

    FindingBuilder found;
    v1::FindingSite& where = *found.verdict().mutable_site();
    where.set_layer(key.first);
    where.set_op(key.second);
    where.set_step_first(site.step_first);
    where.set_step_last(site.step_last);
    for (uint32_t rank : site.ranks) where.add_ranks(rank);

    const bool error = site.lost != 0 && !(share <= error_share_);
    found.Level(error ? v1::LEVEL_ERROR : v1::LEVEL_WARNING).Strength(v1::STRENGTH_PROVED);
    // Raw rows are the main loss only if nothing else is lost.
    const auto weight = [&](const auto& cause) {
      return site.lost != 0 && OfSamples(cause.first) ? 0 : cause.second;
    };
    const auto main_cause =
        std::max_element(site.causes.begin(), site.causes.end(),
                         [&](const auto& x, const auto& y) { return weight(x) < weight(y); });
    const char* what = site.lost == 1   ? " evidence item was lost, by "
                       : site.lost != 0 ? " evidence items were lost, mostly by "
                       : missing == 1   ? " evidence item lost its raw rows, by "
                                        : " evidence items lost their raw rows, mostly by ";
    found.Title(absl::StrCat(missing, what, main_cause->first))
        .Explain(absl::StrCat("Of ", total, " items measured at this site not all could be kept: ",
                              Reasons(site), ". The verdicts use only the remaining evidence."))
        .Cause(main_cause->first,
               static_cast<double>(main_cause->second) / static_cast<double>(site.all()))
        .Measured("lost share", share, "share")
        .Threshold(error_share_, "option error-share")
        .Samples(total);
    for (const auto& [cause, count] : site.causes) found.Witness(cause, static_cast<double>(count));
    found.Fix(Fix(main_cause->first));
    Put(*found.verdict().mutable_details(), "lost", static_cast<double>(site.lost));
    Put(*found.verdict().mutable_details(), "kept", static_cast<double>(kept));
    out.Add(found.Take());
  }

  double error_share_;
  std::map<std::string, uint64_t> reported_late_;  // cause -> number of items at the last report
};

}  // namespace

CatalogueEntry data_loss() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<DataLoss>(options);
          }};
}

}  // namespace plumbline::rules
