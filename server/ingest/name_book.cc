#include "server/ingest/name_book.h"

#include <functional>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

uint64_t HashOf(const v1::Site& site) {
  const uint64_t layer = std::hash<std::string>()(site.layer());
  return (layer ^ (layer >> 31)) * 0x9E3779B97F4A7C15u + std::hash<std::string>()(site.op());
}

}  // namespace

std::shared_ptr<NameBook::Run> NameBook::Find(const std::string& run, absl::Status* full) {
  {
    std::shared_lock lock(mutex_);
    const auto found = runs_.find(run);
    if (found != runs_.end()) return found->second;
  }
  std::lock_guard lock(mutex_);
  auto& made = runs_[run];
  if (made != nullptr) return made;
  if (runs_.size() > max_runs_) {
    runs_.erase(run);
    *full = absl::ResourceExhaustedError(absl::StrCat(
        "run \"", run, "\": this server already knows ", max_runs_, " runs (ingest.max_runs)"));
    return nullptr;
  }
  return made = std::make_shared<Run>();
}

absl::Status NameBook::AddRun(const std::string& run) {
  absl::Status full;
  (void)Find(run, &full);
  return full;
}

absl::Status NameBook::Add(const std::string& name, Run* run, const v1::Site& site) {
  const uint64_t hash = HashOf(site);
  {
    std::shared_lock lock(run->mutex);
    if (run->names.contains(hash)) return absl::OkStatus();
  }
  std::lock_guard lock(run->mutex);
  if (run->names.size() < max_names_) {
    run->names.insert(hash);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("run \"", name, "\" has ", max_names_,
                   " names of series and sites, and may not have more (ingest.max_series)"));
}

absl::Status NameBook::Add(const std::string& run, const v1::SeriesSet& set) {
  absl::Status full;
  const auto book = Find(run, &full);
  for (int i = 0; full.ok() && i < set.sites_size(); ++i) full = Add(run, book.get(), set.sites(i));
  return full;
}

absl::Status NameBook::Add(const v1::Batch& batch) {
  absl::Status full;
  for (const v1::Source& source : batch.sources()) {
    if (full = AddRun(source.run()); !full.ok()) return full;
    for (const v1::SeriesSet& set : batch.series_sets()) {
      if (full = Add(source.run(), set); !full.ok()) return full;
    }
  }
  std::shared_ptr<Run> book;
  int book_of = -1;
  for (const v1::Evidence& evidence : batch.evidence()) {
    const std::string& run = batch.sources(static_cast<int>(evidence.source())).run();
    if (book_of != static_cast<int>(evidence.source())) book = Find(run, &full);
    book_of = static_cast<int>(evidence.source());
    if (full.ok()) full = Add(run, book.get(), evidence.site());
    if (!full.ok()) return full;
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server
