// Builds safetensors dumps for tests, well formed unless a test requests an error.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/files.h"

namespace plumbline::audit::testing {

using test::ReadFile;
using test::TempFolder;

struct DumpTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string data;
};

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  std::string out(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

struct Dump {
  std::map<std::string, std::string> metadata;
  std::vector<DumpTensor> tensors;

  DumpTensor& Tensor(std::string_view name);
  void Remove(std::string_view name);
  std::string HeaderJson() const;
  std::string File() const;
};

// Length prefix, header and data, without checks.
std::string RawFile(const std::string& header, const std::string& data);

// A router that drops by score at a declared capacity: T tokens in sequences of 32, E experts, k =
// 1. moe-future-leak must report it.
Dump LeakyDump(int tokens = 256, int experts = 4, uint32_t seed = 1);

// Dropless top-2: no findings.
Dump DroplessDump(int tokens = 64, int experts = 4, uint32_t seed = 1);

}  // namespace plumbline::audit::testing
