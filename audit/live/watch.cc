#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "audit/live/awaited_server.h"
#include "audit/live/caught_up.h"
#include "audit/live/client.h"
#include "audit/live/known_run.h"
#include "audit/live/live.h"
#include "audit/live/stop_signal.h"
#include "audit/live/watch_printer.h"
#include "base/mutex.h"

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

void WatchLine(const std::string& message) {
  std::fprintf(stderr, "plumb watch: %s\n", Printable(message).c_str());
}

// Prints a line each time that no event came for some seconds, so that the user sees that the watch
// is alive. Its thread ends with the object.
class QuietLines {
 public:
  explicit QuietLines(double seconds) : seconds_(seconds) {
    if (seconds > 0) thread_ = std::thread([this] { Loop(); });
  }
  ~QuietLines() {
    {
      const MutexLock lock(mutex_);
      over_ = true;
    }
    changed_.NotifyAll();
    if (thread_.joinable()) thread_.join();
  }
  // An event came. `open`: how many incidents were seen open.
  void Heard(uint64_t open) {
    const MutexLock lock(mutex_);
    open_ = open;
    last_ = std::chrono::steady_clock::now();
    connected_ = true;
  }
  void Away() {
    const MutexLock lock(mutex_);
    connected_ = false;
  }

 private:
  void Loop() {
    MutexLock lock(mutex_);
    const std::chrono::duration<double> wait(seconds_);
    while (!over_) {
      const auto before = last_;
      changed_.WaitFor(lock, wait, [this]() PLUMB_REQUIRES(mutex_) { return over_; });
      if (over_ || !connected_ || before != last_) continue;
      const auto quiet = std::chrono::steady_clock::now() - last_;
      WatchLine(absl::StrCat("connected; nothing new for ",
                             std::chrono::duration_cast<std::chrono::seconds>(quiet).count(),
                             " s; ", Plural(open_, "incident"), " open"));
    }
  }

  const double seconds_;
  Mutex mutex_;
  CondVar changed_;
  bool over_ PLUMB_GUARDED_BY(mutex_) = false;
  bool connected_ PLUMB_GUARDED_BY(mutex_) = false;
  uint64_t open_ PLUMB_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point last_ PLUMB_GUARDED_BY(mutex_) =
      std::chrono::steady_clock::now();
  std::thread thread_;
};

// Prints the runs whose steps wait for missing ranks: until these come, nothing can be found.
void ReportTheAwaitedRanks(Client& client, const std::string& only) {
  const auto runs = client.Runs(kQuerySeconds);
  if (!runs.ok()) return;
  for (const v1::RunInfo& run : runs->runs()) {
    const auto awaited = run.liveness().find("awaited");
    if (awaited == run.liveness().end() || (!only.empty() && run.run() != only)) continue;
    WatchLine("run " + run.run() + ": its steps wait for " + Plural(awaited->second, "rank") +
              " of " + std::to_string(run.world_size()) +
              " to connect, until the end of the grace period");
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
    WatchLine("expected the name of a run of a server, found the file " + options.run +
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
  QuietLines quiet(options.once || options.format == "json" ? 0 : options.status_seconds);
  bool reader_gone = false;
  absl::Status known;  // status of the run, if none of its incidents was open
  auto pause = kFirstPause;
  while (!stop.stopped()) {
    const absl::Status status = client.Watch(request, [&](const v1::IncidentEvent& event) {
      if (away) WatchLine(answered ? "the server answers again" : "the server answers");
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
          WatchLine(std::string(known.message()) + "; it may connect later");
        WatchLine("watching " + (options.run.empty() ? "every run" : "run " + options.run) +
                  " at " + options.server + "; " + Plural(open, "incident") + " open so far");
        ReportTheAwaitedRanks(client, options.run);
      }
      pause = kFirstPause;
      quiet.Heard(printer.Open());
      // If the connection breaks after this event, the next watch continues here.
      request.set_after_position(event.position());
      request.set_book(event.book());
      const std::string text = printer.Event(event);
      std::fwrite(text.data(), 1, text.size(), stdout);
      // If the reader has closed standard output (`| head`), end.
      reader_gone = std::fflush(stdout) != 0;
      return !reader_gone && !(options.once && caught_up);
    });
    const std::string rest = printer.Existing();
    std::fwrite(rest.data(), 1, rest.size(), stdout);
    std::fflush(stdout);
    if (status.ok() && options.once && !known.ok()) {
      WatchLine(std::string(known.message()));
      return kFailed;
    }
    if (status.ok()) return options.once && !settled.value_or(true) ? kFailed : 0;
    if (stop.stopped()) break;
    if (options.once || Permanent(status)) {
      WatchLine(std::string(status.message()));
      return kFailed;
    }
    if (!away) WatchLine(std::string(status.message()) + "; waiting for it");
    away = true;
    quiet.Away();
    AwaitServer(client, pause, stop);
    pause = std::min(2 * pause, kLongestPause);
  }
  if (!answered) WatchLine("no server answered at " + options.server);
  return answered ? 0 : kFailed;
}

}  // namespace plumbline::audit
