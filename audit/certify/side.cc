#include "audit/certify/side.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::audit {
namespace {

CertifiedStep Reached(const Source& source) {
  const Position position = source.position();
  return {position.attempt, position.step};
}

std::string StampOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return "";
  return absl::StrCat(info.st_dev, " ", info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec,
                      " ", info.st_mtim.tv_nsec);
}

constexpr size_t kMostWords = 64;  // per name of the environment

}  // namespace

CertifySide::CertifySide(std::string path, const Reader* mapped)
    : path_(std::move(path)), inputs_(FindInputs({path_}, nullptr, mapped)) {
  for (const Inputs::Set& set : inputs_.sets) {
    if (set.files.empty()) continue;
    const bool exact =
        set.reader->format() == "run-record" || set.reader->format() == "safetensors";
    for (auto& source : set.reader->OpenWith(set.files, ReaderOptions{})) {
      active_.push_back(sources_.size());
      sources_.push_back({std::move(source), exact});
    }
  }
}

CertifiedStep CertifySide::position() const {
  CertifiedStep least{std::numeric_limits<uint32_t>::max(), INT64_MAX};
  for (const size_t i : active_) least = std::min(least, Reached(*sources_[i].source));
  return least;
}

bool CertifySide::Next(v1::Batch* batch) {
  while (!active_.empty()) {
    const auto least = std::min_element(active_.begin(), active_.end(), [&](size_t a, size_t b) {
      return Reached(*sources_[a].source) < Reached(*sources_[b].source);
    });
    batch->Clear();
    if (sources_[*least].source->Next(batch)) {
      exact_nan_ = sources_[*least].exact_nan;
      NoteSources(*batch);
      return true;
    }
    active_.erase(least);
  }
  for (const InputReport& report : inputs_.reports) {
    for (const auto& [name, value] : report.settings) {
      std::set<std::string>& words = environment_[name];
      if (words.size() < kMostWords) words.insert(value);
    }
  }
  return false;
}

void CertifySide::NoteSources(const v1::Batch& batch) {
  for (const v1::Source& source : batch.sources()) {
    runs_.insert(source.run());
    const auto note = [&](const char* name, const std::string& value) {
      if (!value.empty() && environment_[name].size() < kMostWords)
        environment_[name].insert(value);
    };
    note("host", source.host());
    note("plumbline version", source.tool_version());
    if (source.role() == v1::ROLE_TRAINER && source.world_size() > 0)
      note("world size", absl::StrCat(source.world_size()));
  }
}

std::vector<std::string> CertifySide::Problems() const {
  std::vector<std::string> lines;
  for (const InputReport& report : inputs_.reports) {
    for (const Problem& problem : report.problems) lines.push_back(report.Line(problem));
  }
  return lines;
}

std::vector<std::string> StampsOf(const std::deque<InputReport>& reports) {
  std::vector<std::string> stamps;
  stamps.reserve(reports.size());
  for (const InputReport& report : reports) stamps.push_back(StampOf(report.path));
  return stamps;
}

absl::StatusOr<std::vector<CertifiedFile>> HashSide(const std::string& path,
                                                    const std::deque<InputReport>& reports,
                                                    const std::vector<std::string>& stamps) {
  std::vector<CertifiedFile> files;
  for (size_t i = 0; i < reports.size(); ++i) {
    const InputReport& report = reports[i];
    absl::StatusOr<HashedFile> hash = HashFile(report.path);
    if (!hash.ok()) return hash.status();
    if (StampOf(report.path) != stamps[i])
      return absl::FailedPreconditionError(report.path + ": changed while it was read");
    std::string place = std::filesystem::path(report.path).lexically_relative(path).string();
    if (place == ".") place = std::filesystem::path(report.path).filename().string();
    files.push_back({std::move(place), report.format, *std::move(hash)});
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.place < b.place; });
  return files;
}

}  // namespace plumbline::audit
