#include "audit/follow/known_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "audit/session/inputs.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCheap = 64 << 10;  // bytes; a file up to this size is tried in each pass

}  // namespace

void KnownFiles::LookAt(const std::string& path, size_t argument, std::vector<Found>* found) {
  const std::optional<FileStamp> stamp = StampOf(path);
  auto known = files_.find(path);
  if (!stamp ||
      (known != files_.end() && (known->second.known || stamp->size < known->second.query_at)))
    return;
  if (known == files_.end()) {
    std::error_code error;
    const std::string canonical = fs::canonical(path, error).string();
    if (!error && !canonical_.insert(canonical).second) return;
    known = files_.try_emplace(path).first;
    known->second.argument = argument;
  }
  File& file = known->second;
  Inputs inputs = FindInputs({path}, forced_, mapped_, step_);
  if (inputs.reports.empty()) return;
  file.report = std::make_unique<InputReport>(std::move(inputs.reports.front()));
  file.report->named = path == paths_[argument];
  file.known = !inputs.sets.empty();
  // A long banner may precede the first line that identifies the format.
  file.query_at = stamp->size + (stamp->size < kCheap ? 1 : stamp->size / 8);
  if (file.known) found->push_back({file.report.get(), inputs.sets.front().reader});
}

void KnownFiles::LookThrough(const std::string& folder, size_t argument,
                             std::vector<Found>* found) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) files.push_back(entry->path().string());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) LookAt(file, argument, found);
}

std::vector<KnownFiles::Found> KnownFiles::Look(bool last) {
  std::vector<Found> found;
  for (auto& [path, file] : files_) file.query_at = last ? 0 : file.query_at;
  for (size_t i = 0; i < paths_.size(); ++i) {
    std::error_code error;
    if (fs::is_directory(paths_[i], error)) {
      LookThrough(paths_[i], i, &found);
    } else {
      LookAt(paths_[i], i, &found);
    }
  }
  return found;
}

std::deque<InputReport> KnownFiles::Reports(bool last) const {
  std::vector<const File*> order;
  for (const auto& [path, file] : files_) {
    if (file.report != nullptr) order.push_back(&file);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const File* a, const File* b) { return a->argument < b->argument; });
  std::deque<InputReport> reports;
  for (const File* file : order) {
    InputReport& report = reports.emplace_back(*file->report);
    if (!file->known && !(report.named && last)) report.problems.clear();
  }
  if (!last) return reports;
  for (const std::string& path : paths_) {
    std::error_code error;
    if (files_.contains(path) || fs::is_directory(path, error)) continue;
    for (InputReport& report : FindInputs({path}, forced_, mapped_, step_).reports)
      if (report.failed()) reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace plumbline::audit
