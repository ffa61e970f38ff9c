// The index of a sharded checkpoint (*.index.json): which tensor is in which file.
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
  std::map<std::string, std::string> files;  // by tensor: a file's name, beside the index
  std::set<std::string> shards;
  std::optional<uint64_t> total_size;  // bytes of all tensors, as the index says
};

// The problem, or nothing and a complete index: a JSON object whose weight_map has each tensor once
// and names files of its own folder.
std::optional<Problem> ReadShardIndex(const InputFile& file, ShardIndex* index);

// What one shard holds.
struct ShardTensors {
  std::string shard;
  std::vector<std::pair<std::string, uint64_t>> tensors;  // name, bytes
};

// What the shards that could be read and the index say differently: a tensor in two shards, in
// another than its own or in none. `missing`: shards that are not there. `note`: all tensors are
// there, and the index counts other bytes (writers count tied weights twice, or in another dtype).
std::vector<Problem> CheckShards(const ShardIndex& index, const std::vector<ShardTensors>& shards,
                                 const std::set<std::string>& missing, std::string* note);

}  // namespace plumbline::audit
