#include "audit/commands/progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace plumbline::audit {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr double kMega = 1e6;

}  // namespace

ProgressLine::ProgressLine(bool quiet) : enabled_(!quiet && isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::Show(const AuditProgress& progress) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (now - last_ < kInterval) return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double done = static_cast<double>(progress.bytes_done) / kMega;
  std::fprintf(stderr, "\r\x1b[K%zu of %zu files read, %.0f of %.0f MB, %.0f MB/s",
               progress.files_done, progress.files, done,
               static_cast<double>(progress.bytes) / kMega, done / seconds);
}

}  // namespace plumbline::audit
