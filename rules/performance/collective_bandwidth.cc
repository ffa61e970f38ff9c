#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/timeline/timeline.h"
#include "rules/bases/timeline_rule.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/collective-bandwidth

Collectives move their bytes far more slowly than the links could.

**Why.** One cable of eight that runs at half its rate, a ring that leaves its node through one network card instead of eight, a library that fell
back to sockets: there is no error message. An all-reduce of 1 GiB among 64 GPUs takes 42 ms at 50 GB/s and 423 ms at 5.

**Bad.** `all_reduce among 8 ranks moves 14.7 GB/s at best, 33 % of the 45 that the links give`.

**Good.** `all_reduce among 8 ranks moves 38.1 GB/s at best, 85 % of the 45 that the links give`.

**How to fix it.**
- Run the library's own test on these hosts (`all_reduce_perf -b 16M -e 1G -g 8`): is it as slow there, look at cables and cards (`ibstatus`,
  `nvidia-smi nvlink -s`, error counters); else at what the job sets.
- `NCCL_DEBUG=INFO`: which transport (`NET/IB`, not `NET/Socket`), how many channels, does each GPU use its own card
  (`NCCL_IB_HCA`, `GPU Direct RDMA`)?
- `flat`: `NCCL_ALGO`, `NCCL_CROSS_NIC`, a topology file; groups whose members follow each other within a node.

**What it checks.** Of traces whose communication kernels state what they transfer (PyTorch's profiler writes
`Collective name`, `In msg nelems`, `Out msg
nelems`, `dtype`, `Group size` and `Process Group Ranks` to NCCL's): with B the whole gathered, scattered or reduced
tensor (for all-to-all the sum over
ranks), N the members and T the time of the kernel, what leaves one GPU in a second is B(N−1)/(N·T) for all-gather and reduce-scatter, twice that for
all-reduce, an N-th of it for all-to-all. A kernel's time has waiting in it, so the best counts: calls under which nothing else communicates,
of these the tenth that is done soonest, over all members that left a trace, and over all sizes from 16 MiB on. At
least 100 such calls of a member. It is a finding
where that is under half of what the links give: `domain_gb_s` where all members are of one domain (`domain` ranks that follow each other), else
`link_gb_s` for each member that a domain has (D, the fewest; each GPU with its own card, all of them used), at most `domain_gb_s`; of an all-to-all
`link_gb_s` (N−1)/(N−D), as each member sends N−D of its N−1 parts by its own card.
`flat`: members share domains, and no more is reached than a single card gives: the ring does not use the others.

**Strength.** `heuristic`: half of the link is customary, and the options declare the bandwidth of the links.

**Inconclusive when** no option declares the bandwidth of the links (the details contain the measured value), fewer than 100
calls of 16 MiB were alone on the link, or the group's
members are not known (not listed, or not at equal distances). A trace without such calls gives no verdict. Where not all
members left a trace, one that always comes last may be among the others: a `note`.

**What it cannot see.** A link that is slow now and then; collectives whose kernels do not state what they transfer; latency
of small ones; other jobs on the same network.

**Cost.** A median a size and group.

**Sources.** NVIDIA, nccl-tests, `doc/PERFORMANCE.md` (bus bandwidth); Thakur et al. 2005, "Optimization of Collective
Communication Operations in MPICH".
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "link_gb_s",
     .type = OptionInfo::Type::kNumber,
     .unit = "GB/s per GPU, in one direction",
     .default_value = "0",
     .reason = "0: not declared, and a trace does not contain it (400 Gbit/s = 50)",
     .low = 0,
     .high = 1e6},
    {.name = "domain_gb_s",
     .type = OptionInfo::Type::kNumber,
     .unit = "GB/s per GPU, in one direction",
     .default_value = "0",
     .reason = "0: not declared (NVLink of an H100: 450)",
     .low = 0,
     .high = 1e6},
    {.name = "domain",
     .type = OptionInfo::Type::kNumber,
     .unit = "ranks",
     .default_value = "8",
     .reason = "GPUs of most hosts",
     .low = 1,
     .high = 131072},
    {.name = "share",
     .type = OptionInfo::Type::kNumber,
     .unit = "of the link",
     .default_value = "0.5",
     .reason = "customary",
     .low = 0,
     .high = 1},
};

constexpr RuleInfo kInfo = {"performance/collective-bandwidth",
                            "collectives are far slower than the link",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr uint64_t kFewestCalls = 100;
constexpr double kGigabyte = 1e9;
// If the speed exceeds one card's bandwidth by this factor, more than one card carries the traffic.
constexpr double kOneCard = 1.1;

using timeline::CollectiveTimes;

// One group, as measured by its members with a trace.
struct Moved {
  std::map<uint32_t, uint64_t> calls;  // by rank
  double best = 0;                     // highest bytes/s that left one member
  CollectiveTimes at;                  // the collective that reached it
  uint64_t most_calls() const {
    uint64_t most = 0;
    for (const auto& [rank, count] : calls) most = std::max(most, count);
    return most;
  }
  std::vector<uint32_t> ranks() const {
    std::vector<uint32_t> list;
    for (const auto& [rank, count] : calls) list.push_back(rank);
    return list;
  }
};

class CollectiveBandwidth : public Rule {
 public:
  explicit CollectiveBandwidth(const Options& options)
      : link_(options.Number("link_gb_s") * kGigabyte),
        domain_link_(options.Number("domain_gb_s") * kGigabyte),
        domain_(static_cast<int64_t>(options.Number("domain"))),
        share_(options.Number("share")) {}

  void Judge(const SiteStep& step, VerdictSink& out) override {
    if (step.site.op() == kTimelineOp) return Remember(step);
    if (!step.site.layer().starts_with(timeline::kCollectivesLayer)) return;
    std::map<std::pair<int64_t, int64_t>, Moved> groups;
    for (const Item& item : step.items) {
      if (!item.evidence->has_span()) continue;
      CollectiveTimes times;
      if (!timeline::ReadCollective(*item.evidence, &times))
        return out.Add(
            Inconclusive("wrong-figures: the size or the duration of a collective is not valid"));
      Moved& group = groups[{times.first, times.stride}];
      group.calls[item.source->rank()] += times.calls;
      const double speed = timeline::BusBandwidth(times);
      if (speed <= group.best) continue;
      group.best = speed;
      group.at = times;
    }
    if (groups.empty()) return;
    // The slowest group decides the verdict.
    std::vector<std::pair<double, const Moved*>> order;
    for (const auto& [members, group] : groups) {
      const double link = LinkOf(group.at);
      order.emplace_back(link > 0 ? group.best / link : group.best, &group);
    }
    const Moved& lowest = *std::min_element(order.begin(), order.end())->second;
    v1::Verdict verdict = JudgeGroup(lowest);
    // The verdict covers all steps of the traces, not only this one.
    const bool known = traces_.at == step.step;
    const int64_t last = known ? std::max(step.step, traces_.last) : step.step;
    if (last > step.step) ReportSteps(step.step, last, &verdict);
    if (known) ReportPaid(traces_.bottlenecks, &verdict);
    SetPlace(verdict, step.site.layer(), step.site.op(), step.step, last, lowest.ranks());
    out.Add(std::move(verdict));
  }
  // traces_ belong to the current step, so they are not stored.
  void Persist(Archive& /*archive*/) override {}

 private:
  // Keeps the timelines of the traces that contain the collectives. Their site is judged earlier in
  // the same step.
  void Remember(const SiteStep& step) {
    if (!step.site.layer().empty()) return;
    std::vector<const v1::Timeline*> timelines;
    traces_ = {step.step, step.step, {}};
    for (const Item& item : step.items) {
      if (!item.evidence->has_timeline()) continue;
      timelines.push_back(&item.evidence->timeline());
      for (const v1::TimelineStep& marked : timelines.back()->steps())
        traces_.last = std::max(traces_.last, marked.number());
    }
    traces_.bottlenecks = timeline::BottlenecksOf(timelines);
  }

  // Returns the number of members in the domain that has the fewest. If it is not known, returns 0.
  int64_t Sharing(const CollectiveTimes& at) const {
    if (at.ranks <= 1) return 1;
    if (at.first < 0) return 0;
    int64_t fewest = at.ranks, count = 0;
    for (int64_t i = 0; i < at.ranks; ++i) {
      const int64_t member = at.first + i * at.stride;
      ++count;
      if (i + 1 < at.ranks && (member + at.stride) / domain_ == member / domain_) continue;
      fewest = std::min(fewest, count);
      count = 0;
    }
    return fewest;
  }

  // Returns the bytes/s that a member could send. If the links are not declared, returns 0. If a
  // ring spans several domains, its traffic leaves a domain through the cards of all D members
  // there. In an all-to-all over N members, each member sends N-D of its N-1 parts out of its
  // domain, through its own card.
  double LinkOf(const CollectiveTimes& at) const {
    const int64_t sharing = Sharing(at);
    if (sharing == at.ranks) return domain_link_;
    const auto d = static_cast<double>(std::max<int64_t>(1, sharing));
    const auto n = static_cast<double>(at.ranks);
    const bool direct = at.op == "all_to_all";
    const double out = link_ * (direct ? (n - 1) / (n - d) : d);
    if (!(domain_link_ > 0)) return out;
    return std::min(out, direct && d > 1 ? domain_link_ * (n - 1) / (d - 1) : domain_link_);
  }

  v1::Verdict JudgeGroup(const Moved& group) const {
    const CollectiveTimes& at = group.at;
    const double link = LinkOf(at);
    const uint64_t calls = group.most_calls();
    google::protobuf::Struct details;
    Put(details, "gb_s", group.best / kGigabyte);
    Put(details, "link_gb_s", link / kGigabyte);
    Put(details, "bytes", static_cast<double>(at.bytes));
    Put(details, "ms", 1e-6 * static_cast<double>(at.time_ns));
    Put(details, "calls", static_cast<double>(calls));
    Put(details, "members", at.ranks);
    Put(details, "members_traced", static_cast<double>(group.calls.size()));
    std::string words = absl::StrFormat("%s among %d ranks moves %.3g GB/s at best", at.op,
                                        at.ranks, group.best / kGigabyte);
    if (calls < kFewestCalls) {
      return Inconclusive(
          absl::StrFormat(
              "few-calls: %d calls of at least 16 MiB had the link alone; the rule needs %d; %s",
              calls, kFewestCalls, words),
          std::move(details));
    }
    if (Sharing(at) == 0) {
      return Inconclusive(
          absl::StrCat("no-members: the trace does not list the group's ranks; ", words),
          std::move(details));
    }
    if (!(link > 0)) {
      return Inconclusive(
          absl::StrFormat("no-link: declare the bandwidth of the links with --set "
                          "performance/collective-bandwidth.%s=GB/S; %s",
                          Sharing(at) == at.ranks ? "domain_gb_s" : "link_gb_s", words),
          std::move(details));
    }
    absl::StrAppendFormat(&words, ", %.3g %% of the %.4g that the links provide",
                          100 * group.best / link, link / kGigabyte);
    if (!(group.best < share_ * link)) return Pass(words, std::move(details));
    return Found(group, link, words, std::move(details));
  }

  v1::Verdict Found(const Moved& group, double link, const std::string& words,
                    google::protobuf::Struct details) const {
    const CollectiveTimes& at = group.at;
    const bool all = group.calls.size() >= at.ranks;
    const int64_t sharing = Sharing(at);
    const bool flat = at.op != "all_to_all" && sharing > 1 && sharing < at.ranks &&
                      group.best <= kOneCard * link_;
    FindingBuilder found(all ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
    found
        .Title(flat ? "collectives use one network card; several are available"
                    : "collectives reach a small part of the links' bandwidth")
        .Explain(absl::StrFormat("%s: of %d calls that had the link alone, the fastest tenth takes "
                                 "%.4g ms for %.4g MiB.%s",
                                 Capitalised(words), group.most_calls(),
                                 1e-6 * static_cast<double>(at.time_ns),
                                 static_cast<double>(at.bytes) / (1 << 20),
                                 flat ? " This is the bandwidth of a single card." : ""))
        .Cause(flat ? "flat" : "slow-link", all ? 0.7 : 0.5)
        .Measured("best bytes per second sent by one member", group.best / kGigabyte, "GB/s")
        .Threshold(share_ * link / kGigabyte, "half of the bandwidth that the options declare")
        .Samples(group.most_calls())
        .Assume("the links have the bandwidth that the options declare")
        .Assume(all ? "in a tenth of the calls the last member is a traced one"
                    : "no member without a trace is always last")
        .Witness("bytes", static_cast<double>(at.bytes))
        .Witness("ms", 1e-6 * static_cast<double>(at.time_ns))
        .Witness("members", at.ranks)
        .Fix(flat ? "Check how NCCL uses the network cards: NCCL_DEBUG=INFO (channels, NET/IB, "
                    "NCCL_IB_HCA, NCCL_ALGO), a topology file; groups with consecutive ranks."
                  : "Run nccl-tests on these hosts. If they are as slow, check cables and cards "
                    "(ibstatus, nvidia-smi nvlink -s); else check NCCL_DEBUG=INFO: NET/IB or "
                    "NET/Socket, channels.");
    *found.verdict().mutable_details() = std::move(details);
    return found.Take();
  }

  struct Traces {
    int64_t at = -1, last = -1;  // the step of the evidence, and the last marked step
    std::vector<timeline::Bottleneck> bottlenecks;
  };
  Traces traces_;  // not stored, because it belongs to one step

  const double link_, domain_link_;  // bytes/s
  const int64_t domain_;
  const double share_;
};

}  // namespace

CatalogueEntry collective_bandwidth() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<CollectiveBandwidth>(options);
          }};
}

}  // namespace plumbline::rules
