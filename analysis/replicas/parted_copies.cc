#include "analysis/replicas/parted_copies.h"

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "analysis/replicas/replica_copies.h"

namespace plumbline::analysis {
namespace {

constexpr char kBefore[] = "unsummed/before", kAfter[] = "unsummed/after",
               kSummed[] = "unsummed/summed";
constexpr size_t kMostRanksOfCopies = 1 << 16;
constexpr size_t kMostSteps = 64;  // powers of two

// Ranks that began with the same weights, and their later checksums by step.
struct Group {
  std::set<uint32_t> ranks;
  std::map<int64_t, std::map<uint32_t, double>> after;
};

// Returns the first step in which all ranks report and no two agree. If some agree in the last
// common step, returns nullopt.
std::optional<int64_t> Parted(const Group& group) {
  std::optional<int64_t> first;
  for (const auto& [step, values] : group.after) {
    if (values.size() != group.ranks.size()) continue;
    std::set<double> distinct;
    for (const auto& [rank, value] : values) distinct.insert(value);
    if (distinct.size() == group.ranks.size()) {
      if (!first) first = step;
    } else {
      first.reset();
    }
  }
  return first;
}

v1::Verdict Found(const Group& group, int64_t step) {
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
  found.Title("copies of one model diverge: their gradients are not summed")
      .Explain(absl::StrFormat(
          "%s started with the same bits in all weights, trained with a process group, and differ "
          "after the update of step %d. No sum over the processes was observed: each process "
          "trains its own model on its share of the data.",
          RankList(group.ranks), step))
      .Cause("unsynchronised", 0.9)
      .Measured("ranks that diverged", static_cast<double>(group.ranks.size()), "ranks")
      .Threshold(0, "copies that start equal stay equal")
      .Fix(
          "Wrap the model in DistributedDataParallel (or FSDP), or all_reduce the gradients before "
          "each step. If each process must train its own model, do not watch them as one run.")
      .Samples(group.after.size())
      .Assume("the processes of one run train one model")
      .At("", kAfter, step, group.after.rbegin()->first, group.ranks);
  return found.Take();
}

}  // namespace

bool PartedCopies::Is(const v1::Site& site) {
  return site.layer().empty() && site.op().rfind("unsummed/", 0) == 0;
}

void PartedCopies::Take(const SiteStep& step) {
  for (const Item& item : step.items) {
    if (!item.evidence->has_scalar()) continue;
    const Key key{step.attempt, step.role, item.source->rank()};
    if (ranks_.size() >= kMostRanksOfCopies && !ranks_.contains(key)) return;
    Rank& rank = ranks_[key];
    const double value = item.evidence->scalar().value();
    rank.summed |= step.site.op() == kSummed;
    if (!std::isfinite(value)) continue;
    if (step.site.op() == kBefore) rank.before = value;
    if (step.site.op() == kAfter && rank.after.size() < kMostSteps) rank.after[step.step] = value;
  }
}

std::vector<v1::Verdict> PartedCopies::Judge() const {
  std::map<std::tuple<uint32_t, v1::Role, double>, Group> groups;
  std::set<std::pair<uint32_t, v1::Role>> summed;
  for (const auto& [key, rank] : ranks_) {
    const auto& [attempt, role, number] = key;
    if (rank.summed) summed.insert({attempt, role});
    if (!rank.before) continue;
    Group& group = groups[{attempt, role, *rank.before}];
    group.ranks.insert(number);
    for (const auto& [step, value] : rank.after) group.after[step][number] = value;
  }
  std::vector<v1::Verdict> out;
  for (const auto& [key, group] : groups) {
    if (group.ranks.size() < 2 || summed.contains({std::get<0>(key), std::get<1>(key)})) continue;
    if (const std::optional<int64_t> step = Parted(group)) out.push_back(Found(group, *step));
  }
  return out;
}

}  // namespace plumbline::analysis
