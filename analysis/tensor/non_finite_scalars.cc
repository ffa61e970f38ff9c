#include "analysis/tensor/non_finite_scalars.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace plumbline::rules {
namespace {

// Words of a name: "train/grad-norm" is train, grad, norm.
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty() && words.size() > 1) words.pop_back();
  return words;
}

bool Has(const std::vector<std::string>& words, std::initializer_list<const char*> any) {
  return std::any_of(any.begin(), any.end(), [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  });
}

bool NamesGradientNorm(const std::vector<std::string>& words) {
  return words.back() == "gradnorm" ||
         (words.back() == "norm" && Has(words, {"grad", "gradient", "gradients"}));
}

bool NamesTraining(std::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  if (Has(words, {"eval", "evaluation", "val", "valid", "validation", "test"})) return false;
  return words.back() == "loss" || NamesGradientNorm(words);
}

}  // namespace

bool IsGradientNorm(const v1::Site& site) { return NamesGradientNorm(WordsOf(site.op())); }

bool TellsOfTraining(const v1::Site& site) {
  // It is asked at each step of each series: a name's words are looked at once.
  constexpr size_t kMost = 1024;
  thread_local std::unordered_map<std::string, bool> known;
  if (known.size() > kMost) known.clear();
  const auto [entry, fresh] = known.try_emplace(site.op(), false);
  if (fresh) entry->second = NamesTraining(site.op());
  return entry->second;
}

void NonFiniteScalars::TakeFinite(const SiteStep& any) {
  Known& known = known_.Of(any, [&] { return Known{TellsOfTraining(any.site), false}; });
  if (!std::exchange(known.finite, true)) finite_.insert({any.site.layer(), any.site.op()});
}

void NonFiniteScalars::Take(const SiteStep& step) {
  Known& known = known_.Of(step, [&] { return Known{TellsOfTraining(step.site), false}; });
  if (!known.tells) return;
  NonFiniteScalar bad;
  uint32_t world = 1, told = 0;
  bool found = false, finite = false;
  for (const Item& item : step.items) {
    if (!item.evidence->has_scalar()) continue;
    any_ = true;
    ++told;
    const double value = item.evidence->scalar().value();
    world = std::max(world, item.source->world_size());
    if (std::isfinite(value)) {
      finite = true;
      continue;
    }
    if (!found) bad.value = value;
    found = true;
    bad.ranks.push_back(item.source->rank());
  }
  if (finite && !std::exchange(known.finite, true))
    finite_.insert({step.site.layer(), step.site.op()});
  if (!found) return;
  bad.layer = step.site.layer();
  bad.op = step.site.op();
  const std::vector<std::string> words = WordsOf(bad.op);
  const bool plain = words.size() == 1 || (words.size() == 2 && words[0] == "train");
  if (!(plain || finite_.contains({bad.layer, bad.op}))) return;
  std::sort(bad.ranks.begin(), bad.ranks.end());
  bad.ranks.erase(std::unique(bad.ranks.begin(), bad.ranks.end()), bad.ranks.end());
  if (told == 1 && world > 1) bad.ranks.clear();
  of_step_.push_back(std::move(bad));
}

std::optional<NonFiniteScalar> NonFiniteScalars::First() const {
  if (of_step_.empty()) return std::nullopt;
  const auto key = [](const NonFiniteScalar& s) {
    v1::Site site;
    site.set_op(s.op);
    return std::tuple(IsGradientNorm(site), s.layer, s.op);
  };
  return *std::min_element(of_step_.begin(), of_step_.end(),
                           [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

void NonFiniteScalars::Clear() {
  of_step_.clear();
  any_ = false;
}

}  // namespace plumbline::rules
