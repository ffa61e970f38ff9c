// Reads the header of a safetensors file: a little-endian u64 (its length), that many bytes of
// JSON, and the tensors' data, contiguous and without holes. Checks the header completely against
// the file's size before any tensor is read, so that later reads need no further checks.
//
// Source of the format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"
#include "base/dtype.h"

namespace plumbline::audit {

struct TensorEntry {
  std::string name;
  std::string dtype_name;             // dtype as written in the file: "F32", "BF16", ...
  DType dtype = DType::kUnspecified;  // kUnspecified: a dtype of the format that is not supported
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // byte offsets in the file
  uint64_t declared_at = 0;     // offset of its name in the header

  uint64_t bytes() const { return end - begin; }
};

struct MetadataEntry {
  std::string value;
  uint64_t declared_at = 0;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry, std::less<>> tensors;
  std::map<std::string, MetadataEntry, std::less<>> metadata;

  const TensorEntry* Find(std::string_view name) const;
  // Returns nullptr if the key is absent.
  const MetadataEntry* Metadata(std::string_view key) const;
};

// Bytes of the length, which precedes the JSON.
inline constexpr uint64_t kHeaderLengthBytes = 8;
// The reference implementation also refuses longer headers.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxAxes = 8;

// Reads a header. Returns the problem, or nothing and a complete header.
std::optional<Problem> ReadSafetensorsHeader(const InputFile& file, SafetensorsHeader* header);

}  // namespace plumbline::audit
