// What one page is told as it happens (server-sent events).
//
//   hello     {"now"}                       at once
//   incident  a row as in /incidents        each change of one; its id resumes the stream behind it
//   runs      [{"run", "newest_step", ...}] runs that went on, at most four times a second
//   beat      {"now", "lag_ms", "replay"}   each second
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "server/access/gate.h"
#include "server/http/event_source.h"
#include "server/web/views.h"

namespace plumbline::server {

// Pulls: what a page has not taken is not made, so a slow one costs nothing. `last_event`: the id
// of the last event that the page has seen; empty: none, what exists is not told.
std::shared_ptr<EventSource> MakeWebEvents(const WebSources* sources, std::shared_ptr<Lease> lease,
                                           const std::string& last_event);

}  // namespace plumbline::server
