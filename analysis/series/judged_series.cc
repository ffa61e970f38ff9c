#include "analysis/series/judged_series.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::analysis {
namespace {

// Returns the FNV-1a hash, with a separator byte that UTF-8 names cannot contain. It is the same on
// every host.
uint64_t HashOf(const v1::Site& site) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  };
  add(site.layer());
  add("\xff");
  add(site.op());
  return hash;
}

std::string NameOfSeries(SeriesRole role) { return absl::StrCat("series of role ", NameOf(role)); }

}  // namespace

bool JudgedSeries::Bounded(SeriesRole role) {
  return role == SeriesRole::kLoss || role == SeriesRole::kEvaluationLoss ||
         role == SeriesRole::kAuxiliaryLoss || role == SeriesRole::kGradientNorm ||
         role == SeriesRole::kRate;
}

bool JudgedSeries::Admit(const v1::Site& site) {
  const SeriesRole role = roles_->Of(site.op());
  if (!Bounded(role)) return true;
  const uint64_t name = HashOf(site);
  Names& admitted = admitted_[role];
  if (admitted.contains(name)) return true;
  if (admitted.size() < most_) {
    admitted.insert(name);
    ++admitted_count_;
    return true;
  }
  Beyond& beyond = left_out_[role];
  if (beyond.names.empty()) {
    beyond.layer = site.layer();
    beyond.op = site.op();
    full_.push_back(role);
  }
  if (beyond.names.insert(name).second) ++left_out_count_;
  return false;
}

JudgedSeries::LeftOut JudgedSeries::Of(SeriesRole role, const Beyond& beyond) {
  LeftOut of{role, {}, beyond.names.size()};
  of.first.set_layer(beyond.layer);
  of.first.set_op(beyond.op);
  return of;
}

std::vector<JudgedSeries::LeftOut> JudgedSeries::TakeFull() {
  std::vector<LeftOut> fresh;
  for (const SeriesRole role : std::exchange(full_, {}))
    fresh.push_back(Of(role, left_out_.at(role)));
  return fresh;
}

std::vector<JudgedSeries::LeftOut> JudgedSeries::AllLeftOut() const {
  std::vector<LeftOut> all;
  for (const auto& [role, beyond] : left_out_) all.push_back(Of(role, beyond));
  return all;
}

void JudgedSeries::Persist(Archive& archive) {
  archive(admitted_, left_out_);
  full_.clear();
  admitted_count_ = left_out_count_ = 0;
  for (const auto& [role, names] : admitted_) admitted_count_ += names.size();
  for (const auto& [role, beyond] : left_out_) left_out_count_ += beyond.names.size();
}

std::string SeriesLimitReason(SeriesRole role, uint64_t most) {
  return absl::StrCat("series-limit: the run has more than ", most, " ", NameOfSeries(role),
                      ": series after the first ", most, " are stored and not judged");
}

std::string SeriesLimitReason(SeriesRole role, uint64_t most, uint64_t left_out) {
  return absl::StrCat("series-limit: ", left_out, " of ", most + left_out, " ", NameOfSeries(role),
                      " were stored and not judged: the first ", most, " of a run are");
}

}  // namespace plumbline::analysis
