// Reads PyTorch's distributed checkpoints: a pickle with the place of each tensor (.metadata), and
// files (__0_0.distcp) that contain tensors in the form of torch.save.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/checkpoint/contents.h"
#include "audit/readers/checkpoint/torch_file.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// One stored tensor or value.
struct DistributedEntry {
  std::string name;  // "model.layers.0.weight"
  bool tensor = false;
  uint64_t offset = 0, length = 0;  // bytes in its file
};

struct DistributedIndex {
  std::map<std::string, std::vector<DistributedEntry>> files;  // by file name, in the folder of the
                                                               // index
  bool parts_named = false;  // true if names begin with "model.", "optimizer." and the like
};

bool IsDistributedIndex(std::string_view path, std::string_view head);
bool IsDistributedPart(std::string_view path);

// Reads an index. Returns the problem, or nothing and a whole index. Knows the records that torch
// writes. Adds any other call to `findings`, as for a torch file.
std::optional<Problem> ReadDistributedIndex(const InputFile& file, DistributedIndex* index,
                                            FileFindings* findings);

// Reads the content of one part, using the index next to it. Caches the index of the last folder.
std::optional<Problem> ReadDistributedContents(const std::string& path, const InputFile& file,
                                               CheckpointContents* contents,
                                               FileFindings* findings);

// Opens each entry of a part that is not a tensor. If some are missing, returns the reason, else
// "".
std::string OpenDistributedValues(
    const std::string& path, const InputFile& file,
    const std::function<void(const std::string& name, std::unique_ptr<TorchFile>)>& take);

}  // namespace plumbline::audit
