// A client for plumbd's HTTP side, over a plain socket.
#pragma once

#include <string>

#include "tests/server/support.h"

namespace plumbline::test {

// Connects to 127.0.0.1 at the port of "HOST:PORT"; returns -1 if refused. The caller closes the
// socket.
int Dial(const std::string& address);

// Returns the address of the HTTP side, from the log.
std::string HttpAddress(Plumbd& server);
// Returns the answer to one GET, with headers; empty if there is none.
std::string HttpAnswer(const std::string& address, const std::string& path,
                       const std::string& headers = "", const std::string& host = "x");

}  // namespace plumbline::test
