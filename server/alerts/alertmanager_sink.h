// Alertmanager's API, version 2. It groups, routes and repeats by itself; it takes an alert for
// resolved that it is not told again, so what is open is posted again each resend_seconds with an
// end four times as far away. An incident that people acknowledged or silenced goes on being posted
// (it is not resolved) under a silence of its own that ends likewise.
#pragma once

#include <memory>

#include "server/alerts/sink.h"

namespace plumbline::server {

std::unique_ptr<AlertSink> MakeAlertmanagerSink(const AlertRoute& route, UnixClock clock);

}  // namespace plumbline::server
