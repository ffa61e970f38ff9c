#include "rules/lib/reduction_join.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"

namespace plumbline::rules {
namespace {

using Call = v1::ReductionCall;

uint32_t SizeOf(const SiteStep& step, const JoinedReduction& joined) {
  uint32_t size = 0;
  for (size_t i = 0; i < joined.items.size(); ++i)
    size = std::max(size, joined.call_of(i).group_size());
  if (size == 0 && joined.group.empty()) size = step.world_size;
  return size;
}

void FindMissing(const SiteStep& step, JoinedReduction& joined) {
  std::set<uint32_t> seen;
  for (size_t i = 0; i < joined.items.size(); ++i) {
    const uint32_t rank = joined.call_of(i).group_rank();
    if (!seen.insert(rank).second) {
      joined.ambiguous = absl::StrCat(
          "ambiguous-group: rank ", rank, " of ", GroupWords(joined.group),
          " reported twice; several process groups seem to share a name or a sequence number");
    }
  }
  joined.size = SizeOf(step, joined);
  for (uint32_t rank = 0; rank < joined.size; ++rank) {
    if (seen.count(rank) == 0) joined.missing.push_back(rank);
  }
}

// Ranks that number themselves within the group only by where they stand: group_rank is 0 on all.
bool NumberedByWorld(const JoinedReduction& joined) {
  if (joined.items.size() < 2) return false;
  std::set<uint32_t> ranks;
  for (size_t i = 0; i < joined.items.size(); ++i) ranks.insert(joined.call_of(i).group_rank());
  return ranks.size() == 1 && *ranks.begin() == 0;
}

std::vector<JoinedReduction> Join(const SiteStep& step) {
  std::map<std::tuple<std::string, bool, uint64_t>, JoinedReduction> calls;
  for (const Item& item : step.items) {
    if (!item.evidence->has_reduction()) continue;
    const Call& call = item.evidence->reduction().call();
    if (call.algorithm() == "accumulation") continue;
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
    const bool whole =
        joined.items.size() == 1 && HoldsAllRanks(joined.items[0].evidence->reduction());
    if (!NumberedByWorld(joined)) {
      std::stable_sort(joined.items.begin(), joined.items.end(), [](const Item& a, const Item& b) {
        return a.evidence->reduction().call().group_rank() <
               b.evidence->reduction().call().group_rank();
      });
    }
    if (!whole && !NumberedByWorld(joined)) FindMissing(step, joined);
    if (!whole && NumberedByWorld(joined)) {
      joined.size = SizeOf(step, joined);
      if (joined.group.empty()) joined.missing = step.missing_ranks;
    }
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

// What one rank says of a quantity; empty: nothing.
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

std::string RankWords(const std::vector<uint32_t>& ranks) {
  constexpr size_t kNamed = 16;
  std::vector<uint32_t> named(
      ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), kNamed)));
  std::string text =
      absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(named, ", "));
  if (ranks.size() > kNamed) absl::StrAppend(&text, " and ", ranks.size() - kNamed, " more");
  return text;
}

bool HoldsAllRanks(const v1::Reduction& reduction) {
  return reduction.sample().inputs().shape_size() == 2;
}

std::shared_ptr<const std::vector<JoinedReduction>> JoinReductions(const SiteStep& step) {
  std::shared_ptr<const void>& slot = (*step.shared)["reductions"];
  if (slot == nullptr) slot = std::make_shared<const std::vector<JoinedReduction>>(Join(step));
  return std::static_pointer_cast<const std::vector<JoinedReduction>>(slot);
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

}  // namespace plumbline::rules
