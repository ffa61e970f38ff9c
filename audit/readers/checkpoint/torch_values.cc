#include "audit/readers/checkpoint/torch_values.h"

#include <utility>

#include "audit/readers/checkpoint/distributed.h"
#include "audit/readers/checkpoint/torch_walk.h"

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
  // Those that are compared by their names.
  CheckpointContents contents;
  FileFindings findings;
  WalkTorchFile(*root.file, &contents, &findings);
  for (const NamedTensor& tensor : contents.tensors) root.named.insert(tensor.value);
  out.roots.push_back(std::move(root));
  return out;
}

}  // namespace plumbline::audit
