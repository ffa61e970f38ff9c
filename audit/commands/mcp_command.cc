// plumb mcp.
#include <cstdlib>
#include <memory>

#include "audit/commands/commands.h"
#include "audit/live/live.h"
#include "audit/mcp/mcp.h"

namespace plumbline::audit {

void RegisterMcp(CLI::App& app, int* status) {
  auto options = std::make_shared<McpOptions>();
  if (const char* server = std::getenv("PLUMBLINE_SERVER")) options->server = server;
  CLI::App* command = app.add_subcommand(
      "mcp", "A Model Context Protocol server on standard input and output, for an editor");
  command
      ->add_option(
          "--server", options->server,
          "Address of plumbd ($PLUMBLINE_SERVER); without one only rules' pages and audits "
          "of paths are there")
      ->type_name("HOST:PORT");
  AddCredentials(command);
  command->callback([options, status] { *status = RunMcp(*options); });
}

}  // namespace plumbline::audit
