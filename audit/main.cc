// plumb: the offline audit, the catalogue, and the client of a running server.
#include <google/protobuf/stubs/logging.h>

#include <csignal>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "audit/commands/commands.h"
#include "audit/live/live.h"
#include "audit/live/spool.h"
#include "base/open_files.h"
#include "base/version/build_version.h"
#include "command_line/usage.h"

namespace {

int Main(int argc, char** argv, const std::vector<std::string>& trainer) {
  using namespace plumbline::audit;
  CLI::App app("Plumbline finds faults of training runs that do not crash them.", "plumb");
  app.set_version_flag("--version", std::string("plumb ") + plumbline::BuildVersion());
  app.get_formatter()->column_width(plumbline::kHelpColumn);
  app.require_subcommand(0, 1);  // a missing command is reported below, after unknown words
  int status = kExitClean;
  RegisterAudit(app, &status);
  RegisterRules(app, &status);
  RegisterExplain(app, &status);
  RegisterFingerprint(app, &status);
  RegisterLearn(app, &status);
  RegisterLedger(app, &status);
  RegisterDiff(app, &status);
  RegisterCertify(app, &status);
  RegisterPlan(app, &status);
  RegisterRun(app, trainer, &status);
  RegisterLive(app, &status);
  RegisterSpool(app, &status);
  RegisterMcp(app, &status);
  RegisterCompletion(app, &status);
  AddHelpEnds(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error)  // --help and --version
                                      : Fail(plumbline::UsageError(app, error));
  }
  if (app.get_subcommands().empty()) return Fail("expected a subcommand; see plumb --help");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const bool runs = argc > 1 && std::string_view(argv[1]) == "run";
  const std::vector<std::string> trainer = plumbline::audit::TakeTrainer(&argc, argv);
  google::protobuf::SetLogHandler(nullptr);  // messages that do not parse are reported by the
                                             // reader
  if (!runs) {                               // a trainer inherits neither of these
    std::signal(SIGPIPE, SIG_IGN);           // a closed pipe is a failed write (output.cc)
    plumbline::RaiseOpenFiles();             // thousands of ranks' records are open at once
  }
  try {
    return Main(argc, argv, trainer);
  } catch (const std::bad_alloc&) {
    return plumbline::audit::Fail("not enough memory for the input");
  } catch (const std::exception& error) {
    return plumbline::audit::Fail(error.what());
  }
}
