#include "analysis/tensor/update_pool.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kMostPools = size_t{1} << 16;
constexpr size_t kMostPooled = size_t{1} << 14;
constexpr size_t kMostLayers = 4096;
constexpr char kTogether[] = "small tensors";

void AddUp(const v1::UpdateSummary& s, v1::UpdateSummary* sum) {
  sum->set_count(sum->count() + s.count());
  sum->set_non_finite(sum->non_finite() + s.non_finite());
  sum->set_intended(sum->intended() + s.intended());
  sum->set_lost(sum->lost() + s.lost());
  sum->set_moved_against(sum->moved_against() + s.moved_against());
  sum->set_intended_l1(sum->intended_l1() + s.intended_l1());
  sum->set_applied_l1(sum->applied_l1() + s.applied_l1());
  sum->set_lost_l1(sum->lost_l1() + s.lost_l1());
  sum->set_applied_along(sum->applied_along() + s.applied_along());
  sum->set_error_sum(sum->error_sum() + s.error_sum());
  sum->set_misrounded(sum->misrounded() + s.misrounded());
}

// A key must be equal to itself, which NaN is not.
double Stated(double value) { return std::isnan(value) ? 0 : value; }

uint32_t PlaceOf(const std::string& layer, std::vector<std::string>* layers) {
  const auto found = std::find(layers->begin(), layers->end(), layer);
  if (found != layers->end()) return static_cast<uint32_t>(found - layers->begin());
  layers->push_back(layer);
  return static_cast<uint32_t>(layers->size() - 1);
}

}  // namespace

std::string UpdatePool::Pooled::ElementName(size_t i) const {
  return absl::StrCat(layers[owners[i]], "[", sample.offsets[i], "]");
}

void UpdatePool::Pooled::Fill(uint32_t rank, v1::Verdict* verdict) const {
  v1::FindingSite* site = verdict->mutable_site();
  site->set_layer(layers.size() == 1 ? layers[0] : kTogether);
  site->set_op("update");
  site->set_step_first(step_first);
  site->set_step_last(step_last);
  site->add_ranks(rank);
  Put(*verdict->mutable_details(), "tensors", static_cast<double>(layers.size()));
}

UpdatePool::Pooled* UpdatePool::Add(const SiteStep& step, const Item& item,
                                    const UpdateCase* sample) {
  const v1::Update& update = item.evidence->update();
  const v1::UpdateConfig& c = update.config();
  const Key key{step.attempt,     step.role,     item.source->rank(), c.dtype(),
                c.moment_dtype(), c.optimizer(), Stated(c.beta2()),   Stated(c.eps())};
  if (pools_.size() >= kMostPools && !pools_.contains(key)) return nullptr;
  Pooled& pool = pools_[key];
  const bool full = pool.sample.size() > kMostPooled || pool.layers.size() > kMostLayers;
  if (pool.layers.empty() || full ||
      (sample && pool.sample.size() && !pool.sample.Alike(*sample))) {
    pool = {.judged = pool.judged, .marked = pool.marked};
    *pool.update.mutable_config() = c;
    pool.step_first = step.step;
  }
  AddUp(update.summary(), pool.update.mutable_summary());
  const uint32_t place = PlaceOf(step.site.layer(), &pool.layers);
  if (sample != nullptr) {
    if (pool.sample.size() == 0) {
      pool.sample = *sample;
    } else {
      pool.sample.Append(*sample);
    }
    pool.owners.resize(pool.sample.size(), place);
  }
  pool.step_last = step.step;
  pool.fresh = true;
  return &pool;
}

void UpdatePool::JudgeEach(const StepEnd& step, VerdictSink& out,
                           const std::function<std::optional<v1::Verdict>(const Pooled&)>& judge) {
  for (auto& [key, pool] : pools_) {
    if (std::get<0>(key) != step.attempt || std::get<1>(key) != step.role || !pool.fresh) continue;
    pool.fresh = false;
    std::optional<v1::Verdict> verdict = judge(pool);
    if (!verdict) continue;
    pool.Fill(std::get<2>(key), &*verdict);
    out.Add(*std::move(verdict));
    pool = {.judged = true, .marked = pool.marked};
  }
}

void UpdatePool::ReportLeft(const std::string& why, VerdictSink& out) const {
  for (const auto& [key, pool] : pools_) {
    if (pool.judged) continue;
    for (const std::string& layer : pool.layers) {
      v1::Verdict verdict = Inconclusive(why);
      v1::FindingSite* site = verdict.mutable_site();
      site->set_layer(layer);
      site->set_op("update");
      site->set_step_first(pool.step_first);
      site->set_step_last(pool.step_last);
      site->add_ranks(std::get<2>(key));
      out.Add(std::move(verdict));
    }
  }
}

}  // namespace plumbline::analysis
