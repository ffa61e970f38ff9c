// Sends a signed POST of the notification's JSON.
#pragma once

#include <memory>

#include "server/alerts/sink.h"

namespace plumbline::server {

std::unique_ptr<AlertSink> MakeWebhookSink(const AlertRoute& route, UnixClock clock);

}  // namespace plumbline::server
