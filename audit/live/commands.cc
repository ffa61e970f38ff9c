#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "audit/live/live.h"

namespace plumbline::audit {
namespace {

void AddServer(CLI::App* command, std::string* server) {
  command->add_option("--server", *server, "address of plumbd ($PLUMBLINE_SERVER)")
      ->type_name("HOST:PORT")
      ->capture_default_str();
}

void AddFormat(CLI::App* command, std::string* format) {
  command->add_option("--format", *format, "text or json (one object a line)")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

void AddLevel(CLI::App* command, v1::Level* level) {
  const std::map<std::string, v1::Level> levels = {
      {"note", v1::LEVEL_NOTE}, {"warning", v1::LEVEL_WARNING}, {"error", v1::LEVEL_ERROR}};
  command
      ->add_option("--level", *level,
                   "only incidents of this level and above: note, warning, error")
      ->transform(CLI::CheckedTransformer(levels).description(""))
      ->type_name("LEVEL");
}

void AddTimeout(CLI::App* command, double* seconds, const char* text) {
  command->add_option("--timeout", *seconds, text)
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber.description(""));
}

void RegisterWatch(CLI::App& app, int* status) {
  auto o = std::make_shared<WatchOptions>();
  CLI::App* command = app.add_subcommand("watch", "live findings of a server in the terminal");
  command->add_option("RUN", o->run, "only this run");
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
  AddLevel(command, &o->min_level);
  AddTimeout(command, &o->timeout_seconds, "end after this long");
  command->add_flag("--once", o->once, "print what exists, then end");
  command->callback([o, status] { *status = RunWatch(*o); });
}

void RegisterRuns(CLI::App& app, int* status) {
  auto o = std::make_shared<QueryOptions>();
  CLI::App* command = app.add_subcommand("runs", "the runs a server knows");
  command->add_option("RUN", o->run, "only this run");
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
  command->callback([o, status] { *status = RunRuns(*o); });
}

void RegisterQuery(CLI::App& app, int* status) {
  auto o = std::make_shared<QueryOptions>();
  CLI::App* command = app.add_subcommand("query", "what a server holds");
  command->add_option("WHAT", o->what, "incidents, verdicts or info")
      ->check(CLI::IsMember({"incidents", "verdicts", "info"}))
      ->capture_default_str();
  command->add_option("--run", o->run, "only this run");
  command->add_option("--rule", o->rule, "only rules that match, of incidents")->type_name("GLOB");
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
  AddLevel(command, &o->min_level);
  command->callback([o, status] { *status = RunQuery(*o); });
}

void RegisterDoctor(CLI::App& app, int* status) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "is all here: library, server, hooks, one test finding end to end");
  AddServer(command, &o->server);
  AddTimeout(command, &o->timeout_seconds, "how long the test finding may take");
  command->callback([o, status] { *status = RunDoctor(*o); });
}

}  // namespace

void RegisterLive(CLI::App& app, int* status) {
  RegisterWatch(app, status);
  RegisterRuns(app, status);
  RegisterQuery(app, status);
  RegisterDoctor(app, status);
}

}  // namespace plumbline::audit
