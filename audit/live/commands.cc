// Declares the options of the commands that query a server. The commands are in files of their
// names.
#include <CLI/App.hpp>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "audit/live/live.h"
#include "command_line/completion.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

void AddServer(CLI::App* command, std::string* server) {
  command->add_option("--server", *server, "Address of plumbd ($PLUMBLINE_SERVER)")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  AddCredentials(command);
}

void AddFormat(CLI::App* command, std::string* format) {
  command->add_option("--format", *format, "text, or json (one object per line)")
      ->check(OneOf({"text", "json"}))
      ->capture_default_str();
}

void AddLevel(CLI::App* command, v1::Level* level) {
  const auto set = [level](const std::string& name) {
    *level = name == "error"     ? v1::LEVEL_ERROR
             : name == "warning" ? v1::LEVEL_WARNING
                                 : v1::LEVEL_NOTE;
  };
  command
      ->add_option_function<std::string>(
          "--level", set, "Only incidents of at least this level: note, warning, error")
      ->check(OneOf({"note", "warning", "error"}).description(""))
      ->type_name("LEVEL");
}

void AddTimeout(CLI::App* command, double* seconds, const char* text) {
  command->add_option("--timeout", *seconds, text)->type_name("SECONDS")->check(AtLeastZero());
}

void RegisterWatch(CLI::App& app, int* status) {
  auto o = std::make_shared<WatchOptions>();
  CLI::App* command =
      app.add_subcommand("watch", "Prints the findings of a server live in the terminal");
  command->add_option("RUN", o->run, "Only this run");
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
  command->add_option("--run", o->run, "Only this run (same as RUN)");
  command->add_option("--rule", o->rule, "Only rules whose id matches")
      ->type_name("GLOB")
      ->check(OfferPrinted("plumb rules"));
  AddLevel(command, &o->min_level);
  AddTimeout(command, &o->timeout_seconds, "End after this time");
  command->add_flag("--once", o->once, "Print the present incidents, then end");
  command
      ->add_option("--status-every", o->status_seconds,
                   "Print a status line after this time without an event; 0: never")
      ->type_name("SECONDS")
      ->check(AtLeastZero())
      ->capture_default_str();
  command->add_flag("-v,--verbose", o->verbose, "Print each finding in full");
  command->callback([o, status] { *status = RunWatch(*o); });
}

void RegisterRunEdit(CLI::App& app, int* status) {
  auto o = std::make_shared<RunEditOptions>();
  CLI::App* command =
      app.add_subcommand("run-edit", "Tags, notes, renames, archives or deletes a run of a server");
  const auto text = [command, o](const char* name, const char* help, const char* type, auto set) {
    command
        ->add_option_function<std::string>(
            name, [o, set](const std::string& value) { set(o->edit, value); }, help)
        ->type_name(type)
        ->trigger_on_parse();
  };
  command
      ->add_option_function<std::string>(
          "RUN", [o](const std::string& run) { o->edit.set_run(run); }, "The run")
      ->required();
  text("--tag", "Add a tag; may be repeated", "TAG",
       [](v1::RunEdit& edit, const std::string& tag) { edit.add_add_tags(tag); });
  text("--untag", "Remove a tag; may be repeated", "TAG",
       [](v1::RunEdit& edit, const std::string& tag) { edit.add_remove_tags(tag); });
  text("--note", "Replace the note; an empty text removes it", "TEXT",
       [](v1::RunEdit& edit, const std::string& note) { edit.set_note(note); });
  text("--rename", "Show this name in lists; an empty text shows the run's own", "NAME",
       [](v1::RunEdit& edit, const std::string& name) { edit.set_name(name); });
  text("--who", "Your name; default: the name of the user", "NAME",
       [](v1::RunEdit& edit, const std::string& who) { edit.set_who(who); });
  const auto flag = [command, o](const char* name, const char* help, auto set) {
    command->add_flag_function(
        name, [o, set](int64_t /*count*/) { set(o->edit); }, help);
  };
  flag("--archive", "Leave the run out of lists", [](v1::RunEdit& e) { e.set_archived(true); });
  flag("--unarchive", "List the run again", [](v1::RunEdit& e) { e.set_archived(false); });
  flag("--delete",
       "Hide the run and its incidents; its data stay until the server's retention removes them",
       [](v1::RunEdit& e) { e.set_deleted(true); });
  flag("--undo", "Undo the last edit of the run", [](v1::RunEdit& e) { e.set_undo(true); });
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
  command->callback([o, status] { *status = EditRun(*o); });
}

void RegisterRuns(CLI::App& app, int* status) {
  auto o = std::make_shared<QueryOptions>();
  CLI::App* command = app.add_subcommand(
      "runs", "Lists the runs of a server: ranks, steps, lost evidence, attempts, gaps");
  auto* run = command->add_option("RUN", o->run, "Only this run");
  auto name = std::make_shared<std::string>();
  auto* retry = command->add_option(
      "--retry", *name, "Judge a run in quarantine again, from all its stored evidence");
  auto* drop = command->add_option("--drop", *name,
                                   "Never judge a run in quarantine, and refuse its evidence");
  retry->type_name("RUN")->excludes(drop)->excludes(run);
  drop->type_name("RUN")->excludes(run);
  command->add_option("--state", o->state, "Only runs in this state")
      ->check(OneOf({"running", "finished", "gone", "quarantined", "dropped"}));
  command
      ->add_option("--filter", o->filter, "Only runs with this text in their name or in owner:NAME")
      ->type_name("TEXT");
  command->add_option("--tag", o->tag, "Only runs with this tag")->type_name("TAG");
  command->add_flag("--all", o->all, "Also archived and deleted runs");
  command
      ->add_option("--sort", o->sort,
                   "Order: name, seen (newest first), step, incidents (most first)")
      ->check(OneOf({"name", "seen", "step", "incidents"}));
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
  command->callback([o, name, retry, drop, status] {
    if (retry->count() + drop->count() > 0) {
      o->run = *name;
      *status = UpdateQuarantined(*o, retry->count() > 0);
    } else {
      *status = RunRuns(*o);
    }
  });
}

// Adds the filters of the commands that list incidents.
void AddIncidentFilters(CLI::App* command, const std::shared_ptr<QueryOptions>& o) {
  command->add_option("--run", o->run, "Only this run");
  command->add_option("--rule", o->rule, "Only rules whose id matches")
      ->type_name("GLOB")
      ->check(OfferPrinted("plumb rules"));
  command
      ->add_option("--finding", o->finding,
                   "Only this finding, in full, with its incident; the first digits of the "
                   "fingerprint are enough")
      ->type_name("FINGERPRINT");
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
  AddLevel(command, &o->min_level);
}

void RegisterVerdicts(CLI::App* query, int* status) {
  auto o = std::make_shared<QueryOptions>();
  CLI::App* command = query->add_subcommand("verdicts", "Verdicts: pass, finding or inconclusive");
  command->add_option("--run", o->run, "Only this run");
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
  command->callback([o, status] { *status = QueryVerdicts(*o); });
}

void RegisterInfo(CLI::App* query, int* status) {
  auto o = std::make_shared<QueryOptions>();
  CLI::App* command = query->add_subcommand("info", "State and counters of the server");
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
  command->callback([o, status] { *status = QueryInfo(*o); });
}

void AddIncident(CLI::App* command, const std::shared_ptr<IncidentOptions>& o) {
  command
      ->add_option("FINGERPRINT", o->fingerprint,
                   "Fingerprint of the incident or of one of its findings (the first digits are "
                   "enough), or its number, as #12")
      ->required();
  AddServer(command, &o->server);
  AddFormat(command, &o->format);
}

void RegisterHistory(CLI::App* query, int* status) {
  auto o = std::make_shared<IncidentOptions>();
  CLI::App* command = query->add_subcommand("history", "History of one incident");
  AddIncident(command, o);
  command->callback([o, status] { *status = QueryHistory(*o); });
}

void RegisterIncident(CLI::App* query, int* status) {
  auto o = std::make_shared<IncidentOptions>();
  CLI::App* command =
      query->add_subcommand("incident", "Acknowledges, silences or reopens one incident");
  AddIncident(command, o);
  command->add_flag("--acknowledge", o->acknowledge, "Mark it as acknowledged");
  command
      ->add_option(
          "--silence-until", o->silence_until,
          "Silence it until a step (1200), for a time (30m, 12h, 7d) or until a date (2026-11-30)")
      ->type_name("WHEN");
  command->add_flag("--reopen", o->reopen, "Open again");
  command->add_option("--reason", o->reason, "The reason; required with the three options above")
      ->type_name("TEXT");
  command->add_option("--who", o->who, "Name of the person; by default the user's name")
      ->type_name("NAME");
  command->callback([o, status] { *status = UpdateIncident(*o); });
}

void RegisterSeries(CLI::App* query, int* status) {
  auto o = std::make_shared<SeriesOptions>();
  CLI::App* command = query->add_subcommand(
      "series", "Values of scalars; without SERIES, the list of series of a run");
  command->add_option("SERIES", o->series, "LAYER/OP, or OP if there is no layer")
      ->type_name("GLOB");
  command->add_option("--run", o->run, "Name of the run")->required();
  command->add_option("--ranks", o->ranks, "Only these ranks, separated by commas")
      ->delimiter(',')
      ->type_name("RANK")
      ->allow_extra_args(false);
  command->add_option("--role", o->role, "trainer or rollout")
      ->check(OneOf({"trainer", "rollout"}));
  command->add_option("--attempt", o->attempt, "Only this attempt, superseded or not")
      ->type_name("N");
  command->add_option("--from", o->first, "First step")->type_name("STEP");
  command->add_option("--to", o->last, "Last step")->type_name("STEP");
  command->add_option("--last", o->last_steps, "Only this number of newest steps")->type_name("N");
  command
      ->add_option(
          "--cells", o->cells,
          "At most this number of values; steps are merged until they fit (mean, minimum, maximum)")
      ->check(Between(1, 1'000'000).description(""))
      ->type_name("N");
  command->add_flag("--over-ranks", o->over_ranks, "Mean, minimum and maximum over the ranks");
  AddServer(command, &o->server);
  command->add_option("--format", o->format, "text, json (one series per line) or csv")
      ->check(OneOf({"text", "json", "csv"}))
      ->capture_default_str();
  command->callback([o, status] { *status = QuerySeries(*o); });
}

void RegisterQuery(CLI::App& app, int* status) {
  auto o = std::make_shared<QueryOptions>();
  CLI::App* query =
      app.add_subcommand("query", "Queries a server; without a subcommand: its incidents");
  query->require_subcommand(0, 1);
  AddIncidentFilters(query, o);
  query->callback([o, query, status] {
    if (query->get_subcommands().empty()) *status = QueryIncidents(*o);
  });
  auto filters = std::make_shared<QueryOptions>();
  CLI::App* incidents = query->add_subcommand("incidents", "Lists the incidents with their states");
  AddIncidentFilters(incidents, filters);
  incidents->callback([filters, status] { *status = QueryIncidents(*filters); });
  RegisterHistory(query, status);
  RegisterIncident(query, status);
  RegisterSeries(query, status);
  RegisterVerdicts(query, status);
  RegisterInfo(query, status);
}

void RegisterDoctor(CLI::App& app, int* status) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Checks the installation: library, server, hooks, one test finding end to end");
  AddServer(command, &o->server);
  AddTimeout(command, &o->timeout_seconds, "Time limit for the test finding");
  auto libraries = std::make_shared<bool>(false);
  command->add_flag("--libraries", *libraries,
                    "Print only the libraries that this package carries, with their versions");
  command->callback([o, libraries, command, status] {
    if (*libraries) {
      *status = PrintLibraries();
      return;
    }
    const char* named = std::getenv("PLUMBLINE_SERVER");
    o->server_requested = command->count("--server") > 0 || (named != nullptr && *named != '\0');
    *status = RunDoctor(*o);
  });
}

void RegisterCapsule(CLI::App& app, int* status) {
  auto o = std::make_shared<CapsuleOptions>();
  CLI::App* command = app.add_subcommand(
      "capsule", "Fetches the evidence of a finding, so that plumb audit can judge it again");
  command
      ->add_option("FINDING", o->finding,
                   "Fingerprint of the finding or of its incident; the first digits are enough")
      ->required();
  command->add_option("--output", o->output, "Output directory, empty or new")
      ->type_name("DIR")
      ->required();
  AddServer(command, &o->server);
  command->add_flag("--anew", o->anew, "Query the ranks again, even if the server has a capsule");
  command->add_flag(
      "--judged", o->judged,
      "Use the server's journal of the finding's steps instead; needs no running trainer");
  AddTimeout(command, &o->timeout_seconds, "Time limit for the ranks in seconds (60)");
  command->add_flag("--quiet", o->quiet, "Print no progress on standard error");
  command->callback([o, status] { *status = RunCapsule(*o); });
}

}  // namespace

// Adds the credentials (docs/security.md). They are the same for all commands, so they are set in
// the process's environment.
void AddCredentials(CLI::App* command) {
  constexpr const char* kOptions[][3] = {
      {"--token-file", "PLUMBLINE_TOKEN_FILE", "File with the client's token, mode 0600"},
      {"--tls-ca", "PLUMBLINE_TLS_CA",
       "CA certificates for the server (PEM), or system; turns TLS on"},
      {"--tls-cert", "PLUMBLINE_TLS_CERT", "Certificate of the client (PEM)"},
      {"--tls-key", "PLUMBLINE_TLS_KEY", "Key of the client's certificate (PEM), mode 0600"},
  };
  for (const auto& [option, variable, text] : kOptions) {
    command
        ->add_option_function<std::string>(
            option, [name = variable](const std::string& path) { setenv(name, path.c_str(), 1); },
            absl::StrCat(text, " ($", variable, ")"))
        ->type_name("FILE");
  }
}

void RegisterLive(CLI::App& app, int* status) {
  RegisterWatch(app, status);
  RegisterRuns(app, status);
  RegisterRunEdit(app, status);
  RegisterQuery(app, status);
  RegisterCapsule(app, status);
  RegisterDoctor(app, status);
}

}  // namespace plumbline::audit
