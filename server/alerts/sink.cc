#include "server/alerts/sink.h"

#include <utility>

#include "server/alerts/alertmanager_sink.h"
#include "server/alerts/command_sink.h"
#include "server/alerts/webhook_sink.h"

namespace plumbline::server {

std::unique_ptr<AlertSink> MakeSink(const AlertRoute& route, UnixClock clock) {
  switch (route.sink()) {
    case AlertRoute::Sink::kAlertmanager:
      return MakeAlertmanagerSink(route, std::move(clock));
    case AlertRoute::Sink::kWebhook:
      return MakeWebhookSink(route, std::move(clock));
    default:
      return MakeCommandSink(route);
  }
}

}  // namespace plumbline::server
