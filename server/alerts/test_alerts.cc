#include "server/alerts/test_alerts.h"

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/alerts/notification.h"
#include "server/alerts/sink.h"

namespace plumbline::server {

std::string TestAlerts(const AlertConfig& config, bool* delivered) {
  const UnixClock clock = [] { return static_cast<int64_t>(UnixNs()); };
  std::string out;
  *delivered = !config.routes.empty();
  if (config.routes.empty()) {
    return "no [[alerts.route]] is configured: expected --config FILE with at least one "
           "(docs/alerts.md)\n";
  }
  for (const AlertRoute& route : config.routes) {
    const SendResult result = MakeSink(route, clock)->Send(MakeTest(route.name, clock()));
    const bool ok = result.kind == SendResult::Kind::kDelivered;
    *delivered = *delivered && ok;
    absl::StrAppend(&out, ok ? "ok      " : "failed  ", route.name, " (", SinkWord(route.sink()),
                    ")", ok ? "" : ": " + result.detail, "\n");
  }
  return out;
}

}  // namespace plumbline::server
