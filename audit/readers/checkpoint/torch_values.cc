#include "audit/readers/checkpoint/torch_values.h"

#include <map>
#include <string>
#include <utility>

#include "audit/readers/checkpoint/distributed.h"
#include "audit/readers/checkpoint/torch_walk.h"
#include "audit/readers/pickle/callees.h"
#include "base/printable.h"

namespace plumbline::audit {

FileValues OpenValues(const std::string& path, const InputFile& file) {
  FileValues out;
  if (IsDistributedPart(path)) {
    out.wrong = OpenDistributedValues(path, file, [&](const std::string& name, auto torch) {
      out.roots.push_back({name, std::move(torch), {}});
    });
    return out;
  }
  const absl::StatusOr<std::string> head = file.Head(4);
  if (head.ok() && *head != "PK\x03\x04") return out;
  ValueRoot root;
  if (auto problem = TorchFile::Open(file, &root.file)) {
    out.wrong = std::move(problem->text);
    return out;
  }
  // Collect the tensors that are compared by name.
  CheckpointContents contents;
  FileFindings findings;
  WalkTorchFile(*root.file, &contents, &findings);
  for (const NamedTensor& tensor : contents.tensors) root.named.insert(tensor.value);
  out.roots.push_back(std::move(root));
  return out;
}

// Checks all values that the pickle made, whether reachable from its root or not.
std::vector<OpaqueCall> OpaqueCalls(const TorchFile& file) {
  const PickleTree& tree = file.tree();
  std::map<std::string, OpaqueCall> calls;
  for (PickleId id = 0; id < tree.size(); ++id) {
    if (tree.Is(id, PickleKind::kCircle)) {
      const PickleCircle& circle = tree.circle(id);
      calls[ValidUtf8(NameOfCallee(tree, circle.call))].circles += circle.count;
    }
    if (!tree.Is(id, PickleKind::kCall)) continue;
    if (IsKnownRecord(tree.callee(id))) continue;
    const std::string name = ValidUtf8(NameOfCallee(tree, id));
    OpaqueCall& call = calls[name];
    if (call.count++ == 0) call.byte = file.byte(id);
    call.name = name;
    call.data &= BuildsData(tree, id);
  }
  std::vector<OpaqueCall> list;
  for (auto& [name, call] : calls) {
    if (call.count > 0) list.push_back(std::move(call));
  }
  return list;
}

}  // namespace plumbline::audit
