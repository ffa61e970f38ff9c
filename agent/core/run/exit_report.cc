#include "agent/core/run/exit_report.h"

#include <string>
#include <string_view>

#include "agent/core/run/run.h"
#include "base/clock.h"
#include "base/printable.h"

namespace plumbline::agent {
namespace {

constexpr size_t kType = 128, kText = 512, kWhere = 256;  // bytes

// Returns the printable text, cut to `most` bytes.
std::string Cut(const char* text, size_t most) {
  if (text == nullptr) return "";
  std::string shown = Printable(std::string_view(text).substr(0, most));
  if (shown.size() <= most) return shown;
  while (most > 0 && (static_cast<unsigned char>(shown[most]) & 0xC0) == 0x80) --most;
  shown.resize(most);
  return shown;
}

}  // namespace

void ExitReport::Note(const plumbline_ending_t* given) {
  if (given == nullptr) return Forget(true);
  const MutexLock lock(mutex_);
  if (given->thread != nullptr && ending_.thread().empty())
    ending_.set_thread(Cut(given->thread, kWhere));
  if (given->how != 0 && ending_.how() == v1::Ending::HOW_UNSPECIFIED) {
    ending_.set_how(static_cast<v1::Ending::How>(given->how));
    ending_.set_type(Cut(given->type, kType));
    ending_.set_text(Cut(given->text, kText));
    ending_.set_where(Cut(given->where, kWhere));
    ending_.set_code(given->code);
    ending_.set_unix_ns(static_cast<int64_t>(UnixNs()));
  }
  noted_.store(ending_.how() != v1::Ending::HOW_UNSPECIFIED, std::memory_order_relaxed);
}

void ExitReport::Forget(bool thread) {
  const MutexLock lock(mutex_);
  const std::string of_thread = thread ? "" : ending_.thread();
  ending_.Clear();
  ending_.set_thread(of_thread);
  noted_.store(false, std::memory_order_relaxed);
}

void ExitReport::Value(const Site* site, int64_t step, double value) {
  for (size_t i = 0; i < series_; ++i) {
    if (newest_[i].site != site) continue;
    newest_[i].step = step;
    newest_[i].value = value;
    return;
  }
  if (series_ == newest_.size() || site->op == kStretchSeries) return;
  newest_[series_++] = {site, step, value};
}

bool ExitReport::Take(v1::Ending* out) {
  const MutexLock lock(mutex_);
  if (ending_.how() == v1::Ending::HOW_UNSPECIFIED && ending_.thread().empty()) return false;
  *out = ending_;
  if (out->unix_ns() == 0) out->set_unix_ns(static_cast<int64_t>(UnixNs()));
  for (size_t i = 0; i < series_; ++i) {
    v1::Ending::Last& last = *out->add_last();
    last.set_series(Cut(newest_[i].site->op.c_str(), kType));
    last.set_step(newest_[i].step);
    last.set_value(newest_[i].value);
  }
  return true;
}

}  // namespace plumbline::agent
