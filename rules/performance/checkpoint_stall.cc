#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "rules/bases/timeline_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/checkpoint-stall

The GPU waits for checkpoints.

**Why.** A checkpoint that stops the run for 60 s every 10 minutes costs 9 % of the cluster: 46 of 512 GPUs.

**Bad.** `5 checkpoint spans take 12 % of the time, 12 % with the GPU idle`.

**Good.** `5 checkpoint spans take 0.4 % of the time, 0.3 % with the GPU idle`.

**How to fix it.** Save asynchronously (`torch.distributed.checkpoint.async_save`), from pinned copies; every rank its own shard; to local
disks first; less often, where the interval is below that of Young and Daly.

**What it checks.** Of the spans of saving on threads that launch kernels (`torch.save`, `save_checkpoint`, a span called
`checkpoint`, ...): their union, and how much of it finds the GPU idle. A finding where that is 5 % of the span or
more, in at least three spans. Activation recomputation, which PyTorch also calls checkpointing, does not count. *Of a trainer's own spans*
(`run.span("checkpoint")`; live, and from a run record): the same of the thread that ends the steps, in blocks of 16, later 64 steps; with a
GPU, of which it is not known whether it is idle, a note.

With C the cost of one checkpoint and MTBF the mean time between failures of the whole job, the loss to saving and to
repeated work together is least at an interval of √(2·C·MTBF) (Young 1974; Daly 2006): the details contain
it for the measured C and the option `mtbf_hours`.

**Strength.** `heuristic`: 5 % is customary.

**Inconclusive when** there are no GPU events, no launches, or no such span on a launching thread.

**What it cannot see.** Saving that no span names: annotate it, `with torch.profiler.record_function("checkpoint"):`. What a trace of a
few steps shows is not what a day has.

**Cost.** None in addition to `performance/idle-comb`.

**Sources.** Young, "A first order approximation to the optimum checkpoint interval", 1974. Daly, "A higher order estimate of the
optimum checkpoint interval for restart dumps", 2006.
)page";

constexpr OptionInfo kOptions[] = {
    {"share", OptionInfo::Type::kNumber, "of the span", "0.05",
     "customary: 5 % is 5 %: one GPU in twenty", "", 0, 1},
    {"mtbf_hours", OptionInfo::Type::kNumber, "hours", "24",
     "mean time between failures of the whole job: a day is customary for some hundred GPUs", "",
     0.001, 1e6},
};

constexpr RuleInfo kInfo = {"performance/checkpoint-stall",
                            "the GPU waits for checkpoints",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr WaitRule::Words kWordsOfCheckpoints = {
    v1::TimelineGap::CAUSE_CHECKPOINT, "the GPU waits for checkpoints", "checkpoint spans",
    "annotate saving: record_function(\"checkpoint\")",
    "Save asynchronously, each rank its own shard, first to local disks. Or save less often."};

class CheckpointStall : public WaitRule {
 public:
  explicit CheckpointStall(const Options& options)
      : WaitRule(kWordsOfCheckpoints, options), mtbf_(3600 * options.Number("mtbf_hours")) {}

 protected:
  std::string More(const v1::TimelineWait& wait, google::protobuf::Struct& details) const override {
    const double cost = 1e-9 * static_cast<double>(wait.median_ns());
    const double best = std::sqrt(2 * cost * mtbf_);
    Put(details, "cost_s", cost);
    Put(details, "best_interval_s", best);
    if (wait.period_ns() == 0) return "";
    const double interval = 1e-9 * static_cast<double>(wait.period_ns());
    Put(details, "interval_s", interval);
    return absl::StrFormat(
        " The interval between checkpoints is %.4g s. With one failure every %.3g h, an interval "
        "of %.4g s costs least.",
        interval, mtbf_ / 3600, best);
  }

 private:
  double mtbf_;
};

}  // namespace

CatalogueEntry checkpoint_stall() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<CheckpointStall>(options);
          }};
}

}  // namespace plumbline::rules
