#include "audit/mcp/mcp.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "audit/mcp/line_reader.h"
#include "audit/mcp/session.h"
#include "base/printable.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostLineBytes = 4u << 20;

bool WriteLine(std::string line) {
  line += '\n';
  for (std::string_view left = line; !left.empty();) {
    const ssize_t written = write(STDOUT_FILENO, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    left.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

int RunMcp(const McpOptions& options) {
  std::fprintf(stderr, "plumb mcp: reading messages from standard input; %s\n",
               options.server.empty() ? "no server is used (--server)"
                                      : ("asking " + Printable(options.server)).c_str());
  bool written = true;
  mcp::Session session(options.server, [&written](const mcp::Json& message) {
    written = written && WriteLine(mcp::LineOf(message));
  });
  McpLineReader reader(STDIN_FILENO, kMostLineBytes);
  std::string line;
  while (written) {
    const McpLineReader::Got got = reader.Next(&line);
    if (got == McpLineReader::Got::kEnd) return 0;
    got == McpLineReader::Got::kTooLong ? session.TakeTooLong(kMostLineBytes) : session.Take(line);
  }
  std::fprintf(stderr, "plumb mcp: standard output cannot be written\n");
  return 2;
}

}  // namespace plumbline::audit
