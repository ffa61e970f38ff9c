#include "audit/live/spool.h"

#include <CLI/App.hpp>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "audit/live/awaited_server.h"
#include "audit/live/client.h"
#include "audit/live/stop_signal.h"
#include "audit/render/text_util.h"
#include "command_line/usage.h"
#include "transport/stream_sender.h"

namespace plumbline::audit {
namespace {

constexpr int kLeft = 1;
constexpr int kNotSent = 2;

int Failed(const std::string& what) {
  std::fprintf(stderr, "plumb: %s\n", Printable(what).c_str());
  return kNotSent;
}

bool Readable(const std::string& dir) {
  std::error_code error;
  return std::filesystem::is_directory(dir, error) && !error;
}

std::string Whose(const v1::Source& source) {
  return absl::StrCat("run ", Printable(source.run()), ", ",
                      source.role() == v1::ROLE_ROLLOUT ? "rollout" : "trainer", " rank ",
                      source.rank(), ", attempt ", source.attempt(), ", host ",
                      Printable(source.host()), ", pid ", source.pid());
}

// Returns the folder of the spools: in the folder of a record they are in a subfolder.
std::string SpoolsOf(const std::string& dir) {
  const std::string below = dir + "/spool";
  return transport::FindSpools(dir).empty() && Readable(below) ? below : dir;
}

// If no server answers, prints for which server the command waits. Runs a thread during its
// lifetime.
class Awaited {
 public:
  Awaited(const std::string& server, const std::string& spools) {
    if (transport::FindSpools(spools).empty()) return;
    thread_ = std::thread([this, server] {
      Client client(server);
      ReportThatWeWait("spool send", client, server, [this] { return over_.load(); });
    });
  }
  ~Awaited() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

int RunSpoolList(const SpoolCommandOptions& options) {
  if (!Readable(options.dir)) return Failed(options.dir + ": expected a directory of spools");
  for (const transport::FoundSpool& found : transport::FindSpools(SpoolsOf(options.dir))) {
    auto spool = transport::Spool::Adopt(found.path, {});
    if (!spool.ok()) {
      std::printf("%s\n", Printable(std::string(spool.status().message())).c_str());
      continue;
    }
    const transport::Spool& s = **spool;
    if (!options.run.empty() && s.source().run() != options.run) continue;
    std::printf("%s: %llu batches, %llu bytes%s; %s\n", Printable(s.path()).c_str(),
                static_cast<unsigned long long>(s.last_sequence() + 1 - s.first_sequence()),
                static_cast<unsigned long long>(s.bytes()),
                s.damaged_end() ? ", damaged at the end" : "", Whose(s.source()).c_str());
  }
  return 0;
}

int RunSpoolSend(const SpoolCommandOptions& options) {
  if (!Readable(options.dir)) return Failed(options.dir + ": expected a directory of spools");
  const EndingSignalsBlocked blocked;
  std::atomic<bool> stopped{false};
  const StopSignal stop(options.timeout_seconds, [&] { stopped = true; });
  transport::DeadSpools dead_spools;
  dead_spools.dir = SpoolsOf(options.dir);
  dead_spools.run = options.run;
  dead_spools.config.target = options.server;
  dead_spools.config.tool_version = "plumb";
  dead_spools.config.credentials = transport::CredentialsFromEnvironment();
  dead_spools.stopping = [&] { return stopped.load(); };
  dead_spools.report = [](const transport::Spool& spool, const absl::Status& delivered,
                          uint64_t n) {
    const std::string path = Printable(spool.path());
    if (delivered.ok()) {
      std::printf("%s: %llu batches delivered; %s\n", path.c_str(),
                  static_cast<unsigned long long>(n), Whose(spool.source()).c_str());
    } else {
      std::fprintf(stderr, "plumb: %s: %s\n", path.c_str(),
                   Printable(std::string(delivered.message())).c_str());
    }
    std::fflush(stdout);
  };
  const Awaited awaited(options.server, dead_spools.dir);
  return transport::DeliverDeadSpools(dead_spools) == 0 ? 0 : kLeft;
}

void RegisterSpool(CLI::App& app, int* status) {
  auto o = std::make_shared<SpoolCommandOptions>();
  CLI::App* spool =
      app.add_subcommand("spool", "Manages evidence that agents stored on disk for a server");
  spool->require_subcommand(1);
  CLI::App* list = spool->add_subcommand("list", "Lists the spools in a directory");
  CLI::App* send =
      spool->add_subcommand("send", "Delivers the spools of ended processes, then deletes them");
  for (CLI::App* command : {list, send}) {
    command->add_option("DIR", o->dir, "Directory of spools (PLUMBLINE_SPOOL, or RECORD/spool)")
        ->required();
    command->add_option("--run", o->run, "Only this run");
  }
  send->add_option("--server", o->server, "Address of plumbd ($PLUMBLINE_SERVER)")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  AddCredentials(send);
  send->add_option("--timeout", o->timeout_seconds, "End after this time")
      ->type_name("SECONDS")
      ->check(AtLeastZero());
  list->callback([o, status] { *status = RunSpoolList(*o); });
  send->callback([o, status] { *status = RunSpoolSend(*o); });
}

}  // namespace plumbline::audit
