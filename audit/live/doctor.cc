#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "audit/live/caught_up.h"
#include "audit/live/child.h"
#include "audit/live/client.h"
#include "audit/live/doctor_batch.h"
#include "audit/live/live.h"
#include "audit/render/finding_text.h"
#include "base/mutex.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

constexpr double kLoadSeconds = 20;
constexpr double kTorchSeconds = 60;

// Prints "ok", "optional" (absent, and not needed; the text states what it would enable) or
// "failed" (needed; the exit status is 1).
class Report {
 public:
  void Ok(const char* what, const std::string& text) { Line(Ink::kGreen, "ok", what, text); }
  void Optional(const char* what, const std::string& text) {
    Line(Ink::kYellow, "optional", what, text);
  }
  void Failed(const char* what, const std::string& text) {
    failed_ = true;
    Line(Ink::kRed, "failed", what, text);
  }
  bool failed() const { return failed_; }

 private:
  void Line(Ink ink, std::string state, std::string what, const std::string& text) {
    state.resize(9, ' ');
    what.resize(12, ' ');
    std::printf("%s%s%s\n", Inked(style_, ink, state).c_str(), what.c_str(),
                Printable(text).c_str());
    std::fflush(stdout);
  }

  const TextStyle style_ = StyleFor(STDOUT_FILENO);
  bool failed_ = false;
};

std::string LastLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const size_t newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

fs::path OwnFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

// ---- the library ---------------------------------------------------------------------------

fs::path FindLibrary() {
  std::vector<fs::path> places;
  if (const char* set = std::getenv("PLUMBLINE_LIBRARY")) places.emplace_back(set);
  const fs::path here = OwnFolder();
  for (const char* folder : {".", "../lib", "../lib/x86_64-linux-gnu", "../lib64"}) {
    places.push_back(here / folder / "libplumbline.so");
  }
  std::error_code error;
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place, error)) return fs::canonical(place, error);
  }
  return {};
}

// A directory for one record. The destructor removes it with its content.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "plumb-doctor-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string WhyChildFailed(const ChildResult& child) {
  if (child.timed_out) return "it did not end in time";
  if (child.signal != 0) return absl::StrCat("it was ended by signal ", child.signal);
  return LastLine(child.output);
}

void CheckLibrary(Report& report) {
  const fs::path library = FindLibrary();
  if (library.empty()) {
    return report.Failed(
        "library",
        absl::StrCat(
            "libplumbline.so is not next to ", OwnFolder().string(),
            " nor in ../lib; install all of Plumbline, or set PLUMBLINE_LIBRARY to its path"));
  }
  const fs::path checker = OwnFolder() / "plumb-load-check";
  const ScratchFolder scratch;
  const ChildResult child =
      RunChild({checker.string(), library.string()},
               {"PLUMBLINE_RECORD=" + scratch.path().string(), "PLUMBLINE_RUN=plumb-doctor",
                "PLUMBLINE_SERVER=", "PLUMBLINE_DISABLE="},
               kLoadSeconds);
  if (!child.started) {
    return report.Failed("library", absl::StrCat(library.string(), ": ", checker.string(),
                                                 " is missing, so it cannot be tried"));
  }
  if (child.exit_status != 0) {
    return report.Failed("library",
                         absl::StrCat(library.string(), ": ", WhyChildFailed(child),
                                      "; libplumbline_agent.so must be in the same folder"));
  }
  report.Ok("library", absl::StrCat(library.string(), " ", LastLine(child.output),
                                    ", loads and records (the agent too)"));
}

// ---- the server ----------------------------------------------------------------------------

// The route of a test finding. Evidence is sent to the given address, and findings are watched at
// `ask`, which is null if there is no server that can be queried from here.
struct Route {
  bool served = false;            // test evidence can be sent
  Client* query = nullptr;        // where findings are watched
  std::unique_ptr<Client> above;  // the server above a relay
};

// Checks that the server has caught up, so that a finding of an earlier doctor is not mistaken for
// a finding of this doctor.
bool CheckAnswers(Client& client, const std::string& address, const v1::ServerInfo& info,
                  Report& report) {
  if (const auto caught_up = AwaitCaughtUp(client, address, 10); !caught_up.value_or(true)) {
    report.Failed("server", "it still judges its journal; try again later");
    return false;
  }
  report.Ok("server", absl::StrCat(address, ", plumbd ", info.version(), ", ",
                                   Plural(info.evidence(), "item"), " from ",
                                   Plural(info.streams(), "stream"), " so far"));
  return true;
}

// Checks a relay, which accepts evidence and answers no queries. If the server above can be reached
// from here, it is queried.
Route CheckRelay(const std::string& address, const std::string& upstream, Report& report) {
  report.Ok("relay", absl::StrCat(address, " is a relay of ", upstream));
  Route route{true, nullptr, std::make_unique<Client>(upstream)};
  const auto info = route.above->Info(3);
  if (!info.ok()) {
    report.Optional("server", absl::StrCat("it cannot be reached from here: ",
                                           std::string(info.status().message()),
                                           "; the relay has its own connection to it"));
  } else if (CheckAnswers(*route.above, upstream, *info, report)) {
    route.query = route.above.get();
  } else {
    route.served = false;
  }
  return route;
}

// Checks the server. `asked`: the user named the server. If not, a missing server is no failure,
// because records need no server.
Route CheckServer(Client& client, const std::string& address, bool requested, Report& report) {
  if (auto s = client.Health(3); !s.ok()) {
    if (requested) {
      report.Failed("server", std::string(s.message()));
    } else {
      report.Optional("server",
                      absl::StrCat(std::string(s.message()),
                                   "; records need no server, a server gives live findings"));
    }
    return {};
  }
  const auto info = client.Info(3);
  if (!info.ok()) {
    if (const std::string upstream = client.RelayOf(); !upstream.empty())
      return CheckRelay(address, upstream, report);
    // A trainer's token may write, and read nothing.
    if (absl::IsPermissionDenied(info.status())) {
      report.Optional("server",
                      absl::StrCat(address, " answers; ", std::string(info.status().message())));
      return {true, nullptr, nullptr};
    }
    report.Failed("server", std::string(info.status().message()));
    return {};
  }
  const bool answers = CheckAnswers(client, address, *info, report);
  return {answers, answers ? &client : nullptr, nullptr};
}

// ---- the libraries that can be hooked --------------------------------------------------------

// Returns the Python of the environment in which a wheel was installed:
// PREFIX/lib/pythonX.Y/site-packages/plumbline/bin/plumb.
std::string EnvironmentsPython() {
  const fs::path package = OwnFolder().parent_path();
  if (package.filename() != "plumbline" || package.parent_path().filename() != "site-packages")
    return {};
  const fs::path python = package.parent_path() / "../../../bin/python3";
  std::error_code error;
  return fs::exists(python, error) ? fs::canonical(python.parent_path(), error) / "python3"
                                   : fs::path();
}

std::vector<std::string> Pythons() {
  if (const char* set = std::getenv("PYTHON"); set != nullptr && *set != '\0') return {set};
  if (std::string own = EnvironmentsPython(); !own.empty()) return {std::move(own)};
  return {"python3", "/usr/bin/python3"};
}

void CheckTorch(Report& report) {
  std::string why;
  for (const std::string& python : Pythons()) {
    const ChildResult child = RunChild(
        {python, "-c",
         "import torch; print(torch.__version__, 'with CUDA ' + torch.version.cuda if "
         "torch.version.cuda else 'CPU only', '(a GPU is usable)' if torch.cuda.is_available() "
         "else '(no usable GPU)')"},
        {}, kTorchSeconds);
    if (child.started && child.exit_status == 0) {
      return report.Ok(
          "pytorch",
          absl::StrCat(LastLine(child.output), ", by ", python,
                       "; python -m plumbline doctor --model MODULE:FACTORY tests a model"));
    }
    absl::StrAppend(&why, why.empty() ? "" : "; ", python, ": ",
                    child.started ? WhyChildFailed(child) : "not here");
  }
  report.Optional(
      "pytorch",
      absl::StrCat(
          "not found (", why,
          "); only Python trainers need it; the variable PYTHON selects another interpreter"));
}

void CheckShared(Report& report, const char* what, const char* soname, const std::string& found,
                 const std::string& otherwise) {
  if (void* handle = dlopen(soname, RTLD_LAZY | RTLD_LOCAL)) {
    dlclose(handle);
    return report.Ok(what, absl::StrCat(soname, ": ", found));
  }
  const char* error = dlerror();
  report.Optional(what,
                  absl::StrCat("not found (", error != nullptr ? error : soname, "); ", otherwise));
}

void CheckCuda(Report& report) {
  CheckShared(report, "gpu driver", "libcuda.so.1", "tensors on the GPU can be measured",
              "it is needed to measure CUDA tensors, not for host tensors");
  std::error_code error;
  const fs::path library = FindLibrary();
  const fs::path kernels = library.parent_path() / "libplumbline_cuda.so";
  const bool built_here = fs::exists(OwnFolder() / "../CMakeCache.txt", error);
  CheckShared(report, "kernels", kernels.c_str(), "loads",
              built_here
                  ? "without them CUDA tensors are counted as lost: build with a CUDA toolkit"
                  : "without them CUDA tensors are counted as lost; this package has none");
  if (!built_here) return;  // a package needs no compiler
  for (const char* nvcc : {"nvcc", "/usr/local/cuda/bin/nvcc"}) {
    const ChildResult child = RunChild({nvcc, "--version"}, {}, 10);
    if (!child.started || child.exit_status != 0) continue;
    const size_t release = child.output.find("release ");
    const std::string text =
        release == std::string::npos
            ? LastLine(child.output)
            : child.output.substr(release, child.output.find('\n', release) - release);
    return report.Ok("cuda", absl::StrCat(nvcc, ", ", text, ": device kernels can be built"));
  }
  report.Optional("cuda",
                  "not found (no nvcc on PATH or in /usr/local/cuda/bin); it is needed to build "
                  "the device kernels");
}

// ---- end to end ----------------------------------------------------------------------------

// The state of the watch that waits for the test finding.
struct Arrival {
  Mutex mutex;
  CondVar changed;
  bool watching PLUMB_GUARDED_BY(mutex) = false;  // all existing incidents were read
  bool ended PLUMB_GUARDED_BY(mutex) = false;     // the watch has ended
  bool found PLUMB_GUARDED_BY(mutex) = false;
  v1::Finding finding PLUMB_GUARDED_BY(mutex);
  absl::Status status PLUMB_GUARDED_BY(mutex);
};

void WaitForFinding(Client& client, Arrival& arrival) {
  v1::WatchIncidentsRequest request;
  request.set_run(kDoctorRun);
  request.set_skip_existing(true);
  const absl::Status status = client.Watch(request, [&](const v1::IncidentEvent& event) {
    const MutexLock lock(arrival.mutex);
    if (event.kind() == v1::IncidentEvent::KIND_CAUGHT_UP) arrival.watching = true;
    if (event.incident().finding().rule() == kDoctorRule) {
      arrival.found = true;
      arrival.finding = event.incident().finding();
    }
    arrival.changed.NotifyAll();
    return !arrival.found;
  });
  const MutexLock lock(arrival.mutex);
  arrival.ended = true;
  arrival.status = status;
  arrival.changed.NotifyAll();
}

absl::Status SendEvidence(Client& client, double timeout_seconds) {
  std::random_device random;
  v1::Hello hello;
  hello.set_stream_id((static_cast<uint64_t>(random()) << 32 | random()) | 1);
  hello.set_protocol(1);
  hello.set_next_sequence(1);
  const v1::Batch batch = DoctorBatch(hello.stream_id());
  *hello.add_sources() = batch.sources(0);
  return client.Deliver(hello, batch, timeout_seconds);
}

// Checks delivery through a relay whose server cannot be queried: the acknowledgement comes from
// that server.
void CheckDelivery(Client& client, double timeout_seconds, Report& report) {
  if (const absl::Status sent = SendEvidence(client, timeout_seconds); !sent.ok()) {
    return report.Failed("finding", absl::StrCat("the test evidence was not accepted: ",
                                                 std::string(sent.message())));
  }
  report.Ok("finding", "the test evidence was acknowledged");
}

// Sends evidence to `client`, and waits for its finding at `ask`.
void CheckEndToEnd(Client& client, Client& query, double timeout_seconds, Report& report) {
  Arrival arrival;
  std::thread watcher([&] { WaitForFinding(query, arrival); });
  const auto wait = [&](auto condition) {
    MutexLock lock(arrival.mutex);
    arrival.changed.WaitFor(
        lock, std::chrono::duration<double>(timeout_seconds),
        [&]() PLUMB_REQUIRES(arrival.mutex) { return condition() || arrival.ended; });
    return condition();
  };
  absl::Status sent = absl::OkStatus();
  double seconds = 0;
  bool found = false;
  if (wait([&]() PLUMB_REQUIRES(arrival.mutex) { return arrival.watching; })) {
    const auto start = std::chrono::steady_clock::now();
    sent = SendEvidence(client, timeout_seconds);
    if (sent.ok()) found = wait([&]() PLUMB_REQUIRES(arrival.mutex) { return arrival.found; });
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  query.Cancel();
  watcher.join();
  const MutexLock lock(arrival.mutex);
  if (!sent.ok()) {
    return report.Failed("finding", absl::StrCat("the test evidence was not accepted: ",
                                                 std::string(sent.message())));
  }
  if (!found) {
    const std::string why = arrival.watching || arrival.status.ok()
                                ? ""
                                : absl::StrCat(": ", std::string(arrival.status.message()));
    return report.Failed("finding", absl::StrCat("no test finding arrived within ", timeout_seconds,
                                                 " s", why, "; check that ", kDoctorRule,
                                                 " is among the rules of this server"));
  }
  report.Ok("finding", absl::StrCat(arrival.finding.rule(), " (",
                                    std::string(StrengthName(arrival.finding.strength())),
                                    ") arrived after ", static_cast<int>(seconds * 1000), " ms"));
}

}  // namespace

int RunDoctor(const DoctorOptions& options) {
  Report report;
  CheckLibrary(report);
  Client client(options.server);
  const Route route = CheckServer(client, options.server, options.server_requested, report);
  CheckTorch(report);
  CheckCuda(report);
  CheckShared(report, "nccl", "libnccl.so.2", "NCCL collectives can be observed",
              "it is needed to observe NCCL collectives; hooks observe those of other backends");
  if (route.query != nullptr) {
    CheckEndToEnd(client, *route.query, options.timeout_seconds, report);
  } else if (route.served) {
    CheckDelivery(client, options.timeout_seconds, report);
  } else if (options.server_requested) {
    report.Failed("finding", "not tested, because the check of the server failed");
  } else {
    report.Optional("finding", "not tested: no server");
  }
  return report.failed() ? 1 : 0;
}

}  // namespace plumbline::audit
