// The index of a sharded checkpoint (*.index.json). It has the file of each tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

struct ShardIndex {
  // Tensor -> name of its file, in the folder of the index.
  std::map<std::string, std::string> files;
  std::set<std::string> shards;
  std::optional<uint64_t> total_size;  // bytes of all tensors, as the index states
};

// Reads an index. If there is a problem, returns it. Otherwise fills `index`: a JSON object whose
// weight_map has each tensor once and names only files of its own folder.
std::optional<Problem> ReadShardIndex(const InputFile& file, ShardIndex* index);

// The content of one shard.
struct ShardTensors {
  std::string shard;
  std::vector<std::pair<std::string, uint64_t>> tensors;  // name, bytes
};

// Compares the index with the shards that could be read. Returns a problem for each tensor that is
// in two shards, in another shard than stated, or in none. `missing`: shards that do not exist. If
// all tensors exist but the index states another total size, sets `note` (writers may count tied
// weights twice, or in another dtype).
std::vector<Problem> CheckShards(const ShardIndex& index, const std::vector<ShardTensors>& shards,
                                 const std::set<std::string>& missing, std::string* note);

// Returns true if the configuration of transformers in the folder of a file (config.json) ties the
// embedding and the head.
bool TiesEmbedding(const std::string& path);

}  // namespace plumbline::audit
