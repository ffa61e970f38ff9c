// plumb mcp: a Model Context Protocol server on standard input and output.
#pragma once

#include <string>

namespace plumbline::audit {

struct McpOptions {
  std::string server;  // HOST:PORT of a plumbd; empty: none, and its tools say so
};

// Serves until standard input ends. 0; 2 when standard output cannot be written.
int RunMcp(const McpOptions& options);

}  // namespace plumbline::audit
