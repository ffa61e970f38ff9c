#include "audit/commands/run_end.h"

#include <sys/wait.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/framed_log.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

// Returns the goodbye that follows the last batch of the record. Empty if process `trainer` did not
// write it, or if it has a goodbye.
std::optional<v1::Batch> Goodbye(const std::string& path, pid_t trainer, const v1::Ending& ending) {
  auto log = FramedLogReader::Open(path);
  if (!log.ok()) return std::nullopt;
  FrameType type{};
  std::string payload;
  v1::Batch last;
  std::optional<v1::Batch> goodbye;
  while ((*log)->Next(&type, &payload) == FramedLogReader::Result::kFrame) {
    if (type != FrameType::kBatch) continue;
    if (!last.ParseFromString(payload) || last.sources_size() != 1) return std::nullopt;
    if (last.sources(0).pid() != static_cast<int64_t>(trainer)) return std::nullopt;
    if (!goodbye) goodbye.emplace();
    for (v1::Progress& progress : *last.mutable_progress()) {
      if (progress.finished()) return std::nullopt;
      goodbye->mutable_progress()->Clear();
      *goodbye->add_progress() = std::move(progress);
    }
  }
  if (!goodbye || goodbye->progress().empty()) return std::nullopt;
  goodbye->set_stream_id(last.stream_id());
  goodbye->set_sequence(last.sequence() + 1);
  *goodbye->add_sources() = last.sources(0);
  goodbye->mutable_progress(0)->set_finished(true);
  *goodbye->mutable_progress(0)->mutable_ending() = ending;
  return goodbye;
}

}  // namespace

std::optional<v1::Ending> EndingOf(int status) {
  v1::Ending ending;
  ending.set_unix_ns(static_cast<int64_t>(UnixNs()));
  if (WIFSIGNALED(status)) {
    const char* const name = sigabbrev_np(WTERMSIG(status));
    ending.set_how(v1::Ending::HOW_SIGNAL);
    ending.set_code(WTERMSIG(status));
    ending.set_type(name == nullptr ? "signal" : std::string("SIG") + name);
  } else if (WEXITSTATUS(status) != 0) {
    ending.set_how(v1::Ending::HOW_EXIT);
    ending.set_code(WEXITSTATUS(status));
  } else {
    return std::nullopt;
  }
  return ending;
}

void NoteEnd(const std::string& folder, fs::file_time_type began, pid_t trainer, int status) {
  const std::optional<v1::Ending> ending = EndingOf(status);
  if (!ending) return;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unknown;
    if (it->path().extension() != ".plr" || fs::last_write_time(it->path(), unknown) < began)
      continue;
    const std::optional<v1::Batch> goodbye = Goodbye(it->path(), trainer, *ending);
    if (!goodbye) continue;
    if (auto log = FramedLogWriter::Open(it->path()); log.ok())
      (*log)->Append(FrameType::kBatch, goodbye->SerializeAsString()).IgnoreError();
  }
}

}  // namespace plumbline::audit
