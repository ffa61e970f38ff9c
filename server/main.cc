// plumbd: the analysis server.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/open_files.h"
#include "command_line/completion.h"
#include "command_line/ends.h"
#include "command_line/usage.h"
#include "server/access/token_file.h"
#include "server/alerts/test_alerts.h"
#include "server/assembly/server.h"
#include "server/backup/backup.h"
#include "server/process/free_port.h"
#include "server/process/grpc_log.h"
#include "server/process/log.h"
#include "server/process/service_manager.h"
#include "server/relay/relay.h"
#include "server/settings/log_levels.h"

namespace {

using plumbline::server::Config;
using plumbline::server::ConfigMistakes;
using plumbline::server::LogInfo;

constexpr int kUsage = 2;

struct CommandLine {
  std::string config_file;
  std::string port_file;
  std::string new_token;
  std::string completion;
  bool check_config = false;
  bool test_alerts = false;
  std::string backup, restore;  // folder of the backup; empty: not requested
};

void AddOptions(CLI::App* app, Config* config, CommandLine* line) {
  // Read first, so that the command line has precedence over the file.
  app->add_option("--config", line->config_file, "configuration (TOML); unknown keys are errors")
      ->type_name("FILE");
  app->add_flag("--check-config", line->check_config,
                "check the configuration, print all errors, and end");
  app->add_flag("--test-alerts", line->test_alerts,
                "send a test notification through every alerts.route, print the results, and end");
  app->add_option("--grpc", config->grpc,
                  "address for agents and queries; port 0 selects a free port")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app->add_option("--http", config->http, "address for browsers and probes, or off")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app->add_option("--relay", config->relay_upstream,
                  "run as a relay: judge nothing, and forward the agents of this host to that "
                  "server over one stream")
      ->type_name("HOST:PORT");
  app->add_option("--data", config->data_directory, "directory for the data of the server")
      ->type_name("DIR");
  app->add_option("--rules", config->rules, "run only rules that match (may be repeated)")
      ->type_name("GLOB")
      ->check(plumbline::OfferPrinted("plumb rules"));
  app->add_option("--set", config->settings, "set an option of a rule (may be repeated)")
      ->type_name("RULE.OPTION=VALUE");
  app->add_option("--window", config->window_steps,
                  "steps close without a rank that is this many steps later than the others")
      ->type_name("STEPS")
      ->capture_default_str();
  app->add_option("--grace", config->grace_seconds,
                  "grace period: a broken stream may reconnect within this time before its ranks "
                  "count as gone")
      ->type_name("SECONDS")
      ->capture_default_str();
  app->add_flag("--insecure", config->insecure,
                "listen on addresses other than loopback without encryption");
  app->add_option(
         "--new-token", line->new_token,
         "create a token, write it to a new FILE, print the line for a token file, and end")
      ->type_name("FILE");
  app->add_flag("--reflection", config->reflection, "serve gRPC reflection");
  app->add_option("--log-level", config->log_level, "trace, debug, info, warning, error or off")
      ->type_name("LEVEL")
      ->check(plumbline::Offer(plumbline::server::LogLevels()))
      ->capture_default_str();
  app->add_option("--port-file", line->port_file, "write the gRPC address to this file when ready")
      ->type_name("FILE");
  app->add_option("--completion", line->completion)  // docs/operating.md
      ->check(plumbline::OneOf(plumbline::CompletionShells()))
      ->group("");
}

// Options may come before and after a subcommand.
void AddSubcommands(CLI::App* app, CommandLine* line) {
  const auto add = [&](const char* name, const char* does, std::string* directory) {
    CLI::App* command = app->add_subcommand(name, does)->fallthrough();
    command->add_option("DIR", *directory, "folder of the backup")
        ->required()
        ->check([](const std::string& path) {
          return path.empty() ? "expected a folder, found an empty name" : std::string();
        });
    command->footer("--data DIR, or --config FILE with data.directory, names the data directory.");
  };
  add("backup",
      "copy the data directory of a running or stopped server into DIR, and check the copy",
      &line->backup);
  add("restore", "check the backup in DIR, then copy it into an empty data directory",
      &line->restore);
  app->require_subcommand(0, 1);
}

// Records the key of the file that each option sets.
void NoteOptions(const CLI::App& app, ConfigMistakes* mistakes) {
  constexpr const char* kKeys[][2] = {
      {"--grpc", "listen.grpc"},          {"--http", "listen.http"},
      {"--relay", "relay.upstream"},      {"--data", "data.directory"},
      {"--rules", "rules.run"},           {"--set", "rules.set"},
      {"--window", "rules.window_steps"}, {"--grace", "ingest.grace_seconds"},
      {"--insecure", "listen.insecure"},  {"--reflection", "listen.reflection"},
      {"--log-level", "log.level"},
  };
  for (const auto& [option, key] : kKeys) {
    if (app.count(option) > 0) mistakes->GivenBy(key, option);
  }
}

// Reads the command line, then the file, then the command line over it. Returns an exit status; -1
// to continue.
int Configure(int argc, char** argv, Config* config, CommandLine* line, ConfigMistakes* mistakes) {
  for (const bool with_file : {false, true}) {
    CLI::App app{"The Plumbline server: receives the evidence of running trainers and judges it.",
                 "plumbd"};
    app.get_formatter()->column_width(plumbline::kHelpColumn);
    app.set_version_flag("--version", absl::StrCat("plumbd ", plumbline::server::Version()));
    if (with_file) {
      *config = Config();
      const std::string file = line->config_file;
      *line = CommandLine();
      if (!file.empty()) {
        if (auto s = plumbline::server::LoadConfigFile(file, config, mistakes); !s.ok()) {
          std::fprintf(stderr, "plumbd: %s\n", std::string(s.message()).c_str());
          return kUsage;
        }
      }
    }
    AddOptions(&app, config, line);
    AddSubcommands(&app, line);
    plumbline::SetHelpEnd(&app,
                          {{{0,
                             "ended by SIGTERM or SIGINT; for backup, restore, --check-config, "
                             "--new-token, --test-alerts: success"},
                            {1, "the server could not start, or the requested action failed"},
                            {2, "bad usage or configuration, or a port is in use"}},
                           {"plumbd --data /var/lib/plumbd",
                            "plumbd --config /etc/plumbline/plumbd.toml --check-config",
                            "plumbd --relay collector:7433 --grpc unix:/run/plumb.sock",
                            "plumbd backup /var/backups/plumbd --data /var/lib/plumbd",
                            "plumbd restore /var/backups/plumbd --data /var/lib/plumbd"},
                           "Guide: docs/operating.md, in share/doc/plumbline, next to bin/."});
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return app.exit(e);  // --help and --version
      std::fprintf(stderr, "plumbd: %s\n", plumbline::UsageError(app, e).c_str());
      return kUsage;
    }
    if (!line->completion.empty()) {
      const std::string script = plumbline::CompletionScript(&app, line->completion);
      return std::fputs(script.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
    }
    if (!with_file && !line->config_file.empty()) continue;
    NoteOptions(app, mistakes);
    break;
  }
  return -1;
}

// Writes the address atomically, so that a reader never gets half of it. It is not secret: `mask`
// is the umask with which plumbd was started. If the file cannot be written, returns false with
// errno set.
bool WritePortFile(const std::string& path, const std::string& address, mode_t mask) {
  const std::string temporary = path + ".tmp";
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << address << "\n";
    if (!file.flush()) return false;
  }
  if (chmod(temporary.c_str(), 0666 & ~mask) != 0) return false;
  return std::rename(temporary.c_str(), path.c_str()) == 0;
}

// Raises the limit of open files, because each stream is a connection.
void PrepareForStreams(uint64_t max_streams) {
  constexpr uint64_t kOwn = 1024;  // segments, store, listeners, watchers, browsers
  const uint64_t wanted = max_streams + kOwn;
  const uint64_t files = plumbline::RaiseOpenFiles(wanted);
  if (files == 0 || files >= wanted) return;
  LogInfo(
      "the limit of open files is {}, enough for about {} streams, not for ingest.max_streams = "
      "{}: raise the hard limit to {} (LimitNOFILE= of the unit, ulimit -Hn, --ulimit nofile=), or "
      "set max_streams = {}",
      files, files > kOwn ? files - kOwn : 0, max_streams, wanted, files > kOwn ? files - kOwn : 1);
}

// Waits for SIGTERM or SIGINT, and returns it. For a relay it also notifies the watchdog, because a
// relay has no thread that could block. Reports from time to time which log lines were left out:
// after a flood no other line may come.
int WaitForTheEnd(const sigset_t& signals, plumbline::server::Server* server,
                  const plumbline::server::ServiceManager& manager, bool relay) {
  constexpr std::chrono::microseconds kReport = std::chrono::seconds(1);
  const bool ping = relay && manager.watchdog().count() > 0;
  const std::chrono::microseconds period = ping ? std::min(kReport, manager.watchdog()) : kReport;
  const timespec wait{period.count() / 1'000'000, period.count() % 1'000'000 * 1000};
  for (;;) {
    siginfo_t info{};
    const int signal = sigtimedwait(&signals, &info, &wait);
    if (signal == SIGHUP) server->Reload();
    if (signal > 0 && signal != SIGHUP) return signal;
    if (signal > 0 || errno != EAGAIN) continue;
    plumbline::server::internal::ReportWhatWasLeftOut(false);
    if (ping) manager.GetsOn();
  }
}

plumbline::server::Server::Watch WatchOf(const plumbline::server::ServiceManager& manager) {
  plumbline::server::Server::Watch watch;
  watch.period = manager.watchdog();
  watch.gets_on = [manager] { manager.GetsOn(); };
  watch.serving = [manager](const absl::Status& serving) {
    manager.Status(serving.ok() ? "serving"
                                : absl::StrCat("not serving: ", std::string(serving.message())));
  };
  return watch;
}

// Starts the server. If the disk is full, waits as a running server does. This happens only if the
// server could not open its files. Returns another error, or Cancelled after SIGTERM or SIGINT.
absl::StatusOr<std::unique_ptr<plumbline::server::Server>> StartWhenThereIsRoom(
    const sigset_t& signals, const Config& config,
    const plumbline::server::ServiceManager& manager) {
  constexpr timespec kRetry{1, 0};
  for (bool stated = false;;) {
    auto server = plumbline::server::Server::Start(config, WatchOf(manager));
    if (server.status().code() != absl::StatusCode::kResourceExhausted) return server;
    const std::string why(server.status().message());
    if (!std::exchange(stated, true))
      plumbline::server::LogError("{}; the server starts and listens when there is enough space",
                                  why);
    manager.Status(absl::StrCat("not serving: ", why));
    manager.StillStarting();
    if (const int signal = sigtimedwait(&signals, nullptr, &kRetry);
        signal == SIGTERM || signal == SIGINT) {
      return absl::CancelledError(absl::StrCat("signal ", signal, ": stopping"));
    }
  }
}

absl::Status PortsAreFree(const Config& config, bool relay) {
  if (auto s = plumbline::server::CheckPortIsFree(config.grpc, "--grpc"); !s.ok()) return s;
  if (relay || config.http == "off") return absl::OkStatus();
  return plumbline::server::CheckPortIsFree(config.http, "--http");
}

int NewToken(const std::string& path) {
  const auto line = plumbline::server::MakeToken(path);
  if (!line.ok()) {
    std::fprintf(stderr, "plumbd: --new-token: %s\n", std::string(line.status().message()).c_str());
    return 1;
  }
  std::printf("%s\n", line->c_str());
  return 0;
}

int CopyData(const CommandLine& line, const std::string& data) {
  const bool take = !line.backup.empty();
  const char* const name = take ? "backup" : "restore";
  if (data.empty()) {
    std::fprintf(stderr, "plumbd %s: expected --data DIR, or data.directory in --config FILE\n",
                 name);
    return kUsage;
  }
  const auto done =
      take ? plumbline::server::TakeBackup(data, line.backup, plumbline::server::Version())
           : plumbline::server::RestoreBackup(line.restore, data);
  if (!done.ok()) {
    std::fprintf(stderr, "plumbd %s: %s\n", name, std::string(done.status().message()).c_str());
    return 1;
  }
  std::printf("plumbd %s: %s\n", name, done->c_str());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int Fail(const absl::Status& status) {
  std::istringstream lines{std::string(status.message())};
  for (std::string line; std::getline(lines, line);)
    std::fprintf(stderr, "plumbd: %s\n", line.c_str());
  return status.code() == absl::StatusCode::kInvalidArgument ? kUsage : 1;
}

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): out of memory ends it
  // Debian's Abseil enables it; it costs 40 % of the CPU at ten thousand streams.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);

  Config config;
  CommandLine line;
  ConfigMistakes mistakes;
  if (const int status = Configure(argc, argv, &config, &line, &mistakes); status >= 0)
    return status;
  if (!line.new_token.empty()) return NewToken(line.new_token);
  // Before the first line is logged.
  spdlog::set_default_logger(spdlog::stderr_logger_mt("plumbd"));
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  if (!line.backup.empty() || !line.restore.empty()) {
    if (auto s = mistakes.ToStatus(); !s.ok()) return Fail(s);
    std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is an error like a full disk
    umask(077);
    return CopyData(line, config.data_directory);
  }
  plumbline::server::ValidateConfig(config, &mistakes);
  plumbline::server::CheckConfigFiles(config, &mistakes);
  if (auto s = mistakes.ToStatus(); !s.ok()) return Fail(s);
  if (line.check_config) {
    std::puts("configuration is valid");
    return 0;
  }

  std::signal(SIGPIPE, SIG_IGN);
  // A limit on the size of files (ulimit -f, LimitFSIZE=) must act like a full disk, and not kill
  // the process.
  std::signal(SIGXFSZ, SIG_IGN);
  if (line.test_alerts) {
    bool delivered = false;
    std::fputs(plumbline::server::TestAlerts(config.alerts, &delivered).c_str(), stdout);
    return delivered ? 0 : 1;
  }

  const bool relay = !config.relay_upstream.empty();
  if (auto s = PortsAreFree(config, relay); !s.ok()) return Fail(s);

  // Everything written from here on, also sockets, is only for the owner.
  const mode_t mask = umask(077);
  plumbline::server::TakeOverGrpcLog();
  PrepareForStreams(static_cast<uint64_t>(config.max_streams));

  // Before any thread starts, so that all of them inherit it and only sigwait gets the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const auto manager = plumbline::server::ServiceManager::FromEnvironment();
  auto server = relay ? plumbline::server::StartRelay(config)
                      : StartWhenThereIsRoom(signals, config, manager);
  if (absl::IsCancelled(server.status())) {
    LogInfo("{}", std::string(server.status().message()));
    return 0;
  }
  if (!server.ok()) return Fail(server.status());
  const std::string address = (*server)->grpc_address();
  if (!line.port_file.empty() && !WritePortFile(line.port_file, address, mask)) {
    return Fail(absl::UnavailableError(absl::StrCat(
        "--port-file ", line.port_file, ": cannot be written: ", std::strerror(errno))));
  }
  std::printf("plumbd %s listening on %s\n", plumbline::server::Version().c_str(), address.c_str());
  std::fflush(stdout);
  if (const std::string http = (*server)->http_address(); !http.empty()) {
    LogInfo("http on {}", http);
  }

  manager.Ready();
  const int received = WaitForTheEnd(signals, server->get(), manager, relay);
  manager.Stopping();
  LogInfo("signal {}: stopping", received);
  (*server)->Stop();
  plumbline::server::internal::ReportWhatWasLeftOut(true);
  return 0;
}
