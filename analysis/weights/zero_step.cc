#include "analysis/weights/zero_step.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/half.h"

namespace plumbline::analysis {

void ZeroStep::Take(const SiteStep& step, const Item& item) {
  const v1::TensorState& state = item.evidence->tensor();
  const std::string& role = state.role();
  if (!IsComputed(role) && role != "weight" && !role.empty()) return;
  if (!state.has_summary() || !IsFloating(static_cast<DType>(state.dtype()))) return;
  if (item.evidence->exercised() == v1::EXERCISED_NO) return;
  const v1::TensorSummary& s = state.summary();
  Looks& looks = open_[{step.site.layer(), step.site.op()}];
  looks.role = role;
  ZeroLook& look = looks.ranks[item.source->rank()];
  look.poisoned |= s.nan() + s.pos_inf() + s.neg_inf() > 0;
  look.elements |= s.count() > 0;
  look.zero &= s.zero() == s.count();
  look.count = std::max(look.count, s.count());
  look.amax = s.amax();
  look.l1 = s.l1();
  look.digest = s.digest_low() ^ (s.digest_high() * 0x9e3779b97f4a7c15ULL);
  look.fine = FormatOf(static_cast<DType>(state.dtype())).precision >= 24;
}

const ZeroLook* ZeroStep::Find(const std::string& layer, const char* op, uint32_t rank) const {
  const auto place = open_.find({layer, op});
  if (place == open_.end()) return nullptr;
  const auto look = place->second.ranks.find(rank);
  return look == place->second.ranks.end() ? nullptr : &look->second;
}

bool ZeroStep::AllGradientsZero(uint32_t rank) const {
  size_t gradients = 0;
  for (const auto& [place, looks] : open_) {
    if (looks.role != "gradient") continue;
    const auto look = looks.ranks.find(rank);
    if (look == looks.ranks.end() || !look->second.elements) continue;
    if (!look->second.zero || look->second.poisoned) return false;
    ++gradients;
  }
  return gradients >= 2;
}

bool ZeroStep::IsBiasOfLiving(const std::string& layer, uint32_t rank) const {
  constexpr std::string_view kBias = "bias";
  const size_t at = layer.rfind(kBias);
  if (at == std::string::npos) return false;
  const std::string weight = std::string(layer).replace(at, kBias.size(), "weight");
  const ZeroLook* look = Find(weight, "gradient", rank);
  return look != nullptr && look->lives();
}

void LeastLosses::Take(const SiteStep& step, const Item& item) {
  const double value = item.evidence->scalar().value();
  if (!std::isfinite(value)) return;
  const auto [at, fresh] =
      least_.try_emplace({step.role, step.site.op(), item.source->rank()}, value);
  ++reported_;
  low_ += value == 0 || (!fresh && value <= at->second) ? 1 : 0;
  at->second = std::min(at->second, value);
}

void LeastLosses::TakeRows(const ScalarColumn& column, size_t first, size_t end) {
  double* least = nullptr;
  for (size_t row = first; row < end; ++row) {
    const double value = column.value(row);
    if (!std::isfinite(value)) continue;
    if (least == nullptr) {
      const SiteStep& any = column.any();
      least = &least_.try_emplace({any.role, any.site.op(), column.source().rank()}, value)
                   .first->second;
    }
    *least = std::min(*least, value);
  }
}

bool IsOfExpert(const std::string& layer) {
  const std::vector<std::string> words = absl::StrSplit(layer, absl::ByAnyChar("./-_ "));
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return absl::StartsWithIgnoreCase(word, "expert");
  });
}

}  // namespace plumbline::analysis
