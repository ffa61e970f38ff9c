#include "audit/calls/call_watch.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "audit/calls/call_record.h"
#include "audit/calls/process_calls.h"
#include "audit/calls/unseen_calls.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

std::string EnvironmentOf(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the library of this installation: of a build folder, a prefix, a Debian package or a
// wheel. Empty: there is none.
std::string InterposeLibrary() {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {"../lib", "../lib/x86_64-linux-gnu", "../lib/aarch64-linux-gnu",
                             "../lib64", "..", "../_lib", "."}) {
    const fs::path library = here / folder / "libplumb_interpose.so";
    if (fs::exists(library, error)) return fs::canonical(library, error);
  }
  return "";
}

std::string NewFolder() {
  const std::string parent = EnvironmentOf("TMPDIR");
  std::string path = (parent.empty() ? "/tmp" : parent) + "/plumbline-calls-XXXXXX";
  return mkdtemp(path.data()) == nullptr ? "" : path;
}

// Returns why a program is not watched; empty: it is.
std::string Refusal(const ElfProgram& program, const std::string& library) {
  if (program.sanitized)
    return "is linked with AddressSanitizer, which must be the first library: its calls of BLAS, "
           "NCCL and cuBLAS are not counted";
  if (program.linked_statically)
    return "is linked statically: its calls of BLAS, NCCL and cuBLAS are not counted";
  if (library.find_first_of(": ") != std::string::npos)
    return "is not watched: the path of libplumb_interpose.so has a space or a colon";
  return "";
}

std::string RunName() {
  const std::string given = EnvironmentOf("PLUMBLINE_RUN");
  return given.empty() ? EnvironmentOf("PLUMBLINE_ATTACH_RUN") : given;
}

}  // namespace

CallWatch::~CallWatch() { Restore(); }

void CallWatch::Change(const char* name, const std::string& value) {
  const char* before = std::getenv(name);
  changed_.push_back({name, before == nullptr ? std::nullopt : std::optional<std::string>(before)});
  setenv(name, value.c_str(), 1);
}

void CallWatch::Begin(const std::vector<std::string>& command) {
  const std::string library = InterposeLibrary();
  if (library.empty() || EnvironmentOf("PLUMBLINE_INTERPOSE") == "0") return;
  name_ = fs::path(command[0]).filename();
  program_ = ExamineProgram(FindProgram(command[0]), SymbolsOfLibraries());
  const std::string why = Refusal(program_, library);
  if (!why.empty()) {
    std::fprintf(stderr, "plumb: run: %s %s\n", command[0].c_str(), why.c_str());
    return;
  }
  folder_ = NewFolder();
  if (folder_.empty()) return;
  const std::string preloaded = EnvironmentOf("LD_PRELOAD");
  Change("LD_PRELOAD", preloaded.empty() ? library : preloaded + ":" + library);
  Change("PLUMBLINE_CALLS", folder_);
  // A child that is linked with AddressSanitizer would refuse to start after any preloaded library.
  const std::string options = EnvironmentOf("ASAN_OPTIONS");
  Change("ASAN_OPTIONS", (options.empty() ? "" : options + ":") + "verify_asan_link_order=0");
}

void CallWatch::Follow() {
  if (!folder_.empty()) progress_ = std::make_unique<CallProgress>(folder_);
}

void CallWatch::Restore() {
  for (const Variable& variable : changed_) {
    if (variable.before) {
      setenv(variable.name, variable.before->c_str(), 1);
    } else {
      unsetenv(variable.name);
    }
  }
  changed_.clear();
  std::error_code error;
  if (!folder_.empty()) fs::remove_all(folder_, error);
  folder_.clear();
}

bool CallWatch::Finish(const End& end) {
  const double since = progress_ != nullptr ? progress_->SecondsSinceLast() : 0;
  progress_.reset();
  const std::vector<ProcessCalls> processes =
      folder_.empty() ? std::vector<ProcessCalls>() : ReadTables(folder_);
  Restore();
  const std::string counts = CountsInWords(processes);
  if (!counts.empty()) std::fprintf(stderr, "plumb: run: calls seen: %s\n", counts.c_str());
  CallRecord record{end.folder, RunName(), end.trainer, std::nullopt, std::nullopt};
  if (end.interrupted) record.blocked_seconds = since;
  if (end.recorded) {
    record.run += "-calls";  // the hook's record has the ranks of this run
  } else {
    record.ending = end.ending;
  }
  bool written = false;
  const absl::Status status = WriteCallRecord(
      record, processes, FindUnseen(processes, program_, name_, end.recorded), &written);
  if (!status.ok())
    std::fprintf(stderr, "plumb: run: the calls were not recorded: %s\n",
                 std::string(status.message()).c_str());
  return written;
}

}  // namespace plumbline::audit
