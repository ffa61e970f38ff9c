#include "analysis/collective/case/join.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"

namespace plumbline::analysis {
namespace {

using Call = v1::ReductionCall;

uint32_t SizeOf(const SiteStep& step, const JoinedReduction& joined) {
  uint32_t size = 0;
  for (size_t i = 0; i < joined.items.size(); ++i)
    size = std::max(size, joined.call_of(i).group_size());
  if (size == 0 && joined.group.empty()) size = step.world_size;
  return size;
}

// Returns true if ranks have only their numbers in the world: group_rank is 0 on all of them.
bool NumberedByWorld(const JoinedReduction& joined) {
  if (joined.items.size() < 2) return false;
  return std::all_of(joined.items.begin(), joined.items.end(), [](const Item& item) {
    return item.evidence->reduction().call().group_rank() == 0;
  });
}

std::string TwiceWords(const JoinedReduction& joined, uint32_t rank) {
  return absl::StrCat(
      "ambiguous-group: rank ", rank, " of ", GroupWords(joined.group),
      " reported twice; several process groups may share a name or a sequence number");
}

// Finds the ranks that did not report, by group ranks, or by ranks of the world if group ranks are
// not set. If only the size is stated, does not list all numbers up to it.
void FindMissing(const SiteStep& step, bool by_world, JoinedReduction& joined) {
  std::set<uint32_t> seen;
  for (size_t i = 0; i < joined.items.size(); ++i) {
    const uint32_t rank =
        by_world ? joined.items[i].source->rank() : joined.call_of(i).group_rank();
    if (!seen.insert(rank).second && joined.ambiguous.empty())
      joined.ambiguous = TwiceWords(joined, rank);
  }
  joined.size = SizeOf(step, joined);
  // Number of ranks, if all ranks are numbered.
  const uint64_t above = uint64_t{*seen.rbegin()} + 1;
  const bool numbered = !by_world || joined.group.empty();
  const bool beyond = joined.size > 0 && !by_world && above > joined.size;
  if (joined.size > 0 && (beyond || seen.size() > joined.size) && joined.ambiguous.empty()) {
    joined.ambiguous =
        absl::StrCat("ambiguous-group: ", GroupWords(joined.group), " is recorded with ",
                     joined.size, joined.size == 1 ? " rank, and " : " ranks, and ", seen.size(),
                     " reported, the last one as ", *seen.rbegin());
  }
  uint64_t expected = joined.size;
  if (expected == 0) expected = numbered ? above : seen.size();
  joined.missing_count = expected - std::min<uint64_t>(expected, seen.size());
  if (!numbered || above > expected) return;
  uint64_t unnamed = std::min<uint64_t>(joined.missing_count, JoinedReduction::kNamedMissing);
  for (uint32_t rank = 0; unnamed > 0; ++rank) {
    if (seen.count(rank) > 0) continue;
    joined.missing.push_back(rank);
    --unnamed;
  }
}

// Sorts the items by the group's ranks, and sets the missing and surplus ranks.
void Complete(const SiteStep& step, JoinedReduction& joined) {
  const auto whole = std::count_if(joined.items.begin(), joined.items.end(), [](const Item& item) {
    return HoldsAllRanks(item.evidence->reduction());
  });
  if (whole > 0 && joined.items.size() == 1) return;
  if (whole > 0) {
    joined.ambiguous = absl::StrCat("ambiguous-group: ", joined.items.size(), " records of ",
                                    GroupWords(joined.group),
                                    " have the same number, and one of them describes all ranks");
    return;
  }
  const bool by_world = NumberedByWorld(joined);
  if (!by_world) {
    std::stable_sort(joined.items.begin(), joined.items.end(), [](const Item& a, const Item& b) {
      return a.evidence->reduction().call().group_rank() <
             b.evidence->reduction().call().group_rank();
    });
  }
  FindMissing(step, by_world, joined);
}

// Returns true if it is not one collective: a rank's own running sum, what its previous step left
// there, or a gradient from its first reduction to the optimizer.
bool IsNoCollective(const std::string& algorithm) {
  return algorithm == "accumulation" || algorithm == "left-gradient" ||
         algorithm == "applied-gradient";
}

std::vector<JoinedReduction> Join(const SiteStep& step) {
  std::map<std::tuple<std::string, bool, uint64_t>, JoinedReduction> calls;
  for (const Item& item : step.items) {
    if (!item.evidence->has_reduction()) continue;
    const Call& call = item.evidence->reduction().call();
    if (IsNoCollective(call.algorithm())) continue;
    const uint64_t number = call.sequence_known() ? call.sequence() : item.evidence->call();
    JoinedReduction& joined = calls[{call.group(), call.sequence_known(), number}];
    if (joined.items.empty()) {
      joined.group = call.group();
      joined.sequence = number;
      joined.sequence_known = call.sequence_known();
      joined.call = item.evidence->call();
    }
    joined.items.push_back(item);
    if (!item.evidence->reduction().has_sample()) joined.sampleless.push_back(item.source->rank());
  }
  std::vector<JoinedReduction> list;
  for (auto& [key, joined] : calls) {
    Complete(step, joined);
    list.push_back(std::move(joined));
  }
  return list;
}

std::string OpWords(Call::Op op) {
  switch (op) {
    case Call::OP_SUM:
      return "sum";
    case Call::OP_AVG:
      return "avg";
    case Call::OP_MAX:
      return "max";
    case Call::OP_MIN:
      return "min";
    case Call::OP_PRODUCT:
      return "product";
    case Call::OP_OTHER:
      return "other";
    default:
      return "not recorded";
  }
}

// Return one rank's declaration of a property, or "" if it declares nothing.
using Describe = std::string (*)(const v1::Reduction&);

std::string DTypeWords(const v1::Reduction& r) {
  v1::DType t = r.call().wire_dtype();
  if (t == v1::DTYPE_UNSPECIFIED && r.has_sample()) t = r.sample().inputs().dtype();
  return t == v1::DTYPE_UNSPECIFIED ? "" : DTypeName(static_cast<DType>(t));
}
std::string CountWords(const v1::Reduction& r) {
  const bool exempt = r.call().variable_count() || r.call().count() == 0;
  return exempt ? "" : absl::StrCat(r.call().count());
}
std::string OperationWords(const v1::Reduction& r) {
  return r.call().op() == Call::OP_UNSPECIFIED ? "" : OpWords(r.call().op());
}
std::string RootWords(const v1::Reduction& r) { return absl::StrCat(r.call().root()); }

bool PointToPoint(const JoinedReduction& joined) {
  const std::string& algorithm = joined.call_of(0).algorithm();
  return algorithm == "send" || algorithm == "recv" || algorithm == "p2p";
}

}  // namespace

std::string GroupWords(const std::string& group) {
  return group.empty() ? "the world" : "group " + group;
}

std::string RankWords(const std::vector<uint32_t>& ranks) { return RankWords(ranks, ranks.size()); }

std::string RankWords(const std::vector<uint32_t>& ranks, uint64_t count) {
  constexpr size_t kNamed = 16;
  if (ranks.empty()) return absl::StrCat(count, count == 1 ? " rank" : " ranks");
  std::vector<uint32_t> named(
      ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), kNamed)));
  std::string text = absl::StrCat(count == 1 ? "rank " : "ranks ", absl::StrJoin(named, ", "));
  if (count > named.size()) absl::StrAppend(&text, " and ", count - named.size(), " more");
  return text;
}

bool HoldsAllRanks(const v1::Reduction& reduction) {
  return reduction.sample().inputs().shape_size() == 2;
}

std::shared_ptr<const std::vector<JoinedReduction>> JoinReductions(const SiteStep& step) {
  using List = const std::vector<JoinedReduction>;
  return step.cache.Get<List>([&] { return std::make_shared<List>(Join(step)); });
}

std::vector<ReductionMismatch> FindMismatches(const JoinedReduction& joined) {
  static constexpr std::pair<const char*, Describe> kQuantities[] = {{"dtype", DTypeWords},
                                                                     {"count", CountWords},
                                                                     {"operation", OperationWords},
                                                                     {"root", RootWords}};
  std::vector<ReductionMismatch> found;
  if (joined.items.size() < 2 || PointToPoint(joined)) return found;
  for (const auto& [what, describe] : kQuantities) {
    ReductionMismatch m{what, {}, {}};
    std::set<std::string> distinct;
    for (const Item& item : joined.items) {
      const std::string words = describe(item.evidence->reduction());
      if (words.empty()) continue;
      distinct.insert(words);
      m.values.push_back(words);
      m.ranks.push_back(item.source->rank());
    }
    if (distinct.size() > 1) found.push_back(std::move(m));
  }
  return found;
}

}  // namespace plumbline::analysis
