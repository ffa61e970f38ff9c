#include "server/ingest/name_table.h"

#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace plumbline::server {
namespace {

// Memory of a name: kCopies copies of its bytes, and kName bytes for nodes of the engine's maps,
// its column and our hash. A list takes kList bytes, and kColumn for each of its columns.
constexpr uint64_t kName = 512, kCopies = 4, kColumn = 192, kList = 256;

uint64_t BytesOf(size_t name) { return kName + kCopies * name; }

}  // namespace

// Hashes have a random salt in each process, so that a sender cannot prepare names that collide.
NameTable::Cost NameTable::CostOfName(const v1::Site& site) {
  return {absl::HashOf(site.layer(), site.op()), BytesOf(site.layer().size() + site.op().size())};
}

// A run without space for a name can still report the number of lost items.
NameTable::Cost NameTable::CostOfLoss(const v1::Loss& loss) {
  if (loss.site().layer().empty() && loss.site().op().empty())
    return {absl::HashOf(loss.cause()), 0, Kind::kCause};
  const v1::Site& site = loss.site();
  return {absl::HashOf(site.layer(), site.op(), loss.cause()),
          BytesOf(site.layer().size() + site.op().size() + loss.cause().size())};
}

NameTable::Cost NameTable::CostOfList(const v1::SeriesSet& set) {
  Cost cost{absl::HashOf(set.sites_size()), kList, Kind::kList};
  for (const v1::Site& site : set.sites()) {
    cost.hash = absl::HashOf(cost.hash, site.layer(), site.op());
    cost.bytes += kColumn + 2 * (site.layer().size() + site.op().size());
  }
  return cost;
}

std::shared_ptr<NameTable::Run> NameTable::Find(const std::string& run, const Sender& sender,
                                                absl::Status* full) {
  {
    const ReaderLock lock(mutex_);
    const auto found = runs_.find(run);
    if (found != runs_.end() && !found->second->noted) {
      found->second->going_on = true;
      return found->second;
    }
  }
  const WriterLock lock(mutex_);
  auto known = FindLocked(run, sender, full);
  if (known != nullptr) known->going_on = true;
  return known;
}

std::shared_ptr<NameTable::Run> NameTable::FindLocked(const std::string& run, const Sender& sender,
                                                      absl::Status* full, Take take) {
  std::shared_ptr<Run> noted;
  if (const auto found = runs_.find(run); found != runs_.end()) {
    if (!found->second->noted) return found->second;
    noted = found->second;  // the first sender that names it owns it, if there is a place for it
  }
  RunShares::Place place;
  absl::Status taken = run_shares_.Take(sender, runs_.size(), noted != nullptr, &place);
  if (taken.ok() && take == Take::kKnown) {
    run_shares_.Give(&place);
    taken = absl::ResourceExhaustedError("other new runs of this sender wait for a place already");
  }
  if (!taken.ok()) {
    *full = absl::ResourceExhaustedError(
        absl::StrCat("run \"", run, "\": ", std::string(taken.message())));
    return nullptr;
  }
  auto& made = runs_[run];
  if (made == nullptr) made = std::make_shared<Run>();
  const WriterLock run_lock(made->mutex);
  SharedBytes::Held bytes(bytes_, sender.entries);
  bytes.Note(made->bytes.bytes());
  made->bytes = std::move(bytes);
  made->owner = sender.entries;
  made->noted = false;
  made->place = std::move(place);
  return made;
}

absl::StatusOr<std::shared_ptr<NameTable::Hold>> NameTable::Connect(
    const std::set<std::string>& runs, const Sender& sender, Take take) {
  const WriterLock lock(mutex_);
  std::set<std::string> held;
  absl::Status full;
  for (const std::string& run : runs) {
    const auto known = FindLocked(run, sender, &full, take);
    if (known == nullptr) break;
    ++known->connections;
    held.insert(run);
  }
  if (full.ok()) return std::make_shared<Hold>(this, std::move(held));
  for (const std::string& run : held) Disconnect(run);
  return full;
}

void NameTable::Hold::Release() {
  if (released_.exchange(true)) return;
  std::function<void()> on_free;
  {
    const WriterLock lock(table_->mutex_);
    for (const std::string& run : runs_) table_->Disconnect(run);
    on_free = table_->on_free_;
  }
  if (on_free) on_free();
}

void NameTable::SetOnFree(std::function<void()> on_free) {
  const WriterLock lock(mutex_);
  on_free_ = std::move(on_free);
}

void NameTable::Disconnect(const std::string& run) {
  const auto found = runs_.find(run);
  if (found == runs_.end() || --found->second->connections > 0) return;
  run_shares_.Disconnected(&found->second->place);
  EraseIfUnused(found);
}

void NameTable::EraseIfUnused(Runs::iterator run) {
  if (run->second->connections > 0 || run->second->going_on) return;
  run_shares_.Give(&run->second->place);
  runs_.erase(run);
}

size_t NameTable::runs() const {
  const ReaderLock lock(mutex_);
  return runs_.size();
}

std::string NameTable::OwnerOf(const std::string& run) const {
  const ReaderLock lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() ? "" : found->second->owner;
}

absl::Status NameTable::AddRun(const std::string& run, const Sender& sender) {
  absl::Status full;
  (void)Find(run, sender, &full);
  return full;
}

absl::Status NameTable::AddCause(const std::string& name, Run* run, const Cost& cost) {
  constexpr size_t kMostCauses = 64;
  const WriterLock lock(run->mutex);
  if (run->causes.size() >= kMostCauses && !run->causes.contains(cost.hash)) {
    return absl::ResourceExhaustedError(absl::StrCat("run \"", name, "\" reports losses of ",
                                                     kMostCauses, " causes, which is the limit"));
  }
  run->causes.insert(cost.hash);
  return absl::OkStatus();
}

absl::Status NameTable::Add(const std::string& name, Run* run, const Cost& cost) {
  if (cost.kind == Kind::kCause) return AddCause(name, run, cost);
  const bool list = cost.kind == Kind::kList;
  auto& known = list ? run->lists : run->names;
  {
    const ReaderLock lock(run->mutex);
    if (known.contains(cost.hash)) return absl::OkStatus();
  }
  const WriterLock lock(run->mutex);
  if (known.contains(cost.hash)) return absl::OkStatus();
  if (!list && known.size() >= max_names_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("run \"", name, "\" has ", max_names_,
                     " names of series and sites, which is the limit (ingest.max_series)"));
  }
  if (bytes_ != nullptr && bytes_->most() > 0 &&
      run->bytes.bytes() + cost.bytes > bytes_->most() / 4) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "run \"", name, "\": its names of series and sites take ", run->bytes.bytes() >> 10,
        " KiB, which is the limit (a quarter of limits.name_bytes)"));
  }
  if (bytes_ != nullptr && bytes_->most() > 0 && run->bytes.bytes() > bytes_->left()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "run \"", name, "\": its names of series and sites take ", run->bytes.bytes() >> 10,
        " KiB, more than is left for all runs (limits.name_bytes)"));
  }
  if (auto full = run->bytes.Take(cost.bytes); !full.ok()) return full;
  known.insert(cost.hash);
  return absl::OkStatus();
}

absl::Status NameTable::Add(const std::string& run, const v1::SeriesSet& set) {
  absl::Status full;
  const auto names = Find(run, {}, &full);
  for (int i = 0; full.ok() && i < set.sites_size(); ++i)
    full = Add(run, names.get(), CostOfName(set.sites(i)));
  if (full.ok()) full = Add(run, names.get(), CostOfList(set));
  return full;
}

void NameTable::Note(const std::vector<KnownName>& names) {
  for (const KnownName& known : names) {
    std::shared_ptr<Run> run;
    {
      const WriterLock lock(mutex_);
      auto& noted = runs_[known.run];
      if (noted == nullptr) {
        noted = std::make_shared<Run>();
        const WriterLock run_lock(noted->mutex);
        noted->bytes = SharedBytes::Held(bytes_, "");
        noted->noted = noted->going_on = true;
      }
      run = noted;
    }
    const WriterLock lock(run->mutex);
    const uint64_t hash = known.cause.empty() ? absl::HashOf(known.layer, known.op)
                                              : absl::HashOf(known.layer, known.op, known.cause);
    if (!run->names.insert(hash).second) continue;
    run->bytes.Note(BytesOf(known.layer.size() + known.op.size() + known.cause.size()));
  }
}

void NameTable::Forget(const std::string& name) {
  std::shared_ptr<Run> run;
  std::function<void()> on_free;
  {
    const WriterLock lock(mutex_);
    const auto found = runs_.find(name);
    if (found == runs_.end()) return;
    run = found->second;
    run->going_on = false;
    EraseIfUnused(found);
    on_free = on_free_;
  }
  if (on_free) on_free();
  const WriterLock lock(run->mutex);
  run->names.clear();
  run->lists.clear();
  run->causes.clear();
  run->bytes.Give(run->bytes.bytes());
}

template <typename Entries, typename CostOf>
absl::Status NameTable::AddEach(const v1::Batch& batch, const Entries& entries,
                                const CostOf& cost_of) {
  std::shared_ptr<Run> names;
  int names_of = -1;
  absl::Status full;
  for (const auto& entry : entries) {
    const auto source = static_cast<int>(entry.source());
    const std::string& run = batch.sources(source).run();
    if (source != names_of) names = Find(run, {}, &full);
    names_of = source;
    if (full.ok()) full = Add(run, names.get(), cost_of(entry));
    if (!full.ok()) return full;
  }
  return full;
}

absl::Status NameTable::Add(const v1::Batch& batch, const std::string& owner) {
  std::set<std::string_view> runs;
  for (int i = 0; i < batch.sources_size(); ++i) {
    const std::string& run = batch.sources(i).run();
    if (i > 0 && run == batch.sources(i - 1).run()) continue;
    if (!runs.insert(run).second) continue;
    if (auto full = AddRun(run, {.entries = owner}); !full.ok()) return full;
    for (const v1::SeriesSet& set : batch.series_sets()) {
      if (auto full = Add(run, set); !full.ok()) return full;
    }
  }
  const auto of_site = [](const auto& named) { return CostOfName(named.site()); };
  if (auto full = AddEach(batch, batch.evidence(), of_site); !full.ok()) return full;
  if (auto full = AddEach(batch, batch.declarations(), of_site); !full.ok()) return full;
  return AddEach(batch, batch.losses(), CostOfLoss);
}

}  // namespace plumbline::server
