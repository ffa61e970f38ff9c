#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "rules/bases/timeline_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/exposed-communication

The GPU communicates and computes nothing during this time.

**Why.** Of 100 B parameters on 64 GPUs a step moves 75 GB to and from each GPU: 1.5 s at 50 GB/s. Hidden by
computation it costs nothing; exposed it is 1.5 s of every step.

**Bad.** `31 % of 2.4 s is exposed communication: 0.9 s of communication, 17 % of it hidden`.

**Good.** `3.1 % of 2.4 s is exposed communication: 0.8 s of communication, 91 % of it hidden`.

**How to fix it.** Check first with `plumb plan` whether the network is fast enough. If so: prefetch (FSDP:
`backward_prefetch`, `forward_prefetch`, `limit_all_gathers`), smaller buckets in DDP (`bucket_cap_mb`), collectives on a stream of
their own, tensor-parallel overlap. If not: a larger batch a GPU, hybrid sharding within a domain, fewer bytes.

**What it checks.** With comm the kernels that communicate and comp all other kernels, copies and memsets, U being the length of a union:
exposed = U(comm, comp) − U(comp). A note from 20 % of the span on, since waiting for another rank looks like
communication. A warning where the traces of
several ranks are there, no pipeline's, and in their common steps the rank that waits least has 20 %, too: the
last rank of a collective does not wait. A kernel communicates where the profiler
gives it a collective or a process group, else by its name: nccl, rccl, nvshmem, `ep::`, deep_ep, symm_mem, multimem, all-to-all,
all-reduce, all-gather, reduce-scatter, one-shot, two-shot, cross_device_reduce, in any spelling; `at::native` and `triton_`
never do. The stream decides nothing; but kernels of unknown names on streams that mostly communicate are reported (`unclassified_share`).

**Strength.** `heuristic`: 20 % is customary.

**Inconclusive when** there are no GPU events, or none communicates.

**What it cannot see.** Loops by their own spans, which do not distinguish transfers from waiting for others. Of one
rank's trace whether the time is the network's or that of a rank which is late
(`performance/straggler` distinguishes them); ranks that come last by turns within one step. Copies that a copy engine
does for a collective count as computation.

**Cost.** None in addition to `performance/idle-comb`.
)page";

constexpr OptionInfo kOptions[] = {
    {"share", OptionInfo::Type::kNumber, "of the span", "0.2", "customary", "", 0, 1},
};

constexpr RuleInfo kInfo = {"performance/exposed-communication",
                            "communication, or the wait for other ranks, is not hidden",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

class ExposedCommunication : public TimelineRule {
 public:
  explicit ExposedCommunication(const Options& options) : least_(options.Number("share")) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    of_all_ = OfTheLastToCome(step);
    TimelineRule::Judge(step, out);
  }

 protected:
  // Does not read loops: their spans do not distinguish transfers from waiting for other ranks.
  bool reads_loops() const override { return false; }
  v1::Verdict JudgeTimeline(const v1::Timeline& t) const override {
    google::protobuf::Struct details;
    Put(details, "communication_ms", Milliseconds(t.communication_ns()));
    Put(details, "exposed_ms", Milliseconds(t.exposed_ns()));
    const double hidden =
        t.communication_ns() == 0 ? 0 : 1 - Share(t.exposed_ns(), t.communication_ns());
    Put(details, "overlap_share", hidden);
    Put(details, "unclassified_share", Share(t.unclassified_ns(), t.kernel_ns()));
    if (t.communication_kernels() == 0)
      return Inconclusive("no-communication: the trace contains no communication kernel",
                          std::move(details));
    const double share = Share(t.exposed_ns(), t.span_ns());
    const std::string words = absl::StrFormat(
        "%.3g %% of %.4g s is exposed communication: %.4g ms of communication, %.3g %% of it "
        "hidden",
        100 * share, 1e-9 * static_cast<double>(t.span_ns()), Milliseconds(t.communication_ns()),
        100 * hidden);
    if (!(share >= least_)) return Pass(words, std::move(details));
    const bool transfers = of_all_ && *of_all_ >= least_;
    FindingBuilder found(transfers ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found.Title(kInfo.title)
        .Explain(absl::StrCat(Capitalised(words), ".", OthersWords()))
        .Cause("communication", 0.8)
        .Measured("share of the time that is exposed communication", share, "share")
        .Threshold(least_, "customary")
        .Samples(t.communication_kernels())
        .Assume(transfers ? "in each step the rank that waits least does not wait for another rank"
                          : "no rank is late: a wait for a late rank looks like communication")
        .Witness("communication_ms", Milliseconds(t.communication_ns()))
        .Witness("exposed_ms", Milliseconds(t.exposed_ns()))
        .Fix(
            "Check first which ranks wait for which: performance/straggler over the traces of all "
            "ranks, uneven sequences or experts, the bubble of a pipeline. For transfers, plumb "
            "plan computes whether the network is fast enough. If it is, use prefetch, smaller "
            "buckets or a separate stream. If not, use more tokens per GPU, shard within a domain, "
            "or send fewer bytes.");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

 private:
  // For each step that all ranks marked, takes the smallest exposed time over ranks. It contains no
  // waiting, because the last rank to reach a collective waits for no rank. Returns the sum as a
  // share of the time of these steps. Returns nullopt if there is one rank, no common step, or a
  // pipeline, in which stages wait for each other.
  static std::optional<double> OfTheLastToCome(const SiteStep& step) {
    struct Common {
      size_t ranks = 0;
      uint64_t exposed = UINT64_MAX, duration = 0;
    };
    std::map<int64_t, Common> steps;
    size_t ranks = 0;
    for (const Item& item : step.items) {
      if (!item.evidence->has_timeline()) continue;
      const v1::Timeline& t = item.evidence->timeline();
      if (t.stage_known() || !WrongWith(t).empty()) return std::nullopt;
      ++ranks;
      for (const v1::TimelineStep& marked : t.steps()) {
        Common& common = steps[marked.number()];
        ++common.ranks;
        common.exposed = std::min(common.exposed, marked.exposed_ns());
        common.duration = std::max(common.duration, marked.duration_ns());
      }
    }
    uint64_t exposed = 0, duration = 0;
    for (const auto& [number, common] : steps) {
      if (common.ranks != ranks) continue;
      exposed += common.exposed;
      duration += common.duration;
    }
    if (ranks < 2 || duration == 0) return std::nullopt;
    return Share(exposed, duration);
  }

  std::string OthersWords() const {
    if (!of_all_) return " The part that is a wait for other ranks is not known.";
    return absl::StrFormat(
        " The rank that waits least in each step has %.3g %%; the rest is a wait for other ranks.",
        100 * *of_all_);
  }

  double least_;
  std::optional<double> of_all_;  // of the step that is being judged
};

}  // namespace

CatalogueEntry exposed_communication() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<ExposedCommunication>(options);
          }};
}

}  // namespace plumbline::rules
