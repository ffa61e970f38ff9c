// plumb mcp: a Model Context Protocol server on standard input and output.
#pragma once

#include <string>

namespace plumbline::audit {

struct McpOptions {
  std::string server;  // HOST:PORT of a plumbd; if empty, the server tools report that there is
                       // none
};

// Serves until standard input ends. Returns 0, or 2 if standard output cannot be written.
int RunMcp(const McpOptions& options);

}  // namespace plumbline::audit
