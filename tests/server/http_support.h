// plumbd's HTTP side from outside, over a plain socket.
#pragma once

#include <string>

#include "tests/server/support.h"

namespace plumbline::test {

// A connection to 127.0.0.1 at the port of "HOST:PORT"; -1: refused. The caller closes it.
int Dial(const std::string& address);

// Where the HTTP side listens, as the log says.
std::string HttpAddress(Plumbd& server);
// What it answers to one GET, headers included; empty when nothing did.
std::string HttpAnswer(const std::string& address, const std::string& path,
                       const std::string& headers = "", const std::string& host = "x");

}  // namespace plumbline::test
