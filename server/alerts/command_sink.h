// Runs the operator's program, which reads the notification's JSON from standard input. No shell.
// If the program takes too long, it and all processes that it started are killed. Exit status 0:
// delivered; 75 (EX_TEMPFAIL) or a timeout: tried again; anything else: refused.
#pragma once

#include <memory>

#include "server/alerts/sink.h"

namespace plumbline::server {

std::unique_ptr<AlertSink> MakeCommandSink(const AlertRoute& route);

}  // namespace plumbline::server
