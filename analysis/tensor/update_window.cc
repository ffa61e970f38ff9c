#include "analysis/tensor/update_window.h"

#include <utility>

namespace plumbline::analysis {
namespace {

// Bound for a site whose elements rarely count.
constexpr size_t kMostElements = 1 << 16;

}  // namespace

UpdateWindow::Key UpdateWindow::KeyOf(const SiteStep& step, const Item& item) {
  return {step.role, step.site.layer(), step.site.op(), item.source->rank(), step.attempt};
}

UpdateWindow::Gathered& UpdateWindow::Add(const SiteStep& step, const Item& item,
                                          UpdateCase sample) {
  Gathered& gathered = sites_[KeyOf(step, item)];
  UpdateCase& all = gathered.sample;
  if (all.size() == 0 || all.size() > kMostElements || !all.Alike(sample)) {
    all = std::move(sample);
    gathered.step_first = step.step;
    return gathered;
  }
  all.Append(sample);
  return gathered;
}

void UpdateWindow::Forget(const SiteStep& step, const Item& item) {
  sites_.erase(KeyOf(step, item));
}

}  // namespace plumbline::analysis
