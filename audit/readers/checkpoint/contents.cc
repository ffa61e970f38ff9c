#include "audit/readers/checkpoint/contents.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "audit/readers/checkpoint/distributed.h"
#include "audit/readers/checkpoint/torch_file.h"
#include "audit/readers/checkpoint/torch_walk.h"
#include "audit/readers/dumps/kind.h"
#include "audit/readers/pickle/omitted_runs.h"
#include "audit/readers/safetensors/header.h"
#include "base/printable.h"

namespace plumbline::audit {
namespace {

// The magic number that torch.save before 1.6 pickled first.
constexpr std::string_view kLegacyMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

bool NamedAsTorch(std::string_view path) {
  for (const std::string_view end : {".pt", ".pth", ".bin", ".ckpt", ".distcp"}) {
    if (path.ends_with(end)) return true;
  }
  return false;
}

// Checks for a plausible header length and the opening brace.
bool LooksSafetensors(std::string_view head) {
  return head.size() > kHeaderLengthBytes && head[7] == '\0' && head[6] == '\0' &&
         head[kHeaderLengthBytes] == '{';
}

// Checks the first member's name: torch.save writes data.pkl first.
bool LooksTorchZip(std::string_view path, std::string_view head) {
  if (!head.starts_with(std::string_view("PK\x03\x04"))) return false;
  if (NamedAsTorch(path)) return true;
  if (head.size() < 30) return false;
  const size_t length = static_cast<unsigned char>(head[26]) |
                        static_cast<size_t>(static_cast<unsigned char>(head[27])) << 8;
  return head.substr(30, length).ends_with("/data.pkl");
}

// Returns true for a model's header. Tensors dumped by a probe have a "kind" or the names of a
// dump. A model mostly has "format", and names with dots.
bool IsModelHeader(const SafetensorsHeader& header) {
  if (header.Metadata("kind") != nullptr || header.tensors.empty()) return false;
  for (const DumpKind* kind : DumpKinds()) {
    if (kind->looks_like(header)) return false;
  }
  if (header.Metadata("format") != nullptr) return true;
  const auto dotted =
      std::count_if(header.tensors.begin(), header.tensors.end(),
                    [](const auto& tensor) { return tensor.first.find('.') != std::string::npos; });
  return 2 * static_cast<size_t>(dotted) > header.tensors.size();
}

bool IsModelFile(std::string_view path) {
  absl::StatusOr<InputFile> file = InputFile::Open(std::string(path));
  SafetensorsHeader header;
  return file.ok() && !ReadSafetensorsHeader(*file, &header) && IsModelHeader(header);
}

bool LooksTar(std::string_view head) { return head.size() > 262 && head.substr(257, 5) == "ustar"; }

}  // namespace

CheckpointForm FormOf(std::string_view path, std::string_view head) {
  if (IsDistributedIndex(path, head)) return CheckpointForm::kDistributedIndex;
  if (LooksTorchZip(path, head)) return CheckpointForm::kTorchZip;
  if (head.substr(0, 32).find(kLegacyMagic) != std::string_view::npos)
    return CheckpointForm::kLegacyPickle;
  if (LooksTar(head) && (NamedAsTorch(path) || head.starts_with("storages") ||
                         head.starts_with("sys_info") || head.starts_with("pickle")))
    return CheckpointForm::kLegacyTar;
  if (path.ends_with(".index.json") &&
      head.find_first_not_of(" \t\r\n") != std::string_view::npos &&
      head[head.find_first_not_of(" \t\r\n")] == '{' &&
      (head.find("\"weight_map\"") != std::string_view::npos ||
       head.find("\"metadata\"") != std::string_view::npos))
    return CheckpointForm::kIndex;
  if (LooksSafetensors(head) && IsModelFile(path)) return CheckpointForm::kSafetensors;
  return CheckpointForm::kNone;
}

std::optional<Problem> ReadContents(const std::string& path, const InputFile& file,
                                    CheckpointContents* contents, FileFindings* findings) {
  const absl::StatusOr<std::string> head = file.Head(Reader::kHeadBytes);
  if (!head.ok()) return Problem{0, std::string(head.status().message())};
  if (IsDistributedPart(path)) return ReadDistributedContents(path, file, contents, findings);
  if (head->starts_with("PK\x03\x04")) return ReadTorchContents(file, contents, findings);
  if (head->substr(0, 32).find(kLegacyMagic) != std::string::npos) {
    return Problem{0,
                   "expected a checkpoint as torch.save writes it since 1.6 (a zip), found the "
                   "older form (several pickles in sequence): load it and save it again"};
  }
  if (LooksTar(*head)) {
    return Problem{0,
                   "expected a checkpoint as torch.save writes it since 1.6 (a zip), found the "
                   "oldest form (a tar file): load it and save it again"};
  }
  return ReadSafetensorsContents(file, contents, findings);
}

std::optional<Problem> ReadTorchContents(const InputFile& file, CheckpointContents* contents,
                                         FileFindings* findings) {
  std::unique_ptr<TorchFile> torch;
  if (auto problem = TorchFile::Open(file, &torch)) return problem;
  if (torch->checksum_differs())
    findings->notes.push_back("data.pkl does not match its checksum in the zip");
  for (const OpaqueCall& call : OpaqueCalls(*torch)) {
    const std::string count =
        std::to_string(call.count) + (call.count == 1 ? " call of " : " calls of ");
    const std::string circles =
        call.circles == 0
            ? ""
            : " (in circles: " + std::to_string(call.circles) +
                  (call.circles == 1 ? " reference that leads" : " references that lead") +
                  " back into it not followed)";
    findings->notes.push_back("not decoded: " + count + call.name + circles);
    if (call.data) continue;
    findings->problems.push_back({call.byte, "expected tensors and plain values, found " + count +
                                                 Printable(call.name) +
                                                 " (not decoded and not executed)"});
  }
  if (std::string reported = OmittedRuns(torch->tree()); !reported.empty())
    findings->notes.push_back(std::move(reported));
  if (auto problem = WalkTorchFile(*torch, contents, findings)) return problem;
  uint64_t bytes = 0;
  for (const NamedTensor& tensor : contents->tensors) bytes += tensor.place.bytes();
  if (bytes > kFreeBytes + kMostRepeats * file.size()) {
    return Problem{0, "expected tensors of at most " + std::to_string(kMostRepeats) +
                          " times the size of the file, found " + std::to_string(bytes) +
                          " in a file of " + std::to_string(file.size())};
  }
  return std::nullopt;
}

std::optional<Problem> ReadSafetensorsContents(const InputFile& file, CheckpointContents* contents,
                                               FileFindings* /*findings*/) {
  SafetensorsHeader header;
  if (auto problem = ReadSafetensorsHeader(file, &header)) return problem;
  for (const auto& [name, entry] : header.tensors) {
    NamedTensor tensor;
    tensor.name = name.substr(0, 512);
    tensor.place.dtype = entry.dtype;
    tensor.place.dtype_name = entry.dtype_name;
    tensor.place.shape = entry.shape;
    tensor.place.stride = DenseStrides(entry.shape);
    tensor.place.begin = tensor.place.first = entry.begin;
    tensor.place.last = entry.end;
    if (std::string bad = CheckStored(tensor.place); !bad.empty())
      return Problem{entry.declared_at, "expected " + bad + " (" + Quoted(name) + ")"};
    contents->tensors.push_back(std::move(tensor));
  }
  if (const MetadataEntry* step = header.Metadata("step")) {
    const std::string& text = step->value;
    if (!text.empty() && text.size() < 16 && text.find_first_not_of("0123456789") == text.npos)
      contents->step = std::stoll(text);
  }
  return std::nullopt;
}

}  // namespace plumbline::audit
