#include "server/ingest/name_book.h"

#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace plumbline::server {
namespace {

// Salted anew in each process: names that collide cannot be prepared.
uint64_t HashOf(const v1::Site& site) { return absl::HashOf(site.layer(), site.op()); }
uint64_t HashOf(const v1::Evidence& evidence) { return HashOf(evidence.site()); }
uint64_t HashOf(const v1::SiteDeclaration& declaration) { return HashOf(declaration.site()); }
uint64_t HashOf(const v1::Loss& loss) {
  return absl::HashOf(loss.site().layer(), loss.site().op(), loss.cause());
}

}  // namespace

std::shared_ptr<NameBook::Run> NameBook::Find(const std::string& run, const std::string& owner,
                                              absl::Status* full) {
  {
    const ReaderLock lock(mutex_);
    const auto found = runs_.find(run);
    if (found != runs_.end()) return found->second;
  }
  const WriterLock lock(mutex_);
  if (const auto found = runs_.find(run); found != runs_.end()) return found->second;
  const bool all = runs_.size() >= max_runs_;
  if (all || runs_of_[owner] >= shares_.Part(owner, max_runs_)) {
    *full = absl::ResourceExhaustedError(absl::StrCat(
        "run \"", run, "\": ",
        all ? absl::StrCat("this server already knows ", max_runs_, " runs (ingest.max_runs)")
            : shares_.Full(owner, max_runs_, "runs", "ingest.max_runs")));
    return nullptr;
  }
  ++runs_of_[owner];
  return runs_[run] = std::make_shared<Run>(owner);
}

std::string NameBook::OwnerOf(const std::string& run) const {
  const ReaderLock lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() ? "" : found->second->owner;
}

absl::Status NameBook::AddRun(const std::string& run, const std::string& owner) {
  absl::Status full;
  (void)Find(run, owner, &full);
  return full;
}

absl::Status NameBook::Add(const std::string& name, Run* run, uint64_t hash) {
  {
    const ReaderLock lock(run->mutex);
    if (run->names.contains(hash)) return absl::OkStatus();
  }
  const WriterLock lock(run->mutex);
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
  const auto book = Find(run, "", &full);
  for (int i = 0; full.ok() && i < set.sites_size(); ++i)
    full = Add(run, book.get(), HashOf(set.sites(i)));
  return full;
}

template <typename Entries>
absl::Status NameBook::AddEach(const v1::Batch& batch, const Entries& entries) {
  std::shared_ptr<Run> book;
  int book_of = -1;
  absl::Status full;
  for (const auto& entry : entries) {
    const auto source = static_cast<int>(entry.source());
    const std::string& run = batch.sources(source).run();
    if (source != book_of) book = Find(run, "", &full);
    book_of = source;
    if (full.ok()) full = Add(run, book.get(), HashOf(entry));
    if (!full.ok()) return full;
  }
  return full;
}

absl::Status NameBook::Add(const v1::Batch& batch, const std::string& owner) {
  std::set<std::string_view> runs;
  for (int i = 0; i < batch.sources_size(); ++i) {
    const std::string& run = batch.sources(i).run();
    if (i > 0 && run == batch.sources(i - 1).run()) continue;
    if (!runs.insert(run).second) continue;
    if (auto full = AddRun(run, owner); !full.ok()) return full;
    for (const v1::SeriesSet& set : batch.series_sets()) {
      if (auto full = Add(run, set); !full.ok()) return full;
    }
  }
  if (auto full = AddEach(batch, batch.evidence()); !full.ok()) return full;
  if (auto full = AddEach(batch, batch.declarations()); !full.ok()) return full;
  return AddEach(batch, batch.losses());
}

}  // namespace plumbline::server
