#include "analysis/routing/policies/nothing_kept.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

std::string Listed(const std::vector<int32_t>& experts) {
  constexpr size_t kMost = 8;
  const size_t shown = std::min(experts.size(), kMost);
  std::string list =
      absl::StrJoin(experts.begin(), experts.begin() + static_cast<int64_t>(shown), ", ");
  if (experts.size() > shown) absl::StrAppend(&list, " and ", experts.size() - shown, " more");
  return absl::StrCat(experts.size() == 1 ? "expert " : "experts ", list);
}

}  // namespace

std::string NothingKept::Describe() const {
  return absl::StrCat(Listed(experts), " kept none of the ", refused, " choices of ",
                      experts.size() == 1 ? "it" : "them");
}

NothingKept SetNothingKeptAside(RoutingCase& c) {
  std::vector<int64_t> kept(static_cast<size_t>(c.experts)), refused(kept.size());
  for (const Choice& choice : c.choices) {
    ++(choice.kept ? kept : refused)[static_cast<size_t>(choice.expert)];
  }
  NothingKept out;
  for (int32_t e = 0; e < c.experts; ++e) {
    const auto at = static_cast<size_t>(e);
    out.everybody &= kept[at] == 0;
    if (kept[at] == 0 && refused[at] > 0) out.experts.push_back(e);
  }
  if (!out.any()) return out;
  std::erase_if(c.choices, [&](const Choice& choice) {
    const bool aside = kept[static_cast<size_t>(choice.expert)] == 0 && !choice.kept;
    if (aside && c.judged(choice.token)) ++out.refused;
    return aside;
  });
  c.dropped -= out.refused;
  c.IndexChoices();
  return out;
}

v1::Verdict NothingKeptVerdict(const NothingKept& nothing) {
  if (nothing.everybody) {
    return Inconclusive(absl::StrCat("nothing-kept: every one of the ", nothing.refused,
                                     " recorded choices was refused; keep_mask or routing_map does "
                                     "not contain the kept choices"));
  }
  return Inconclusive(absl::StrCat(
      "nothing-kept: ", nothing.Describe(),
      "; null experts do that by a stored rule, and so does a router that excludes experts chosen "
      "by too few or too many tokens of the batch. Record the choices of a null expert as kept"));
}

v1::Verdict NoPassNextTo(const NothingKept& nothing, v1::Verdict verdict) {
  const bool pass = verdict.kind() == v1::Verdict::KIND_PASS;
  return pass && nothing.any() ? NothingKeptVerdict(nothing) : std::move(verdict);
}

}  // namespace plumbline::analysis
