#include "server/backup/manifest.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

constexpr char kManifestSchema[] = "plumbline.backup/1";

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

// Returns true for a path below the backup: a manifest must not reach elsewhere.
bool Inside(const std::filesystem::path& path) {
  return !path.empty() && path.is_relative() &&
         std::none_of(path.begin(), path.end(),
                      [](const auto& part) { return part == ".." || part == "." || part.empty(); });
}

nlohmann::json Write(const Manifest& manifest) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [path, digest] : manifest.files)
    files[path] = {{"bytes", digest.bytes}, {"sha256", digest.sha256}};
  return {{"schema", kManifestSchema},
          {"plumbd", manifest.tool_version},
          {"journal", manifest.journal_id},
          {"unix_ns", manifest.unix_ns},
          {"first_entry", manifest.first_entry},
          {"last_entry", manifest.last_entry},
          {"checkpoint_entry", manifest.checkpoint_entry},
          {"bytes", manifest.bytes()},
          {"files", std::move(files)}};
}

// Throws nlohmann::json::exception if a field is missing or has another type.
Manifest Read(const nlohmann::json& json) {
  Manifest manifest;
  json.at("plumbd").get_to(manifest.tool_version);
  json.at("journal").get_to(manifest.journal_id);
  json.at("unix_ns").get_to(manifest.unix_ns);
  json.at("first_entry").get_to(manifest.first_entry);
  json.at("last_entry").get_to(manifest.last_entry);
  json.at("checkpoint_entry").get_to(manifest.checkpoint_entry);
  for (const auto& [path, file] : json.at("files").items())
    manifest.files[path] = {file.at("bytes").get<uint64_t>(), file.at("sha256").get<std::string>()};
  return manifest;
}

}  // namespace

uint64_t Manifest::bytes() const {
  uint64_t sum = 0;
  for (const auto& [path, digest] : files) sum += digest.bytes;
  return sum;
}

absl::Status WriteManifest(const std::string& directory, const Manifest& manifest) {
  const std::string path = absl::StrCat(directory, "/", kManifest), draft = path + ".unfinished";
  std::ofstream(draft, std::ios::trunc) << Write(manifest).dump(1) << "\n";
  auto from = PinnedFile::Open(draft);
  if (!from.ok()) return from.status();
  if (auto copied = CopyFile(*from, path); !copied.ok()) return copied.status();
  std::error_code ignored;
  std::filesystem::remove(draft, ignored);
  auto read = ReadManifest(directory);
  if (!read.ok()) return read.status();
  return read->files == manifest.files ? absl::OkStatus()
                                       : Damaged(path, "differs from the written bytes");
}

absl::StatusOr<Manifest> ReadManifest(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifest);
  auto file = PinnedFile::Open(path);
  if (!file.ok()) {
    if (!absl::IsNotFound(file.status())) return file.status();
    return absl::NotFoundError(absl::StrCat(
        path, ": expected the list of files of a complete backup, found no file of this name"));
  }
  std::ifstream in(path);
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object()) return Damaged(path, "expected a JSON object, found other bytes");
  const nlohmann::json schema = json.value("schema", nlohmann::json());
  if (schema != kManifestSchema)
    return Damaged(
        path, absl::StrCat("expected the schema ", kManifestSchema, ", found ", schema.dump()));
  try {
    Manifest manifest = Read(json);
    for (const auto& [name, digest] : manifest.files) {
      if (!Inside(name)) return Damaged(path, absl::StrCat("\"", name, "\" is outside the backup"));
    }
    if (json.at("bytes").get<uint64_t>() != manifest.bytes())
      return Damaged(path, absl::StrCat("expected files with ", json.at("bytes").dump(),
                                        " bytes in total, found ", manifest.bytes()));
    return manifest;
  } catch (const nlohmann::json::exception& e) {
    return Damaged(path, e.what());
  }
}

absl::Status CheckFiles(const std::string& directory, const Manifest& manifest) {
  for (const auto& [name, expected] : manifest.files) {
    const std::string path = absl::StrCat(directory, "/", name);
    auto found = DigestOf(path);
    if (absl::IsNotFound(found.status())) {
      return Damaged(path, absl::StrCat("expected a file of ", expected.bytes,
                                        " bytes, found none of this name"));
    }
    if (!found.ok()) return found.status();
    if (found->bytes != expected.bytes)
      return Damaged(path,
                     absl::StrCat("expected ", expected.bytes, " bytes, found ", found->bytes));
    if (found->sha256 != expected.sha256)
      return Damaged(
          path, absl::StrCat("expected the SHA-256 ", expected.sha256, ", found ", found->sha256));
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server
