// Sends to Alertmanager's API, version 2, which groups, routes and repeats alerts itself. It
// resolves an alert that is not sent again, so open alerts are posted every resend_seconds, with an
// end after four times that period. An incident that a person acknowledged or silenced is still
// posted (it is not resolved), with a separate silence that ends in the same way.
#pragma once

#include <memory>

#include "server/alerts/sink.h"

namespace plumbline::server {

std::unique_ptr<AlertSink> MakeAlertmanagerSink(const AlertRoute& route, UnixClock clock);

}  // namespace plumbline::server
