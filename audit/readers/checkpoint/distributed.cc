#include "audit/readers/checkpoint/distributed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "audit/readers/pickle/callees.h"
#include "audit/readers/pickle/machine.h"
#include "audit/readers/pickle/omitted_runs.h"
#include "base/printable.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = ".metadata";
constexpr size_t kMostEntryName = 512;

std::string_view LastPart(std::string_view callee) { return callee.substr(callee.rfind('.') + 1); }

// Returns true for records that torch writes into an index. Their module depends on the version.
bool IsIndexRecord(std::string_view callee) {
  constexpr std::string_view kRecords[] = {
      "Metadata",           "TensorStorageMetadata", "BytesStorageMetadata",
      "TensorProperties",   "ChunkStorageMetadata",  "MetadataIndex",
      "_StorageInfo",       "StorageMeta",           "_MEM_FORMAT_ENCODING",
      "MEM_FORMAT_ENCODING"};
  if (IsKnownRecord(callee) || callee == "builtins.getattr") return true;
  if (!callee.starts_with("torch.distributed.")) return false;
  return std::find(std::begin(kRecords), std::end(kRecords), LastPart(callee)) !=
         std::end(kRecords);
}

// Walks the index's pickle. Finds the file and the bytes of each name.
class IndexWalk {
 public:
  IndexWalk(const PickleTree& tree, DistributedIndex* index, FileFindings* findings)
      : tree_(tree), index_(*index), findings_(*findings) {}

  std::optional<Problem> Walk() {
    ReportCalls();
    const PickleId root = State(tree_.root(), "Metadata");
    const PickleId kinds = tree_.Find(root, "state_dict_metadata");
    const PickleId places = tree_.Find(root, "storage_data");
    if (!tree_.Is(kinds, PickleKind::kDict) || !tree_.Is(places, PickleKind::kDict))
      return Problem{0,
                     "expected the index of a distributed checkpoint (Metadata with "
                     "state_dict_metadata and storage_data), found other values"};
    const std::vector<PickleId>& pairs = tree_.items(places);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (auto problem = Take(kinds, pairs[i], pairs[i + 1])) return problem;
    }
    return std::nullopt;
  }

 private:
  // Returns the state of a record. Frozen records and those with slots have it as the second item
  // of a pair.
  PickleId State(PickleId id, std::string_view record) const {
    if (LastPart(tree_.callee(id)) != record) return kNoPickle;
    const PickleId state = tree_.call(id).state;
    if (tree_.Is(state, PickleKind::kTuple) && tree_.items(state).size() == 2)
      return tree_.items(state)[1];
    return state;
  }

  std::optional<uint64_t> Whole(PickleId id) const {
    if (!tree_.Is(id, PickleKind::kInt) || tree_.whole(id) < 0) return std::nullopt;
    return static_cast<uint64_t>(tree_.whole(id));
  }

  // Adds one entry. The file must be in the folder of the index.
  std::optional<Problem> Take(PickleId kinds, PickleId key, PickleId value) {
    const PickleId which = State(key, "MetadataIndex"), place = State(value, "_StorageInfo");
    const PickleId name = tree_.Find(which, "fqn"), path = tree_.Find(place, "relative_path");
    const auto offset = Whole(tree_.Find(place, "offset")),
               length = Whole(tree_.Find(place, "length"));
    if (!tree_.Is(name, PickleKind::kText) || !tree_.Is(path, PickleKind::kText) || !offset ||
        !length) {
      return Problem{tree_.offset(key),
                     "expected a name with its file, offset and length, found other values"};
    }
    const std::string file(tree_.text(path));
    if (file.empty() || file == "." || file == ".." ||
        file.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return Problem{
          tree_.offset(path),
          "expected the name of a file in the folder of the index, found " + Quoted(file)};
    }
    DistributedEntry entry;
    entry.name = ValidUtf8(tree_.text(name).substr(0, kMostEntryName));
    const PickleId kind = tree_.Find(kinds, tree_.text(name));
    entry.tensor = LastPart(tree_.callee(kind)) == "TensorStorageMetadata";
    entry.offset = *offset;
    entry.length = *length;
    index_.parts_named |= entry.name.starts_with("model.") || entry.name.starts_with("optim");
    index_.files[file].push_back(std::move(entry));
    return std::nullopt;
  }

  // Reports the calls in the pickle. Executes none of them.
  void ReportCalls() {
    struct Seen {
      uint64_t count = 0, byte = 0;  // byte: offset of the first call
      bool data = true;
    };
    std::map<std::string, Seen> others;
    for (PickleId id = 0; id < tree_.size(); ++id) {
      if (!tree_.Is(id, PickleKind::kCall) || IsIndexRecord(tree_.callee(id))) continue;
      Seen& seen = others[ValidUtf8(NameOfCallee(tree_, id))];
      if (seen.count++ == 0) seen.byte = tree_.offset(id);
      seen.data &= BuildsData(tree_, id);
    }
    if (std::string reported = OmittedRuns(tree_); !reported.empty())
      findings_.notes.push_back(std::move(reported));
    for (const auto& [name, seen] : others) {
      const std::string text = std::to_string(seen.count) +
                               (seen.count == 1 ? " call of " : " calls of ") + Printable(name);
      findings_.notes.push_back("not decoded: " + text);
      if (!seen.data) {
        findings_.problems.push_back(
            {seen.byte, "expected locations of tensors and plain values, found " + text +
                            " (not decoded and not executed)"});
      }
    }
  }

  const PickleTree& tree_;
  DistributedIndex& index_;
  FileFindings& findings_;
};

// Splits a name into its part of the checkpoint and the rest: "model.a.weight",
// "optimizer.state.a.weight.exp_avg".
NamedTensor NameOf(const std::string& name, bool parts_named) {
  NamedTensor out;
  out.name = name;
  // The first word is the part. For an optimizer's value, the last word is its kind.
  const size_t dot = name.find('.');
  const std::string_view first = std::string_view(name).substr(0, dot);
  const std::string rest = dot == std::string::npos ? "" : name.substr(dot + 1);
  if (first.starts_with("optim") && !rest.empty()) {
    out.part = Part::kOptimizer;
    out.name = rest;
    const size_t kept = rest.rfind('.');
    if (!rest.starts_with("state.") || kept <= 6) return out;
    out.name = rest.substr(kept + 1);
    out.parameter_name = rest.substr(6, kept - 6);
    return out;
  }
  if (first == "ema" || first.ends_with("_ema") || first.starts_with("ema_")) {
    out.part = Part::kAverage;
    if (!rest.empty()) out.name = rest;
    return out;
  }
  if (!rest.empty() && (first == "model" || first == "state_dict") && parts_named) out.name = rest;
  return out;
}

// Reads a value that is not a tensor. If its name is that of a step, it is a step count.
void TakeBytes(const DistributedEntry& entry, const TorchFile& torch,
               CheckpointContents* contents) {
  const std::optional<double> value = torch.Number(torch.tree().root());
  const std::string_view last = LastPart(entry.name);
  const bool whole = value && *value >= 0 && *value < 0x1p53 && *value == std::floor(*value);
  if (entry.name.starts_with("optim")) {
    if (last == "step" && value &&
        (!contents->optimizer_step || !(*value <= *contents->optimizer_step)))
      contents->optimizer_step = value;
    return;
  }
  if (last == "last_epoch" && value && !contents->scheduler_step) contents->scheduler_step = value;
  if (whole && !contents->step &&
      (last == "step" || last == "global_step" || last == "iteration" || last == "train_state"))
    contents->step = static_cast<int64_t>(*value);
}

// Returns the index next to a part. Caches the last index, because the parts of a folder are read
// in sequence.
std::shared_ptr<const DistributedIndex> IndexNextTo(const std::string& part,
                                                    std::optional<Problem>* problem) {
  thread_local std::string known_path;
  thread_local fs::file_time_type known_time;
  thread_local std::shared_ptr<const DistributedIndex> known;
  // Read the index once per folder.
  const fs::path path = fs::path(part).parent_path() / kIndexName;
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  if (error) {
    *problem = Problem{0,
                       "expected the index .metadata of the distributed checkpoint in the folder "
                       "of this part, found none"};
    return nullptr;
  }
  if (known != nullptr && known_path == path.string() && known_time == time) return known;
  // Problems of the index are reported when the index itself is read as an input.
  absl::StatusOr<InputFile> opened = InputFile::Open(path.string());
  auto index = std::make_shared<DistributedIndex>();
  FileFindings reported;  // not used: these findings are reported with the index itself
  if (!opened.ok()) {
    *problem = Problem{0, std::string(opened.status().message())};
    return nullptr;
  }
  if (ReadDistributedIndex(*opened, index.get(), &reported)) {
    *problem = Problem{0,
                       "expected a readable index .metadata in the folder of this part, found an "
                       "unreadable one (see its own problem)"};
    return nullptr;
  }
  known_path = path.string();
  known_time = time;
  known = std::move(index);
  return known;
}

}  // namespace

bool IsDistributedIndex(std::string_view path, std::string_view head) {
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
  return name == kIndexName && head.starts_with('\x80') &&
         head.find("checkpoint.metadata") != head.npos;
}

bool IsDistributedPart(std::string_view path) { return path.ends_with(".distcp"); }

std::optional<Problem> ReadDistributedIndex(const InputFile& file, DistributedIndex* index,
                                            FileFindings* findings) {
  const PickleLimits limits;
  if (file.size() > limits.bytes) {
    return Problem{0, "expected an index of at most " + std::to_string(limits.bytes) +
                          " bytes, found " + std::to_string(file.size())};
  }
  const absl::StatusOr<std::string> text = file.Head(limits.bytes);
  if (!text.ok()) return Problem{0, std::string(text.status().message())};
  PickleTree tree;
  if (auto problem = ParsePickle(*text, &tree)) return problem;
  return IndexWalk(tree, index, findings).Walk();
}

std::optional<Problem> ReadDistributedContents(const std::string& path, const InputFile& file,
                                               CheckpointContents* contents,
                                               FileFindings* findings) {
  std::optional<Problem> problem;
  const std::shared_ptr<const DistributedIndex> index = IndexNextTo(path, &problem);
  if (index == nullptr) return problem;
  const auto entries = index->files.find(fs::path(path).filename().string());
  if (entries == index->files.end()) {
    findings->notes.push_back("the index in the same folder names no tensor of this part");
    return std::nullopt;
  }
  // Limit the bytes read, so that work is linear in the file's size even if entries overlap.
  uint64_t bytes = 0;
  for (const DistributedEntry& entry : entries->second) {
    if (entry.offset > file.size() || entry.length > file.size() - entry.offset) {
      return Problem{std::min(entry.offset, file.size()),
                     "expected " + std::to_string(entry.length) + " bytes of " +
                         Quoted(entry.name) + " from byte " + std::to_string(entry.offset) +
                         " on, found a file of " + std::to_string(file.size())};
    }
    bytes += entry.length;
  }
  if (bytes > file.size()) {
    return Problem{0, "expected entries that do not overlap, found " + std::to_string(bytes) +
                          " bytes of them in a file of " + std::to_string(file.size())};
  }
  // Each entry is a small file. If one is damaged, the others are still read.
  for (const DistributedEntry& entry : entries->second) {
    std::unique_ptr<TorchFile> torch;
    if (auto wrong = TorchFile::OpenPart(file, entry.offset, entry.length, &torch)) {
      findings->problems.push_back(*std::move(wrong));
      continue;
    }
    if (!entry.tensor) {
      TakeBytes(entry, *torch, contents);
      continue;
    }
    std::string wrong;
    std::optional<StoredTensor> place = torch->Tensor(torch->tree().root(), &wrong);
    if (!place) {
      findings->problems.push_back(
          {entry.offset, (wrong.empty() ? "expected a tensor, found another value" : wrong) + " (" +
                             Quoted(entry.name) + ")"});
      continue;
    }
    NamedTensor tensor = NameOf(entry.name, index->parts_named);
    tensor.place = *std::move(place);
    contents->tensors.push_back(std::move(tensor));
  }
  return std::nullopt;
}

std::string OpenDistributedValues(
    const std::string& path, const InputFile& file,
    const std::function<void(const std::string& name, std::unique_ptr<TorchFile>)>& take) {
  constexpr size_t kMostOpen = size_t{1} << 16;
  std::optional<Problem> problem;
  const std::shared_ptr<const DistributedIndex> index = IndexNextTo(path, &problem);
  if (index == nullptr) return problem->text;
  const auto entries = index->files.find(fs::path(path).filename().string());
  if (entries == index->files.end()) return "";
  size_t open = 0;
  for (const DistributedEntry& entry : entries->second) {
    if (entry.tensor) continue;
    if (++open > kMostOpen)
      return "expected at most " + std::to_string(kMostOpen) + " values in a part, found more";
    std::unique_ptr<TorchFile> torch;
    if (auto wrong = TorchFile::OpenPart(file, entry.offset, entry.length, &torch))
      return wrong->text;
    take(entry.name, std::move(torch));
  }
  return "";
}

}  // namespace plumbline::audit
