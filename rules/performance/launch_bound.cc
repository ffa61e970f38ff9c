#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "rules/bases/timeline_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/launch-bound

The GPU waits, because the host has not launched the next kernels yet.

**Why.** A launch costs the host some 5 µs, and Python around it 20: a step of 2,000 kernels of 4 µs takes 40 ms to launch and
8 ms to compute. The GPU idles 80 % of the time, and a faster GPU changes nothing.

**Bad.** `the GPU waits 46 % of the time for launches; 83 % of its kernels take under 10 µs`.

**Good.** `the GPU waits 0.7 % of the time for launches; 12 % of its kernels take under 10 µs`.

**How to fix it.** CUDA graphs (`torch.cuda.graph`, `torch.compile(mode="reduce-overhead")`), fused kernels and optimizers (`fused=True`),
a larger micro-batch; take synchronisations (`.item()`, prints) out of the step, so that the host runs ahead.

**What it checks.** For each stretch in which the GPU idles: how long of it the operation that ends it was not launched yet. Stretches
that garbage collection, checkpoints, data loading, compilation or communication explain are excluded, as are those of a millisecond or more
(no launch takes this long: the host did something else, see `performance/idle-comb`), and one that is more than half
of all: a host that stopped once is not a pattern. A finding from 10 % of the span on.

**Strength.** `heuristic`: 10 % is customary.

**Inconclusive when** there are no GPU events, no kernels, or fewer than half of them have a launch record.

**What it cannot see.** Loops by their own spans: all that they do they launch themselves. What the profiler itself
costs the host: recording stacks and shapes makes launches slower. Compare a trace without.

**Cost.** None in addition to `performance/idle-comb`.
)page";

constexpr OptionInfo kOptions[] = {
    {"share", OptionInfo::Type::kNumber, "of the span", "0.1", "customary", "", 0, 1},
};

constexpr RuleInfo kInfo = {"performance/launch-bound",
                            "the GPU waits for launches",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

class LaunchBound : public TimelineRule {
 public:
  explicit LaunchBound(const Options& options) : least_(options.Number("share")) {}

 protected:
  // Does not read loops: a loop launches all of its own work.
  bool reads_loops() const override { return false; }
  v1::Verdict JudgeTimeline(const v1::Timeline& t) const override {
    if (t.kernels() == 0)
      return Inconclusive("no-kernels: the trace contains only copies and memsets");
    // A single long stop of the host, to warm up or to compile, is excluded.
    uint64_t longest = 0;
    for (const v1::TimelineGap& gap : t.gaps()) longest = std::max(longest, gap.duration_ns());
    const bool once = longest > t.launch_wait_ns() / 2;
    const uint64_t waited =
        once ? t.launch_wait_ns() - std::min(longest, t.launch_wait_ns()) : t.launch_wait_ns();
    const double share = Share(waited, t.span_ns());
    const double shorter = Share(t.short_kernels(), t.kernels());
    const double launched = Share(t.launched_kernels(), t.kernels());
    google::protobuf::Struct details;
    Put(details, "share", share);
    Put(details, "short_kernels_share", shorter);
    Put(details, "launched_share", launched);
    Put(details, "kernels", static_cast<double>(t.kernels()));
    if (2 * t.launched_kernels() < t.kernels()) {
      return Inconclusive(
          absl::StrFormat("no-launches: %.3g %% of the kernels have a launch record",
                          100 * launched),
          std::move(details));
    }
    const std::string words = absl::StrFormat(
        "the GPU waits %.3g %% of the time for launches; %.3g %% of its kernels take under 10 us",
        100 * share, 100 * shorter);
    if (!(share >= least_)) return Pass(words, std::move(details));
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title(kInfo.title)
        .Explain(Capitalised(words) + ".")
        .Cause("launches", 0.8)
        .Measured("share of the time in which the GPU waits for a launch", share, "share")
        .Threshold(least_, "customary")
        .Samples(t.kernels())
        .Assume("the profiler itself does not slow launches much")
        .Witness("waited_ms", Milliseconds(waited))
        .Witness("kernels", static_cast<double>(t.kernels()))
        .Fix(
            "Use CUDA graphs (torch.compile with mode=\"reduce-overhead\"), fused optimizers, a "
            "larger micro-batch; no .item() within the step.");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

 private:
  double least_;
};

}  // namespace

CatalogueEntry launch_bound() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LaunchBound>(options);
          }};
}

}  // namespace plumbline::rules
