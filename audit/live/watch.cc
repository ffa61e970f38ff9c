#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "audit/live/awaited_server.h"
#include "audit/live/caught_up.h"
#include "audit/live/client.h"
#include "audit/live/known_run.h"
#include "audit/live/live.h"
#include "audit/live/stop_signal.h"
#include "audit/live/watch_printer.h"

namespace plumbline::audit {
namespace {

constexpr int kFailed = 2;
constexpr double kQuerySeconds = 5;
constexpr double kCatchUpSeconds = 10;
constexpr double kLookSeconds = 0.1;
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{2000};

// Waits at least `least`, then until the server answers. Waits in slices, so that Ctrl-C is handled
// at once. The minimum covers a server that answers but refuses.
void AwaitServer(Client& client, std::chrono::milliseconds least, const StopSignal& stop) {
  const auto end = std::chrono::steady_clock::now() + least;
  while (!stop.stopped() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  while (!stop.stopped() && !client.AwaitServer(kLookSeconds)) {
  }
}

void Report(const std::string& message) {
  std::fprintf(stderr, "plumb watch: %s\n", Printable(message).c_str());
}

// Prints the runs whose steps wait for missing ranks: until these come, nothing can be found.
void ReportTheAwaitedRanks(Client& client, const std::string& only) {
  const auto runs = client.Runs(kQuerySeconds);
  if (!runs.ok()) return;
  for (const v1::RunInfo& run : runs->runs()) {
    const auto awaited = run.liveness().find("awaited");
    if (awaited == run.liveness().end() || (!only.empty() && run.run() != only)) continue;
    Report("run " + run.run() + ": its steps wait for " + Plural(awaited->second, "rank") + " of " +
           std::to_string(run.world_size()) + " to connect, until the end of the grace period");
  }
}

}  // namespace

std::string DefaultServer() {
  const char* server = std::getenv("PLUMBLINE_SERVER");
  return server != nullptr && *server != '\0' ? server : "127.0.0.1:7433";
}

int RunWatch(const WatchOptions& options) {
  // The user named a file instead of a run.
  if (std::error_code none; !options.run.empty() && std::filesystem::exists(options.run, none)) {
    Report("expected the name of a run of a server, found the file " + options.run +
           ": plumb audit --follow " + options.run + " reads it while it grows");
    return kFailed;
  }
  const EndingSignalsBlocked blocked;
  Client client(options.server);
  StopSignal stop(options.timeout_seconds, [&client] { client.Cancel(); });
  bool away = !options.once &&
              ReportThatWeWait("watch", client, options.server, [&] { return stop.stopped(); });
  // If this fails, the request below fails too, and its error is reported there.
  const auto settled =
      AwaitCaughtUp(client, options.server, kCatchUpSeconds, [&stop] { return stop.stopped(); });

  v1::WatchIncidentsRequest request;
  request.set_run(options.run);
  request.set_min_level(options.min_level);
  request.set_rule(options.rule);
  TextStyle style = StyleFor(STDOUT_FILENO);
  style.verbose = options.verbose;
  WatchPrinter printer(
      options.format == "json" ? WatchPrinter::Format::kJson : WatchPrinter::Format::kText, style);
  bool answered = false;
  bool greeted = false;
  uint64_t open = 0;
  bool reader_gone = false;
  absl::Status known;  // status of the run, if none of its incidents was open
  auto pause = kFirstPause;
  while (!stop.stopped()) {
    const absl::Status status = client.Watch(request, [&](const v1::IncidentEvent& event) {
      if (away) Report(answered ? "the server answers again" : "the server answers");
      answered = true;
      away = false;
      const bool caught_up = event.kind() == v1::IncidentEvent::KIND_CAUGHT_UP;
      if (event.kind() == v1::IncidentEvent::KIND_EXISTING) ++open;
      if (caught_up && !greeted && open == 0) {
        known = QueryIfRunKnown(client, options.run, options.server, kQuerySeconds);
        if (options.once && !known.ok()) return false;
      }
      // Print a line even if nothing is found, so that silence does not look like a failed
      // connection.
      if (caught_up && !options.once && !greeted) {
        greeted = true;
        if (absl::IsNotFound(known))
          Report(std::string(known.message()) + "; it may connect later");
        Report("watching " + (options.run.empty() ? "every run" : "run " + options.run) + " at " +
               options.server + "; " + Plural(open, "incident") + " open so far");
        ReportTheAwaitedRanks(client, options.run);
      }
      pause = kFirstPause;
      // If the connection breaks after this event, the next watch continues here.
      request.set_after_position(event.position());
      request.set_book(event.book());
      const std::string text = printer.Event(event);
      std::fwrite(text.data(), 1, text.size(), stdout);
      // If the reader of standard output has closed it (`| head`), end.
      reader_gone = std::fflush(stdout) != 0;
      return !reader_gone && !(options.once && caught_up);
    });
    if (status.ok() && options.once && !known.ok()) {
      Report(std::string(known.message()));
      return kFailed;
    }
    if (status.ok()) return options.once && !settled.value_or(true) ? kFailed : 0;
    if (stop.stopped()) break;
    if (options.once || Permanent(status)) {
      Report(std::string(status.message()));
      return kFailed;
    }
    if (!away) Report(std::string(status.message()) + "; waiting for it");
    away = true;
    AwaitServer(client, pause, stop);
    pause = std::min(2 * pause, kLongestPause);
  }
  if (!answered) Report("no server answered at " + options.server);
  return answered ? 0 : kFailed;
}

}  // namespace plumbline::audit
