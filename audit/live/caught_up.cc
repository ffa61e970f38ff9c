#include "audit/live/caught_up.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "audit/live/output.h"

namespace plumbline::audit {

absl::StatusOr<bool> AwaitCaughtUp(Client& client, const std::string& server,
                                   double timeout_seconds, const std::function<bool()>& stopped) {
  const auto begin = std::chrono::steady_clock::now();
  for (double left = timeout_seconds;;) {
    const auto info = client.Info(std::max(left, 0.1));
    if (!info.ok()) return info.status();
    if (!info->catching_up()) return true;
    if (stopped && stopped()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    left = timeout_seconds - waited.count();
    if (left > 0) continue;
    std::fprintf(
        stderr,
        "plumb: %s was restarted and still judges its journal: earlier findings may be missing\n",
        server.c_str());
    return false;
  }
}

int LiveAnswer(const std::string& text, bool caught_up) {
  const int status = LivePrint(text);
  return status == 0 && !caught_up ? kLiveFailed : status;
}

}  // namespace plumbline::audit
