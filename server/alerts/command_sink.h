// A program of the operator's that reads the notification's JSON from standard input. No shell;
// killed with all it started when it takes too long. Exit status 0: delivered; 75 (EX_TEMPFAIL) or
// a timeout: tried again; anything else: refused.
#pragma once

#include <memory>

#include "server/alerts/sink.h"

namespace plumbline::server {

std::unique_ptr<AlertSink> MakeCommandSink(const AlertRoute& route);

}  // namespace plumbline::server
