#include "audit/live/capsule_directory.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/live/dump_writer.h"
#include "audit/render/finding_json.h"
#include "audit/render/text_util.h"
#include "base/files/whole_file.h"
#include "base/sha256.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

// Returns the start of a rank's file names: "rank-00003" or "rollout-rank-00003".
std::string RankName(const v1::Source& source) {
  char name[64];
  std::snprintf(name, sizeof(name), "%srank-%05u",
                source.role() == v1::ROLE_ROLLOUT ? "rollout-" : "", source.rank());
  return name;
}

}  // namespace

absl::StatusOr<CapsuleDirectory> CapsuleDirectory::Create(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output: expected an empty or a new directory, found ", path));
  }
  // Everything is written into a folder next to the place; Finish renames it.
  fs::path whole = fs::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "DIR/"
  const std::string temporary = absl::StrCat(whole.string(), ".", getpid(), ".part");
  fs::create_directories(temporary, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output: ", path, " cannot be created: ", error.message()));
  }
  return CapsuleDirectory(whole.string(), temporary);
}

CapsuleDirectory::~CapsuleDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

// Writes one file of the temporary folder. An error names the place where the file would have been.
absl::Status CapsuleDirectory::Write(const std::string& name, const std::string& bytes) const {
  std::ofstream file(absl::StrCat(temporary_, "/", name), std::ios::binary | std::ios::trunc);
  file << bytes;
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(path_, "/", name, ": cannot be written: ", std::strerror(errno)));
}

absl::Status CapsuleDirectory::Add(const v1::Batch& batch) {
  if (batch.sources_size() != 1) return absl::DataLossError("expected one source in a capsule");
  // Build all dumps before the first is written. If one piece of evidence has no dump form, the
  // whole batch becomes a run record.
  std::vector<std::pair<File, std::string>> dumps;
  for (const v1::Evidence& e : batch.evidence()) {
    const auto bytes = DumpOf(batch.sources(0), e);
    if (!bytes.ok()) return AddRecord(batch);
    // The file of the first call has the plain name; those of later calls have the number of the
    // call in the name.
    char call[32];
    std::snprintf(call, sizeof(call), ".%04u", e.call());
    File file;
    file.name = absl::StrCat(RankName(batch.sources(0)), dumps.empty() && e.call() == 0 ? "" : call,
                             ".safetensors");
    file.form = "safetensors";
    file.kind = KindOf(e);
    file.rank = batch.sources(0).rank();
    file.call = e.call();
    file.step = e.step();
    file.bytes = bytes->size();
    file.sha256 = HexText(Sha256Of(*bytes));
    dumps.emplace_back(std::move(file), *bytes);
  }
  for (auto& [file, bytes] : dumps) {
    if (auto s = Write(file.name, bytes); !s.ok()) return s;
    bytes_ += file.bytes;
    files_.push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::Status CapsuleDirectory::AddRecord(const v1::Batch& batch) {
  File file;
  file.name = RankName(batch.sources(0)) + ".plr";
  file.form = "run-record";
  file.kind = KindOf(batch.evidence(0));
  file.rank = batch.sources(0).rank();
  file.step = batch.evidence(0).step();
  const std::string path = absl::StrCat(temporary_, "/", file.name);
  if (auto s = WriteRecord(path, batch); !s.ok()) return s;
  // The digest is of the bytes on disk.
  const auto bytes = ReadWholeFile(path, UINT64_MAX);
  if (!bytes.ok()) return bytes.status();
  file.bytes = bytes->size();
  file.sha256 = HexText(Sha256Of(*bytes));
  bytes_ += file.bytes;
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

void CapsuleDirectory::AddMissing(uint32_t rank, const std::string& why) {
  missing_.emplace_back(rank, why);
}

absl::Status CapsuleDirectory::Finish(const v1::Finding& finding, const std::string& origin,
                                      const v1::CapsuleInfo& info) {
  nlohmann::ordered_json manifest;
  manifest["schema"] = "plumbline.capsule/1";
  manifest["fingerprint"] = finding.fingerprint();
  manifest["origin"] = origin;
  if (origin == "capture") manifest["step"] = info.step();
  const std::string text = FindingValue(finding).dump(2) + "\n";
  manifest["finding"] = {
      {"name", "finding.json"}, {"bytes", text.size()}, {"sha256", HexText(Sha256Of(text))}};
  manifest["files"] = nlohmann::ordered_json::array();
  for (const File& f : files_) {
    manifest["files"].push_back({{"name", f.name},
                                 {"form", f.form},
                                 {"kind", f.kind},
                                 {"rank", f.rank},
                                 {"step", f.step},
                                 {"call", f.call},
                                 {"bytes", f.bytes},
                                 {"sha256", f.sha256}});
  }
  manifest["missing"] = nlohmann::ordered_json::array();
  for (const auto& [rank, why] : missing_) {
    manifest["missing"].push_back({{"rank", rank}, {"reason", ValidUtf8(why)}});
  }
  manifest["omitted_ranks"] = info.omitted_ranks();
  manifest["without_site"] = nlohmann::ordered_json::array();
  for (const uint32_t rank : info.without_site()) manifest["without_site"].push_back(rank);
  if (auto s = Write("finding.json", text); !s.ok()) return s;
  if (auto s = Write("manifest.json", manifest.dump(2) + "\n"); !s.ok()) return s;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat(path_, ": cannot be moved to its final place"));
  }
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace plumbline::audit
