// PyTorch's distributed checkpoints: a pickle that says where each tensor lies (.metadata), and
// files of tensors, each as torch.save writes one (__0_0.distcp).
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

// One stored thing.
struct DistributedEntry {
  std::string name;  // "model.layers.0.weight"
  bool tensor = false;
  uint64_t offset = 0, length = 0;  // bytes of its file
};

struct DistributedIndex {
  std::map<std::string, std::vector<DistributedEntry>> files;  // by name, beside the index
  bool parts_named = false;  // names begin with "model.", "optimizer." and the like
};

bool IsDistributedIndex(std::string_view path, std::string_view head);
bool IsDistributedPart(std::string_view path);

// The problem, or nothing and a whole index. Records that torch writes into it are known; any other
// call goes to `findings` as one of a torch file does.
std::optional<Problem> ReadDistributedIndex(const InputFile& file, DistributedIndex* index,
                                            FileFindings* findings);

// What one part holds, by the index beside it; that of the folder read last is kept.
std::optional<Problem> ReadDistributedContents(const std::string& path, const InputFile& file,
                                               CheckpointContents* contents,
                                               FileFindings* findings);

// Each entry of a part that is no tensor, opened. Why some are missing; empty: none is.
std::string OpenDistributedValues(
    const std::string& path, const InputFile& file,
    const std::function<void(const std::string& name, std::unique_ptr<TorchFile>)>& take);

}  // namespace plumbline::audit
