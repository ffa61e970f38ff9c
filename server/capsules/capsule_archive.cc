#include "server/capsules/capsule_archive.h"

#include <array>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/framed_log.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/words/report_json.h"

namespace plumbline::server {
namespace {

using rules::Json;

constexpr size_t kTarBlock = 512;

// Appends a file as POSIX ustar: a header of one block, then the bytes, padded to whole blocks.
void AddFile(const std::string& name, std::string_view bytes, std::string* tar) {
  std::array<char, kTarBlock> head{};
  std::snprintf(head.data(), 100, "%s", name.c_str());
  std::snprintf(head.data() + 100, 8, "%07o", 0644);
  std::snprintf(head.data() + 108, 8, "%07o", 0);
  std::snprintf(head.data() + 116, 8, "%07o", 0);
  std::snprintf(head.data() + 124, 12, "%011llo", static_cast<unsigned long long>(bytes.size()));
  std::snprintf(head.data() + 136, 12, "%011o", 0);
  std::memset(head.data() + 148, ' ', 8);
  head[156] = '0';
  std::memcpy(head.data() + 257, "ustar\00000", 8);
  unsigned sum = 0;
  for (const char byte : head) sum += static_cast<unsigned char>(byte);
  std::snprintf(head.data() + 148, 8, "%06o", sum);
  head[155] = ' ';
  tar->append(head.data(), head.size());
  tar->append(bytes);
  tar->append((kTarBlock - bytes.size() % kTarBlock) % kTarBlock, '\0');
}

std::string CapsuleRecord(const v1::Batch& batch, const std::string& bytes) {
  v1::RecordHeader header;
  header.set_schema("plumbline.record/1");
  *header.mutable_source() = batch.sources(0);
  header.set_tool_version(batch.sources(0).tool_version());
  const std::string head = header.SerializeAsString();
  const std::pair<FrameType, std::string_view> frames[] = {{FrameType::kRecordHeader, head},
                                                           {FrameType::kBatch, bytes}};
  return FramedLogBytes(frames);
}

std::string FileName(const v1::Source& source) {
  char name[64];
  std::snprintf(name, sizeof name, "%srank-%05u.plr",
                source.role() == v1::ROLE_ROLLOUT ? "rollout-" : "", source.rank());
  return name;
}

Json Digest(const std::string& name, const std::string& bytes) {
  return {{"name", name}, {"bytes", bytes.size()}, {"sha256", HexText(Sha256Of(bytes))}};
}

}  // namespace

absl::StatusOr<std::string> CapsuleArchive(const std::string& name, const v1::CapsuleInfo& info,
                                           const std::vector<std::pair<int, std::string>>& held) {
  std::string tar;
  const std::string finding = rules::FindingValue(info.finding()).dump(2) + "\n";
  AddFile(name + "/finding.json", finding, &tar);
  Json files = Json::array(), missing = Json::array(), without_site = Json::array();
  std::vector<bool> there(static_cast<size_t>(info.ranks_size()), false);
  for (const auto& [index, bytes] : held) {
    v1::Batch batch;
    if (!batch.ParseFromString(bytes) || batch.sources_size() != 1 || batch.evidence().empty())
      return absl::DataLossError("the stored data of a rank cannot be read");
    const std::string record = CapsuleRecord(batch, bytes);
    const std::string file = FileName(batch.sources(0));
    Json stated = Digest(file, record);
    stated["form"] = "run-record";
    stated["rank"] = batch.sources(0).rank();
    stated["step"] = batch.evidence(0).step();
    stated["call"] = 0;
    files.push_back(std::move(stated));
    AddFile(absl::StrCat(name, "/", file), record, &tar);
    there[static_cast<size_t>(index)] = true;
  }
  for (int i = 0; i < info.ranks_size(); ++i) {
    if (there[static_cast<size_t>(i)]) continue;
    missing.push_back(
        {{"rank", info.ranks(i).source().rank()}, {"reason", ValidUtf8(info.ranks(i).error())}});
  }
  for (const uint32_t rank : info.without_site()) without_site.push_back(rank);
  const Json manifest = {{"schema", "plumbline.capsule/1"},
                         {"fingerprint", info.finding().fingerprint()},
                         {"origin", "capture"},
                         {"step", info.step()},
                         {"finding", Digest("finding.json", finding)},
                         {"files", std::move(files)},
                         {"missing", std::move(missing)},
                         {"omitted_ranks", info.omitted_ranks()},
                         {"without_site", std::move(without_site)}};
  AddFile(name + "/manifest.json", manifest.dump(2) + "\n", &tar);
  tar.append(2 * kTarBlock, '\0');
  return tar;
}

}  // namespace plumbline::server
