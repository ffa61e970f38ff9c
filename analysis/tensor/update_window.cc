#include "analysis/tensor/update_window.h"

#include <utility>

namespace plumbline::rules {
namespace {

// A site whose elements hardly ever count does not grow for ever.
constexpr size_t kMostElements = 1 << 16;

template <typename T>
void Append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

bool Alike(const UpdateCase& a, const UpdateCase& b) {
  return a.dtype == b.dtype && a.moment_dtype == b.moment_dtype &&
         a.gradient.empty() == b.gradient.empty() &&
         a.moment_before.empty() == b.moment_before.empty() &&
         a.moment_after.empty() == b.moment_after.empty();
}

}  // namespace

UpdateWindow::Key UpdateWindow::KeyOf(const SiteStep& step, const Item& item) {
  return {step.role, step.site.layer(), step.site.op(), item.source->rank(), step.attempt};
}

UpdateWindow::Gathered& UpdateWindow::Add(const SiteStep& step, const Item& item,
                                          UpdateCase sample) {
  Gathered& gathered = sites_[KeyOf(step, item)];
  UpdateCase& all = gathered.sample;
  if (all.size() == 0 || all.size() > kMostElements || !Alike(all, sample)) {
    all = std::move(sample);
    gathered.step_first = step.step;
    return gathered;
  }
  Append(all.offsets, sample.offsets);
  Append(all.before, sample.before);
  Append(all.after, sample.after);
  Append(all.intended, sample.intended);
  Append(all.gradient, sample.gradient);
  Append(all.moment_before, sample.moment_before);
  Append(all.moment_after, sample.moment_after);
  Append(all.unchanged, sample.unchanged);
  return gathered;
}

void UpdateWindow::Forget(const SiteStep& step, const Item& item) {
  sites_.erase(KeyOf(step, item));
}

}  // namespace plumbline::rules
